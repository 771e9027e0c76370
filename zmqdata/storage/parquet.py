"""Parquet files: their footers, the schema that several files share, and the row groups
of a file as batches of Arrow.

A footer and the pages of the wanted columns of a row group are each read with few
requests, and decoded a few rows at a time.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types
from pyarrow.compute import Expression

from zmqdata.elements.columns import check_masks, check_type, column_of, in_type, stored, widest
from zmqdata.errors import DataLossError, DataServiceError, InvalidArgumentError
from zmqdata.storage.reading import Identity, RemoteFile

UNREADABLE = (OSError, pa.ArrowException, DataServiceError)
"""Errors of files that cannot be read, or are not what they were."""
_MAGIC = b"PAR1"
_TAIL = 1 << 16
_MONTH = 30 * 86400
_FALSE_OF_NAN = ("=", "==", "<", ">", "<=", ">=")
_GAP = 1 << 20
"""Bytes between two pages that cost less than another request."""


class Footer(NamedTuple):
    """The metadata at the end of a Parquet file."""

    metadata: Any
    """``pyarrow.parquet.FileMetaData``."""
    schema: Any
    """Schema of the file, as Arrow sees it."""
    content: bytes
    """Bytes of a Parquet file with this footer and without rows."""
    identity: Identity | None = None
    """Traits of a file in a store, which tell it from one with the same footer."""

    @classmethod
    def of(cls, content: bytes, identity: Identity | None) -> Footer:
        """Return the footer that some content has.

        Raises:
            OSError, pyarrow.ArrowException: it is damaged.
        """
        metadata = pq.read_metadata(pa.BufferReader(content))
        return cls(metadata, metadata.schema.to_arrow_schema(), content, identity)

    @property
    def checksum(self) -> int:
        """Number that tells whether a file was changed."""
        return zlib.crc32(self.content + repr(self.identity or "").encode())

    def groups_with(self, condition: Any, schema: Any) -> list[int]:
        """Return the row groups that may have rows that meet a condition, by their
        statistics.
        """
        from pyarrow.dataset import ParquetFileFormat

        fragment = ParquetFileFormat().make_fragment(pa.BufferReader(self.content))
        parts = fragment.split_by_row_group(condition, schema)
        return [group.id for part in parts for group in part.row_groups]

    def packed_sizes(self, names: Iterable[str]) -> list[int]:
        """Return the packed size of some columns in each row group, in bytes."""
        wanted = set(names)
        return [
            sum(stop - start for start, stop in self.spans(group, wanted))
            for group in range(self.metadata.num_row_groups)
        ]

    def requests(self, group: int, names: Iterable[str]) -> list[tuple[int, int]]:
        """Return the ranges to read for some columns of a row group."""
        found: list[tuple[int, int]] = []
        for start, stop in self.spans(group, set(names)):
            if found and start - found[-1][1] <= _GAP:
                found[-1] = found[-1][0], max(stop, found[-1][1])
            else:
                found.append((start, stop))
        return found

    def spans(self, group: int, names: set[str]) -> list[tuple[int, int]]:
        """Return where the pages of some columns of a row group begin and end."""
        described = self.metadata.row_group(group)
        columns = map(described.column, range(described.num_columns))
        found = []
        for column in columns:
            path = column.path_in_schema
            if path in names or any(path.startswith(f"{name}.") for name in names):
                # Some writers set an offset of 0 for a dictionary that is absent.
                start = column.dictionary_page_offset or column.data_page_offset
                start = min(start, column.data_page_offset)
                found.append((start, start + column.total_compressed_size))
        return sorted(found)


def read_footer(file: BinaryIO, name: str) -> Footer:
    """Read the footer of a file, with one request or, if it is large, two.

    Args:
        file: the file.
        name: name of the file, for errors.

    Raises:
        DataServiceError: a store refuses the request.
        DataLossError: the file is cut off, or its footer is damaged.
        InvalidArgumentError: the file is no Parquet file, or encrypted.
    """
    remote = file if isinstance(file, RemoteFile) else None
    tail = remote.read_tail(_TAIL) if remote is not None else b""
    size = file.seek(0, io.SEEK_END)
    tail = tail or _read(file, max(0, size - _TAIL), size, name)
    if size < 12 or tail[-4:] != _MAGIC:
        raise _no_footer(file, name, size, tail)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length + 4 > size:
        raise DataLossError(
            f"{name} states a footer of {length} bytes, and the file has {size} bytes. It is "
            "damaged or was cut off: write it again"
        )
    if length > len(tail):
        tail = _read(file, size - length, size, name)
    try:
        return Footer.of(_MAGIC + tail[-length:], remote.identity if remote is not None else None)
    except (OSError, pa.ArrowException) as error:
        raise DataLossError(
            f"{name} has a damaged footer of {length} bytes: {error}. Write the file again"
        ) from error


class KeptFooters:
    """Footers of files in stores, kept on this machine by URL, size and ETag.

    Args:
        folder: the folder to keep them in; None: that of the user.
    """

    def __init__(self, folder: str | None = None) -> None:
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        self._folder = folder or os.path.join(caches, "zmqdata", "footers")

    def _path(self, url: str, identity: Identity) -> str:
        name = hashlib.blake2b(repr((url, identity)).encode(), digest_size=16).hexdigest()
        return os.path.join(self._folder, name)

    def get(self, url: str, identity: Identity) -> Footer | None:
        """Return the footer of a file; None if it is not kept whole."""
        path = self._path(url, identity)
        try:
            content = Path(path).read_bytes()
            os.utime(path)
            is_whole = content[:4] == zlib.crc32(content[4:]).to_bytes(4, "big")
            return Footer.of(content[4:], identity) if is_whole else None
        except (OSError, pa.ArrowException):
            return None

    def put(self, url: str, identity: Identity, footer: Footer) -> None:
        """Keep the footer of a file, if the folder can be written."""
        path = self._path(url, identity)
        draft = f"{path}.{os.getpid()}"
        # A file that a crash leaves torn is noticed by its checksum.
        content = zlib.crc32(footer.content).to_bytes(4, "big") + footer.content
        with suppress(OSError):
            os.makedirs(self._folder, 0o700, exist_ok=True)
            Path(draft).write_bytes(content)
            os.replace(draft, path)

    def forget_old(self, now: float) -> None:
        """Remove what was not used for a month, at a time in seconds since 1970."""
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.stat().st_mtime < now - _MONTH:
                    os.unlink(entry.path)


def _no_footer(file: BinaryIO, name: str, size: int, tail: bytes) -> Exception:
    if not size:
        return DataLossError(
            f"{name} is empty: a Parquet file has at least 12 bytes. Its writer was probably "
            "stopped. Write it again, or leave it out"
        )
    if tail[-4:] == b"PARE":
        return InvalidArgumentError(f"{name} has an encrypted footer, which cannot be read here")
    head = _read(file, 0, min(4, size), name)
    if head == _MAGIC:
        return DataLossError(
            f"{name} begins as a Parquet file and has no footer at its end, byte {size}. It was "
            "cut off, or is being written: write or copy it again"
        )
    return InvalidArgumentError(
        f"{name} is not a Parquet file: it begins with {head!r} and ends with {tail[-4:]!r}, "
        f"expected {_MAGIC!r} at both places. Leave it out of `paths`"
    )


def _read(file: BinaryIO, start: int, stop: int, name: str) -> bytes:
    """Return the bytes of a file between two offsets."""
    file.seek(start)
    pieces, missing = [], stop - start
    while missing:
        piece = file.read(missing)
        if not piece:
            raise DataLossError(
                f"{name} ends at byte {stop - missing}, and its row groups reach byte {stop} or "
                "further. It was cut off or replaced while it was read"
            )
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Pages:
    """Readable file of which only some spans are in memory. Reading copies nothing."""

    closed = False

    def __init__(self, size: int, spans: list[tuple[int, memoryview]]) -> None:
        self._size, self._spans, self._at = size, spans, 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, count: int) -> memoryview:
        for start, content in self._spans:
            first = self._at - start
            if first >= 0 and first + count <= len(content):
                self._at += count
                return content[first : first + count]
        raise DataLossError(f"bytes {self._at} to {self._at + count} are in none of its columns")

    def close(self) -> None:
        self.closed = True


def read_group(
    file: BinaryIO,
    name: str,
    footer: Footer,
    group: int,
    schema: Any,
    rows: int,
    upcoming: Iterable[int] = (),
) -> Iterator[Any]:
    """Yield the rows of a row group, as batches of Arrow with a schema.

    Memory holds the packed pages of its columns and the batch.

    Args:
        file: the file.
        name: its name, for errors.
        footer: its footer.
        group: number of the row group.
        schema: schema of the batches; absent columns are null.
        rows: number of rows of a batch.
        upcoming: the row groups that are read next, which a store is asked for.

    Raises:
        OSError, pyarrow.ArrowException, DataLossError: the row group is damaged.
    """
    names = [one for one in schema.names if one in footer.schema.names]
    spans = footer.requests(group, names)
    size = max((stop for _, stop in spans), default=0)
    held = [(start, memoryview(_read(file, start, stop, name))) for start, stop in spans]
    if isinstance(file, RemoteFile):
        file.expect(span for one in upcoming for span in footer.requests(one, names))
    pages = pa.PythonFile(_Pages(size, held), "r")
    del held
    parquet = pq.ParquetFile(
        pages, metadata=footer.metadata, page_checksum_verification=True, pre_buffer=False
    )
    for batch in parquet.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
        yield in_schema(batch, schema)


def in_schema(batch: Any, schema: Any) -> Any:
    """Return a batch with the columns of a schema, in their order and types."""
    if batch.schema == schema:
        return batch
    columns = [_conformed(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conformed(batch: Any, field: Any) -> Any:
    """Return a column of a batch in its type; nulls if the batch lacks it."""
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(batch.schema.get_field_index(field.name))
    return in_type(column, field.type)


def shared_schema(
    files: Sequence[tuple[str, Any]], columns: Sequence[str] | None, union: bool
) -> Any:
    """Return the schema in which all files are read: each column has the type that
    holds the values of all of them.

    Args:
        files: names and schemas, at least one.
        columns: the columns to read; None: all.
        union: True if a file may lack columns.

    Raises:
        InvalidArgumentError: files differ otherwise, or have no such column, or two of
            its name.
    """
    distinct: dict[bytes, tuple[str, Any]] = {}
    for name, schema in files:
        distinct.setdefault(schema.remove_metadata().serialize().to_pybytes(), (name, schema))
    kinds = [*distinct.values()]
    first = kinds[0][1].names
    everything = dict.fromkeys(column for _, schema in kinds for column in schema.names)
    names = columns if columns is not None else [*everything] if union else [*dict.fromkeys(first)]
    for column in names:
        if column not in everything:
            raise InvalidArgumentError(
                f"No file has a column {column!r}. The columns of {kinds[0][0]} are {first}"
            )
    for name, schema in kinds:
        _check_names(name, schema, names, kinds[0], columns is None, union)
    return pa.schema([_shared_field(kinds, column) for column in names])


def check_schema(name: str, schema: Any, wanted: Any, is_whole: bool, union: bool = False) -> None:
    """Raise if a file cannot be read in a schema, or has more columns than that if it
    is whole, or lacks columns without ``union``.

    Raises:
        InvalidArgumentError: it lacks a column, or has one of another type.
    """
    files = [("the first file", wanted), (name, schema)]
    for field in shared_schema(files, None if is_whole else wanted.names, union):
        narrow = wanted.field(field.name).type
        if field.type != narrow:
            raise InvalidArgumentError(
                f"The column {field.name!r} of {name} has the type "
                f"{schema.field(field.name).type}, wider than {narrow} of the first file. Pass "
                'split="row_group", which finds a type for all files, or write one of them again'
            )


def _check_names(
    name: str,
    schema: Any,
    names: Sequence[str],
    first: tuple[str, Any],
    is_whole: bool,
    union: bool,
) -> None:
    found = schema.names
    for column in names:
        if found.count(column) > 1:
            raise InvalidArgumentError(
                f"{name} has {found.count(column)} columns of the name {column!r}, and the rows "
                "are dicts. Give them different names, or choose columns without this name"
            )
        if column not in found and not union:
            raise InvalidArgumentError(
                f"{name} lacks the column {column!r}. Its columns are {found}, and those of "
                f"{first[0]} are {first[1].names}. {_REMEDY}"
            )
        if column in found:
            check_type(name, column, schema.field(column).type)
    more = [column for column in found if column not in names]
    if more and is_whole:
        kind = schema.field(more[0]).type
        raise InvalidArgumentError(
            f"{name} has the column {more[0]!r} of type {kind}, which {first[0]} lacks. {_REMEDY}"
        )


_REMEDY = 'Pass schema="union" or `columns` to from_parquet(), or write all with the same columns'


def _shared_field(files: Sequence[tuple[str, Any]], column: str) -> Any:
    """Return a column of the shared schema."""
    found = [(name, schema.field(column)) for name, schema in files if column in schema.names]
    kind = widest(stored(field.type) for _, field in found)
    if kind is not None:
        is_nullable = len(found) < len(files) or any(field.nullable for _, field in found)
        return pa.field(column, kind, nullable=is_nullable)
    # Types without a common one have a pair without, because widths only grow.
    (before, one), (name, other) = next(
        pair
        for pair in combinations(found, 2)
        if widest(stored(field.type) for _, field in pair) is None
    )
    raise InvalidArgumentError(
        f"The column {column!r} has the type {one.type} in {before} and {other.type} in {name}, "
        "and neither holds the values of both exactly. Write one of the files again, or read them "
        "as two datasets and convert them in map()"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupTable:
    """The row groups to read, in order of the files. It travels with the pipeline."""

    counts: np.ndarray[Any, Any]
    """Number of row groups of each file."""
    checksums: np.ndarray[Any, Any]
    """Checksum of the footer of each file."""
    groups: np.ndarray[Any, Any]
    """Number of each row group in its file."""
    rows: np.ndarray[Any, Any]
    """Number of rows of each row group."""

    @classmethod
    def of(cls, files: Sequence[tuple[int, Sequence[tuple[int, int]]]]) -> GroupTable:
        """Return the table of files, each with the checksum of its footer and the
        number and rows of each row group.

        >>> GroupTable.of([(7, [(0, 10), (2, 300)])]).rows.dtype
        dtype('uint16')
        """
        groups = [group for _, some in files for group in some]
        return cls(
            counts=_small([len(some) for _, some in files]),
            checksums=np.array([checksum for checksum, _ in files], np.uint32),
            groups=_small([group for group, _ in groups]),
            rows=_small([rows for _, rows in groups]),
        )

    @cached_property
    def ends(self) -> np.ndarray[Any, Any]:
        """Number of row groups up to the end of each file."""
        return np.cumsum(self.counts, dtype=np.int64)


def _small(numbers: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return numbers in the smallest dtype that holds them."""
    return np.array(numbers, np.min_scalar_type(max(numbers, default=0)))


