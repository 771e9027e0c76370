"""The durable state of the dispatcher. `DispatcherState.apply` is the only code that
changes it.
"""
