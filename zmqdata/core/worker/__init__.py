"""The worker's decisions. ``decider`` receives events and returns commands, without a
socket, a thread or a clock.

See the page on the design.
"""
