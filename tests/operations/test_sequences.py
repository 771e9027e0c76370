"""Tests of ``zmqdata.operations.sequences``."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import optree
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, provided, run
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.permutation import Permutation
from zmqdata.nodes.base import Node
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.sequences import (
    FromIterable,
    FromList,
    FromSource,
    Owner,
    Random,
    Reiterated,
)
from zmqdata.splits import IndexSplits

Point = namedtuple("Point", "x y")


class Foreign:
    """A tensor of another library."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.array([1, 2])


class Squares:
    """A map-style dataset that fails at a single place."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 3:
            raise IndexError("three is not there")
        return {"x": [index, index**2]}


def values(node: Node, context: Context, count: int = 20) -> list[int]:
    return [int(value) for value in islice(make_iterator(node, context), count)]


def test_random_numbers_follow_from_the_seed() -> None:
    """Numbers are int64 below 2**32, the same for the same seed, and can be restored
    across groups.
    """
    node = Random(seed=3)
    check_restore(node, limit=40)
    numbers = values(node, Context(seed=1), 3000)
    assert numbers == values(node, Context(seed=2), 3000)
    assert len(set(numbers)) > 2990
    assert 0 <= min(numbers) < 2**24
    assert 2**32 - 2**24 < max(numbers) < 2**32
    assert type(next(make_iterator(node, Context()))) is np.int64


@pytest.mark.parametrize(
    ("seed", "anew", "changes"),
    [
        (1, False, set()),
        (1, True, {"turn"}),
        (None, False, {"seed"}),
        (None, True, {"seed", "turn"}),
    ],
)
def test_what_random_numbers_depend_on(seed: int | None, anew: bool, changes: set[str]) -> None:
    """A seed fixes the numbers, and rerandomize_each_iteration gives each repetition
    its own.
    """
    node = Random(seed=seed, rerandomize_each_iteration=anew)
    first = values(node, Context())
    other = {"seed": Context(seed=5), "turn": Context(repetition=1), "fixed": Context(fixed_seed=5)}
    assert {name for name, context in other.items() if values(node, context) != first} == changes


def test_random_numbers_are_split_by_their_number() -> None:
    """Two workers with different numbers of the same stream draw the numbers of a
    single reader.
    """
    node = Random(seed=3)
    whole = run(node, limit=6)
    first, second = (run(node, provided([ranges])()) for ranges in ([(0, 2), (5, 6)], [(2, 5)]))
    assert first[:2] + second + first[2:] == whole
    assert check_restore(Random(), provided([[(0, 2), (5, 6)]])) != first


@pytest.mark.parametrize("shuffle", [False, True])
def test_sequences_are_read_by_index(shuffle: bool) -> None:
    """Each element comes once, and a failing element is a single failure. Restoring
    works at each step.
    """
    outcomes = check_restore(FromSource(sequence=Squares(), shuffle=shuffle))
    assert (
        Counter(
            outcome if outcome[0] == "raised" else "element" for outcome in map(tuple, outcomes)
        )["element"]
        == 4
    )
    failed = next(outcome for outcome in outcomes if "raised" in outcome)
    assert "IndexError: three is not there" in failed[2]


def test_a_permutation_is_split_by_places() -> None:
    """Workers that read different ranges of places read disjoint parts of the same
    order, whatever their tasks' seeds.
    """
    node = FromSource(sequence=range(10), shuffle=True)
    parts = [run(node, task(seed, [[ranges]])()) for seed, ranges in enumerate([(0, 4), (4, 10)])]
    assert sorted(value for part in parts for _, value in part) == list(range(10))
    check_restore(node, task(0, [[(0, 4), (7, 9)]]))


def task(seed: int, *ranges: Any) -> Callable[[], Context]:
    """Return a maker of contexts for a task among several."""
    return lambda: replace(provided(*ranges)(), seed=seed, fixed_seed=seed, shared_seed=4)


def test_a_permutation_is_that_of_the_splits_repetition() -> None:
    """Parts of the same repetition are parts of the same order, even if zip ends a pass
    early on a worker.
    """
    node = FromSource(sequence=range(10), shuffle=True)
    late, early = task(0, [[], [(0, 4)]])(), replace(task(1, [[], [(4, 10)]])(), repetition=5)
    for context in (late, early):
        context.provider().reset()  # type: ignore[union-attr]
    assert sorted(values(node, late) + values(node, early)) == list(range(10))


def test_iterations_have_orders_of_their_own() -> None:
    """The order depends on the shared seed, which differs between iterations, and not
    on the seed of the task.
    """
    node = FromSource(sequence=range(20), shuffle=True)
    first = task(0, [[(0, 20)]])()
    assert values(node, first) == values(node, task(1, [[(0, 20)]])())
    assert values(node, replace(task(0, [[(0, 20)]])(), shared_seed=5)) != values(
        node, task(0, [[(0, 20)]])()
    )


def test_orders_change_with_the_repetition_unless_told_otherwise() -> None:
    """Each repetition and iteration has its own order; reshuffle_each_iteration=False
    keeps the order.
    """
    repeated = Repeat(inputs=(FromSource(sequence=range(20), shuffle=True, seed=1),), count=2)
    found = values(repeated, Context(), 40)
    assert sorted(found[:20]) == sorted(found[20:]) == list(range(20))
    assert found[:20] != found[20:]
    fixed = FromSource(sequence=range(20), shuffle=True, reshuffle_each_iteration=False)
    assert values(fixed, Context(repetition=1, seed=4)) == values(fixed, Context())


def test_arrays_are_copied_out_of_a_sequence() -> None:
    """Changing an element changes neither the list nor the memory map."""
    for sequence in (
        [np.zeros(2)],
        np.zeros((1, 2)),
        [(np.zeros(2), {"x": np.zeros(2)})],
        [Point(np.zeros(2), 1)],
    ):
        iterator = make_iterator(FromSource(sequence=sequence), Context())
        element = next(iterator)
        changed = element[0] if isinstance(element, tuple) else element
        changed += 1
        again = next(make_iterator(FromSource(sequence=sequence), Context()))
        assert not np.any(again[0] if isinstance(again, tuple) else again)


def test_tensors_of_other_libraries_become_arrays() -> None:
    """Convertible values become arrays, memory maps become plain arrays, and other
    objects stay.
    """
    owned = Owner(FromSource(sequence=[]), Context()).owned
    assert owned({"x": Foreign()})["x"].tolist() == [1, 2]
    assert type(owned((np.arange(3).view(np.recarray),))[0]) is np.ndarray
    assert owned(Point(1, [2])).y.tolist() == [2]
    assert owned(np.float16(2)) == 2
    thing = object()
    assert owned(thing) is thing


def test_ragged_tensors_are_copied_out_of_sequences_and_iterables() -> None:
    """A ragged tensor stays ragged, alone and in structures, and shares no memory with
    that of the user.
    """
    ragged = RaggedTensor.from_rows([[1], [2, 3]])
    for kept in (ragged, (ragged, 1), {"x": ragged}):
        for node in (
            FromSource(sequence=[kept]),
            FromIterable(generator=Reiterated([kept])),
        ):
            element = next(make_iterator(node, Context()))
            [found] = [
                part for part in optree.tree_leaves(element) if isinstance(part, RaggedTensor)
            ]
            assert found.to_list() == [[1], [2, 3]]
            assert not np.shares_memory(found.values, ragged.values)


def test_iterables_begin_anew() -> None:
    """An iterable is a single split, fails like a generator, and yields copies."""
    kept = [np.zeros(2), 7]
    node = FromIterable(generator=Reiterated(kept))
    assert len(check_restore(node)) == 2
    next(make_iterator(node, Context()))[0] = 5
    assert kept[0][0] == 0  # type: ignore[index]
    assert len(check_restore(node, provided([[(0, 1)]]))) == 2
    ragged = FromIterable(generator=lambda: [1, [[1], [2, 3]], 4])
    assert [outcome[0] for outcome in check_restore(ragged)] == ["int", "raised", "int"]


@given(st.integers(0, 3000), st.integers(0, 2**63 - 1))
def test_every_place_has_its_own_number(count: int, seed: int) -> None:
    """A permutation of any length holds each number once, and is the same for the same
    seed.
    """
    order = Permutation(count, seed)
    found = [order[place] for place in range(count)]
    assert sorted(found) == list(range(count))
    assert [Permutation(count, seed)[place] for place in range(0, count, 511)] == found[::511]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_all_orders_are_about_as_likely(count: int) -> None:
    """Over many seeds every order of a few elements occurs about equally often."""
    draws = 600
    orders = Counter(
        tuple(Permutation(count, seed)[place] for place in range(count)) for seed in range(draws)
    )
    expected = draws / {2: 2, 3: 6, 4: 24}[count]
    assert len(orders) == draws / expected
    chi_square = sum((seen - expected) ** 2 / expected for seen in orders.values())
    assert chi_square < {2: 11, 3: 21, 4: 50}[count]


def test_a_huge_permutation_takes_no_memory() -> None:
    """A few places of a permutation of 2**40 elements are found at once, and are
    spread.
    """
    order = Permutation(2**40, seed=1)
    found = [order[place] for place in (0, 1, 2, 2**40 - 1)]
    assert len(set(found)) == 4
    assert max(found) < 2**40
    assert max(found) > 2**36


INT = TensorSpec((), np.int64)


def infer(node: Node) -> object:
    return node.spec(infer)


def test_random_numbers_have_no_end() -> None:
    """A random source is endless, yields int64 scalars, and has an endless number of
    places as splits.
    """
    node = Random(seed=4)
    assert (node.label, Random().label) == ("random(seed=4)", "random()")
    assert (node.cardinality, node.split_source, infer(node)) == (
        INFINITE_CARDINALITY,
        IndexSplits(None),
        INT,
    )
    assert Random(seed=4) == node


def test_sequences_are_split_by_index() -> None:
    """A sequence has its length and as many splits. Only a list reveals the spec of its
    elements.
    """
    node = FromSource(sequence=range(3), shuffle=True)
    assert (node.label, node.cardinality, node.split_source) == (
        "from_source(range, shuffle)",
        3,
        IndexSplits(3),
    )
    assert infer(node) is None
    listed = FromList(sequence=(1, 2), elements_spec=INT)
    assert (listed.label, listed.cardinality, infer(listed)) == ("from_list(2 elements)", 2, INT)


def test_iterables_are_one_split() -> None:
    """An iterable has a cardinality if it has a length, and begins anew each time."""
    node = FromIterable(generator=Reiterated([1, 2]))
    assert (node.label, node.cardinality, node.split_source) == (
        "from_iterable(list)",
        2,
        IndexSplits(1),
    )
    assert [list(node.generator()) for _ in range(2)] == [[1, 2], [1, 2]]
    assert FromIterable(generator=list).cardinality == UNKNOWN_CARDINALITY


def test_nodes_of_objects_are_equal_to_themselves_only() -> None:
    """Two sequences with the same content differ, as their elements may not be
    comparable.
    """
    first, second = (FromSource(sequence=np.zeros(2)) for _ in range(2))
    assert first == first
    assert first != second
    assert len({first, second}) == 2
