"""Static sharding: the pipeline that one of n workers runs, as a rewritten tree of
nodes (tf.data's auto-shard rules).

``shard_statically`` is all there is to call. Reading the shards belongs to
``iterators.selections``, which worker has which index to
``core.dispatcher.worker_addresses``, splits of DYNAMIC iterations to ``core.ledger``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from zmqdata import nodes
from zmqdata.errors import InvalidArgumentError, NotFoundError
from zmqdata.iterators.base import call, failure
from zmqdata.iterators.inference import first_element, nested_node
from zmqdata.iterators.selections import too_few_files, unfilled_hint

_UNSHARDED = ("OFF", "DYNAMIC")
_READERS = (nodes.TextLines, nodes.TFRecords, nodes.FixedLengthRecords)
_PASSED = (
    nodes.Batch,
    nodes.Cache,
    nodes.Concatenate,
    nodes.Filter,
    nodes.FlatMap,
    nodes.Map,
    nodes.MapBatches,
    nodes.PaddedBatch,
    nodes.Prefetch,
    nodes.RaggedBatch,
    nodes.RandomMap,
    nodes.Rebatch,
    nodes.Repeat,
    nodes.Shard,
    nodes.Shuffle,
    nodes.Skip,
    nodes.Take,
    nodes.Unbatch,
    nodes.Window,
    nodes.WithOptions,
    nodes.Zip,
)
"""The operations that FILE looks through on its way to the readers: tf.data's, and ours
that are like them.
"""
_BUFFER = 10_000  # names, where all are to be shuffled, and there is no end of them


def shard_statically(
    node: nodes.Node, policy: str, num_workers: int, index: int, seed: int | None = None
) -> nodes.Node:
    """The pipeline that worker ``index`` of ``num_workers`` runs under a sharding
    policy.

    Args:
        node: the whole pipeline.
        policy: the name of a ``ShardingPolicy``. OFF and DYNAMIC change nothing.
        num_workers: how many workers share the pipeline, from 1.
        index: which of them this one is, from 0.
        seed: one for all workers. What lies under a shard runs with it, so that random
            orders there are the same for all of them and shards are parts of one whole;
            None: with that of the task, which must be equal then.

    Returns:
        The rewritten pipeline. Run by each of the workers, its elements are, taken
        together, those of the whole.

    Raises:
        NotFoundError: FILE finds no files to share: a source that is none of files, or
            an operation that it cannot look through.
        InvalidArgumentError: there are fewer files than workers, or no such worker.
            Where the names of the files are not known yet, reading them raises it.
        FailedPreconditionError: there is a ``SHARD_HINT``, and the policy is not HINT.
        PipelineError: the function of a flat_map or interleave fails for its first
            element, see below.

    Whether FILE shards the input of a flat_map or interleave depends on whether its
    function opens files. As functions are plain Python, it is called with the first
    element, once more than for reading it, and the dataset that it returns is looked
    at.

    >>> lines = nodes.TextLines(filenames=("a.txt", "b.txt", "c.txt"))
    >>> shard_statically(lines, "FILE", num_workers=2, index=0).argument
    "'a.txt', ..."
    >>> shard_statically(nodes.Range(start=0, stop=9), "DATA", num_workers=2, index=1).label
    'shard(2, 1)'

    The rules are tf.data's (``ShardingPolicy`` of its service); what differs is on the
    page of differences.
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


def _refuse_hints(node: nodes.Node) -> None:
    for inner in _tree(node):
        if isinstance(inner, nodes.Shard) and inner.is_hint:
            raise unfilled_hint(inner)


def _below(node: nodes.Node) -> tuple[nodes.Node, ...]:
    """The nodes that it takes elements from; its choices, too, which are no input as
    they are never split.
    """
    return (*node.inputs, node.choices) if isinstance(node, nodes.Choose) else node.inputs


def _tree(node: nodes.Node) -> Iterator[nodes.Node]:
    """A node and all below it, each once."""
    seen: set[int] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if id(current) not in seen:
            seen.add(id(current))
            pending.extend(reversed(_below(current)))
            yield current


