"""Tests of ``benchmarks.packing``."""

from __future__ import annotations

from benchmarks.packing import LENGTH, Documents, measured
from zmqdata import Dataset


def test_rows_and_tokens_are_counted() -> None:
    """The benchmark counts all tokens of a packing, and its rows, in processor time."""
    documents = Documents(200)
    packed = Dataset.from_source(documents).pack(LENGTH, bins=4)
    seconds, rows, tokens = measured(lambda: packed)
    assert tokens == sum(map(len, documents.documents))
    assert tokens <= rows * LENGTH < 1.5 * tokens
    assert seconds > 0
