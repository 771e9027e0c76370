"""Facts about the disk of simulated dispatchers."""

from __future__ import annotations

import contextlib

import pytest

from tests.kit.runner import SimulatedPipeline
from tests.kit.world import World
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.errors import DataLossError
from zmqdata.journal import read_journal
from zmqdata.messages import TaskState
from zmqdata.testing.clock import Clock
from zmqdata.testing.disk import SimulatedDisk
from zmqdata.updates import CloseTaskListUpdate, TakeStateUpdate, Update


def test_a_crash_tells_what_of_the_last_writes_is_read_again() -> None:
    """The disk reports how many of the last writes the next dispatcher reads after a
    crash at any byte, even if zeros complete a record.
    """
    outcomes = set()
    for seed in range(300):
        disk = SimulatedDisk(Clock(), seed)
        disk.begin([CloseTaskListUpdate(1)])
        updates: list[Update] = [
            CloseTaskListUpdate(2),
            TakeStateUpdate(3, TaskState(4, b"state", (0,))),
        ]
        for turn, update in enumerate(updates):
            disk.write(turn, [update], lambda turn: None)
        whole, told = (
            len(disk.content) + sum(len(one) for _, one in (*disk._writing, *disk._waiting)),
            disk.crash(),
        )
        read: list[Update] = []
        assert disk.read(read.append)
        assert len(read) == 1 + told
        outcomes.add((told, len(disk.content) >= whole))
    assert outcomes == {(0, False), (0, True), (1, False), (1, True), (2, True)}


@pytest.fixture(scope="module")
def recorded() -> bytes:
    """The journal of a run: the worker of a job with two clients dies, and its tasks
    continue elsewhere.
    """
    world = World(seed=1, pipeline=SimulatedPipeline(splits=16), journalled=True)
    first, _ = world.add_worker(), world.add_worker()
    clients = [world.add_client() for _ in range(2)]
    world.run_until(lambda: sum(client.taken for client in clients) > 6)
    first.die()
    world.run_until(lambda: world.all_done)
    assert world.disk is not None
    return world.disk.content


def replayed(content: bytes) -> list[Update]:
    """Return the updates that the journal has, after a dispatcher's state has applied
    each of them.
    """
    state, found = DispatcherState(), list[Update]()

    def apply(update: Update) -> None:
        state.apply(update)
        found.append(update)

    read_journal(content, "journal", apply)
    return found


def test_a_recorded_run_cut_anywhere_is_a_prefix(recorded: bytes) -> None:
    """A journal cut at any byte has whole turns of the run, or is an error while the
    first snapshot is incomplete.
    """
    whole, lengths = replayed(recorded), set[int]()
    for cut in range(len(recorded)):
        with contextlib.suppress(DataLossError):
            found = replayed(recorded[:cut])
            assert found == whole[: len(found)]
            lengths.add(len(found))
    assert len(lengths) > 20


def test_a_recorded_run_with_a_flipped_bit_is_not_believed(recorded: bytes) -> None:
    """A flipped bit in any byte is an error, or in the last turn reads as a cut."""
    whole, errors = replayed(recorded), 0
    for at in range(len(recorded)):
        broken = bytearray(recorded)
        broken[at] ^= 1 << at % 8
        try:
            found = replayed(bytes(broken))
        except DataLossError:
            errors += 1
        else:
            assert found == whole[: len(found)] != whole
    assert errors > len(recorded) * 9 // 10
