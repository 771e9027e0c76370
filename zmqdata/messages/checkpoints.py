"""What a client knows of an iteration that it reads, as a value that outlives the job:
enough to open it again.

An encoded ``Checkpoint`` is the state of an iterator over a distributed dataset. It
travels back in ``OpenIteration``.
"""

from __future__ import annotations

import zlib

import msgspec
from msgspec import Struct

from zmqdata.decisions import Decision
from zmqdata.errors import DataLossError, InvalidArgumentError
from zmqdata.messages.deaths import Place
from zmqdata.messages.discreet import Discreet
from zmqdata.messages.parts import JobParameters, Ranges, Reader, TaskState, View
from zmqdata.splits import Split

CHECKPOINT_VERSION = 2
"""Of the form below. A change of what it says raises it."""
_CHECKSUM_BYTES = 4


class TaskPart(Discreet, frozen=True, array_like=True):
    """What a client knows of one task.

    ``bases``: per source, how many entries at the beginning of its ledger are not here
    any more. ``ledger``: per source, the entries behind these that the task has
    started, the last one cut where it has got to: nothing that may be taken back.
    ``states``: where the task can be continued. ``delivered``: the elements that
    training loops have had as far as this client knows, its own and those that were
    reported before it came; of a job with numbered consumers nothing, as
    ``Checkpoint.step`` says it, but everything of a task that no view has any more.
    ``decisions``: which elements its operations have left out and which not, from
    number ``first_decision`` on; ``poisoned``: what they leave out as it has killed its
    process.
    """

    index: int
    seed: int
    shard: int | None
    bases: tuple[int, ...]
    ledger: tuple[tuple[Split, ...], ...]
    states: tuple[TaskState, ...]
    delivered: Ranges
    total: int | None
    first_decision: int = 0
    decisions: tuple[Decision, ...] = ()
    poisoned: tuple[Place, ...] = ()


class SourcePart(Discreet, frozen=True, array_like=True):
    """The splits of a source's repetition that were used up: no task has them in its
    ledger, nor needs them again.

    There may be one for each repetition of a ``source``, as a task may be in the next
    one while another has splits of this one that it has not started. Where each task
    has every so many-th split (``num_tasks``), they have only the last split that each
    has used up.
    """

    repetition: int
    gone: Ranges
    source: int = 0


class Checkpoint(Discreet, frozen=True):
    """Where a client stands in an iteration. Several that were taken together say where
    a job of several clients does.

    ``part`` is the client's id and ``parts`` those of all clients of the iteration
    then; empty where consumers are numbered, as the job says how many there are. Splits
    that are in no ledger and not ``gone`` were not started. ``step`` and ``views``: for
    numbered consumers. The tasks in ``views`` are numbered by their ``index``.
    ``order``: runs of elements (index of the task, first, stop) that were handed out
    behind this place, and in this order they must come again: an operation behind has
    them.
    """

    version: int
    job: JobParameters
    fingerprint: str
    repetition: int
    seed: int
    num_shards: int
    reader: Reader
    part: str
    parts: tuple[str, ...]
    sources: tuple[SourcePart, ...]
    tasks: tuple[TaskPart, ...]
    step: int = 0
    views: tuple[View, ...] = ()
    order: tuple[tuple[int, int, int], ...] = ()


class _Head(Struct):
    version: int


_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)
_decoder = msgspec.msgpack.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as bytes, which ``decode_checkpoint`` takes: MessagePack, and the
    CRC-32 of it behind.

    States lie on disks for weeks, and one changed number in them could still be a
    checkpoint: of other elements.
    """
    content = _encoder.encode(checkpoint)
    return content + zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")


def decode_checkpoint(content: bytes) -> Checkpoint:
    """The checkpoint that was encoded.

    Raises:
        DataLossError: these bytes are not what was encoded.
        InvalidArgumentError: they are of a newer version, or never were a checkpoint.
    """
    encoded, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if zlib.crc32(encoded).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        raise DataLossError(
            "The state of the distributed dataset is damaged: its checksum does not fit. Load an "
            "older one."
        )
    try:
        version = _head_decoder.decode(encoded).version
        if version > CHECKPOINT_VERSION:
            raise InvalidArgumentError(
                f"The state of the distributed dataset has version {version}; this zmqdata reads "
                "up to "
                f"{CHECKPOINT_VERSION}. Update zmqdata here."
            )
        return _decoder.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgumentError(
            f"The state of the distributed dataset was not made by zmqdata: {error}"
        ) from None
