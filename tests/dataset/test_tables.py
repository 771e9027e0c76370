"""Tests of ``zmqdata.dataset.tables``."""

from __future__ import annotations

import gzip
import importlib
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.objectstore import object_store
from zmqdata.dataset import Dataset, TextLineDataset, tables
from zmqdata.errors import (
    DataLossError,
    InvalidArgumentError,
    NoFilesMatchedError,
    NotFoundError,
)


def write(path: Path, **columns: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"n": [1, 2]}), path)
    return str(path)


def count(paths: Any, **options: Any) -> int:
    return len(list(Dataset.from_parquet(paths, **options)))


def test_files_come_by_name_pattern_folder_and_list(tmp_path: Path) -> None:
    """Each form finds the files; a folder leaves out marks of writers and what they
    have not finished.
    """
    names = ["a.parquet", "b c#%.parquet", "ü/d[1].parquet", "x.parquet/part-0.parquet"]
    paths = [write(tmp_path / name) for name in names]
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.parquet.crc").touch()
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "half.parquet").write_bytes(b"PAR1")
    assert [count(path) for path in paths] == [2] * 4
    assert count(paths) == count(tmp_path) == count(f"{tmp_path}/") == 8
    assert count(f"{tmp_path}/**/*.parquet", on_error="skip") == 8
    assert count(tmp_path / "*.parquet") == count([tmp_path / "ü", tmp_path / "a.parquet"]) == 4
    assert count(f"file://{tmp_path}/a.parquet") == 2


@pytest.mark.parametrize("path", ["absent.parquet", "*.csv", "empty", "?/x"])
def test_paths_without_files_are_refused(tmp_path: Path, path: str) -> None:
    """A name, pattern or folder without files is an error that names it."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoFilesMatchedError, match=r"from_parquet.*Pass the name of a file"):
        Dataset.from_parquet([write(tmp_path / "a.parquet"), tmp_path / path])
    with pytest.raises(NoFilesMatchedError, match="no paths"):
        Dataset.from_parquet([])


def test_bad_files_are_refused_when_the_dataset_is_made(tmp_path: Path) -> None:
    """Damaged files, and one that differs, are errors that name the file, unless they
    are left out; all of them cannot be.
    """
    paths = [write(tmp_path / f"{number}.parquet") for number in range(3)]
    third = Path(paths[2])
    third.write_bytes(third.read_bytes()[:-30])
    with pytest.raises(DataLossError, match=r"2\.parquet begins as a Parquet file"):
        Dataset.from_parquet(paths)
    assert count(paths, on_error="skip") == 4
    with pytest.raises(DataLossError, match=r"2\.parquet"):
        Dataset.from_parquet(third, on_error="skip")
    third.write_text("n,m")
    with pytest.raises(InvalidArgumentError, match=r"2\.parquet is not a Parquet file"):
        Dataset.from_parquet(paths)
    write(third, n=["a"])
    with pytest.raises(InvalidArgumentError, match=r"type int64 in .*0\.parquet and string in"):
        Dataset.from_parquet(paths)
    write(third, m=[1])
    with pytest.raises(InvalidArgumentError, match=r"2\.parquet lacks the column 'n'"):
        Dataset.from_parquet(paths)
    rows = list(Dataset.from_parquet(paths, schema="union"))
    assert rows[0] == {"n": 1, "m": None}
    assert rows[-1] == {"n": None, "m": 1}


def test_files_without_rows_have_none(tmp_path: Path) -> None:
    """A file without rows, or row groups, adds nothing, and alone is an empty
    dataset.
    """
    empty = write(tmp_path / "a", n=pa.array([], pa.int64()))
    assert count(empty) == Dataset.from_parquet(empty).cardinality() == 0
    assert count(empty, shuffle=True) == count(empty, split="file") == 0
    assert count([empty, write(tmp_path / "b")], shuffle=True) == 2


def test_types_are_read_as_the_widest_of_all_files(tmp_path: Path) -> None:
    """Each element has the widest type, whichever file comes first."""
    paths = [
        write(tmp_path / "a", n=pa.array([1], pa.int32()), s=pa.nulls(1)),
        write(tmp_path / "b", s=["x"], n=np.array([0.5], np.float32)),
    ]
    for order in paths, paths[::-1]:
        batches = list(Dataset.from_parquet(order, batch_rows=1, nulls={"s": "-"}))
        assert {batch["n"].dtype for batch in batches} == {np.dtype(np.float64)}
        assert sorted(batch["s"][0] for batch in batches) == ["-", "x"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"columns": ["x"]}, "No file has a column 'x'"),
        ({"columns": []}, "at least one column"),
        ({"columns": ["n", "n"]}, "each once"),
        ({"columns": "n"}, "`?columns`? must be a list of names"),
        ({"columns": [1]}, "`?columns`? must be a list of names"),
        ({"filters": [("x", ">", 1)]}, "`filters`"),
        ({"nulls": "mask"}, "`nulls` without `batch_rows`"),
        ({"nulls": "all", "batch_rows": 1}, "nulls"),
        ({"nulls": {"x": 1}, "batch_rows": 1}, "column 'x'"),
        ({"nulls": {"n": "a"}, "batch_rows": 1}, "does not fit 'n'"),
        ({"nulls": "mask", "batch_rows": 1}, "'n_valid' beside 'n', and this name is taken"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"schema": "last"}, "schema"),
        ({"split": "row"}, "split"),
        ({"split": "file", "schema": "union"}, "opens only the first"),
        ({"on_error": "retry"}, "on_error"),
        ({"open_splits": 0}, "open_splits"),
        ({"seed": 1}, "without shuffle=True"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    """An argument that cannot work is an error at the call, which says why."""
    path = write(tmp_path / "f", n=[1], n_valid=[True])
    with pytest.raises((ValueError, TypeError), match=text):
        Dataset.from_parquet(path, **options)


def test_two_columns_of_one_name_are_refused_if_they_are_read(tmp_path: Path) -> None:
    """Such columns are an error, and others of the file can be read."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["n", "n", "m"])
    pq.write_table(table, tmp_path / "f")
    with pytest.raises(InvalidArgumentError, match="2 columns of the name 'n'"):
        Dataset.from_parquet(tmp_path / "f")
    assert list(Dataset.from_parquet(tmp_path / "f", columns=["m"])) == [{"m": 3}]


