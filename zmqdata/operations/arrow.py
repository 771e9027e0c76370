"""Tables of Arrow, in memory and in IPC files: rows as dicts, or batches as dicts of
columns. A split is a range of them.

A table in memory is kept, and travels, as one array of bytes, an IPC stream. A file is
mapped, and travels as its path with samples of its content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from zmqdata.config.settings import warn_user
from zmqdata.elements.columns import Fill, column_dict, dict_rows, rows_of, stored
from zmqdata.errors import DataLossError, InvalidArgumentError, NotFoundError
from zmqdata.failures.exceptions import FAILURES, text_of
from zmqdata.files.filenames import legible
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.context import Context
from zmqdata.iterators.indexed import suitable_rows
from zmqdata.machine.descriptors import left
from zmqdata.nodes.base import AT_ITS_PLACE
from zmqdata.operations.parquet import joined, rows_at
from zmqdata.operations.sequences import FromSource
from zmqdata.operations.sources import AheadIterator
from zmqdata.pipelines.memorymaps import digest_of_file
from zmqdata.storage.parquet import checked_nulls as checked_nulls
from zmqdata.storage.parquet import in_schema, shared_schema

Octets: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Numbers: TypeAlias = "range | np.ndarray[Any, Any]"
"""Numbers of rows, at least one."""
_MAGIC = b"ARROW1"
_CONTINUES = b"\xff\xff\xff\xff"
_END = _CONTINUES + bytes(4)
"""Bytes at the end of a stream that its writer has closed."""
_DAMAGE = (pa.ArrowInvalid, pa.ArrowIndexError, pa.ArrowKeyError, OSError)
"""Errors of Arrow for content that is damaged."""
_FEW_OPEN = 64
"""Number of files that a reader may always keep mapped."""
_MOST_OPEN = 1 << 14
"""Number that it keeps mapped at most. Linux allows a process 65,530 mappings."""
_SPARE = 512
"""Descriptors that are left for others if it keeps more than a few."""


class ArrowFile(NamedTuple):
    """An IPC file, or a file with an IPC stream, which is mapped."""

    path: str
    """Absolute path of the file."""
    size: int
    """Number of its bytes."""
    samples: str | None
    """Digest of samples of its content."""

    @classmethod
    def at(cls, path: str) -> ArrowFile:
        """Return the file with a path."""
        size = os.stat(path).st_size
        return cls(path, size, digest_of_file(path, 0, size))

    @property
    def traits(self) -> tuple[int, int, int]:
        """Inode, size and time of change of the file, as they are now."""
        found = os.stat(self.path)
        return found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrowTable:
    """Rows of several parts, each of which has batches."""

    parts: tuple[ArrowFile | Octets, ...] = field(repr=False)
    """The files, or the stream in memory."""
    batches: np.ndarray[Any, Any]
    """Number of batches of each part."""
    counts: np.ndarray[Any, Any]
    """Number of rows of each batch."""
    schema: bytes = field(repr=False)
    """Schema to which the batches are converted, in which dictionaries may be left."""

    def __len__(self) -> int:
        return int(self.counts.sum(dtype=np.int64))

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files."""
        return tuple(part.path for part in self.parts if isinstance(part, ArrowFile))

    @property
    def row_bytes(self) -> int:
        """Approximate size of a row."""
        return sum(part.size for part in self.parts) // max(1, len(self))

    @property
    def stored_schema(self) -> Any:
        """Schema of the rows."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        return pa.schema([one.with_type(stored(one.type)) for one in schema])

    def open(self) -> Any:
        """Return a reader of the rows."""
        return TableReader(self)


class TableReader:
    """Reads rows by their numbers. It keeps the files that it has mapped.

    Args:
        table: the table.
    """

    def __init__(self, table: ArrowTable) -> None:
        self._table, self._stored = table, table.stored_schema
        self._schema = pa.ipc.read_schema(pa.py_buffer(table.schema))
        self._ends = np.cumsum(table.counts, dtype=np.int64)
        self._part_ends = np.cumsum(table.batches, dtype=np.int64)
        self._open: dict[int, tuple[Any, Any]] = {}
        self._unpacks = False
        self._last: tuple[int, Any] = (-1, None)
        self._checked = np.zeros(len(table.counts), bool)

    def read(self, numbers: Numbers) -> Any:
        """Return rows as a batch of stored types.

        Raises:
            DataLossError: a file was changed, or is damaged.
        """
        try:
            if isinstance(numbers, range) and numbers.step == 1:
                found = joined([*self._pieces(numbers.start, numbers.stop)])
            else:
                owners = np.searchsorted(self._ends, numbers, side="right")
                own = np.asarray(numbers) - (self._ends - self._table.counts)[owners]
                found = rows_at(owners, own, self._table_at)
            return in_schema(found, self._stored)
        except _DAMAGE as error:
            if getattr(error, "errno", None):
                raise
            raise DataLossError(f"The table is damaged: {error}. Write it again") from error

    def _pieces(self, start: int, stop: int) -> Iterator[Any]:
        number = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            batch, end = self._batch(number), int(self._ends[number])
            yield batch.slice(start - end + len(batch), min(stop, end) - start)
            start, number = end, number + 1

    def _table_at(self, number: int) -> Any:
        return pa.Table.from_batches([self._batch(number)])

    def _batch(self, number: int) -> Any:
        part = int(np.searchsorted(self._part_ends, number, side="right"))
        batches = self._batches_of(part)
        if self._last[0] != number:
            batch = batches(number - int(self._part_ends[part] - self._table.batches[part]))
            if not self._checked[number]:
                # The offsets of a damaged file would read beyond its end.
                batch.validate(full=True)
                self._checked[number] = True
            self._last = number, in_schema(batch, self._schema)
        return self._last[1]

    def _batches_of(self, part: int) -> Any:
        content: Any = self._table.parts[part]
        traits = content.traits if isinstance(content, ArrowFile) else None
        if part not in self._open:
            self._open[part] = traits, self._mapped(content)
        if self._open[part][0] != traits:
            raise _changed(content)
        return self._open[part][1]

    def _mapped(self, content: Any) -> Any:
        """Return a function that returns a batch of a part by its number."""
        count = len(self._open)
        if count >= _FEW_OPEN and (self._unpacks or count >= _MOST_OPEN or left() < _SPARE):
            del self._open[next(iter(self._open))]
        if isinstance(content, ArrowFile):
            if ArrowFile.at(content.path) != content:
                raise _changed(content)
            content = np.memmap(content.path, np.uint8, "r")
        else:
            self._checked[:] = True  # Arrow has written it in this program
        reader = _reader(content)
        if hasattr(reader, "get_batch"):
            return reader.get_batch
        self._unpacks = True
        return [*reader].__getitem__


def _changed(file: ArrowFile) -> DataLossError:
    return DataLossError(
        f"{legible(file.path)} was changed after this dataset was made. Make the dataset again, "
        "and do not write to files that are read"
    )


def _reader(content: Octets, columns: Sequence[int] = ()) -> Any:
    """Return Arrow's reader of a file, of some of its columns, or of a stream."""
    if content[: len(_MAGIC)].tobytes() != _MAGIC:
        return pa.ipc.open_stream(pa.py_buffer(content))
    options = pa.ipc.IpcReadOptions(included_fields=[*columns])
    return pa.ipc.open_file(pa.py_buffer(content), options=options)


