"""Where a worker's process notes what it is at: memory that its supervisor shares, and
reads when the process has died.

Standard library only, as the supervisor starts fast. What is noted when belongs to
``worker.tasks.watch`` and the iterators; for how long something has not moved, to
``worker.processes.stillness``.

The memory has a header, room for what the supervisor has to tell the next process, and
slots of equal size. Everything that changes is one word of eight bytes, which is
written at once or not at all.
"""

from __future__ import annotations

import contextlib
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
"""Exit code of a process that has no memory left."""

WORD = 8
SLOT_WORDS = 64
SLOTS = 512
TOLD_AT = 256
SLOTS_AT = 1 << 16
SIZE = SLOTS_AT + SLOTS * SLOT_WORDS * WORD

ENDING, LIMIT, TOLD, NAME, MEMORY, STARVED = range(6)
"""Words of the header: whether the process ends as it was asked to, the shortest
``task_timeout`` so far in ms, the bytes that are told and that the worker's name has,
the bytes of memory that it may have, and whether it ends for want of more.
"""
NAME_AT = 64

SERIAL, NUMBER, TASK, ATTEMPT, SKIPPABLE, TIMEOUT, FIRST, STOP, WAITING, TEXT = range(10)
"""Words of a slot: what it is used for now (0: nothing), the element that is worked on,
whose it is, the task's time-out in ms, the last split that was begun, how many sources
wait for splits, and the bytes of the text.
"""
TEXT_AT = TEXT + 1
MOST_TEXT = (SLOT_WORDS - TEXT_AT) * WORD


@dataclass(frozen=True)
class CrumbNote:
    """A slot as it was read. Without a ``place`` it is that of a task as a whole, which
    alone knows split and waits.
    """

    serial: int
    number: int
    task: int
    attempt: int
    skippable: bool
    timeout: float
    split: tuple[int, int] | None
    waiting: bool
    place: str
    label: str

    @property
    def key(self) -> tuple[int, int]:
        return self.task, self.attempt

    @property
    def is_active(self) -> bool:
        """Whether code of the pipeline is running here."""
        return self.number != IDLE and not self.waiting


