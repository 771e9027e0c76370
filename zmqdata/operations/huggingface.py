"""Datasets of the package ``datasets``. A split of one with random access is a range of
its rows, of one that is a stream a shard.

The package is imported where a dataset is read. Some names of it are not public:
the selection of a dataset, and the operations of a stream.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import types

from zmqdata.elements.columns import column_dict, rows_of
from zmqdata.errors import DataLossError, InvalidArgumentError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.context import Context
from zmqdata.iterators.indexed import PartsIterator, suitable_rows
from zmqdata.nodes.base import ByIdentity, Node
from zmqdata.operations.arrow import ArrowFile, Numbers, TableRows
from zmqdata.operations.parquet import joined
from zmqdata.operations.sequences import FromSource, Owner
from zmqdata.pipelines.memorymaps import MUCH
from zmqdata.pipelines.weighing import weight_of
from zmqdata.printable import shown_size
from zmqdata.splits import IndexSplits, SplitSource
from zmqdata.storage.parquet import in_schema, shared_schema

_TABLES = (None, "arrow", "pandas", "polars")
"""Formats whose values are those of Arrow."""
_MOST_DECODED = 64
"""Most rows that are read together to be decoded one by one."""
_MIXERS = ("Shuffled", "Cycling", "Interleaved")
_WHOLE = ("Skip", "Take")


class HubTable:
    """Rows of a dataset with random access.

    Args:
        dataset: the dataset, without a selection.
        indices: numbers of the selected rows; None: all.
        files: digest of samples of its files.
        batch_size: number of rows that ``[]`` returns; None: one, not as a batch.
    """

    def __init__(self, dataset: Any, indices: Any, files: str, batch_size: int | None) -> None:
        self.dataset, self.indices, self._files = dataset, indices, files
        self._size, self._is_same = batch_size, False
        self._rows = dataset.with_format("arrow", columns=_columns_of(dataset))
        self._block: tuple[int, Any] = (0, ())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.dataset, self.indices, self._files, self._size)

    @property
    def count(self) -> int:
        """Number of the rows."""
        return len(self.dataset if self.indices is None else self.indices)

    def __len__(self) -> int:
        return -(-self.count // (self._size or 1))

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files."""
        return _paths_of([self.dataset])

    @property
    def row_bytes(self) -> int:
        """Approximate size of a row."""
        return int(self.dataset.data.nbytes) // max(1, len(self.dataset))

    def table(self, numbers: Numbers) -> Any:
        """Return rows as a table of Arrow.

        Raises:
            DataLossError: a file was changed.
        """
        if not self._is_same:
            _check_files(self._files, self.paths)
        self._is_same = True
        if self.indices is not None:
            found = self.indices[np.asarray(numbers)]
            first, last = int(found[0]), int(found[-1])
            rises = last - first == len(found) - 1 and bool(np.all(found[1:] > found[:-1]))
            numbers = range(first, last + 1) if rises else found
        if isinstance(numbers, range) and numbers.step == 1:
            return self._rows[numbers.start : numbers.stop]
        return self._rows[[int(number) for number in numbers]]

    def __getitem__(self, number: int) -> Any:
        from datasets.formatting import format_table, get_formatter

        how, size = self.dataset.format, self._size
        features, first, block = self.dataset.features, *self._block
        if size is not None:
            key: Any = range(min(size, self.count - number * size))
            block = self.table(range(number * size, number * size + len(key)))
        else:
            key = 0
            if not first <= number < first + len(block):
                most = min(_MOST_DECODED, suitable_rows(self.row_bytes, 1), self.count - number)
                most = most if number == first + len(block) else 1  # in another order, one
                first, block = number, self.table(range(number, number + most))
                self._block = first, block
            block = block.slice(number - first, 1)
        formatter = get_formatter(how["type"], features=features, **how["format_kwargs"])
        return format_table(block, key, formatter, how["columns"], how["output_all_columns"])


class HubColumns(HubTable):
    """Rows of a dataset whose values are those of Arrow."""

    def __len__(self) -> int:
        return self.count

    @cached_property
    def _schema(self) -> Any:
        return _stored_schema(self._rows[:0].schema)

    def open(self) -> HubColumns:
        """Return the reader of the rows."""
        return self

    def read(self, numbers: Numbers) -> Any:
        """Return rows as a batch of stored types."""
        batch = in_schema(joined(self.table(numbers).to_batches()), self._schema)
        return batch if self._size is None else _checked(batch)


def _stored_schema(schema: Any) -> Any:
    return shared_schema([("the dataset", schema)], None, False)


