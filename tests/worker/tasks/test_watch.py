"""Tests of what an attempt of a task notes about its work."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.definitions import define
from zmqdata import messages as m
from zmqdata.core.dispatcher.tasks.poison import LONGEST_CALL
from zmqdata.splits import Split
from zmqdata.worker.processes.watch import WatchFile, active
from zmqdata.worker.tasks import watch as module
from zmqdata.worker.tasks.watch import BEYOND, TaskWatch, WatchedProvider


def definition(**told: Any) -> m.TaskDefinition:
    return define(4000, 2, 2000, "dataset", "d" * 64, "DYNAMIC", 1, None, ((),), (), **told)


class Splits:
    """A provider of a single split, which reads the notes while it is asked."""

    def __init__(self, watch_file: WatchFile) -> None:
        self.watch_file = watch_file
        self.left = [Split(0, 3, 5)]
        self.seen: list[bool] = []

    def next_split(self) -> Split | None:
        self.seen = [note.waiting for note in self.watch_file.notes()]
        return self.left.pop() if self.left else None

    def reset(self) -> None:
        self.left = [Split(1, 0, 1)]

    def state(self) -> Any:
        return "state"

    def restore(self, state: Any) -> None:
        self.left = state


def test_a_task_begins_with_the_opening() -> None:
    """A task is noted as being opened from the first moment. At rest and at its end it
    notes no element.
    """
    watch_file = WatchFile()
    watch = TaskWatch(watch_file, definition(task_timeout=0.5))
    [note] = active(watch_file.notes())
    assert (note.key, note.number, note.timeout) == ((4000, 2), m.OPENING, 0.5)
    watch.rest()
    assert active(watch_file.notes()) == []
    watch.end()
    assert watch_file.notes() == []
    watch.cells[watch.at] = 7  # an abandoned thread
    watch.wait(1)
    watch.begin(Split(0, 0, 1))
    assert watch_file.notes() == []


@pytest.mark.parametrize(
    ("seconds", "noted"), [(math.inf, 2**62), (1e306, 2**62), (1e-9, 1), (1.5, 1500)]
)
def test_any_time_is_a_limit(seconds: float, noted: int) -> None:
    """A limit is noted in milliseconds, as 1 at least. Infinity, also if it arises in
    milliseconds, is the longest limit.
    """
    watch_file = WatchFile()
    TaskWatch(watch_file, definition(task_timeout=seconds))
    [note] = active(watch_file.notes())
    assert note.timeout == noted / 1000


def test_calls_have_slots_of_their_own() -> None:
    """The slot of a node is a note of its task until it is closed."""
    watch_file = WatchFile()
    watch = TaskWatch(watch_file, definition())
    slot = watch.open("/0", "map(f)", skippable=True)
    slot.cells[slot.at] = 9
    assert [(note.place, note.number, note.key) for note in active(watch_file.notes())] == [
        ("/0", 9, (4000, 2))
    ]
    watch.close(slot)
    assert [note.place for note in watch_file.notes()] == [""]


def test_places_are_found_by_node() -> None:
    """The poisoned elements of the definition are found by their node."""
    watch = TaskWatch(WatchFile(), definition(poisoned=(("/0", 3), ("/0", 4))))
    assert watch.poisoned == {"/0": {3, 4}}


def test_splits_and_waits_are_noted() -> None:
    """A task waits while its source waits for splits, and the last split that came is
    its current split.
    """
    watch_file = WatchFile()
    watch = TaskWatch(watch_file, definition())
    splits = Splits(watch_file)
    provider = WatchedProvider(splits, watch)
    assert provider.next_split() == Split(0, 3, 5)
    assert splits.seen == [True]
    assert [(note.split, note.waiting) for note in watch_file.notes()] == [((3, 5), False)]
    assert provider.next_split() is None
    provider.reset()
    assert provider.next_split() == Split(1, 0, 1)
    assert provider.state() == "state"
    provider.restore([])
    assert provider.next_split() is None


def suspicious(watch_file: WatchFile | None = None) -> TaskWatch:
    """Return the watch of a task with two suspects."""
    return TaskWatch(watch_file or WatchFile(), definition(suspects=(("/0", 7), ("/0", 8))))


def enter(watch: TaskWatch, number: int, entered: threading.Event) -> threading.Thread:
    """Call for an element in another thread."""

    def call() -> None:
        with watch.trying("/0", "map(f)", True, number):
            entered.set()

    thread = threading.Thread(target=call)
    thread.start()
    return thread


@pytest.mark.parametrize(("first", "second"), [(7, 8), (7, 100), (100, 7)])
def test_a_suspect_is_called_for_alone(first: int, second: int) -> None:
    """No other call of the task runs beside the call for a suspect."""
    watch, entered = suspicious(), threading.Event()
    with watch.trying("/0", "map(f)", True, first):
        thread = enter(watch, second, entered)
        assert not entered.wait(0.05)
    assert entered.wait(5.0)
    thread.join()


def test_other_calls_run_beside_each_other() -> None:
    """Calls for elements that are not suspect run at the same time."""
    watch, entered = suspicious(), threading.Event()
    with watch.trying("/0", "map(f)", True, 1):
        enter(watch, 2, entered).join()
    assert entered.is_set()


def test_a_call_waits_for_stuck_calls_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waits for others as long as a trial lasts for a call. Calls that never
    end, or that wait for another, block others once.
    """
    waits: list[float] = []

    def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
        waits.append(seconds)
        return condition()

    monkeypatch.setattr(module, "SETTLE", 0.0)
    watch, entered = suspicious(), threading.Event()
    monkeypatch.setattr(watch._calls._changed, "wait_for", wait_for)
    with watch.trying("/0", "map(f)", True, 1):
        for number in (7, 8):
            enter(watch, number, entered).join()
    assert waits == [LONGEST_CALL, LONGEST_CALL, LONGEST_CALL, 0.0, 0.0]


