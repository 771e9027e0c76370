"""CSV files (RFC 4180), the splitting of lines into fields, and the conversion of
fields.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, TextIO

import numpy as np

from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Infer, whole_only
from zmqdata.operations.files import READ_ERRORS, Files, FilesIterator
from zmqdata.splits import SplitSource


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


Convert = Callable[[str], Any]
_CLOSING = re.compile(r'(?:[^"]|"")*')


@make_iterator.register(Csv)
class CsvIterator(FilesIterator):
    """Yields a tuple for each row. An unreadable row is a single failure; the next row
    follows.

    Rows end with LF, CR LF or a lone CR. Bytes that are not UTF-8 are kept as lone
    surrogates until their row is complete, so that only this row fails.
    """

    _lines: TextIO

    def __init__(self, node: Csv, context: Context) -> None:
        super().__init__(node, context)
        self._converts = [
            converter(column, place, node.na_value) for place, column in enumerate(node.columns)
        ]
        self._numbers = [column.number for column in node.columns]
        self._as_they_come = node.width == len(node.columns) and not node.excluded

    def __next__(self) -> tuple[Any, ...]:
        self._strand.place = self._own_place
        text = self._next_row()
        try:
            fields = split_fields(text, self._node.field_delim, self._node.use_quote_delim)
            if not self._as_they_come or len(fields) != len(self._converts):
                fields = self._chosen(fields)
            return tuple(
                [convert(field) for convert, field in zip(self._converts, fields, strict=True)]
            )
        except Exception as error:
            raise self._failure(error) from error

    def _next_row(self) -> str:
        while True:
            if self._file is None:
                self._open()
            self._begin, row = self._offset, self._read_row()
            if row:
                break
            self._end_part()
        if not row.isascii():
            try:
                row.encode()
            except UnicodeEncodeError:
                self._refuse(_as_bytes(row))
        return row.removesuffix("\n").removesuffix("\r")

    def _refuse(self, row: bytes) -> None:
        try:
            row.decode()
        except UnicodeDecodeError as error:
            raise self._failure(error) from error

    def _open(self, offset: int = 0) -> BinaryIO:
        file = super()._open(offset)
        self._lines = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
        if self._node.header and not offset and not self._read_row():
            name = self._shown
            self._end_part()
            error = InvalidArgumentError(
                f"Can't read header of file {name}: the file is empty. Write the header, leave "
                "the file out, or pass header=False"
            )
            raise failure(self._node, error) from error
        return file

    def _read_row(self) -> str:
        """Return a line, and the following lines while a quoted field is open at its
        end.
        """
        try:
            row = self._lines.readline()
            if (
                self._node.use_quote_delim
                and row.count('"') % 2
                and _ends_quoted(row, self._node.field_delim)
            ):
                row = self._whole_row(row)
        except READ_ERRORS as error:
            self._end_part()
            raise failure(self._node, error) from error
        self._offset += len(row if row.isascii() else _as_bytes(row))
        return row

    def _whole_row(self, line: str) -> str:
        lines, quotes = [line], 1
        while quotes % 2:
            line = self._lines.readline()
            if not line:
                # Splitting the row into fields raises the error.
                break
            lines.append(line)
            quotes += line.count('"')
        return "".join(lines)

    def _chosen(self, fields: list[Any]) -> list[Any]:
        node = self._node
        kept = [field for number, field in enumerate(fields) if number not in node.excluded]
        found = [kept[number] for number in self._numbers if number < len(kept)]
        expected, more = len(self._numbers), node.width is not None and len(kept) > node.width
        if more or len(found) < expected:
            raise InvalidArgumentError(
                f"Expect {expected} fields but have {'more' if more else len(found)} in record, "
                f"which has {len(fields)}. Give a default for each column in record_defaults, or "
                "choose columns with select_cols"
            )
        return found


def _as_bytes(row: str) -> bytes:
    """Return a row as it is in the file."""
    return row.encode("utf-8", "surrogateescape")


def _ends_quoted(line: str, delimiter: str) -> bool:
    """Return True if a line with an odd number of quotes ends within a quoted field;
    False if it is malformed.
    """
    at = 0
    while True:
        if line.startswith('"', at):
            at = _CLOSING.match(line, at + 1).end()  # type: ignore[union-attr]  # it also matches an empty text
            if at == len(line):
                return True
            at += 1
        at = line.find(delimiter, at)
        if at < 0:
            return False
        at += len(delimiter)


def split_fields(text: str, delimiter: str = ",", quoted: bool = True) -> list[str]:
    """Return the fields of a row, without their quotes.

    Raises:
        InvalidArgumentError: quotes are not where RFC 4180 allows them.

    >>> split_fields('1,"a ""b"", c",')
    ['1', 'a "b", c', '']
    """
    if not quoted or '"' not in text:
        return text.split(delimiter)
    fields, at = [], 0
    while True:
        if text.startswith('"', at):
            field, at = _quoted_field(text, at + 1, delimiter)
        else:
            end = text.find(delimiter, at)
            end = len(text) if end < 0 else end
            field, at = text[at:end], end
            if '"' in field:
                raise InvalidArgumentError(
                    f"Unquoted fields cannot have quotes inside, got {field!r}"
                )
        fields.append(field)
        if at >= len(text):
            return fields
        at += len(delimiter)


def _quoted_field(text: str, start: int, delimiter: str) -> tuple[str, int]:
    """Return the field that begins behind an opening quote, and its end."""
    at = start
    while True:
        quote = text.find('"', at)
        if quote < 0:
            raise InvalidArgumentError(
                f"Reached end of file without closing quoted field in record: {text[start - 1 :]!r}"
            )
        if not text.startswith('"', quote + 1):
            break
        at = quote + 2
    end = quote + 1
    if end < len(text) and not text.startswith(delimiter, end):
        raise InvalidArgumentError(
            f"Quote inside a string has to be escaped by another quote, got {text[start - 1 :]!r}"
        )
    return text[start:quote].replace('""', '"'), end


def converter(column: CsvColumn, place: int = 0, na_value: str = "") -> Convert:
    """Return a function from a field's text to the value of its column, which is at
    ``place`` in the element.

    >>> converter(CsvColumn(number=0, dtype=np.dtype("int8"), default=7))("5")
    np.int8(5)
    """
    parse = _parser(column.dtype, place)
    default, required = column.default, column.required

    def convert(field: str) -> Any:
        if field and field != na_value:
            return parse(field)
        if required:
            raise InvalidArgumentError(
                f"Field {place} is required but missing in record! Give a default in "
                "record_defaults if the field may be missing"
            )
        return default

    return convert


def _parser(dtype: np.dtype[Any], place: int) -> Convert:
    if dtype.kind == "U":
        return str
    if dtype.kind == "S":
        return str.encode
    make = dtype.type
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None

    def parse(field: str) -> Any:
        try:
            # Python reads the digits of all scripts, and digits with underscores.
            if "_" in field or not field.isascii():
                raise ValueError
            if limits is None:
                return make(float(field))
            number = int(field)
            if not limits.min <= number <= limits.max:
                raise ValueError
            return make(number)
        except ValueError:
            if limits is None and "x" in field.lower():
                with suppress(ValueError, OverflowError):
                    return make(float.fromhex(field))
            raise InvalidArgumentError(
                f"Field {place} in record is not a valid {dtype}: {field}"
            ) from None

    return parse
