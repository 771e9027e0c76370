"""What the dispatcher knows. Its durable state is changed only by
``DispatcherState.apply``.

The loads of workers follow from that state. The outbox of a turn, reported measures and
traces are not durable.

Decision 0013; protocol 1.5.
"""
