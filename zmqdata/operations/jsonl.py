"""JSON Lines: rows as ``json.loads`` gives them, or batches as dicts of columns. A
split is 32 MB of a plain file, or a packed file.

A line belongs to the split in which the byte before it lies; the first line of a file
belongs to the first. Memory holds a few hundred kilobytes of lines or, with
``shuffle``, the splits whose lines are drawn together.
"""

from __future__ import annotations

import io
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np

from zmqdata.elements.lists import array_of, is_exact
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import DataLossError, InvalidArgumentError
from zmqdata.failures.exceptions import text_of
from zmqdata.files.paths import is_url
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.context import Context
from zmqdata.iterators.indexed import DecodingIterator, DrawingIterator, Loaded
from zmqdata.nodes.base import FileRows
from zmqdata.operations.files import READ_ERRORS
from zmqdata.storage.packed import PackedFile
from zmqdata.storage.reading import Identity, RemoteFile, SequentialFile, open_file, open_remote

SPLIT = 32 << 20
"""Size of the splits of plain files in bytes."""
_CHUNK = 1 << 18
_HEAD = 1 << 12
_BOM = b"\xef\xbb\xbf"
_COUNTED = 1 << 30
"""Number of bytes before a split whose lines are counted for an error."""
_BAD = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_FLOAT = np.dtype(float)
_raw_decode = json.JSONDecoder().raw_decode
Line: TypeAlias = "str | bytes"
"""A line without its end; bytes if it is not UTF-8."""


