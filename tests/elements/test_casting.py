"""Tests of ``zmqdata.elements.casting``."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.elements.casting import cast

NOON = np.datetime64("2020-01-01T12")


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, "i4", 1),
        (2**63, "u8", 2**63),
        (2.0, "i4", 2),
        (True, "i4", 1),
        (1, "?", True),
        (0.1, "f4", np.float32(0.1)),
        (float("inf"), "f4", np.inf),
        (1 + 0j, "f8", 1.0),
        (1, "c8", 1 + 0j),
        (Decimal("0.1"), "f8", 0.1),
        ("2020-01-01", "M8[D]", np.datetime64("2020-01-01")),
        (5, "m8[s]", np.timedelta64(5, "s")),
        ("abc", "U", "abc"),
        ([1, 2], "f4", [1.0, 2.0]),
        ([[], []], "i4", [[], []]),
        ([(1, 2.0)], "i4,f8", [(1, 2.0)]),
        (np.zeros(2, "i8,f4"), "i4,f8", [(0, 0.0)] * 2),
        ((1, "ab"), "i4,U2", (1, "ab")),
        (b"ab", "V2", np.void(b"ab")),
    ],
    ids=str,
)
def test_values_in_a_declared_dtype(value: Any, dtype: Any, expected: Any) -> None:
    """Floats are rounded and dates parsed; other values stay equal."""
    made = cast(value, np.dtype(dtype))
    assert made.tolist() == np.asarray(expected, made.dtype).tolist()
    assert made.dtype == dtype or made.dtype.kind in "US"


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (300, "u1"),
        (-1, "u8"),
        (2**63, "i8"),
        (1.5, "i4"),
        (float("nan"), "i4"),
        (2, "?"),
        (1e300, "f4"),
        (2**24 + 1, "f4"),
        (2**53 + 1, "f8"),
        (2**70 + 1, "f8"),
        (10**400, "f8"),
        (1 + 2j, "f8"),
        (70_000, "f2"),
        ("12", "i4"),
        (12, "U"),
        ("\ud800", "S"),
        (b"a", "U"),
        (None, "f8"),
        (Decimal("0.5"), "i8"),
        ("nonsense", "M8[D]"),
        (NOON, "M8[D]"),
        (5, "M8[s]"),
        ([None, 1.0], "f8"),
        (([b"a\0"],), [("a", "S9", (1,))]),
        ("a\0", "U"),
        ((1.5, 2.0), "i4,f8"),
        (np.full(1, 0.5, "f8,f8"), "i4,f8"),
        (1, "i4,f8"),
        ((1,), "i4,f8"),
        ((1, "abc"), "i4,U2"),
        (b"abc", "V2"),
    ],
    ids=str,
)
def test_values_that_a_declared_dtype_would_change(value: Any, dtype: Any) -> None:
    """A value that numpy would wrap, cut, parse or turn into NaN is an error."""
    with pytest.raises(ValueError, match="cannot be represented in dtype"):
        cast(value, np.dtype(dtype))


def test_fields_may_be_arrays() -> None:
    """A list is cast to the array of a field."""
    made = cast(([1, 2.0], 3), np.dtype("2i4,i8"))
    assert made["f0"].tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"list \[1, 2.5\] cannot be represented in dtype int32"):
        cast(([1, 2.5], 3), np.dtype("2i4,i8"))


@given(
    st.integers(-(2**70), 2**70) | st.floats() | st.booleans(),
    st.sampled_from(["?", "i1", "u1", "i4", "u8", "i8", "f2", "f4", "f8", "c8"]),
)
def test_casts_keep_values(value: Any, dtype: str) -> None:
    """A number has an equal number in the declared dtype, a rounded float, or an
    error.
    """
    try:
        made = cast(value, np.dtype(dtype))[()]
    except ValueError:
        return
    rounds = isinstance(value, float) and made.dtype.kind in "fc"
    if rounds:
        assert bool(np.isfinite(made)) == bool(np.isfinite(value))
        assert np.isnan(value) or made == np.asarray(value).astype(dtype)
    else:
        assert made.item() == value