def _rebuilt(node: nodes.Node, change: Callable[[nodes.Node], nodes.Node]) -> nodes.Node:
    """The tree with a change made to each of its nodes, sources first; what is reached
    on two paths stays one node.
    """
    made: dict[int, nodes.Node] = {}

    def rebuild(inner: nodes.Node) -> nodes.Node:
        if id(inner) not in made:
            made[id(inner)] = change(_over(inner, tuple(map(rebuild, _below(inner)))))
        return made[id(inner)]

    return rebuild(node)


def _over(node: nodes.Node, below: tuple[nodes.Node, ...]) -> nodes.Node:
    """The node with others below it; itself if they are none."""
    if all(new is old for new, old in zip(below, _below(node), strict=True)):
        return node
    if isinstance(node, nodes.Choose):
        return replace(node, inputs=below[:-1], choices=below[-1])
    return replace(node, inputs=below)


@dataclass(frozen=True)
class _Part:
    """The part of one worker, and how nodes express it."""

    num_workers: int
    index: int
    seed: int | None

    def of(self, node: nodes.Node, of_files: bool = False) -> nodes.StaticShard:
        """A shard of a node's elements."""
        ordered = _rebuilt(node, _in_order)
        return nodes.StaticShard(
            inputs=(ordered,),
            num_shards=self.num_workers,
            index=self.index,
            of_files=of_files,
            seed=self.seed,
            site=node.site,
        )

    def of_names(self, names: nodes.Node) -> nodes.Node:
        """A shard of the names of files. What shuffled them shuffles the shard."""
        shuffles: list[nodes.Shuffle] = []

        def unshuffled(node: nodes.Node) -> nodes.Node:
            if isinstance(node, nodes.ListFiles) and node.shuffle:
                sorted_names = replace(node, shuffle=False, seed=None)
                shuffles.append(
                    nodes.Shuffle(
                        inputs=(sorted_names,), buffer_size=None, seed=node.seed, site=node.site
                    )
                )
                return sorted_names
            if isinstance(node, nodes.Shuffle):
                shuffles.append(node)
                return node.input
            return node

        shard = self.of(_rebuilt(names, unshuffled), of_files=True)
        return _shuffled_as(shuffles[0], shard) if shuffles else shard

    def over(self, node: nodes.Node, below: tuple[nodes.Node, ...]) -> nodes.Node:
        """The node above what has become a part. What it keeps in files is a part, too,
        and has its own place.
        """
        above = _over(node, below)
        place = f"{self.index}-of-{self.num_workers}"
        if above is node:
            return node
        if isinstance(above, nodes.Cache) and above.filename:
            return replace(above, filename=f"{above.filename}-{place}")
        if isinstance(above, nodes.Snapshot):
            return replace(above, pipeline=f"{above.pipeline}-{place}")
        return above


def _in_order(node: nodes.Node) -> nodes.Node:
    """The node without the freedom to hand out elements as they get ready: all workers
    must count the same ones.
    """
    if (
        isinstance(node, (nodes.ParallelMap, nodes.ParallelInterleave))
        and node.deterministic is not True
    ):
        return replace(node, deterministic=True)
    return node


def _shuffled_as(shuffle: nodes.Shuffle, shard: nodes.StaticShard) -> nodes.Shuffle:
    """A shard, shuffled as the names were. Where they repeat for ever, a buffer for all
    holds as many as there are.
    """
    size = shuffle.buffer_size
    if size is None and any(
        isinstance(node, nodes.Repeat) and node.count < 0 for node in _tree(shard)
    ):
        count = shuffle.input.cardinality
        size = count if count > 0 else _BUFFER
    return replace(shuffle, inputs=(shard,), buffer_size=size)


def _by_data(node: nodes.Node, part: _Part) -> nodes.Node:
    """A shard of whole elements, at the very end. A prefetch that ends the pipeline
    prefetches the shard.
    """
    if isinstance(node, (nodes.Prefetch, nodes.WithOptions)):
        return part.over(node, (_by_data(node.input, part),))
    return part.of(node)


def _by_file(node: nodes.Node, part: _Part) -> nodes.Node:
    if part.num_workers == 1:
        return node  # as in tf.data: nothing has to be shared, so a source of something else does no harm
    try:
        return _ByFile(part).rewritten(node)
    except _Unshardable as reason:
        raise NotFoundError(
            f"{reason}. Distribute the dataset with ShardingPolicy.DATA, FILE_OR_DATA or DYNAMIC, "
            "or let it begin with "
            "files, as in list_files(...).interleave(TFRecordDataset)"
        ) from None


