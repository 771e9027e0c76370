"""The worker: its socket loop, the runners of its tasks, and the supervisor of its
processes.

This package imports nothing, so that the supervisor starts quickly and stays small.
"""
