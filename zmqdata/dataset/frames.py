"""Data frames and tables where an index would mean a column or a label: which of them
have rows that Arrow can read, and refusal of the others.

No library is imported; a frame is recognised by its type (``elements.tensors``).
"""

from __future__ import annotations

from typing import Any

from zmqdata.elements.tensors import sort_of


def is_table(value: Any) -> bool:
    """Return True if Arrow can read the rows of a data frame or table, which has
    columns; False for a single column.
    """
    kind = type(value)
    return hasattr(kind, "__arrow_c_stream__") and (
        hasattr(kind, "columns") or hasattr(kind, "schema")
    )


def refuse_frame(name: str, value: Any, by_index: bool = False) -> None:
    """Raise an error if a source is a data frame, a table, or a column of one whose
    items are not values.

    Args:
        name: the constructor that got it.
        value: the source.
        by_index: True if its items are taken by index.

    Raises:
        TypeError: it is one; the text names the methods that give rows or arrays.
    """
    kind = type(value)
    has_labels, has_list = hasattr(kind, "iloc"), hasattr(kind, "to_pylist")
    if is_table(value):
        what, remedy = "its columns", "pass it to from_arrow(), for rows as dicts"
    elif sort_of(kind) == "frame":
        what, remedy = "its columns", _FRAME if has_labels else _TABLE if has_list else _OTHER
    elif by_index and has_labels and hasattr(kind, "to_numpy"):
        what, remedy = "labels of its index", _SERIES
    elif has_list and hasattr(kind, "to_numpy"):
        what, remedy = "scalars of its library", _COLUMN
    else:
        return
    raise TypeError(
        f"{name} got a {kind.__module__}.{kind.__qualname__}, where an index or a loop means "
        f"{what}, not rows of values: {remedy}"
    )


_FRAME = (
    'pass frame.to_dict("list") to from_tensor_slices() for rows as dicts, frame.to_numpy() for '
    "rows as arrays, or to from_source() an object whose __getitem__(i) returns frame.iloc[i]"
)
_TABLE = (
    "pass table.to_pydict() to from_tensor_slices(), or table.to_pylist() to from_list(), for rows "
    "as dicts"
)
_OTHER = (
    "pass its columns as a dict of arrays to from_tensor_slices(), such as "
    "frame.to_dict(as_series=False), or its rows to from_list(), such as frame.to_dicts()"
)
_SERIES = "pass series.to_numpy(), or an object whose __getitem__(i) returns series.iloc[i]"
_COLUMN = "pass column.to_numpy() or column.to_pylist()"
