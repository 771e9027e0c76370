"""Tests of the rows of other libraries' tables, run by ``make test-formats``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset

REASON = "it needs pandas, polars and duckdb; `make test-formats` brings them"
pandas = pytest.importorskip("pandas", reason=REASON)
polars = pytest.importorskip("polars", reason=REASON)
duckdb = pytest.importorskip("duckdb", reason=REASON)

COLUMNS: dict[str, Any] = {"n": [1, 2, 3], "s": ["a", "b", "a"]}


def made(library: str) -> Any:
    if library == "pandas":
        return pandas.DataFrame(COLUMNS)
    if library == "polars":
        return polars.DataFrame(COLUMNS)
    return duckdb.sql("SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'a')) AS t(n, s)")


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_the_rows_of_a_table_are_dicts(library: str) -> None:
    """Each constructor yields the rows, in order, and batches have columns."""
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    for call in Dataset.from_arrow, Dataset.from_source, Dataset.from_tensor_slices:
        assert list(call(made(library))) == rows
    (batch,) = Dataset.from_arrow(made(library), batch_rows=5)
    assert {name: batch[name].tolist() for name in batch} == COLUMNS
    assert sorted(row["n"] for row in Dataset.from_source(made(library), shuffle=True)) == [1, 2, 3]


def test_frames_of_pandas_are_exact() -> None:
    """NaN stays NaN among numpy's floats, pandas.NA is None, a category is its value,
    and an index is a column if it has a name.
    """
    frame = pandas.DataFrame(
        {
            "x": [0.5, np.nan, 1.5],
            "y": pandas.array([0.5, None, 1.5], "Float64"),
            "c": pandas.Categorical(["u", "v", "u"]),
        }
    ).loc[[2, 1]]
    rows = list(Dataset.from_arrow(frame))
    assert [[*row] for row in rows] == [["x", "y", "c"]] * 2
    assert np.isnan(rows[1]["x"])
    assert (rows[1]["y"], rows[1]["c"], rows[0]["c"]) == (None, "v", "u")
    named = frame.set_index(pandas.Index([7, 8], name="number"))
    assert [row["number"] for row in Dataset.from_arrow(named)] == [7, 8]
    with pytest.raises(TypeError, match="Arrow cannot read as a table"):
        Dataset.from_arrow(pandas.DataFrame({"o": [1, "x"]}))


def test_categories_and_views_of_polars_are_texts() -> None:
    """Dictionaries of views, and views, are ``str``, also out of order."""
    texts = ["a", "b", "a", "c"]
    frame = polars.DataFrame({"s": texts, "c": polars.Series(texts, dtype=polars.Categorical)})
    for rows in Dataset.from_arrow(frame), Dataset.from_arrow(frame).shard(2, 1):
        assert all(row["s"] == row["c"] for row in rows)
    assert [row["c"] for row in Dataset.from_arrow(frame)] == texts
    with pytest.raises(TypeError):
        Dataset.from_source(frame.lazy())
