"""Test the window of a stream."""

from __future__ import annotations

import pytest

from zmqdata.core.credit import (
    FIRST_BYTES,
    FIRST_ELEMENTS,
    LEAST_BYTES,
    MOST_BYTES,
    MOST_ELEMENTS,
    BlockEnds,
    CreditWindow,
)
from zmqdata.core.worker.streams import Portion, Stream
from zmqdata.messages import StreamGrant


def test_a_grant_lies_a_window_ahead_of_what_was_handed_out() -> None:
    """A grant counts from the beginning of the stream and moves with each taken
    element.
    """
    window = CreditWindow()
    assert window.grant == (FIRST_ELEMENTS, FIRST_BYTES)
    window.receive(3, 100)
    window.hand_out(3)
    assert window.grant == (3 + FIRST_ELEMENTS, 100 + FIRST_BYTES)


def test_waiting_widens_the_window_within_bounds() -> None:
    """The window doubles until its bounds, which are a share of the client's memory."""
    alone, one_of_many = CreditWindow(), CreditWindow()
    for _ in range(40):
        alone.widen(1)
        one_of_many.widen(1000)
    assert (alone.elements, alone.bytes) == (MOST_ELEMENTS, MOST_BYTES)
    assert one_of_many.bytes == LEAST_BYTES


def test_who_waits_is_let_have_two_blocks_on_their_way() -> None:
    """The window holds at least two blocks once the training loop has waited again,
    however small it was.
    """
    window = CreditWindow()
    window.tell()
    window.receive(16_384, 2 << 20)
    window.hand_out(16_384)
    window.widen(1)
    window.tell()
    assert window.admits(16_384, 2 << 20)
    window.receive(16_384, 2 << 20)
    assert window.admits(16_384, 2 << 20)


def test_a_limit_holds_whatever_the_window() -> None:
    """``max_outstanding_requests`` bounds elements for good."""
    window = CreditWindow(limit=2)
    window.widen(1)
    assert window.grant[0] == 2


def test_a_grant_is_worth_telling_when_a_quarter_has_moved() -> None:
    """The client sends a grant when a quarter of the window has moved, and leaves small
    changes to the next repetition.
    """
    window = CreditWindow()
    window.tell()
    window.receive(1, 10)
    window.receive(1, 10)
    window.hand_out(1)
    assert not window.worth_telling
    window.hand_out(1)
    assert window.worth_telling
    assert window.tell() == window.grant
    assert not window.worth_telling


def test_what_was_told_is_never_taken_back() -> None:
    """A window that shrinks because more streams share the memory does not withdraw its
    last grant.
    """
    window = CreditWindow()
    for _ in range(40):
        window.widen(1)
    told = window.tell()
    window.widen(1000)
    assert window.grant < told
    assert window.tell() == told


def test_a_block_is_admitted_within_what_was_told() -> None:
    """Elements and bytes count from the beginning of the stream, against the grant that
    the worker knows.
    """
    window = CreditWindow()
    assert not window.admits(1, 1)
    window.tell()
    assert window.admits(FIRST_ELEMENTS, FIRST_BYTES)
    window.receive(1, 1)
    assert window.admits(FIRST_ELEMENTS - 1, FIRST_BYTES - 1)
    assert not window.admits(FIRST_ELEMENTS, 1)
    assert not window.admits(1, FIRST_BYTES)
    assert not window.admits(1, -1)


def test_one_block_of_any_size_is_admitted_while_nothing_waits() -> None:
    """A stream without waiting elements may bring a single block larger than its
    window, but not a second.
    """
    window = CreditWindow()
    window.tell()
    assert window.admits(1000, 100 * FIRST_BYTES)
    window.receive(1000, 100 * FIRST_BYTES)
    assert not window.admits(1, 1)
    window.hand_out(1000)
    assert not window.admits(1, 1)
    window.tell()
    assert window.admits(1000, 1)


def test_a_new_stream_counts_from_its_own_beginning() -> None:
    """A renewed stream keeps the width of its window, with nothing handed out or
    reported.
    """
    window = CreditWindow(limit=100)
    window.widen(1)
    window.receive(5, 50)
    window.hand_out(5)
    assert window.ends.handed_bytes == 50
    renewed = window.renewed()
    assert (renewed.elements, renewed.bytes, renewed.limit) == (window.elements, window.bytes, 100)
    assert (renewed.handed_out, renewed.ends.handed_bytes, renewed.reported) == (0, 0, 0)
    assert (
        renewed.received,
        renewed.received_bytes,
        renewed.granted_elements,
        renewed.granted_bytes,
    ) == (0, 0, 0, 0)


# --- giving back


def test_a_block_is_charged_until_its_last_element_is_handed_out() -> None:
    """The bytes of a block count as handed out with its last element."""
    ends = BlockEnds()
    ends.add(3, 100)
    ends.add(5, 150)
    ends.hand_out(4)
    assert ends.handed_bytes == 100
    ends.hand_out(5)
    assert ends.handed_bytes == 150


@pytest.mark.parametrize(
    ("kept", "size"), [(0, 0), (1, 100), (3, 100), (4, 150), (5, 150), (8, 190), (9, 190)]
)
def test_what_is_left_after_a_cut_is_charged_in_full(kept: int, size: int) -> None:
    """A cut removes blocks of which nothing is left, and the rest of the others is
    charged like a whole block.
    """
    ends = BlockEnds()
    for elements, total in ((3, 100), (5, 150), (9, 190)):
        ends.add(elements, total)
    assert ends.cut(kept) == size
    ends.hand_out(kept)
    assert ends.handed_bytes == size


def test_both_ends_of_a_stream_count_alike_after_a_cut() -> None:
    """Worker and client charge the same bytes, wherever a stream is cut, and however
    much was handed out before.
    """
    for handed_out in range(10):
        for kept in range(handed_out, 10):
            window, stream = CreditWindow(), Stream("k")
            window.tell()
            stream.grant(StreamGrant(1, 1, 100, 1 << 20, 0), 0.0)
            for first, count in ((0, 4), (4, 1), (5, 5)):
                window.receive(count, 10 * count)
                stream.give(Portion(first, count, 10 * count, b"", (), b""))
            stream.ask_back(0.0)
            window.hand_out(handed_out)
            window.give_back(1, 10 - kept)
            window.tell()
            stream.grant(StreamGrant(1, 1, 99, 99, handed_out, recall=1, kept=kept), 0.0)
            assert (stream.sent, stream.sent_bytes) == (window.received, window.received_bytes)
            assert stream.ends.handed_bytes == window.ends.handed_bytes


def test_grants_begin_anew_when_elements_were_given_back() -> None:
    """Grants from before count no more, because they would let a worker send elements
    beyond the window.
    """
    window = CreditWindow(elements=4)
    window.tell()
    window.receive(4, 40)
    window.give_back(1, 3)
    assert (window.received, window.received_bytes, window.kept) == (1, 40, 1)
    assert not window.admits(1, 1)
    assert window.tell() == (4, FIRST_BYTES)


def test_a_grant_grows_by_no_more_than_is_allowed() -> None:
    """A grant grows at most by what a limit of all streams leaves."""
    window = CreditWindow()
    assert (window.tell(1)[0], window.outstanding) == (1, 1)
    assert (window.tell(0)[0], window.outstanding) == (1, 1)
    window.receive(1, 10)
    window.hand_out(1)
    assert (window.outstanding, window.tell(2)[0]) == (0, 3)
