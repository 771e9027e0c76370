"""Iterator over CSV files (RFC 4180), the splitting of lines into fields, and the
conversion of fields.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from zmqdata import nodes
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.base import Context, failure, make_iterator
from zmqdata.iterators.files import FilesIterator

Convert = Callable[[str], Any]
_CLOSING = re.compile(rb'(?:[^"]|"")*')


@make_iterator.register(nodes.Csv)
class CsvIterator(FilesIterator):
    """Yields a tuple for each row. An unreadable row is a single failure; the next row
    follows.
    """

    def __init__(self, node: nodes.Csv, context: Context) -> None:
        super().__init__(node, context)
        self._converts = [
            converter(column, place, node.na_value) for place, column in enumerate(node.columns)
        ]
        self._delimiter = node.field_delim.encode()
        self._numbers = [column.number for column in node.columns]
        self._as_they_come = node.width == len(node.columns) and not node.excluded

    def __next__(self) -> tuple[Any, ...]:
        text = self._next_row()
        try:
            fields = split_fields(text, self._node.field_delim, self._node.use_quote_delim)
            if not self._as_they_come or len(fields) != len(self._converts):
                fields = self._chosen(fields)
            return tuple(
                [convert(field) for convert, field in zip(self._converts, fields, strict=True)]
            )
        except Exception as error:
            raise failure(self._node, error) from error

    def _next_row(self) -> str:
        while True:
            file = self._file or self._open()
            try:
                line = self._read_row(file)
            except (OSError, EOFError, zlib.error) as error:
                self._end_part()
                raise failure(self._node, error) from error
            if line:
                break
            self._end_part()
        try:
            return line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise failure(self._node, error) from error

    def _open(self) -> BinaryIO:
        file = super()._open()
        self._offset = 0
        if self._node.header:
            try:
                self._read_row(file)
            except (OSError, EOFError, zlib.error) as error:
                self._end_part()
                raise failure(self._node, error) from error
        return file

    def _read_row(self, file: BinaryIO) -> bytes:
        """Return a line, and the following lines while a quoted field is open at its
        end.
        """
        line = file.readline()
        if (
            self._node.use_quote_delim
            and line.count(b'"') % 2
            and _ends_quoted(line, self._delimiter)
        ):
            lines, quotes = [line], 1
            while quotes % 2:
                line = file.readline()
                if not line:
                    # Splitting the row into fields raises the error.
                    break
                lines.append(line)
                quotes += line.count(b'"')
            line = b"".join(lines)
        self._offset += len(line)
        return line

    def _chosen(self, fields: list[Any]) -> list[Any]:
        node = self._node
        kept = [field for number, field in enumerate(fields) if number not in node.excluded]
        expected = node.width if node.width is not None else self._numbers[-1] + 1
        if len(kept) < expected or (node.width is not None and len(kept) > expected):
            raise InvalidArgumentError(
                f"Expect {expected} fields but have {len(kept)} in record. Give a default for "
                "each column in record_defaults, or choose columns with select_cols"
            )
        return [kept[number] for number in self._numbers]


def _ends_quoted(line: bytes, delimiter: bytes) -> bool:
    """Return True if a line with an odd number of quotes ends within a quoted field;
    False if it is malformed.
    """
    at = 0
    while True:
        if line.startswith(b'"', at):
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
                f"A quoted field has no closing quote: {text[start - 1 :]!r}"
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


def converter(column: nodes.CsvColumn, place: int = 0, na_value: str = "") -> Convert:
    """Return a function from a field's text to the value of its column, which is at
    ``place`` in the element.

    >>> converter(nodes.CsvColumn(number=0, dtype=np.dtype("int8"), default=7))("5")
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
            if "_" in field:
                raise ValueError
            if limits is None:
                return make(float(field))
            number = int(field)
            if not limits.min <= number <= limits.max:
                raise ValueError
            return make(number)
        except ValueError:
            raise InvalidArgumentError(
                f"Field {place} in record is not a valid {dtype}: {field}"
            ) from None

    return parse