class CrumbFile:
    """The memory, from either side.

    Args:
        descriptor: of the file behind it; None makes memory that nobody shares.

    Example:
        >>> crumbs = CrumbFile()
        >>> slot = crumbs.open((4000, 1), "0", "map(f) at train.py:12", skippable=True)
        >>> crumbs.cells[slot + NUMBER] = 17
        >>> [(note.number, note.label) for note in crumbs.notes()]
        [(17, 'map(f) at train.py:12')]
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, SIZE)
        self.cells = memoryview(self._memory).cast("q")
        self._serials = itertools.count(1)
        self._free = list(range(SLOTS - 1, -1, -1))
        self._spare = memoryview(bytearray(SLOT_WORDS * WORD)).cast("q")

    # --- in the process that is watched

    def open(
        self, key: tuple[int, int], place: str = "", label: str = "", *, skippable: bool = False
    ) -> int:
        """Takes a slot; returns the index of its first word, or -1: none is free, and
        what is noted is lost.
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
        """Gives a slot back."""
        if base >= 0:
            self.cells[base + SERIAL] = 0
            self._free.append((base - SLOTS_AT // WORD) // SLOT_WORDS)

    def cell(self, base: int) -> tuple[memoryview, int]:
        """Where to write the number of the element that is worked on."""
        return (self.cells, base + NUMBER) if base >= 0 else (self._spare, NUMBER)

    def limit(self, base: int, milliseconds: int) -> None:
        """Notes the time-out of the task that has a slot."""
        if base >= 0:
            self.cells[base + TIMEOUT] = milliseconds
            self.cells[LIMIT] = min(self.cells[LIMIT] or milliseconds, milliseconds)

    def introduce(self, name: str) -> None:
        """Notes which worker this process is."""
        encoded = name.encode()[: TOLD_AT - NAME_AT]
        self._memory[NAME_AT : NAME_AT + len(encoded)] = encoded
        self.cells[NAME] = len(encoded)

    def end(self) -> None:
        """From now on the process ends because it was asked to, or cannot go on: no
        element is to blame.
        """
        self.cells[ENDING] = 1

    def limit_memory(self, size: int) -> None:
        """Notes that the process may have ``size`` bytes of memory, and no more."""
        self.cells[MEMORY] = size

    def starve(self) -> None:
        """Ends the process where its memory is limited, with the notes as they are: it
        has come to the limit.
        """
        if self.cells[MEMORY] and not self.cells[ENDING]:
            self.cells[STARVED] = 1
            os._exit(STARVED_CODE)

    def told(self) -> list[Any]:
        """What the supervisor told of the processes before."""
        size = self.cells[TOLD]
        found: list[Any] = json.loads(self._memory[TOLD_AT : TOLD_AT + size]) if size else []
        return found

    # --- in the supervisor

    def begin(self, deaths: Sequence[Mapping[str, Any]] = ()) -> None:
        """Wipes everything, for a new process, and tells it of deaths, of the last ones
        where they are many.
        """
        self._memory[:SLOTS_AT] = bytes(SLOTS_AT)
        for base in range(SLOTS_AT // WORD, SIZE // WORD, SLOT_WORDS):
            self.cells[base + SERIAL] = 0
        told = list(deaths)
        while len(encoded := json.dumps(told).encode()) > SLOTS_AT - TOLD_AT:
            del told[0]
        self._memory[TOLD_AT : TOLD_AT + len(encoded)] = encoded
        self.cells[TOLD] = len(encoded) if told else 0

    @property
    def starved(self) -> int:
        """The limit of memory that the process has come to; 0: it has not."""
        return self.cells[MEMORY] if self.cells[STARVED] else 0

    @property
    def shortest_limit(self) -> float:
        """Seconds after which it would be time to look for what does not move; 0:
        never.
        """
        return float(self.cells[LIMIT]) / 1000

    def notes(self) -> list[CrumbNote]:
        """Every slot that is used."""
        bases = range(SLOTS_AT // WORD, SIZE // WORD, SLOT_WORDS)
        return [self._note(base) for base in bases if self.cells[base + SERIAL]]

    def _note(self, base: int) -> CrumbNote:
        words = self.cells[base : base + TEXT_AT].tolist()
        start = (base + TEXT_AT) * WORD
        text = self._memory[start : start + words[TEXT]].decode(errors="replace")
        place, _, label = text.partition("\0")
        return CrumbNote(
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
        self, how: str, killed: bool, stuck: Sequence[CrumbNote] = ()
    ) -> dict[str, Any] | None:
        """What the process that has ended was at, as ``messages.Death``; None where it
        ended as it was asked to.

        ``stuck``: it was ended because of these, and nothing else is to blame.
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
            "crumbs": [crumb_of(note, notes) for note in stuck or active(notes)],
        }


def active(notes: Sequence[CrumbNote]) -> list[CrumbNote]:
    """The calls that are running, and the tasks that are at an element without being in
    such a call.
    """
    calling = {note.key for note in notes if note.place and note.is_active}
    return [note for note in notes if note.is_active and (note.place or note.key not in calling)]


def crumb_of(note: CrumbNote, notes: Sequence[CrumbNote]) -> dict[str, Any]:
    """A note as ``messages.Crumb``, with the split of its task."""
    split = next((one.split for one in notes if not one.place and one.key == note.key), None)
    return {
        "task": note.task,
        "attempt": note.attempt,
        "number": note.number,
        "node": note.place,
        "label": note.label,
        "skippable": note.skippable,
        "split": split,
    }


def make_file() -> int:
    """A file without a name for a ``CrumbFile`` to be shared; its descriptor."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):
            descriptor = os.memfd_create("zmqdata-crumbs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.truncate(descriptor, SIZE)
            # A process with fewer rights than its supervisor cannot take the memory
            # away from under it.
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
