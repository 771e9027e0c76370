"""Tests of ``zmqdata.elements.dates``: dates and durations in lists."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.elements.casting import cast
from zmqdata.elements.dates import as_numpy_date
from zmqdata.elements.lists import array_of

FACTORS = {"D": 86_400 * 10**9, "h": 3600 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
NOON = datetime.datetime(2020, 1, 1, 12)
FAR = np.datetime64("9999-01-01")
EXACT = np.datetime64("2020-01-01", "ns")


def fits(given_items: list[tuple[int, str]]) -> bool:
    """Return True if the finest unit has 64 bits for each item."""
    finest = min(FACTORS[unit] for _, unit in given_items)
    return all(abs(number) * FACTORS[unit] // finest < 2**63 for number, unit in given_items)


class Timestamp(datetime.datetime):
    """A date that counts nanoseconds, as that of pandas."""

    def to_datetime64(self) -> Any:
        return EXACT + 1


@given(
    st.sampled_from([np.datetime64, np.timedelta64]),
    st.lists(
        st.tuples(st.integers(-(2**50), 2**50) | st.integers(-10, 10), st.sampled_from([*FACTORS])),
        min_size=1,
        max_size=4,
    ),
)
def test_mixed_units_keep_their_values_or_are_an_error(
    kind: Any, given_items: list[tuple[int, str]]
) -> None:
    """An array holds equal dates in its unit, or the error names two items."""
    items = [kind(number, unit) for number, unit in given_items]
    try:
        array = array_of(items)
    except ValueError:
        assert not fits(given_items)
        return
    factor = FACTORS[np.datetime_data(array.dtype)[0]]
    assert [number * factor for number in array.astype(np.int64).tolist()] == [
        number * FACTORS[unit] for number, unit in given_items
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([FAR, EXACT], "[D] 9999-01-01 at [0] and the datetime64[ns] 2020-01-01T00:00:00.0"),
        ([[EXACT], [FAR]], "9999-01-01 at [1][0] and the datetime64[ns]"),
        ([np.array([FAR]), np.array([EXACT])], "datetime64[D] and shape (1,) at [0] and an array"),
        ([datetime.datetime(9999, 1, 1), EXACT], "9999-01-01T00:00:00.000000 at [0]"),
        ([np.timedelta64(1, "Y"), np.timedelta64(1, "D")], "1 years at [0] and the timedelta64[D]"),
        ([np.timedelta64(1), np.timedelta64(1, "s")], "generic time units at [0]"),
        ([NOON, np.timedelta64(1, "s")], "keep objects of both"),
        ([NOON.replace(tzinfo=datetime.timezone.utc), EXACT], "has a time zone"),
        ([datetime.timedelta.max, np.timedelta64(1, "s")], "too long for numpy"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_dates_without_a_common_unit_are_an_error(values: list[Any], words: str) -> None:
    """The error names both items, and their units."""
    with pytest.raises(ValueError, match=re.escape(words)):
        array_of(values)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([np.datetime64("NaT"), FAR], "M8[D]"),
        ([np.datetime64("NaT", "ns"), FAR - 2_900_000], "M8[ns]"),
        ([np.timedelta64("NaT"), np.timedelta64(1, "s")], "m8[s]"),
        ([NOON, np.datetime64("2020-01-01")], "M8[us]"),
        ([datetime.date(2020, 1, 1), EXACT], "M8[ns]"),
        ([datetime.timedelta(1), np.timedelta64(1, "ns")], "m8[ns]"),
        ([Timestamp(2020, 1, 1), EXACT], "M8[ns]"),
        ([NOON, datetime.date(2020, 1, 1)], "O"),
        ([None, EXACT], "O"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_dates_with_a_common_unit_make_an_array(values: list[Any], dtype: str) -> None:
    """Python's dates beside those of numpy become those; alone they stay objects. A
    missing date is missing in every unit.
    """
    array = array_of(values)
    assert array.dtype == dtype
    if dtype != "O":
        for found, value in zip(array, map(as_numpy_date, values), strict=True):
            assert found == value or (np.isnat(found) and np.isnat(value))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (datetime.timedelta.max, "m8[us]"),
        (datetime.timedelta(microseconds=1), "m8[s]"),
        ("2020-01-01T10", "M8[D]"),
        ("9999-01-01", "M8[ns]"),
        (NOON, "M8[D]"),
        (datetime.date(9999, 1, 1), "M8[ns]"),
        ([NOON, None, FAR], "M8[ns]"),
    ],
    ids=str,
)
def test_a_declared_unit_keeps_dates(value: Any, dtype: str) -> None:
    """A date that the declared unit would cut or wrap is an error."""
    with pytest.raises(ValueError, match="cannot be represented in dtype"):
        cast(value, np.dtype(dtype))
    assert cast([NOON, None, "2020-01-01T12"], np.dtype("M8[h]")).tolist() == [NOON, None, NOON]
