"""The sources that read records from files and data bases. Reading them belongs to
``iterators``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import UnimplementedError
from zmqdata.nodes.base import FILE_AGAIN, Infer, Node
from zmqdata.splits import IndexSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Files(Node):
    """Base of the sources that read one file after the other; a split is a file."""

    filenames: tuple[str, ...]
    compression_type: str = ""
    buffer_size: int | None = None

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
class TFRecords(Files):
    """The records of TFRecord files."""

    operation: ClassVar[str] = "TFRecordDataset"
    restoring: ClassVar[str] = FILE_AGAIN
    own_state: ClassVar[int] = 16


@dataclass(frozen=True, kw_only=True)
class FixedLengthRecords(Files):
    """Pieces of equal length, between what each file has at its beginning and end."""

    record_bytes: int
    header_bytes: int = 0
    footer_bytes: int = 0
    operation: ClassVar[str] = "FixedLengthRecordDataset"
    restoring: ClassVar[str] = FILE_AGAIN
    own_state: ClassVar[int] = 16


def whole_only(node: Node, kind: str) -> UnimplementedError:
    """What asking for the splits of a source comes to that has none; ``kind`` is what
    tf.data calls it.
    """
    return UnimplementedError(
        f"Cannot create split providers for dataset of type {kind}: {node.label} must be read as a "
        "whole. Distribute "
        "it with ShardingPolicy.OFF, where each worker reads all of it"
    )


@dataclass(frozen=True, kw_only=True)
class CsvColumn:
    """One column that is read: its number in the file, what it becomes, and what stands
    in for a missing value.

    Attributes:
        required: whether a missing value is an error; ``default`` is not used then.
    """

    number: int
    dtype: np.dtype[Any]
    default: Any = None
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Csv(Files):
    """The rows of CSV files, as tuples of the columns.

    Attributes:
        width: how many columns each row has; None: at least as many as are read.
    """

    columns: tuple[CsvColumn, ...]
    width: int | None
    excluded: frozenset[int] = frozenset()
    header: bool = False
    field_delim: str = ","
    use_quote_delim: bool = True
    na_value: str = ""
    operation: ClassVar[str] = "CsvDataset"
    restoring: ClassVar[str] = FILE_AGAIN
    own_state: ClassVar[int] = 16

    @property
    def split_source(self) -> SplitSource:
        raise whole_only(self, "CsvDataset")

    def spec(self, infer: Infer) -> Any:
        return tuple(TensorSpec((), column.dtype) for column in self.columns)


@dataclass(frozen=True, kw_only=True)
class Sql(Node):
    """The rows of a query, as tuples."""

    driver_name: str
    data_source_name: str
    query: str
    output_types: tuple[np.dtype[Any], ...] = field(default=())
    operation: ClassVar[str] = "SqlDataset"
    restoring: ClassVar[str] = "queries again, and reads up to the place"
    own_state: ClassVar[int] = 16

    @property
    def argument(self) -> str:
        return repr(self.query)

    @property
    def split_source(self) -> SplitSource:
        raise whole_only(self, "SqlDataset")

    def spec(self, infer: Infer) -> Any:
        return tuple(TensorSpec((), dtype) for dtype in self.output_types)
