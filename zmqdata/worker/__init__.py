"""The worker: its socket loop, the runners of its tasks, and the supervisor of its
processes.

Nothing is imported here: the supervisor starts fast and small because its package does.
"""
