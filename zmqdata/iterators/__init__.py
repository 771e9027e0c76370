"""The parts that the iterators of all operations share: their interface, the context
that they run in, inputs, decisions, names, draws, and the inference of specs.

The iterators themselves are in ``operations``, the user's interface is in ``dataset``,
tasks and streams belong to the worker.
"""
