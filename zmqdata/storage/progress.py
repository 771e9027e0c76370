"""Progress of a distributed save, read from its folder. No dispatcher is queried."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import asdict, dataclass
from typing import Any

from zmqdata.errors import DataServiceError, NotFoundError
from zmqdata.files.paths import LOCK, files_token, is_locked, whole_path
from zmqdata.printable import printable
from zmqdata.storage.files import FileSystem
from zmqdata.storage.manifests import (
    STREAMS,
    SaveDescription,
    committed_chunks,
    count_elements,
    is_done,
    parse_stream,
    read_save,
    read_save_error,
)
from zmqdata.storage.remote import files_of

RUNNING, DONE, FAILED = "running", "done", "failed"
STOPPED, ABANDONED = "stopped", "abandoned"
"""States of a save that no dispatcher writes: it can continue, or it cannot."""
GOES_ON = (RUNNING, STOPPED)
"""States that may change."""
_OPEN_CHUNK = re.compile("chunk_([0-9]{1,18})_([0-9]{1,18})")


@dataclass(frozen=True)
class SaveProgress:
    """The progress of a save, as found in its folder."""

    path: str
    """Path of the folder."""
    state: str
    """``running``, ``done``, ``failed``, ``stopped`` (a dispatcher can continue it) or
    ``abandoned`` (none can).
    """
    elements: int
    """Number of written elements. On object stores, those in closed chunks."""
    total: int | None
    """Number of elements in all, while it is known and not reached."""
    chunks: int
    """Number of committed chunks."""
    streams: int
    """Number of streams with committed chunks."""
    error: str = ""
    """Why the save has failed, or why no dispatcher writes it."""

    @property
    def line(self) -> str:
        """Summary in a single line.

        >>> SaveProgress("/a", "running", 250, 1000, 3, 2).line
        '/a: running, 250 of 1000 elements (25 %) in 3 chunks of 2 streams'
        """
        known = f" of {self.total}" if self.total is not None else ""
        share = f" ({100 * self.elements // self.total} %)" if self.total else ""
        counted = (
            f"{self.elements}{known} elements{share} in {self.chunks} chunks of {self.streams} "
            "streams"
        )
        error = f": {' '.join(self.error.split())}" if self.error else ""
        return printable(f"{self.path}: {self.state}, {counted}{error}")

    @property
    def fields(self) -> dict[str, Any]:
        """Fields by name, for JSON."""
        return asdict(self)


def progress_of(path: str, counts: dict[str, tuple[int, int]] | None = None) -> SaveProgress:
    """Read the progress of the save into a folder.

    Args:
        path: the folder.
        counts: bytes and elements that an earlier call has counted, by file. The call
            updates it, and reads only what is new.

    Raises:
        NotFoundError: ``distributed_save`` has saved nothing there.
        DataLossError: the folder holds files that do not belong there.
    """
    path = whole_path(path)
    description = read_save(path)
    # Checked before the markers are read: the save may have ended just before its
    # dispatcher.
    state, why = writer_of(description)
    error = read_save_error(path)
    if description is None and error is None:
        raise NotFoundError(
            f"{path} holds no distributed save: it has no save.json. Check the path"
        )
    if error is not None:
        state, why = FAILED, f"{error.error}: {error.text}"
    if is_done(path):
        state, why = DONE, ""
    # Listed before the committed chunks: a chunk may be committed meanwhile.
    files = files_of(path)
    opened = [] if state == DONE else _open_chunks(files, path)
    chunks = committed_chunks(files, path)
    written = dict[int, int]()
    for chunk in chunks:
        written[chunk.stream] = written.get(chunk.stream, 0) + chunk.elements
    counts = {} if counts is None else counts
    return SaveProgress(
        path=path,
        state=state,
        elements=sum(written.values())
        + sum(
            _elements_in(files, name, counts)
            for stream, first, name in opened
            if first >= written.get(stream, 0)
        ),
        # Skipped failures make the final number smaller than the cardinality.
        total=description.cardinality
        if description and description.cardinality >= 0 and state != DONE
        else None,
        chunks=len(chunks),
        streams=len(written),
        error=why,
    )


def writer_of(description: SaveDescription | None) -> tuple[str, str]:
    """Return the state of a save without a marker, and what to do if no dispatcher
    writes it.

    A dispatcher is found by the lock on its work folder, in processes that see the same
    files and may look into the folder. All others take it for running.
    """
    if description is None or not description.files or description.files != files_token():
        return RUNNING, ""
    try:
        os.stat(description.work_dir)
    except FileNotFoundError:
        return ABANDONED, (
            "No dispatcher writes it, and none can continue it: its dispatcher has ended, and the "
            f"journal in {description.work_dir} was removed (a LocalCluster removes its own). Save "
            "again to another path. `LocalCluster.close()` waits for saves unless an exception "
            "ends the `with` block"
        )
    except OSError:  # another user may look
        return RUNNING, ""
    if is_locked(os.path.join(description.work_dir, LOCK)) is False:
        return STOPPED, (
            "No dispatcher writes it. Start a dispatcher with "
            f"work_dir={description.work_dir!r}, and workers, to continue it"
        )
    return RUNNING, ""


def _open_chunks(files: FileSystem, path: str) -> list[tuple[int, int, str]]:
    """Return stream, first element and path of each chunk that is not committed. Of a
    stream that has moved to another worker, the last attempt counts.
    """
    found = list[tuple[int, int, str]]()
    for stream in files.names(f"{path}/{STREAMS}"):
        folder = f"{path}/{STREAMS}/{stream}/uncommitted_chunks"
        matches = [match for name in files.names(folder) if (match := _OPEN_CHUNK.fullmatch(name))]
        last = max((int(match[1]) for match in matches), default=0)
        found += [
            (parse_stream(stream), int(match[2]), f"{folder}/{match[0]}")
            for match in matches
            if int(match[1]) == last
        ]
    return found


def _elements_in(files: FileSystem, name: str, counts: dict[str, tuple[int, int]]) -> int:
    """Return the number of elements in the whole blocks of a chunk that is written."""
    at, count = counts.get(name, (0, 0))
    # Its worker may have moved it, or stopped in the middle of a block.
    with contextlib.suppress(OSError, ValueError, DataServiceError), files.open(name, "rb") as file:
        file.seek(at)
        count += count_elements(file, files.size(name) or 0)
        counts[name] = file.tell(), count
    return count
