"""Test the window of a stream."""

from __future__ import annotations

from zmqdata.core.credit import (
    FIRST_BYTES,
    FIRST_ELEMENTS,
    LEAST_BYTES,
    MOST_BYTES,
    MOST_ELEMENTS,
    CreditWindow,
)


def test_a_grant_lies_a_window_ahead_of_what_was_handed_out() -> None:
    """A grant counts from the beginning of the stream and moves with each taken
    element.
    """
    window = CreditWindow()
    assert window.grant == (FIRST_ELEMENTS, FIRST_BYTES)
    window.hand_out(3, 100)
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
    window.hand_out(16_384, 2 << 20)
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
    window.hand_out(1, 10)
    assert not window.worth_telling
    window.hand_out(1, 10)
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
    window.hand_out(1000, 100 * FIRST_BYTES)
    assert not window.admits(1, 1)
    window.tell()
    assert window.admits(1000, 1)


def test_a_new_stream_counts_from_its_own_beginning() -> None:
    """A renewed stream keeps the width of its window, with nothing handed out or
    reported.
    """
    window = CreditWindow(limit=100)
    window.widen(1)
    window.hand_out(5, 50)
    renewed = window.renewed()
    assert (renewed.elements, renewed.bytes, renewed.limit) == (window.elements, window.bytes, 100)
    assert (renewed.handed_out, renewed.handed_bytes, renewed.reported) == (0, 0, 0)
    assert (
        renewed.received,
        renewed.received_bytes,
        renewed.told_elements,
        renewed.told_bytes,
    ) == (0, 0, 0, 0)
