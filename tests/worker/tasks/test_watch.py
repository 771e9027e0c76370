"""Facts about what one attempt of a task notes of its work."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata.splits import Split
from zmqdata.worker.processes.crumbs import CrumbFile, active
from zmqdata.worker.tasks import watch as module
from zmqdata.worker.tasks.watch import TURN, TaskWatch, WatchedProvider


def definition(**told: Any) -> m.TaskDefinition:
    return m.TaskDefinition(
        4000, 2, 2000, "dataset", "d" * 64, "DYNAMIC", 1, None, ((),), (), **told
    )


class Splits:
    """A provider of one split, which looks at the notes while it is asked."""

    def __init__(self, crumbs: CrumbFile) -> None:
        self.crumbs = crumbs
        self.left = [Split(0, 3, 5)]
        self.seen: list[bool] = []

    def next_split(self) -> Split | None:
        self.seen = [note.waiting for note in self.crumbs.notes()]
        return self.left.pop() if self.left else None

    def reset(self) -> None:
        self.left = [Split(1, 0, 1)]

    def state(self) -> Any:
        return "state"

    def restore(self, state: Any) -> None:
        self.left = state


def test_a_task_begins_with_the_opening() -> None:
    """From the first moment the task is noted, as being opened; at rest and at its end
    it is at nothing.
    """
    crumbs = CrumbFile()
    watch = TaskWatch(crumbs, definition(task_timeout=0.5))
    [note] = active(crumbs.notes())
    assert (note.key, note.number, note.timeout) == ((4000, 2), m.OPENING, 0.5)
    watch.rest()
    assert active(crumbs.notes()) == []
    watch.end()
    assert crumbs.notes() == []
    watch.cells[watch.at] = 7  # a thread that was left behind
    watch.wait(1)
    watch.begin(Split(0, 0, 1))
    assert crumbs.notes() == []


@pytest.mark.parametrize(
    ("seconds", "noted"), [(math.inf, 2**62), (1e306, 2**62), (1e-9, 1), (1.5, 1500)]
)
def test_any_time_is_a_limit(seconds: float, noted: int) -> None:
    """A limit is noted in milliseconds, at least one; infinity, and what becomes it in
    milliseconds, is the longest.
    """
    crumbs = CrumbFile()
    TaskWatch(crumbs, definition(task_timeout=seconds))
    [note] = active(crumbs.notes())
    assert note.timeout == noted / 1000


def test_calls_have_slots_of_their_own() -> None:
    """A node's slot is a note of its task, until it is closed."""
    crumbs = CrumbFile()
    watch = TaskWatch(crumbs, definition())
    slot = watch.open("/0", "map(f)", skippable=True)
    slot.cells[slot.at] = 9
    assert [(note.place, note.number, note.key) for note in active(crumbs.notes())] == [
        ("/0", 9, (4000, 2))
    ]
    watch.close(slot)
    assert [note.place for note in crumbs.notes()] == [""]


def test_places_are_found_by_node() -> None:
    """What the definition names is told to each node."""
    watch = TaskWatch(
        CrumbFile(), definition(poisoned=(("/0", 3), ("/0", 4)), suspects=(("/", 7),))
    )
    assert (watch.poisoned, watch.suspects) == ({"/0": {3, 4}}, {"/": {7}})


def test_splits_and_waits_are_noted() -> None:
    """While a source waits for splits the task does, and the last split that came is
    the one it is at.
    """
    crumbs = CrumbFile()
    watch = TaskWatch(crumbs, definition())
    splits = Splits(crumbs)
    provider = WatchedProvider(splits, watch)
    assert provider.next_split() == Split(0, 3, 5)
    assert splits.seen == [True]
    assert [(note.split, note.waiting) for note in crumbs.notes()] == [((3, 5), False)]
    assert provider.next_split() is None
    provider.reset()
    assert provider.next_split() == Split(1, 0, 1)
    assert provider.state() == "state"
    provider.restore([])
    assert provider.next_split() is None


def test_suspects_of_all_tasks_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two suspects of a process are called for at a time; one that is stuck is not
    waited for for ever.
    """
    one, other = TaskWatch(CrumbFile(), definition()), TaskWatch(CrumbFile(), definition())
    entered = threading.Event()

    def enter() -> None:
        with other.alone():
            entered.set()

    with one.alone():
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.05)
    assert entered.wait(5.0)
    thread.join()
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    with one.alone(), other.alone():
        assert TURN.owner is other
    assert TURN.owner is None


def test_an_abandoned_task_gives_its_turn_up() -> None:
    """A call of a task that was taken away may never end, and holds up no other task
    from then on.
    """
    one, other = TaskWatch(CrumbFile(), definition()), TaskWatch(CrumbFile(), definition())
    with one.alone():
        other.abandon()
        assert TURN.owner is one
        one.abandon()
        with other.alone():
            assert TURN.owner is other
    assert TURN.owner is None


def test_a_lack_of_memory_is_nothing_without_a_limit() -> None:
    """The user's exception is data; so is any other one where there is a limit."""
    crumbs = CrumbFile()
    watch = TaskWatch(crumbs, definition())
    watch.failed(MemoryError())
    crumbs.limit_memory(1 << 30)
    watch.failed(ValueError())
    assert crumbs.starved == 0
