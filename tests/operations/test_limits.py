"""Tests of ``operations.limits`` and ``operations.mapping``, and of what the
nodes of other transformations say.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.iterators.checks import check_restore, plain, provided, run
from tests.nodes.samples import INT, STR, empty, endless, infer, parse, ten, unknown
from tests.nodes.samples import slices as slice_rows
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.nodes.parts import split_sources
from zmqdata.operations import limits
from zmqdata.operations.batch import Batch
from zmqdata.operations.combinations import Zip
from zmqdata.operations.files import ListFiles
from zmqdata.operations.mapping import Filter, Map
from zmqdata.operations.nested import FlatMap, Interleave
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import FromGenerator, Range, TensorSlices
from zmqdata.splits import MOST_SPLITS, FileSplits

Point = namedtuple("Point", ["x", "y"])


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def mapped(function: Any, stop: int = 5) -> Node:
    return Map(inputs=(count(stop),), function=function, site="train.py:12")


def values(node: Node) -> list[Any]:
    return list(make_iterator(node, Context()))


def slices(tensors: Any) -> Node:
    return TensorSlices(tensors=tensors)


def picky(x: Any) -> Any:
    if x in (1, 2, 4):
        raise ValueError(f"not {x}")
    return x


def test_functions_get_plain_tuples_unpacked() -> None:
    """A plain tuple becomes the arguments; a dict, a namedtuple or an array is a single
    argument.
    """
    rows = np.arange(2)
    for tensors, arguments in [
        ((rows, rows), 2),
        ({"a": rows}, 1),
        (Point(rows, rows), 1),
        (rows, 1),
    ]:
        got: list[Any] = []
        node = Map(inputs=(slices(tensors),), function=lambda *args, got=got: got.append(args))
        values(node)
        assert [len(args) for args in got] == [arguments, arguments]
        predicate = Filter(
            inputs=(slices(tensors),), predicate=lambda *args, n=arguments: len(args) == n
        )
        assert len(values(predicate)) == 2


def test_results_keep_their_type_except_lists() -> None:
    """A Python int keeps its type. A list becomes an array at any depth, also in
    namedtuples and other dicts.
    """
    results: list[Any] = [
        1,
        "a",
        None,
        [1, 2],
        ([1],),
        {"x": {"y": [1]}},
        Point([1], 2),
        OrderedDict(a=[1]),
    ]
    array = np.array([1])
    expected = [
        1,
        "a",
        None,
        np.array([1, 2]),
        (array,),
        {"x": {"y": array}},
        Point(array, 2),
        OrderedDict(a=array),
    ]
    came = values(mapped(lambda x: results[x], len(results)))
    assert plain(tuple(came)) == plain(tuple(expected))
    assert type(came[-1]) is OrderedDict


def test_a_failing_function_fails_one_element() -> None:
    """The failure names the node and has the original as its cause, and the next
    element follows.
    """
    iterator = make_iterator(mapped(picky), Context())
    assert next(iterator) == 0
    with pytest.raises(
        PipelineError, match=r"map\(picky\) at train.py:12 failed: ValueError: not 1"
    ) as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.node == "map(picky) at train.py:12"
    assert len(check_restore(mapped(picky))) == 5


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration, GeneratorExit])
@pytest.mark.parametrize("threads", [None, 2])
def test_what_stands_for_an_end_is_a_failure_in_functions(kind: Any, threads: int | None) -> None:
    """A function that raises what ends a generator has failed for its element: a loop
    neither ends quietly, nor meets what is no Exception.
    """

    def fail(*arguments: Any) -> Any:
        raise kind("no")

    base = Dataset.range(3)
    made: list[Any] = [
        base.map(fail, num_parallel_calls=threads), base.filter(fail), base.flat_map(fail),
        base.interleave(fail, num_parallel_calls=threads), base.scan(0, fail),
        base.take_while(fail), base.random_map(fail), base.map_batches(fail, 2),
        base.group_by_window(fail, lambda key, window: window, 2),
        base.group_by_window(lambda x: 0, fail, 2), Dataset.from_generator(fail),
        base.rejection_resample(fail, [0.5, 0.5]),
        base.bucket_by_sequence_length(fail, [2], [2, 2]),
    ]  # fmt: skip
    for dataset in made:
        with pytest.raises(PipelineError, match=rf"{kind.__name__}: no(\Z|; a func)") as raised:
            next(iter(dataset))
        # As tf.data's map and scan: "Function invocation produced OutOfRangeError".
        assert isinstance(raised.value, InvalidArgumentError) == (kind is StopIteration)
    assert list(base.map(fail, num_parallel_calls=threads).ignore_errors()) == []


def test_stop_iteration_in_a_function_ends_nothing() -> None:
    """A StopIteration that escapes from a user's function is a failure, not a quiet
    end.
    """
    assert [outcome[0] for outcome in run(mapped(lambda x: next(iter([]))))] == ["raised"] * 5
    bad = Filter(inputs=(count(3),), predicate=lambda x: next(iter([])))
    assert [outcome[0] for outcome in run(bad)] == ["raised"] * 3


def test_the_innermost_node_names_itself() -> None:
    """Outer nodes pass a failure on unchanged."""
    outer = Map(inputs=(mapped(picky),), function=lambda x: x)
    with pytest.raises(PipelineError, match=r"^map\(picky\)"):
        values(outer)


@pytest.mark.parametrize("kind", [bool, np.bool_, np.array])
def test_predicates_return_one_bool(kind: Any) -> None:
    """Bools of Python and numpy, and bool arrays without axes, are valid."""
    node = Filter(inputs=(count(5),), predicate=lambda x: kind(bool(x % 2)))
    assert values(node) == [1, 3]
    check_restore(node)


@pytest.mark.parametrize("result", [1, None, "yes", np.array([True]), np.array(1)])
def test_other_predicates_are_refused(result: Any) -> None:
    """A number, a text or an array with axes is a failure that names the remedy."""
    node = Filter(inputs=(count(1),), predicate=lambda x: result)
    with pytest.raises(PipelineError, match=r"must return one bool.*\.all\(\)"):
        values(node)


@pytest.mark.parametrize(
    ("number", "expected"), [(0, []), (2, [0, 1]), (9, [0, 1, 2, 3, 4]), (-1, [0, 1, 2, 3, 4])]
)
def test_take(number: int, expected: list[int]) -> None:
    """Take yields at most the given number, or all for -1, and restores at every
    step.
    """
    node = limits.Take(inputs=(count(5),), count=number)
    assert check_restore(node) == [plain(np.int64(x)) for x in expected]


@pytest.mark.parametrize(
    ("number", "expected"), [(0, [0, 1, 2, 3, 4]), (2, [2, 3, 4]), (9, []), (-1, [])]
)
def test_skip(number: int, expected: list[int]) -> None:
    """Skip drops the given number, or all for -1, and restores at every step."""
    node = limits.Skip(inputs=(count(5),), count=number)
    assert check_restore(node) == [plain(np.int64(x)) for x in expected]


def test_take_asks_for_no_more_than_it_yields() -> None:
    """The input does not run beyond the last element."""
    asked: list[int] = []
    assert len(values(limits.Take(inputs=(mapped(lambda x: asked.append(x)),), count=2))) == 2
    assert asked == [0, 1]


def test_failures_are_not_counted() -> None:
    """Take and skip count elements, not failures."""
    assert [o[0] for o in check_restore(limits.Take(inputs=(mapped(picky),), count=2))] == [
        "int64",
        "raised",
        "raised",
        "int64",
    ]
    assert [o[0] for o in check_restore(limits.Skip(inputs=(mapped(picky),), count=1))] == [
        "raised",
        "raised",
        "int64",
        "raised",
    ]


def test_enumerate_counts_what_it_yields() -> None:
    """Numbers are np.int64, begin at start, and have no gaps at failed elements."""
    node = limits.Enumerate(inputs=(mapped(picky),), start=7)
    numbers = [outcome[1] for outcome in check_restore(node) if outcome[0] == "tuple"]
    assert numbers == [plain(np.int64(7)), plain(np.int64(8))]


def test_enumerate_counts_per_worker() -> None:
    """The numbers over a provider count this iterator's elements, for any splits."""
    node = limits.Enumerate(inputs=(count(9),))
    read = check_restore(node, provided([[(5, 7)]]))
    assert read == [plain((np.int64(0), np.int64(5))), plain((np.int64(1), np.int64(6)))]


