"""Tests of ``zmqdata.dataset.seeds``: the draws of local iterators, and what fixes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.dataset.reading import ints
from zmqdata.dataset import Dataset, seeds, set_random_seed
from zmqdata.dataset.seeds import _Seeds, _seeds, fixed_seed, next_seed
from zmqdata.errors import InvalidArgumentError
from zmqdata.machine.runkeys import RUN_ID


def test_set_random_seed_fixes_what_is_drawn() -> None:
    """After the same seed, iterators made in the same sequence have the same orders."""

    def draw(seed: int) -> list[Any]:
        set_random_seed(seed)
        fixed = Dataset.range(50).shuffle(50, reshuffle_each_iteration=False)
        return [
            ints(Dataset.range(50).shuffle(50)),
            ints(Dataset.range(50).shuffle(50)),
            ints(fixed),
        ]

    first = draw(1)
    assert first == draw(1)
    assert first[0] != first[1]
    assert all(one != other for one, other in zip(first, draw(2), strict=True))


def test_no_random_seed_draws_again() -> None:
    """``set_random_seed(None)`` ends the repetition of draws, as before the first
    call.
    """
    numbers = Dataset.range(1000).shuffle(1000)
    try:
        set_random_seed(3)
        fixed = [int(x) for x in numbers]
        drawn = []
        for _ in range(2):
            set_random_seed(None)
            drawn.append([int(x) for x in numbers])
    finally:
        set_random_seed(None)
    assert fixed != drawn[0] != drawn[1] != fixed


def test_without_a_seed_each_iterator_draws_its_own() -> None:
    """Seeds come from the operating system, and all of them differ, within a program
    and between programs.
    """
    one, other = _Seeds(), _Seeds()
    drawn = [one.next() for _ in range(20)] + [other.next() for _ in range(20)]
    assert len(set(drawn)) == 40


def test_the_fixed_seed_is_that_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes of a run have the same seed for what is drawn once, and another run
    has another.
    """
    drawn = []
    for key in ("first", "first", "second"):
        monkeypatch.setenv(RUN_ID, key)
        drawn.append(_Seeds().fixed)
    assert drawn[0] == drawn[1] != drawn[2]


def test_seeds_count_from_the_call() -> None:
    """Setting the same seed again restarts the same sequence of seeds, which are
    distinct and have 63 bits.
    """
    set_random_seed(7)
    first = [next_seed() for _ in range(20)]
    set_random_seed(7)
    assert [next_seed() for _ in range(20)] == first
    assert len({*first, fixed_seed()}) == 21
    assert all(0 <= seed < 2**63 for seed in first)


def test_the_fixed_seed_stays_between_iterators() -> None:
    """The seed that all iterators of a program share does not change when an iterator
    is made.
    """
    for seed in (None, 7):
        if seed is not None:
            set_random_seed(seed)
        fixed = fixed_seed()
        next_seed()
        assert fixed_seed() == fixed


def test_the_seed_is_an_int_of_any_size() -> None:
    """Huge ints and numpy's ints are seeds. Other values, including negative ints, are
    refused and change nothing.
    """
    seeds: list[Any] = [0, 2**200, np.int8(3)]
    for seed in seeds:
        set_random_seed(seed)
        assert _seeds.seed == seed
    with pytest.raises(TypeError, match="seed must be an int, got 'x'"):
        set_random_seed("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        set_random_seed(-1)
    assert _seeds.seed == 3


USES: dict[str, Callable[[Dataset], Dataset]] = {
    "repeat": lambda part: part.repeat(2),
    "batch": lambda part: part.batch(3).prefetch(2).unbatch(),
    "zip": lambda part: Dataset.zip((Dataset.range(10), part)).map(lambda _, x: x),
    "concatenate": lambda part: Dataset.range(0).concatenate(part),
    "cache": lambda part: part.cache().shuffle(5).map(int),
    "shuffle": lambda part: part.shuffle(4, reshuffle_each_iteration=False),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("shuffles", ["shuffle", "from_source"])
def test_parts_of_a_shuffled_dataset_stay_apart(use: str, shuffles: str) -> None:
    """A dataset that is shuffled once, without a seed, has one order in all pipelines:
    training data never contains test data, whatever follows the split.
    """
    if shuffles == "shuffle":
        shuffled = Dataset.range(20).shuffle(20, reshuffle_each_iteration=False)
    else:
        shuffled = Dataset.from_source(
            list(range(20)), shuffle=True, reshuffle_each_iteration=False
        )
    train, test = USES[use](shuffled.take(10)), shuffled.skip(10)
    assert {*ints(train), *ints(test)} == {*range(20)}
    assert not {*ints(train)} & {*ints(test)}


def test_alike_shuffles_draw_for_themselves() -> None:
    """Two shuffles that are written the same, and drawn once, have different orders in
    a pipeline, and each has its own in all pipelines.
    """

    def once() -> Dataset:
        return Dataset.range(50).shuffle(50, reshuffle_each_iteration=False)

    one, other = once(), once()
    pairs = list(Dataset.zip((one, other)))
    first, second = ([int(pair[place]) for pair in pairs] for place in (0, 1))
    assert first != second
    assert (ints(one), ints(other), ints(other.skip(10))) == (first, second, second[10:])


@pytest.mark.parametrize("kind", ["shuffle", "from_source"])
def test_a_state_brings_its_orders_to_another_program(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that loads a state reads the rest of the same order, and draws the
    other parts of the dataset from this order, too.
    """
    made: dict[str, Callable[[], Dataset]] = {
        "shuffle": lambda: Dataset.range(50).shuffle(50, reshuffle_each_iteration=False),
        "from_source": lambda: Dataset.from_source(
            range(50), shuffle=True, reshuffle_each_iteration=False
        ),
    }
    made[kind]()
    then = made[kind]()
    iterator = iter(then.take(40))
    first = [int(next(iterator)) for _ in range(10)]
    state, rest, test = iterator.state_dict(), ints(iterator), ints(then.skip(40))
    monkeypatch.setattr(seeds, "_seeds", other_program())
    now = made[kind]()
    again = iter(now.take(40))
    assert ints(now.skip(40)) != test
    again.load_state_dict(state)
    assert (ints(again), ints(now.skip(40))) == (rest, test)
    assert ints(now.take(40)) == first + rest


def test_a_refused_state_leaves_the_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders stay as they are if a state does not fit."""
    state = iter(Dataset.range(5).shuffle(5, reshuffle_each_iteration=False)).state_dict()
    monkeypatch.setattr(seeds, "_seeds", other_program())
    dataset = Dataset.range(5).shuffle(5, reshuffle_each_iteration=False)
    order, iterator = ints(dataset), iter(dataset)
    with pytest.raises(InvalidArgumentError, match="does not fit"):
        iterator.load_state_dict(state | {"position": "wrong"})
    assert (ints(iterator), ints(dataset)) == (order, order)


def other_program() -> _Seeds:
    """Return the seeds of another program."""
    other = _Seeds()
    other.fixed = 3
    return other


def test_nested_shuffles_stay_in_whatever_follows() -> None:
    """The order of a shuffle in the dataset of an element stays, too."""
    nested = Dataset.range(4).flat_map(
        lambda x: Dataset.range(x * 5, x * 5 + 5).shuffle(5, reshuffle_each_iteration=False)
    )
    assert ints(nested.take(13).batch(2).unbatch()) + ints(nested.skip(13)) == ints(nested)
