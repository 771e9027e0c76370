"""``TFRecordDataset``, ``FixedLengthRecordDataset``, ``CsvDataset`` and ``SqlDataset``:
datasets of the records of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from zmqdata import operations
from zmqdata.config.checks import FileCompression, SourceOnError, at_least, optional_size, refuse
from zmqdata.dataset import arguments
from zmqdata.dataset.arguments import (
    FileNames,
    call_site,
    compression,
    file_names,
    flag,
    several,
    store_options,
)
from zmqdata.dataset.surface import Dataset, FilesDataset, files_node
from zmqdata.errors import InvalidArgumentError
from zmqdata.files.paths import FileName, local_path

_KINDS = "iufUS"


class TFRecordDataset(FilesDataset):
    """The records of TFRecord files, as bytes. Their checksums are verified.

    A split is a file: with DYNAMIC sharding each file is read by a single worker.

    Args:
        filenames: a name or URL, several, or a dataset of them, read in this order.
            Relative names are resolved by this call: in a function on a worker, from
            the folder in which the worker was started.
        compression_type: ``""`` or None, ``"GZIP"``, ``"ZLIB"`` or ``"ZSTD"``.
        buffer_size: bytes read at a time; None or 0: chosen by zmqdata.
        num_parallel_reads: number of files read concurrently on threads, with a record
            of each in turn; AUTOTUNE: 16, on as many threads as cores. None: files are
            read sequentially.
        on_error: ``"skip"`` leaves out a file or record that cannot be read, and lists
            it in ``iterator.quarantine``.
        storage_options: arguments of the client of the store, for URLs.

    For a damaged file, iterating raises DataLossError and continues with the next file.

    >>> import os, tempfile, zmqdata
    >>> path = os.path.join(tempfile.mkdtemp(), "one.tfrecord")
    >>> with zmqdata.TFRecordWriter(path) as writer:
    ...     writer.write(b"content")
    >>> list(TFRecordDataset(path))
    [b'content']

    Equivalent of ``tf.data.TFRecordDataset``.
    """

    _kind = operations.files.TFRecords


class FixedLengthRecordDataset(Dataset):
    """Files divided into records of equal length, as bytes.

    A split is a file: with DYNAMIC sharding each file is read by a single worker.

    Args:
        filenames: a name or URL, several, or a dataset of them, read in this order.
            Relative names are resolved by this call: in a function on a worker, from
            the folder in which the worker was started.
        record_bytes: bytes of a record.
        header_bytes: bytes to skip at the beginning of each file; None: 0.
        footer_bytes: bytes to skip at the end of each file; None: 0.
        buffer_size: bytes read at a time; None or 0: chosen by zmqdata.
        compression_type: ``""`` or None, ``"GZIP"``, ``"ZLIB"`` or ``"ZSTD"``. All
            lengths refer to the decompressed content.
        num_parallel_reads: number of files read concurrently on threads, with a record
            of each in turn; AUTOTUNE: 16, on as many threads as cores. None: files are
            read sequentially.
        on_error: ``"skip"`` leaves out a file or record that cannot be read, and lists
            it in ``iterator.quarantine``.
        storage_options: arguments of the client of the store, for URLs.

    Iterating raises DataLossError if the content between header and footer is not a
    whole number of records.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "records")
    >>> _ = open(path, "wb").write(b"HEADaabbcc")
    >>> list(FixedLengthRecordDataset(path, 2, header_bytes=4))
    [b'aa', b'bb', b'cc']

    Equivalent of ``tf.data.FixedLengthRecordDataset``.
    """

    def __init__(
        self,
        filenames: FileNames | Dataset,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        buffer_size: int | None = None,
        compression_type: FileCompression | None = None,
        num_parallel_reads: int | None = None,
        *,
        on_error: SourceOnError = "raise",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        settings = {
            "record_bytes": at_least("record_bytes", record_bytes, 1),
            "header_bytes": optional_size("header_bytes", header_bytes) or 0,
            "footer_bytes": optional_size("footer_bytes", footer_bytes) or 0,
            "compression_type": compression(compression_type),
            "buffer_size": optional_size("buffer_size", buffer_size),
            "storage_options": store_options(storage_options),
        }
        kind = operations.files.FixedLengthRecords
        super().__init__(files_node(kind, filenames, num_parallel_reads, settings, on_error))


class CsvDataset(Dataset):
    """The rows of CSV files (RFC 4180), as tuples with a value for each column. It
    cannot be split.

    Args:
        filenames: a name or URL, or several, read sequentially in this order.
        record_defaults: an entry for each selected column. A dtype or an empty list or
            array makes a value required. Any other value replaces a missing value and
            determines the dtype: ``0`` is int64, ``0.0`` float64, ``""`` str,
            ``np.float32(0)`` float32.
        compression_type: ``""`` or None, ``"GZIP"``, ``"ZLIB"`` or ``"ZSTD"``.
        buffer_size: bytes read at a time, at least 1; None: chosen by zmqdata.
        header: skip the first row of each file.
        field_delim: the character between fields.
        use_quote_delim: True if ``"`` quotes a field, which may then contain delimiters
            and line ends.
        na_value: a text that marks a missing value, besides an empty field.
        select_cols: sorted numbers of the columns to read; None: all of them.
        exclude_cols: sorted numbers of the columns to ignore; not together with
            ``select_cols``.
        on_error: ``"skip"`` leaves out a file or record that cannot be read, and lists
            it in ``iterator.quarantine``.
        storage_options: arguments of the client of the store, for URLs.

    For a row that cannot be read, iterating raises a PipelineError and continues with
    the next row.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "people.csv")
    >>> _ = open(path, "w").write("name,age,size" + chr(10) + "Ada,,1.5" + chr(10))
    >>> list(CsvDataset(path, [str, -1], header=True, select_cols=[0, 1]))
    [('Ada', np.int64(-1))]

    Equivalent of ``tf.data.experimental.CsvDataset``, which yields bytes, and takes 0
    as int32 and 0.0 as float32.
    """

    def __init__(
        self,
        filenames: FileNames,
        record_defaults: Sequence[Any],
        compression_type: FileCompression | None = None,
        buffer_size: int | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
        *,
        on_error: SourceOnError = "raise",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if select_cols is not None and exclude_cols is not None:
            raise InvalidArgumentError(
                "`select_cols` and `exclude_cols` exclude each other: pass only one of them. "
                "Either select_cols or exclude_cols should be empty"
            )
        if not isinstance(field_delim, str) or len(field_delim) != 1 or field_delim in '"\r\n':
            raise InvalidArgumentError(
                "field_delim must be a single character, neither a quote nor a line "
                f"end; got {field_delim!r}. field_delim should be only 1 char"
            )
        size = optional_size("buffer_size", buffer_size)
        if size == 0:
            raise InvalidArgumentError(
                "buffer_size should be positive, got 0. Leave it out to let zmqdata choose it"
            )
        if not isinstance(na_value, str):
            refuse("na_value", na_value, "a str")
        selected = None if select_cols is None else _numbers("select_cols", select_cols)
        settings = {
            "compression_type": compression(compression_type),
            "buffer_size": size,
            "columns": _columns(record_defaults, selected),
            "width": len(record_defaults) if selected is None else None,
            "excluded": frozenset(_numbers("exclude_cols", exclude_cols or ())),
            "header": flag("header", header),
            "field_delim": field_delim,
            "use_quote_delim": flag("use_quote_delim", use_quote_delim),
            "na_value": na_value,
            "storage_options": store_options(storage_options),
        }
        names = file_names(filenames)
        super().__init__(files_node(operations.csvfiles.Csv, names, None, settings, on_error))


def _numbers(name: str, given: Iterable[int]) -> list[int]:
    numbers = [
        at_least(name, number, 0) for number in several(name, given, "a list of column numbers")
    ]
    if sorted(set(numbers)) != numbers:
        raise InvalidArgumentError(
            f"{name} must be sorted and contain each column once, got {numbers}. {name} should be "
            "strictly increasing indices"
        )
    return numbers


def _columns(
    defaults: Sequence[Any], selected: list[int] | None
) -> tuple[operations.csvfiles.CsvColumn, ...]:
    if isinstance(defaults, (str, bytes)) or not isinstance(defaults, Sequence) or not defaults:
        refuse("record_defaults", defaults, "a list with a dtype or default for each column")
    numbers = list(range(len(defaults))) if selected is None else selected
    if len(numbers) != len(defaults):
        raise InvalidArgumentError(
            f"select_cols names {len(numbers)} columns and record_defaults has "
            f"{len(defaults)}: pass a default for each column. select_cols should match output size"
        )
    return tuple(
        _column(number, default) for number, default in zip(numbers, defaults, strict=True)
    )


def _column(number: int, default: Any) -> operations.csvfiles.CsvColumn:
    if isinstance(default, (type, np.dtype)):
        return operations.csvfiles.CsvColumn(
            number=number, dtype=_column_dtype("record_defaults", default), required=True
        )
    value = np.asarray(default)
    if value.ndim > 1:
        raise InvalidArgumentError(
            f"Each record default should be at most rank 1, record_defaults[{number}] has shape "
            f"{value.shape}"
        )
    if value.size > 1:
        refuse(f"record_defaults[{number}]", default, "a dtype, or a single number or text")
    dtype = _column_dtype("record_defaults", value.dtype)
    if not value.size:
        return operations.csvfiles.CsvColumn(number=number, dtype=dtype, required=True)
    return operations.csvfiles.CsvColumn(
        number=number, dtype=dtype, default=_scalar(value.reshape(()))
    )


def _scalar(value: np.ndarray[Any, Any]) -> Any:
    return value.item() if value.dtype.kind in "US" else value[()]


def _column_dtype(name: str, given: Any) -> np.dtype[Any]:
    dtype = arguments.dtype(
        f"what {name} holds", given, _KINDS, "a dtype of integers, floats, str or bytes"
    )
    return np.dtype(dtype.type) if dtype.kind in "US" else dtype


class SqlDataset(Dataset):
    """The rows of a query, as tuples with a value for each column. It cannot be split.

    Args:
        driver_name: ``"sqlite"``.
        data_source_name: file name of the database, which is opened read-only.
        query: SQL. With an ORDER BY each iteration has the same order, which restoring
            an iterator requires.
        output_types: a tuple with a dtype for each column, or a single dtype for a
            query with one column, whose rows are then values instead of tuples. NULL
            becomes 0, False or an empty text.

    For a row with values of other types, iterating raises a PipelineError and continues
    with the next row.

    >>> import os, sqlite3, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "people.db")
    >>> with sqlite3.connect(path) as base:
    ...     _ = base.execute("CREATE TABLE people AS SELECT 'Ada' AS name, 36 AS age")
    >>> query = "SELECT name, age FROM people ORDER BY name"
    >>> list(SqlDataset("sqlite", path, query, (str, np.int32)))
    [('Ada', np.int32(36))]

    Equivalent of ``tf.data.experimental.SqlDataset``, which yields bytes.
    """

    def __init__(
        self,
        driver_name: str,
        data_source_name: FileName,
        query: str,
        output_types: Any,
    ) -> None:
        if driver_name != "sqlite":
            raise InvalidArgumentError(
                f"The database type, {driver_name}, is not supported by SqlDataset. The set of "
                "supported databases is: "
                "{'sqlite'}"
            )
        if not isinstance(query, str):
            refuse("query", query, "a str")
        if not query.strip():
            raise ValueError(f"query must not be empty, got {query!r}")
        super().__init__(
            operations.sql.Sql(
                driver_name=driver_name,
                data_source_name=local_path(
                    "SqlDataset",
                    data_source_name,
                    "SQLite reads files of this machine: copy the database to it",
                ),
                query=query,
                output_types=_sql_dtypes(output_types),
                site=call_site(),
            )
        )


def _sql_dtypes(given: Any) -> Any:
    if isinstance(given, (str, type, np.dtype)):
        return _sql_dtype(given)
    if not isinstance(given, Sequence):
        refuse("output_types", given, "a dtype, or a tuple with a dtype for each column")
    if not given:
        raise ValueError(
            "output_types must not be empty: it has a dtype for each column of the query"
        )
    return tuple(map(_sql_dtype, given))


def _sql_dtype(given: Any) -> np.dtype[Any]:
    dtype = arguments.dtype(
        "what output_types holds", given, _KINDS + "b", "a dtype of integers, floats, str or bytes"
    )
    return dtype if dtype.kind == "b" else _column_dtype("output_types", dtype)
