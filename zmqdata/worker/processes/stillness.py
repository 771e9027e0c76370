"""The time for which a pipeline has made no progress, measured from repeated snapshots
of its notes.

A task that waits for splits, for credit or for a reader is not stuck. This module only
measures; the supervisor decides whether to kill the process.
"""

from __future__ import annotations

from collections.abc import Sequence

from zmqdata.worker.processes.watch import IDLE, WatchNote


class Stillness:
    """Remembers since when each note has not changed.

    A call is still while its number does not change. A task as a whole is still while
    it makes the same element, waits for no splits, and none of its calls begins or
    ends.

    Example:
        >>> from zmqdata.worker.processes.watch import NUMBER, WatchFile
        >>> watch_file, stillness = WatchFile(), Stillness()
        >>> watch_file.cells[watch_file.open((4000, 1), "0", "map(f)") + NUMBER] = 17
        >>> [stillness.look(now, watch_file.notes())[0][1] for now in (1.0, 2.5)]
        [0.0, 1.5]
    """

    def __init__(self) -> None:
        self._since: dict[int, tuple[object, float]] = {}

    def look(self, now: float, notes: Sequence[WatchNote]) -> list[tuple[WatchNote, float]]:
        """Return the active notes, each with the seconds for which it has not
        changed.
        """
        calls: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for note in notes:
            if note.place:
                calls.setdefault(note.key, []).append((note.serial, note.number))
        found: dict[int, tuple[object, float]] = {}
        still = []
        for note in notes:
            inner = () if note.place else tuple(calls.get(note.key, ()))
            seen = (note.number, note.waiting, inner)
            before = self._since.get(note.serial)
            since = before[1] if before is not None and before[0] == seen else now
            found[note.serial] = (seen, since)
            if note.is_active and all(number == IDLE for _, number in inner):
                still.append((note, now - since))
        self._since = found
        return still


def overdue(
    still: Sequence[tuple[WatchNote, float]], notes: Sequence[WatchNote]
) -> list[WatchNote]:
    """Return the notes that have not changed for longer than the timeout of their
    task.
    """
    limits = {note.key: note.timeout for note in notes if not note.place}
    return [note for note, seconds in still if 0 < limits.get(note.key, 0.0) <= seconds]
