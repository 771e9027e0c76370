"""Tests of the memory that a worker shares with a client."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.kit.forks import told_by_child
from zmqdata.blocks import Gathered
from zmqdata.config.worker import LEAST_SHARED_MEMORY
from zmqdata.errors import ProtocolError
from zmqdata.messages import Memory, Slot
from zmqdata.testing.cluster import no_leaks
from zmqdata.transport import memory
from zmqdata.transport.memory import HEAD_BYTES, PLACE_FROM, MappedMemory, SharedMemory
from zmqdata.transport.slots import MOST_SLOTS, PAGE

SIZE = 64 * PAGE
LARGE = 16 * PAGE


def frame(value: int, nbytes: int = LARGE) -> memoryview:
    return memoryview(np.full(nbytes, value, np.uint8))


@pytest.fixture
def shared() -> Iterator[SharedMemory]:
    made = SharedMemory(SIZE)
    yield made
    made.close()


@pytest.fixture
def ends(shared: SharedMemory) -> tuple[SharedMemory, MappedMemory]:
    return shared, MappedMemory(shared.told)


def placed(ends: tuple[SharedMemory, MappedMemory], *frames: Any) -> Any:
    """Return the client's view of frames that the worker placed in a slot."""
    slot = ends[0].place(frames)
    return None if slot is None else ends[1].take(slot)


def test_the_least_that_may_be_configured_is_of_use() -> None:
    """The smallest valid memory can be mapped and holds the smallest placed frame."""
    shared = SharedMemory(LEAST_SHARED_MEMORY)
    try:
        found = placed((shared, MappedMemory(shared.told)), frame(7, PLACE_FROM))
        assert (found == 7).all()
    finally:
        shared.close()


def test_what_is_placed_is_read(ends: tuple[SharedMemory, MappedMemory]) -> None:
    """Large frames, also gathered ones, are placed at multiples of 64; small ones are
    not.
    """
    pieces = [frame(2, PLACE_FROM - 1), frame(3, 9)]
    slot = ends[0].place([frame(1, PLACE_FROM + 1), frame(9, PLACE_FROM - 1), Gathered(pieces)])
    assert slot is not None
    assert slot.sizes == (PLACE_FROM + 1, -1, PLACE_FROM + 8)
    found = ends[1].take(slot)
    second = PLACE_FROM + 64
    assert (found[: PLACE_FROM + 1] == 1).all()
    assert found[second : second + PLACE_FROM + 8].tolist() == [2] * (PLACE_FROM - 1) + [3] * 9
    assert found.ctypes.data % 64 == 0
    assert found.flags.writeable


def test_small_frames_take_no_slot(ends: tuple[SharedMemory, MappedMemory]) -> None:
    """A block without a large frame takes no slot and is sent as usual."""
    assert placed(ends, frame(1, PLACE_FROM - 1), b"") is None
    assert ends[0].full == 0