class TablePlan:
    """Reading of several files, as their footers allow.

    Args:
        files: names of the files, for errors.
        footers: their footers; None for a file that is left out when it is read.
        columns: names of the columns of elements; None: all.
        filters: the user's condition, or None.
        union: True if files may lack columns.
        skipping: True if a file is left out whose schema does not fit those before.

    Attributes:
        columns: names of the columns of elements.
        schema: schema of these columns, and of those that the condition needs.
        condition: the condition as an expression of Arrow, or None.
    """

    def __init__(
        self,
        files: Sequence[str],
        footers: Sequence[Footer | None],
        columns: Sequence[str] | None,
        filters: Any,
        union: bool,
        skipping: bool = False,
    ) -> None:
        if skipping:
            footers = _fitting(files, footers, columns, union)
        self._files, self._footers = files, footers
        self.condition = self._pruning = None if filters is None else _condition(filters)
        schemas = [
            (name, footer.schema)
            for name, footer in zip(files, footers, strict=False)
            if footer is not None
        ]
        self.schema = shared_schema(schemas, columns, union)
        self.columns = tuple(self.schema.names)
        if self.condition is not None:
            if columns is not None:
                needed = _needed(self.condition, schemas, columns)
                self.schema = shared_schema(schemas, [*columns, *needed], union)
            _check_condition(self.condition, self.schema)
            self._pruning = _pruning(filters, self.condition, self.schema)

    def table(self) -> GroupTable:
        """Return the row groups to read, without those that cannot have such rows."""
        found: list[tuple[int, list[tuple[int, int]]]] = []
        for footer in self._footers:
            if footer is None:
                found.append((0, [(0, 0)]))  # its reader finds the error again
                continue
            groups: Iterable[int] = range(footer.metadata.num_row_groups)
            if self._pruning is not None:
                groups = footer.groups_with(self._pruning, self.schema)
            rows = [(group, footer.metadata.row_group(group).num_rows) for group in groups]
            found.append((footer.checksum, [one for one in rows if one[1]]))
        return GroupTable.of(found)

    def largest(self) -> tuple[int, str, int]:
        """Return the packed size of the columns in the largest row group, its file and
        its number.
        """
        found = [(0, "", 0)]
        for name, footer in zip(self._files, self._footers, strict=False):
            sizes = [] if footer is None else footer.packed_sizes(self.columns)
            found += [(size, name, group) for group, size in enumerate(sizes)]
        return max(found)

    def nulls(self, given: Any) -> Any:
        """Return the treatment of nulls in batches, as ``checked_nulls`` does."""
        return checked_nulls(given, [self.schema.field(name) for name in self.columns])


