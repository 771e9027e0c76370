"""Sources that read lines and records from files, and rows from databases. Reading
belongs to ``iterators``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.nesting import map_structure
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import UnimplementedError
from zmqdata.nodes.base import FILE_AGAIN, IN_LABEL, Infer, Node
from zmqdata.splits import IndexSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Files(Node):
    """Base of the sources that read files in order; a split is a file."""

    filenames: tuple[str, ...]
    """Paths of the files."""
    compression_type: str = ""
    """``""``, ``"GZIP"`` or ``"ZLIB"``."""
    buffer_size: int | None = None
    """Size of the read buffer in bytes; None: 64 KiB."""
    places: range | None = field(default=None, repr=False, compare=False)
    """Numbers of the files in the whole source, if these are a part of it."""

    split_unit: ClassVar[str] = "files"
    restoring: ClassVar[str] = FILE_AGAIN
    own_state: ClassVar[int] = 16

    @property
    def argument(self) -> str:
        return ", ".join(map(repr, self.filenames[:1])) + (
            ", ..." if len(self.filenames) > 1 else ""
        )

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(len(self.filenames))

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.bytes_)


@dataclass(frozen=True, kw_only=True)
class TextLines(Files):
    """Yields the lines of text files, in order of the files."""

    operation: ClassVar[str] = "TextLineDataset"

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.str_)


@dataclass(frozen=True, kw_only=True)
class TFRecords(Files):
    """Yields the records of TFRecord files."""

    operation: ClassVar[str] = "TFRecordDataset"


@dataclass(frozen=True, kw_only=True)
class FixedLengthRecords(Files):
    """Yields records of equal length, which lie between the header and the footer of
    each file.
    """

    record_bytes: int
    """Length of a record in bytes."""
    header_bytes: int = 0
    """Length of the header in bytes."""
    footer_bytes: int = 0
    """Length of the footer in bytes."""
    operation: ClassVar[str] = "FixedLengthRecordDataset"


def whole_only(node: Node, kind: str) -> UnimplementedError:
    """Return the error for requesting the splits of a source that has none; ``kind`` is
    its name in tf.data.
    """
    return UnimplementedError(
        f"Cannot create split providers for dataset of type {kind}: {node.label} must be read as "
        "a whole. Distribute it with ShardingPolicy.OFF, where each worker reads all of it"
    )


@dataclass(frozen=True, kw_only=True)
class CsvColumn:
    """Column that is read from CSV files."""

    number: int
    """Number of the column in the file, from 0."""
    dtype: np.dtype[Any]
    """Dtype of the values."""
    default: Any = None
    """Value that replaces a missing field."""
    required: bool = False
    """True if a missing field is an error; ``default`` is unused then."""


@dataclass(frozen=True, kw_only=True)
class Csv(Files):
    """Yields the rows of CSV files, as tuples of the columns."""

    columns: tuple[CsvColumn, ...]
    """Columns to read."""
    width: int | None
    """Number of columns in each row; None: at least as many as are read."""
    excluded: frozenset[int] = frozenset()
    """Numbers of the columns to remove before the others are counted."""
    header: bool = False
    """True if each file begins with a header line."""
    field_delim: str = ","
    """Text between two fields."""
    use_quote_delim: bool = True
    """True if fields may be quoted."""
    na_value: str = ""
    """Text of a field that counts as missing."""
    operation: ClassVar[str] = "CsvDataset"

    @property
    def split_source(self) -> SplitSource:
        raise whole_only(self, "CsvDataset")

    def spec(self, infer: Infer) -> Any:
        return tuple(TensorSpec((), column.dtype) for column in self.columns)


@dataclass(frozen=True, kw_only=True)
class Sql(Node):
    """Yields the rows of a query, as tuples or as single values."""

    driver_name: str
    """Database driver."""
    data_source_name: str
    """Path of the database."""
    query: str = field(metadata=IN_LABEL)
    """The query."""
    output_types: np.dtype[Any] | tuple[np.dtype[Any], ...] = field(default=())
    """Dtype of each column; a single dtype: each row is the value of its only
    column.
    """
    operation: ClassVar[str] = "SqlDataset"
    restoring: ClassVar[str] = "runs the query again, and reads up to the position"
    own_state: ClassVar[int] = 16

    @property
    def split_source(self) -> SplitSource:
        raise whole_only(self, "SqlDataset")

    def spec(self, infer: Infer) -> Any:
        return map_structure(partial(TensorSpec, ()), self.output_types)
