"""Decoding of messages of a link, from frames to elements.

The bytes of a worker are hostile until this module has validated them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zmqdata import wire
from zmqdata.blocks import DecodedBlock, ReferencedBlock, Room, decode_block, refused_object
from zmqdata.core.client.events import Arrived, Finish
from zmqdata.elements.nesting import leaves_of, places_of
from zmqdata.errors import (
    DataLossError,
    DataServiceError,
    FailedPreconditionError,
    MissingClassError,
    MissingDtypeError,
    ObjectsRefusedError,
    ProtocolError,
)
from zmqdata.failures.codec import decode_failure
from zmqdata.messages import Block, OnLink, Slot
from zmqdata.transport.memory import MappedMemory, aligned

CORRUPT_LIMIT = 3
"""Messages in a row that may be undecodable before the iteration fails."""

PACKED = 0.98
"""Share of the size of its values below which a block was compressed."""

Content = DecodedBlock | DataServiceError | None


class MovedBytes:
    """Bytes and elements that came, by transport and codec.

    Example:
        >>> moved = MovedBytes()
        >>> moved.open("link-1", "tcp://10.0.0.1:7000")
        >>> block = Block(1, 1, 1, first=0, count=8, skip=0, size=400)
        >>> moved.count("link-1", block, None)
        >>> moved.sums()
        {'tcp none': (400, 8)}
    """

    def __init__(self) -> None:
        self._transports: dict[str, str] = {}
        self._sums: dict[str, tuple[int, int]] = {}

    def open(self, link: str, address: str) -> None:
        """Record the address of the data socket of a link."""
        self._transports[link] = address.partition("://")[0]

    def count(self, link: str, header: OnLink, content: Content) -> None:
        """Count a message; it counts only if it is a block."""
        if not isinstance(header, Block):
            return
        transport = self._transports.get(link, "local") if header.slot is None else "memory"
        packed = isinstance(content, DecodedBlock) and header.size < PACKED * content.nbytes
        name = f"{transport} {'blosc' if packed else 'none'}"
        nbytes, elements = self._sums.get(name, (0, 0))
        self._sums[name] = nbytes + header.size, elements + header.stop - header.skip

    def sums(self) -> dict[str, tuple[int, int]]:
        """Return bytes as they travelled, and elements, by transport and codec."""
        return self._sums.copy()


def decode_message(
    frames: Sequence[bytes | memoryview],
    memory: MappedMemory | None = None,
    *,
    allow_objects: bool = True,
    room: Room | None = None,
) -> tuple[OnLink, Content]:
    """Return the header of a message and its content: a block, the failure that stands
    for an element, or None.

    Args:
        frames: the frames as received.
        memory: memory that the link shares with its worker, or None.
        allow_objects: True to unpickle leaves that are Python objects. Otherwise they
            are an error.
        room: returns memory for large arrays. None: fresh memory.

    Raises:
        ObjectsRefusedError: the block contains Python objects that are not allowed.
        ProtocolError: anything else is wrong with the message. No other error is
            raised.
    """
    if not frames:
        raise ProtocolError("empty message: not even a header")
    header = wire.on_link.header(frames[0])
    if not isinstance(header, Block):
        return header, None
    parts: Sequence[Any] = frames[1:]
    lent: tuple[int, ...] = ()
    if header.slot is not None:
        parts, lent = _placed(header.slot, parts, memory)
    return header, _content(header, parts, allow_objects, lent, room)


def _placed(
    slot: Slot, following: Sequence[Any], memory: MappedMemory | None
) -> tuple[list[Any], tuple[int, ...]]:
    """Return all frames of a block that lies partly in a slot, and the numbers of the
    frames in the slot.
    """
    if memory is None:
        raise ProtocolError("a block lies in shared memory, but the link has none")
    content = memory.take(slot)
    frames: list[Any] = []
    lent = []
    start, rest = 0, iter(following)
    for number, size in enumerate(slot.sizes):
        if size < 0:
            frames.append(next(rest, b""))
        else:
            frames.append(content[start : start + size])
            lent.append(number)
            start = aligned(start + size)
    if len(lent) + len(following) != len(frames):
        raise ProtocolError(
            f"a block of {len(frames)} frames came with {len(following)} beside its slot"
        )
    return frames, tuple(lent)


def hopeless(error: ProtocolError, count: int) -> Finish | None:
    """Return the end of an iteration after ``count`` undecodable messages in a row, or
    None to ask for the message again.
    """
    if isinstance(
        error, MissingClassError | MissingDtypeError | ObjectsRefusedError
    ):  # the same bytes would arrive again
        return Finish(FailedPreconditionError.__name__, str(error))
    if count > CORRUPT_LIMIT:
        return Finish(
            DataLossError.__name__,
            "A worker repeatedly sends messages that cannot be decoded. The last "
            f"error was: {error}",
        )
    return None


def check_spec_without_objects(spec: Any) -> None:
    """Raise an error if elements are known to have leaves that only pickle can carry.

    A single object may be None or a dataclass, which travel without pickle. The first
    block shows which it is. A spec of None means that nothing is known.

    Raises:
        FailedPreconditionError: the spec has such a leaf. The text says where.
    """
    if spec is None:
        return
    for place, leaf in zip(places_of(spec, "element"), leaves_of(spec), strict=True):
        if leaf.dtype.hasobject and leaf.shape:
            raise FailedPreconditionError(refused_object(place))


def referred(link: str, header: OnLink, frames: ReferencedBlock | tuple[()]) -> Arrived:
    """Return the event for a message sent within this process, where only failures are
    encoded.
    """
    if isinstance(header, Block) and header.failure:
        return Arrived(link, header, decode_failure(header.failure))
    return Arrived(link, header, frames or None)


def _content(
    header: Block,
    frames: Sequence[Any],
    allow_objects: bool,
    lent: tuple[int, ...],
    room: Room | None,
) -> Content:
    if header.first < 0 or not 0 <= header.skip < header.stop <= header.count:
        raise ProtocolError(
            f"impossible numbers: a block of {header.count} elements from "
            f"{header.first} on skips {header.skip} and is cut at {header.cut}"
        )
    arrived = sum(memoryview(frame).nbytes for frame in frames)
    if arrived > header.size:
        raise ProtocolError(
            f"false header: it charges {header.size} bytes of credit for {arrived} bytes"
        )
    if header.failure:
        if header.count != 1:
            raise ProtocolError(f"impossible numbers: a failure stands for {header.count} elements")
        return decode_failure(header.failure)
    block = decode_block(
        header.meta,
        frames,
        max_bytes=header.size,
        allow_objects=allow_objects,
        lent=lent,
        room=room,
    )
    if block.count != header.count:
        raise ProtocolError(
            f"false header: it announces {header.count} elements, and the block contains "
            f"{block.count}"
        )
    return block