def table_of(name: str, value: Any) -> ArrowTable:
    """Return a copy of a table in memory. A reader of batches is read to its end.

    Args:
        name: what was called with the table, for errors.
        value: an object with ``__arrow_c_stream__``.

    Raises:
        TypeError: it has no columns, or Arrow cannot hold them.
        InvalidArgumentError: two columns have the same name.
    """
    floats = frozenset[str]()
    sink, counts = pa.BufferOutputStream(), []
    try:
        if hasattr(type(value), "iloc") and hasattr(value, "columns"):
            value, floats = _without_labels(name, value)
        reader = pa.RecordBatchReader.from_stream(value)
        schema = shared_schema([("the table", reader.schema)], None, False)
        kinds = [_kept(reader.schema.field(one.name).type) for one in schema]
        kept = pa.schema(map(pa.Field.with_type, schema, kinds))
        with pa.ipc.new_stream(sink, kept) as writer:
            for batch in reader:
                if len(batch):  # of an empty slice, Arrow writes a message that it cannot read
                    writer.write_batch(_filled(in_schema(batch, kept), floats))
                    counts.append(len(batch))
    except InvalidArgumentError:
        raise
    except (pa.ArrowException, OSError, OverflowError, ValueError, TypeError) as error:
        raise TypeError(
            f"{name} got a {type(value).__qualname__} that Arrow cannot read as a table: {error}. "
            "Pass a table whose columns have one type each, and different names"
        ) from error
    return _table([np.frombuffer(sink.getvalue(), np.uint8)], [len(counts)], counts, kept)


