"""What arrives on a link, from frames to elements. A worker's bytes are hostile until they have been through here."""

from __future__ import annotations

from collections.abc import Sequence

from zmqdata import wire
from zmqdata.blocks import DecodedBlock, ReferencedBlock, decode_block
from zmqdata.commands import Arrived, Finish
from zmqdata.errors import (
    DataLossError,
    DataServiceError,
    FailedPreconditionError,
    MissingClassError,
    ProtocolError,
)
from zmqdata.failures import decode_failure
from zmqdata.messages import Block, OnLink

CORRUPT_LIMIT = 3

Content = DecodedBlock | DataServiceError | None


def decode_message(frames: Sequence[bytes | memoryview], *, allow_objects: bool = True) -> tuple[OnLink, Content]:
    """The header of a message, and its content: a block, the failure that stands for an element, or nothing.

    Args:
        frames: as received.
        allow_objects: whether leaves that are Python objects are unpickled; without it they are an error.

    Raises:
        ProtocolError: anything is wrong with it, and nothing but that.
    """
    if not frames:
        raise ProtocolError("empty message: not even a header")
    header = wire.on_link.header(frames[0])
    if not isinstance(header, Block):
        return header, None
    return header, _content(header, frames[1:], allow_objects)


def hopeless(error: ProtocolError, count: int) -> Finish | None:
    """How an iteration ends that has got so many messages in a row which could not be read; None: ask again."""
    if isinstance(error, MissingClassError):  # the same bytes would name it the next time
        return Finish(FailedPreconditionError.__name__, str(error))
    if count > CORRUPT_LIMIT:
        return Finish(DataLossError.__name__, f"A worker goes on sending what cannot be decoded: {error}")
    return None


def referred(link: str, header: OnLink, frames: ReferencedBlock | tuple[()]) -> Arrived:
    """A message that came within this process, where nothing but failures is encoded."""
    if isinstance(header, Block) and header.failure:
        return Arrived(link, header, decode_failure(header.failure))
    return Arrived(link, header, frames or None)


def _content(header: Block, frames: Sequence[bytes | memoryview], allow_objects: bool) -> Content:
    if header.first < 0 or not 0 <= header.skip < header.count:
        raise ProtocolError(f"impossible numbers: block of {header.count} from {header.first} less {header.skip}")
    arrived = sum(memoryview(frame).nbytes for frame in frames)
    if arrived > header.size:
        raise ProtocolError(f"lying header: charges {header.size} bytes of credit for {arrived}")
    if header.failure:
        if header.count != 1:
            raise ProtocolError(f"impossible numbers: one failure in place of {header.count} elements")
        return decode_failure(header.failure)
    block = decode_block(header.meta, frames, max_bytes=header.size, allow_objects=allow_objects)
    if block.count != header.count:
        raise ProtocolError(f"lying header: says {header.count} elements, holds {block.count}")
    return block
