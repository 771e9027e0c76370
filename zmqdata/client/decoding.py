"""What arrives on a link, from frames to elements. A worker's bytes are hostile until
they have been through here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optree

from zmqdata import wire
from zmqdata.blocks import DecodedBlock, ReferencedBlock, Room, decode_block, refused_object
from zmqdata.core.client.events import Arrived, Finish
from zmqdata.elements.specs import is_list
from zmqdata.errors import (
    DataLossError,
    DataServiceError,
    FailedPreconditionError,
    MissingClassError,
    ObjectsRefusedError,
    ProtocolError,
)
from zmqdata.failures.codec import decode_failure
from zmqdata.messages import Block, OnLink, Slot
from zmqdata.transport.memory import MappedMemory, aligned

CORRUPT_LIMIT = 3

Content = DecodedBlock | DataServiceError | None


def decode_message(
    frames: Sequence[bytes | memoryview],
    memory: MappedMemory | None = None,
    *,
    allow_objects: bool = True,
    room: Room | None = None,
) -> tuple[OnLink, Content]:
    """The header of a message, and its content: a block, the failure that stands for an
    element, or nothing.

    Args:
        frames: as received.
        memory: what the link shares with its worker.
        allow_objects: whether leaves that are Python objects are unpickled; without it
            they are an error.
        room: gives memory for large arrays; None: fresh memory.

    Raises:
        ObjectsRefusedError: there are such leaves.
        ProtocolError: anything is wrong with it, and nothing but that.
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
    """All frames of a block some of which lie in a slot, and the numbers of those."""
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
    """How an iteration ends that has got so many messages in a row which could not be
    read; None: ask again.
    """
    if isinstance(
        error, MissingClassError | ObjectsRefusedError
    ):  # the same bytes would come the next time
        return Finish(FailedPreconditionError.__name__, str(error))
    if count > CORRUPT_LIMIT:
        return Finish(
            DataLossError.__name__, f"A worker goes on sending what cannot be decoded: {error}"
        )
    return None


def check_spec_without_objects(spec: Any) -> None:
    """Refuses elements that are known to have leaves which only pickle carries; None:
    nothing is known.

    A single object may be None or a dataclass, which travel without: of those the first
    block tells.

    Raises:
        FailedPreconditionError: there is such a leaf; the text says where.
    """
    if spec is None:
        return
    accessors = optree.tree_accessors(spec, is_leaf=is_list, none_is_leaf=True)
    for accessor, leaf in zip(
        accessors, optree.tree_leaves(spec, is_leaf=is_list, none_is_leaf=True), strict=True
    ):
        if leaf.dtype.hasobject and leaf.shape:
            raise FailedPreconditionError(refused_object(accessor.codify("element")))


def referred(link: str, header: OnLink, frames: ReferencedBlock | tuple[()]) -> Arrived:
    """A message that came within this process, where nothing but failures is
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
    if header.first < 0 or not 0 <= header.skip < header.count:
        raise ProtocolError(
            f"impossible numbers: block of {header.count} from {header.first} less {header.skip}"
        )
    arrived = sum(memoryview(frame).nbytes for frame in frames)
    if arrived > header.size:
        raise ProtocolError(f"lying header: charges {header.size} bytes of credit for {arrived}")
    if header.failure:
        if header.count != 1:
            raise ProtocolError(
                f"impossible numbers: one failure in place of {header.count} elements"
            )
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
        raise ProtocolError(f"lying header: says {header.count} elements, holds {block.count}")
    return block
