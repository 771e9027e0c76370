"""The rows of a query."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.nesting import map_structure
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.indexed import IndexedIterator
from zmqdata.machine.descriptors import check_room
from zmqdata.nodes.base import IN_LABEL, Infer, Node, whole_only
from zmqdata.splits import SplitSource


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


_KINDS: dict[str, Any] = {"U": (str,), "S": (bytes, str), "f": (float, int)}


@make_iterator.register(Sql)
class SqlIterator(IndexedIterator):
    """Yields rows as tuples, or as values if a single dtype is given. Its state is a
    count: restoring runs the query again and skips that many rows.

    The query must return its rows in the same order each time: give it an ORDER BY.
    """

    _connection: sqlite3.Connection | None = None
    _rows: sqlite3.Cursor | None = None

    def __init__(self, node: Sql, context: Context) -> None:
        super().__init__(context, 1)
        self._node = node
        self._count = 0
        self._is_tuple = isinstance(node.output_types, tuple)
        dtypes: Any = node.output_types if self._is_tuple else (node.output_types,)
        self._converts = [converter(dtype, place) for place, dtype in enumerate(dtypes)]

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        row = self._pull()
        try:
            values = [convert(value) for convert, value in zip(self._converts, row, strict=True)]
            return tuple(values) if self._is_tuple else values[0]
        except Exception as error:
            raise failure(self._node, error) from error

    def _pull(self) -> Any:
        while self._next >= self._stop:
            self._advance()
        try:
            row = (self._rows or self._open()).fetchone()
        except Exception as error:
            self._end()
            raise failure(self._node, error) from error
        if row is None:
            self._end()
            raise StopIteration
        self._count += 1
        return row

    def _open(self) -> sqlite3.Cursor:
        address = f"{Path(self._node.data_source_name).absolute().as_uri()}?mode=ro"
        # A prefetch may pull on its own thread, never concurrently.
        try:
            self._connection = sqlite3.connect(address, uri=True, check_same_thread=False)
        except sqlite3.OperationalError as error:
            check_room(f"the database {self._node.data_source_name}", 1)
            raise NotFoundError(
                f"{self._node.data_source_name}: {error}. Check the path of the database"
            ) from error
        try:
            self._rows = self._connection.execute(self._node.query)
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error):
                raise
            raise InvalidArgumentError(
                f"The query writes, and the database is opened read-only: {error}. SELECT rows"
            ) from error
        columns = len(self._rows.description or ())
        if columns != len(self._converts):
            raise InvalidArgumentError(
                f"The number of columns in query ({columns}) must match the number of columns in "
                f"output_types ({len(self._converts)})"
            )
        return self._rows

    def _end(self) -> None:
        self.close()
        self._count = 0
        self._next += 1

    def _name(self) -> Name:
        return self._group(), self._count

    def state(self) -> Any:
        return [super().state(), self._count]

    def restore(self, state: Any) -> None:
        position, count = state
        super().restore(position)
        for done in range(count):
            try:
                self._pull()
            except StopIteration:
                raise FailedPreconditionError(
                    f"{self._node.label} returns {done} rows now and returned {count} or more "
                    "when the state was taken: restore on the same database only"
                ) from None

    def close(self) -> None:
        if self._connection is not None:
            with closing(self._connection):
                self._connection = self._rows = None

    def __del__(self) -> None:
        self.close()


def converter(dtype: np.dtype[Any], place: int = 0) -> Callable[[Any], Any]:
    """Return a function from a value of sqlite to the value of a column; NULL becomes 0
    or an empty text.

    >>> converter(np.dtype("int32"))(None), converter(np.dtype(str))("a")
    (np.int32(0), 'a')
    """
    allowed = _KINDS.get(dtype.kind, (int,))
    make: Any = {"U": str, "S": _as_bytes}.get(dtype.kind, dtype.type)
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    empty = make()

    def convert(value: Any) -> Any:
        if value is None:
            return empty
        if isinstance(value, str) and dtype.kind in "iuf":
            # A column such as VARCHAR holds numbers as texts.
            value = _number_of(value, dtype.kind)
        if not isinstance(value, allowed) or not (
            limits is None or limits.min <= value <= limits.max
        ):
            raise InvalidArgumentError(
                f"column {place} has the value {value!r} of type {type(value).__name__}, expected "
                f"{dtype}: change output_types, or CAST in the query"
            )
        return make(value)

    return convert


def _number_of(text: str, kind: str) -> Any:
    """Return the number that is written in a text; the text if there is none."""
    try:
        return text if "_" in text else (float if kind == "f" else int)(text)
    except ValueError:
        return text


def _as_bytes(value: Any = b"") -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
