"""Search for zips and choices of a pipeline that lose elements when their inputs are
split among tasks.

Each source is split by itself. Tasks therefore pair elements of different positions,
and their choices name other elements than those of a local reading, unless the splits
of all inputs are dealt alike, as in a promised order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.nodes.base import Node, source_nodes
from zmqdata.nodes.parts import is_single
from zmqdata.operations.batch import Batch, ListBatch
from zmqdata.operations.cache import Cache
from zmqdata.operations.choices import Choose, Counter
from zmqdata.operations.combinations import Zip
from zmqdata.operations.files import ListFiles
from zmqdata.operations.limits import Enumerate, Skip, Take, TakeWhile
from zmqdata.operations.mixing import Mix
from zmqdata.operations.padding import PaddedBatch
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.selections import Shard
from zmqdata.operations.sequences import FromList, FromSource, Random
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import Range, Tensors, TensorSlices

_ROWS = (Range, TensorSlices, FromSource, FromList, ListFiles)
"""Sources with one split for each element."""
_REARRANGED = (Cache, Enumerate, Shuffle)
"""Operations that yield as many elements as their input, and do the same with inputs of
the same positions.
"""
_BY_POSITION = (
    Batch,
    ListBatch,
    PaddedBatch,
    Repeat,
    Shard,
    Skip,
    Take,
)
"""Operations whose effect follows from the positions of elements alone."""
_PLACELESS = (Counter, Random)
"""Sources whose elements have no position that a partner could have: each task counts
or draws for itself.
"""
_WHOLE = "read by a single task"

_PAIRS_HOLD = (
    "Pairs hold under ShardingPolicy.DATA, in a promised order too, under HINT with "
    "shard(SHARD_HINT, SHARD_HINT) behind the zip, and under OFF. To keep DYNAMIC, let one "
    "source yield both parts of a pair: Dataset.from_tensor_slices((images, labels)) for arrays; "
    "for files from_tensor_slices((image_files, label_files)), with a flat_map that opens and "
    "zips both files"
)
_CHOICES_HOLD = (
    "To keep DYNAMIC, pass stop_on_empty_dataset=False, which leaves nothing of the inputs out "
    "as long as there are choices. Behind inputs that never end, put repeat(). The elements of "
    "a local reading come under ShardingPolicy.DATA, in a promised order too, under HINT with "
    "shard(SHARD_HINT, SHARD_HINT) behind the operation, and in each copy under OFF"
)
N = TypeVar("N", bound=Node)


def lost_partners(node: Node, is_ordered: bool) -> list[str]:
    """Return a message on the pairs and one on the choices that are lost under
    ``ShardingPolicy.DYNAMIC``; nothing if none are.

    Args:
        node: the pipeline.
        is_ordered: True if an order of several tasks is promised.
    """
    found = (
        _first_loss(node, Zip, _lost_pairs, is_ordered),
        _first_loss(node, Choose, _lost_choices, is_ordered),
    )
    return [loss for loss in found if loss is not None]


def over_splits(node: Node, kind: type[N]) -> list[N]:
    """Return the operations of a kind whose inputs are split, from the end of the
    pipeline to its sources.
    """
    found, seen, waiting = [], set(), [node]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or one.is_source:
            continue
        seen.add(id(one))
        waiting.extend(reversed(one.inputs))
        if isinstance(one, kind):
            found.append(one)
    return found


def _first_loss(
    node: Node, kind: type[N], loss_of: Callable[[N, bool], str | None], is_ordered: bool
) -> str | None:
    """Return what the operation of a kind that is nearest to the end of the pipeline
    loses; None if none of them loses anything.
    """
    losses = (loss_of(one, is_ordered) for one in over_splits(node, kind))
    return next((loss for loss in losses if loss is not None), None)


def _lost_pairs(zipped: Zip, is_ordered: bool) -> str | None:
    """Return the message on pairs that a zip loses; None if it keeps them."""
    # A constant has no position, but in a promised order only one task has it.
    count = len(_placed(zipped, () if is_ordered else (Tensors,)))
    if count < 2 or (is_ordered and _positions(zipped) is not None):
        return None
    what = f"{zipped.label} pairs elements of {count} inputs, each of which is split by itself"
    if not is_ordered:
        return (
            f"{what} under ShardingPolicy.DYNAMIC. Workers pair elements of different "
            f"positions and leave out elements without a partner. {_PAIRS_HOLD}"
        )
    return (
        f"{what} among the tasks of a promised order (deterministic=True), so elements "
        "would get other partners, and some would get none. Pairs hold there only if each "
        "input has one split for each row, with the same `batch`, `repeat`, `shard`, "
        "`skip` and `take` in each, and without operations that leave out or join "
        f"elements. {_PAIRS_HOLD}"
    )


def _lost_choices(chosen: Choose, is_ordered: bool) -> str | None:
    """Return the message on elements that a choice leaves out by stopping early; None
    if it leaves out no more than a local reading, or mixes: then a task says so.
    """
    ending = [one for one in chosen.inputs if not _is_endless(one)]
    if isinstance(chosen, Mix) or chosen.stop == "once" or len(ending) < 2:
        return None
    what = (
        f"{chosen.label} stops at the first input that has ended (stop_on_empty_dataset=True), "
        f"and {len(ending)} of its inputs may end, each of which is split by itself"
    )
    if not is_ordered:
        return (
            f"{what} under ShardingPolicy.DYNAMIC. The choices of a task name elements of its own "
            "part. A task therefore ends when one input has nothing more for it, and leaves out "
            f"the rest of the others. {_CHOICES_HOLD}"
        )
    known = {_positions(one) for one in ending}
    if known == {_WHOLE} or (len(known) == 1 and None not in known and _takes_turns(chosen)):
        return None
    return (
        f"{what} among the tasks of a promised order (deterministic=True). The choices of a task "
        "name elements of its own part. A task would therefore end when it has used up its part "
        "of one input, and leave out its parts of the others. Nothing is left out there only if "
        "one task reads all inputs (num_tasks=1), or if the choices are "
        "Dataset.range(number of inputs).repeat() and the inputs have as many rows, with one "
        "split for each, and the same `batch`, `repeat`, `shard`, `skip` and `take`. "
        f"{_CHOICES_HOLD}"
    )


def _is_endless(node: Node) -> bool:
    """Return True if an input never ends, also behind operations after which the number
    of elements is unknown.
    """
    if node.cardinality != UNKNOWN_CARDINALITY or node.is_source or not node.inputs:
        return node.cardinality == INFINITE_CARDINALITY
    ends = isinstance(node, (Take, TakeWhile))
    return not ends and all(map(_is_endless, node.inputs))


def _takes_turns(chosen: Choose) -> bool:
    """Return True if the choices name each input in turn, without end."""
    turns = chosen.choices
    return (
        isinstance(turns, Repeat)
        and turns.count < 0
        and isinstance(turns.input, Range)
        and (turns.input.start, turns.input.stop, turns.input.step) == (0, len(chosen.inputs), 1)
    )


def _placed(zipped: Zip, more: tuple[type[Node], ...] = ()) -> list[Node]:
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
    if isinstance(node, Zip):
        return _agreed([_positions(one) for one in _placed(node) or node.inputs])
    if type(node) in _ROWS:
        return (node.cardinality,)
    if node.is_one_to_one or type(node) in _REARRANGED:
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