def _without_labels(name: str, frame: Any) -> tuple[Any, frozenset[str]]:
    """Return a frame of pandas whose index is a column if it has a name, and the names
    of its columns of floats.
    """
    is_named = any(label is not None for label in frame.index.names)
    if not is_named and frame.index.dtype.kind not in "iu":
        warn_user(
            f"{name} leaves out the index of the data frame, which has labels of type "
            f"{frame.index.dtype} and no name. For a column of them, name it: "
            'frame.rename_axis("label"). Otherwise pass frame.reset_index(drop=True)'
        )
    # The numbers of rows that a selection leaves are no column.
    frame = frame.reset_index(drop=not is_named)
    kinds = zip(frame.columns, frame.dtypes, strict=True)
    floats = [one for one, kind in kinds if isinstance(kind, np.dtype) and kind.kind == "f"]
    return frame, frozenset(map(str, floats))


def _kept(kind: Any) -> Any:
    """Return the type in which a column travels: a dictionary stays one."""
    if not pa.types.is_dictionary(kind):
        return stored(kind)
    return pa.dictionary(kind.index_type, stored(kind.value_type))


def _filled(batch: Any, floats: frozenset[str]) -> Any:
    """Replace nulls by NaN in floats of pandas, which has no others there."""
    for at, one in enumerate(batch.schema):
        if one.name in floats and batch.column(at).null_count:
            batch = batch.set_column(at, one, batch.column(at).fill_null(np.nan))
    return batch


def table_of_files(paths: Sequence[str]) -> ArrowTable:
    """Return the table of IPC files, and files with IPC streams, which are mapped.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: a file is empty or cut off.
        InvalidArgumentError: a file is not Arrow, or the files differ in their columns.
    """
    parts, batches, counts, schemas = [], [], [], []
    for path in paths:
        if not os.path.isfile(path):
            raise NotFoundError(
                f"from_arrow(): {legible(path)} is no file. Pass the path of an Arrow IPC file or "
                f"stream. The current folder is {os.getcwd()!r}"
            )
        parts.append(ArrowFile.at(path))
        schema, found = _counted(legible(path), parts[-1])
        schemas.append((legible(path), schema))
        batches.append(len(found))
        counts += found
    if not schemas:
        raise InvalidArgumentError("from_arrow() got no paths: pass at least one file")
    return _table(parts, batches, counts, shared_schema(schemas, None, False))


