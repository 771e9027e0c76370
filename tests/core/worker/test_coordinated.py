"""Test how a worker deals rounds to numbered consumers."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker import coordinated
from zmqdata.core.worker.coordinated import RoundRobin
from zmqdata.core.worker.streams import Portion, Stream, occupied


def add(dealing: RoundRobin, first: int, count: int = 2, size: int = 10) -> None:
    """Add the same rounds for each consumer."""
    for lane in range(len(dealing.lanes)):
        dealing.add(Portion(first, count, size, b"", (), b"", lane=lane))


def grant(
    stream: Stream, handed_out: int = 0, reported: int = 0, first: int = 0, elements: int = 100
) -> None:
    stream.grant(m.StreamGrant(1, 1, elements, 1 << 30, handed_out, reported, first), 0.0)


def opened(dealing: RoundRobin, client: str, consumer: int | None, first: int = 0) -> Stream:
    stream = dealing.join(client, m.Reader(consumer))
    grant(stream, first=first)
    return stream


def dealt(dealing: RoundRobin) -> list[tuple[str, int, int]]:
    """Return the rounds given to each client."""
    return [
        (stream.client, one.first + one.skip, one.first + one.count)
        for stream, one in dealing.deal(lambda stream: stream.open)
    ]


def test_each_consumer_gets_its_own_lane() -> None:
    """Each consumer gets the elements of its own number and no others."""
    dealing = RoundRobin(2)
    b, a = opened(dealing, "b", 1), opened(dealing, "a", 0)
    dealing.add(Portion(0, 2, 10, b"", (), b"", lane=1))
    assert dealt(dealing) == [("b", 0, 2)]
    dealing.add(Portion(0, 1, 10, b"", (), b"", lane=0))
    assert not dealing.has_all(a)
    assert dealt(dealing) == [("a", 0, 1)]
    assert dealing.has_all(a)
    assert dealing.has_all(b)


def test_what_was_given_to_nobody_is_ahead() -> None:
    """Only waiting elements count as ahead: for clients without credit and for
    consumers without a client.
    """
    dealing = RoundRobin(2)
    stream = dealing.join("a", m.Reader(0))
    grant(stream, elements=2)
    add(dealing, 0)
    add(dealing, 2)
    assert dealing.ahead == 4 * occupied(10)
    assert dealt(dealing) == [("a", 0, 2)]
    assert dealing.ahead == 3 * occupied(10)


def test_who_is_no_consumer_gets_nothing() -> None:
    """A client with an unknown number or without a number gets no elements."""
    dealing = RoundRobin(2)
    opened(dealing, "x", 2), opened(dealing, "y", None)
    add(dealing, 0)
    assert dealt(dealing) == []


def test_a_successor_begins_where_it_says() -> None:
    """A successor gets the rounds that it lacks, also from the middle of a block,
    without older rounds.
    """
    dealing = RoundRobin(1)
    opened(dealing, "a", 0)
    for first in (0, 2, 4):
        add(dealing, first)
    dealt(dealing)
    assert dealing.release("a", RangeSet())
    assert dealing.ahead == 3 * occupied(10)
    stream = opened(dealing, "b", 0, first=3)
    assert dealt(dealing) == [("b", 3, 4), ("b", 4, 6)]
    assert (stream.sent, dealing.ahead, stream.has_gap) == (3, 0, False)


def test_what_was_reported_is_forgotten() -> None:
    """The worker keeps a block until all of it was reported; a client that needs it
    afterwards is incomplete.
    """
    dealing = RoundRobin(1)
    stream = opened(dealing, "a", 0)
    for first in (0, 2, 4):
        add(dealing, first)
    dealt(dealing)
    grant(stream, handed_out=5, reported=3)
    assert [portion.first for portion in dealing.lanes[0].portions] == [2, 4]
    dealing.release("a", RangeSet())
    assert opened(dealing, "b", 0, first=1).has_gap
    assert dealt(dealing) == []
    assert not dealing.has_all(dealing.streams["b"])
    dealing.release("b", RangeSet())
    assert not opened(dealing, "c", 0, first=3).has_gap
    assert dealt(dealing) == [("c", 3, 4), ("c", 4, 6)]


def test_little_is_kept_of_what_was_handed_out() -> None:
    """The worker forgets unreported rounds beyond the limit, the oldest first."""
    dealing = RoundRobin(1)
    stream = opened(dealing, "a", 0)
    for first in (0, 2, 4):
        add(dealing, first, size=coordinated.KEPT_BYTES // 2)
    dealt(dealing)
    grant(stream, handed_out=4)
    assert [portion.first for portion in dealing.lanes[0].portions] == [0, 2, 4]
    grant(stream, handed_out=6)
    assert [portion.first for portion in dealing.lanes[0].portions] == [2, 4]


def test_a_successor_waits_for_the_one_before_to_be_released() -> None:
    """The first of two clients with the same number gets everything until it is
    released.
    """
    dealing = RoundRobin(1)
    opened(dealing, "a", 0)
    late = opened(dealing, "b", 0)
    add(dealing, 0)
    assert dealt(dealing) == [("a", 0, 2)]
    assert not dealing.has_all(late)
    grant(late, handed_out=2, reported=2)
    dealing.release("a", RangeSet())
    assert dealt(dealing) == [("b", 0, 2)]
    assert dealing.release("nobody", RangeSet())


def test_the_next_attempt_makes_nothing_that_a_consumer_has_behind_it() -> None:
    """Each lane of the next attempt begins at its consumer's report, even if a client
    claims less.
    """
    dealing = RoundRobin(2, passed=(4, 1))
    for first in range(6):
        add(dealing, first, count=1)
    assert [lane.low for lane in dealing.lanes] == [4, 1]
    opened(dealing, "a", 0, first=2), opened(dealing, "b", 1, first=3)
    assert dealt(dealing) == [("a", 4, 5), ("a", 5, 6), ("b", 3, 4), ("b", 4, 5), ("b", 5, 6)]


def test_what_nobody_waits_for_needs_no_room() -> None:
    """Unwanted rounds are forgotten and not kept when made later; a client that comes
    for them is incomplete.
    """
    dealing = RoundRobin(2)
    add(dealing, 0), add(dealing, 2)
    assert dealing.ahead == 4 * occupied(10)
    dealing.skip((0, 4))
    dealing.skip((0, 3))
    assert dealing.ahead == 2 * occupied(10)
    add(dealing, 4, count=1)
    dealing.skip((0, 6))
    add(dealing, 5)
    assert [[portion.first for portion in lane.portions] for lane in dealing.lanes] == [
        [0, 2, 4, 5],
        [5],
    ]
    assert opened(dealing, "b", 1, first=4).has_gap
    dealing.release("b", RangeSet())
    assert not opened(dealing, "c", 1, first=6).has_gap
    assert dealt(dealing) == [("c", 6, 7)]


def test_what_somebody_reads_is_kept() -> None:
    """A client that has taken a consumer's place in the meantime gets the rounds that
    it asks for.
    """
    dealing = RoundRobin(1)
    opened(dealing, "a", 0)
    add(dealing, 0)
    dealing.skip((2,))
    assert dealt(dealing) == [("a", 0, 2)]


def test_a_rest_waits_until_it_is_known_whose_it_is() -> None:
    """The elements after the last full round go to the consumers that the dispatcher
    names, and those that fill no round go to none.
    """
    dealing = RoundRobin(3)
    a, c = opened(dealing, "a", 0), opened(dealing, "c", 2)
    add(dealing, 0)
    dealt(dealing)
    dealing.rest = tuple(Portion(2, 1, 10, bytes([at]), (), b"") for at in range(2))
    assert dealt(dealing) == []
    for _ in range(2):
        dealing.deal_rest(2, 2)
        assert dealing.rest == ()
    given = [(stream.client, one.meta) for stream, one in dealing.deal(lambda one: one.open)]
    assert given == [("a", b"\1"), ("c", b"\0")]
    assert all(dealing.has_all(stream) for stream in (a, c))
    dealing.rest = (Portion(3, 1, 10, b"", (), b""),)
    dealing.deal_rest(0, 0)
    assert (dealt(dealing), dealing.rest) == ([], ())
