"""The durable state of the dispatcher. Only ``DispatcherState.apply`` changes it.

Decision 0013; protocol 1.5.
"""
