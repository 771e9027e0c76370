"""Arrays of subclasses of ``ndarray``, such as rows of memory maps, as plain arrays.

A function may return such an array, and the next function gets it unchanged. Batches,
ragged tensors and slices hold plain arrays, as their specs say. A mask would get lost
there, so a masked array is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

KEEP_MASK = (
    "Use `array.data` and `np.ma.getmaskarray(array)` as two arrays, or replace the masked "
    "values with `array.filled(value)`"
)


def is_masked(value: Any) -> bool:
    """Return True for a masked array, also if no value of it is masked."""
    return isinstance(value, np.ma.MaskedArray)


def plain_array(value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return an array, which shares its memory, or a scalar as a plain array.

    Raises:
        TypeError: it is a masked array; the text says how to keep the mask.

    >>> type(plain_array(np.recarray(2, "i4"))).__name__
    'ndarray'
    """
    if type(value) is np.ndarray:
        return value
    if is_masked(value):
        raise TypeError(f"a masked array would lose its mask. {KEEP_MASK}")
    return np.asarray(value)
