"""A client's view of an iteration as a value that outlives the job: enough to open the
iteration again.

An encoded ``Checkpoint`` is the state of an iterator over a distributed dataset. It
returns to the dispatcher in ``OpenIteration``.
"""

from __future__ import annotations

import zlib

import msgspec
from msgspec import Struct

from zmqdata.decisions import Decision
from zmqdata.errors import DataLossError, InvalidArgumentError
from zmqdata.messages.discreet import Discreet
from zmqdata.messages.parts import JobParameters, Ranges, Reader, TaskState, View
from zmqdata.messages.poison import Place
from zmqdata.splits import Split

CHECKPOINT_VERSION = 2
"""Version of the form below. It is raised when the meaning changes."""
_CHECKSUM_BYTES = 4


class TaskPart(Discreet, frozen=True, array_like=True):
    """A client's view of a task."""

    index: int
    """Number of the task within its iteration."""
    seed: int
    """Seed of the task."""
    shard: int | None
    """Number of its static shard; None without shards."""
    bases: tuple[int, ...]
    """Per source, the number of leading ledger entries that were dropped."""
    ledger: tuple[tuple[Split, ...], ...]
    """Per source, the following entries that the task has started, the last cut at its
    present position, so that none of them can be taken back.
    """
    states: tuple[TaskState, ...]
    """Positions from which the task can be continued."""
    delivered: Ranges
    """Elements that training loops had as far as this client knows: its own, and those
    reported before it joined. With numbered consumers it is empty, since
    ``Checkpoint.step`` says it, but complete for a task that is in no view any longer.
    """
    total: int | None
    """Number of elements; None until known."""
    first_decision: int = 0
    """Number of the first entry in ``decisions``."""
    decisions: tuple[Decision, ...] = ()
    """Decisions of operations to skip an element or not."""
    poisoned: tuple[Place, ...] = ()
    """Elements that operations skip because they have killed their process."""
    rest: int = 0
    """Number of elements after the last full round. They count as a round in
    ``total``.
    """


class SourcePart(Discreet, frozen=True, array_like=True):
    """The splits of a source's repetition that were used up: no task has them in its
    ledger or needs them again.

    A source may have several repetitions here: a task may be in the next repetition
    while another has unstarted splits of this. With ``num_tasks``, each task has every
    ``num_tasks``-th split, so only the last split that each task has used up is listed.
    """

    repetition: int
    """Repetition of the source."""
    gone: Ranges
    """The splits that were used up."""
    source: int = 0
    """Number of the source."""


class Checkpoint(Discreet, frozen=True):
    """A client's position in an iteration. The checkpoints of all clients, taken
    together, are the position of their job.

    Splits that are in no ledger and not in a ``SourcePart`` were not started.
    """

    version: int
    """Version of the form."""
    job: JobParameters
    """Definition of the job."""
    fingerprint: str
    """Fingerprint of the dataset; empty if the dispatcher had not let the client in,
    which then knew nothing of the iteration.
    """
    repetition: int
    """Repetition of the job."""
    seed: int
    """Seed of the iteration."""
    num_shards: int
    """Number of static shards."""
    reader: Reader
    """Identity under which the client reads."""
    part: str
    """Id of the client."""
    parts: tuple[str, ...]
    """Ids of all clients of the iteration at that time. Empty with numbered consumers,
    whose number is in ``job``.
    """
    sources: tuple[SourcePart, ...]
    """Splits that were used up."""
    tasks: tuple[TaskPart, ...]
    """The tasks of the iteration."""
    step: int = 0
    """Step of a numbered consumer."""
    views: tuple[View, ...] = ()
    """Views of a numbered consumer; they refer to tasks by their ``index``."""
    last: int | None = None
    """Step at which the last rounds begin; None if it is not known."""
    order: tuple[tuple[int, int, int], ...] = ()
    """Runs of elements (task's index, first, stop) handed out after this position. They
    must come again in this order, since a later operation has them.
    """
    over: bool = False
    """True if the client had everything: as a numbered consumer, or of all copies of
    the input that it read.
    """
    ahead: int = 0
    """Number of steps after ``step`` of which operations behind the consumer have had
    the elements. These must come again in the same rounds.
    """

    @property
    def reached(self) -> int:
        """First step of which operations behind the consumer lack the element."""
        return self.step + self.ahead

    @property
    def is_untouched(self) -> bool:
        """True if no reader has had an element, as far as the client knows."""
        return not (self.sources or self.order or any(one.delivered for one in self.tasks))


class _Head(Struct):
    version: int


_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)
_decoder = msgspec.msgpack.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint for ``decode_checkpoint``: MessagePack, followed by its
    CRC-32.

    States stay on disks for weeks. A changed number could still decode as a checkpoint,
    but of other elements.
    """
    content = _encoder.encode(checkpoint)
    return content + zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")


def decode_checkpoint(content: bytes) -> Checkpoint:
    """Decode a checkpoint.

    Raises:
        DataLossError: the bytes were changed since they were encoded.
        InvalidArgumentError: they have another version, or never were a checkpoint.
    """
    encoded, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if zlib.crc32(encoded).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        raise DataLossError(
            "The state of the distributed dataset is damaged: its checksum does not match. Load an "
            "older state."
        )
    try:
        version = _head_decoder.decode(encoded).version
        if version != CHECKPOINT_VERSION:
            raise InvalidArgumentError(
                f"The state of the distributed dataset has version {version}; this zmqdata reads "
                f"version {CHECKPOINT_VERSION}. Load the state with the release that saved it."
            )
        return _decoder.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgumentError(
            f"The state of the distributed dataset was not made by zmqdata: {error}"
        ) from None
