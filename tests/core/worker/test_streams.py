"""Test what a client's stream has sent and may send."""

from __future__ import annotations

import pytest

from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.streams import (
    BEGINS_WITHIN,
    MOST_BYTES_OUT,
    WORTH_ASKING,
    Portion,
    Stream,
)
from zmqdata.messages import StreamGrant


def portion(first: int, count: int, size: int = 10) -> Portion:
    return Portion(first, count, size, b"", (), b"")


def grant(elements: int, size: int = 1000, handed_out: int = 0, reported: int = 0) -> StreamGrant:
    return StreamGrant(1, 1, elements, size, handed_out, reported)


def given(*portions: Portion) -> Stream:
    stream = Stream("client")
    stream.grant(grant(1000, 100_000), 0.0)
    for one in portions:
        stream.give(one)
    return stream


def test_a_stream_without_a_grant_sends_nothing() -> None:
    """A stream sends nothing before the first grant of its client."""
    assert not Stream("client").has_credit(portion(0, 1))


def test_credit_bounds_elements_and_bytes() -> None:
    """A block must fit the granted elements and bytes, except that a block of any size
    is sent when nothing is in flight.
    """
    stream = Stream("client")
    stream.grant(grant(4, 100), 0.0)
    assert stream.has_credit(portion(0, 9, 500))
    stream.give(portion(0, 2, 10))
    assert stream.has_credit(portion(2, 2, 90))
    assert not stream.has_credit(portion(2, 3, 10))
    assert not stream.has_credit(portion(2, 1, 91))


def test_grants_are_absolute() -> None:
    """A late or repeated grant withdraws nothing and counts nothing twice."""
    stream = given(portion(0, 4), portion(4, 4))
    stream.grant(grant(1010, 100_010, handed_out=6), 0.0)
    stream.grant(grant(5, 5, handed_out=2), 0.0)
    assert (stream.granted, stream.granted_bytes, stream.handed_out) == (1010, 100_010, 6)
    assert [one.owed for one in stream.given] == [2]
    assert not stream.idle
    stream.grant(grant(0, 0, handed_out=99), 0.0)
    assert stream.idle


def test_a_grant_opens_a_closed_stream() -> None:
    """A grant opens a closed stream again."""
    stream = given()
    stream.open = False
    stream.grant(grant(1), 0.0)
    assert stream.open


def test_what_was_not_delivered_can_be_taken_back() -> None:
    """Blocks that come back lack the elements at their beginning that were reported."""
    stream = given(portion(0, 4), portion(4, 4), portion(8, 4))
    back = stream.take_back(RangeSet([(0, 6)]))
    assert [(one.first, one.skip, one.owed) for one in back] == [(4, 2, 2), (8, 0, 4)]
    assert not stream.given


def test_what_was_handed_out_and_never_reported_is_lost() -> None:
    """Elements handed out and not reported are remembered, and are lost when their
    client dies.
    """
    stream = given(portion(0, 4), portion(4, 4))
    stream.grant(grant(0, handed_out=6), 0.0)
    assert stream.has_lost(RangeSet([(0, 5)]))
    assert not stream.has_lost(RangeSet([(0, 6)]))


def test_reports_let_numbers_be_forgotten() -> None:
    """The stream forgets elements that the dispatcher has counted, also within a block,
    and counts them once.
    """
    stream = given(portion(0, 4), portion(4, 4))
    stream.grant(grant(0, handed_out=8, reported=5), 0.0)
    assert list(stream.unreported) == [(5, 8)]
    stream.grant(grant(0, handed_out=8, reported=3), 0.0)
    assert stream.reported == 5
    stream.grant(grant(0, handed_out=8, reported=9), 0.0)
    assert (stream.reported, list(stream.unreported)) == (8, [])
    assert not stream.has_lost(RangeSet())


def test_no_client_is_sent_more_than_a_client_holds() -> None:
    """The elements in flight to a client are bounded whatever it grants itself, and the
    bound moves as it hands out.
    """
    stream, half = Stream("client"), MOST_BYTES_OUT // 2
    stream.grant(grant(1 << 53, 1 << 53), 0.0)
    stream.give(portion(0, 1, half))
    assert stream.has_credit(portion(1, 1, half))
    stream.give(portion(1, 1, half))
    assert not stream.has_credit(portion(2, 1, 1))
    stream.grant(grant(0, 0, handed_out=1), 0.0)
    assert stream.has_credit(portion(2, 1, half))
    assert not stream.has_credit(portion(2, 1, half + 1))
    stream.grant(grant(0, 0, handed_out=2), 0.0)
    assert stream.has_credit(portion(2, 1, 4 * MOST_BYTES_OUT))


