"""Tests of ``zmqdata.core.worker.cross_trainer``."""

from __future__ import annotations

from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.cross_trainer import Windowed, fitting
from zmqdata.core.worker.events import Produced
from zmqdata.core.worker.streams import Portion, Stream, occupied
from zmqdata.errors import InvalidArgumentError
from zmqdata.failures.codec import decode_failure
from zmqdata.messages import Reader, StreamGrant


class Room:
    """A window and the streams that read it."""

    def __init__(self, size: int = 1000) -> None:
        self.window = Windowed(size)
        self.made = 0

    def make(self, *counts: int) -> None:
        for count in counts:
            self.window.add(Portion(self.made, count, 10 * count, b"", (), b""))
            self.made += count

    def join(self, client: str, trainer_id: str, elements: int = 1000) -> Stream:
        stream = self.window.join(client, Reader(trainer_id=trainer_id))
        self.grant(stream, elements)
        return stream

    def grant(self, stream: Stream, elements: int, handed_out: int = 0) -> None:
        stream.grant(StreamGrant(1, 1, elements, 1 << 20, handed_out), 0.0)

    def deal(self) -> dict[str, list[int]]:
        """Return the numbers of the elements that each client gets now."""
        got: dict[str, list[int]] = {}
        for stream, one in self.window.deal(lambda stream: stream.open):
            got.setdefault(stream.client, []).extend(
                range(one.first + one.skip, one.first + one.count)
            )
        return got


def test_every_reader_gets_everything() -> None:
    """Two trainers read the same elements, each once."""
    room = Room()
    room.join("k", "first"), room.join("l", "second")
    room.make(2, 3)
    assert room.deal() == {"k": [0, 1, 2, 3, 4], "l": [0, 1, 2, 3, 4]}
    assert room.deal() == {}


def test_readers_with_one_id_share() -> None:
    """Clients with equal trainer ids share a position, so each block goes to a single
    client.
    """
    room = Room()
    room.join("k", "same"), room.join("l", "same")
    room.make(1, 1, 1, 1)
    got = room.deal()
    assert sorted(got["k"] + got["l"]) == [0, 1, 2, 3]
    assert len(got["k"]) == len(got["l"]) == 2


def test_a_newcomer_begins_where_the_window_does() -> None:
    """A new trainer begins at the window's start and does not count older elements as
    skipped.
    """
    room = Room(size=40)
    room.join("k", "first")
    room.make(2, 2)
    room.deal()
    room.make(2)
    room.join("l", "second")
    assert room.deal() == {"k": [4, 5], "l": [2, 3, 4, 5]}
    assert room.window.skipped == {}


def test_a_slow_reader_skips_ahead() -> None:
    """Elements that leave the window before a slow trainer has read them count as
    skipped.
    """
    room = Room(size=40)
    room.join("k", "fast")
    slow = room.join("l", "slow", elements=1)
    room.make(1)
    assert room.deal() == {"k": [0], "l": [0]}
    room.make(2, 2, 2)
    assert room.deal() == {"k": [3, 4, 5, 6]}
    room.grant(slow, 100, handed_out=1)
    assert room.deal() == {"l": [3, 4, 5, 6]}
    assert room.window.skipped == {"fast": 2, "slow": 2}


def test_only_the_fastest_has_more_made() -> None:
    """Only elements beyond the fastest trainer count as ahead, whatever other trainers
    have yet to read.
    """
    room = Room()
    fast = room.join("k", "fast", elements=2)
    room.join("l", "slow", elements=0)
    room.make(2, 2)
    assert room.window.ahead == 2 * occupied(20)
    room.deal()
    assert room.window.ahead == occupied(20)
    assert not room.window.has_all(fast)
    room.grant(fast, 4, handed_out=2)
    assert room.deal() == {"k": [2, 3]}
    assert room.window.has_all(fast)
    assert room.window.ahead == 0


def test_an_empty_window_has_nothing() -> None:
    """An empty window gives no elements, and each trainer has read all of it."""
    room = Room()
    stream = room.join("k", "first")
    assert (room.deal(), room.window.has_all(stream), room.window.ahead) == ({}, True, 0)


def test_what_a_reader_left_goes_to_the_next_with_its_id() -> None:
    """The next client with the same trainer id first gets the elements that its
    predecessor left.
    """
    room = Room()
    left = room.join("k", "first")
    room.make(2, 2)
    room.deal()
    room.grant(left, 100, handed_out=1)
    assert room.window.release("k", RangeSet([(0, 4)]))
    assert room.window.release("nobody", RangeSet())
    room.make(1)
    late = room.join("l", "first")
    assert not room.window.has_all(late)
    assert room.deal() == {"l": [1, 2, 3, 4]}


def test_one_block_always_fits() -> None:
    """A block larger than the window is kept until the next block comes."""
    room = Room(size=5)
    room.join("k", "first")
    room.make(3)
    assert room.deal() == {"k": [0, 1, 2]}
    room.make(2)
    assert len(room.window.blocks) == 1


def test_the_error_of_a_large_element_takes_no_others_place() -> None:
    """The error for a large element counts with its own bytes, so it displaces no other
    element.
    """
    room = Room(size=100)
    room.make(2)
    room.window.add(Portion(2, 1, 5000, b"", (), b"error"))
    room.made = 3
    room.make(2)
    room.join("k", "first")
    assert room.deal() == {"k": [0, 1, 2, 3, 4]}


def test_an_element_larger_than_the_window_becomes_an_error() -> None:
    """The error replaces only an element larger than the whole window; smaller elements
    and blocks stay.
    """
    large = Produced(1, 1, 7, 1, 100, b"meta", ("frames",))
    error = decode_failure(fitting(large, 99, "tcp://worker").failure)
    assert isinstance(error, InvalidArgumentError)
    assert "An element of 100 bytes is larger than the cross-trainer cache of 99 bytes" in str(
        error
    )
    assert fitting(large, 99, "").size == 100
    assert fitting(large, 100, "") is large
    assert fitting(Produced(1, 1, 7, 2, 100, b"", ()), 99, "").failure == b""