def test_large_row_groups_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning names the largest row group beyond the limit, its file and the
    remedy.
    """
    monkeypatch.setattr(tables, "_LARGE", 10)
    with pytest.warns(UserWarning, match=r"row group 0 of .*/f has .* smaller row groups"):
        Dataset.from_parquet(write(tmp_path / "f"))


def test_pyarrow_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call says which extra brings pyarrow."""
    monkeypatch.setitem(sys.modules, "zmqdata.storage.parquet", None)
    monkeypatch.delattr("zmqdata.storage.parquet", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'zmqdata\[parquet\]'"):
        Dataset.from_parquet("f")


def test_json_lines_come_by_name_pattern_folder_and_list(tmp_path: Path) -> None:
    """Each form finds the files; a folder has those with known endings."""
    for name in ("a.jsonl", "b ü#.ndjson", "c/d.jsonl.gz", "e.txt", "_t/f.jsonl", ".g.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(b"1") if name.endswith(".gz") else b"1\n2")
    (tmp_path / "h.jsonl").touch()

    def count(paths: Any) -> int:
        return len(list(Dataset.from_jsonl(paths)))

    assert count(tmp_path) == 5
    assert count(tmp_path / "*.txt") == count([tmp_path / "a.jsonl"]) == 2
    assert count(tmp_path / "h.jsonl") == 0
    with pytest.raises(NoFilesMatchedError, match=r"from_jsonl\(\): .*\*\.jsonl"):
        count(tmp_path / "absent.jsonl")


def test_the_compression_can_be_given(tmp_path: Path) -> None:
    """A given compression is that of all files, whatever their names; without one, the
    name counts more than the content.
    """
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"1\n2")
    assert list(Dataset.from_jsonl(path, compression=None)) == [1, 2]
    with pytest.raises(DataLossError, match="cannot be unpacked as GZIP"):
        list(Dataset.from_jsonl(path))
    path.write_bytes(zlib.compress(b"3"))
    assert list(Dataset.from_jsonl(path, compression="ZLIB")) == [3]


def test_files_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    """An absent object is an error when the dataset is made, unless it is left out."""
    (tmp_path / "a.jsonl").write_text("1")
    with object_store() as store:
        paths = [store.url("/b.jsonl"), str(tmp_path / "a.jsonl")]
        with pytest.raises(NotFoundError, match=r"b\.jsonl"):
            Dataset.from_jsonl(paths)
        iterator = iter(Dataset.from_jsonl(paths, on_error="skip"))
        assert list(iterator) == [1]
        assert "/b.jsonl" in iterator.quarantine[0].error


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"columns": []}, "at least one column"),
        ({"compression": "gzip"}, 'compression must be "infer" or None or "GZIP"'),
        ({"batch_rows": 0}, "batch_rows"),
        ({"on_error": "retry"}, "on_error"),
        ({"open_splits": 0}, "open_splits"),
        ({"seed": 1}, r"from_jsonl\(\) got seed 1 without shuffle=True"),
        ({"storage_options": 1}, "storage_options"),
    ],
    ids=str,
)
def test_bad_arguments_of_json_lines_are_refused(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    """An argument that cannot work is an error at the call, which says why."""
    (tmp_path / "f").write_text("1")
    with pytest.raises((ValueError, TypeError), match=text):
        Dataset.from_jsonl(tmp_path / "f", **options)


def test_zstandard_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call says which extra brings zstandard, for each source of packed files."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "f.jsonl.zst").touch()
    remedy = r"pip install 'zmqdata\[zstd\]'"
    with pytest.raises(ImportError, match=remedy):
        Dataset.from_jsonl(tmp_path)
    with pytest.raises(ImportError, match=remedy):
        TextLineDataset("f", "ZSTD")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nulls": "mask"}, r"from_arrow\(\) got `nulls` without `batch_rows`"),
        ({"nulls": "all", "batch_rows": 1}, "nulls"),
        ({"nulls": {"x": 1}, "batch_rows": 1}, "column 'x'"),
        ({"nulls": {"n": "a"}, "batch_rows": 1}, "does not fit 'n'"),
        ({"nulls": "mask", "batch_rows": 1}, "'n_valid'"),
        ({"batch_rows": 0}, "batch_rows"),
    ],
    ids=str,
)
def test_bad_arguments_of_tables_are_refused(options: dict[str, Any], text: str) -> None:
    """An argument that cannot work is an error at the call, which says why."""
    table = pa.table({"n": [1], "n_valid": [True]})
    with pytest.raises((ValueError, TypeError), match=text):
        Dataset.from_arrow(table, **options)


def test_tables_need_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that reads a table says which extra brings pyarrow."""
    importlib.import_module("zmqdata.operations.arrow")  # the package has it once loaded
    monkeypatch.setitem(sys.modules, "zmqdata.operations.arrow", None)
    monkeypatch.delattr("zmqdata.operations.arrow", raising=False)
    for call in Dataset.from_arrow, Dataset.from_source, Dataset.from_tensor_slices:
        with pytest.raises(ImportError, match=r"pip install 'zmqdata\[parquet\]'"):
            call(pa.table({"n": [1]}))
