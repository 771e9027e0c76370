"""Values and dtypes as errors show them."""

from __future__ import annotations

from typing import Any

import numpy as np

_LONGEST = 60


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return what an array of a dtype holds.

    >>> dtype_text(np.dtype("U3")), dtype_text(np.dtype("f4"))
    ('texts', 'values of dtype float32')
    """
    kinds = {"U": "texts", "S": "bytes"}
    return kinds.get(dtype.kind, f"values of dtype {dtype}")


def value_text(value: Any) -> str:
    """Return a value, shortened, and its type.

    >>> value_text("a"), value_text(np.int8(1))
    ("the str 'a'", 'the int8 1')
    """
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    text = (str(value) if isinstance(value, np.generic) else repr(value)).split("\n")[0]
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    name = value.dtype if isinstance(value, (np.datetime64, np.timedelta64)) else type(value)
    return f"the {getattr(name, '__name__', name)} {text}"
