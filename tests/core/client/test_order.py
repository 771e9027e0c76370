"""Test that elements come again in the order of a checkpoint."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages as m
from zmqdata.core.client.order import HandedOut, Ordering, can_come_again
from zmqdata.core.ranges import RangeSet
from zmqdata.errors import FailedPreconditionError

INDICES = {7000: 0, 7001: 1}


def block(task: int, first: int, count: int) -> m.Block:
    return m.Block(1, task, 1, first, count, 0, 10)


def due(ordering: Ordering) -> list[tuple[int, int]]:
    return [
        (header.task, header.first + at)
        for header, _, skip, stop in ordering.due()
        for at in range(skip, stop)
    ]


def test_blocks_wait_for_their_turn() -> None:
    """The order takes parts of blocks as it needs them, and elements outside the order
    follow as they come.
    """
    ordering = Ordering([(1, 0, 2), (0, 4, 5), (1, 2, 3)], INDICES)
    ordering.add(7000, block(7000, 4, 3), "content")
    assert due(ordering) == []
    ordering.add(7001, block(7001, 0, 4), "content")
    assert due(ordering) == [
        (7001, 0),
        (7001, 1),
        (7000, 4),
        (7001, 2),
        (7000, 5),
        (7000, 6),
        (7001, 3),
    ]
    assert not ordering


def test_what_does_not_come_is_not_waited_for() -> None:
    """The order does not wait for elements of a task that has ended or passed them, as
    another client has them.
    """
    ordering = Ordering([(0, 0, 2), (1, 0, 2)], INDICES)
    ordering.add(7001, block(7001, 1, 2), "content")
    assert due(ordering) == []
    ordering.end(7000)
    assert due(ordering) == [(7001, 1), (7001, 2)]
    ordering = Ordering([(0, 0, 2)], INDICES)
    ordering.add(7000, block(7000, 2, 1), "content")
    assert due(ordering) == [(7000, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_any_order_comes_again(seed: int) -> None:
    """The elements of the order come first and all elements come once, with any cuts
    and mixture of two tasks' blocks.
    """
    draw = random.Random(seed)
    first, order, place = [], [], [0, 0]
    for _ in range(draw.randint(0, 8)):
        index, count = draw.randrange(2), draw.randint(1, 5)
        order.append((index, place[index], place[index] + count))
        first += [(7000 + index, place[index] + at) for at in range(count)]
        place[index] += count
    blocks: list[list[m.Block]] = [[], []]
    for index in range(2):
        at = 0
        while at < 45:
            count = draw.randint(1, 9)
            blocks[index].append(block(7000 + index, at, count))
            at += count
    ordering, found = Ordering(order, INDICES), []
    while blocks[0] or blocks[1]:
        some = draw.choice([one for one in blocks if one])
        header = some.pop(0)
        ordering.add(header.task, header, "content")
        found += due(ordering)
    assert found[: len(first)] == first
    assert len(found) == len(set(found))
    assert not ordering


def test_an_order_can_only_be_that_of_the_numbers() -> None:
    """An order must follow the element numbers of each task, as each task sends
    undelivered elements by number.
    """
    had = {0: RangeSet([(0, 4)]), 1: RangeSet([(0, 1), (5, 6)])}
    assert can_come_again(had, [])
    assert can_come_again(had, [(0, 4, 6), (1, 1, 3), (0, 6, 7), (1, 3, 5), (2, 0, 1)])
    assert not can_come_again(had, [(0, 5, 6)])
    assert not can_come_again(had, [(1, 6, 7)])


def test_the_rest_follows_a_place_in_its_order() -> None:
    """The order behind a position merges consecutive runs."""
    passed = HandedOut()
    passed.count_delivered(7, ((0, 2),))
    for run in ((7, 2, 4), (7, 4, 5), (8, 0, 3), (7, 5, 6)):
        passed.add(*run)
    assert passed.at(2) == (
        {7: RangeSet([(0, 4)]), 8: RangeSet()},
        [(7, 4, 5), (8, 0, 3), (7, 5, 6)],
    )
    assert passed.at(7) == ({7: RangeSet([(0, 6)]), 8: RangeSet([(0, 3)])}, [])


def test_what_nobody_goes_back_to_is_settled() -> None:
    """Elements up to the oldest position are settled, also within a run, and their
    order is forgotten.
    """
    passed = HandedOut()
    passed.add(7, 0, 4)
    passed.add(8, 0, 4)
    passed.settle(6)
    assert (passed.of(7), passed.of(8)) == (RangeSet([(0, 4)]), RangeSet([(0, 2)]))
    assert passed.at(7)[1] == [(8, 3, 4)]
    passed.settle(3)
    assert passed.of(8) == RangeSet([(0, 2)])


def test_nobody_goes_back_behind_what_is_settled() -> None:
    """A position before the settled elements is refused, as their order is
    forgotten.
    """
    passed = HandedOut()
    passed.add(7, 0, 4)
    passed.settle(3)
    with pytest.raises(FailedPreconditionError, match="Place 2 can no longer be restored"):
        passed.at(2)


def test_what_others_had_counts_but_for_what_may_come_again() -> None:
    """Elements that other clients had count as delivered, except elements that a state
    of this client may replay.
    """
    passed = HandedOut()
    passed.add(7, 2, 4)
    passed.count_delivered(7, [(0, 6)])
    assert passed.of(7) == RangeSet([(0, 2), (4, 6)])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=20), st.data())
def test_every_place_says_what_came_before_it(
    runs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The elements before a position and the runs behind it are what was handed out,
    whatever is settled meanwhile.
    """
    passed, numbers, story = HandedOut(), [0, 0, 0], []
    oldest = 0
    for task, count in runs:
        passed.add(task, numbers[task], numbers[task] + count)
        story += [(task, numbers[task] + at) for at in range(count)]
        numbers[task] += count
        oldest = data.draw(st.integers(oldest, len(story)))
        passed.settle(oldest)
    place = data.draw(st.integers(oldest, len(story)))
    delivered, order = passed.at(place)
    assert passed.count == len(story)
    found = sorted(
        (task, n) for task, ranges in delivered.items() for one in ranges for n in range(*one)
    )
    assert found == sorted(story[:place])
    assert [(task, n) for task, first, stop in order for n in range(first, stop)] == story[place:]