@dataclass(frozen=True, kw_only=True)
class JsonLines(FileRows):
    """Yields the values of the lines of files."""

    compressions: tuple[str, ...] = field(repr=False)
    """Compression of each file, see ``PackedFile``; "" for plain files."""
    identities: tuple[Identity, ...] = field(repr=False)
    """Identity of each file; of those that could not be read, with the size -1."""
    columns: tuple[str, ...] | None = None
    """Keys of the elements; None: those of the lines."""
    split_bytes: int = SPLIT
    """Size of the splits of plain files."""
    operation: ClassVar[str] = "from_jsonl"
    split_unit: ClassVar[str] = "parts of files"
    restoring: ClassVar[str] = "repeats the reading of its lines, or of its packed file"
    own_state: ClassVar[int] = 32

    @property
    def counts(self) -> list[int]:
        """Number of the splits of each file."""
        sizes = [identity.size for identity in self.identities]
        return [
            1 if packed or size < 0 else -(-size // self.split_bytes)
            for packed, size in zip(self.compressions, sizes, strict=True)
        ]

    @property
    def split_count(self) -> int:
        return sum(self.counts)


def look_at(name: str, options: Mapping[str, Any] | None) -> tuple[bytes, Identity]:
    """Return the first bytes of a file, and its identity. The mark of a local file is a
    checksum of these bytes, which copies on other machines share.
    """
    with open_file(name, options) as file:
        head = file.read(_HEAD)
        if isinstance(file, RemoteFile):
            return head, file.identity
        return head, Identity(os.fstat(file.fileno()).st_size, f"{zlib.crc32(head):08x}")


class _Piece:
    """Consecutive lines of a split.

    Args:
        content: the lines, with their ends.
        split: number of the split.
        begin: position of the first byte in the content of the file.
        before: number of lines before them in the split.
    """

    def __init__(self, content: bytes, split: int, begin: int, before: int = 0) -> None:
        self._content = content if begin else content.removeprefix(_BOM)
        self._begin = begin + len(content) - len(self._content)
        self.split, self.before = split, before

    @cached_property
    def _starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Places at which lines begin, and the end."""
        ends = np.flatnonzero(np.frombuffer(self._content, np.uint8) == ord("\n")) + 1
        last = [len(self._content)] if self._content[-1:] not in (b"", b"\n") else []
        return np.concatenate([[0], ends, last]).astype(np.int64)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def some(self, indices: np.ndarray[Any, Any]) -> list[Line]:
        """Return the lines with these numbers."""
        ends = self._starts[indices + 1].tolist()
        bounds = zip(self._starts[indices].tolist(), ends, strict=True)
        return [_as_text(self._content[start:end].rstrip(b"\r\n")) for start, end in bounds]

    def lines(self) -> Sequence[Line]:
        """Return all lines."""
        if not self._content:
            return ()
        content = self._content.removesuffix(b"\n")
        try:
            return content.decode().replace("\r\n", "\n").split("\n")
        except UnicodeDecodeError:
            return [*map(_as_text, content.split(b"\n"))]

    def place_of(self, index: int) -> int:
        """Return the position of a line in the content of its file."""
        return self._begin + int(self._starts[index])


def _as_text(line: bytes) -> Line:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line


class _SplitFile:
    """File from which the lines of a split are read in order.

    Args:
        node: the source.
        number: number of the file.
        begin: position at which the split begins.
        offset: position of the next line; -1: the first line of the split.
    """

    def __init__(self, node: JsonLines, number: int, begin: int, offset: int = -1) -> None:
        name, options = node.filenames[number], node.storage_options
        packed, known = node.compressions[number], node.identities[number]
        self._stop = sys.maxsize if packed else begin + node.split_bytes
        raw: Any = None
        if is_url(name) and known.size >= 0:
            remote = open_remote(name, expected=known, options=options)
            raw = SequentialFile(remote, self._stop)
        elif look_at(name, options)[1] == known:
            raw = open(name, "rb", 0)  # noqa: SIM115 - closed by close()
        else:
            raise DataLossError(
                f"{node.shown(number)} was changed after this dataset was made, or could not "
                "be read then. Make the dataset again, and do not write to files that are read"
            )
        self._local, self._size = None if isinstance(raw, SequentialFile) else raw, known.size
        if not packed:
            self._stop = min(self._stop, known.size - 1)
        self._file = io.BufferedReader(PackedFile(raw, packed) if packed else raw, _CHUNK)
        self.offset = self._file.seek(begin if offset < 0 else offset)
        if offset < 0 < begin:
            self.offset += len(self._file.readline(node.split_bytes + 1))

    def read(self) -> bytes:
        """Return some of the next lines; none at the end of the split."""
        content = b""
        if self.offset <= self._stop:
            # Not more than is there, so that what comes before damage is read.
            content = self._file.read1(min(_CHUNK, self._stop + 1 - self.offset))
            if content[-1:] != b"\n":
                content += self._file.readline()
            self.offset += len(content)
        # The size is compared at each end, and where the file surely grew.
        if self._local and (content[-1:] != b"\n" or self.offset > self._size):
            size = os.fstat(self._local.fileno()).st_size
            if size != self._size:
                raise DataLossError(f"it has {size} bytes, and had {self._size}")
        return content

    def close(self) -> None:
        self._file.close()


@make_iterator.register(JsonLines)
def _reading(node: JsonLines, context: Context) -> ElementIterator:
    return (DrawnLinesIterator if node.shuffle else JsonLinesIterator)(node, context)


class JsonLinesIterator(DecodingIterator):
    """Yields the values of lines in order. Its state has the position of the lines that
    were read together, the number of lines before them, and that before the next one.
    """

    _node: JsonLines
    _file: _SplitFile | None = None

    def __init__(self, node: JsonLines, context: Context) -> None:
        super().__init__(node, context)
        self._split_ends = np.cumsum(node.counts, dtype=np.int64)  # by file
        self._begin_reading(-1, 0)
        self._counted: dict[int, dict[int, int]] = {}  # by file: lines before positions

    def _begin_reading(self, offset: int, before: int) -> None:
        self._offset, self._piece = offset, _Piece(b"", 0, 0)
        self._lines: Sequence[Line] = ()
        self._lines_from = before  # number of the first of them
        self._broken: BaseException | None = None

    def _more(self) -> Iterator[Any]:
        self._strand.place = self._own_place
        size, names, rows = self._node.batch_size, self._node.columns, list[Any]()
        while len(rows) < (size or 1):
            if not self._has_lines(bool(rows)):
                if rows:
                    break
                continue
            # The keys of the first row of a batch are those of the others.
            is_first = size is not None and names is None and not rows
            keys = rows[0].keys() if rows and names is None else None
            lines, at = self._lines, self._behind - self._lines_from
            stop = len(lines) if size is None else min(len(lines), at + size - len(rows))
            # A slice would copy all that follows, for each line that ends the rows.
            ahead = map(lines.__getitem__, range(at, stop))
            found = [] if is_first else _leading_rows(ahead, names, keys)
            self._behind += len(found)
            rows += found
            if found:
                continue
            try:
                rows += _rows_of(lines[at], names, keys, is_first)
            except _BAD as error:
                if rows:
                    break
                self._behind += 1
                raise self._named(error, self._place_of(self._behind - 1)) from error
            else:
                self._behind += 1
        self._rows = iter(rows if size is None else ())
        return self._rows if size is None else iter([_columns_of(rows)])

    def _has_lines(self, is_pending: bool) -> bool:
        """Read the next lines if all are used. Return False at the end of a split, and
        end it.

        Args:
            is_pending: True if rows wait for others, so that the split must not end.
        """
        try:
            if self._broken is not None:
                raise self._broken
            if self._file is None:
                self._reach_part()
                self._file = _SplitFile(self._node, *self._file_of(self._part), self._offset)
            while self._behind - self._lines_from >= len(self._lines):
                self._offset = self._file.offset
                self._lines_from += len(self._lines)
                content = self._file.read()
                self._piece = _Piece(content, self._part, self._offset, self._lines_from)
                self._lines = self._piece.lines()
                if not self._lines:
                    if not is_pending:
                        self._end_part()
                    return False
            return True
        except READ_ERRORS as error:
            if is_pending:
                self._broken = error
            else:
                self._end_part()
                raise self._named(error, self._name_of_file(self._part)) from error
        return False

    def _file_of(self, split: int) -> tuple[int, int]:
        """Return the number of the file of a split, and its position in that."""
        number = int(np.searchsorted(self._split_ends, split, side="right"))
        first = int(self._split_ends[number - 1]) if number else 0
        return number, (split - first) * self._node.split_bytes

    def _name_of_file(self, split: int) -> str:
        return self._node.shown(self._file_of(split)[0])

    def _line(self, index: int) -> tuple[_Piece, int]:
        """Return the piece that has a line of this pass, and its number in that."""
        return self._piece, index - self._piece.before

    def _place_of(self, index: int) -> str:
        """Return the place of a line, as errors name it."""
        piece, at = self._line(index)
        name, line, byte = self._name_of_file(piece.split), piece.before + at, piece.place_of(at)
        file, begin = self._file_of(piece.split)
        before = _lines_before(self._node, file, begin, self._counted.setdefault(file, {0: 1}))
        if before is None:
            return f"{name}, line {line + 1} of its part {piece.split}, byte {byte}"
        return f"{name}, line {before + line + 1}, byte {byte}"

    def _failure(self, error: BaseException, where: str) -> Exception:
        if isinstance(error, DataLossError):
            return DataLossError(
                f"{self._node.label}: {where} cannot be read: {text_of(error)}. With "
                'on_error="skip", the rest of it is left out'
            )
        return failure(self._node, error, where)

    @property
    def in_part(self) -> bool:
        return self._is_begun

    @property
    def _position(self) -> int:
        return self._row

    def _end_part(self) -> None:
        self.close()
        self._begin_reading(-1, 0)
        self._go_to(0)
        self._is_begun = False
        self._next += self._stride

    def state(self) -> Any:
        return [super().state(), self._offset, self._lines_from, self._row]

    def restore(self, state: Any) -> None:
        position, offset, before, row = state
        super().restore(position)
        self._begin_reading(offset, before)
        self._go_to(row)
        if row:
            self._reach_part()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def __del__(self) -> None:
        self.close()


class DrawnLinesIterator(DrawingIterator, JsonLinesIterator):
    """Yields the values of the lines of several splits, drawn together."""

    def _has_lines(self, is_pending: bool) -> bool:
        if self._behind - self._lines_from < len(self._lines):
            return True
        numbers = self._rows_ahead(0)
        if not len(numbers):
            if not is_pending:
                self._end_part()
            return False
        owners, indices = self._owners(numbers)
        found: list[Line] = [""] * len(numbers)
        for owner, piece in enumerate(self._opened or ()):
            places = np.flatnonzero(owners == owner)
            for place, line in zip(places.tolist(), piece.some(indices[places]), strict=True):
                found[place] = line
        self._lines, self._lines_from = found, self._behind
        return True

    def _go_to(self, row: int) -> None:
        super()._go_to(row)
        self._lines, self._lines_from = (), row

    def _loaded(self, splits: Sequence[int]) -> Iterator[Loaded]:
        for split in splits:
            contents, begin, failed = list[bytes](), 0, None
            try:
                with closing(_SplitFile(self._node, *self._file_of(split))) as file:
                    begin = file.offset
                    contents.extend(iter(file.read, b""))
            except READ_ERRORS as error:
                failed = error
            whole, where = b"".join(contents), self._name_of_file(split)
            yield Loaded(_Piece(whole, split, begin), len(whole), split, where, failed)

    def _line(self, index: int) -> tuple[_Piece, int]:
        assert self._opened is not None
        owners, places = self._owners(self._drawn.many(range(index, index + 1)))
        return self._opened[int(owners[0])], int(places[0])


def _lines_before(node: JsonLines, number: int, begin: int, counted: dict[int, int]) -> int | None:
    """Return the number of lines of a file before a split; None if counting them would
    take long.

    Args:
        node: the source.
        number: number of the file.
        begin: position at which the split begins.
        counted: numbers of the lines before splits of the file, to go on from; those
            that are found are added.
    """
    name = node.filenames[number]
    if not begin or is_url(name) or begin > _COUNTED:
        return None if begin else 0
    at = max(at for at in counted if at <= begin)
    count = counted[at]
    with suppress(OSError), open_file(name) as file:
        file.seek(at)
        while at < begin and (content := file.read(min(begin - at, _CHUNK))):
            count, at = count + content.count(b"\n"), at + len(content)
            if at % node.split_bytes == 0:
                counted[at] = count
        return count
    return None


def _leading_rows(
    lines: Iterable[Line], names: Sequence[str] | None, keys: KeysView[str] | None
) -> list[Any]:
    """Return the rows of lines up to one that is blank or is no row, or begins with
    blanks.

    Args:
        lines: the lines.
        names: the keys to choose; None: all.
        keys: the keys that they must have; None: any.
    """
    rows = []
    for line in lines:
        try:
            row, end = _raw_decode(line)  # type: ignore[arg-type]  # bytes are an error
            if end != len(line):
                row = json.loads(line)
            if "[" in line:
                row = _with_arrays(row)
            if names is not None:
                row = {name: row[name] for name in names}
            elif keys is not None and row.keys() != keys:
                break
        except _BAD:
            break
        rows.append(row)
    return rows


def _rows_of(
    line: Line, names: Sequence[str] | None, keys: KeysView[str] | None, is_object: bool
) -> list[Any]:
    """Return the row of a line; none of a blank line.

    Args:
        line: the line.
        names, keys: as of ``_leading_rows``.
        is_object: True if it must be an object.
    """
    if not line.strip():
        return []
    row = _with_arrays(json.loads(line.decode() if isinstance(line, bytes) else line))
    if names is None and keys is None and not is_object:
        return [row]
    wanted, kind = names or keys or (), type(row)
    if kind is not dict or (keys is not None and row.keys() != keys) or {*wanted} - {*row}:
        raise InvalidArgumentError(
            f"the line has {f'the keys {[*row]}' if kind is dict else f'a {kind.__name__}'}, "
            f"expected an object with the keys {[*wanted]}. Choose `columns` that all lines have, "
            "or read rows without them, and get() keys in map()"
        )
    return [{name: row[name] for name in wanted or row}]


def _with_arrays(value: Any) -> Any:
    """Return a value in which lists are arrays where that is exact."""
    kind = type(value)
    if kind is dict:
        for key, part in value.items():
            if type(part) in (dict, list):
                value[key] = _with_arrays(part)
        return value
    return value if kind is not list else _as_array(value)


def _as_array(values: list[Any]) -> Any:
    kinds = set(map(type, values))
    if kinds == {str}:
        return _objects(values)
    if not kinds <= {bool, int, float, list}:
        return values
    try:
        # Lists of a single type need no further look.
        array = np.array(values) if len(kinds) == 1 and list not in kinds else array_of(values)
    except (ValueError, OverflowError):
        return values
    is_alike = kinds != {int} or array.dtype.kind == "i"
    return array if is_alike and array.dtype.kind in "bif" else values


def _objects(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    return np.fromiter(values, object, len(values))


def _columns_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: _column([row[name] for row in rows]) for name in rows[0]}


def _column(values: list[Any]) -> Any:
    """Return values as an array, as a ragged tensor of arrays of numbers, as a dict of
    columns of dicts with the same keys, or as an array of objects.
    """
    kinds = set(map(type, values))
    if kinds == {dict} and len({frozenset(value) for value in values}) == 1:
        return _columns_of(values)
    if kinds == {np.ndarray}:
        with suppress(ValueError, TypeError):  # they differ
            return RaggedTensor.from_rows(_alike(values))
        return _objects(values)
    if kinds <= {bool, int, float}:
        found = _as_array(values)
        return found if isinstance(found, np.ndarray) else _objects(values)
    return _objects(values)


def _alike(arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Return arrays of integers as floats if others are floats, where that is exact."""
    if {"i", "f"} - {array.dtype.kind for array in arrays if array.size}:
        return arrays
    return [
        array.astype(float) if array.dtype.kind == "i" and is_exact(array, _FLOAT) else array
        for array in arrays
    ]