def _fitting(
    files: Sequence[str],
    footers: Sequence[Footer | None],
    columns: Sequence[str] | None,
    union: bool,
) -> Sequence[Footer | None]:
    """Return footers, with None for those whose schema does not fit those before; all
    if none fits.
    """
    found: list[Footer | None] = []
    schemas: list[tuple[str, Any]] = []
    for name, footer in zip(files, footers, strict=True):
        found.append(None)
        with suppress(InvalidArgumentError):
            if footer is not None:
                schema = shared_schema([*schemas, (name, footer.schema)], columns, union)
                schemas, found[-1] = [("the files before", schema)], footer
    return found if schemas else footers


def checked_nulls(given: Any, fields: Iterable[Any]) -> Any:
    """Return the treatment of nulls in batches, after checking that it fits.

    Raises:
        InvalidArgumentError: it names other columns, or has values of other types.
    """
    kinds = {field.name: field.type for field in fields}
    if given == "mask":
        check_masks(pa.struct([*kinds.items()]))
        return given
    for name in given:
        if name not in kinds:
            raise InvalidArgumentError(
                f"`nulls` has a value for the column {name!r}, and the columns are {[*kinds]}"
            )
        if given[name] is None or types.is_struct(kinds[name]):
            raise InvalidArgumentError(
                f"`nulls` has {given[name]!r} for the column {name!r} of type {kinds[name]}, and "
                'replaces nulls by a value, of which structs have none. Pass nulls="mask", or read '
                "rows, without `batch_rows`, in which a null is None"
            )
        try:
            column_of(pa.nulls(1, kinds[name]), given, name)
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(f"`nulls` does not fit {name!r}: {error}") from error
    return given


