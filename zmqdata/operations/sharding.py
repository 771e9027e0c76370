"""Static sharding: the pipeline that each of n workers runs, as a rewritten tree of
nodes (tf.data's auto-shard rules).

``shard_statically`` is the only entry point. Reading the shards belongs to
``operations.selections``, the assignment of indices to workers to
``core.dispatcher.peers.worker_addresses``, splits of DYNAMIC iterations to
``core.ledger``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from zmqdata.errors import InvalidArgumentError, NotFoundError, PipelineError
from zmqdata.iterators.calling import call, failure
from zmqdata.iterators.inference import first_element
from zmqdata.nodes.base import Node
from zmqdata.operations.batch import Batch, RaggedBatch
from zmqdata.operations.cache import Cache
from zmqdata.operations.choices import Choose
from zmqdata.operations.combinations import Concatenate, Zip
from zmqdata.operations.files import Files, FixedLengthRecords, ListFiles, TextLines, TFRecords
from zmqdata.operations.grouping import Window
from zmqdata.operations.limits import AssertCardinality, Skip, Take
from zmqdata.operations.mapping import Filter, Map
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.packing import Pack
from zmqdata.operations.padding import PaddedBatch
from zmqdata.operations.parallel import ParallelInterleave, ParallelMap
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.selections import (
    Shard,
    SkipUnreadable,
    StaticShard,
    WithOptions,
    too_few_files,
    unfilled_hint,
)
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import nested_node
from zmqdata.operations.stored import Snapshot
from zmqdata.operations.unbatch import MapBatches, Rebatch, Unbatch

_UNSHARDED = ("OFF", "DYNAMIC")
_READERS = (TextLines, TFRecords, FixedLengthRecords)
_PASSED = (
    Batch,
    Cache,
    Concatenate,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Pack,
    PaddedBatch,
    Prefetch,
    RaggedBatch,
    Rebatch,
    Repeat,
    Shard,
    Shuffle,
    Skip,
    SkipUnreadable,
    Take,
    Unbatch,
    Window,
    WithOptions,
    Zip,
)
"""Operations that FILE passes through on its way to the readers: those of tf.data, and
similar operations of zmqdata.
"""
# file names in the shuffle buffer, if all must be shuffled and their number is unknown
_BUFFER = 10_000


def shard_statically(
    node: Node, policy: str, num_workers: int, index: int, seed: int | None = None
) -> Node:
    """Return the pipeline that worker ``index`` of ``num_workers`` runs under a
    sharding policy.

    Args:
        node: the whole pipeline.
        policy: name of a ``ShardingPolicy``. OFF and DYNAMIC change nothing.
        num_workers: number of workers that share the pipeline, from 1.
        index: index of this worker, from 0.
        seed: seed shared by all workers. The operations below a shard run with it, so
            that random orders there agree and the shards are parts of the same whole;
            None: the seed of the task, which must then be equal for all.

    Returns:
        The rewritten pipeline. Run by each of the workers, the pipelines together yield
            the elements of the whole.

    Raises:
        NotFoundError: FILE finds no files to share: the source does not read files, or
            an operation hides it.
        InvalidArgumentError: the pipeline has fewer files than workers, or ``index`` is
            out of range. If the file names are not known yet, reading them raises it.
        FailedPreconditionError: the pipeline has a ``SHARD_HINT``, and the policy is
            not HINT.
        PipelineError: the function of a flat_map or interleave fails for its first
            element, see below.

    FILE shards the input of a flat_map or interleave only if the function opens files.
    Functions are plain Python, so FILE calls the function with the first element, once
    more than reading does, and inspects the returned dataset.

    >>> from zmqdata.operations.sources import Range
    >>> lines = TextLines(filenames=("a.txt", "b.txt", "c.txt"))
    >>> shard_statically(lines, "FILE", num_workers=2, index=0).argument
    "'a.txt', ..."
    >>> numbers = Range(start=0, stop=9)
    >>> shard_statically(numbers, "DATA", num_workers=2, index=1).label
    'shard(2, 1)'

    The rules are tf.data's (``ShardingPolicy`` of its service); the page of differences
    lists the deviations.
    """
    if policy not in _UNSHARDED and policy not in _REWRITES:
        known = ", ".join((*_UNSHARDED, *_REWRITES))
        raise InvalidArgumentError(
            f"There is no sharding policy {policy!r}; expected one of {known}"
        )
    if policy != "HINT":
        _refuse_hints(node)
    if policy in _UNSHARDED:
        return node
    if num_workers < 1:
        raise InvalidArgumentError(f"num_workers should be >= 1, currently {num_workers}")
    if not 0 <= index < num_workers:
        raise InvalidArgumentError(f"index should be >= 0 and < {num_workers}, currently {index}")
    return _REWRITES[policy](node, _Part(num_workers, index, seed))


def _refuse_hints(node: Node) -> None:
    for inner in _tree(node):
        if isinstance(inner, Shard) and inner.is_hint:
            raise unfilled_hint(inner)


def _below(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node takes elements from, including its choices, which
    are not an input because they are never split.
    """
    return (*node.inputs, node.choices) if isinstance(node, Choose) else node.inputs


