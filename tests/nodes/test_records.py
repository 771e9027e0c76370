"""Tests of ``zmqdata.nodes.records``."""

from __future__ import annotations

import numpy as np
import pytest

from zmqdata.elements.specs import UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.errors import UnimplementedError
from zmqdata.nodes.base import Node
from zmqdata.nodes.records import Csv, CsvColumn, FixedLengthRecords, Sql, TFRecords
from zmqdata.splits import IndexSplits

TWO = ("/a", "/b")


def infer(node: Node) -> object:
    return node.spec(infer)


def test_record_files_are_split_by_file() -> None:
    """Records are bytes, their number is not known, and each file is a split."""
    records, pieces = (
        TFRecords(filenames=TWO),
        FixedLengthRecords(filenames=TWO[:1], record_bytes=3),
    )
    assert (records.label, pieces.label) == (
        "TFRecordDataset('/a', ...)",
        "FixedLengthRecordDataset('/a')",
    )
    assert (records.split_source, pieces.split_source) == (IndexSplits(2), IndexSplits(1))
    assert infer(records) == infer(pieces) == TensorSpec((), np.bytes_)
    assert records.cardinality == UNKNOWN_CARDINALITY


def test_tables_are_read_as_a_whole() -> None:
    """Rows of CSV and SQL are tuples. Neither can be split, and the error uses the name
    in tf.data.
    """
    column = CsvColumn(number=0, dtype=np.dtype("int8"), default=1)
    csv = Csv(filenames=TWO, columns=(column,), width=1)
    sql = Sql(
        driver_name="sqlite",
        data_source_name="/a",
        query="SELECT 1",
        output_types=(np.dtype("int8"),),
    )
    assert (csv.label, sql.label) == ("CsvDataset('/a', ...)", "SqlDataset('SELECT 1')")
    assert infer(csv) == infer(sql) == (TensorSpec((), np.int8),)
    for node, name in ((csv, "CsvDataset"), (sql, "SqlDataset")):
        with pytest.raises(
            UnimplementedError, match=f"Cannot create split providers for dataset of type {name}"
        ):
            _ = node.split_source
