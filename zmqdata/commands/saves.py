"""Events and commands of saving: ``commands`` for what becomes files. Descriptions
only.

Chunks, and the folder of a save, are the shells' to write; which chunks count is the
dispatcher core's decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# --- dispatcher
# ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrepareSave:
    """Command: make the folder of a save, unless something is saved there; answered by
    ``SavePrepared``.
    """

    path: str
    run: str
    compression: str | None
    spec: bytes | None
    cardinality: int


@dataclass(frozen=True, slots=True)
class SavePrepared:
    """Event: the folder of a save is made, or the error, by name, for which it is
    not.
    """

    path: str
    run: str
    error: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class SaveChunk:
    """A chunk that counts: what it is called and where it was written. ``number``
    counts the chunks of its stream.
    """

    stream: int
    number: int
    attempt: int
    first: int
    stop: int
    size: int


@dataclass(frozen=True, slots=True)
class PublishChunk:
    """Command: give a chunk the name under which it is read, if it has not got it;
    answered by ``ChunkPublished``.
    """

    iteration: int
    path: str
    chunk: SaveChunk


@dataclass(frozen=True, slots=True)
class ChunkPublished:
    """Event: a chunk has its name, or the reason why it can not have it."""

    iteration: int
    chunk: SaveChunk
    error: str = ""


@dataclass(frozen=True, slots=True)
class CheckSave:
    """Command, in a new life: hold the folder of a save against what is known, and
    publish what was not.

    Answered by ``SaveChecked``. No chunk of the save is published by anybody else
    meanwhile.
    """

    iteration: int
    path: str
    run: str
    chunks: tuple[SaveChunk, ...]


@dataclass(frozen=True, slots=True)
class SaveChecked:
    """Event: how many streams the folder of a save has room for; or a conflict, or why
    it could not be looked at.
    """

    iteration: int
    streams: int = 0
    conflict: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class FinishSave:
    """Command: write the marker that ends a save, after a manifest or with an error;
    answered by ``SaveFinished``.
    """

    iteration: int
    path: str
    run: str
    compression: str | None
    chunks: tuple[SaveChunk, ...] = ()
    specs: tuple[bytes, ...] = ()
    error: str = ""
    text: str = ""
    failure: bytes = b""


@dataclass(frozen=True, slots=True)
class SaveFinished:
    """Event: the marker that ends a save is written, or the reason why it is not."""

    iteration: int
    error: str = ""


# --- worker
# -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteBlock:
    """Command: append a block to the open chunk of a task that is saved; answered by
    ``BlockWritten``.

    The first block opens the chunk that begins with element ``chunk``.
    """

    task: int
    attempt: int
    chunk: int
    size: int
    meta: bytes = field(repr=False)
    frames: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class BlockWritten:
    """Event: a block of this size is in its chunk."""

    task: int
    attempt: int
    size: int


@dataclass(frozen=True, slots=True)
class CloseChunk:
    """Command: bring the open chunk, which ends before element ``stop``, onto the disk;
    answered by ``ChunkClosed``.
    """

    task: int
    attempt: int
    chunk: int
    stop: int


@dataclass(frozen=True, slots=True)
class ChunkClosed:
    """Event: a chunk is on the disk, in ``size`` bytes."""

    task: int
    attempt: int
    chunk: int
    stop: int
    size: int
    spec: bytes = b""


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """Event: a chunk could not be written."""

    task: int
    attempt: int
    error: str
    text: str
