"""Base of the nodes of all operations. A node is a frozen description of an operation,
which holds its inputs.

A node states its operation, its cardinality, how its source is split, and the spec of
its elements if that follows from its inputs. The nodes themselves are in
``operations``, the user's interface and the checks of arguments in ``dataset``.

A new source from outside of this package is a subclass of ``Node`` and an executor
registered with ``make_iterator``.
"""
