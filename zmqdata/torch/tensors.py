"""Arrays of elements as tensors of torch.

The opposite direction needs no torch: ``elements.tensors`` makes arrays of tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from zmqdata.elements.extensions import is_extension
from zmqdata.elements.nesting import map_structure

_KINDS = frozenset("biufc")
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def tensors_of(element: Any, *, copy: bool = False) -> Any:
    """Return an element with tensors in place of its arrays and numbers, in the same
    nesting. Texts, dates and objects stay what they are.

    Args:
        element: the element.
        copy: True if the arrays may not be written to by anyone else's reader, so that
            each tensor gets memory of its own. False: a tensor shares the memory of an
            array that can be written to.

    >>> tensors_of({"x": np.zeros(2, np.float32), "name": "a"})
    {'x': tensor([0., 0.]), 'name': 'a'}
    """
    return map_structure(lambda leaf: tensor_of(leaf, copy=copy), element)


def tensor_of(leaf: Any, *, copy: bool = False) -> Any:
    """Return a leaf of an element as a tensor, or as it is if torch has no tensor for
    it.

    Args:
        leaf: the leaf.
        copy: as for ``tensors_of``.

    >>> tensor_of(np.int16(3)), tensor_of("text")
    (tensor(3, dtype=torch.int16), 'text')
    """
    dtype = _NUMBERS.get(type(leaf))
    if dtype is not None:
        return (
            leaf
            if type(leaf) is int and leaf.bit_length() > 63
            else torch.tensor(leaf, dtype=dtype)
        )
    if isinstance(leaf, np.generic):
        leaf, copy = np.asarray(leaf), True
    if type(leaf) is not np.ndarray and not isinstance(leaf, np.memmap):
        return leaf
    if is_extension(leaf.dtype):
        return _extended(leaf, copy)
    if leaf.dtype.kind not in _KINDS or leaf.dtype.itemsize > 16 or leaf.dtype == np.float128:
        return leaf
    return torch.from_numpy(_usable(leaf, copy))


def _usable(array: Any, copy: bool) -> Any:
    """Return an array as torch can take it: writable, in the machine's byte order, and
    without negative strides.
    """
    native = array.dtype.newbyteorder("=")
    if copy or not array.flags.writeable or not array.dtype.isnative:
        return np.array(array, native, order="K", copy=True, subok=False)
    return array if min(array.strides, default=0) >= 0 else array.copy()


def _extended(array: Any, copy: bool) -> Any:
    """Return an array of a dtype of ``ml_dtypes`` as a tensor, or as it is if torch
    lacks the dtype.
    """
    dtype = getattr(torch, array.dtype.name, None)
    if not isinstance(dtype, torch.dtype):
        return array
    plain = np.dtype(f"i{array.dtype.itemsize}")
    array = np.ascontiguousarray(_usable(array, copy)).reshape(array.shape)
    return torch.from_numpy(array.view(plain)).view(dtype)