# --- giving back


def answer(kept: int, elements: int = 1000, recall: int = 1, handed_out: int = 0) -> StreamGrant:
    return StreamGrant(1, 1, elements, 100_000, handed_out, recall=recall, kept=kept)


def left(*portions: Portion) -> list[tuple[int, int]]:
    return [(one.first + one.skip, one.first + one.stop) for one in portions]


@pytest.mark.parametrize("kept", range(10))
def test_what_a_client_gives_back_is_what_it_does_not_keep(kept: int) -> None:
    """The elements after those that are kept come back in order, wherever blocks
    begin.
    """
    stream = given(portion(0, 4), portion(4, 1), portion(5, 5))
    stream.ask_back(0.0)
    back = left(*stream.grant(answer(kept), 0.1))
    assert members(back) == list(range(kept, 10))
    assert members(left(*stream.given)) == list(range(kept))
    assert stream.sent == kept


def members(ranges: list[tuple[int, int]]) -> list[int]:
    return [n for first, stop in ranges for n in range(first, stop)]


def test_nothing_is_sent_while_a_request_is_open() -> None:
    """A stream whose client is asked gets nothing, so that what it keeps are the first
    elements.
    """
    stream = given(portion(0, 4))
    stream.ask_back(0.0)
    assert not stream.has_credit(portion(4, 1))
    stream.grant(grant(1000, 100_000), 0.0)
    assert not stream.has_credit(portion(4, 1)), "older than the request"
    stream.grant(answer(4), 0.0)
    assert stream.has_credit(portion(4, 1))


def test_an_older_grant_counts_no_more_after_an_answer() -> None:
    """A grant from before the answer that comes late permits nothing."""
    stream = given(portion(0, 4))
    stream.ask_back(0.0)
    stream.grant(answer(2, elements=3), 0.0)
    stream.grant(grant(1000, 100_000, handed_out=4), 0.0)
    assert (stream.granted, stream.handed_out) == (3, 0)
    stream.grant(answer(0, recall=2, elements=99), 0.0)
    assert (stream.granted, stream.sent) == (3, 2), "nobody asked"


def test_a_client_keeps_what_it_has_handed_out() -> None:
    """A client that says that it keeps less than it handed out keeps that."""
    stream = given(portion(0, 4))
    stream.grant(grant(1000, 100_000, handed_out=3), 0.0)
    stream.ask_back(0.0)
    assert left(*stream.grant(answer(1, handed_out=3), 0.0)) == [(3, 4)]
    assert stream.sent == 3


def test_a_client_without_anything_to_give_is_not_asked_again() -> None:
    """A client that had nothing to give back is asked again only after something has
    changed.
    """
    stream = given(portion(0, 4))
    assert stream.could_give(0.0, 1.0)
    stream.ask_back(0.0)
    assert not stream.could_give(0.0, 1.0), "it is being asked"
    stream.grant(answer(4), 0.0)
    assert not stream.could_give(0.0, 1.0)
    stream.grant(answer(4, handed_out=1), 0.0)
    assert stream.could_give(0.0, 1.0)


def test_little_is_not_worth_asking_for() -> None:
    """A client with less than four milliseconds of work, or less than asking takes, is
    not asked.
    """
    stream = given(portion(0, 4))
    assert not stream.could_give(0.0, WORTH_ASKING / 4)
    assert stream.could_give(0.0, WORTH_ASKING / 2)
    stream.ask_back(0.0)
    stream.grant(answer(3), 10.0)
    assert not stream.could_give(10.0, 1.0)


def test_a_loop_that_waits_begins_what_comes() -> None:
    """The first element that is sent to a waiting loop counts as begun for a moment,
    and then no more.
    """
    stream = Stream("client", waits=True)
    stream.grant(grant(1000, 100_000), 0.0)
    stream.give(portion(0, 2))
    stream.sent_at = 5.0
    assert stream.in_hand(5.0) == 1
    assert stream.in_hand(5.1 + BEGINS_WITHIN) == 2
