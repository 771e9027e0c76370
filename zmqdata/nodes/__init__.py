"""Operations of a pipeline as frozen descriptions: a class per operation, each holding
its inputs.

A node states its operation, its cardinality, how its source is split, and the spec of
its elements if that follows from its inputs. Running belongs to ``iterators``; the
user's interface and the checks of arguments belong to ``dataset``.

A new source from outside of this package is a subclass of ``Node`` and an executor
registered with ``make_iterator``.
"""
