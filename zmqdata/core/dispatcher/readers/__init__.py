"""Readers of jobs: how they are admitted, how they take turns, and when they may leave.

See the page on the design.
"""