def test_closing_reaches_the_source() -> None:
    """close() reaches every input that holds resources."""
    closed = []

    def generate() -> Any:
        try:
            yield from range(5)
        finally:
            closed.append(True)

    node: Node = FromGenerator(generator=generate)
    for kind, arguments in [
        (Map, {"function": int}),
        (limits.Take, {"count": 3}),
        (Batch, {"batch_size": 1}),
    ]:
        node = kind(inputs=(node,), **arguments)
    iterator = make_iterator(node, Context())
    next(iterator)
    iterator.close()
    assert closed == [True]


def test_skipping_all_reads_nothing() -> None:
    """skip(-1) is empty at once, also for an endless input, and after errors of its
    input.
    """
    assert values(limits.Skip(inputs=(Repeat(inputs=(count(3),), count=-1),), count=-1)) == []
    assert values(limits.Skip(inputs=(mapped(lambda x: 1 // 0),), count=-1)) == []


def test_a_function_that_wants_a_tensor_is_told_that_elements_are_arrays() -> None:
    """A missing attribute of an array has a hint, that of another object has none."""
    texts = [
        run(Map(inputs=(Range(start=0, stop=1),), function=function))[0][2]
        for function in (lambda x: np.zeros(2).unsqueeze(0), lambda x: {}.unsqueeze(0))
    ]
    assert ["Elements hold numpy arrays" in text for text in texts] == [True, False]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dataset.range(2).enumerate(2**63 - 1),
        lambda: Dataset.counter(2**63 - 1).take(2),
        lambda: Dataset.counter(-(2**63), -1).take(2),
    ],
)
def test_numbers_beyond_int64_are_errors(make: Any) -> None:
    """The last number of np.int64 is yielded, and the error names the operation and
    the next number.
    """
    dataset = make()
    iterator = iter(dataset)
    assert "9223372036854775" in str(next(iterator))
    for failing in (lambda: next(iterator), lambda: dataset.at(1)):
        with pytest.raises(PipelineError, match=r"cannot count to -?922337203685477580[89]: np"):
            failing()


@pytest.mark.parametrize(
    ("node", "label"),
    [
        (Map(inputs=(ten(),), function=parse), "map(parse)"),
        (FlatMap(inputs=(ten(),), function=parse), "flat_map(parse)"),
        (
            Interleave(inputs=(ten(),), function=parse, cycle_length=2),
            "interleave(parse)",
        ),
        (unknown(), "filter(parse)"),
        (Batch(inputs=(ten(),), batch_size=4), "batch(4)"),
        (Shuffle(inputs=(ten(),), buffer_size=4), "shuffle(4)"),
        (Shuffle(inputs=(ten(),), buffer_size=None), "shuffle(all)"),
        (endless(), "repeat()"),
        (Repeat(inputs=(ten(),), count=2), "repeat(2)"),
        (limits.Take(inputs=(ten(),), count=2), "take(2)"),
        (limits.Skip(inputs=(ten(),), count=2), "skip(2)"),
        (limits.Enumerate(inputs=(ten(),)), "enumerate(0)"),
        (Prefetch(inputs=(ten(),), buffer_size=2), "prefetch(2)"),
    ],
)
def test_labels_say_operation_and_argument(node: Node, label: str) -> None:
    """A label is the method of Dataset and its main argument."""
    assert node.label == label


@pytest.mark.parametrize(
    ("node", "cardinality"),
    [
        (Map(inputs=(ten(),), function=parse), 10),
        (unknown(), UNKNOWN),
        (FlatMap(inputs=(ten(),), function=parse), UNKNOWN),
        (Interleave(inputs=(ten(),), function=parse, cycle_length=1), UNKNOWN),
        (Shuffle(inputs=(ten(),), buffer_size=2), 10),
        (Prefetch(inputs=(ten(),), buffer_size=2), 10),
        (limits.Enumerate(inputs=(ten(),)), 10),
        (Batch(inputs=(ten(),), batch_size=4), 3),
        (Batch(inputs=(ten(),), batch_size=4, drop_remainder=True), 2),
        (Batch(inputs=(endless(),), batch_size=4), INFINITE),
        (Batch(inputs=(unknown(),), batch_size=4), UNKNOWN),
        (endless(), INFINITE),
        (Repeat(inputs=(ten(),), count=3), 30),
        (Repeat(inputs=(ten(),), count=0), 0),
        (Repeat(inputs=(empty(),), count=-1), 0),
        (Repeat(inputs=(unknown(),), count=2), UNKNOWN),
        (Repeat(inputs=(unknown(),), count=-1), INFINITE),
        (Repeat(inputs=(endless(),), count=2), INFINITE),
        (limits.Take(inputs=(ten(),), count=3), 3),
        (limits.Take(inputs=(ten(),), count=30), 10),
        (limits.Take(inputs=(ten(),), count=-1), 10),
        (limits.Take(inputs=(endless(),), count=3), 3),
        (limits.Take(inputs=(endless(),), count=-1), INFINITE),
        (limits.Take(inputs=(unknown(),), count=3), UNKNOWN),
        (limits.Skip(inputs=(ten(),), count=3), 7),
        (limits.Skip(inputs=(ten(),), count=30), 0),
        (limits.Skip(inputs=(ten(),), count=-1), 0),
        (limits.Skip(inputs=(endless(),), count=3), INFINITE),
        (limits.Skip(inputs=(unknown(),), count=3), UNKNOWN),
    ],
)
def test_cardinalities_follow_from_the_input(node: Node, cardinality: int) -> None:
    """The number of elements equals that of tf.data for the same operations."""
    assert node.cardinality == cardinality


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        (Map(inputs=(ten(),), function=parse), None),
        (Map(inputs=(ten(),), function=parse, output_spec=STR), STR),
        (FlatMap(inputs=(ten(),), function=parse), None),
        (Interleave(inputs=(ten(),), function=parse, cycle_length=1), None),
        (
            Filter(inputs=(slice_rows(1),), predicate=parse),
            {"x": TensorSpec((2,), np.int8), "y": INT},
        ),
        (Batch(inputs=(ten(),), batch_size=4), TensorSpec((None,), np.int64)),
        (
            Batch(inputs=(ten(),), batch_size=4, drop_remainder=True),
            TensorSpec((4,), np.int64),
        ),
        (limits.Enumerate(inputs=(ten(),)), (INT, INT)),
        *(
            (kind(inputs=(slice_rows(1),), count=2), infer(slice_rows(1)))
            for kind in (Repeat, limits.Take, limits.Skip)
        ),
        (Shuffle(inputs=(slice_rows(1),), buffer_size=2), infer(slice_rows(1))),
        (Prefetch(inputs=(slice_rows(1),), buffer_size=2), infer(slice_rows(1))),
    ],
)
def test_specs_follow_from_the_input(node: Node, spec: Any) -> None:
    """A spec is that of the input, batched or numbered if the operation does so, and
    None if a function decides.
    """
    assert node.spec(infer) == spec


