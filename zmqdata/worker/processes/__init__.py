"""The worker as processes: the supervisor, the limits of its children and what survives
a crash.
"""
