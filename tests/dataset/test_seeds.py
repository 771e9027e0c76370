"""Tests of ``zmqdata.dataset.seeds``: the draws of local iterators, and what fixes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.dataset.reading import ints
from zmqdata.dataset import Dataset, set_random_seed
from zmqdata.dataset.seeds import _Seeds, _seeds, fixed_seed, next_seed


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
    assert len({*drawn, one.fixed, other.fixed}) == 42


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


def test_nested_shuffles_stay_in_whatever_follows() -> None:
    """The order of a shuffle in the dataset of an element stays, too."""
    nested = Dataset.range(4).flat_map(
        lambda x: Dataset.range(x * 5, x * 5 + 5).shuffle(5, reshuffle_each_iteration=False)
    )
    assert ints(nested.take(13).batch(2).unbatch()) + ints(nested.skip(13)) == ints(nested)
