"""Shared memory in which a worker's process records its current work. Its supervisor
reads the records after the process has died.

This module imports only the standard library, so that the supervisor starts fast.
``worker.tasks.watch`` and the iterators decide what to record and when.
``worker.processes.stillness`` measures for how long a record has not changed.

The memory consists of a header, an area for messages from the supervisor to the next
process, slots of equal size, and an area for the stack of a thread that crashes. Every
value of a slot that changes is one word of eight bytes, so each write is atomic.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import itertools
import json
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

IDLE = -1
OPENING = -2
STARVED_CODE = 4
"""Exit code of a process that has run out of memory."""

WORD = 8
SLOT_WORDS = 64
SLOTS = 512
TOLD_AT = 256
SLOTS_AT = 1 << 16
STACK_AT = SLOTS_AT + SLOTS * SLOT_WORDS * WORD
SIZE = STACK_AT + (1 << 16)

ENDING, LIMIT, TOLD, NAME, MEMORY, STARVED, RECYCLES, EARLY, QUIET, HEARD = range(10)
"""Words of the header, in this order. 1 if the process ends on request. The shortest
``task_timeout`` so far in ms. The size in bytes of the message of the supervisor, and
of the name of the worker. The memory limit in bytes. 1 if the process ends because it
has reached that limit. The number of processes that were recycled before this one, and
of those in a row that reached their limit right after their start. 1 if another process
of the worker speaks of what concerns all of them. The time in ms at which the process
last heard its dispatcher.
"""
NAME_AT = 80

SERIAL, NUMBER, TASK, ATTEMPT, SKIPPABLE, TIMEOUT, FIRST, STOP, WAITING, TEXT = range(10)
"""Words of a slot, in this order: the serial number of its present use (0: unused); the
element in progress; the task and the attempt that it belongs to; 1 if the element may
be skipped; the task's timeout in ms; the first and the stop of the last split that
began; the number of sources that wait for splits; the size of the text in bytes.
"""
TEXT_AT = TEXT + 1
MOST_TEXT = (SLOT_WORDS - TEXT_AT) * WORD


@dataclass(frozen=True)
class WatchNote:
    """A snapshot of a slot. A slot without a ``place`` describes the task as a whole,
    and only such a slot knows the split and the wait.
    """

    serial: int
    """serial number of the slot's present use."""
    number: int
    """number of the element in progress, or ``IDLE`` or ``OPENING``."""
    task: int
    """task that uses the slot."""
    attempt: int
    """attempt of the task."""
    skippable: bool
    """True if the element may be skipped."""
    timeout: float
    """timeout of the task in seconds; 0 if it has none."""
    split: tuple[int, int] | None
    """first and stop of the last split that the task began; None before the first
    split.
    """
    waiting: bool
    """True if the task waits for splits."""
    place: str
    """place of the node in the pipeline; empty for the task as a whole."""
    label: str
    """text that names the node to the user."""

    @property
    def key(self) -> tuple[int, int]:
        return self.task, self.attempt

    @property
    def is_active(self) -> bool:
        """Return whether code of the pipeline runs for this slot."""
        return self.number != IDLE and not self.waiting


