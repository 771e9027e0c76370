"""Tests of how a task's sources receive splits, request more in time, and return the
rest.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import Dataset
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.splits import Split
from zmqdata.worker.tasks.ledger import PLACE, LedgerProvider, Pacer, Stopped


class Desk:
    """A provider with a simulated clock, and all requests that it makes."""

    def __init__(self, *entries: Split) -> None:
        self.now = 0.0
        self.asks: list[tuple[int, int, bool]] = []
        self.provider = LedgerProvider(entries, self.want, lambda: self.now)

    def want(self, repetition: int, have: int, waiting: bool, pace: float) -> None:
        self.asks.append((repetition, have, waiting))
        if waiting:
            self.provider.stop()  # a single thread cannot end its own wait

    def take(self, seconds: float = 1.0) -> Split | None:
        """Return the next piece, which takes the given number of seconds to consume."""
        piece = self.provider.next_split()
        self.now += seconds
        return piece

    def starve(self) -> None:
        with pytest.raises(Stopped):
            self.take()
        self.provider._stopped = False


def test_pieces_grow_with_the_speed_of_the_source() -> None:
    """The first piece is a single split. Pieces then grow eightfold up to a twentieth
    of a second of work, and shrink as the source slows down.
    """
    now = 0.0
    pacer, sizes = Pacer(lambda: now), []
    for pace in [1e-4] * 5 + [1.0] * 3:
        sizes.append(pacer.size)
        pacer.give(pacer.size)
        now += pacer.size * pace
        pacer.use_up()
    assert sizes[:3] == [1, 8, 64]
    assert sizes[3] == pytest.approx(500, abs=1)
    assert pacer.size == 1


def test_slow_sources_get_one_split_at_a_time() -> None:
    """A slow source gets a single split at a time, so that it can give back all
    others.
    """
    desk = Desk()
    desk.provider.feed([Split(0, 10, 13, ("a", "b", "c"))])
    assert [desk.take() for _ in range(3)] == [
        Split(0, 10 + n, 11 + n, ("abc"[n],)) for n in range(3)
    ]


def test_more_is_asked_for_before_the_source_starves() -> None:
    """A source requests more when a single piece is left, and again when it waits. It
    requests nothing before its pace is known.
    """
    desk = Desk()
    desk.starve()
    desk.provider.feed([Split(0, 0, 1)])
    desk.take()
    desk.starve()
    desk.provider.feed([Split(0, 1, 4)])
    desk.take()
    assert desk.asks == [(0, 0, True), (0, 1, True)]
    desk.take()
    desk.take()
    assert desk.asks[2:] == [(0, 2, False)]
    desk.starve()
    assert desk.asks[3:] == [(0, 2, True)]


def test_nothing_is_asked_for_behind_an_end() -> None:
    """A source whose repetition has ended only requests splits of the next repetition,
    once it reaches that.
    """
    desk = Desk()
    desk.provider.feed([Split(0, 0, 2), Split(0, 2, 3), Split(0, 3, 3)])
    pieces = [desk.take() for _ in range(4)]
    assert (pieces[-1], desk.asks) == (None, [])
    desk.provider.reset()
    desk.starve()
    assert desk.asks == [(1, 3, True)]


def test_what_no_source_has_started_is_given_back() -> None:
    """A source gives back the rest of the entry that it reads and all entries after it.
    Requests then begin again.
    """
    desk = Desk()
    desk.provider.feed([Split(0, 0, 2), Split(0, 2, 9), Split(0, 20, 30)])
    for _ in range(4):
        desk.take()
    assert desk.provider.give_back() == (2, 4, True)
    assert desk.provider.give_back() == (2, 4, False)
    desk.starve()
    assert desk.asks == [(0, 2, True)]
    desk.provider.feed([Split(0, 30, 31)])
    assert desk.take() == Split(0, 30, 31)


def test_nothing_started_means_that_all_goes() -> None:
    """A source that has started nothing gives back every entry whole, as a part of
    length zero would be an end mark.
    """
    desk = Desk()
    assert desk.provider.give_back() == (0, 0, False)
    desk.provider.feed([Split(0, 5, 9)])
    assert desk.provider.give_back() == (0, 0, True)


def test_a_source_that_waits_keeps_one_split() -> None:
    """A source that waits keeps a single split, as two tasks could otherwise take it
    from each other forever. An end mark also stays.
    """
    desk = Desk()
    desk.starve()
    desk.provider.feed([Split(0, 5, 9)])
    assert desk.provider.give_back() == (1, 6, True)
    assert desk.take() == Split(0, 5, 6)
    desk.starve()
    desk.provider.feed([Split(0, 9, 9)])
    assert desk.provider.give_back() == (2, 9, False)
    assert desk.take() is None


def test_what_came_with_the_task_stays() -> None:
    """Splits that came with the task stay, as an earlier attempt may have used them and
    clients may hold its elements.
    """
    desk = Desk(Split(0, 0, 5), Split(0, 5, 9))
    desk.take()
    assert desk.provider.give_back() == (2, 9, False)
    desk.provider.feed([Split(0, 9, 12)])
    assert desk.provider.give_back() == (2, 9, True)


def test_going_back_does_not_free_what_was_started() -> None:
    """A cache restores a source to an earlier place. The splits that the source had
    started stay.
    """
    desk = Desk()
    desk.provider.feed([Split(0, 0, 5), Split(0, 5, 9)])
    for _ in range(3):
        desk.take()
    desk.provider.restore([PLACE, 0, 0, 1])
    assert desk.provider.give_back() == (1, 3, True)
    assert [desk.take(), desk.take()] == [Split(0, 1, 2), Split(0, 2, 3)]


def test_a_place_before_a_cut_is_a_place_behind_it() -> None:
    """A state that was taken before the entry was cut continues at the same place."""
    desk = Desk()
    desk.provider.feed([Split(0, 0, 5)])
    desk.take()
    state = desk.provider.state()
    assert (state, desk.provider.give_back()) == ([PLACE, 0, 0, 1], (1, 1, True))
    desk.provider.feed([Split(0, 7, 9)])
    assert desk.provider.state() == [PLACE, 0, 1, 0]
    desk.provider.restore(state)
    assert desk.take() == Split(0, 7, 8)


def test_a_new_repetition_skips_what_is_left() -> None:
    """A new repetition skips the remaining entries of the previous repetition, and the
    end mark of that ends nothing.
    """
    desk = Desk()
    desk.provider.feed([Split(0, 0, 5), Split(0, 5, 5), Split(1, 0, 1), Split(1, 1, 1)])
    desk.take()
    desk.provider.reset()
    assert desk.take() == Split(1, 0, 1)
    assert desk.take() is None
    assert desk.take() is None
    assert desk.provider.state() == [PLACE, 0, 4, 0]
    desk.provider.restore([PLACE, 0, 4, 0])
    assert desk.take() is None
    desk.provider.restore([PLACE, 0, 0, 0])
    assert desk.take() == Split(0, 0, 1)


def test_entries_that_are_gone_keep_their_numbers() -> None:
    """A ledger that begins later keeps the numbers of the whole ledger, also when a
    source gives back its end.
    """
    provider = LedgerProvider([Split(0, 7, 9)], lambda *ask: None, lambda: 0.0, source=2, base=5)
    provider.restore([PLACE, 2, 6, 0])
    assert provider.state() == [PLACE, 2, 6, 0]
    provider.feed([Split(0, 9, 12), Split(0, 12, 14)])
    assert provider.next_split() == Split(0, 9, 10)
    assert provider.give_back() == (7, 10, True)
    provider.rewind()
    assert provider.state() == [PLACE, 2, 5, 0]
    assert provider.next_split() == Split(0, 7, 9)
    assert provider.give_back() == (7, 10, False)


def test_feeding_ends_a_wait() -> None:
    """A source that waits in its thread continues with the splits that arrive."""
    asked, found = threading.Event(), []
    provider = LedgerProvider((), lambda *ask: asked.set())
    thread = threading.Thread(target=lambda: found.append(provider.next_split()))
    thread.start()
    assert asked.wait(5.0)
    provider.feed([Split(0, 0, 3)])
    thread.join(5.0)
    assert found == [Split(0, 0, 1)]


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_a_source_restores_in_other_pieces_than_before(seed: int, count: int) -> None:
    """The state of a source over pieces of any size yields the same rest over pieces of
    any other size.
    """
    draw = random.Random(seed)
    cuts = sorted({0, count, *(draw.randint(0, count) for _ in range(4))})
    entries = [Split(0, first, stop) for first, stop in itertools.pairwise(cuts)] + [
        Split(0, count, count)
    ]
    node = Dataset.range(count).node

    def source() -> ElementIterator:
        now = [0.0]

        def clock() -> float:
            now[0] += draw.choice([1e-6, 0.001, 0.02, 1.0])
            return now[0]

        return make_iterator(
            node, Context(seed=1, providers=(LedgerProvider(entries, lambda *ask: None, clock),))
        )

    first, second = source(), source()
    read = draw.randint(0, count)
    for _ in range(read):
        next(first)
    second.restore(first.state())
    assert [int(value) for value in second] == list(range(read, count))
    assert [int(value) for value in first] == list(range(read, count))


@pytest.mark.parametrize(
    ("dataset", "size"),
    [
        (Dataset.range(7, 600, 3), 198),
        (Dataset.range(198).batch(4), 198),
        (Dataset.from_tensor_slices({"x": list(range(198))}).batch(3), 198),
        (Dataset.from_list(list(range(198))), 198),
    ],
)
def test_sources_read_each_so_many_th_split(dataset: Dataset, size: int) -> None:
    """A range of every n-th split yields the elements of its single splits, and a state
    can be taken between any two.
    """
    single = [Split(0, number, number + 1) for number in range(2, size, 5)]
    whole = Split(0, 2, single[-1].stop, step=5)
    end = Split(0, size, size)

    def reading(*entries: Split) -> ElementIterator:
        ticks = itertools.count(step=1e-4)
        provider = LedgerProvider(entries, _never, ticks.__next__)
        return make_iterator(dataset.node, Context(seed=1, providers=(provider,)))

    expected = [str(element) for element in reading(*single, end)]
    iterator, states, found = reading(whole, end), [], []
    while True:
        states.append(iterator.state())
        element = next(iterator, None)
        if element is None:
            break
        found.append(str(element))
    assert found == expected
    for number in (0, 1, 9, len(expected) - 1, len(expected)):
        again = reading(whole, end)
        again.restore(states[number])
        assert [str(element) for element in again] == expected[number:]


def test_an_element_of_such_a_range_knows_its_split() -> None:
    """The split of an element is the split that it came from, not all splits between
    the first and the last.
    """
    provider = LedgerProvider([Split(0, 3, 100, step=10)], _never)
    iterator = make_iterator(Dataset.range(100).node, Context(seed=1, providers=(provider,)))
    assert [(next(iterator), iterator.current_split()) for _ in range(4)] == [
        (3, (3, 4)),
        (13, (13, 14)),
        (23, (23, 24)),
        (33, (33, 34)),
    ]


def test_who_waits_for_splits_is_away() -> None:
    """A source is away only while it waits for splits, and is back before it
    continues.
    """
    places: list[str] = []

    @contextlib.contextmanager
    def away() -> Iterator[None]:
        places.append("away")
        yield
        places.append("back")

    def want(repetition: int, have: int, waiting: bool, pace: float) -> None:
        if waiting:
            provider.feed([Split(0, 5, 6)])

    provider = LedgerProvider([Split(0, 0, 1)], want, away=away)
    assert provider.next_split() == Split(0, 0, 1)
    assert places == []
    assert provider.next_split() == Split(0, 5, 6)
    assert places == ["away", "back"]


def _never(*ask: object) -> None:
    """Ignore a request, as no source waits."""