def _counted(name: str, file: ArrowFile) -> tuple[Any, list[int]]:
    """Return the schema of a file, and the number of rows of each of its batches."""
    if not file.size:
        raise DataLossError(f"{name} is empty: its writer was probably stopped. Write it again")
    content: Octets = np.memmap(file.path, np.uint8, "r")
    begin = content[: len(_MAGIC)].tobytes()
    try:
        reader = _reader(content)
        schema = reader.schema
        if begin == _MAGIC:
            # A packed batch is unpacked, and one column tells its rows.
            small = [at for at, one in enumerate(schema) if pa.types.is_primitive(one.type)]
            reader = _reader(content, small[:1])
            return schema, [len(reader.get_batch(at)) for at in range(reader.num_record_batches)]
        source = pa.BufferReader(pa.py_buffer(content))
        counts = [len(batch) for batch in pa.ipc.open_stream(source)]
        end = source.tell()
        if end == file.size and content[-len(_END) :].tobytes() == _END:
            return schema, counts
        reason = f"its stream ends at byte {end} of {file.size}, where the mark of its end lacks"
    except (pa.ArrowException, OSError, ValueError) as error:
        if begin != _MAGIC and begin[:4] != _CONTINUES:
            raise InvalidArgumentError(
                f"{name} is no Arrow IPC file or stream: it begins with {begin!r}. Read Parquet "
                "with from_parquet(), and write Feather of version 1 again"
            ) from error
        reason = str(error)
    raise DataLossError(
        f"{name} begins as Arrow does, and cannot be read as a whole: {reason}. It was cut off, is "
        "being written, or was joined with another: write or copy it again"
    )


def _table(parts: Any, batches: list[int], counts: list[int], schema: Any) -> ArrowTable:
    if not schema.names:
        raise InvalidArgumentError(
            "The table has no columns, so its rows have no values. Pass one with columns"
        )
    return ArrowTable(
        parts=tuple(parts),
        batches=np.array(batches, np.uint32),
        counts=np.array(counts, np.uint32),
        schema=schema.serialize().to_pybytes(),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TableRows(FromSource):
    """Yields the rows of a table, in order or in a permutation, or batches of them."""

    batch_size: int | None = None
    """Number of rows of an element but the last; None: an element is a row."""
    nulls: Fill = None
    """Treatment of nulls in batches."""
    operation: ClassVar[str] = "from_arrow"
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def filenames(self) -> tuple[str, ...]:
        """Paths of the files; empty for a table in memory."""
        return self.sequence.paths  # type: ignore[no-any-return]  # any kind of table

    @property
    def split_unit(self) -> str:  # type: ignore[override]  # two kinds of splits
        return "rows" if self.batch_size is None else "batches"

    @property
    def argument(self) -> str:
        return f"{len(self.sequence)} rows" + (", shuffle" if self.shuffle else "")

    @property
    def cardinality(self) -> int:
        return -(-len(self.sequence) // (self.batch_size or 1))

    @property
    def batch_rows(self) -> int | None:
        return None if self.batch_size is None else 0


@make_iterator.register(TableRows)
class TableRowsIterator(AheadIterator):
    """Yields rows, of which it decodes many at a time, or batches."""

    def __init__(self, node: TableRows, context: Context) -> None:
        super().__init__(context, node.cardinality)
        self._node, self._count = node, len(node.sequence)
        self._reader = node.sequence.open()
        self._alone = 0  # number of the next rows to read one by one, as some fail
        size = node.sequence.row_bytes
        self._together = 1 if node.batch_size is not None else suitable_rows(size, 1)
        if node.shuffle:
            self._permute(node, context, node.cardinality)

    def _more(self) -> list[Any]:
        self._strand.place = self._own_place
        indices = self._next_range(1 if self._alone else self._together)
        self._alone = max(0, self._alone - 1)
        size = self._node.batch_size
        numbers: Numbers = indices if self._order is None else self._order.many(indices)
        first = int(numbers[0]) * (size or 1)
        if size is not None:
            numbers = range(first, min(first + size, self._count))
        try:
            batch = self._reader.read(numbers)
            names, columns = batch.schema.names, batch.columns
            if size is None:
                return dict_rows(names, map(rows_of, columns))
            return [column_dict(names, columns, self._node.nulls)]
        except FAILURES as error:
            self._next = indices[0]
            if len(indices) > 1:  # the other rows are elements
                self._alone = len(indices)
                return self._more()
            self._next += self._stride
            if isinstance(error, DataLossError):
                raise DataLossError(f"{self._node.label}: {text_of(error)}") from error
            raise failure(self._node, error, f"row {first}") from error

    def rewind(self, repetition: int) -> bool:
        if self._order_of is not None and self._provider is None:
            self._order = self._order_of(repetition)
        return self._to_beginning(repetition)
