"""Peers of the dispatcher: which of them live, and where workers are.

See the page on the design.
"""
