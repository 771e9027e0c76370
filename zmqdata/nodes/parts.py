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
from zmqdata.nodes.base import Node, every_node, source_nodes
from zmqdata.nodes.batches import MapBatches
from zmqdata.nodes.mapping import GuardedMap
from zmqdata.nodes.options import WithOptions
from zmqdata.nodes.sequences import FromSource
from zmqdata.nodes.sources import ListFiles, Range, TensorSlices
from zmqdata.nodes.transforms import Batch, Map, Prefetch, Repeat, Shuffle, Skip, Take
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

    >>> numbers = Range(start=0, stop=9)
    >>> once = Shuffle(inputs=(numbers,), buffer_size=9, reshuffle_each_iteration=False)
    >>> part_of(Skip(inputs=(Take(inputs=(once,), count=7),), count=2))[:2]
    (2, 7)
    """
    limits: list[Take | Skip] = []
    current = node
    while isinstance(current, (Take, Skip)) or (limits and is_one_to_one(current)):
        if isinstance(current, (Take, Skip)):
            limits.append(current)
        current = current.inputs[0]
    lists = _lists_files(current)
    if not limits or not (lists or is_lasting(current)):
        return None
    # The dispatcher's files count, which only their listing tells.
    first, stop = 0, MOST_SPLITS if lists else current.cardinality
    for one in reversed(limits):
        count = stop - first if one.count < 0 else min(one.count, stop - first)
        if isinstance(one, Take):
            stop = first + count
        else:
            first += count
    return PartOfOrder(first, stop, current)


def is_whole(node: Shuffle) -> bool:
    """Return True if the buffer of a shuffle holds all of a source with random access,
    whose elements are its splits.
    """
    source, size = node.input, node.buffer_size
    return isinstance(source, (Range, TensorSlices, FromSource)) and (
        size is None or size >= source.cardinality
    )


def is_lasting(node: Node) -> bool:
    """Return True if a node reads a whole source in an order that stays."""
    if isinstance(node, Shuffle):
        reorders = isinstance(node.input, FromSource) and node.input.shuffle
        return not node.reshuffle_each_iteration and is_whole(node) and not reorders
    return isinstance(node, FromSource) and node.shuffle and not node.reshuffle_each_iteration


def split_sources(node: Node, fixed_seed: int = 0) -> list[SplitSource]:
    """Return the sources that need a split provider, left to right.

    Nested datasets (made by the functions of flat_map and interleave) and the indices
    of enumerate need no provider.

    Raises:
        UnimplementedError: a source cannot be split.

    >>> from zmqdata.nodes.combinations import Zip
    >>> from zmqdata.nodes.sources import Range
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
    if not _lists_files(part.order):
        return IndexSplits(part.stop - part.first)
    (whole,) = split_sources(part.order, fixed_seed)
    return replace(whole, first=part.first, stop=part.stop)


def _lists_files(node: Node) -> bool:
    """Return True if a node yields the names of files in an order that the dispatcher
    makes, and that is the same for all readings of a turn if it is to stay.
    """
    if not isinstance(node, Shuffle):
        return isinstance(node, ListFiles)
    names = node.input
    return isinstance(names, ListFiles) and (
        node.reshuffle_each_iteration or not names.shuffle or names.seed is not None
    )


def miscounted(node: Node) -> tuple[Node, Node] | None:
    """Return a ``take`` or ``skip`` of a pipeline, and the order that stays below it,
    if the first counts what each task gets where tasks share the source; else None.
    """
    for one in every_node(node):
        if isinstance(one, (Take, Skip)) and selects(one) and part_of(one) is None:
            order = _selected_order(one)
            if order is not None:
                return one, order
    return None


def selects(node: Take | Skip) -> bool:
    """Return True if a ``take`` or ``skip`` leaves an element out of a long input."""
    return node.count >= 0 if isinstance(node, Take) else node.count != 0


def is_single(source: Node) -> bool:
    """Return True if a source has a single split, which a single task reads."""
    try:
        return source.split_source == IndexSplits(1)
    except UnimplementedError:
        return False


def _selected_order(limit: Take | Skip) -> Node | None:
    """Return the order that stays of which an operation selects elements. What it
    counts of a repeated input are steps, not parts of an order.
    """
    if all(map(is_single, source_nodes(limit))):
        return None
    pending: list[Node] = [limit]
    seen: set[int] = set()
    while pending:
        below = pending.pop()
        if id(below) in seen or (isinstance(below, Repeat) and below.count != 1):
            continue
        seen.add(id(below))
        kept = isinstance(below, Shuffle) and not below.reshuffle_each_iteration
        if kept or is_lasting(below):
            return below
        pending.extend(below.inputs)
    return None


def is_one_to_one(node: Node) -> bool:
    """Return True if a node makes one element of each element of its input, in the same
    order.
    """
    if isinstance(node, GuardedMap):
        return node.on_error != "skip"
    return isinstance(node, (Map, Prefetch, WithOptions))


def counts_by_task(node: Node, tasks: int) -> list[int] | None:
    """Return the number of elements that each of several tasks makes, if split k of the
    source belongs to task k modulo their number; None if it is not known.

    Args:
        node: the pipeline.
        tasks: number of tasks.

    >>> numbers = Range(start=0, stop=7)
    >>> counts_by_task(Batch(inputs=(numbers,), batch_size=2, drop_remainder=False), 3)
    [2, 1, 1]
    """
    if part_of(node) is not None or isinstance(node, (Range, TensorSlices, FromSource)):
        (source,) = split_sources(node)
        count = source.count if isinstance(source, IndexSplits) else None
        return None if count is None else [len(range(task, count, tasks)) for task in range(tasks)]
    is_batch = isinstance(node, Batch) and not isinstance(node, MapBatches)
    is_known = is_batch or is_one_to_one(node) or isinstance(node, (Shuffle, Repeat))
    counts = counts_by_task(node.inputs[0], tasks) if is_known else None
    if counts is None or is_one_to_one(node) or isinstance(node, Shuffle):
        return counts
    if isinstance(node, Repeat):
        return None if node.count < 0 else [count * node.count for count in counts]
    assert isinstance(node, Batch)
    missing = 0 if node.drop_remainder else node.batch_size - 1
    return [(count + missing) // node.batch_size for count in counts]