def test_a_late_end_is_blamed_on_the_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspect is noted during its call and while the process waits for a late end,
    and not while it waits for an end that earlier calls may have caused.
    """
    noted: list[list[tuple[str, int]]] = []
    watch_file = WatchFile()

    def pause(seconds: float) -> None:
        assert 0 < seconds <= module.LONGEST_SETTLE
        noted.append([(note.place, note.number) for note in active(watch_file.notes())])

    monkeypatch.setattr(module, "pause", pause)
    watch = suspicious(watch_file)
    with watch.trying("/0", "map(f)", True, 6):
        pass
    assert noted == []
    with watch.trying("/0", "map(f)", True, 7):
        assert noted == [[]]
        assert [note.number for note in active(watch_file.notes())] == [7]
    assert noted == [[], [("/0", 7)]]
    with watch.trying("/0", "map(f)", True, 8):
        assert len(noted) == 2
    assert noted[2:] == [[("/0", 8)]]


@pytest.mark.parametrize(
    ("numbers", "tries"),
    [((), True), ((7,), True), ((8, 7), False), ((8 + BEYOND,), False), ((7 + BEYOND,), True)],
)
def test_a_task_knows_when_it_has_made_its_suspects(
    numbers: tuple[int, ...], tries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial ends when each suspect was called for, or an element far behind it."""
    monkeypatch.setattr(module, "SETTLE", 0.0)
    watch = suspicious()
    for number in numbers:
        with watch.trying("/0", "map(f)", True, number):
            pass
    assert watch.is_trying == tries
    assert not TaskWatch(WatchFile(), definition()).is_trying


def test_a_lack_of_memory_is_nothing_without_a_limit() -> None:
    """Without a limit a MemoryError is an ordinary exception of the user, as is any
    other exception under a limit.
    """
    watch_file = WatchFile()
    watch = TaskWatch(watch_file, definition())
    watch.failed(MemoryError())
    watch_file.limit_memory(1 << 30)
    watch.failed(ValueError())
    assert watch_file.starved == 0
