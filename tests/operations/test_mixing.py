"""Tests of ``zmqdata.operations.mixing``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, outcomes, provided, run
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations.limits import Take
from zmqdata.operations.mapping import Filter, Map
from zmqdata.operations.mixing import Mix
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.schedules import DueChoices, Weights
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import Range

THOUSAND = 1000


def part(number: int, count: int) -> Node:
    """Return ``count`` numbers from ``number`` thousand on."""
    return Range(start=number * THOUSAND, stop=number * THOUSAND + count)


def mix(
    *inputs: Node,
    weights: Weights | None = None,
    stop: str = "once",
    seed: int = 1,
    with_names: bool = False,
    reweight: bool = False,
) -> Mix:
    names = tuple("abcdefgh"[: len(inputs)])
    given = weights or ((0, (1,) * len(inputs)),)
    choices = DueChoices(weights=given, seed=seed, reweight=reweight)
    return Mix(inputs=inputs, choices=choices, stop=stop, names=names, with_names=with_names)


def numbers(read: list[Any]) -> list[Any]:
    return [outcome[3] if outcome[0] == "int64" else outcome[0] for outcome in read]


def of(read: list[Any]) -> Counter[int]:
    """Count the elements of each dataset."""
    return Counter(number // THOUSAND for number in numbers(read))


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(0, 99),
)
def test_once_yields_what_comes_in(parts: list[tuple[int, int]], seed: int) -> None:
    """``once`` yields the elements of all datasets, each once and in the order of its
    dataset, and is restored at every element.
    """
    inputs = [part(index, count) for index, (count, _) in enumerate(parts)]
    weights = ((0, tuple(weight for _, weight in parts)),)
    found = numbers(check_restore(mix(*inputs, weights=weights, seed=seed)))
    for index, (count, _) in enumerate(parts):
        own = [number for number in found if number // THOUSAND == index]
        assert own == list(range(index * THOUSAND, index * THOUSAND + count))


@pytest.mark.parametrize("stop", ["first", "all", "once"])
def test_fifty_elements_restore_at_each(stop: str) -> None:
    """A mixture whose weights change in the middle is restored at each of 50
    elements.
    """
    weights = ((0, (3, 1, 1)), (20, (1, 0, 4)), (40, (1, 1, 1)))
    node = mix(part(0, 40), part(1, 30), part(2, 24), weights=weights, stop=stop)
    assert len(check_restore(node)) >= 50


def test_first_ends_when_a_dataset_that_is_due_has_ended() -> None:
    """``first`` ends when an ended dataset is due, and not before."""
    found = of(check_restore(mix(part(0, 99), part(1, 3), weights=((0, (3, 1)),), stop="first")))
    assert found[1] == 3
    assert 9 <= found[0] <= 13


def test_all_begins_ended_datasets_again() -> None:
    """``all`` ends when each dataset was read once. Those that ended before begin
    again, and keep their share.
    """
    found = numbers(check_restore(mix(part(0, 30), part(1, 2), weights=((0, (3, 1)),), stop="all")))
    assert [number for number in found if number < THOUSAND] == list(range(30))
    again = [number - THOUSAND for number in found if number >= THOUSAND]
    assert again == [0, 1] * 5


def test_each_pass_of_all_has_an_order_of_its_own() -> None:
    """A shuffled dataset is shuffled anew in each of its passes, and in each repetition
    of the mixture.
    """
    shuffled = Shuffle(inputs=(part(1, 8),), buffer_size=8, seed=3)
    node = Repeat(inputs=(mix(part(0, 40), shuffled, stop="all"),), count=2)
    found = [number for number in numbers(check_restore(node)) if number >= THOUSAND]
    passes = [tuple(found[at : at + 8]) for at in range(0, len(found), 8)]
    assert len(passes) == len(set(passes)) == 10


def test_weight_zero_is_not_read() -> None:
    """A dataset whose weight is 0 throughout neither yields nor ends the mixture."""
    for stop in ("first", "all", "once"):
        node = mix(part(0, 9), part(1, 9), weights=((0, (1, 0)),), stop=stop)
        assert numbers(check_restore(node)) == list(range(9))


def test_the_next_weights_begin_early_if_nothing_is_left() -> None:
    """If all datasets that have a weight have ended, ``once`` goes on with the next
    weights.
    """
    node = mix(part(0, 3), part(1, 3), weights=((0, (1, 0)), (50, (0, 1))))
    assert numbers(check_restore(node)) == [0, 1, 2, 1000, 1001, 1002]


def fail_at_three(x: Any) -> Any:
    if x % THOUSAND == 3:
        raise ValueError("three")
    return x


def test_a_failure_uses_the_share_of_its_dataset() -> None:
    """An element that fails counts as an element of its dataset."""
    failing = Map(inputs=(part(1, 9),), function=fail_at_three)
    read = check_restore(mix(part(0, 9), failing))
    plain = numbers(check_restore(mix(part(0, 9), part(1, 9))))
    assert [plain[at] if one == "raised" else one for at, one in enumerate(numbers(read))] == plain


@pytest.mark.parametrize("stop", ["first", "all", "once"])
def test_an_empty_dataset_is_an_error(stop: str) -> None:
    """A dataset without elements is named, and the iterator has ended."""
    iterator = make_iterator(
        mix(part(0, 9), Filter(inputs=(part(1, 9),), predicate=lambda x: False), stop=stop),
        Context(),
    )
    read = [*map(str, outcomes_of_five(iterator))]
    assert "dataset `b` has no elements" in read[-1]


def outcomes_of_five(iterator: Any) -> list[Any]:
    found = outcomes(iterator)
    return [next(found) for _ in range(5)]


def test_structures_that_differ_are_an_error() -> None:
    """The first elements show different structures, and the error names both
    datasets.
    """
    dicts = Map(inputs=(part(1, 9),), function=lambda x: {"x": x})
    read = run(mix(part(0, 9), dicts), limit=4)
    assert "of `a` are" in str(read)
    assert "of `b` are" in str(read)


def test_names_come_with_elements() -> None:
    """``with_names`` yields pairs, and the spec says so."""
    node = mix(part(0, 2), part(1, 2), with_names=True)
    found = [(name, int(element)) for name, element in make_iterator(node, Context())]
    assert Counter(name for name, _ in found) == {"a": 2, "b": 2}
    assert all((name == "a") == (number < THOUSAND) for name, number in found)
    assert node.spec(lambda inner: inner.spec(None)) == (
        TensorSpec((), np.str_),
        TensorSpec((), np.int64),
    )


def test_elements_are_counted() -> None:
    """The context counts the elements of each dataset by name."""
    context = Context()
    assert len([*make_iterator(mix(part(0, 6), part(1, 2)), context)]) == 8
    assert context.counts == {"mix/a": 6, "mix/b": 2}


@pytest.mark.parametrize(
    ("stop", "counts", "weights", "expected"),
    [
        ("once", (3, 4), (1, 1), 7),
        ("once", (3, 4), (1, 0), UNKNOWN),
        ("first", (3, 4), (1, 1), UNKNOWN),
        ("first", (-1, -1), (1, 1), INFINITE),
        ("first", (-1, 4), (1, 1), UNKNOWN),
        ("first", (-1, 4), (1, 0), INFINITE),
        ("all", (-1, 4), (1, 1), INFINITE),
        ("all", (3, -1), (1, 0), UNKNOWN),
        ("once", (3, -1), (1, 1), INFINITE),
    ],
)
def test_cardinalities(
    stop: str, counts: tuple[int, ...], weights: tuple[int, ...], expected: int
) -> None:
    """The cardinality follows from the datasets that have a weight."""
    inputs = [
        part(0, count) if count >= 0 else Repeat(inputs=(part(0, 1),), count=-1) for count in counts
    ]
    assert mix(*inputs, weights=((0, weights),), stop=stop).cardinality == expected


@pytest.mark.parametrize("stop", ["first", "all", "once"])
def test_the_last_weights_decide_whether_a_mixture_ends(stop: str) -> None:
    """A mixture ends if its endless dataset has no weight in the end."""
    inputs = Repeat(inputs=(part(0, 1),), count=-1), part(1, 4)
    weights = ((0, (1, 0)), (10, (0, 1)))
    assert mix(*inputs, weights=weights, stop=stop).cardinality == UNKNOWN
    assert len(numbers(run(mix(*inputs, weights=weights, stop=stop), limit=99))) == 14


def test_mixtures_of_mixtures() -> None:
    """A mixture reads mixtures, and is repeated, shuffled and cut like any dataset."""
    inner = mix(part(0, 9), part(1, 9), stop="all")
    outer = mix(inner, part(2, 20), weights=((0, (2, 1)),), stop="all")
    node = Take(
        inputs=(Shuffle(inputs=(Repeat(inputs=(outer,), count=2),), buffer_size=5),), count=60
    )
    assert len(check_restore(node)) == 60


# --- weights and states


@pytest.mark.parametrize("above", [None, 1, 7])
@pytest.mark.parametrize("taken", [0, 1, 10, 25, 39])
def test_new_weights_lose_and_repeat_nothing(above: int | None, taken: int) -> None:
    """A mixture that continues with other weights yields the other elements, each once,
    also if a shuffle has pulled elements before.
    """

    def made(weights: Weights, reweight: bool = False) -> Node:
        node: Node = mix(part(0, 30), part(1, 20), weights=weights, reweight=reweight)
        return node if above is None else Shuffle(inputs=(node,), buffer_size=above, seed=2)

    first = iter(Dataset(made(((0, (3, 1)),))))
    before = [int(next(first)) for _ in range(taken)]
    again = iter(Dataset(made(((0, (1, 5)),), reweight=True)))
    again.load_state_dict(first.state_dict())
    half = [int(next(again)) for _ in range(5)]
    third = iter(Dataset(made(((0, (1, 5)),))))
    third.load_state_dict(again.state_dict())
    rest = [int(x) for x in third]
    assert rest == [int(x) for x in again]
    assert sorted(before + half + rest) == [*range(30), *range(1000, 1020)]


def test_new_weights_begin_at_the_element_reached() -> None:
    """The state of a repeated mixture says where the new weights begin."""

    def made(weights: Weights, reweight: bool = False) -> Dataset:
        node = mix(part(0, 99), part(1, 99), weights=weights, stop="first", reweight=reweight)
        return Dataset(Repeat(inputs=(node,), count=-1))

    first = iter(made(((0, (1, 1)),)))
    for _ in range(250):
        next(first)
    again = iter(made(((0, (9, 1)),), reweight=True))
    again.load_state_dict(first.state_dict())
    found = [int(next(again)) >= THOUSAND for _ in range(50)]
    assert sum(found) == 5


# --- tasks


def some(*ranges: tuple[int, int]) -> list[list[tuple[int, int]]]:
    return [list(ranges)]


def test_each_dataset_has_splits_of_its_own() -> None:
    """A task mixes the splits that it gets."""
    node = mix(part(0, 99), part(0, 99), weights=((0, (2, 1)),))
    found = numbers(check_restore(node, provided(some((5, 7)), some((50, 53)))))
    assert sorted(found) == [5, 6, 50, 51, 52]


def test_a_task_reads_its_own_splits_again() -> None:
    """A task begins a dataset again from the splits that it had (``all``)."""
    node = mix(part(0, 99), part(0, 99), stop="all")
    found = numbers(check_restore(node, provided(some((0, 4), (8, 12)), some((50, 51), (60, 61)))))
    assert [number for number in found if number >= 50] == [50, 60] * 4


def test_a_task_reads_splits_of_repetitions_again() -> None:
    """A dataset that is repeated below the mixture begins again with all of its
    repetitions, and the repetitions of the mixture have splits of their own.
    """
    twice = Repeat(inputs=(part(0, 99),), count=2)
    node = Repeat(inputs=(mix(part(0, 99), twice, stop="all"),), count=2)
    first, second = [[(0, 6)], [(6, 12)]], [[(50, 51)], [(60, 61)], [(70, 71)], [(80, 81)]]
    found = numbers(check_restore(node, provided(first, second)))
    assert [number for number in found if number >= 50] == [50, 60] * 3 + [70, 80] * 3


@pytest.mark.parametrize(("stop", "left"), [("first", 1), ("all", 4), ("once", 4)])
def test_a_task_without_a_split_goes_without(
    stop: str, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that gets no split of a dataset ends, or goes on with the others, and says
    how many splits the dataset has.
    """
    node = mix(part(0, 9), part(1, 5), stop=stop, seed=4)
    found = numbers(check_restore(node, provided(some((0, 4)), some())))
    assert len(found) <= left
    assert set(found) <= set(range(4))
    assert "the dataset `b` had no elements for task 0, which got 0 of its 5 splits" in caplog.text


