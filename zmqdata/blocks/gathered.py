"""Frames in several pieces, which avoid a copy until a single buffer is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

GATHER_FROM = 32 * 1024
"""Smaller values are joined at once, which is faster than to remember where each
lies.
"""


class Gathered:
    """The concatenated bytes of several buffers, which must not be written to.

    >>> frame = Gathered([memoryview(b"ab"), memoryview(b"c")])
    >>> len(frame), whole(frame)
    (3, b'abc')
    """

    __slots__ = ("nbytes", "pieces")

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self.pieces = pieces
        self.nbytes = sum(piece.nbytes for piece in pieces)

    def __len__(self) -> int:
        return self.nbytes


Frame: TypeAlias = "bytes | memoryview | Gathered"


def whole(frame: Any) -> Any:
    """Return a frame as a single buffer: the frame itself unless it is gathered."""
    return b"".join(frame.pieces) if type(frame) is Gathered else frame


def is_joined(frame: Any) -> bool:
    """Return True if a frame was joined from many small values.

    >>> is_joined(memoryview(b"".join([b"ab", b"c"])))
    True
    >>> is_joined(memoryview(bytearray(3)))
    False
    """
    return type(frame) is memoryview and type(frame.obj) is bytes


def pieces_of(frame: Any) -> Sequence[memoryview]:
    """Return the buffers that make up a frame."""
    return frame.pieces if type(frame) is Gathered else (memoryview(frame),)
