"""Tests of ``zmqdata.dataset.readers``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import (
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    SqlDataset,
    TextLineDataset,
    TFRecordDataset,
)
from zmqdata.elements.specs import AUTOTUNE, TensorSpec
from zmqdata.errors import InvalidArgumentError, PipelineError, UnimplementedError
from zmqdata.nodes.parts import split_sources
from zmqdata.splits import IndexSplits
from zmqdata.storage.records import TFRecordWriter


def test_files_are_named_by_a_dataset_too(tmp_path: Path) -> None:
    """A dataset of names is read file by file, with the same settings."""
    with TFRecordWriter(tmp_path / "r", "GZIP") as writer:
        writer.write(b"ab")
    names = Dataset.list_files(str(tmp_path / "*"))
    assert list(TFRecordDataset(names, "GZIP", 100)) == [b"ab"]
    (tmp_path / "r").write_bytes(b"Habcdf")
    assert list(FixedLengthRecordDataset(names, 2, 1, 1)) == [b"ab", b"cd"]
    assert list(TextLineDataset(names, buffer_size=1)) == ["Habcdf"]


def test_names_come_out_of_pipelines_as_bytes(tmp_path: Path) -> None:
    """A name that a pipeline yields as bytes is opened by every operation that takes
    names.
    """
    name, folder = str(tmp_path / "a").encode(), str(tmp_path / "saved").encode()
    with TFRecordWriter(name) as writer:
        writer.write(b"ab")
    names = Dataset.from_tensor_slices(np.array([name]))
    assert list(names.interleave(TFRecordDataset, cycle_length=1)) == [b"ab"]
    assert list(TFRecordDataset(names)) == list(TFRecordDataset(names, num_parallel_reads=1))
    assert list(TFRecordDataset(name)) == list(TFRecordDataset([name])) == [b"ab"]
    assert list(Dataset.list_files(name)) == [name.decode()]
    Dataset.range(2).save(folder)
    assert list(Dataset.load(folder)) == [0, 1]
    assert list(Dataset.range(2).cache(name + b"-cache").snapshot(name + b"-snapshot")) == [0, 1]
    iterator = iter(Dataset.range(2))
    next(iterator)
    iterator.save(name + b"-state")
    iterator.restore(name + b"-state")
    assert list(iterator) == [1]


@pytest.mark.parametrize("named", [list, lambda names: Dataset.from_tensor_slices(names)])
def test_files_are_read_in_parallel(tmp_path: Path, named: Callable[[list[str]], Any]) -> None:
    """``num_parallel_reads`` reads that number of files in turn, from any source of
    names, and each file stays a split.
    """
    names = [str(tmp_path / str(place)) for place in range(3)]
    for place, name in enumerate(names):
        Path(name).write_text("".join(f"{place}{line}\n" for line in range(place + 2)))
    lines = TextLineDataset(named(names), num_parallel_reads=2)
    assert list(lines) == ["00", "10", "01", "11", "12", "20", "21", "22", "23"]
    assert list(TextLineDataset(named(names), num_parallel_reads=AUTOTUNE))[:4] == [
        "00",
        "10",
        "20",
        "01",
    ]
    assert list(FixedLengthRecordDataset(named(names[:2]), 3, num_parallel_reads=1))[:3] == [
        b"00\n",
        b"01\n",
        b"10\n",
    ]
    assert split_sources(lines.node) == [IndexSplits(3)]
    with TFRecordWriter(names[0]) as writer:
        writer.write(b"ab")
    assert list(TFRecordDataset(named(names[:1]), num_parallel_reads=2)) == [b"ab"]
    with pytest.raises(
        ValueError, match="num_parallel_reads must be at least 1, AUTOTUNE or None, got 0"
    ):
        TextLineDataset(names, num_parallel_reads=0)


def test_what_can_be_split_and_what_not() -> None:
    """Record files are split by file. CSV and SQL name themselves in the error that
    they cannot be split.
    """
    for made in (TFRecordDataset(["a", "b"]), FixedLengthRecordDataset(["a", "b"], 3)):
        assert split_sources(made.node) == [IndexSplits(2)]
        assert made.element_spec == TensorSpec((), np.bytes_)
        assert "('/" in made.node.label
        assert "..." in made.node.label
    with pytest.raises(
        UnimplementedError, match="Cannot create split providers for dataset of type CsvDataset"
    ):
        split_sources(CsvDataset("a", [0]).map(int).node)
    with pytest.raises(
        UnimplementedError, match="Cannot create split providers for dataset of type SqlDataset"
    ):
        split_sources(SqlDataset("sqlite", "a", "SELECT 1", (int,)).node)


def test_specs_of_columns(tmp_path: Path) -> None:
    """Columns have the dtypes of their defaults or the given dtypes."""
    spec = CsvDataset("a", [np.float32, 0, 0.5, "x", [b"y"], np.int8(3), str]).element_spec
    assert [leaf.dtype.name for leaf in spec] == [
        "float32",
        "int64",
        "float64",
        "str",
        "bytes",
        "int8",
        "str",
    ]
    spec = SqlDataset("sqlite", "a", "SELECT 1, 2", (np.dtype(bool), str)).element_spec
    assert spec == (TensorSpec((), bool), TensorSpec((), str))


def test_an_empty_default_makes_a_value_required(tmp_path: Path) -> None:
    """An empty array requires a value of its dtype, and an empty list a float64."""
    (tmp_path / "a.csv").write_text("1,2\n,2\n")
    dataset = CsvDataset(tmp_path / "a.csv", [np.array([], np.int8), []])
    assert [leaf.dtype.name for leaf in dataset.element_spec] == ["int8", "float64"]
    iterator = iter(dataset)
    assert next(iterator) == (1, 2.0)
    with pytest.raises(PipelineError, match="Field 0 is required but missing in record"):
        next(iterator)


def test_columns_are_left_out(tmp_path: Path) -> None:
    """Excluded and unselected columns are not in the elements, and missing values are
    replaced by the defaults.
    """
    (tmp_path / "a.csv").write_text("n,a,b,c\n1,2,,4\n")
    given = {"filenames": tmp_path / "a.csv", "header": True, "buffer_size": 100}
    assert list(CsvDataset(record_defaults=[0, [7]], exclude_cols=[0, 3], **given)) == [(2, 7)]
    assert list(CsvDataset(record_defaults=[[0], np.int8], select_cols=[0, 3], **given)) == [(1, 4)]
    required = CsvDataset(record_defaults=[[], np.zeros(0, np.int8)], select_cols=[0, 3], **given)
    assert [spec.dtype for spec in required.element_spec] == [np.float64, np.int8]
    assert list(required) == [(1.0, 4)]
    assert list(CsvDataset(record_defaults=["", "", b"z", ""], **given)) == [("1", "2", b"z", "4")]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: TFRecordDataset("a", "BZ2"), ValueError, "compression_type must be"),
        (
            lambda: TFRecordDataset("a", buffer_size=-1),
            ValueError,
            "buffer_size must be at least 0",
        ),
        (lambda: TFRecordDataset(3), TypeError, "a file name, several or a dataset"),
        (lambda: FixedLengthRecordDataset("a", 0), ValueError, "record_bytes must be at least 1"),
        (lambda: FixedLengthRecordDataset("a", 1, -1), ValueError, "header_bytes"),
        (
            lambda: FixedLengthRecordDataset("a", 1, 0, "x"),
            TypeError,
            "footer_bytes must be an int",
        ),
        (lambda: CsvDataset("a", []), TypeError, "a list with a dtype or default for each column"),
        (lambda: CsvDataset("a", "abc"), TypeError, "record_defaults"),
        (
            lambda: CsvDataset("a", [complex]),
            TypeError,
            "record_defaults holds is complex128, expected a dtype of",
        ),
        (lambda: CsvDataset("a", [[1, 2]]), TypeError, "a single number or text"),
        (lambda: CsvDataset("a", [[[1]]]), ValueError, "at most rank 1"),
        (lambda: CsvDataset("a", [0], buffer_size=0), ValueError, "buffer_size should be positive"),
        (lambda: CsvDataset("a", [0], field_delim=",,"), ValueError, "a single character"),
        (lambda: CsvDataset("a", [0], na_value=0), TypeError, "na_value must be a str"),
        (lambda: CsvDataset("a", [0], header=1), TypeError, "header must be a bool"),
        (
            lambda: CsvDataset("a", [0], select_cols=[0], exclude_cols=[1]),
            ValueError,
            "exclude each other",
        ),
        (
            lambda: CsvDataset("a", [0, 1], select_cols=[1, 0]),
            ValueError,
            "select_cols must be sorted",
        ),
        (
            lambda: CsvDataset("a", [0], select_cols=[1, 2]),
            ValueError,
            "names 2 columns and record_defaults has 1",
        ),
        (
            lambda: SqlDataset("mysql", "a", "SELECT 1", (int,)),
            InvalidArgumentError,
            "is not supported by SqlDataset",
        ),
        (lambda: SqlDataset("sqlite", "a", 1, (int,)), TypeError, "query must be a str"),
        (
            lambda: SqlDataset("sqlite", "a", "SELECT 1", 1),
            TypeError,
            "output_types must be a dtype, or a tuple",
        ),
        (
            lambda: SqlDataset("sqlite", "a", "SELECT 1", (complex,)),
            TypeError,
            "output_types holds is complex128",
        ),
    ],
)
def test_bad_arguments_are_refused_at_the_call(
    make: Callable[[], Any], error: type[Exception], text: str
) -> None:
    """Each error names what came and what was expected."""
    with pytest.raises(error, match=text):
        make()
