"""Events and commands of the dispatcher's decider."""

from __future__ import annotations

from dataclasses import dataclass, field

from zmqdata.core.events import Carriers as Carriers
from zmqdata.core.events import Handlers as Handlers
from zmqdata.core.events import KeepPiece as KeepPiece
from zmqdata.core.events import LogLine as LogLine
from zmqdata.core.events import Peer as Peer
from zmqdata.core.events import PeerHandlers as PeerHandlers
from zmqdata.core.events import PieceKept as PieceKept
from zmqdata.core.events import Received as Received
from zmqdata.core.events import Send as Send
from zmqdata.core.events import Tick as Tick
from zmqdata.core.events import Unreachable as Unreachable
from zmqdata.messages import Part
from zmqdata.splits import FileSplits
from zmqdata.updates import Update


@dataclass(frozen=True, slots=True)
class Commit:
    """Command: write this fact before any later command of the same turn is carried
    out.
    """

    update: Update


@dataclass(frozen=True, slots=True)
class StorePipeline:
    """Command: keep these bytes under their digest."""

    digest: str
    pipeline: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class DropPipeline:
    """Command: the bytes kept under this digest are not needed any more."""

    digest: str


@dataclass(frozen=True, slots=True)
class SendPipeline:
    """Command: answer ``RequestPipeline`` with the bytes kept under this digest, unless
    it is one of the parts.
    """

    peer: Peer
    dataset_id: str
    digest: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class SendPiece:
    """Command: answer ``RequestPiece`` with the bytes of a part from ``offset`` on."""

    peer: Peer
    digest: str
    offset: int


@dataclass(frozen=True, slots=True)
class PartLost:
    """Event: a part that was kept can not be read any more."""

    digest: str


@dataclass(frozen=True, slots=True)
class FindFiles:
    """Command: find the files of a source; answered by ``FilesListed``."""

    iteration: int
    source: int
    repetition: int
    files: FileSplits


@dataclass(frozen=True, slots=True)
class FilesListed:
    """Event: the files of a source, unordered, or the error that kept them from being
    listed.
    """

    iteration: int
    source: int
    repetition: int
    names: tuple[str, ...]
    error: str = ""


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


DispatcherEvent = (
    ChunkPublished
    | FilesListed
    | PartLost
    | PieceKept
    | Received
    | SaveChecked
    | SaveFinished
    | SavePrepared
    | Tick
    | Unreachable
)
"""All events that the dispatcher's decider receives."""

DispatcherCommand = (
    CheckSave
    | Commit
    | DropPipeline
    | FindFiles
    | FinishSave
    | KeepPiece
    | LogLine
    | PrepareSave
    | PublishChunk
    | Send
    | SendPiece
    | SendPipeline
    | StorePipeline
)
"""All commands that the dispatcher's decider returns."""
