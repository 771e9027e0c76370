"""Where registered pipelines are kept: by the digest of their content, in memory or in the work folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from zmqdata.dispatcher.journalfile import sync_folder


class PipelineStore:
    """Packed pipelines by digest. Their bytes are never opened here.

    Args:
        work_dir: folder in which to keep them; None keeps them in memory.
    """

    def __init__(self, work_dir: str | None) -> None:
        self._folder = None if work_dir is None else Path(work_dir) / "pipelines"
        self._memory: dict[str, bytes] = {}
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def put(self, digest: str, pipeline: bytes) -> None:
        """Keeps a pipeline; keeping the same one again changes nothing."""
        if self._folder is None:
            self._memory[digest] = pipeline
            return
        path = self._path(digest)
        if not path.exists():
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_bytes(pipeline)
            partial.replace(path)

    def get(self, digest: str) -> bytes | None:
        """The pipeline, or None when it is not (or no longer) kept."""
        if self._folder is None:
            return self._memory.get(digest)
        path = self._path(digest)
        return path.read_bytes() if path.exists() else None

    def drop(self, digest: str) -> None:
        """Forgets a pipeline; one that is not kept is forgotten already."""
        if self._folder is None:
            self._memory.pop(digest, None)
        else:
            self._path(digest).unlink(missing_ok=True)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Those that are not kept."""
        kept = self._memory if self._folder is None else {path.name for path in self._folder.iterdir()}
        return [digest for digest in digests if digest not in kept]

    def keep_only(self, digests: Collection[str]) -> None:
        """Drops all others, as a dispatcher leaves them that died before it noted what they are."""
        for path in () if self._folder is None else self._folder.iterdir():
            if path.name not in digests:
                path.unlink(missing_ok=True)

    def sync(self, digest: str) -> None:
        """Waits until a pipeline is on the disk.

        Raises:
            OSError: it cannot be written, or is gone.
        """
        if self._folder is not None:
            with self._path(digest).open("rb") as file:
                os.fsync(file.fileno())
            sync_folder(self._folder)

    def _path(self, digest: str) -> Path:
        # A digest comes from a peer: only its characters, never a path, may reach the file system.
        assert self._folder is not None
        return self._folder / "".join(character for character in digest if character.isalnum())[:128]
