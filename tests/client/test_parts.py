"""Tests of ``zmqdata.nodes.parts``: which parts of an order tasks would miscount."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from zmqdata import Dataset
from zmqdata.client.splitting import miscounted

ROWS = Dataset.range(20).shuffle(20, seed=1, reshuffle_each_iteration=False)


def numbers() -> Iterator[int]:
    yield from range(20)


SINGLE = Dataset.from_generator(numbers).shuffle(20, seed=1, reshuffle_each_iteration=False)


@pytest.mark.parametrize(
    "limited",
    [
        lambda: ROWS.take(15).map(abs),
        lambda: SINGLE.take(15).concatenate(SINGLE.skip(15)),
        lambda: ROWS.batch(2).take(-1).skip(0),
        lambda: ROWS.repeat().batch(2).take(5),
    ],
    ids=["rows", "single split", "no limit", "steps"],
)
def test_what_selects_the_same_everywhere_is_accepted(limited: Callable[[], Dataset]) -> None:
    """Limits of whole rows, of what one task reads and of steps over repetitions are no
    miscounted parts, and neither are limits that leave nothing out.
    """
    assert miscounted(limited().node) is None


@pytest.mark.parametrize(
    "limited",
    [
        lambda: ROWS.batch(2).take(3),
        lambda: ROWS.filter(bool).skip(3).repeat(),
        lambda: Dataset.zip((ROWS, ROWS)).take(3),
    ],
    ids=["batches", "filtered", "zipped"],
)
def test_what_each_task_would_count_is_found(limited: Callable[[], Dataset]) -> None:
    """A limit of what each task makes of its share of an order is found, with the
    order.
    """
    found = miscounted(limited().node)
    assert found is not None
    assert found[1] is ROWS.node
