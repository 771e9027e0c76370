"""The knowledge of the dispatcher: its durable state, which only
``DispatcherState.apply`` changes, and measures, traces and the outbox of a turn, which
are not durable.

Decision 0013; protocol 1.5.
"""
