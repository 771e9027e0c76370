"""The end of an iteration in simulated worlds: laws of the readers that end, worlds
that act within the last steps, and mutations that these worlds must find.
"""
