"""Check of the zips of a pipeline whose inputs are split among tasks.

Each source is split by itself. Tasks therefore pair elements of different positions,
unless the splits of all inputs are dealt alike, as in a promised order.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable

from zmqdata import nodes
from zmqdata.client.options import ShardingPolicy
from zmqdata.errors import InvalidArgumentError
from zmqdata.nodes import Node, is_one_to_one, is_single, source_nodes

_ROWS = (nodes.Range, nodes.TensorSlices, nodes.FromSource, nodes.FromList, nodes.ListFiles)
"""Sources with one split for each element."""
_REARRANGED = (nodes.Cache, nodes.Enumerate, nodes.Shuffle)
"""Operations that yield as many elements as their input, and do the same with inputs of
the same positions.
"""
_BY_POSITION = (nodes.Batch, nodes.PaddedBatch, nodes.Repeat, nodes.Shard, nodes.Skip, nodes.Take)
"""Operations whose effect follows from the positions of elements alone."""
_PLACELESS = (nodes.Counter, nodes.Random)
"""Sources whose elements have no position that a partner could have: each task counts
or draws for itself.
"""
_WHOLE = "read by a single task"

_REMEDY = (
    "Pairs hold under ShardingPolicy.DATA, in a promised order too, under HINT with "
    "shard(SHARD_HINT, SHARD_HINT) behind the zip, and under OFF. To keep DYNAMIC, let one "
    "source yield both parts of a pair: Dataset.from_tensor_slices((images, labels)) for arrays; "
    "for files from_tensor_slices((image_files, label_files)), with a flat_map that opens and "
    "zips both files"
)


def check_pairs(
    node: Node, policy: ShardingPolicy, num_tasks: int | None = None, level: int = 3
) -> None:
    """Warn of a zip whose inputs are split independently.

    Args:
        node: the pipeline.
        policy: the policy under which it is read.
        num_tasks: number of tasks if an order is promised, else None.
        level: number of frames up to the user's code.

    Raises:
        InvalidArgumentError: an order is promised in which elements would lose their
            partner.
    """
    if policy is not ShardingPolicy.DYNAMIC:
        return
    for zipped in _zips(node):
        # A constant has no position, but in a promised order only one task has it.
        count = len(_placed(zipped, (nodes.Tensors,) if num_tasks is None else ()))
        if count < 2:
            continue
        what = f"{zipped.label} pairs elements of {count} inputs, each of which is split by itself"
        if num_tasks is None:
            warnings.warn(
                f"{what} under ShardingPolicy.DYNAMIC. Workers pair elements of different "
                f"positions and leave out elements without a partner. {_REMEDY}",
                stacklevel=level,
            )
            return
        if _positions(zipped) is None:
            raise InvalidArgumentError(
                f"{what} among the tasks of a promised order (deterministic=True), so elements "
                "would get other partners, and some would get none. Pairs hold there only if each "
                "input has one split for each row, with the same `batch`, `repeat`, `shard`, "
                "`skip` and `take` in each, and without operations that leave out or join "
                f"elements. {_REMEDY}"
            )


def _zips(node: Node) -> list[nodes.Zip]:
    """Return the zips whose inputs are split, from the end of the pipeline to its
    sources.
    """
    found, seen, waiting = [], set(), [node]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or one.is_source:
            continue
        seen.add(id(one))
        waiting.extend(reversed(one.inputs))
        if isinstance(one, nodes.Zip):
            found.append(one)
    return found


def _placed(zipped: nodes.Zip, more: tuple[type[Node], ...] = ()) -> list[Node]:
    """Return the inputs of a zip whose elements have positions, without those that read
    only sources of the types ``more``.
    """
    without = _PLACELESS + more
    return [
        one
        for one in zipped.inputs
        if not all(isinstance(source, without) for source in source_nodes(one))
    ]


def _positions(node: Node) -> Hashable:
    """Return what tells which positions each task of a promised order has of a node's
    elements, in which order; None if it is unknown. Nodes with equal values agree.
    """
    if all(is_single(source) for source in source_nodes(node)):
        return _WHOLE
    if isinstance(node, nodes.Zip):
        return _agreed([_positions(one) for one in _placed(node) or node.inputs])
    if type(node) in _ROWS:
        return (node.cardinality,)
    if is_one_to_one(node) or type(node) in _REARRANGED:
        return _positions(node.inputs[0])
    if type(node) in _BY_POSITION:
        below = _positions(node.inputs[0])
        step = (node.operation, node.argument, getattr(node, "drop_remainder", None))
        return None if below is None or below == (-2,) else (step, below)
    return None


def _agreed(known: list[Hashable]) -> Hashable:
    """Return the positions of a zip of inputs with these positions. Rows without any
    further operation agree up to the end of the shortest input.
    """
    if None in known:
        return None
    if all(isinstance(one, tuple) and len(one) == 1 for one in known):
        return min(known)  # type: ignore[type-var]  # tuples of one number
    return known[0] if len(set(known)) == 1 else None
