"""The end of an iteration in simulated worlds: worlds that act within the last steps,
worlds that start programs again, and mutations that these worlds must find.
"""
