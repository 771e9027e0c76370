"""Measures of loops and tasks: sums, the meter of a loop, and the verdict on what
limits it.
"""
