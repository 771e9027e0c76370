"""Random access: an element by its number, for pipelines whose operations can compute
it without all elements before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from zmqdata.blocks import copied
from zmqdata.elements.nesting import map_arrays, map_structure
from zmqdata.elements.specs import INFINITE_CARDINALITY, leading_length
from zmqdata.errors import FailedPreconditionError, UnimplementedError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.files.filenames import native
from zmqdata.iterators.base import (
    Context,
    Name,
    beyond_int64,
    call,
    failure,
    make_iterator,
    subgroup,
)
from zmqdata.iterators.choices import classified
from zmqdata.iterators.draws import NamedStream
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.files import hash_of
from zmqdata.iterators.guarding import guarded_call
from zmqdata.iterators.loading import element_in_turn, opened
from zmqdata.iterators.random_map import GuardedRandomNode, drawing_call, map_seed
from zmqdata.iterators.shuffle import drawn_names, drawn_number
from zmqdata.iterators.stored import kept_count, kept_element
from zmqdata.nodes.base import Infer, Node, known_spec
from zmqdata.nodes.batches import MapBatches, Unbatch
from zmqdata.nodes.choices import Counter
from zmqdata.nodes.combinations import Concatenate, Zip
from zmqdata.nodes.grouping import Elements
from zmqdata.nodes.mapping import GuardedMap, GuardedRandomMap, ParallelRandomMap, RandomMap
from zmqdata.nodes.options import WithOptions
from zmqdata.nodes.selections import AssertCardinality, RejectionResample, Shard
from zmqdata.nodes.sequences import FromSource, Random
from zmqdata.nodes.sources import ListFiles, Range, Tensors, TensorSlices
from zmqdata.nodes.storage import Cache, Load, LoadInTurn
from zmqdata.nodes.transforms import (
    Batch,
    Enumerate,
    Map,
    Prefetch,
    Repeat,
    Shuffle,
    Skip,
    Take,
    Unary,
)

_ANEW = ", as each iteration has its own order: pass reshuffle_each_iteration=False"
_PLAIN = Context()
_program: ContextVar[Context] = ContextVar("_program", default=_PLAIN)
"""Context of an access: the fixed seed is that of the program's iterators."""


def program_element(node: Node, index: int, fixed_seed: int) -> Any:
    """Return element ``index`` of a node as ``element_at`` does, in the orders that the
    iterators of a program have.

    Args:
        node: the node.
        index: number of the element.
        fixed_seed: seed of the orders that the program draws once.

    >>> program_element(Range(start=5, stop=9), 2, fixed_seed=1)
    np.int64(7)
    """
    token = _program.set(Context(fixed_seed=fixed_seed))
    try:
        return element_at(node, index)
    finally:
        _program.reset(token)


@singledispatch
def element_at(node: Node, index: int) -> Any:
    """Return element ``index`` of a node.

    Any module can make a node accessible: apply ``@element_at.register`` to a function
    of ``(node, index)``. The index is valid for the node's cardinality, if that is
    known.

    Raises:
        IndexError: the cardinality is unknown, and the node has no such element.
        UnimplementedError: the operation does not support random access.

    >>> element_at(Range(start=5, stop=9), 2)
    np.int64(7)
    """
    raise _refusal(node, index)


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


def _element_of_uncounted(node: Node, index: int) -> Any:
    """Return an element of an input whose number of elements is unknown.

    Raises:
        FailedPreconditionError: the input ends before it, so it is unknown which
            element of the operation the number means.
    """
    try:
        return element_at(node, index)
    except IndexError:
        raise uncounted(node) from None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Filled(Unary):
    """Stands for a full cache, whose number of elements is known."""

    operation: ClassVar[str] = "cache"  # orders above it follow from the operations below

    cache: Cache
    """The cache."""
    count: int
    """Its number of elements."""

    @property
    def label(self) -> str:
        return self.cache.label

    @property
    def cardinality(self) -> int:
        return self.count

    def spec(self, infer: Infer) -> Any:
        return infer(self.cache)


