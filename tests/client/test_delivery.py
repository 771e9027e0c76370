"""Test the queue between an iterator's thread and the training loop."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

from zmqdata import messages as m
from zmqdata.client.delivery import LONGEST_STEP, Delivery, DeliveryQueue, End, Strides
from zmqdata.core.client.events import Deliver, Finish, TakenElements
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    PipelineError,
    UnavailableError,
)
from zmqdata.failures.codec import encode_failure
from zmqdata.messages import Block


def block(task: int, first: int, count: int) -> Block:
    return Block(1, task, 1, first, count, 0, 100)


def test_a_part_of_a_block_returns_no_credit() -> None:
    """The credit of a block returns with its last element, wherever that is
    delivered.
    """
    part = Delivery((Deliver(block(7, 10, 5), None, 1, 3),), [[1, 2]])
    rest = Delivery((Deliver(block(7, 10, 5), None, 3, 5),), [[3, 4]])
    assert (part.returns_credit, rest.returns_credit) == (False, True)
    assert part.report_all() == [TakenElements(7, 1, 11, 13, 0)]
    assert rest.report_all() == [TakenElements(7, 1, 13, 15, 100)]


def test_what_was_taken_is_told_once() -> None:
    """Reports are increments, so taken elements are reported once."""
    delivery = Delivery((Deliver(block(7, 10, 5), None, 0, 5),), [[1, 2, 3, 4, 5]])
    assert list(islice(delivery.elements, 2)) == [1, 2]
    assert (delivery.left, delivery.report_taken()) == (3, [TakenElements(7, 1, 10, 12, 0)])
    assert delivery.report_taken() == []
    assert delivery.report_all() == [TakenElements(7, 1, 12, 15, 100)]


def test_parts_of_several_blocks_are_woven() -> None:
    """A weave takes an element of each block in turn, and reports the taken elements of
    each block separately.
    """
    parts = (Deliver(block(7, 10, 3), None, 1, 3), Deliver(block(8, 0, 9), None, 4, 6))
    delivery = Delivery(parts, [["a", "b"], ["x", "y"]])
    assert list(islice(delivery.elements, 3)) == ["a", "x", "b"]
    assert delivery.report_taken() == [TakenElements(7, 1, 11, 13, 0), TakenElements(8, 1, 4, 5, 0)]
    assert list(delivery.elements) == ["y"]
    assert delivery.report_all() == [TakenElements(7, 1, 13, 13, 100), TakenElements(8, 1, 5, 6, 0)]


def test_the_error_of_an_element_is_raised_once() -> None:
    """A delivery raises its error once and drops it, as its traceback would keep the
    iterator alive.
    """
    error = UnavailableError("gone")
    failed = Delivery((Deliver(block(7, 0, 1), error, 0, 1),), [[None]], error)
    assert (failed.take_failure(), failed.take_failure(), failed.left) == (error, None, 0)


@pytest.mark.parametrize(
    ("finish", "kind", "text"),
    [
        (Finish("FailedPreconditionError", "why"), FailedPreconditionError, "why"),
        (Finish("OfAnotherVersion", "why"), DataServiceError, "why"),
        (
            Finish("PipelineError", "short", encode_failure(KeyError("x"), 0, "w")),
            PipelineError,
            "KeyError: 'x'",
        ),
        (Finish("FailedPreconditionError", "why", b"nonsense"), FailedPreconditionError, "why"),
    ],
)
def test_the_error_of_an_end(finish: Finish, kind: type[Exception], text: str) -> None:
    """A pipeline's failure is raised with all its details, or by name and text if its
    bytes are unreadable.
    """
    error = End(finish).error()
    assert type(error) is kind
    assert error.final
    assert text in str(error)


def test_an_end_makes_its_error_anew() -> None:
    """An end without an error has not failed, and the error of a failed end is a new
    object each time.
    """
    assert not End(Finish()).has_failed
    end = End(Finish("DataLossError", "why"))
    assert end.has_failed
    assert end.error() is not end.error()


HEADER = m.Block(1, 2, 3, first=10, count=4, skip=0, size=99)


def delivery() -> Delivery:
    return Delivery((Deliver(HEADER, None, 0, 4),), [[1, 2, 3, 4]])


class Lease:
    """A lease that holds on demand."""

    holds = True

    def __call__(self) -> bool:
        return self.holds


def test_blocks_wait_for_the_lease() -> None:
    """Without a lease the queue hands out only the end."""
    lease = Lease()
    queue = DeliveryQueue(lease)
    block, end = delivery(), End(Finish())
    queue.put(block)
    queue.put(end)
    assert queue.first() is block
    lease.holds = False
    assert queue.first() is None
    assert queue.being_read() is block
    queue.remove(block)
    assert queue.first() is end
    assert queue.being_read() is None


def test_a_block_without_elements_does_not_hide_the_end() -> None:
    """A loop whose lease is over gets past a block of which it took everything."""
    lease = Lease()
    queue = DeliveryQueue(lease)
    block, end = delivery(), End(Finish())
    queue.put(block)
    queue.put(end)
    lease.holds = False
    assert queue.first() is None
    list(block.elements)
    assert queue.first() is block
    queue.remove(block)
    assert queue.first() is end


def test_an_empty_queue_has_no_first() -> None:
    """The first block may be requested at any time, and only that block can be
    removed.
    """
    queue = DeliveryQueue(Lease())
    assert not queue
    assert queue.first() is None
    queue.remove(delivery())
    queue.put(delivery())
    queue.remove(delivery())
    assert queue


def test_dropped_blocks_are_marked() -> None:
    """Dropping marks blocks that the loop still holds as not to be reported, and the
    end stays.
    """
    queue = DeliveryQueue(Lease())
    block, end = delivery(), End(Finish())
    queue.put(block)
    queue.put(end)
    queue.drop()
    assert block.dropped
    assert queue.first() is end


def test_a_waiting_loop_is_woken_by_what_it_may_hand_out() -> None:
    """A block without a lease does not wake a waiting loop; the renewed lease does."""
    lease = Lease()
    lease.holds = False
    queue = DeliveryQueue(lease)
    waiting = threading.Thread(target=lambda: queue.wait(30.0))
    waiting.start()
    queue.put(delivery())
    waiting.join(0.05)
    assert waiting.is_alive()
    lease.holds = True
    while waiting.is_alive():
        queue.tell()
        waiting.join(0.01)


def test_strides_grow_in_fast_loops_and_not_in_slow_ones() -> None:
    """A loop that takes a stride at once gets a longer stride up to a limit, and a
    closed stride has no elements left.
    """
    strides = Strides()
    endless = iter(int, 1)
    sizes = [len(list(strides.begin(endless))) for _ in range(40)]
    assert sizes[0] == 1
    assert max(sizes) == LONGEST_STEP
    strides._since = -1e9
    assert len(list(strides.begin(endless))) == 1
    strides.begin(endless)
    strides.end()
    assert list(strides.elements) == []


# --- what the loop has not begun


def piece(first: int, count: int, task: int = 2, attempt: int = 3) -> Delivery:
    header = m.Block(1, task, attempt, first=0, count=9, skip=0, size=99)
    elements = list(range(first, first + count))
    return Delivery((Deliver(header, None, first, first + count),), [iter(elements)])


def filled(*pieces: Delivery) -> DeliveryQueue:
    queue = DeliveryQueue(lambda: True)
    for one in pieces:
        queue.put(one)
    return queue


def test_the_last_pieces_are_dropped_as_a_whole() -> None:
    """Pieces are dropped from the end while they fit the number that was asked for."""
    queue = filled(piece(0, 2), piece(2, 3), piece(5, 2), piece(7, 2))
    assert queue.drop_unbegun(2, 3, 6) == [(7, 9), (5, 7)]
    assert queue.drop_unbegun(2, 3, 2) == []
    assert queue.drop_unbegun(2, 3, 99) == [(2, 5), (0, 2)]
    assert not queue


def test_what_others_sent_stays() -> None:
    """Elements of other tasks and attempts are not dropped."""
    queue = filled(piece(0, 2), piece(2, 2, task=9), piece(4, 2, attempt=2), piece(6, 2))
    queue.put(End(Finish()))
    assert queue.drop_unbegun(2, 3, 99) == [(6, 8), (0, 2)]
    first = queue.first()
    assert isinstance(first, Delivery)
    assert first.is_of(9, 3)


def test_a_piece_that_the_loop_has_begun_is_not_dropped() -> None:
    """Whoever claims a piece first has it, and keeps it after an interrupt."""
    queue = filled(piece(0, 2), piece(2, 2))
    first = queue.first()
    assert isinstance(first, Delivery)
    assert queue.begin(first, place=5)
    assert queue.begin(first, place=7)
    assert (first.place, first.behind) == (5, 7)
    assert queue.drop_unbegun(2, 3, 99) == [(2, 4)]


def test_a_dropped_piece_is_never_begun() -> None:
    """A loop that was about to begin a piece looks again if it was dropped
    meanwhile.
    """
    queue = filled(piece(0, 2))
    first = queue.first()
    assert isinstance(first, Delivery)
    assert queue.drop_unbegun(2, 3, 99) == [(0, 2)]
    assert not queue.begin(first, place=0)
    assert queue.first() is None


def test_each_element_is_read_or_dropped_whoever_is_faster() -> None:
    """While a loop reads as fast as it can, another thread drops pieces: each element
    is read or dropped, and never both.
    """
    for turn in range(200):
        pieces = [piece(at, 1) for at in range(9)]
        queue, read = filled(*pieces), []

        def loop(queue: DeliveryQueue = queue, read: list[int] = read) -> None:
            while queue:
                first = queue.first()
                if isinstance(first, Delivery) and queue.begin(first, 0):
                    read.extend(first.elements)
                    queue.remove(first)

        reading = threading.Thread(target=loop)
        reading.start()
        dropped = []
        while queue:
            dropped += [first for first, _ in queue.drop_unbegun(2, 3, 1 + turn % 3)]
        reading.join()
        assert sorted(read + dropped) == list(range(9))
