"""Tests of ``zmqdata.operations.selections``."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, plain, provided, run
from zmqdata.elements.specs import INFINITE_CARDINALITY, TensorSpec
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.errors import FailedPreconditionError, PipelineError, UnavailableError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.inference import infer_spec
from zmqdata.nodes.base import SHARD_HINT, Node
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.choices import RejectionResample
from zmqdata.operations.folds import Scan
from zmqdata.operations.limits import AssertCardinality, Enumerate, TakeWhile
from zmqdata.operations.mapping import Filter, Map
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.selections import (
    IgnoreErrors,
    Shard,
    StaticShard,
    Unique,
    WithOptions,
    identity,
)
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import Range, TensorSlices
from zmqdata.splits import IndexSplits

ADVICE = (
    "Divide the data among more files, use fewer workers, or distribute the dataset with "
    "ShardingPolicy.DATA or "
    "DYNAMIC"
)


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def picky(stop: int = 6) -> Node:
    return Map(
        inputs=(count(stop),),
        function=lambda x: 1 // int(x != 1 and x != 4) and int(x),
        site="t.py:1",
    )


def slices(values: Any) -> Node:
    return TensorSlices(tensors=np.asarray(values))


def ints(outcomes: list[Any]) -> list[Any]:
    return [outcome[-1] if outcome[0] in ("int64", "int") else outcome[0] for outcome in outcomes]


@pytest.mark.parametrize(("shards", "index"), [(1, 0), (3, 0), (3, 2), (20, 12), (20, 3)])
def test_shards_are_every_nth_element(shards: int, index: int) -> None:
    """The shard equals the slice of a list, and its cardinality is its length."""
    node = Shard(inputs=(count(10),), num_shards=shards, index=index)
    assert ints(check_restore(node)) == list(range(10))[index::shards]
    assert node.cardinality == len(range(10)[index::shards])


def test_failing_elements_keep_their_place_in_shards() -> None:
    """All shards count failing elements alike, so that each element is in exactly one
    shard.
    """
    first = Shard(inputs=(picky(),), num_shards=2, index=0)
    second = Shard(inputs=(picky(),), num_shards=2, index=1)
    assert ints(check_restore(first)) == [0, "raised", 2, "raised"]
    assert ints(check_restore(second)) == ["raised", 3, "raised", 5]


def test_shards_act_on_the_part_of_a_worker() -> None:
    """A shard over a provider takes every nth element of its own splits."""
    node = Shard(inputs=(count(99),), num_shards=2, index=1)
    assert ints(check_restore(node, provided([[(10, 13), (40, 43)]]))) == [11, 40, 42]


@pytest.mark.parametrize("of_files", [True, False])
@pytest.mark.parametrize(("shards", "index"), [(1, 0), (3, 0), (3, 2), (10, 9)])
def test_static_shards_are_every_nth_element(shards: int, index: int, of_files: bool) -> None:
    """Static shards have the elements of a shard, and can be restored exactly at every
    step.
    """
    node = StaticShard(
        inputs=(count(10),), num_shards=shards, index=index, of_files=of_files, seed=1
    )
    assert ints(check_restore(node)) == list(range(10))[index::shards]


@pytest.mark.parametrize("index", [0, 2, 4])
def test_a_shard_of_files_has_a_file(index: int) -> None:
    """Every shard raises an error once if names are fewer than shards, and is empty
    without names.
    """
    node = StaticShard(inputs=(count(3),), num_shards=5, index=index, of_files=True)
    text = f"range(3) has 3 files, not enough for the required 5 shards/workers. {ADVICE}"
    assert check_restore(node) == [("raised", "InvalidArgumentError", text)]
    assert (
        check_restore(StaticShard(inputs=(count(0),), num_shards=5, index=index, of_files=True))
        == []
    )


@pytest.mark.parametrize(
    ("index", "expected"),
    [(0, [0, "raised"]), (1, ["raised", "raised", 4]), (2, ["raised", 2, "raised", 5])],
)
def test_failing_names_are_no_files_less(index: int, expected: list[Any]) -> None:
    """Failing names count as files. Among the first names, a shard ignores failures of
    later shards, which raise them.
    """
    failing = Map(inputs=(count(6),), function=lambda x: 1 // int(x not in (1, 3)) and int(x))
    node = StaticShard(inputs=(failing,), num_shards=3, index=index, of_files=True)
    assert ints(check_restore(node)) == expected


def test_what_lies_under_static_shards_is_the_same_for_all() -> None:
    """Shards with a common seed are parts of the same order, whatever the seeds of
    their tasks.
    """
    for reshuffle in (True, False):
        shuffled = Shuffle(inputs=(count(9),), buffer_size=9, reshuffle_each_iteration=reshuffle)
        parts = []
        for index in range(3):
            shard = StaticShard(inputs=(shuffled,), num_shards=3, index=index, seed=5)
            parts.append(ints(run(shard, Context(seed=index, fixed_seed=5))))
        whole = ints(run(shuffled, Context(seed=5, fixed_seed=5, path=(0,))))
        assert [x for row in zip(*parts, strict=True) for x in row] == whole


def test_a_shard_hint_is_for_the_service() -> None:
    """Reading a shard hint names the policy that fills it in, although its spec is
    known.
    """
    node = Shard(inputs=(count(9),), num_shards=SHARD_HINT, index=SHARD_HINT)
    with pytest.raises(
        FailedPreconditionError,
        match=r"tf\.data service with `ShardingPolicy\.HINT` processing mode",
    ):
        make_iterator(node, Context())
    assert infer_spec(Map(inputs=(node,), function=float)) == TensorSpec((), np.float64)


def test_take_while_ends_for_good() -> None:
    """Elements after the first false are not examined, even if they would be true."""
    asked: list[int] = []
    node = TakeWhile(
        inputs=(slices([0, 1, 5, 0, 1]),), predicate=lambda x: asked.append(x) or x < 3
    )
    assert ints(run(node)) == [0, 1]
    assert asked == [0, 1, 5]
    assert ints(check_restore(node)) == [0, 1]


def test_take_while_goes_on_after_failures() -> None:
    """A failing predicate, or a result that is not a bool, fails a single element.
    Tuples are unpacked.
    """
    node = TakeWhile(inputs=(count(5),), predicate=lambda x: 1 // int(x != 1) == 1 and x < 3)
    assert ints(check_restore(node)) == [0, "raised", 2]
    pairs = Enumerate(inputs=(count(4),))
    assert (
        len(check_restore(TakeWhile(inputs=(pairs,), predicate=lambda i, x: np.bool_(x < 2)))) == 2
    )
    with pytest.raises(PipelineError, match="must return one bool"):
        next(make_iterator(TakeWhile(inputs=(count(1),), predicate=lambda x: None), Context()))


@pytest.mark.parametrize(
    "values", [[3, 1, 3, 2, 1], ["a", "b", "a", "ab"], [b"x", b"", b"x"], [[1, 2], [2, 1], [1, 2]]]
)
def test_unique_keeps_first_places(values: list[Any]) -> None:
    """Each element is yielded once, for integers, texts, bytes and arrays of them."""
    array = np.array(values)
    node = Unique(inputs=(TensorSlices(tensors=array),))
    seen: list[Any] = []
    for row in array:
        if plain(row) not in seen:
            seen.append(plain(row))
    assert check_restore(node) == seen


def test_unique_remembers_many() -> None:
    """States hold 16 bytes for each element, also beyond the size of a chunk, and share
    their content.
    """
    node = Unique(inputs=(Repeat(inputs=(count(600),), count=2),))
    iterator = make_iterator(node, Context())
    for _ in range(550):
        next(iterator)
    state = iterator.state()
    assert sum(map(len, state[0])) + len(state[1]) == 16 * 550
    assert state[0][0] is iterator.state()[0][0]
    restored = make_iterator(node, Context())
    restored.restore(state)
    assert [int(x) for x in restored] == list(range(550, 600))


def test_unique_tells_kinds_apart() -> None:
    """Unequal numbers, texts, bytes and arrays differ, and equal numbers of all types
    are the same.
    """
    alike = [1, np.int8(1), np.array(1), True, np.bool_(True)]
    assert len({identity(element) for element in alike}) == 1
    others = [1, "1", b"1", np.array([1]), np.array([[1]]), np.array(["1"]), -1, 2**64]
    assert len({identity(element) for element in others}) == len(others)
    assert identity(np.array(["a"], "<U1")) == identity(np.array(["a"], "<U9"))
    assert identity(np.array(["a"], object)) == identity(np.array(["a"]))


@pytest.mark.parametrize("element", [1.5, np.array([1.0]), (1, 2), {"a": 1}, None])
def test_unique_refuses_what_has_no_identity(element: Any) -> None:
    """Floats and nested elements are failures that name a remedy."""
    with pytest.raises(TypeError, match=r"map\(\)"):
        identity(element)
    node = Unique(inputs=(Map(inputs=(count(2),), function=lambda x: element),))
    assert ints(run(node)) == ["raised", "raised"]


def test_ignore_errors_leaves_out_failures(caplog: pytest.LogCaptureFixture) -> None:
    """Failing elements are skipped, and logged on request."""
    node = IgnoreErrors(inputs=(picky(),))
    assert ints(check_restore(node)) == [0, 2, 3, 5]
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "zmqdata"):
        run(IgnoreErrors(inputs=(picky(),), log_warning=True))
    assert ["map(<lambda>) at t.py:1" in record.getMessage() for record in caplog.records] == [
        True,
        True,
    ]


def test_ignore_errors_lets_other_errors_out() -> None:
    """An error that concerns all elements is raised, as skipping it might never end."""
    iterator = make_iterator(IgnoreErrors(inputs=(count(3),)), Context())

    class Broken:
        def __next__(self) -> Any:
            raise UnavailableError("gone")

    iterator._input = Broken()  # type: ignore[attr-defined]
    with pytest.raises(UnavailableError):
        next(iterator)


def test_the_asserted_number_passes() -> None:
    """An input with the asserted number passes unchanged."""
    node = AssertCardinality(inputs=(count(3),), expected=3)
    assert ints(check_restore(node)) == [0, 1, 2]
    assert node.cardinality == 3
    endless = AssertCardinality(
        inputs=(Repeat(inputs=(count(2),), count=-1),), expected=INFINITE_CARDINALITY
    )
    assert len(check_restore(endless, limit=9)) == 9


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (1, "to contain 1 element but contained at least 2 elements"),
        (5, "to contain 5 elements but contained only 3 elements"),
        (INFINITE_CARDINALITY, "an infinite number of elements but contained only 3 elements"),
    ],
)
def test_another_number_is_an_error(expected: int, text: str) -> None:
    """The error names both numbers, and the dataset then ends."""
    read = check_restore(AssertCardinality(inputs=(count(3),), expected=expected))
    assert read[-1][:2] == ("raised", "FailedPreconditionError")
    assert text in read[-1][2]
    assert len(read) == (2 if expected == 1 else 4)


def test_options_change_no_elements() -> None:
    """The node that sets options yields the elements of its input."""
    node = WithOptions(inputs=(count(3),), settings=(("deterministic", False),))
    assert ints(check_restore(node)) == [0, 1, 2]


TEN = Range(start=0, stop=10)
ENDLESS = Repeat(inputs=(TEN,), count=-1)
EMPTY = Range(start=0, stop=0)
SOME = Filter(inputs=(TEN,), predicate=bool)


def parse(x: Any) -> Any:
    return x


def shard(source: Node, count: int = 3, index: int = 1) -> Node:
    return Shard(inputs=(source,), num_shards=count, index=index)


def resample(source: Node) -> Node:
    return RejectionResample(inputs=(source,), function=parse, target=(1.0,))


@pytest.mark.parametrize(
    ("node", "label", "cardinality"),
    [
        (shard(TEN), "shard(3, 1)", 3),
        (shard(TEN, 20, 12), "shard(20, 12)", 0),
        (shard(ENDLESS), "shard(3, 1)", INFINITE),
        (shard(SOME), "shard(3, 1)", UNKNOWN),
        (shard(TEN, SHARD_HINT, SHARD_HINT), "shard(SHARD_HINT, SHARD_HINT)", UNKNOWN),
        (TakeWhile(inputs=(ENDLESS,), predicate=parse), "take_while(parse)", UNKNOWN),
        (Unique(inputs=(TEN,)), "unique()", UNKNOWN),
        (Scan(inputs=(TEN,), initial_state=0, function=parse), "scan(parse)", 10),
        (IgnoreErrors(inputs=(TEN,)), "ignore_errors()", UNKNOWN),
        (IgnoreErrors(inputs=(ENDLESS,)), "ignore_errors()", INFINITE),
        (IgnoreErrors(inputs=(EMPTY,)), "ignore_errors()", 0),
        (AssertCardinality(inputs=(SOME,), expected=4), "assert_cardinality(4)", 4),
        (resample(TEN), "rejection_resample(parse)", UNKNOWN),
        (resample(ENDLESS), "rejection_resample(parse)", INFINITE),
        (replace(resample(TEN), initial=(1.0,)), "rejection_resample(parse)", 10),
        (
            replace(resample(TEN), target=(1.0, 0.0), initial=(1.0, 0.0)),
            "rejection_resample(parse)",
            UNKNOWN,
        ),
    ],
)
def test_labels_and_cardinalities(node: Node, label: str, cardinality: int) -> None:
    """Errors use the label of the node, and its cardinality is as listed."""
    assert node.label == label
    assert node.cardinality == cardinality
    assert split_sources(node)[0] == IndexSplits(
        0 if "ignore" in label and cardinality == 0 else 10
    )


def test_specs() -> None:
    """Selections keep the spec, while the results of a function require a trial run."""

    def infer(node: Node) -> Any:
        return node.spec(infer)

    spec = TensorSpec((), np.int64)
    assert {infer(node) for node in (shard(TEN), Unique(inputs=(TEN,)))} == {spec}
    assert infer(Scan(inputs=(TEN,), initial_state=0, function=parse)) is None
    assert infer(resample(TEN)) is None
