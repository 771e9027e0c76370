"""Dates and durations in lists, in one unit that keeps each of them.

numpy takes the finest unit of all items. Before numpy 2.5 a date that is out of the
range of that unit becomes another date without a word: the year 9999 has no
nanoseconds. Years and months have no length in days.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from zmqdata.elements.texts import value_text
from zmqdata.peeking import has, peek

Item: TypeAlias = tuple[str, Any]
"""Place and value of an item of a list."""

KINDS = frozenset({np.datetime64, np.timedelta64})
"""numpy's own types of dates and durations."""
_REMEDY = (
    "Convert all items to one unit, with item.astype('datetime64[us]') or "
    "item.astype('timedelta64[s]')"
)


def as_numpy_date(value: Any) -> Any:
    """Return a date or duration of Python or pandas as one of numpy, and any other
    value as it is.

    Raises:
        ValueError: numpy has no equal date: it has a time zone, or is too long.

    >>> import datetime
    >>> as_numpy_date(datetime.date(2026, 1, 2)), as_numpy_date(1)
    (np.datetime64('2026-01-02'), 1)
    """
    if isinstance(value, np.generic):
        return value
    if peek(value, "tzinfo") is not None:
        raise ValueError(
            f"{value_text(value)} has a time zone, which dates of numpy have not. Convert the "
            "dates to UTC, with value.astimezone(timezone.utc).replace(tzinfo=None)"
        )
    for name in ("to_datetime64", "to_timedelta64"):  # pandas counts nanoseconds
        if has(value, name):
            return getattr(value, name)()
    if has(value, "toordinal"):
        return np.datetime64(value)
    if not has(value, "total_seconds"):
        return value
    made = np.timedelta64(value)
    if made.item() != value:  # it has wrapped around
        raise ValueError(
            f"{value_text(value)} is too long for numpy, which counts microseconds in 64 bits. "
            "Give a number of seconds or days instead"
        )
    return made


def check_units(items: Iterable[Item], dtype: np.dtype[Any]) -> None:
    """Raise an error if a date or duration among the items changes in the dtype that
    numpy found for all of them.

    Raises:
        ValueError: one changes; the text names it, and an item of another unit.
    """
    others = [(place, item) for place, item in items if np.asarray(item).dtype != dtype]
    for place, item in others:
        given = np.asarray(item)
        if not _is_exact(given, dtype):
            raise ValueError(
                f"a list with {value_text(item)} at {place}{_beside(items, given.dtype)} cannot "
                f"become an array, because {_fate(given, dtype)} {dtype}, the finest unit of the "
                f"list. {_REMEDY}"
            )


def refuse_overflow(items: Iterable[Item]) -> None:
    """Raise an error that names the date or duration for which numpy raised an
    OverflowError; do nothing if there is none.
    """
    converted = [(place, as_numpy_date(item)) for place, item in items]
    dtypes = [np.asarray(item).dtype for _, item in converted]
    if dtypes and all(dtype.kind in "mM" for dtype in dtypes):
        check_units(converted, np.result_type(*dtypes))


def refuse_units(items: Iterable[Item]) -> None:
    """Raise an error for durations that have no common unit, as a month and a day."""
    (place, item), *_ = items
    raise ValueError(
        f"a list with {value_text(item)} at {place}{_beside(items, np.asarray(item).dtype)} cannot "
        f"become an array, because numpy has no unit for both. {_REMEDY}"
    )


def _beside(items: Iterable[Item], dtype: np.dtype[Any]) -> str:
    for place, item in items:
        if np.asarray(item).dtype != dtype:
            return f" and {value_text(item)} at {place}"
    return ""


def _is_exact(given: Any, dtype: np.dtype[Any]) -> bool:
    missing = np.isnat(given)
    if np.datetime_data(given.dtype)[0] == "generic":
        return bool(missing.all())  # a number without a unit is no duration yet
    try:
        # A value out of range wraps around, and does not come back.
        return bool((missing | (given.astype(dtype).astype(given.dtype) == given)).all())
    except OverflowError:
        return False


def _fate(given: Any, dtype: np.dtype[Any]) -> str:
    try:
        return f"numpy would make {given.astype(dtype)} of it, in"
    except OverflowError:
        return "it is out of the range of"
