"""Parquet files: rows as dicts, or batches as dicts of columns. A split is a row group.

Memory holds the packed pages of a row group and a batch or, with ``shuffle``, the rows
of several row groups, which are drawn together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, takewhile
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from zmqdata.elements.columns import Fill, column_dict, dict_rows, rows_of
from zmqdata.elements.specs import UNKNOWN_CARDINALITY
from zmqdata.errors import DataLossError, DataServiceError
from zmqdata.failures.exceptions import text_of
from zmqdata.files.paths import is_url
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import PassedOver, failure
from zmqdata.iterators.context import Context
from zmqdata.iterators.deciding import loss
from zmqdata.iterators.indexed import (
    BYTES_AT_ONCE,
    WHOLE,
    DecodingIterator,
    DrawingIterator,
    Loaded,
    suitable_rows,
)
from zmqdata.nodes.base import ByIdentity, FileRows
from zmqdata.storage.parquet import (
    UNREADABLE,
    Footer,
    GroupTable,
    check_schema,
    read_footer,
    read_group,
)
from zmqdata.storage.reading import RemoteFile, Requested, open_file


@dataclass(frozen=True, kw_only=True, eq=False)
class Parquet(ByIdentity, FileRows):
    """Yields the rows of Parquet files."""

    columns: tuple[str, ...]
    """Names of the columns of the elements."""
    schema: bytes = field(repr=False)
    """Schema of the columns, and of those that ``condition`` needs."""
    condition: Any = None
    """Arrow expression that rows must meet; None: all are read."""
    is_whole: bool = True
    """True if all columns are read, so that no file may have others."""
    is_union: bool = False
    """True if files may lack columns."""
    nulls: Fill = None
    """Treatment of nulls in batches."""
    table: GroupTable | None = field(default=None, repr=False)
    """The row groups, which are the splits; None: a split is a file."""
    operation: ClassVar[str] = "from_parquet"
    restoring: ClassVar[str] = "repeats the decoding of its row groups up to the position"
    own_state: ClassVar[int] = 24

    @property
    def split_unit(self) -> str:  # type: ignore[override]  # two kinds of splits
        return "files" if self.table is None else "row groups"

    @property
    def split_count(self) -> int:
        return len(self.filenames if self.table is None else self.table.groups)

    @property
    def cardinality(self) -> int:
        is_pooled = self.shuffle and self.batch_size is not None
        if self.table is None or self.condition is not None or is_pooled:
            return UNKNOWN_CARDINALITY
        return int(np.sum(-(-self.table.rows.astype(np.int64) // (self.batch_size or 1))))


class _GroupReader:
    """Reads row groups as batches of Arrow. It keeps the footer of the last file.

    Args:
        node: the source.
        kept: gets footers of files in stores, by numbers of files. Readers share it.
        checksums: those of the footers of files that are splits, by numbers of files.
            Readers share it, and it is part of the state.
    """

    def __init__(self, node: Parquet, kept: dict[int, Footer], checksums: dict[int, int]) -> None:
        self._node, self._kept, self._checksums = node, kept, checksums
        self.schema = pa.ipc.read_schema(pa.BufferReader(node.schema))
        self._number = -1
        self._file: BinaryIO | None = None
        self._footer: Footer | None = None
        self._written: Any = None

    def groups_of(self, split: int) -> list[tuple[int, int]]:
        """Return the row groups of a split, each as the number of its file and its
        number in that.
        """
        table = self._node.table
        if table is not None:
            number = int(np.searchsorted(table.ends, split, side="right"))
            return [(number, int(table.groups[split]))]
        footer, _ = self._opened(split)
        self._checksums[split] = footer.checksum
        return [(split, group) for group in range(footer.metadata.num_row_groups)]

    def _opened(self, number: int) -> tuple[Footer, BinaryIO]:
        if self._number != number or self._footer is None or self._file is None:
            self.close()
            name, table = self._node.shown(number), self._node.table
            url, options = self._node.filenames[number], self._node.storage_options
            known = self._kept.get(number)
            expected = None if known is None else known.identity
            self._file = open_file(url, options, expected)
            self._written = _written(self._file)
            footer = known or read_footer(self._file, name)
            if footer.identity is not None:
                self._keep(number, footer)
            if table is None:
                checksum = self._checksums.get(number, footer.checksum)
            else:
                checksum = table.checksums[number]
            if table is None or not checksum:  # it was left out when the dataset was made
                node = self._node
                check_schema(name, footer.schema, self.schema, node.is_whole, node.is_union)
            if footer.checksum != checksum:
                raise DataLossError(
                    f"{name} was changed after this dataset was made, or a state was saved: it has "
                    "another footer. Make the dataset again, and do not write to files that are "
                    "read"
                )
            self._footer, self._number = footer, number
        return self._footer, self._file

    def _keep(self, number: int, footer: Footer) -> None:
        if sum(len(one.content) for one in self._kept.values()) > BYTES_AT_ONCE:
            self._kept.clear()
        self._kept[number] = footer

    def batches(
        self,
        group: tuple[int, int],
        rows: int | None,
        upcoming: Iterable[tuple[int, int]] = (),
    ) -> Iterator[Any]:
        """Yield the rows of a row group that meet the condition.

        Args:
            group: file and number of the row group.
            rows: number of rows to decode together; None: as suits single rows.
            upcoming: the row groups that are read next.
        """
        footer, file = self._opened(group[0])
        described = footer.metadata.row_group(group[1])
        rows = rows or suitable_rows(described.total_byte_size, described.num_rows)
        name, condition = self._node.shown(group[0]), self._node.condition
        beside = takewhile(lambda one: one[0] == group[0], upcoming)
        then = (number for _, number in beside)
        for batch in read_group(file, name, footer, group[1], self.schema, rows, then):
            if _written(file) != self._written:
                raise DataLossError(
                    f"{name} was written to while it was read. Make the dataset again, and do not "
                    "write to files that are read"
                )
            yield batch if condition is None else batch.filter(condition)

    def name_of(self, group: tuple[int, int]) -> str:
        """Return the name of a row group for errors."""
        return f"{self._node.shown(group[0])}, row group {group[1]}"

    def rows_in(self, group: tuple[int, int]) -> int:
        """Return the number of rows of a row group."""
        return int(self._opened(group[0])[0].metadata.row_group(group[1]).num_rows)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._footer = None


def _written(file: BinaryIO) -> Any:
    """Return when a local file was written last, and its size."""
    if isinstance(file, RemoteFile):
        return None
    status = os.fstat(file.fileno())
    return status.st_mtime_ns, status.st_size


def _of_size(batches: Iterator[Any], size: int | None, passed: int) -> Iterator[Any]:
    """Yield the rows of batches from a row on, in batches of one size except the last;
    None leaves them as they are.
    """
    held: list[Any] = []
    count = 0
    for batch in batches:
        if not held and not passed and len(batch) == size:
            yield batch
            continue
        rest, passed = batch.slice(passed), max(0, passed - len(batch))
        while len(rest):
            piece = rest if size is None else rest.slice(0, size - count)
            rest = rest.slice(len(piece))
            held.append(piece)
            count += len(piece)
            if size is None or count == size:
                yield joined(held)
                held, count = [], 0
    if held:
        yield joined(held)


def joined(batches: Sequence[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def rows_at(
    owners: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any], table_of: Callable[[int], Any]
) -> Any:
    """Return rows of several tables as one batch, in their order.

    Args:
        owners: number of the table of each row, at least one.
        numbers: number of each row in its table.
        table_of: returns a table by its number.
    """
    parts, places = [], []
    for owner in np.unique(owners).tolist():
        own = np.flatnonzero(owners == owner)
        parts.append(table_of(owner).take(numbers[own]))
        places.append(own)
    order = np.argsort(np.concatenate(places))
    return joined(pa.concat_tables(parts).take(order).to_batches())


@make_iterator.register(Parquet)
def _reading(node: Parquet, context: Context) -> ElementIterator:
    return (DrawnRowsIterator if node.shuffle else ParquetIterator)(node, context)


class ParquetIterator(DecodingIterator):
    """Yields the rows of row groups in order. Its state has the row group of the split,
    and the number of rows, or batches, before it in that.
    """

    _node: Parquet

    def __init__(self, node: Parquet, context: Context) -> None:
        super().__init__(node, context)
        self._kept: dict[int, Footer] = {}
        self._checksums: dict[int, int] = {}
        self._reader = _GroupReader(node, self._kept, self._checksums)
        self._groups: list[tuple[int, int]] | None = None  # None: no split is open
        self._batches: Iterator[Any] | None = None
        self._reached = 0
        self._in_group = False  # True if the row group that was begun last is not finished
        self._is_followed = context.forgives

    def _more(self) -> Iterator[Any]:
        """Return an iterator over the next elements, at least one."""
        self._strand.place = self._own_place
        while (batch := self._next_batch()) is None:
            pass
        if self._node.batch_size is not None:
            self._behind += 1
            return iter([self._columns_of(batch)])
        names = self._node.columns
        columns = map(rows_of, batch.columns[: len(names)])
        self._rows = iter(dict_rows(names, columns))
        self._behind += len(batch)
        return self._rows

    def _next_batch(self) -> Any:
        """Return the next batch of Arrow, or None to be called again."""
        self._reach_part()
        try:
            batch = next(self._batches or self._open(), None)
        except UNREADABLE as error:
            where = self._where()
            self._end_unreadable(error, where)
            raise self._named(error, where) from error
        if batch is None:
            self._next_group()
        return batch

    def _open(self) -> Iterator[Any]:
        """Open a row group of the split that was begun, at its row."""
        if self._groups is None:
            self._groups = self._reader.groups_of(self._part)
        size, group = self._node.batch_size, self._reached
        batches: Iterator[Any] = iter(())
        if group < len(self._groups):
            self._begin_group()
            batches = self._reader.batches(self._groups[group], size, self._upcoming())
        self._batches = _of_size(batches, size, self._row * (size or 1))
        return self._batches

    def _upcoming(self) -> Iterator[tuple[int, int]]:
        """Yield the row groups behind the one that is open."""
        yield from (self._groups or [])[self._reached + 1 :]
        if self._node.table is not None:
            for split in range(self._next + self._stride, self._stop, self._stride):
                place = split if self._order is None else self._order[split]
                yield from self._reader.groups_of(place)

    def _begin_group(self) -> None:
        """Begin a row group, which is a part by itself where a split is a file."""
        if self._node.table is None and not self._in_group:
            self.begun += 1
            if self.begun == self._passed_over:
                self._next_group()
                raise PassedOver
        self._in_group = True

    def _end_unreadable(self, error: BaseException, where: str) -> None:
        """Go behind the row group, or the file, that cannot be read."""
        if self._groups is not None:
            self._next_group()
            return
        if self._is_followed and (self._reached or self._row):
            raise loss(
                f"{self._node.label}: {where} was read in part in an earlier attempt of this "
                f"task, and cannot be opened now: {text_of(error)}. Begin anew once it can be "
                "read, or restore an older state"
            ) from error
        self._end_part()

    def pass_part(self, ahead: int) -> None:
        if not ahead:
            self._next_group()
            raise PassedOver
        super().pass_part(ahead)

    def _next_group(self) -> None:
        self._batches, self._in_group = None, False
        self._reached += 1
        self._go_to(0)
        if self._groups is not None and self._reached >= len(self._groups):
            self._end_part()

    def _columns_of(self, batch: Any) -> dict[str, Any]:
        try:
            return column_dict(self._node.columns, batch.columns, self._node.nulls)
        except (ValueError, TypeError) as error:
            raise failure(self._node, error, self._where()) from error

    def _where(self) -> str:
        """Return the place that is being read, as errors name it."""
        if self._groups:
            return self._reader.name_of(self._groups[self._reached])
        return self._node.shown(self._part) if self._node.table is None else ""

    def _failure(self, error: BaseException, where: str) -> Exception:
        # Arrow raises OSError for damaged pages, too, and without a number.
        is_told = isinstance(error, DataServiceError) and not isinstance(error, DataLossError)
        if is_told or getattr(error, "errno", None):
            return failure(self._node, error, where)
        return DataLossError(
            f"{self._node.label}: {where} cannot be read: {text_of(error)}. With "
            'on_error="skip", what is damaged is left out'
        )

    @property
    def in_part(self) -> bool:
        return self._in_group

    @property
    def _position(self) -> int:
        return (self._reached << 40) + self._row

    def _end_part(self) -> None:
        self._groups = self._batches = None
        self._is_begun = self._in_group = False
        self._reached = 0
        self._checksums.clear()
        self._go_to(0)
        self._next += self._stride

    def state(self) -> Any:
        checksums = [*map(list, self._checksums.items())]
        return [super().state(), self._reached, self._row, checksums]

    def restore(self, state: Any) -> None:
        position, self._reached, row, checksums = state
        super().restore(position)
        self._checksums.update(checksums)
        self._go_to(row)
        if self._reached or row:
            self._reach_part()
            self._in_group = row > 0

    def close(self) -> None:
        self._reader.close()

    def __del__(self) -> None:
        self.close()


class DrawnRowsIterator(DrawingIterator, ParquetIterator):
    """Yields the rows of several row groups, drawn together."""

    def _next_batch(self) -> Any:
        numbers = self._rows_ahead(self._node.batch_size or 0, self._node.batch_size or 1)
        if len(numbers):
            return self._at(numbers)
        self._end_part()
        return None

    def _loaded(self, splits: Sequence[int]) -> Iterator[Loaded]:
        if is_url(self._node.filenames[0]):
            asked = [Requested(partial(self._tables_of, split, None)) for split in splits]
            found = [one.result() or [] for one in asked]
        else:
            found = [self._tables_of(split, self._reader) for split in splits]
        yield from chain.from_iterable(found)

    def _tables_of(self, split: int, reader: _GroupReader | None) -> list[Loaded]:
        """Return the row groups of a split, read by a reader, or by one of its own."""
        if reader is None:
            reader = _GroupReader(self._node, self._kept, self._checksums)
        found: list[Loaded] = []
        groups: Sequence[tuple[int, int]] = ()
        try:
            groups = reader.groups_of(split)
        except UNREADABLE as error:
            found.append(Loaded((), 0, split, self._node.shown(split), error, WHOLE))
        for group in groups:
            slot = group[1] if self._node.table is None else 0
            number = split + (slot << 32)
            where = reader.name_of(group)
            try:
                batches = reader.batches(group, reader.rows_in(group))
                table = pa.Table.from_batches(batches, reader.schema)
                found.append(Loaded(table, table.nbytes, number, where, None, slot))
            except UNREADABLE as error:
                found.append(Loaded((), 0, number, where, error, slot))
        return found

    def _close_parts(self) -> None:
        super()._close_parts()
        self._checksums.clear()

    def state(self) -> Any:
        return [super().state(), [*map(list, self._checksums.items())]]

    def restore(self, state: Any) -> None:
        drawn, checksums = state
        super().restore(drawn)
        self._checksums.update(checksums)

    def _at(self, numbers: np.ndarray[Any, Any]) -> Any:
        """Return the rows of the open tables with these numbers, as one batch."""
        assert self._opened is not None
        return rows_at(*self._owners(numbers), self._opened.__getitem__)

    def _where(self) -> str:
        return "rows that are drawn together"
