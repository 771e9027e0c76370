"""Arrays whose items are Python texts, bytes, numbers or None, such as texts that end
with NUL and text of pandas: each as msgpack, so that a reader unpickles nothing.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from zmqdata.errors import ProtocolError

_TYPES = {
    "O": frozenset({str, bytes, int, float, bool, type(None)}),
    "T": frozenset({str}),
    "U": frozenset({bytes}),
}
"""Types of items by the character of the dtype. "U" is an array of objects that are
texts, of which one has half a surrogate pair: each as bytes, because msgpack has only
valid UTF-8.
"""
_MOST_AXES = 30

_decoder = msgspec.msgpack.Decoder(tuple[str, tuple[int, ...], list[Any]])


class PackedItems(bytes):
    """An array as msgpack: the character of its dtype, its shape, and its items."""


def packed_items(array: np.ndarray[Any, Any]) -> PackedItems | None:
    """Return an array with items of these types as msgpack; None for another array.

    >>> unpacked_items(packed_items(np.array(["a", None], object))).tolist()
    ['a', None]
    """
    dtype = array.dtype
    types = None if dtype.char == "U" else _TYPES.get(dtype.char)
    if types is None or (dtype.char == "T" and dtype != np.dtype("T")):
        return None
    items = array.reshape(-1).tolist()
    if not types.issuperset(map(type, items)):
        return None
    try:
        return PackedItems(msgspec.msgpack.encode((dtype.char, array.shape, items)))
    except UnicodeEncodeError:
        if dtype.char != "O" or set(map(type, items)) != {str}:
            return None
        texts = [text.encode("utf-8", "surrogatepass") for text in items]
        return PackedItems(msgspec.msgpack.encode(("U", array.shape, texts)))
    except OverflowError:
        return None  # an int of more than 64 bits


def unpacked_items(row: bytes | memoryview) -> np.ndarray[Any, Any]:
    """Return the array of msgpack that a peer has sent.

    Raises:
        ProtocolError: `packed_items` cannot have written it.
    """
    try:
        char, shape, items = _decoder.decode(row)
        if len(shape) > _MOST_AXES or math.prod(shape) != len(items):
            raise ValueError(f"{len(items)} items do not have the shape {shape[:9]}")
        if not _TYPES.get(char, frozenset()).issuperset(map(type, items)):
            raise ValueError(f"items of another type than dtype {char[:9]!r} holds")
        if char == "U":
            char, items = "O", [str(item, "utf-8", "surrogatepass") for item in items]
        made = np.empty(len(items), char)
        made[:] = items
        return made.reshape(shape)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise ProtocolError(f"a column of items does not decode: {error}") from None