def test_limits_select_the_names_of_files_below_them() -> None:
    """The splits of listed files are those that take and skip leave of their order,
    however many files the dispatcher will find.
    """
    files = ListFiles(patterns=("/a/*",), shuffle=False)
    shuffle = Shuffle(inputs=(files,), buffer_size=9, seed=5, reshuffle_each_iteration=False)
    for order in (files, shuffle):
        (whole,) = split_sources(order)
        part = limits.Take(inputs=(limits.Skip(inputs=(order,), count=2),), count=3)
        assert split_sources(part) == [replace(whole, first=2, stop=5)]
        above = Shuffle(inputs=(part,), buffer_size=9)
        assert split_sources(above) == [replace(whole, first=2, stop=5)]
        nothing = limits.Skip(inputs=(order,), count=-1)
        assert split_sources(nothing) == [replace(whole, first=MOST_SPLITS)]


def test_a_shuffle_orders_the_names_of_files_below_it() -> None:
    """The splits of listed files come in the order of a shuffle directly above them,
    and of no other.
    """
    files = ListFiles(patterns=("/a/*",), shuffle=False)
    shuffle = Shuffle(inputs=(files,), buffer_size=9, seed=5, reshuffle_each_iteration=False)
    drawn = FileSplits(("/a/*",), False, None, drawn_from=9, draw_seed=5, redraws=False)
    assert split_sources(shuffle) == [drawn]
    higher = Shuffle(inputs=(Map(inputs=(files,), function=str),), buffer_size=9)
    assert split_sources(higher) == [FileSplits(("/a/*",), False, None)]
    whole = Shuffle(inputs=(files,), buffer_size=None)
    assert split_sources(whole)[0].drawn_from == MOST_SPLITS  # type: ignore[union-attr]
    both = Zip(inputs=(files, shuffle), template=(0, 1))
    assert split_sources(both) == [FileSplits(("/a/*",), False, None), drawn]