@element_at.register
def _(node: _Filled, index: int) -> Any:
    return element_at(node.cache, index)


def with_filled_caches(node: Node) -> Node:
    """Return the node with the number of elements of each full cache.

    >>> numbers = Cache(inputs=(Range(start=0, stop=3),))
    >>> with_filled_caches(numbers) is numbers
    True
    """
    if isinstance(node, Cache):
        count = kept_count(node)
        return node if count is None else _Filled(inputs=node.inputs, cache=node, count=count)
    inputs = tuple(map(with_filled_caches, node.inputs))
    same = all(map(operator.is_, inputs, node.inputs))
    return node if same else replace(node, inputs=inputs)


def _refusal(node: Node, index: int, reason: str = "") -> UnimplementedError:
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


@element_at.register
def _(node: Range, index: int) -> Any:
    return np.int64(node.start + index * node.step).astype(node.dtype)


@element_at.register
def _(node: Counter, index: int) -> Any:
    counter = make_iterator(node, Context())
    counter.restore([index, 0])
    return next(counter)


@element_at.register
def _(node: Tensors, index: int) -> Any:
    return copied(node.tensors)


@element_at.register
def _(node: TensorSlices, index: int) -> Any:
    return copied(map_arrays(lambda array: array[index], node.tensors))


@element_at.register
def _(node: FromSource, index: int) -> Any:
    if node.shuffle and node.reshuffle_each_iteration:
        raise _refusal(node, index, _ANEW)
    return _from_place(node, index)


@element_at.register
def _(node: Random, index: int) -> Any:
    if node.seed is None or node.rerandomize_each_iteration:
        raise _refusal(
            node,
            index,
            ", as each iteration draws anew: give it a seed, and rerandomize_each_iteration=False",
        )
    return _from_place(node, index)


def _from_place(node: Node, index: int) -> Any:
    """Return element ``index`` of a source whose state is an index."""
    iterator = make_iterator(node, _program.get())
    iterator.restore(index)
    return next(iterator)


@element_at.register
def _(node: ListFiles, index: int) -> Any:
    if node.shuffle:
        raise _refusal(
            node,
            index,
            ", as each repetition has its own order: call list_files(..., shuffle=False)",
        )
    return native(node.ordered(0, 0)[index])


@element_at.register
def _(node: Load, index: int) -> Any:
    if node.grows:
        raise _refusal(
            node,
            index,
            ", as the order of a save in progress is not known: call load() without wait=True "
            "once the save is complete",
        )
    reader = opened(node)
    try:
        reader.skip(index)
        return next(reader)
    finally:
        reader.close()


@element_at.register
def _(node: LoadInTurn, index: int) -> Any:
    return element_in_turn(node, index)


@element_at.register
def _(node: Elements, index: int) -> Any:
    return copied(node.elements[index])


@element_at.register
def _(node: Map, index: int) -> Any:
    element = element_at(node.input, index)
    try:
        return ElementMaker(node, Context()).element(call(node.function, element))
    except FAILURES as error:
        raise failure(node, error) from error


@element_at.register
def _(node: GuardedMap, index: int) -> Any:
    if node.on_error == "skip":
        raise _refusal(node, index)
    return _called_for(node, index)


def _called_for(
    node: GuardedMap, index: int, invoke: Callable[[int, Any], Any] | None = None
) -> Any:
    value, raised = guarded_call(node, Context(), invoke)(index, element_at(node.input, index))
    if raised is not None:
        raise raised
    return value


@element_at.register(GuardedRandomMap)
@element_at.register(ParallelRandomMap)
def _(node: GuardedRandomNode, index: int) -> Any:
    if node.on_error == "skip":
        raise _refusal(node, index)
    _refuse_new_draws(node, index)
    draw, name = drawing_call(node, Context()), name_at(node.input, index)
    return _called_for(node, index, lambda number, element: draw(name, element))


