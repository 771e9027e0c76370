"""Tests of ``zmqdata.elements.columns``."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from zmqdata.elements.columns import column_of, in_type, rows_of, stored, widest
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import InvalidArgumentError
from zmqdata.testing.iterators import plain

PAIRS = pa.list_(pa.int8(), 2)
VALUES: dict[str, tuple[Any, list[Any], Any]] = {
    "numbers": (pa.array([1, 2], pa.int16()), [np.int16(1), np.int16(2)], np.array([1, 2], "i2")),
    "halves": (pa.array([1.5], pa.float16()), [np.float16(1.5)], np.array([1.5], "f2")),
    "bools": (pa.array([True]), [np.True_], np.array([True])),
    "texts": (pa.array(["ä", ""]), ["ä", ""], np.array(["ä", ""], object)),
    "bytes": (pa.array([b"a\0"]), [b"a\0"], np.array([b"a\0"], object)),
    "fixed bytes": (pa.array([b"ab"], pa.binary(2)), [b"ab"], np.array([b"ab"], object)),
    "lists": (
        pa.array([[1, 2], []]),
        [np.array([1, 2]), np.array([], int)],
        RaggedTensor([1, 2], [0, 2, 2]),
    ),
    "lists of lists": (
        pa.array([[[1], [2, 3]]]),
        [RaggedTensor([1, 2, 3], [0, 1, 3])],
        RaggedTensor(RaggedTensor([1, 2, 3], [0, 1, 3]), [0, 2]),
    ),
    "fixed lists": (
        pa.array([[1, 2], [3, 4]], PAIRS),
        [np.array([1, 2], "i1"), np.array([3, 4], "i1")],
        np.array([[1, 2], [3, 4]], "i1"),
    ),
    "lists of fixed lists": (
        pa.array([[[1, 2]], []], pa.list_(PAIRS)),
        [np.array([[1, 2]], "i1"), np.zeros((0, 2), "i1")],
        RaggedTensor(np.array([[1, 2]], "i1"), [0, 1, 1]),
    ),
    "structs": (
        pa.array([{"x": 1, "y": ["a"]}]),
        [{"x": np.int64(1), "y": np.array(["a"], object)}],
        {"x": np.array([1]), "y": RaggedTensor(np.array(["a"], object), [0, 1])},
    ),
    "lists of structs": (
        pa.array([[{"x": 1}], []]),
        [{"x": np.array([1])}, {"x": np.array([], int)}],
        {"x": RaggedTensor([1], [0, 1, 1])},
    ),
    "timestamps": (
        pa.array([datetime(2026, 1, 1, 12)], pa.timestamp("ms", "Europe/Berlin")),
        [np.datetime64("2026-01-01T12:00:00.000")],
        np.array(["2026-01-01T12:00:00.000"], "M8[ms]"),
    ),
    "dates": (
        pa.array([date(2026, 1, 1)]),
        [np.datetime64("2026-01-01")],
        np.array(["2026-01-01"], "M8[D]"),
    ),
    "durations": (
        pa.array([timedelta(seconds=1)], pa.duration("s")),
        [np.timedelta64(1, "s")],
        np.array([1], "m8[s]"),
    ),
    "times": (
        pa.array([time(0, 0, 1)], pa.time32("s")),
        [np.timedelta64(1, "s")],
        np.array([1], "m8[s]"),
    ),
}
"""Columns, with their rows and their values in a batch."""


@pytest.mark.parametrize("name", VALUES)
def test_each_type_has_its_values(name: str) -> None:
    """Rows and batches have the values and types of the table of types, also from a
    part of a column.
    """
    array, rows, batch = VALUES[name]
    assert plain(rows_of(array)) == plain(rows)
    assert plain(column_of(array, None, "c")["c"]) == plain(batch)
    twice = pa.concat_arrays([array, array]).slice(len(array))
    assert plain(rows_of(twice)) == plain(rows)
    assert plain(column_of(twice, None, "c")["c"]) == plain(batch)


@pytest.mark.parametrize("name", VALUES)
def test_nulls_are_none_in_rows_and_masked_in_batches(name: str) -> None:
    """A null is None in a row. In a batch it is refused, or a mask tells it."""
    array, rows, _ = VALUES[name]
    with_null = pa.concat_arrays([pa.nulls(1, array.type), array])
    assert plain(rows_of(with_null)) == plain([None, *rows])
    with pytest.raises(InvalidArgumentError, match="'c' has 1 nulls in this batch"):
        column_of(with_null, None, "c")
    masked = column_of(with_null, "mask", "c")
    assert masked["c_valid"].tolist() == [False] + [True] * len(array)
    values = masked["c"] if name not in ("structs", "lists of structs") else masked["c"]["x"]
    assert len(values) == len(array) + 1


def test_a_value_replaces_nulls() -> None:
    """A value stands for nulls, also within lists, where no mask can tell them; a null
    list becomes an empty one.
    """
    numbers = pa.array([1, None], pa.int8())
    assert column_of(numbers, {"n": -1}, "n")["n"].tolist() == [1, -1]
    assert column_of(numbers, {"n": -1}, "n")["n"].dtype == np.int8
    lists = pa.array([[1, None], None])
    assert column_of(lists, {"n": -1}, "n")["n"].to_list() == [[1, -1], []]
    assert column_of(pa.array(["a", None]), {"n": "-"}, "n")["n"].tolist() == ["a", "-"]
    with pytest.raises(InvalidArgumentError, match="within its lists"):
        column_of(lists, "mask", "n")
    with pytest.raises(InvalidArgumentError, match="whose values are of the type str"):
        column_of(pa.array(["a", None]), {"n": 1}, "n")
    with pytest.raises(InvalidArgumentError, match="1 nulls"):
        column_of(numbers, {"m": 1}, "n")
    assert plain(rows_of(lists)) == plain([np.array([np.int64(1), None], object), None])
    assert column_of(pa.nulls(2, pa.string()), "mask", "n")["n"].tolist() == ["", ""]


def test_decimals_are_rows_only() -> None:
    """A decimal is a ``Decimal`` in a row, also in a list, and an error with a remedy
    in a batch.
    """
    array = pa.array([Decimal("1.50"), None])
    assert rows_of(array) == [Decimal("1.50"), None]
    assert rows_of(pa.array([[Decimal("1.50")]]))[0].tolist() == [Decimal("1.50")]
    with pytest.raises(InvalidArgumentError, match="without `batch_rows`"):
        column_of(array.drop_null(), None, "d")


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.string_view(), pa.large_string()),
        (pa.list_view(pa.binary_view()), pa.list_(pa.large_binary())),
        (
            pa.map_(pa.string(), pa.int8()),
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.int8())])),
        ),
        (pa.list_(pa.uuid(), 2), pa.list_(pa.binary(16), 2)),
        (
            pa.struct([("x", pa.large_list(pa.uuid()))]),
            pa.struct([("x", pa.large_list(pa.binary(16)))]),
        ),
    ],
)
def test_types_are_read_as_what_they_store(kind: Any, read: Any) -> None:
    """Views, dictionaries, maps and extension types are read as plain types."""
    assert stored(kind) == read
    assert in_type(pa.nulls(1, kind), read).to_pylist() == [None]


NUMBERS = [[1, 2], None, [], [7], [3, None], [4, 5]]
NESTED: dict[str, tuple[list[Any], Any]] = {
    "views": (NUMBERS, pa.list_view(pa.int32())),
    "large views": (NUMBERS, pa.large_list_view(pa.int32())),
    "views in views": ([[one] for one in NUMBERS], pa.list_view(pa.list_view(pa.int8()))),
    "views in structs": (
        [None, *({"x": one, "y": 1} for one in NUMBERS)],
        pa.struct([("x", pa.list_view(pa.int8())), ("y", pa.int8())]),
    ),
    "views in fixed lists": (
        [None, *([one, [1]] for one in NUMBERS)],
        pa.list_(pa.list_view(pa.int8()), 2),
    ),
    "views in maps": (
        [None, [("a", [1]), ("b", None)], []],
        pa.map_(pa.string(), pa.list_view(pa.int8())),
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_views_are_read_as_lists(name: str) -> None:
    """A part of a column of list views, at any depth, has the values of the column, and
    its lists are valid.
    """
    values, kind = NESTED[name]
    array = pa.array(values, kind)
    pairs = [("key", "value")] if "maps" in name else []
    for part in array, pa.concat_arrays([array[:1], array, array[:1]]).slice(1, len(array)):
        read = in_type(part, stored(kind))
        read.validate(full=True)
        found = read.to_pylist()
        if pairs:
            found = [one and [tuple(pair.values()) for pair in one] for one in found]
        assert found == values
        assert plain(rows_of(read)) == plain(
            [rows_of(read[at : at + 1])[0] for at in range(len(read))]
        )


def test_dictionaries_of_lists_and_structs_are_unpacked() -> None:
    """Values of dictionaries that Arrow cannot unpack are read, at any depth."""
    for values in [[1, 2], []], [{"x": 1}, {"x": None}]:
        indices = pa.array([1, None, 0], pa.int8())
        array = pa.DictionaryArray.from_arrays(indices, pa.array(values))
        assert in_type(array, stored(array.type)).to_pylist() == [values[1], None, values[0]]
        within = pa.StructArray.from_arrays([array], ["d"])
        assert in_type(within, stored(within.type)).field("d").to_pylist()[2] == values[0]


@pytest.mark.parametrize(
    "values",
    [
        [[None], [1, 2], []],
        [[None], [{"a": 1}], [{"a": 2}], [{"a": None}]],
        [[{"a": None, "b": ["x"]}], [{"a": 1, "b": [None]}], [], [None]],
        [[{"a": None, "b": ["x"]}], [{"a": 1, "b": [None]}], []],
        [["x", None], [], ["y"], [None]],
        [[[1, None]], [[1]], [None, [1]]],
        [{"x": [None]}, {"x": [1]}],
    ],
    ids=str,
)
def test_a_row_has_its_type_whatever_its_neighbours_are(values: list[Any]) -> None:
    """Nulls in a list make no difference to the lists of other rows."""
    array = pa.array(values)
    alone = [rows_of(array[at : at + 1])[0] for at in range(len(values))]
    assert plain(rows_of(array)) == plain(alone)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([pa.int8(), pa.int64(), pa.int16()], pa.int64()),
        ([pa.int8(), pa.uint8()], pa.int16()),
        ([pa.int8(), pa.uint64()], None),
        ([pa.int32(), pa.float32()], pa.float64()),
        ([pa.int16(), pa.float32()], pa.float32()),
        ([pa.uint32(), pa.int32(), pa.float32()], pa.float64()),
        ([pa.int64(), pa.float64()], None),
        ([pa.null(), pa.string()], pa.string()),
        ([pa.string(), pa.large_string()], pa.large_string()),
        ([pa.string(), pa.binary()], None),
        ([pa.list_(pa.int8()), pa.large_list(pa.int16())], pa.large_list(pa.int16())),
        ([PAIRS, pa.list_(pa.int8(), 3)], None),
        ([PAIRS, pa.list_(pa.int16(), 2)], pa.list_(pa.int16(), 2)),
        (
            [pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int16())])],
            pa.struct([("x", pa.int16())]),
        ),
        ([pa.struct([("x", pa.int8())]), pa.struct([("y", pa.int8())])], None),
        ([pa.timestamp("ms"), pa.timestamp("us")], None),
        ([], pa.null()),
    ],
)
def test_the_widest_type_holds_all(kinds: list[Any], expected: Any) -> None:
    """The type in which several files are read is exact, in whatever order they
    come.
    """
    assert {widest(some) for some in permutations(kinds)} == {expected}
