"""Texts that do not pad: arrays of Python's texts or bytes, in place of numpy's own, in
which each text is as wide as the longest.

The form follows from the texts and, where numpy's arrays are joined, from their widths.
So every iterator gives the same form to the same batch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from zmqdata.elements.shapes import without_width

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

MOST_PADDED = 16 << 20
"""Size in bytes up to which texts become a numpy array, whatever they are. Little
memory is lost below it, and numpy compares and sorts its own texts faster.
"""
MOST_PADDING = 8
"""Largest size of a larger numpy array, in sizes of its texts. numpy takes four bytes
for a character of ASCII, so texts of one length stay a numpy array of fixed width.
"""
_WIDTHS = {str: np.dtype("U1").itemsize, bytes: 1}


def pads_too_much(values: Sequence[Any]) -> bool:
    """Return True if values are texts, or bytes, whose array of numpy's would take too
    much memory for them.

    >>> pads_too_much(["a"] * 99 + ["b" * 5_000_000]), pads_too_much(["a", "bcd"])
    (True, False)
    """
    kind = next((kind for kind in _WIDTHS if isinstance(values[0], kind)), None)
    if kind is None:
        return False
    try:
        size = _WIDTHS[kind] * len(values) * max(map(len, values))
    except TypeError:  # a number is among them
        return False
    if size <= MOST_PADDED or not all(issubclass(one, kind) for one in set(map(type, values))):
        return False
    return size > MOST_PADDING * sum(map(_size, values))


def _size(text: Any) -> int:
    if isinstance(text, bytes) or text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


def unpadded(texts: Iterable[Any]) -> Array:
    """Return texts, or bytes, as an array of objects.

    >>> unpadded([b"a", np.bytes_(b"b")]).tolist()
    [b'a', b'b']
    """
    plain = [str.__str__(one) if isinstance(one, str) else b"".join([one]) for one in texts]
    array = np.empty(len(plain), object)
    array[:] = plain
    return array


def array_of_texts(texts: Sequence[Any]) -> Array:
    """Return texts, or bytes, as an array: of numpy's texts, or of Python's if numpy
    would strip a NUL from the end of one, or take too much memory.

    >>> array_of_texts(["a", "bc"]), array_of_texts([b"a", b"b\\0"])
    (array(['a', 'bc'], dtype='<U2'), array([b'a', b'b\\x00'], dtype=object))
    """
    nul = "\0" if isinstance(texts[0], str) else b"\0"
    if any(text[-1:] == nul for text in texts) or pads_too_much(texts):
        return unpadded(texts)
    return np.array(texts)


def pad_too_much(arrays: Sequence[Array]) -> bool:
    """Return True if numpy's array of the texts of several such arrays would take too
    much memory for them. Arrays of one width are not padded.
    """
    widths = {array.dtype.itemsize for array in arrays}
    if len(widths) == 1 or max(widths) * sum(array.size for array in arrays) <= MOST_PADDED:
        return False
    return pads_too_much([text for array in arrays for text in array.reshape(-1).tolist()])


def dtype_in_spec(array: Array) -> np.dtype[Any]:
    """Return the dtype that an array has in a spec. An array of objects that are texts,
    or bytes, has numpy's dtype for them.

    >>> dtype_in_spec(np.array(["a"], object)), dtype_in_spec(np.array(["a", None]))
    (dtype('<U'), dtype('O'))
    """
    if array.dtype.kind == "O" and array.size and type(array.flat[0]) in _WIDTHS:
        kinds = set(map(type, array.reshape(-1).tolist()))
        if len(kinds) == 1:
            return np.dtype(kinds.pop())
    return without_width(array.dtype)


def size_of_texts(leaf: Any) -> int:
    """Return the size of Python's texts, or bytes, in an array; 0 for any other value.

    >>> size_of_texts(np.array(["a" * 1000], object)) > 1000, size_of_texts(np.zeros(9))
    (True, 0)
    """
    is_array = isinstance(leaf, np.ndarray) and leaf.dtype.kind == "O"
    holds_texts = is_array and dtype_in_spec(leaf).kind in "US"
    return sum(map(sys.getsizeof, leaf.flat)) if holds_texts else 0


def dtypes_in_spec(arrays: Iterable[Array]) -> set[np.dtype[Any]]:
    """Return the dtypes that arrays have in specs. An empty array of objects may hold
    texts, so its dtype does not count beside others.

    >>> dtypes_in_spec([np.array(["a"]), np.array(["b"], object), np.array([], object)])
    {dtype('<U')}
    """
    found = {dtype_in_spec(array) for array in arrays if array.size or array.dtype.kind != "O"}
    return found or {np.dtype(object)}
