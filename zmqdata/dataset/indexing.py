"""Elements by their numbers, for ``Dataset.at``: the checks of the number, and the
filling of caches. How an operation computes an element belongs to
``iterators.random_access``.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from zmqdata import operations
from zmqdata.dataset.seeds import fixed_seed, next_seed
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import FailedPreconditionError, UnimplementedError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.random_access import out_of_range, program_element, uncounted
from zmqdata.nodes.base import Node
from zmqdata.nodes.options import options_of

_fillings: WeakKeyDictionary[object, _Filling] = WeakKeyDictionary()


def element_of(dataset: object, node: Node, number: int) -> Any:
    """Return an element of a dataset without running the elements before it, unless its
    last operation is a cache in memory, which keeps them.

    Args:
        dataset: the dataset.
        node: its last operation.
        number: number of the element.

    Raises:
        IndexError: the dataset has no such element.
        FailedPreconditionError: the number of elements is infinite or unknown.
        UnimplementedError: an operation can yield its elements only in order.
    """
    try:
        return _computed(node, number)
    except (UnimplementedError, FailedPreconditionError):
        if not isinstance(node, operations.cache.Cache) or node.filename:
            raise
    for element in _filled_up_to(dataset, node, number):
        return element
    return _computed(node, number)  # past the end of a full cache


def _computed(last: Node, number: int) -> Any:
    node = operations.cache.with_filled_caches(last)
    count = node.cardinality
    if count == INFINITE_CARDINALITY and number >= 0:
        raise uncounted(node)
    if number < 0 or 0 <= count <= number:
        raise out_of_range(node, number, count)
    return program_element(node, number, fixed_seed())


def _filled_up_to(dataset: object, node: operations.cache.Cache, number: int) -> list[Any]:
    """Return element ``number`` of a cache after caching all elements before it; an
    empty list if the cache ends earlier.

    The iterator stays open for the next element, until the dataset is gone. To restore
    another one may cost as much as all elements before.

    Args:
        dataset: owner of the iterator.
        node: the cache.
        number: number of the element.
    """
    # Another thread finds no iterator and creates its own. Both fill the same cache.
    filling = _fillings.pop(dataset, None)
    if filling is None or not filling.leads_to(number):
        filling = _Filling(node)
    found = filling.taken(number)
    if found:
        _fillings[dataset] = filling
    return found


class _Filling:
    def __init__(self, node: operations.cache.Cache) -> None:
        options = options_of(node)
        context = Context(seed=next_seed(), fixed_seed=fixed_seed(), options=options)
        self._iterator = make_iterator(node, context)
        self._position = 0
        self._process = os.getpid()  # a forked child shares files and lacks threads

    def leads_to(self, number: int) -> bool:
        return self._position <= number and self._process == os.getpid()

    def taken(self, number: int) -> list[Any]:
        """Return element ``number`` as a list, or an empty list at the end."""
        found: list[Any] = []
        try:
            before = number - self._position
            found = list(islice(self._iterator, before, before + 1))
            self._position = number + 1
            self._iterator.state()  # the cache notes where other iterators continue
        finally:
            if not found:
                self._iterator.close()
        return found
