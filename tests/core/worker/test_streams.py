"""Test what a client's stream has sent and may send."""

from __future__ import annotations

from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.streams import MOST_BYTES_OUT, Portion, Stream
from zmqdata.messages import StreamGrant


def portion(first: int, count: int, size: int = 10) -> Portion:
    return Portion(first, count, size, b"", (), b"")


def grant(elements: int, size: int = 1000, handed_out: int = 0, reported: int = 0) -> StreamGrant:
    return StreamGrant(1, 1, elements, size, handed_out, reported)


def given(*portions: Portion) -> Stream:
    stream = Stream("client")
    stream.grant(grant(1000, 100_000))
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
    stream.grant(grant(4, 100))
    assert stream.has_credit(portion(0, 9, 500))
    stream.give(portion(0, 2, 10))
    assert stream.has_credit(portion(2, 2, 90))
    assert not stream.has_credit(portion(2, 3, 10))
    assert not stream.has_credit(portion(2, 1, 91))


def test_grants_are_absolute() -> None:
    """A late or repeated grant withdraws nothing and counts nothing twice."""
    stream = given(portion(0, 4), portion(4, 4))
    stream.grant(grant(1010, 100_010, handed_out=6))
    stream.grant(grant(5, 5, handed_out=2))
    assert (stream.granted, stream.granted_bytes, stream.handed_out) == (1010, 100_010, 6)
    assert [one.owed for one in stream.given] == [2]
    assert not stream.idle
    stream.grant(grant(0, 0, handed_out=99))
    assert stream.idle


def test_a_grant_opens_a_closed_stream() -> None:
    """A grant opens a closed stream again."""
    stream = given()
    stream.open = False
    stream.grant(grant(1))
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
    stream.grant(grant(0, handed_out=6))
    assert stream.has_lost(RangeSet([(0, 5)]))
    assert not stream.has_lost(RangeSet([(0, 6)]))


def test_reports_let_numbers_be_forgotten() -> None:
    """The stream forgets elements that the dispatcher has counted, also within a block,
    and counts them once.
    """
    stream = given(portion(0, 4), portion(4, 4))
    stream.grant(grant(0, handed_out=8, reported=5))
    assert list(stream.unreported) == [(5, 8)]
    stream.grant(grant(0, handed_out=8, reported=3))
    assert stream.reported == 5
    stream.grant(grant(0, handed_out=8, reported=9))
    assert (stream.reported, list(stream.unreported)) == (8, [])
    assert not stream.has_lost(RangeSet())


def test_no_client_is_sent_more_than_a_client_holds() -> None:
    """The elements in flight to a client are bounded whatever it grants itself, and the
    bound moves as it hands out.
    """
    stream, half = Stream("client"), MOST_BYTES_OUT // 2
    stream.grant(grant(1 << 53, 1 << 53))
    stream.give(portion(0, 1, half))
    assert stream.has_credit(portion(1, 1, half))
    stream.give(portion(1, 1, half))
    assert not stream.has_credit(portion(2, 1, 1))
    stream.grant(grant(0, 0, handed_out=1))
    assert stream.has_credit(portion(2, 1, half))
    assert not stream.has_credit(portion(2, 1, half + 1))
    stream.grant(grant(0, 0, handed_out=2))
    assert stream.has_credit(portion(2, 1, 4 * MOST_BYTES_OUT))
