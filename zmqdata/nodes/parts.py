"""Parts of a source in an order that all tasks share: what ``take`` and ``skip`` leave
of it.

Where tasks share the source, its splits are the places of this part in the order. Each
task would otherwise count the splits that it happens to get, and ``take`` and ``skip``
of the same order would overlap. Such orders are those that stay, and all orders of
listed files, which the dispatcher puts in order.

Decision 0034.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from zmqdata.errors import UnimplementedError
from zmqdata.nodes.base import Node
from zmqdata.splits import MOST_SPLITS, IndexSplits, SplitSource


class PartOfOrder(NamedTuple):
    """A part of an order."""

    first: int
    """First place of the part."""
    stop: int
    """The place after its last place."""
    order: Node
    """The node that has this order."""


def part_of(node: Node) -> PartOfOrder | None:
    """Return the part of a shared order to which ``take`` and ``skip`` limit a
    pipeline; None if its last operation is neither, or they limit something else.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.limits import Skip, Take
    >>> from zmqdata.operations.shuffle import Shuffle
    >>> numbers = Range(start=0, stop=9)
    >>> once = Shuffle(inputs=(numbers,), buffer_size=9, reshuffle_each_iteration=False)
    >>> part_of(Skip(inputs=(Take(inputs=(once,), count=7),), count=2))[:2]
    (2, 7)
    """
    limits: list[Node] = []
    current = node
    while (limiting := current.part_left(0) is not None) or (limits and current.is_one_to_one):
        if limiting:
            limits.append(current)
        current = current.inputs[0]
    if not limits or not (current.lists_files or current.is_lasting):
        return None
    # The dispatcher's files count, which only their listing tells.
    left = range(MOST_SPLITS if current.lists_files else current.cardinality)
    for one in reversed(limits):
        part = one.part_left(len(left))
        assert part is not None
        left = left[part.start : part.stop]
    return PartOfOrder(left.start, left.stop, current)


def split_sources(node: Node, fixed_seed: int = 0) -> list[SplitSource]:
    """Return the sources that need a split provider, left to right.

    Nested datasets (made by the functions of flat_map and interleave) and the indices
    of enumerate need no provider.

    Raises:
        UnimplementedError: a source cannot be split.

    >>> from zmqdata.operations.combinations import Zip
    >>> from zmqdata.operations.sources import Range
    >>> ranges = Range(start=0, stop=3), Range(start=0, stop=5)
    >>> split_sources(Zip(inputs=ranges, template=(0, 1)))
    [IndexSplits(count=3), IndexSplits(count=5)]
    """
    found: list[SplitSource] = []
    pending = [(node, node)]
    while pending:
        current, reader = pending.pop()
        part = part_of(current)
        if part is not None:
            found.append(_splits_of(part, fixed_seed))
        elif current.is_source or not current.inputs:
            source = current.split_source
            found.append(source if reader is current else reader.ordered_splits(source, fixed_seed))
        else:
            pending.extend((one, current) for one in reversed(current.inputs))
    return found


def _splits_of(part: PartOfOrder, fixed_seed: int) -> SplitSource:
    """Return the splits of a part of an order."""
    if not part.order.lists_files:
        return IndexSplits(part.stop - part.first)
    (whole,) = split_sources(part.order, fixed_seed)
    return replace(whole, first=part.first, stop=part.stop)


def split_count(node: Node) -> int | None:
    """Return the number of splits of a pipeline with a single source; None if it has
    several, or their number is not known here.

    >>> from zmqdata.operations.sources import Range
    >>> split_count(Range(start=0, stop=5))
    5
    """
    sources = split_sources(node)
    only = sources[0] if len(sources) == 1 else None
    return only.count if isinstance(only, IndexSplits) else None


def is_single(source: Node) -> bool:
    """Return True if a source has a single split, which a single task reads."""
    try:
        return source.split_source == IndexSplits(1)
    except UnimplementedError:
        return False
