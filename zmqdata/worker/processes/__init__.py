"""The processes of a worker: the supervisor, the limits of its children, and the
records that survive a crash.
"""