def _condition(filters: Any) -> Any:
    if isinstance(filters, Expression):
        return filters
    try:
        return pq.filters_to_expression(filters)
    except Exception as error:
        raise InvalidArgumentError(
            "`filters` must be as in [('a', '>', 3)], a list of such lists, or an expression of "
            f"pyarrow, got {filters!r}: {error}"
        ) from error


def _needed(condition: Any, files: Sequence[tuple[str, Any]], columns: Sequence[str]) -> list[str]:
    """Return the columns that a condition needs beside others."""
    fields = {field.name: field for _, schema in files for field in schema}

    def is_needed(name: str) -> bool:
        rest = pa.schema([field for field in fields.values() if field.name != name])
        try:
            rest.empty_table().filter(condition)
        except (pa.ArrowException, ValueError, TypeError) as error:
            return f"FieldRef.Name({name})" in str(error)
        return False

    return [name for name in fields if name not in columns and is_needed(name)]


def _pruning(filters: Any, condition: Any, schema: Any) -> Any:
    """Return the part of a condition by which statistics can leave out row groups; None
    if there is none. The statistics of floats do not tell of NaN.
    """
    # Structs and lists of floats have these words in their names, too.
    others = [one.name for one in schema if not re.search("float|double", str(one.type))]
    if not _needed(condition, [("", schema)], others) and "FieldPath" not in str(condition):
        return condition
    if isinstance(filters, Expression):
        return None
    either = [filters] if isinstance(filters[0][0], str) else filters
    found = [
        [one for one in all_of if one[1] in _FALSE_OF_NAN or one[0] in others] for all_of in either
    ]
    return _condition(found) if all(found) else None


def _check_condition(condition: Any, schema: Any) -> None:
    try:
        schema.empty_table().filter(condition)
    except Exception as error:
        raise InvalidArgumentError(
            f"`filters` do not fit the columns that are read, {schema}: {error}. Check names and "
            "types"
        ) from error