@element_at.register
def _(node: RandomMap, index: int) -> Any:
    _refuse_new_draws(node, index)
    generator = NamedStream(map_seed(node, Context())).at(name_at(node.input, index))
    element = element_at(node.input, index)
    arguments = element if type(element) is tuple else (element,)
    try:
        return ElementMaker(node, Context()).element(node.function(*arguments, generator))
    except FAILURES as error:
        raise failure(node, error) from error


def _refuse_new_draws(node: RandomMap | GuardedRandomNode, index: int) -> None:
    if node.seed is None or node.rerandomize_each_iteration:
        raise _refusal(
            node,
            index,
            ", as each iteration draws anew: give a seed, and rerandomize_each_iteration=False",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fetched(Elements):
    """Source of some elements of another node, in place of that node."""

    original: Node
    """Node that the elements came from."""

    def spec(self, infer: Infer) -> Any:
        return infer(self.original)


def _run_on(node: Unary, elements: list[Any], state: Any = None, number: int = 0) -> Any:
    """Run a node on elements of its input, from ``state`` on, and return result
    ``number``.
    """
    source = _Fetched(elements=tuple(elements), original=node.input, site=node.site)
    iterator = make_iterator(replace(node, inputs=(source,)), Context())
    if state is not None:
        iterator.restore(state)
    return next(islice(iterator, number, None))


def _rows_at(node: Batch, index: int) -> list[Any]:
    """Return the elements of batch ``index``."""
    start, count = index * node.batch_size, node.input.cardinality
    if count < 0:
        numbers = range(start, start + node.batch_size)
        return [_element_of_uncounted(node.input, number) for number in numbers]
    stop = min(start + node.batch_size, count)
    return [element_at(node.input, number) for number in range(start, stop)]


@element_at.register
def _(node: Batch, index: int) -> Any:
    return _run_on(node, _rows_at(node, index))


@element_at.register
def _(node: MapBatches, index: int) -> Any:
    batch, row = divmod(index, node.batch_size)
    return _run_on(node, _rows_at(node, batch), number=row)


@element_at.register
def _(node: Unbatch, index: int) -> Any:
    spec = known_spec(node.input)
    rows = None if spec is None else leading_length(spec)
    if not rows:
        raise FailedPreconditionError(
            f"Dataset of type Unbatch has unknown cardinality which does not support random "
            f"access: {node.label} cannot compute element {index}, as batches may differ in "
            "length. Remedy: batch(n, drop_remainder=True) makes them equal, and after a function "
            "map(..., output_spec=) states their shape"
        )
    batch, row = divmod(index, rows)
    return _run_on(node, [element_at(node.input, batch)], number=row)


@element_at.register
def _(node: RejectionResample, index: int) -> Any:
    if not node.keeps_all:
        raise _refusal(node, index)
    element = element_at(node.input, index)
    return classified(node, lambda one: call(node.function, one), element)[0], element


@element_at.register
def _(node: Shuffle, index: int) -> Any:
    if node.input.cardinality < 0:
        raise uncounted(node)
    if node.reshuffle_each_iteration:
        raise _refusal(node, index, _ANEW)
    names = node.input
    if isinstance(names, ListFiles) and not names.shuffle:
        return native(names.ordered(0, 0, drawn_names(node, _program.get()))[index])
    return element_at(names, drawn_number(node, _program.get(), index))


@element_at.register
def _(node: Cache, index: int) -> Any:
    found = kept_element(node, index)
    return element_at(node.input, index) if found is None else found[0]


@element_at.register
def _(node: AssertCardinality, index: int) -> Any:
    count = node.input.cardinality
    if 0 <= count <= index:
        raise FailedPreconditionError(
            f"{node.label} promises element {index}, and its input has {count} elements: state "
            "the correct number"
        )
    return element_at(node.input, index)


@element_at.register
def _(node: Take, index: int) -> Any:
    if 0 <= node.count <= index:
        raise out_of_range(node, index, node.count)
    return element_at(node.input, index)


@element_at.register(Prefetch)
@element_at.register(WithOptions)
def _(node: Unary, index: int) -> Any:
    return element_at(node.input, index)


@element_at.register
def _(node: Skip, index: int) -> Any:
    return element_at(node.input, node.count + index)


@element_at.register
def _(node: Shard, index: int) -> Any:
    if node.is_hint:
        raise _refusal(node, index)
    return element_at(node.input, node.index + index * node.num_shards)


@element_at.register
def _(node: Enumerate, index: int) -> Any:
    try:
        number = np.int64(node.start + index)
    except OverflowError:
        raise beyond_int64(node, node.start + index) from None
    return number, element_at(node.input, index)


@element_at.register
def _(node: Repeat, index: int) -> Any:
    count = node.input.cardinality
    if count > 0:
        return element_at(node.input, index % count)
    return _element_of_uncounted(node.input, index)


@element_at.register
def _(node: Concatenate, index: int) -> Any:
    for source in node.inputs[:-1]:
        count = source.cardinality
        if count < 0:
            return _element_of_uncounted(source, index)
        if index < count:
            return element_at(source, index)
        index -= count
    return element_at(node.inputs[-1], index)


@element_at.register
def _(node: Zip, index: int) -> Any:
    count = min([one.cardinality for one in node.inputs if one.cardinality >= 0], default=-1)
    if 0 <= count <= index:  # also if the number of elements of another input is unknown
        raise out_of_range(node, index, count)
    elements = [element_at(source, index) for source in node.inputs]
    return map_structure(lambda number: elements[number], node.template)


@singledispatch
def name_at(node: Node, index: int) -> Name:
    """Return the name of element ``index`` of a node with random access, as
    ``ElementIterator.namer`` of its iterators does.

    >>> name_at(Skip(inputs=(Range(start=0, stop=9),), count=3), 2)
    (0, 5)
    """
    return name_at(node.inputs[0], index) if node.inputs else (0, index)


@name_at.register
def _(node: FromSource, index: int) -> Name:
    iterator = make_iterator(node, _program.get())
    iterator.restore(index + 1)
    namer = iterator.namer()
    return (namer() if namer is not None else None) or (0, index)


@name_at.register(Cache)
@name_at.register(Load)
def _(node: Node, index: int) -> Name:
    return 0, index


@name_at.register
def _(node: ListFiles, index: int) -> Name:
    return 0, hash_of(element_at(node, index))


@name_at.register
def _(node: Shuffle, index: int) -> Name:
    if isinstance(node.input, ListFiles):
        return 0, hash_of(element_at(node, index))
    return name_at(node.input, drawn_number(node, _program.get(), index))


@name_at.register
def _(node: Batch, index: int) -> Name:
    count, stop = node.input.cardinality, (index + 1) * node.batch_size
    return name_at(node.input, (stop if count < 0 else min(stop, count)) - 1)


@name_at.register
def _(node: MapBatches, index: int) -> Name:
    batch, row = divmod(index, node.batch_size)
    return _row_name(Batch(inputs=node.inputs, batch_size=node.batch_size), batch, row)


@name_at.register
def _(node: Unbatch, index: int) -> Name:
    rows = leading_length(known_spec(node.input))
    assert rows  # otherwise the element has no random access
    return _row_name(node.input, *divmod(index, rows))


def _row_name(batches: Node, batch: int, row: int) -> Name:
    group, position = name_at(batches, batch)
    return subgroup(subgroup(group, position), 0), row + 1


@name_at.register
def _(node: Skip, index: int) -> Name:
    return name_at(node.input, node.count + index)


@name_at.register
def _(node: Shard, index: int) -> Name:
    return name_at(node.input, node.index + index * node.num_shards)


@name_at.register
def _(node: Repeat, index: int) -> Name:
    count = node.input.cardinality
    done, inner = divmod(index, count) if count > 0 else (0, index)
    group, position = name_at(node.input, inner)
    return subgroup(group, done), position


@name_at.register
def _(node: Concatenate, index: int) -> Name:
    for number, source in enumerate(node.inputs):
        count = source.cardinality
        if count < 0 or index < count or number + 1 == len(node.inputs):
            group, position = name_at(source, index)
            return subgroup(group, number), position
        index -= count
    raise IndexError(index)
