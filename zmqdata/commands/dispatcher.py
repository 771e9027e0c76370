"""Events and commands of the dispatcher core, but for those of saves."""

from __future__ import annotations

from dataclasses import dataclass, field

from zmqdata.commands.shared import Peer
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
