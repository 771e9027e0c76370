"""Tensors and images of other libraries as numpy arrays.

No library is imported: a tensor is recognised by the protocols of its type
(``__array__``, ``__dlpack__``), an image by ``__array_interface__`` alone. Tables and
data frames are neither, because an array would lose the names of their columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from zmqdata.elements.extensions import extension
from zmqdata.peeking import has

Sort: TypeAlias = Literal["torch", "array", "dlpack", "image", "frame", "scalar", ""]

_TABLES = ("DataFrame", "LazyFrame", "RecordBatch", "Table")
_TABLE_PACKAGES = ("cudf", "dask", "modin", "pandas", "polars", "pyarrow")


def _sort_of(kind: type) -> Sort:
    if issubclass(kind, (np.ndarray, np.generic)) or has(kind, "row_splits"):
        return ""  # a ragged tensor, ours or TensorFlow's, is no array
    bases = [(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__]
    if has(kind, "__dataframe__") or any(
        package in _TABLE_PACKAGES and name in _TABLES for package, name in bases
    ):
        return "frame"
    if ("pyarrow", "Scalar") in bases:
        return "scalar"
    if ("torch", "Tensor") in bases:
        return "torch"
    if has(kind, "__array__"):
        return "array"
    if has(kind, "__dlpack__"):
        return "dlpack"
    is_viewed = has(kind, "__array_interface__") or has(kind, "__array_struct__")
    return "image" if is_viewed else ""


sort_of: Callable[[type], Sort] = lru_cache(maxsize=512)(_sort_of)
"""Returns the way in which values of a type become arrays; "" for values that stay what
they are, and for numpy's own.
"""


def is_tensor(kind: type) -> bool:
    """Return True if values of a type are arrays of another library. A function's
    result of such a type becomes a numpy array.
    """
    return sort_of(kind) in ("torch", "array", "dlpack", "scalar")


def is_stackable(kind: type) -> bool:
    """Return True if values of a type become arrays in batches, in blocks and in specs:
    tensors and images.

    An image stays an image until then, because the functions of image libraries accept
    nothing else.
    """
    return sort_of(kind) not in ("", "frame")


def as_stackable(leaf: Any) -> Any:
    """Return a tensor or image as an array, and any other leaf as it is."""
    return array_of_tensor(leaf) if is_stackable(type(leaf)) else leaf


def array_of_tensor(tensor: Any) -> Any:
    """Return a tensor or image as an array, which may share its memory, or as a numpy
    scalar if it has no axes.

    Raises:
        TypeError: its library gives no array; the text says why, and what to do.
    """
    sort = sort_of(type(tensor))
    try:
        if sort == "scalar":
            # numpy would make the bytes of a text into integers.
            raise TypeError("it is a single value: call .as_py()")
        if sort == "torch":
            array = _array_of_torch(tensor)
        else:
            array = np.from_dlpack(tensor) if sort == "dlpack" else np.asarray(tensor)
            _refuse_nulls(tensor, array)
    except Exception as error:  # the other library's code runs here
        name = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        reason = str(error).rstrip(".") or type(error).__name__
        raise TypeError(
            f"a {name} cannot become a numpy array: {reason}. Elements hold numpy arrays, so "
            "convert it before it becomes a part of an element"
        ) from error
    if not array.ndim:
        return array[()]
    return array if array.flags.writeable else array.copy()


def _refuse_nulls(tensor: Any, array: Any) -> None:
    """Raise an error if missing values among integers became NaN among floats."""
    name = str(getattr(tensor, "type", None) or getattr(tensor, "dtype", "")).lower()
    if array.dtype.kind == "f" and name.startswith(("int", "uint")):
        raise TypeError(
            f"it holds missing values, and numpy would make {array.dtype} of its integers: fill "
            "them, or return a list with None in their place"
        )


def _array_of_torch(tensor: Any) -> Any:
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):
        pass  # it records gradients, is not in main memory, or has a dtype of its own
    if tensor.device.type != "cpu":
        raise TypeError(f"it is on the device {tensor.device}: call .cpu()")
    if tensor.layout is not sys.modules["torch"].strided:
        raise TypeError(f"its layout is {tensor.layout}: call .to_dense()")
    plain = tensor.detach().resolve_conj().resolve_neg()
    name = str(plain.dtype).rpartition(".")[2]
    if name.startswith(("bfloat", "float8")):
        return _array_of_extension(plain, name)
    return plain.numpy()


def _array_of_extension(tensor: Any, name: str) -> Any:
    dtype = extension(name)
    if dtype is None:
        raise TypeError(f"ml_dtypes has no dtype {name}: call .float()")
    torch = sys.modules["torch"]
    raw = tensor.contiguous().view(torch.uint8 if dtype.itemsize == 1 else torch.int16)
    return raw.numpy().view(dtype)
