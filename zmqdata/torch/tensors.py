"""Arrays of elements as tensors of torch.

The opposite direction needs no torch: ``elements.tensors`` makes arrays of tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from zmqdata.elements.extensions import is_extension
from zmqdata.elements.nesting import map_structure

_DTYPES = frozenset(map(np.dtype, ("?", *"bhilq", *"BHILQ", *"efd", *"FD")))
"""Dtypes of numpy that torch has, too, in the machine's byte order."""
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
        is_large = type(leaf) is int and not -(2**63) <= leaf < 2**63
        return leaf if is_large else torch.tensor(leaf, dtype=dtype)
    if isinstance(leaf, np.generic):
        array, copy = np.asarray(leaf), True
    elif type(leaf) is np.ndarray or isinstance(leaf, np.memmap):
        array = leaf
    else:
        return leaf
    if is_extension(array.dtype):
        return _extended(leaf, array, copy)
    if array.dtype.newbyteorder("=") not in _DTYPES:
        return leaf
    return torch.from_numpy(_usable(array, copy))


def _usable(array: Any, copy: bool) -> Any:
    """Return an array as torch can take it: writable, in the machine's byte order, and
    with strides that are positive multiples of its items' size.
    """
    native = array.dtype.newbyteorder("=")
    if copy or not array.flags.writeable or not array.dtype.isnative:
        return np.array(array, native, order="K", copy=True, subok=False)
    size = array.dtype.itemsize
    return array if all(one >= 0 and not one % size for one in array.strides) else array.copy()


def _extended(leaf: Any, array: Any, copy: bool) -> Any:
    """Return a leaf of a dtype of ``ml_dtypes`` as a tensor, or as it is if torch does
    not compute with the dtype.

    Args:
        leaf: the leaf.
        array: the leaf as an array.
        copy: as for ``tensors_of``.
    """
    dtype = getattr(torch, array.dtype.name, None)
    # Integers of fewer bits than a byte are mere names in torch.
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        return leaf
    plain = np.dtype(f"i{array.dtype.itemsize}")
    array = np.ascontiguousarray(_usable(array, copy)).reshape(array.shape)
    return torch.from_numpy(array.view(plain)).view(dtype)