def _checked(batch: Any) -> Any:
    """Return a batch after checking that numpy has arrays of its columns."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts = [column]
        for part in parts:  # grows
            if part.null_count or types.is_decimal(part.type):
                raise InvalidArgumentError(
                    f"The column {name!r} has nulls or decimals, of which numpy has no arrays. "
                    "Replace them with dataset.map(), drop the column with "
                    f"dataset.remove_columns({name!r}), or read rows, without `batch_rows`"
                )
            inner = part.flatten() if part.type.num_fields else []
            parts += inner if isinstance(inner, list) else [inner]
    return batch


def _decodes(dataset: Any) -> bool:
    from datasets.features.features import require_decoding

    return any(map(require_decoding, dataset.features.values()))


def _columns_of(dataset: Any) -> Any:
    how = dataset.format
    is_chosen = how["type"] in _TABLES and not how["output_all_columns"]
    return how["columns"] if is_chosen else None


def _paths_of(datasets: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(file["filename"] for one in datasets for file in one.cache_files))


def _digest_of(paths: Sequence[str]) -> str:
    return hashlib.sha256(repr([*map(ArrowFile.at, paths)]).encode()).hexdigest()


def _check_files(digest: str, paths: Sequence[str]) -> None:
    if digest != _digest_of(paths):
        raise DataLossError(
            f"Files of {paths[0]} and beside it were changed after this dataset was made. Make it "
            "again, and do not write to files that are read"
        )


def table_of(dataset: Any, batch_size: int | None) -> HubTable:
    """Return the rows of a dataset with random access.

    Raises:
        InvalidArgumentError: it holds much in memory.
    """
    whole, chosen = copy.copy(dataset), dataset._indices
    indices = None
    if chosen is not None:
        whole._indices = None
        indices = chosen.column(0).to_numpy().astype("u8" if len(whole) >> 32 else "u4")
    is_plain = dataset.format["type"] in _TABLES and not _decodes(dataset)
    kind = HubColumns if is_plain else HubTable
    _check_size(whole)
    return kind(whole, indices, _digest_of(_paths_of([whole])), batch_size)


def _check_size(dataset: Any) -> None:
    if (size := weight_of(dataset)) > MUCH:
        raise InvalidArgumentError(
            f"from_hf() got a dataset with {shown_size(size)} in memory, which each worker would "
            "get. Write it with dataset.save_to_disk(path) where workers see it, and pass "
            "datasets.load_from_disk(path), which travels as its path"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class HubRows(FromSource):
    """Yields rows or batches of a dataset as its own format makes them."""

    operation: ClassVar[str] = "from_hf"

    @property
    def argument(self) -> str:
        return f"{self.sequence.count} rows"


@dataclass(frozen=True, kw_only=True, eq=False)
class HubTableRows(TableRows):
    """Yields rows of a dataset, or batches of them, as Arrow has them."""

    operation: ClassVar[str] = "from_hf"


@dataclass(frozen=True, kw_only=True, eq=False)
class HubStream(ByIdentity, Node):
    """Yields the examples of a stream, or batches of them."""

    dataset: Any = field(repr=False)
    """The stream."""
    shards: int
    """Number of its shards, which are the splits."""
    files: str
    """Digest of samples of the files of the datasets that it was made of."""
    batch_size: int | None = None
    """Maximum number of examples of an element; None: an element is an example."""
    schema: bytes | None = field(default=None, repr=False)
    """Stored schema of the examples; None: they are what the stream makes of them."""
    operation: ClassVar[str] = "from_hf"
    split_unit: ClassVar[str] = "shards"
    restoring: ClassVar[str] = "continues as the stream does, from its own state"
    own_state: ClassVar[int] = 500

    @property
    def argument(self) -> str:
        return f"{self.shards} shards"

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(self.shards)

    @property
    def batch_rows(self) -> int | None:
        return None if self.batch_size is None else 0


def _steps_of(stream: Any) -> list[Any]:
    steps = [stream._ex_iterable]
    for step in steps:  # grows
        steps += [
            *getattr(step, "ex_iterables", ()),
            *filter(None, [getattr(step, "ex_iterable", 0)]),
        ]
    return steps


def _files_of(stream: Any) -> tuple[str, ...]:
    """Return the paths of the datasets with random access that a stream is made of."""
    kwargs = [getattr(step, "kwargs", {}) for step in _steps_of(stream)]
    lists = [value for one in kwargs for value in one.values() if isinstance(value, list)]
    return _paths_of(one for value in lists for one in value if hasattr(one, "cache_files"))


def _copied(stream: Any) -> Any:
    """Return a stream with a state of its own, and the same functions and data."""
    held = [vars(step).get(name) for step in _steps_of(stream) for name in ("function", "kwargs")]
    return copy.deepcopy(stream, {id(one): one for one in held})


def stream_of(dataset: Any, batch_size: int | None, site: str) -> HubStream:
    """Return the node of a stream, which has as many shards as it can have.

    Raises:
        InvalidArgumentError: it cannot be resumed, or not be divided.
    """
    steps = _steps_of(dataset)
    names = [type(step).__name__ for step in steps]
    if any(name.startswith(_MIXERS) or "Cycling" in name for name in names):
        raise InvalidArgumentError(
            "from_hf() got a stream that shuffles or interleaves. `datasets` loses its buffer when "
            "it is resumed, and reads its shards as one. Pass the stream before shuffle() or "
            "interleave_datasets(), and call shuffle() or sample_from_datasets() of this library"
        )
    if dataset._distributed is not None:
        raise InvalidArgumentError(
            "from_hf() got a stream of split_dataset_by_node(), and would divide it again. Pass "
            "the whole stream: the service divides its shards"
        )
    how = dataset._formatting
    if how is not None and how.is_table:
        raise InvalidArgumentError(
            f"from_hf() got a stream of the format {how.format_type!r}, whose examples are tables. "
            "Pass stream.with_format(None)"
        )
    _check_size(dataset)
    # Numbers of rows, those to skip or take, and a last batch are of the whole stream.
    is_whole = any(name.startswith(_WHOLE) for name in names)
    counting = "with_indices", "drop_last_batch"
    is_whole = is_whole or any(getattr(step, name, False) for step in steps for name in counting)
    if not is_whole and hasattr(dataset, "reshard"):
        dataset = dataset.reshard()
    schema = None
    if how is None and dataset.features and not _decodes(dataset):
        schema = _stored_schema(dataset.features.arrow_schema).serialize().to_pybytes()
    return HubStream(
        dataset=dataset,
        shards=1 if is_whole else dataset.num_shards,
        files=_digest_of(_files_of(dataset)),
        batch_size=batch_size,
        schema=schema,
        site=site,
    )


def _maker(kind: Any) -> Callable[[Any], Any]:
    """Return a function that makes the value of a row, as ``rows_of`` does."""
    if any(test(kind) for test in (types.is_integer, types.is_floating, types.is_boolean)):
        return kind.to_pandas_dtype()  # type: ignore[no-any-return]  # a type of numpy's scalars
    if kind in (pa.string(), pa.binary()):
        return lambda value: value
    return lambda value: rows_of(pa.array([value], kind))[0]


@make_iterator.register(HubStream)
class HubStreamIterator(PartsIterator):
    """Reads shards in order. Its state has that of the shard, and the number of its
    elements so far.
    """

    def __init__(self, node: HubStream, context: Context) -> None:
        super().__init__(context, node.shards)
        self._node = node
        self._owned = Owner(node, context).owned
        self._schema = node.schema and pa.ipc.read_schema(pa.py_buffer(node.schema))
        self._makers = {one.name: _maker(one.type) for one in self._schema or ()}
        self._shard: Any = None
        self._values: Iterator[Any] | None = None
        self._count = self._opened_at = 0
        self._state: Any = None
        self._is_same = False

    def _open(self, state: Any = None) -> None:
        self._begin_part()
        node = self._node
        if node.shards > 1:
            shard = node.dataset.shard(num_shards=node.shards, index=self._part_number())
        else:  # as one shard, `datasets` would divide the streams that this one joins
            shard = _copied(node.dataset)
        if state is not None:
            shard.load_state_dict(state)
        self._shard, self._state, self._opened_at = shard, state, self._count
        self._values = self._read(shard if node.batch_size is None else shard.iter(node.batch_size))

    def _read(self, shard: Iterable[Any]) -> Iterator[Any]:
        if not self._is_same:
            _check_files(self._node.files, _files_of(self._node.dataset))
        self._is_same = True
        yield from shard

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        while True:
            if self._values is None:
                self._open()
            assert self._values is not None
            try:
                value = next(self._values)
            except StopIteration:
                self._end_part()
                continue
            except FAILURES as error:
                self._end_part()
                raise failure(self._node, error, f"shard {self._part}") from error
            self._count += 1
            try:
                return self._owned(value) if self._schema is None else self._stored(value)
            except FAILURES as error:
                raise failure(self._node, error) from error

    def _stored(self, value: Any) -> Any:
        if self._node.batch_size is None:
            parts = ((name, value.get(name), make) for name, make in self._makers.items())
            return {name: None if part is None else make(part) for name, part, make in parts}
        batch = _checked(pa.RecordBatch.from_pydict(value, self._schema))
        return column_dict(batch.schema.names, batch.columns)

    @property
    def in_part(self) -> bool:
        return self._values is not None

    @property
    def _position(self) -> int:
        return self._count

    def _end_part(self) -> None:
        self._values, self._count = None, 0
        self._next += self._stride

    def state(self) -> Any:
        inner = None
        if self._values is not None:
            is_new = self._count == self._opened_at
            inner = self._state if is_new else self._shard.state_dict()
        return [super().state(), self._count, inner]

    def restore(self, state: Any) -> None:
        position, count, inner = state
        super().restore(position)
        if inner is not None:
            self._open(inner)
            self._count = self._opened_at = count

    def close(self) -> None:
        self._values, self._next = None, self._stop
