"""Measures of loops and tasks: sums, the meter of a loop, the verdict on what limits
it, and the spans of OpenTelemetry.
"""
