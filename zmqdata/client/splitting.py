"""Check of what a pipeline loses because each of its sources is split by itself among
tasks: pairs and choices (``pairing``), and what a ``reader_func`` selects.

A ``reader_func`` that selects chunks of a distributed save counts the chunks of a task,
not those of the save. It has already run, so the pipeline shows its operations.

What is lost is part of a registered dataset's description, because readers who know
only its id lack the pipeline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from zmqdata import messages as m
from zmqdata.client.options import ShardingPolicy
from zmqdata.client.pairing import lost_partners, over_splits
from zmqdata.config.settings import warn_user
from zmqdata.errors import InvalidArgumentError
from zmqdata.nodes.base import Node, every_node, source_nodes
from zmqdata.nodes.options import Options, is_ordered, options_of
from zmqdata.nodes.parts import is_single, part_of, split_sources
from zmqdata.operations.balancing import Balance
from zmqdata.operations.batch import Batch
from zmqdata.operations.limits import Enumerate, Skip, Take
from zmqdata.operations.loading import SavedDatasets
from zmqdata.operations.mapping import Map
from zmqdata.operations.mixing import Mix
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.schedules import DueChoices, named_weights
from zmqdata.operations.selections import Shard, WithOptions
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.unbatch import MapBatches
from zmqdata.splits import IndexSplits, SplitSource

DATASET_NAME = "zmqdata_dataset_name"
"""Attribute of a function that reads a dataset of another library: its name."""
MOST_NAMES = 3
"""Maximum number of sources that a status names."""
LONGEST_ORIGIN = 120
"""Maximum number of characters by which a status names a dataset."""
LONGEST_WEIGHTS = 1000
"""Maximum number of characters of weights; a digest stands for longer ones."""


def check_splitting(node: Node, policy: ShardingPolicy, num_tasks: int | None = None) -> None:
    """Warn of each operation that loses elements or pairs of a local reading.

    Args:
        node: the pipeline.
        policy: the policy under which it is read.
        num_tasks: number of tasks if an order is promised, else None.

    Raises:
        InvalidArgumentError: an order is promised in which elements would lose their
            partner, or would be left out.
    """
    check_losses(losses_of(node), policy, num_tasks)
    if policy is ShardingPolicy.DYNAMIC and num_tasks is not None:
        for text in _too_few_splits(node, num_tasks):
            warn_user(text)


def _too_few_splits(node: Node, num_tasks: int) -> Iterator[str]:
    """Yield a message on each dataset of a mixture that has fewer splits than there are
    tasks.
    """
    for mix in over_splits(node, Mix):
        for name, dataset in zip(mix.names, mix.inputs, strict=True):
            counts = [getattr(one, "count", None) for one in split_sources(dataset)]
            most = max([num_tasks if count is None else count for count in counts])
            if most < num_tasks:
                end = "end early" if mix.stop == "first" else "go on without it"
                yield (
                    f"{mix.label}: the dataset `{name}` has {most} splits, fewer than the "
                    f"{num_tasks} tasks of the promised order. Tasks without a split of it {end}. "
                    "Give distribute() a smaller `num_tasks`, or the dataset more splits"
                )


def losses_of(node: Node) -> m.SplitLosses:
    """Return what a pipeline loses under ``ShardingPolicy.DYNAMIC``."""
    return m.SplitLosses(
        tuple(lost_partners(node, is_ordered=False)),
        next(iter(lost_partners(node, is_ordered=True)), ""),
        _changed_selection(node),
    )


def units_of(node: Node, sources: Sequence[SplitSource]) -> m.DatasetUnits:
    """Return the words for what a pipeline counts."""
    found = source_nodes(node)
    # Parts of an order stand for the sources below them.
    splits = tuple(one.split_unit for one in found)
    splits = splits if len(splits) == len(sources) else ("splits",) * len(sources)
    made = [getattr(getattr(one, "function", None), DATASET_NAME, "") for one in every_node(node)]
    read = [*filter(None, made)][:1] or [one.label.partition(" at ")[0] for one in found]
    origin = ", ".join(filter(None, [node.site, *read[:MOST_NAMES]]))
    return m.DatasetUnits(
        node.batch_rows, splits, origin[:LONGEST_ORIGIN], consumers_of(node), _weights_of(node)
    )


def _weights_of(node: Node) -> str:
    """Return the weights of all mixtures as text."""
    text = " ".join(
        str(named_weights(one.weights, one.names))
        for mix in every_node(node)
        for one in mix.apart
        if isinstance(one, DueChoices)
    )
    if len(text) <= LONGEST_WEIGHTS:
        return text
    return f"{text[:LONGEST_WEIGHTS]}... ({hashlib.sha256(text.encode()).hexdigest()[:16]})"


def check_losses(losses: m.SplitLosses, policy: ShardingPolicy, num_tasks: int | None) -> None:
    """Warn of the losses of a pipeline, as ``check_splitting`` does."""
    if policy is not ShardingPolicy.DYNAMIC or num_tasks == 1:
        return
    if losses.refusal and num_tasks is not None:
        raise InvalidArgumentError(losses.refusal)
    partners = losses.partners if num_tasks is None else ()
    for text in filter(None, (*partners, losses.selection)):
        warn_user(text)


def _changed_selection(node: Node) -> str:
    """Return the message on an operation in a ``reader_func`` that counts chunks which
    tasks share under ``ShardingPolicy.DYNAMIC``; "" if a pipeline has none.
    """
    for one in over_splits(node, Node):
        load = _shared_chunks(one) if _counts(one) else None
        if load is not None:
            return (
                f"{one.label} in the `reader_func` of {load.label} counts the chunks that each "
                "task receives, because chunks are split among tasks under "
                "ShardingPolicy.DYNAMIC. It therefore selects other chunks than in a local "
                "reading, or none. A `reader_func` may shuffle and interleave there. To select, "
                "use filter() on elements, or read under ShardingPolicy.DATA or OFF"
            )
    return ""


def _counts(node: Node) -> bool:
    """Return True if a node's result depends on the numbers of its elements."""
    if isinstance(node, (Take, Skip)):
        return selects(node)
    if isinstance(node, Shard):
        return node.num_shards > 1
    return isinstance(node, Enumerate)


