"""Tests of ``zmqdata.dataset.frames``: data frames and tables as sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from zmqdata.dataset import Dataset


def class_like(module: str, name: str, *methods: str) -> Any:
    """Return an instance of a class with the name and methods of a library's class."""
    made = dict.fromkeys(methods, lambda self, *arguments: None)
    columns = {"__len__": lambda self: 2, "__getitem__": lambda self, key: {"a": 1}[key]}
    return type(name, (), {"__module__": module, **columns, **made})()


FRAME = class_like("pandas", "DataFrame", "iloc", "to_numpy", "__array__", "__iter__")
TABLE = class_like("pyarrow.lib", "Table", "to_pylist", "__array__", "__iter__")
OTHER = class_like("polars.dataframe.frame", "DataFrame", "to_dicts", "__array__", "__iter__")
SERIES = class_like("pandas", "Series", "iloc", "to_numpy", "__iter__")
COLUMN = class_like("pyarrow.lib", "ChunkedArray", "to_pylist", "to_numpy", "__iter__")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (FRAME, r"its columns.*to_dict\(\"list\"\).*frame\.iloc\[i\]"),
        (TABLE, r"its columns.*to_pydict\(\).*to_pylist\(\)"),
        (OTHER, r"its columns.*to_dicts\(\)"),
        (SERIES, r"labels of its index.*to_numpy\(\)"),
        (COLUMN, r"scalars of its library.*to_pylist\(\)"),
    ],
)
def test_sources_whose_index_means_a_column_are_refused(source: Any, text: str) -> None:
    """The error says what an index means there, and which methods give rows."""
    with pytest.raises(TypeError, match=text):
        Dataset.from_source(source)


@pytest.mark.parametrize("frame", [FRAME, TABLE, OTHER])
def test_tables_are_refused_wherever_their_columns_would_get_lost(frame: Any) -> None:
    """Slices would lose the names of columns, and a loop yields columns."""
    with pytest.raises(TypeError, match=r"from_tensor_slices\(\) got a"):
        Dataset.from_tensor_slices({"x": frame})
    with pytest.raises(TypeError, match=r"from_iterable\(\) got a"):
        Dataset.from_iterable(frame)
    with pytest.raises(Exception, match="yield its rows"):
        list(Dataset.from_generator(lambda: frame))


class Table:
    """Table with what Arrow, and what a loop, see of it."""

    columns = ("a",)

    def __arrow_c_stream__(self, requested: object = None) -> object:
        return pa.table({"a": [1, 2]}).__arrow_c_stream__(requested)


def test_tables_that_arrow_reads_are_sources_of_rows() -> None:
    """``from_source`` and ``from_tensor_slices`` yield the rows of a table. Within a
    structure, and in a loop, it is refused with the method that reads it.
    """
    rows = [{"a": 1}, {"a": 2}]
    assert list(Dataset.from_source(Table())) == rows
    assert list(Dataset.from_tensor_slices(Table())) == rows
    assert sorted(row["a"] for row in Dataset.from_source(Table(), shuffle=True, seed=1)) == [1, 2]
    kept = Dataset.from_source(
        pa.table({"a": range(30)}), shuffle=True, reshuffle_each_iteration=False
    )
    assert list(kept) == list(kept) != list(Dataset.from_source(pa.table({"a": range(30)})))
    for call in Dataset.from_iterable, lambda table: Dataset.from_tensor_slices({"x": table}):
        with pytest.raises(TypeError, match=r"pass it to from_arrow\(\), for rows as dicts"):
            call(pa.table({"a": [1]}))


def test_columns_that_arrow_reads_have_no_rows() -> None:
    """A single column is no table."""
    with pytest.raises(TypeError, match=r"scalars of its library.*to_pylist\(\)"):
        Dataset.from_source(pa.chunked_array([[1, 2]]))
    with pytest.raises(TypeError, match="ChunkedArray that Arrow cannot read as a table"):
        Dataset.from_arrow(pa.chunked_array([[1, 2]]))


def test_mappings_are_no_sources() -> None:
    """A mapping is indexed by keys: archives of numpy and files of HDF5, too."""
    from collections import ChainMap

    with pytest.raises(TypeError, match="seq must be an object with __len__"):
        Dataset.from_source(ChainMap({0: 1}))


def test_what_the_errors_advise_works() -> None:
    """Columns as lists give rows as dicts, and arrays rows as arrays."""
    rows = list(Dataset.from_tensor_slices({"a": [1, 2], "b": ["x", "y"]}))
    assert rows[1] == {"a": 2, "b": "y"}
    assert list(Dataset.from_list([{"a": 1}, {"a": 2}])) == [{"a": 1}, {"a": 2}]
    assert [int(x) for x in Dataset.from_source(np.arange(2))] == [0, 1]
