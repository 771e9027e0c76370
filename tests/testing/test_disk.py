"""Facts about the disk of simulated dispatchers."""

from __future__ import annotations

from zmqdata.messages import TaskState
from zmqdata.testing.clock import Clock
from zmqdata.testing.disk import SimulatedDisk
from zmqdata.updates import CloseTaskListUpdate, TakeStateUpdate, Update


def test_a_crash_tells_what_of_the_last_writes_is_read_again() -> None:
    """Wherever they were cut off; also where the zeros behind the cut complete a record."""
    outcomes = set()
    for seed in range(300):
        disk = SimulatedDisk(Clock(), seed)
        disk.begin([CloseTaskListUpdate(1)])
        updates: list[Update] = [CloseTaskListUpdate(2), TakeStateUpdate(3, TaskState(4, b"state", (0,)))]
        for turn, update in enumerate(updates):
            disk.write(turn, [update], lambda turn: None)
        whole, told = len(disk.content) + sum(len(one) for _, one in (*disk._writing, *disk._waiting)), disk.crash()
        read: list[Update] = []
        assert disk.read(read.append)
        assert len(read) == 1 + told
        outcomes.add((told, len(disk.content) >= whole))
    assert outcomes == {(0, False), (0, True), (1, False), (1, True), (2, True)}
