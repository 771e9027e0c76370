"""Random access: an element by its number, for pipelines whose operations can compute
it without all elements before it.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import singledispatch
from typing import Any

from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import FailedPreconditionError, UnimplementedError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context, Name
from zmqdata.nodes.base import Node

ANEW = ", as each iteration has its own order: pass reshuffle_each_iteration=False"
_PLAIN = Context()
program: ContextVar[Context] = ContextVar("_program", default=_PLAIN)
"""Context of an access: the fixed seed is that of the program's iterators."""


def program_element(node: Node, index: int, fixed_seed: int) -> Any:
    """Return element ``index`` of a node as ``element_at`` does, in the orders that the
    iterators of a program have.

    Args:
        node: the node.
        index: number of the element.
        fixed_seed: seed of the orders that the program draws once.

    >>> from zmqdata.operations.sources import Range
    >>> program_element(Range(start=5, stop=9), 2, fixed_seed=1)
    np.int64(7)
    """
    token = program.set(Context(fixed_seed=fixed_seed))
    try:
        return element_at(node, index)
    finally:
        program.reset(token)


@singledispatch
def element_at(node: Node, index: int) -> Any:
    """Return element ``index`` of a node.

    Any module can make a node accessible: apply ``@element_at.register`` to a function
    of ``(node, index)``. The index is valid for the node's cardinality, if that is
    known.

    Raises:
        IndexError: the cardinality is unknown, and the node has no such element.
        UnimplementedError: the operation does not support random access.

    >>> from zmqdata.operations.sources import Range
    >>> element_at(Range(start=5, stop=9), 2)
    np.int64(7)
    """
    if node.holds_only and node.is_one_to_one:
        return element_at(node.inputs[0], index)
    raise refusal(node, index)


def uncounted(node: Node) -> FailedPreconditionError:
    """Return the error for a node without random access because its number of elements
    is infinite or unknown.
    """
    count = "infinite" if node.cardinality == INFINITE_CARDINALITY else "unknown"
    remedy = (
        "limit it with take(n)" if count == "infinite" else "state it with assert_cardinality()"
    )
    return FailedPreconditionError(
        f"Dataset of type {type(node).__name__} has {count} cardinality which does not support "
        f"random access: {node.label} has no number of elements to count within. Remedy: {remedy}"
    )


def out_of_range(node: Node, index: int, count: int) -> IndexError:
    """Return the error for a number that no element has.

    Args:
        node: the node.
        index: the number.
        count: number of elements of the node at most; negative if it is unknown.
    """
    limit = (
        f"0 to {count - 1}"
        if count > 0
        else "none, the dataset is empty"
        if count == 0
        else "0 upwards"
    )
    return IndexError(
        f"Index out of range: at() got {index} for {node.label}, whose elements have the "
        f"numbers {limit}"
    )


def element_of_uncounted(node: Node, index: int) -> Any:
    """Return an element of an input whose number of elements is unknown.

    Raises:
        FailedPreconditionError: the input ends before it, so it is unknown which
            element of the operation the number means.
    """
    try:
        return element_at(node, index)
    except IndexError:
        raise uncounted(node) from None


def refusal(node: Node, index: int, reason: str = "") -> UnimplementedError:
    text = (
        f"Random access is not supported for dataset of type {type(node).__name__}: {node.label} "
        "cannot compute "
    )
    if reason:
        return UnimplementedError(f"{text}element {index}{reason}")
    return UnimplementedError(
        f"{text}element {index} without running all elements before it. Call at() earlier in the "
        f"pipeline, or iterate with skip({index})"
    )


def from_place(node: Node, index: int) -> Any:
    """Return element ``index`` of a source whose state is an index."""
    iterator = make_iterator(node, program.get())
    iterator.restore(index)
    return next(iterator)


@singledispatch
def name_at(node: Node, index: int) -> Name:
    """Return the name of element ``index`` of a node with random access, as
    ``ElementIterator.namer`` of its iterators does.

    >>> from zmqdata.operations.limits import Skip
    >>> from zmqdata.operations.sources import Range
    >>> name_at(Skip(inputs=(Range(start=0, stop=9),), count=3), 2)
    (0, 5)
    """
    return name_at(node.inputs[0], index) if node.inputs else (0, index)