def _shared_chunks(node: Node) -> Node | None:
    """Return the load whose chunks are a node's elements, if tasks share them; None if
    its elements are others. Behind ``flat_map`` and ``interleave`` they are those of
    the save.
    """
    pending = list(node.inputs)
    while pending:
        below = pending.pop()
        if isinstance(below, SavedDatasets):
            is_shared = below.whole.grows or (below.whole.chunks or 0) > 1
            return below if is_shared else None
        if not isinstance(below, FlatMap):
            pending.extend(below.inputs)
    return None


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
        if kept or below.is_lasting:
            return below
        pending.extend(below.inputs)
    return None


def counts_by_task(node: Node, tasks: int) -> list[int] | None:
    """Return the number of elements that each of several tasks makes, if split k of the
    source belongs to task k modulo their number; None if it is not known.

    Args:
        node: the pipeline.
        tasks: number of tasks.

    >>> from zmqdata.operations.sources import Range
    >>> numbers = Range(start=0, stop=7)
    >>> counts_by_task(Batch(inputs=(numbers,), batch_size=2, drop_remainder=False), 3)
    [2, 1, 1]
    """
    if part_of(node) is not None or node.is_indexed:
        (source,) = split_sources(node)
        count = source.count if isinstance(source, IndexSplits) else None
        return None if count is None else [len(range(task, count, tasks)) for task in range(tasks)]
    is_batch = isinstance(node, Batch) and not isinstance(node, MapBatches)
    if isinstance(node, Balance) and node.batch_size is not None:
        found = counts_by_task(node.inputs[0], tasks)
        return None if found is None else [*map(node.batches_of, found)]
    is_known = is_batch or node.is_one_to_one or isinstance(node, (Shuffle, Repeat))
    counts = counts_by_task(node.inputs[0], tasks) if is_known else None
    if counts is None or node.is_one_to_one or isinstance(node, Shuffle):
        return counts
    if isinstance(node, Repeat):
        return None if node.count < 0 else [count * node.count for count in counts]
    assert isinstance(node, Batch)
    missing = 0 if node.drop_remainder else node.batch_size - 1
    return [(count + missing) // node.batch_size for count in counts]


def balance_of(node: Node) -> Balance | None:
    """Return the first ``balance`` of a pipeline; None if it has none."""
    found = [one for one in every_node(node) if isinstance(one, Balance)]
    return found[-1] if found else None


def consumers_of(node: Node) -> int | None:
    """Return the number of consumers among whom a pipeline deals its elements, step by
    step; None: any number.
    """
    balance = balance_of(node)
    return None if balance is None or balance.steps else balance.num_consumers


def check_steps(node: Node, policy: ShardingPolicy | None = None) -> None:
    """Refuse what tears the steps of ``balance``: operations between it and
    ``distribute``, and a policy that selects elements.

    Args:
        node: the pipeline.
        policy: the policy under which it is read; None: not known yet.

    Raises:
        InvalidArgumentError: steps would be torn.
    """
    balance = balance_of(node)
    if balance is None:
        return
    width, current = 1 if balance.steps else balance.num_consumers, node
    options = options_of(node)
    while current is not balance:
        reason = _tears(current, balance, width, options)
        if reason:
            raise InvalidArgumentError(
                f"{current.label} stands between {balance.label} and distribute(), and {reason}. "
                "There, only map without on_error='skip', prefetch, repeat, and take and skip of "
                "whole steps may stand. Call it before balance()"
            )
        current = current.inputs[0]
    if width > 1 and policy in (ShardingPolicy.DATA, ShardingPolicy.FILE_OR_DATA):
        raise InvalidArgumentError(
            f"ShardingPolicy.{policy.name} gives each worker every n-th element, which tears the "
            f"steps of {balance.label}. Use ShardingPolicy.DYNAMIC, or FILE for files"
        )


def _tears(node: Node, balance: Balance, width: int, options: Options) -> str:
    """Return why a node behind ``balance`` tears its steps; "" if it does not."""
    if isinstance(node, (Take, Skip)):
        whole = not selects(node) or node.count % width == 0
        return "" if whole else f"{node.count} is no multiple of the {width} batches of a step"
    if isinstance(node, Repeat):
        whole = node.count in (0, 1) or width == 1 or balance.drop_remainder
        rest = "a pass may end with less than a step, before the next one begins. Pass "
        return "" if whole else f"{rest}drop_remainder=True to balance(), or repeat before it"
    is_whole = isinstance(node, (Map, Prefetch, WithOptions)) and node.is_one_to_one
    if is_whole and is_ordered(node, options):
        return ""
    return "may change which batches make a step"