def _tree(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, each once."""
    seen: set[int] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if id(current) not in seen:
            seen.add(id(current))
            pending.extend(reversed(_below(current)))
            yield current


def _rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """Apply a change to every node of a tree, sources first; a node reached on two
    paths stays a single node.
    """
    made: dict[int, Node] = {}

    def rebuild(inner: Node) -> Node:
        if id(inner) not in made:
            made[id(inner)] = change(_over(inner, tuple(map(rebuild, _below(inner)))))
        return made[id(inner)]

    return rebuild(node)


def _over(node: Node, below: tuple[Node, ...]) -> Node:
    """Return the node with other nodes below it; the node itself if they are
    unchanged.
    """
    if all(new is old for new, old in zip(below, _below(node), strict=True)):
        return node
    if isinstance(node, Choose):
        return replace(node, inputs=below[:-1], choices=below[-1])
    return replace(node, inputs=below)


@dataclass(frozen=True)
class _Part:
    """Part of a worker, and its expression in nodes."""

    num_workers: int
    """Number of workers."""
    index: int
    """Index of the worker."""
    seed: int | None
    """Seed of the operations below the shards; None: that of the task."""

    def of(self, node: Node, of_files: bool = False) -> StaticShard:
        """Return a shard of a node's elements."""
        ordered = _rebuilt(node, _in_order)
        return StaticShard(
            inputs=(ordered,),
            num_shards=self.num_workers,
            index=self.index,
            of_files=of_files,
            seed=self.seed,
            site=node.site,
        )

    def of_names(self, names: Node) -> Node:
        """Return a shard of file names. A shuffle of the names becomes a shuffle of the
        shard, unless ``take`` or ``skip`` selects from its order.
        """
        if any(isinstance(one, (Take, Skip)) for one in _tree(names)):
            return self.of(names, of_files=True)
        shuffles: list[Shuffle] = []

        def unshuffled(node: Node) -> Node:
            if isinstance(node, ListFiles) and node.shuffle:
                sorted_names = replace(node, shuffle=False, seed=None)
                shuffles.append(
                    Shuffle(
                        inputs=(sorted_names,), buffer_size=None, seed=node.seed, site=node.site
                    )
                )
                return sorted_names
            if isinstance(node, Shuffle):
                shuffles.append(node)
                return node.input
            return node

        shard = self.of(_rebuilt(names, unshuffled), of_files=True)
        return _shuffled_as(shuffles[0], shard) if shuffles else shard

    def over(self, node: Node, below: tuple[Node, ...]) -> Node:
        """Return the node above an input that has become a part. If it stores elements
        in files, they are a part too, and get their own path.
        """
        above = _over(node, below)
        place = f"{self.index}-of-{self.num_workers}"
        if above is node:
            return node
        if isinstance(above, Cache) and above.filename:
            return replace(above, filename=f"{above.filename}-{place}")
        if isinstance(above, Snapshot):
            return replace(above, pipeline=f"{above.pipeline}-{place}")
        return above


def _in_order(node: Node) -> Node:
    """Return the node with a deterministic order: all workers must count the same
    elements.
    """
    if isinstance(node, (ParallelMap, ParallelInterleave)) and node.deterministic is not True:
        return replace(node, deterministic=True)
    return node


def _shuffled_as(shuffle: Shuffle, shard: StaticShard) -> Shuffle:
    """Return a shard, shuffled as the names were. If the names repeat without end, an
    unlimited buffer becomes as large as their number.
    """
    size = shuffle.buffer_size
    if size is None and any(isinstance(node, Repeat) and node.count < 0 for node in _tree(shard)):
        count = shuffle.input.cardinality
        size = count if count > 0 else _BUFFER
    return replace(shuffle, inputs=(shard,), buffer_size=size)


def _by_data(node: Node, part: _Part) -> Node:
    """Return a shard of whole elements, at the end of the pipeline. A prefetch that
    ends the pipeline prefetches the shard.
    """
    if isinstance(node, (Prefetch, WithOptions)):
        return part.over(node, (_by_data(node.input, part),))
    return part.of(node)


def _by_file(node: Node, part: _Part) -> Node:
    if part.num_workers == 1:
        # As in tf.data: a single worker shares nothing, so a source without files is
        # acceptable.
        return node
    try:
        return _ByFile(part).rewritten(node)
    except _Unshardable as reason:
        raise NotFoundError(
            f"{reason}. Distribute the dataset with ShardingPolicy.DATA, FILE_OR_DATA or DYNAMIC, "
            "or begin it with files, as in list_files(...).interleave(TFRecordDataset)"
        ) from None


def _by_file_or_data(node: Node, part: _Part) -> Node:
    try:
        return _ByFile(part).rewritten(node)
    except _Unshardable:
        return _by_data(node, part)


class _Unshardable(Exception):
    """The search found no files to share; the text says where it ended."""


class _ByFile:
    """Walks from the end of a pipeline to its readers, and gives each reader a part of
    its files.
    """

    def __init__(self, part: _Part) -> None:
        self._part = part
        self._made: dict[int, Node] = {}
        self._short: InvalidArgumentError | None = None

    def rewritten(self, node: Node) -> Node:
        """Return the whole pipeline for a worker. A reader with too few files is an
        error only if all sources are readers.
        """
        made = self(node)
        if self._short is not None:
            raise self._short
        return made

    def __call__(self, node: Node) -> Node:
        if id(node) not in self._made:
            self._made[id(node)] = self._rewrite(node)
        return self._made[id(node)]

    def _rewrite(self, node: Node) -> Node:
        if isinstance(node, AssertCardinality):
            return self(node.input)  # it expects all elements, and each worker has a part
        if isinstance(node, _READERS):
            return self._reader(node)
        if not node.inputs:
            raise _Unshardable(
                f"Found an unshardable source dataset: {node.label} reads no files that workers "
                "could share"
            )
        if isinstance(node, FlatMap) and _opens_files(node):
            return self._part.over(node, (self._part.of_names(node.input),))
        if isinstance(node, _PASSED):
            return self._part.over(node, tuple(map(self, node.inputs)))
        raise _Unshardable(
            f"Did not find a shardable source, walked to {node.label}, whose elements depend on "
            "more than one file"
        )

    def _reader(self, node: Files) -> Node:
        count, part = len(node.filenames), self._part
        if 0 < count < part.num_workers:
            self._short = too_few_files(node, count, part.num_workers)
        places = range(count)[part.index :: part.num_workers]
        names = tuple(node.filenames[place] for place in places)
        return replace(node, filenames=names, places=places)


class _ByHint:
    """Fills in the hinted shards, which the user placed where the parts begin."""

    def __init__(self, part: _Part) -> None:
        self._part = part
        self._made: dict[tuple[int, int], Node] = {}

    def __call__(self, node: Node, opener: FlatMap | None = None) -> Node:
        key = id(node), id(opener)
        if key not in self._made:
            self._made[key] = self._fill(node, opener)
        return self._made[key]

    def _fill(self, node: Node, opener: FlatMap | None) -> Node:
        """Rewrite a node. ``opener`` is the nearest node above that makes datasets,
        perhaps of files, from the elements here.
        """
        nearest = node if isinstance(node, FlatMap) else opener
        filled = self._part.over(node, tuple(self(below, nearest) for below in _below(node)))
        if not isinstance(node, Shard) or not node.is_hint:
            return filled
        of_files = opener is not None and _opens_files(opener)
        return replace(self._part.of(filled.inputs[0], of_files), site=node.site)


def _opens_files(node: FlatMap) -> bool:
    """Return True if the datasets that a node's function makes read files, judging by
    the first dataset.

    Also True without a first dataset: a part of an empty input is empty.
    """
    made = _first_dataset(node)
    return made is None or _reads_files(made)


def _reads_files(node: Node) -> bool:
    for inner in _tree(node):
        if isinstance(inner, _READERS):
            return True
        made = _first_dataset(inner) if isinstance(inner, FlatMap) else None
        if made is not None and _reads_files(made):
            return True
    return False


def _first_dataset(node: FlatMap) -> Node | None:
    """Return the first dataset that a node's function makes, unread; None without
    elements.
    """
    try:
        element = first_element(node.input)
    except PipelineError:
        raise
    except InvalidArgumentError:
        return None
    try:
        again = partial(call, node.function, element)
        return nested_node(again(), node, again)
    except Exception as error:
        raise failure(node, error) from error


_REWRITES: dict[str, Callable[[Node, _Part], Node]] = {
    "FILE": _by_file,
    "DATA": _by_data,
    "FILE_OR_DATA": _by_file_or_data,
    "HINT": lambda node, part: _ByHint(part)(node),
}