def test_a_task_knows_that_a_dataset_is_empty() -> None:
    """A task that got all splits of a dataset, and no element of it, raises an
    error.
    """
    empty = Filter(inputs=(part(1, 5),), predicate=lambda x: False)
    iterator = make_iterator(mix(part(0, 9), empty), provided(some((0, 4)), some((0, 5)))())
    with pytest.raises(InvalidArgumentError, match="`b` has no elements"):
        list(iterator)


def test_a_log_counts_the_splits_of_repeated_datasets(caplog: pytest.LogCaptureFixture) -> None:
    """A task that had more splits in all passes than the dataset has names their number
    alone.
    """
    node = Repeat(inputs=(Filter(inputs=(part(1, 5),), predicate=lambda x: False),), count=2)
    providers = provided(some((0, 4)), [[(0, 5)], [(0, 5)]])
    list(make_iterator(mix(part(0, 9), node), providers()))
    assert "for task 0, which got 10 splits. The other" in caplog.text


@pytest.mark.parametrize("wrap", [lambda node: node, lambda node: Take(inputs=(node,), count=99)])
def test_elements_keep_their_names(wrap: Callable[[Node], Node]) -> None:
    """Each element has a name of its own, in every pass of its dataset."""
    iterator = make_iterator(wrap(mix(part(0, 20), part(0, 3), stop="all")), Context(named=True))
    namer = iterator.namer()
    assert namer is not None
    names = [namer() for _ in iterator]
    assert len(names) == len(set(names)) > 30