def _by_file_or_data(node: nodes.Node, part: _Part) -> nodes.Node:
    try:
        return _ByFile(part).rewritten(node)
    except _Unshardable:
        return _by_data(node, part)


class _Unshardable(Exception):
    """No files were found to share; the text says where the search ended."""


class _ByFile:
    """Goes from the end of a pipeline up to its readers, and gives each a part of its
    files.
    """

    def __init__(self, part: _Part) -> None:
        self._part = part
        self._made: dict[int, nodes.Node] = {}
        self._short: InvalidArgumentError | None = None

    def rewritten(self, node: nodes.Node) -> nodes.Node:
        """The whole pipeline for one worker. That a reader is short of files counts
        only if all sources are readers.
        """
        made = self(node)
        if self._short is not None:
            raise self._short
        return made

    def __call__(self, node: nodes.Node) -> nodes.Node:
        if id(node) not in self._made:
            self._made[id(node)] = self._rewrite(node)
        return self._made[id(node)]

    def _rewrite(self, node: nodes.Node) -> nodes.Node:
        if isinstance(node, nodes.AssertCardinality):
            return self(node.input)  # it counts all elements, of which a part is here
        if isinstance(node, _READERS):
            return self._reader(node)
        if not node.inputs:
            raise _Unshardable(
                f"Found an unshardable source dataset: {node.label} reads no files that could be "
                "shared"
            )
        if isinstance(node, nodes.FlatMap) and _opens_files(node):
            return self._part.over(node, (self._part.of_names(node.input),))
        if isinstance(node, _PASSED):
            return self._part.over(node, tuple(map(self, node.inputs)))
        raise _Unshardable(
            f"Did not find a shardable source, walked to {node.label}, whose elements depend on "
            "more than one file"
        )

    def _reader(self, node: nodes.TextLines | nodes.Files) -> nodes.Node:
        count, part = len(node.filenames), self._part
        if 0 < count < part.num_workers:
            self._short = too_few_files(node, count, part.num_workers)
        return replace(node, filenames=node.filenames[part.index :: part.num_workers])


class _ByHint:
    """Fills in the shards that the user put where the parts are to begin."""

    def __init__(self, part: _Part) -> None:
        self._part = part
        self._made: dict[tuple[int, int], nodes.Node] = {}

    def __call__(self, node: nodes.Node, opener: nodes.FlatMap | None = None) -> nodes.Node:
        key = id(node), id(opener)
        if key not in self._made:
            self._made[key] = self._fill(node, opener)
        return self._made[key]

    def _fill(self, node: nodes.Node, opener: nodes.FlatMap | None) -> nodes.Node:
        """``opener``: the nearest node above that makes datasets of what comes from
        here, maybe of files.
        """
        nearest = node if isinstance(node, nodes.FlatMap) else opener
        filled = self._part.over(node, tuple(self(below, nearest) for below in _below(node)))
        if not isinstance(node, nodes.Shard) or not node.is_hint:
            return filled
        of_files = opener is not None and _opens_files(opener)
        return replace(self._part.of(filled.inputs[0], of_files), site=node.site)


def _opens_files(node: nodes.FlatMap) -> bool:
    """Whether the datasets that its function makes read files, as far as the first one
    shows.

    Without a first one it is so, too: a part of nothing is nothing.
    """
    made = _first_dataset(node)
    return made is None or _reads_files(made)


def _reads_files(node: nodes.Node) -> bool:
    for inner in _tree(node):
        if isinstance(inner, _READERS):
            return True
        made = _first_dataset(inner) if isinstance(inner, nodes.FlatMap) else None
        if made is not None and _reads_files(made):
            return True
    return False


def _first_dataset(node: nodes.FlatMap) -> nodes.Node | None:
    """The first of the datasets that its function makes, not read; None if there is
    none.
    """
    try:
        element = first_element(node.input)
    except InvalidArgumentError:
        return None
    try:
        return nested_node(call(node.function, element), node)
    except Exception as error:
        raise failure(node, error) from error


_REWRITES: dict[str, Callable[[nodes.Node, _Part], nodes.Node]] = {
    "FILE": _by_file,
    "DATA": _by_data,
    "FILE_OR_DATA": _by_file_or_data,
    "HINT": lambda node, part: _ByHint(part)(node),
}