def test_small_values_that_were_joined_take_no_slot(
    ends: tuple[SharedMemory, MappedMemory],
) -> None:
    """Small joined values take no slot, as the client copies them anyway. A large frame
    beside them is placed.
    """
    joined = memoryview(b"".join([bytes(1024)] * (LARGE // 1024)))
    assert placed(ends, joined) is None
    assert placed(ends, joined, frame(3)).nbytes == LARGE


def test_a_slot_is_used_again_after_its_last_view(ends: tuple[SharedMemory, MappedMemory]) -> None:
    """A slot's bytes stay while a view lives, and the slot is reused after its release.
    A full memory places nothing.
    """
    held = [placed(ends, frame(value)) for value in range(4)]
    assert placed(ends, frame(9)) is None
    assert ends[0].full == 1
    view, address = held[1][5:6], held[1].ctypes.data
    held[1] = None
    assert placed(ends, frame(9)) is None
    assert view[0] == 1
    del view
    again = placed(ends, frame(7))
    assert again.ctypes.data == address
    assert (again == 7).all()
    assert [int(one[0]) for one in (held[0], held[2], held[3])] == [0, 2, 3]


def test_memory_is_taken_as_it_is_needed(ends: tuple[SharedMemory, MappedMemory]) -> None:
    """The system allocates as many bytes as were in use at the same time."""
    assert ends[0].nbytes == HEAD_BYTES
    for value in range(20):
        assert placed(ends, frame(value)) is not None
    assert ends[0].nbytes == HEAD_BYTES + LARGE


def test_views_outlive_both_ends() -> None:
    """Arrays outlive both ends, and the memory is freed with the last array."""
    with no_leaks():
        shared = SharedMemory(SIZE)
        mapped = MappedMemory(shared.told)
        view = placed((shared, mapped), frame(5))
        shared.close()
        del shared, mapped
        gc.collect()
        assert (view == 5).all()
        view[:] = 6
        del view


# --- hostile workers


@pytest.mark.parametrize(
    "change",
    [
        {"start": -PAGE},
        {"start": 64},
        {"start": SIZE},
        {"start": SIZE - PAGE},
        {"start": 1 << 62},
        {"sizes": ()},
        {"sizes": (-1, -1)},
        {"sizes": (SIZE + 1,)},
        {"sizes": (1 << 62, 1 << 62)},
        {"number": -1},
        {"number": MOST_SLOTS},
        {"turn": 0},
        {"turn": -5},
    ],
)
def test_a_slot_lies_within_the_memory(
    ends: tuple[SharedMemory, MappedMemory], change: dict[str, Any]
) -> None:
    """A slot outside the memory or the slot table is rejected before it is read."""
    slot = ends[0].place([frame(1)])
    assert slot is not None
    with pytest.raises(ProtocolError, match="is not within"):
        ends[1].take(structs.replace(slot, **change))


def test_a_slot_is_sent_once(ends: tuple[SharedMemory, MappedMemory]) -> None:
    """A slot held in the same turn is rejected, as it would be released twice."""
    slot = ends[0].place([frame(1)])
    assert slot is not None
    first = ends[1].take(slot)
    with pytest.raises(ProtocolError, match="sent twice"):
        ends[1].take(slot)
    assert first[0] == 1


def test_a_memory_is_what_the_worker_says(shared: SharedMemory) -> None:
    """The client rejects a wrong size, number, token or file type, and an unsealed
    size.
    """
    told = shared.told
    for change in (
        {"size": told.size + PAGE},
        {"inode": told.inode + 1},
        {"token": bytes(16)},
        {"size": 0},
    ):
        with pytest.raises(ProtocolError):
            MappedMemory(structs.replace(told, **change))
    unsealed = os.memfd_create("zmqdata-link", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, told.size)
    named = Memory(os.getpid(), unsealed, os.fstat(unsealed).st_ino, told.size, bytes(16))
    with pytest.raises(ProtocolError, match="seals"):
        MappedMemory(named)
    os.close(unsealed)
    with (
        Path("/dev/null").open("rb") as null,
        pytest.raises(ProtocolError, match="belongs to something else"),
    ):
        MappedMemory(structs.replace(told, descriptor=null.fileno()))
    with pytest.raises(OSError, match="No such file"):
        MappedMemory(structs.replace(told, descriptor=10**6))


def test_what_is_refused_leaves_nothing_open(shared: SharedMemory) -> None:
    """A rejected memory is closed."""
    with no_leaks(), pytest.raises(ProtocolError):
        MappedMemory(structs.replace(shared.told, token=bytes(16)))


# --- unavailable memory


def limited(limit: int) -> SharedMemory:
    """Return the memory of a worker whose files are limited to ``limit`` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    return SharedMemory(SIZE)


def test_a_worker_does_without_what_it_cannot_have() -> None:
    """A refused allocation is an error at the request, not a signal at the write."""
    assert "File too large" in told_by_child(lambda: limited(PAGE))


def test_half_of_the_memory_is_used_when_the_rest_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a partial refusal the worker uses the granted memory and never asks for
    more. It logs a single warning.
    """
    shared = SharedMemory(SIZE)
    shared._descriptor, memfd = os.open("/dev/null", os.O_RDWR), shared._descriptor
    assert [shared.place([frame(1)]) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
    assert "shared memory for a client of this host ends" in caplog.text
    os.close(memfd)
    shared.close()


# --- forks


def test_a_fork_parts_what_is_on_loan(ends: tuple[SharedMemory, MappedMemory]) -> None:
    """After a fork parent and child keep their slots' contents, whatever the other
    writes.
    """
    held = [placed(ends, frame(1)), placed(ends, frame(2))]
    to_child, from_parent = os.pipe()
    from_child, to_parent = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            held[0][:] = 77
            os.write(to_parent, b"w")
            os.read(to_child, 1)
            right = (held[0] == 77).all() and (held[1] == 2).all()
            held.clear()
            os.write(to_parent, b"1" if right else b"0")
        finally:
            os._exit(0)
    os.read(from_child, 1)
    assert (held[0] == 1).all()
    address = held[1].ctypes.data
    held[1] = None
    again = [placed(ends, frame(value)) for value in (3, 4, 5)]
    assert address in [one.ctypes.data for one in again]
    assert [int(one[0]) for one in again] == [3, 4, 5]
    os.write(from_parent, b"g")
    assert os.read(from_child, 1) == b"1"
    os.waitpid(child, 0)
    assert (held[0] == 1).all()
    assert placed(ends, frame(6)) is None  # the child has released nothing
    for end in (to_child, from_parent, from_child, to_parent):
        os.close(end)


def test_what_dies_while_the_process_forks_is_given_back_afterwards(
    ends: tuple[SharedMemory, MappedMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays that the garbage collector frees during a fork are released afterwards.
    Later blocks in their slots stay intact.
    """
    move = memory._move_to_private

    def move_and_collect(address: int, size: int) -> bool:
        gc.collect()
        return move(address, size)

    monkeypatch.setattr(memory, "_move_to_private", move_and_collect)
    held = placed(ends, frame(1))
    circle: list[Any] = [placed(ends, frame(2))]
    circle.append(circle)
    del circle
    told_by_child(lambda: 0)
    again = [placed(ends, frame(value)) for value in (3, 4)]
    assert [one.min() for one in again] == [one.max() for one in again] == [3, 4]
    assert (held == 1).all()


def test_a_child_may_fork_again(ends: tuple[SharedMemory, MappedMemory]) -> None:
    """Each child of a child also has copies of its own."""
    held = placed(ends, frame(1))
    assert told_by_child(lambda: told_by_child(lambda: int(held.sum()))) == str(LARGE)
    assert isinstance(ends[0].place([frame(2)]), Slot)