class WatchFile:
    """The shared memory, as the supervisor and the process both use it.

    Args:
        descriptor: descriptor of the file that backs the memory; None makes private
            memory.

    Example:
        >>> file = WatchFile()
        >>> slot = file.open((4000, 1), "0", "map(f) at train.py:12", skippable=True)
        >>> file.cells[slot + NUMBER] = 17
        >>> [(note.number, note.label) for note in file.notes()]
        [(17, 'map(f) at train.py:12')]
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, SIZE)
        self.cells = memoryview(self._memory).cast("q")
        self._serials = itertools.count(1)
        self._free = list(range(SLOTS - 1, -1, -1))
        self._spare = memoryview(bytearray(SLOT_WORDS * WORD)).cast("q")

    # --- in the watched process

    def open(
        self, key: tuple[int, int], place: str = "", label: str = "", *, skippable: bool = False
    ) -> int:
        """Take a free slot. Return the index of its first word, or -1 if no slot is
        free. Records for the index -1 are discarded.
        """
        try:
            index = self._free.pop()
        except IndexError:
            return -1
        base = SLOTS_AT // WORD + index * SLOT_WORDS
        cells = self.cells
        text = f"{place}\0{label}".encode(errors="replace")[:MOST_TEXT]
        start = (base + TEXT_AT) * WORD
        self._memory[start : start + len(text)] = text
        for word, value in (
            (NUMBER, IDLE),
            (SKIPPABLE, skippable),
            (FIRST, 0),
            (STOP, 0),
            (WAITING, 0),
            (TIMEOUT, 0),
        ):
            cells[base + word] = value
        cells[base + TASK], cells[base + ATTEMPT], cells[base + TEXT] = *key, len(text)
        cells[base + SERIAL] = next(self._serials)
        return base

    def close(self, base: int) -> None:
        """Free a slot."""
        if base >= 0:
            self.cells[base + SERIAL] = 0
            self._free.append((base - SLOTS_AT // WORD) // SLOT_WORDS)

    def cell(self, base: int) -> tuple[memoryview, int]:
        """Return the memory and the index at which to write the number of the element
        in progress.
        """
        return (self.cells, base + NUMBER) if base >= 0 else (self._spare, NUMBER)

    def limit(self, base: int, milliseconds: int) -> None:
        """Record the timeout of the task that has this slot."""
        if base >= 0:
            self.cells[base + TIMEOUT] = milliseconds
            self.cells[LIMIT] = min(self.cells[LIMIT] or milliseconds, milliseconds)

    def introduce(self, name: str) -> None:
        """Record the name of the worker that this process runs."""
        encoded = name.encode()[: TOLD_AT - NAME_AT]
        self._memory[NAME_AT : NAME_AT + len(encoded)] = encoded
        self.cells[NAME] = len(encoded)

    def catch_crashes(self, descriptor: int) -> None:
        """Have the interpreter record the stack of a thread that crashes.

        Args:
            descriptor: descriptor of the file; it stays open.
        """
        os.set_inheritable(descriptor, False)
        os.lseek(descriptor, STACK_AT, os.SEEK_SET)
        faulthandler.enable(descriptor, all_threads=False)

    def end(self) -> None:
        """Record that the process ends on request or cannot continue, so that its end
        is not attributed to an element.
        """
        self.cells[ENDING] = 1

    def limit_memory(self, size: int) -> None:
        """Record that the process may have at most ``size`` bytes of memory."""
        self.cells[MEMORY] = size

    def starve(self) -> None:
        """End the process if its memory is limited, and leave its records in place,
        because it has reached the limit.
        """
        if self.cells[MEMORY] and not self.cells[ENDING]:
            self.cells[STARVED] = 1
            os._exit(STARVED_CODE)

    def told(self) -> list[Any]:
        """Return the supervisor's message about the deaths of previous processes."""
        size = self.cells[TOLD]
        found: list[Any] = json.loads(self._memory[TOLD_AT : TOLD_AT + size]) if size else []
        return found

    # --- in the supervisor

    def begin(
        self, deaths: Sequence[Mapping[str, Any]] = (), recycles: int = 0, early: int = 0
    ) -> None:
        """Reset the memory for a new process, and leave it a message about deaths. The
        message omits the oldest deaths if not all of them fit.

        Args:
            deaths: deaths of processes that no process has reported yet.
            recycles: number of processes that were recycled before.
            early: number of them in a row that reached their limit right after their
                start.
        """
        self._memory[:SLOTS_AT] = bytes(SLOTS_AT)
        self.cells[RECYCLES], self.cells[EARLY] = recycles, early
        for base in range(SLOTS_AT // WORD, STACK_AT // WORD, SLOT_WORDS):
            self.cells[base + SERIAL] = 0
        self._memory[STACK_AT:] = bytes(SIZE - STACK_AT)
        told = list(deaths)
        while len(encoded := json.dumps(told).encode()) > SLOTS_AT - TOLD_AT:
            del told[0]
        self._memory[TOLD_AT : TOLD_AT + len(encoded)] = encoded
        self.cells[TOLD] = len(encoded) if told else 0

    @property
    def starved(self) -> int:
        """Return the memory limit that the process has reached; 0 if it has not reached
        one.
        """
        return self.cells[MEMORY] if self.cells[STARVED] else 0

    @property
    def crash(self) -> str:
        """Stack of the thread that has crashed, as Python prints it, the newest call
        first; empty if none has crashed that runs Python.

        A process that a pipeline has forked may have crashed before.
        """
        text = self._memory[STACK_AT:].rstrip(b"\0").decode(errors="replace")
        last = text.rpartition("Fatal Python error")[2]
        return last.partition("(most recent call first):\n")[2].partition("\n\n")[0]

    @property
    def shortest_limit(self) -> float:
        """Return the shortest timeout of a task in seconds, after which the supervisor
        must look for stuck tasks; 0 if no task has one.
        """
        return float(self.cells[LIMIT]) / 1000

    def notes(self) -> list[WatchNote]:
        """Return a snapshot of every slot in use."""
        bases = range(SLOTS_AT // WORD, STACK_AT // WORD, SLOT_WORDS)
        return [self._note(base) for base in bases if self.cells[base + SERIAL]]

    def _note(self, base: int) -> WatchNote:
        words = self.cells[base : base + TEXT_AT].tolist()
        start = (base + TEXT_AT) * WORD
        text = self._memory[start : start + words[TEXT]].decode(errors="replace")
        place, _, label = text.partition("\0")
        return WatchNote(
            serial=words[SERIAL],
            number=words[NUMBER],
            task=words[TASK],
            attempt=words[ATTEMPT],
            skippable=bool(words[SKIPPABLE]),
            timeout=words[TIMEOUT] / 1000,
            split=(words[FIRST], words[STOP]) if words[STOP] else None,
            waiting=words[WAITING] > 0,
            place=place,
            label=label,
        )

    def death(
        self, how: str, killed: bool, stuck: Sequence[WatchNote] = ()
    ) -> dict[str, Any] | None:
        """Return, as ``messages.Death``, what the process was working on when it ended;
        None if it ended on request.

        Args:
            how: words that tell how the process ended.
            killed: True if it was killed, or reached its memory limit.
            stuck: the notes because of which the supervisor killed it; only these are
                then to blame.
        """
        if self.cells[ENDING] or not self.cells[NAME]:
            return None
        notes = self.notes()
        keys = sorted({note.key for note in stuck or notes})
        return {
            "worker": self._memory[NAME_AT : NAME_AT + self.cells[NAME]].decode(errors="replace"),
            "how": how,
            "killed": killed,
            "tasks": keys,
            "in_progress": [work_of(note, notes) for note in stuck or active(notes)],
        }


def active(notes: Sequence[WatchNote]) -> list[WatchNote]:
    """Return the running calls, and the tasks that work on an element outside such a
    call.
    """
    calling = {note.key for note in notes if note.place and note.is_active}
    return [note for note in notes if note.is_active and (note.place or note.key not in calling)]


def work_of(note: WatchNote, notes: Sequence[WatchNote]) -> dict[str, Any]:
    """Return a note as ``messages.Work``, with the split and the element of its
    task.
    """
    task = next((one for one in notes if not one.place and one.key == note.key), None)
    return {
        "task": note.task,
        "attempt": note.attempt,
        "number": note.number,
        "node": note.place,
        "label": note.label,
        "skippable": note.skippable,
        "split": None if task is None else task.split,
        "element": IDLE if task is None else task.number,
    }


def make_file() -> int:
    """Make an unnamed file to back a shared ``WatchFile``, and return its
    descriptor.
    """
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):
            descriptor = os.memfd_create("zmqdata-watch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.truncate(descriptor, SIZE)
            # The seals keep a process with fewer rights from truncating the memory that
            # its supervisor reads.
            fcntl.fcntl(
                descriptor,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
            )
            return descriptor
    with tempfile.TemporaryFile() as file:
        descriptor = os.dup(file.fileno())
    os.truncate(descriptor, SIZE)
    return descriptor
