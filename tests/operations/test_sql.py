"""Tests of ``zmqdata.operations.sql``."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, plain, run
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import known_spec
from zmqdata.operations.sql import Sql

TYPES = (np.dtype(str), np.dtype("int8"), np.dtype("float32"), np.dtype("S"), np.dtype(bool))


def sql_node(
    folder: Path, rows: list[tuple[Any, ...]], query: str = "SELECT * FROM t", **parameters: Any
) -> Sql:
    name = folder / "with space?.db"
    with closing(sqlite3.connect(name)) as base:
        base.execute("CREATE TABLE t (a, b, c, d, e)")
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        base.commit()
    given = {
        "driver_name": "sqlite",
        "data_source_name": str(name),
        "query": query,
        "output_types": TYPES,
    }
    return Sql(**{**given, **parameters})


def test_rows_have_the_types_that_were_asked_for(tmp_path: Path) -> None:
    """Values are converted to the dtypes, and NULL to an empty value. Restoring runs
    the query again up to its place.
    """
    node = sql_node(
        tmp_path, [("x", 1, 1.5, b"y", 1), (None, None, None, None, None), ("z", -128, 2, "y", 0)]
    )
    assert check_restore(node) == [
        plain(("x", np.int8(1), np.float32(1.5), b"y", np.bool_(True))),
        plain(("", np.int8(0), np.float32(0), b"", np.bool_(False))),
        plain(("z", np.int8(-128), np.float32(2), b"y", np.bool_(False))),
    ]


def test_a_row_of_other_types_fails_alone(tmp_path: Path) -> None:
    """A text or a number too large in an int8 column is the failure of its row."""
    rows = [("x", "one", 0, b"", 1), ("x", 200, 0, b"", 1), ("x", 1, 0, b"", 1)]
    outcomes = check_restore(sql_node(tmp_path, rows))
    assert [outcome[0] for outcome in outcomes] == ["raised", "raised", "tuple"]
    assert "column 1 has the value 'one' of type str, expected int8" in outcomes[0][2]


def test_texts_are_read_as_numbers_where_they_are(tmp_path: Path) -> None:
    """A text that is a number fits a column of numbers."""
    rows = [("x", "12", "1.5", b"", 1), ("x", "1_0", "0", b"", 1), ("x", "1.5", "0", b"", 1)]
    outcomes = check_restore(sql_node(tmp_path, rows))
    assert outcomes[0] == plain(("x", np.int8(12), np.float32(1.5), b"", np.bool_(True)))
    assert [outcome[0] for outcome in outcomes[1:]] == ["raised", "raised"]


def test_a_single_dtype_yields_values(tmp_path: Path) -> None:
    """A dtype instead of a tuple makes each row the value of its only column."""
    node = sql_node(
        tmp_path,
        [("x", 1, 1, b"", 1), ("y", 2, 1, b"", 1)],
        "SELECT b FROM t",
        output_types=np.dtype("int8"),
    )
    assert check_restore(node) == [plain(np.int8(1)), plain(np.int8(2))]
    assert known_spec(node) == TensorSpec((), np.int8)


def open_files(folder: Path) -> list[str]:
    names = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return [name for name in names if name.startswith(str(folder))]


@pytest.mark.parametrize("query", ["SELECT a FROM t", "SELECT z FROM t", "SELECT abs(b), * FROM t"])
def test_an_error_closes_the_connection(tmp_path: Path, query: str) -> None:
    """After an error of the query the database is closed, and not only at the end of
    the iterator.
    """
    iterator = make_iterator(sql_node(tmp_path, [("x", -(2**63), 1, b"", 1)], query), Context())
    with pytest.raises(PipelineError):
        next(iterator)
    assert open_files(tmp_path) == []
    iterator.close()


def test_an_abandoned_iterator_closes_its_connection(tmp_path: Path) -> None:
    """An iterator that is dropped between two rows closes the database."""
    iterator = make_iterator(sql_node(tmp_path, [("x", 1, 1, b"", 1)] * 2), Context())
    next(iterator)
    assert open_files(tmp_path) != []
    del iterator
    assert open_files(tmp_path) == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT a FROM t", r"The number of columns in query \(1\) must match"),
        ("SELECT z FROM t", "no such column"),
        ("DELETE FROM t", "The query writes"),
    ],
)
def test_a_bad_query_is_one_failure(tmp_path: Path, query: str, text: str) -> None:
    """A query that fails, modifies data or returns other columns is a single failure,
    then the end.
    """
    iterator = make_iterator(sql_node(tmp_path, [("x", 1, 1, b"", 1)], query), Context())
    with pytest.raises(PipelineError, match=text) as caught:
        next(iterator)
    assert isinstance(caught.value, InvalidArgumentError) is ("no such" not in text)
    assert list(iterator) == []
    iterator.close()


def test_a_missing_data_base_is_a_failure(tmp_path: Path) -> None:
    """A missing file is not created."""
    node = Sql(
        driver_name="sqlite",
        data_source_name=str(tmp_path / "no.db"),
        query="SELECT 1",
        output_types=(),
    )
    assert [outcome[0] for outcome in run(node)] == ["raised"]
    assert not (tmp_path / "no.db").exists()


def test_restoring_on_another_data_base_is_refused(tmp_path: Path) -> None:
    """A query that returns fewer rows than the state has counted cannot be
    continued.
    """
    node = sql_node(tmp_path, [("x", 1, 1, b"", 1)])
    iterator = make_iterator(node, Context())
    next(iterator)
    with closing(sqlite3.connect(node.data_source_name)) as base:
        base.execute("DELETE FROM t")
        base.commit()
    restored = make_iterator(node, Context())
    with pytest.raises(FailedPreconditionError, match="returns 0 rows now and returned 1"):
        restored.restore(iterator.state())
    iterator.close()


def test_a_missing_data_base_is_named() -> None:
    """The error names the path."""
    types = (np.dtype(int),)
    node = Sql(
        driver_name="sqlite", data_source_name="/nowhere/x", query="SELECT 1", output_types=types
    )
    with pytest.raises(
        PipelineError, match=r"NotFoundError: /nowhere/x: unable to open .* Check the path"
    ):
        next(make_iterator(node, Context()))
