"""Events and commands of the dispatcher's decider.

See the page on the design.
"""

from __future__ import annotations

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
from zmqdata.messages.discreet import Discreet
from zmqdata.splits import ChunkSplits, FileSplits
from zmqdata.updates import Update


class Commit(Discreet, frozen=True):
    """Command: write this fact before the shell carries out any later command of the
    same turn.
    """

    update: Update
    """The fact."""


class StorePipeline(Discreet, frozen=True):
    """Command: store these bytes under their digest."""

    digest: str
    """The digest."""
    pipeline: bytes
    """The packed pipeline."""


class DropPipeline(Discreet, frozen=True):
    """Command: delete the bytes stored under this digest."""

    digest: str
    """The digest."""


class SendPipeline(Discreet, frozen=True):
    """Command: answer ``RequestPipeline`` with the bytes stored under this digest,
    unless it is one of the parts.
    """

    peer: Peer
    """The worker."""
    dataset_id: str
    """Id of the dataset."""
    digest: str
    """Digest of its pipeline."""
    parts: tuple[Part, ...] = ()
    """Parts of the pipeline."""


class SendPiece(Discreet, frozen=True):
    """Command: answer ``RequestPiece`` with a piece of a part."""

    peer: Peer
    """The worker, or the client."""
    digest: str
    """Digest of the part."""
    offset: int
    """Offset of the piece in the part, in bytes."""
    request: str = ""
    """Id of the request of a client."""


class PartLost(Discreet, frozen=True):
    """Event: a stored part can no longer be read."""

    digest: str
    """Digest of the part."""


class FindFiles(Discreet, frozen=True):
    """Command: list the files of a source; answered by ``FilesListed``."""

    iteration: int
    """Number of the iteration."""
    source: int
    """Index of the source."""
    repetition: int
    """Repetition of the source."""
    files: FileSplits
    """The source."""


class FilesListed(Discreet, frozen=True):
    """Event: the files of a source were listed, or could not be."""

    iteration: int
    """Number of the iteration."""
    source: int
    """Index of the source."""
    repetition: int
    """Repetition of the source."""
    names: tuple[str, ...]
    """Names of the files, unordered."""
    error: str = ""
    """Error that prevented the listing; empty if none did."""


class FindChunks(Discreet, frozen=True):
    """Command: list the committed chunks of a save; answered by ``ChunksFound``."""

    iteration: int
    """Number of the iteration that reads them."""
    source: int
    """Index of the source."""
    repetition: int
    """Repetition of the source."""
    chunks: ChunkSplits
    """The source."""


class ChunksFound(Discreet, frozen=True):
    """Event: the committed chunks of a save were listed, or could not be."""

    iteration: int
    """Number of the iteration that reads them."""
    source: int
    """Index of the source."""
    repetition: int
    """Repetition of the source."""
    names: tuple[str, ...] = ()
    """Names of the chunks, in the order in which they are read."""
    more: bool = True
    """True if the save may commit further chunks."""
    error: str = ""
    """Class name of the error that prevents reading the save; empty if none does."""
    text: str = ""
    """Text of the error, or of a difficulty that may pass."""
    failure: bytes = b""
    """Encoded failure of the pipeline of the save; empty if none failed."""


class PrepareSave(Discreet, frozen=True):
    """Command: create the folder of a save, unless a save exists there; answered by
    ``SavePrepared``.
    """

    path: str
    """Path of the save."""
    save_id: str
    """Id of the save."""
    compression: str | None
    """Compression of its chunks."""
    spec: bytes | None
    """Encoded element spec, if known."""
    cardinality: int
    """Cardinality of the dataset."""


class SavePrepared(Discreet, frozen=True):
    """Event: the folder of a save was created, or could not be."""

    path: str
    """Path of the save."""
    save_id: str
    """Id of the save."""
    error: str = ""
    """Class name of the error; empty if the folder was created."""
    text: str = ""
    """Text of the error."""


class SaveChunk(Discreet, frozen=True):
    """A committed chunk: its name and where it was written."""

    stream: int
    """Number of the stream."""
    number: int
    """Number of the chunk in its stream."""
    attempt: int
    """Attempt that wrote it."""
    first: int
    """Number of its first element."""
    stop: int
    """Number after its last element."""
    size: int
    """Size in bytes."""


class PublishChunk(Discreet, frozen=True):
    """Command: give a chunk its final name, unless it already has that; answered by
    ``ChunkPublished``.
    """

    iteration: int
    """Number of the iteration."""
    path: str
    """Path of the save."""
    chunk: SaveChunk
    """The chunk."""


class ChunkPublished(Discreet, frozen=True):
    """Event: a chunk has its final name, or cannot get it."""

    iteration: int
    """Number of the iteration."""
    chunk: SaveChunk
    """The chunk."""
    error: str = ""
    """Why the chunk cannot get its name; empty if it has it."""
    kind: str = ""
    """Class name of this error."""


class CheckSave(Discreet, frozen=True):
    """Command after a restart: compare the folder of a save with what is known, and
    publish unpublished chunks.

    Answered by ``SaveChecked``. No other command publishes a chunk of the save
    meanwhile.
    """

    iteration: int
    """Number of the iteration."""
    path: str
    """Path of the save."""
    save_id: str
    """Id of the save."""
    chunks: tuple[SaveChunk, ...]
    """The committed chunks."""


class SaveChecked(Discreet, frozen=True):
    """Event: the folder of a save was checked, or could not be."""

    iteration: int
    """Number of the iteration."""
    streams: int = 0
    """Number of streams that the folder has."""
    conflict: str = ""
    """Difference of the folder from what is known; empty if it does not."""
    error: str = ""
    """Why the folder could not be checked; empty if it was."""


class FinishSave(Discreet, frozen=True):
    """Command: write the marker that ends a save, after its manifest or with an error;
    answered by ``SaveFinished``.
    """

    iteration: int
    """Number of the iteration."""
    path: str
    """Path of the save."""
    save_id: str
    """Id of the save."""
    compression: str | None
    """Compression of its chunks."""
    chunks: tuple[SaveChunk, ...] = ()
    """The committed chunks, in the order of the manifest."""
    specs: tuple[bytes, ...] = ()
    """Encoded element specs of the chunks."""
    error: str = ""
    """Class name of the error; empty if the save succeeded."""
    text: str = ""
    """Text of the error."""
    failure: bytes = b""
    """Encoded failure of the pipeline; empty if no pipeline failed."""


class SaveFinished(Discreet, frozen=True):
    """Event: the marker that ends a save was written, or could not be."""

    iteration: int
    """Number of the iteration."""
    error: str = ""
    """Why the marker could not be written; empty if it was."""


DispatcherEvent = (
    ChunkPublished
    | FilesListed
    | ChunksFound
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
    | FindChunks
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
