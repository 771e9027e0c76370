"""Progress of a distributed save, read from its folder. No dispatcher is queried."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from zmqdata.errors import NotFoundError
from zmqdata.paths import whole_path
from zmqdata.printable import printable
from zmqdata.storage.files import files_of
from zmqdata.storage.manifests import committed_chunks, is_done, read_save, read_save_error

RUNNING, DONE, FAILED = "running", "done", "failed"


@dataclass(frozen=True)
class SaveProgress:
    """The progress of a save, as found in its folder."""

    path: str
    """Path of the folder."""
    state: str
    """``running``, ``done`` or ``failed``."""
    elements: int
    """Number of elements in committed chunks."""
    total: int | None
    """Number of elements in all, while it is known and not reached."""
    chunks: int
    """Number of committed chunks."""
    streams: int
    """Number of streams with committed chunks."""
    error: str = ""
    """Error of a failed save."""

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


def progress_of(path: str) -> SaveProgress:
    """Read the progress of the save into a folder.

    Raises:
        NotFoundError: ``distributed_save`` has saved nothing there.
        DataLossError: the folder holds files that do not belong there.
    """
    path = whole_path(path)
    description, error = read_save(path), read_save_error(path)
    if description is None and error is None:
        raise NotFoundError(
            f"{path} holds no distributed save: it has no save.json. Check the path"
        )
    state = DONE if is_done(path) else RUNNING if error is None else FAILED
    chunks = committed_chunks(files_of(path), path)
    return SaveProgress(
        path=path,
        state=state,
        elements=sum(chunk.elements for chunk in chunks),
        # Skipped failures make the final number smaller than the cardinality.
        total=description.cardinality
        if description and description.cardinality >= 0 and state != DONE
        else None,
        chunks=len(chunks),
        streams=len({chunk.stream for chunk in chunks}),
        error="" if error is None else f"{error.error}: {error.text}",
    )
