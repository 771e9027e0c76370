"""Frames that lie in several pieces, because nobody has had a reason yet to copy them
into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

GATHER_FROM = 32 * 1024
"""Values of fewer bytes are joined at once, which is faster than to remember where each
of them lies.
"""


class Gathered:
    """The bytes of several buffers, one behind the other. The buffers are not to be
    written to.

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
    """A frame in one piece: itself, unless it is gathered."""
    return b"".join(frame.pieces) if type(frame) is Gathered else frame


def is_joined(frame: Any) -> bool:
    """Whether many small values were copied into it.

    >>> is_joined(memoryview(b"".join([b"ab", b"c"]))), is_joined(memoryview(bytearray(3)))
    (True, False)
    """
    return type(frame) is memoryview and type(frame.obj) is bytes


def pieces_of(frame: Any) -> Sequence[memoryview]:
    """The buffers whose bytes make up a frame."""
    return frame.pieces if type(frame) is Gathered else (memoryview(frame),)
