"""The output of ``save`` and ``distributed_save``: all of it, the chunks of a task, or
a save in there.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import groupby
from typing import Any, ClassVar

from zmqdata.elements.specs import UNKNOWN_CARDINALITY, DatasetSpec
from zmqdata.errors import FailedPreconditionError, UnavailableError
from zmqdata.failures.codec import decode_failure
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.indexed import IndexedIterator
from zmqdata.iterators.random_access import element_at, name_at, refusal
from zmqdata.nodes.base import AT_ITS_PLACE, Infer, Node, Wrap, whole_only
from zmqdata.splits import ChunkSplits, IndexSplits, SplitSource
from zmqdata.storage.chunks import UNKNOWN_SIZE, ChunkReader
from zmqdata.storage.manifests import (
    CHUNKS,
    Chunk,
    ChunkName,
    Manifest,
    SaveError,
    error_of,
    partial_save,
    read_manifest,
    read_save,
)
from zmqdata.storage.progress import ABANDONED, writer_of

ChunkParts = tuple[str, int, int]
"""A chunk: name of its file, number of elements and size in bytes."""


@dataclass(frozen=True, kw_only=True)
class Load(Node):
    """Yields the elements written by ``save`` or ``distributed_save``."""

    path: str
    """Folder of the save."""
    save_id: str
    """Identifies the save, to detect that it was replaced."""
    count: int = UNKNOWN_CARDINALITY
    """Number of elements, if it is known."""
    elements_spec: Any
    """Spec of the elements; None if it is unknown."""
    chunks: int | None = None
    """Number of chunks that several tasks may share. None: a single task must read them
    all; or, if the save ``grows``, its chunks were not complete yet.
    """
    grows: bool = False
    """True for a ``distributed_save`` that may be in progress: elements yet to be
    written belong to it, and tasks share its chunks as they are committed.
    """
    part: tuple[ChunkParts, ...] | None = None
    """The chunks to read; None: all."""
    operation: ClassVar[str] = "load"
    restoring: ClassVar[str] = "opens its file at the position"
    own_state: ClassVar[int] = 32
    split_unit: ClassVar[str] = "chunks"

    @property
    def state_growth(self) -> str:  # type: ignore[override]  # a class of this kind has no one answer
        return "16 bytes for each chunk of the save" if self.grows else ""

    @property
    def characteristics(self) -> Mapping[str, Any]:
        # An iterator may be saved during the save, and restored after its end.
        return {"path": self.path, "save_id": self.save_id, "part": self.part}

    @property
    def argument(self) -> str:
        return f"{self.path!r}, wait=True" if self.grows else repr(self.path)

    @property
    def cardinality(self) -> int:
        return self.count

    @property
    def split_source(self) -> SplitSource:
        if self.grows:
            return ChunkSplits(self.path, self.save_id)
        if self.chunks is None:
            raise whole_only(self, "LoadDataset")
        return IndexSplits(self.chunks)

    def spec(self, infer: Infer) -> Any:
        return self.elements_spec


@dataclass(frozen=True, kw_only=True)
class LoadInTurn(Load):
    """Yields the elements written by a ``save`` with several shards: an element of each
    of several shards in turn. The next shard takes the place of a shard that has ended.
    """

    cycle_length: ClassVar[int] = 16
    """Number of shards read in turn."""
    restoring: ClassVar[str] = "opens up to 16 files at their positions"
    own_state: ClassVar[int] = 40 * cycle_length


@dataclass(frozen=True, kw_only=True)
class SavedDatasets(Node):
    """Yields a dataset for each shard of a save or snapshot, or for each chunk of a
    ``distributed_save``. A ``reader_func`` makes the elements of a load of them.
    """

    whole: Load
    """All elements."""
    wrap: Wrap = field(repr=False)
    """Makes a dataset from a node."""
    operation: ClassVar[str] = "load"
    restoring: ClassVar[str] = AT_ITS_PLACE
    own_state: ClassVar[int] = 32

    @property
    def characteristics(self) -> Mapping[str, Any]:
        return self.whole.characteristics

    @property
    def state_growth(self) -> str:  # type: ignore[override]  # as that of the whole
        return self.whole.state_growth

    @property
    def argument(self) -> str:
        return f"{self.whole.argument}, reader_func"

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY if self.whole.chunks is None else self.whole.chunks

    @property
    def split_source(self) -> SplitSource:
        return self.whole.split_source

    def spec(self, infer: Infer) -> Any:
        spec = self.whole.elements_spec
        return None if spec is None else DatasetSpec(spec)


log = logging.getLogger(__name__)
FIRST_PAUSE = 0.05
MOST_PAUSE = 2.0
SAY_SO_AFTER = 10.0
CHECK_SERVERS = "Check that its dispatcher and a worker are running."


def _manifest_of(node: Load) -> Manifest:
    manifest = read_manifest(node.path)
    if manifest.save_id != node.save_id:
        raise FailedPreconditionError(
            f"{node.label}: something else was saved there since load() was called. Call it again"
        )
    return manifest


def opened(node: Load) -> ChunkReader:
    """Return a reader of a complete save, at its beginning.

    Raises:
        FailedPreconditionError: something else was saved there since.
    """
    return ChunkReader(node.path, _chunks_of(node))


def _chunks_of(node: Load) -> list[Chunk]:
    if node.part is not None:
        return [Chunk(*parts) for parts in node.part]
    return list(_manifest_of(node).chunks)


def _shards_of(node: Load) -> list[list[Chunk]]:
    """Return the chunks of each shard of a complete save."""
    return [list(chunks) for _, chunks in groupby(_chunks_of(node), lambda chunk: chunk.shard)]


def _named(name: str) -> Chunk:
    """Return a chunk of a distributed save."""
    return Chunk(f"{CHUNKS}/{name}", ChunkName.parse(name).elements, UNKNOWN_SIZE)


class FoundChunks:
    """The names of the chunks of a save in progress, in the order in which they were
    found.

    Args:
        node: the load.
        names: names that are known already.
    """

    def __init__(self, node: Load, names: Iterable[str] = ()) -> None:
        self._node = node
        self.names = list(names)
        self.ended = False

    def wait(self) -> list[Chunk]:
        """Return further chunks. Wait until there are some, or the save ends.

        Raises:
            UnavailableError: the dispatcher of the save has ended, and its journal is
                gone.
            Exception: the save has failed, and this is why.
        """
        pauses = SaveWait(self._node.path)
        while True:
            description = read_save(self._node.path)
            state, remark = writer_of(description)
            # Read after the check: the save may have ended just before its dispatcher.
            there = partial_save(self._node.path, self._node.save_id)
            self.ended = not there.more
            if there.error is not None:
                raise raised(there.error)
            seen = set(self.names)
            fresh = [name for name in map(str, there.chunks) if name not in seen]
            self.names += fresh
            if fresh or self.ended:
                return list(map(_named, fresh))
            if state == ABANDONED:
                raise UnavailableError(f"The save to {self._node.path} has not ended. {remark}")
            pauses.pause("another chunk of the save", remark or CHECK_SERVERS)


@make_iterator.register(Load)
def make_load_iterator(node: Load, context: Context) -> ElementIterator:
    """Return an iterator over all chunks, or over the chunks assigned to a task."""
    return (
        LoadIterator(node, context)
        if context.providers is None
        else LoadPartIterator(node, context)
    )


class LoadIterator(ElementIterator):
    """Reads all of a save. It reads chunks of a save in progress as they are committed,
    and waits for more until the save ends.

    Its state is a position in a file. If it began during the save, its state also holds
    the names of the chunks that it has found, because their order is that of discovery.
    """

    def __init__(self, node: Load, context: Context) -> None:
        self._node = node
        self._publish_in(context)
        self._reader: ChunkReader | None = None
        self._found: FoundChunks | None = None  # None: all chunks, in the order of the manifest

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        try:
            return next(self._reader or self._open())
        except StopIteration:
            if self._found is None:
                raise
        return self._next_of_more(self._found)

    def _open(self) -> ChunkReader:
        return self._begin([] if self._node.grows else None)

    def _begin(self, names: list[str] | None) -> ChunkReader:
        """Open the named chunks, or all chunks of a complete save."""
        self._found = None if names is None else FoundChunks(self._node, names)
        chunks = _chunks_of(self._node) if names is None else list(map(_named, names))
        self._reader = ChunkReader(self._node.path, chunks)
        return self._reader

    def _next_of_more(self, found: FoundChunks) -> Any:
        assert self._reader is not None
        while not found.ended:
            self._reader.add(found.wait())
            for element in self._reader:
                return element
        raise StopIteration

    def state(self) -> Any:
        if self._reader is None:
            return None
        return [None if self._found is None else list(self._found.names), self._reader.state()]

    def restore(self, state: Any) -> None:
        if state is not None:
            names, place = state
            self._begin(names).restore(place)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


@make_iterator.register(LoadInTurn)
class ShardsIterator(ElementIterator):
    """Reads the shards of a complete save in turn. Its state holds a position in each
    shard that is being read.
    """

    def __init__(self, node: LoadInTurn, context: Context) -> None:
        self._node = node
        self._publish_in(context)
        self._shards: list[list[Chunk]] = []  # all shards, once reading has begun
        self._places: list[tuple[int, ChunkReader] | None] = [None] * node.cycle_length
        self._begun = 0  # shards
        self._turn = 0

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        if not self._shards:
            self._shards = _shards_of(self._node)
        places, idle = self._places, 0
        while idle < len(places):
            place = places[self._turn]
            if place is None and self._begun < len(self._shards):
                place = places[self._turn] = self._begun, self._reader_of(self._begun)
                self._begun += 1
            if place is None:
                idle += 1
                self._pass_turn()
                continue
            try:
                element = next(place[1])
            except StopIteration:
                places[self._turn] = None
                continue
            self._pass_turn()
            return element
        raise StopIteration

    def _pass_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self._places)

    def _reader_of(self, shard: int) -> ChunkReader:
        return ChunkReader(self._node.path, self._shards[shard])

    def state(self) -> Any:
        places = [place and [place[0], place[1].state()] for place in self._places]
        return [self._begun, self._turn, places] if self._begun else None

    def restore(self, state: Any) -> None:
        if state is None:
            return
        self._shards = _shards_of(self._node)
        self._begun, self._turn, places = state
        for index, place in enumerate(places):
            if place is not None:
                shard, position = place
                reader = self._reader_of(shard)
                reader.restore(position)
                self._places[index] = shard, reader

    def close(self) -> None:
        for place in self._places:
            if place is not None:
                place[1].close()


def element_in_turn(node: LoadInTurn, index: int) -> Any:
    """Return the element that reading the shards in turn yields at a place."""
    shards = _shards_of(node)
    counts = [sum(chunk.elements for chunk in chunks) for chunks in shards]
    shard, number = place_in_turn(counts, node.cycle_length, index)
    with closing(ChunkReader(node.path, shards[shard])) as reader:
        reader.skip(number)
        return next(reader)


def place_in_turn(counts: Sequence[int], cycle_length: int, index: int) -> tuple[int, int]:
    """Return the shard of the element at a place in the elements of all shards, and the
    number of the element in the shard.

    Args:
        counts: number of elements of each shard.
        cycle_length: number of shards read in turn.
        index: the place.

    >>> [place_in_turn([1, 3, 1], 2, index) for index in range(5)]
    [(0, 0), (1, 0), (2, 0), (1, 1), (1, 2)]
    """
    # A shard yields an element in each of ``count`` consecutive rounds, at its turn.
    free = [(0, turn) for turn in range(cycle_length)]
    begins = []
    for count in counts:
        begin, turn = heappop(free)
        begins.append((begin, turn))
        heappush(free, (begin + count, turn))

    def read_before(a_round: int) -> int:
        return sum(
            min(max(a_round - begin, 0), count)
            for (begin, _), count in zip(begins, counts, strict=True)
        )

    reads = bisect_right(range(index + 2), index, key=read_before) - 1
    reading = [
        (turn, shard, reads - begin)
        for shard, (begin, turn) in enumerate(begins)
        if 0 <= reads - begin < counts[shard]
    ]
    _, shard, number = sorted(reading)[index - read_before(reads)]
    return shard, number


class SplitChunks:
    """The chunks that are the splits of a load: places in the manifest, or chunks by
    name if the save may be in progress.
    """

    def __init__(self, node: Load) -> None:
        self._node = node
        self._chunks: list[Chunk] | None = None

    def at(self, index: int, name: str | None) -> Chunk:
        """Return the chunk that is a split, given its number and, if it has one, its
        name.
        """
        if name is not None:
            return _named(name)
        if self._chunks is None:
            self._chunks = _chunks_of(self._node)
        return self._chunks[index]


class LoadPartIterator(IndexedIterator):
    """Reads the chunks that its provider assigns."""

    _is_within = True

    def __init__(self, node: Load, context: Context) -> None:
        super().__init__(context, 0)
        self._node = node
        self._splits = SplitChunks(node)
        self._reader: ChunkReader | None = None

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        while True:
            reader = self._reader or self._open()
            try:
                return next(reader)
            except StopIteration:
                self.close()
                self._next += self._stride

    def _open(self) -> ChunkReader:
        """Open the next chunk and return its reader. While it is open, ``_next`` is its
        number.
        """
        while self._next >= self._stop:
            self._advance()
        name = self._name_of(self._next) if self._node.grows else None
        self._reader = ChunkReader(self._node.path, [self._splits.at(self._next, name)])
        return self._reader

    def state(self) -> Any:
        return [super().state(), None if self._reader is None else self._reader.state()]

    def restore(self, state: Any) -> None:
        position, place = state
        super().restore(position)
        if place is not None:
            # At the beginning of a range, the offset alone does not show that the range
            # was entered.
            self._open().restore(place)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None


@make_iterator.register(SavedDatasets)
def make_datasets_iterator(node: SavedDatasets, context: Context) -> ElementIterator:
    """Return an iterator over datasets of all chunks, or of the chunks assigned to a
    task.
    """
    return (
        SavedDatasetsIterator(node, context)
        if context.providers is None
        else SplitDatasetsIterator(node, context)
    )


def _dataset_of(node: SavedDatasets, chunks: Iterable[Chunk]) -> Any:
    part = tuple((chunk.name, chunk.elements, chunk.nbytes) for chunk in chunks)
    count = sum(elements for _, elements, _ in part)
    return node.wrap(replace(node.whole, part=part, count=count, chunks=None, grows=False))


class SavedDatasetsIterator(ElementIterator):
    """Yields a dataset for each shard, or for each chunk of a distributed save, also
    while it is in progress. Its state is like that of ``LoadIterator``.
    """

    def __init__(self, node: SavedDatasets, context: Context) -> None:
        self._node = node
        self._publish_in(context)
        self._parts: list[list[Chunk]] | None = None
        self._found: FoundChunks | None = None
        self._next = 0

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        parts = self._parts if self._parts is not None else self._open()
        while self._next == len(parts):
            if self._found is None or self._found.ended:
                raise StopIteration
            parts += [[chunk] for chunk in self._found.wait()]
        self._next += 1
        return _dataset_of(self._node, parts[self._next - 1])

    def _open(self) -> list[list[Chunk]]:
        return self._begin([] if self._node.whole.grows else None)

    def _begin(self, names: list[str] | None) -> list[list[Chunk]]:
        whole = self._node.whole
        self._found = None if names is None else FoundChunks(whole, names)
        if names is not None:
            self._parts = [[_named(name)] for name in names]
        elif whole.chunks is not None or whole.grows:
            self._parts = [[chunk] for chunk in _chunks_of(whole)]
        else:
            self._parts = _shards_of(whole)
        return self._parts

    def state(self) -> Any:
        if self._parts is None:
            return None
        return [None if self._found is None else list(self._found.names), self._next]

    def restore(self, state: Any) -> None:
        if state is not None:
            names, self._next = state
            self._begin(names)

    def close(self) -> None:
        """Do nothing: no file is open."""


class SplitDatasetsIterator(IndexedIterator):
    """Yields a dataset of each chunk that its provider assigns."""

    def __init__(self, node: SavedDatasets, context: Context) -> None:
        super().__init__(context, 0)
        self._node = node
        self._splits = SplitChunks(node.whole)

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        (index,) = self._next_range(1)
        name = self._name_of(index) if self._node.whole.grows else None
        return _dataset_of(self._node, [self._splits.at(index, name)])


def raised(error: SaveError) -> Exception:
    """Return the error that prevents a save from being read, in the form that its
    readers raise.
    """
    return decode_failure(bytes.fromhex(error.failure)) if error.failure else error_of(error)


class SaveWait:
    """Waits longer each time, and logs a warning after a while.

    Args:
        path: path of the save.
        sleep: function that waits.
    """

    def __init__(self, path: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._path, self._sleep = path, sleep
        self._pause, self._waited, self._said = FIRST_PAUSE, 0.0, SAY_SO_AFTER

    def pause(self, what: str, remark: str = "") -> None:
        """Wait once for ``what``. The warning ends with a remark."""
        if self._waited >= self._said:
            self._said *= 2
            log.warning(
                "waiting for %s in %s for %.0f s (wait=True)%s",
                what,
                self._path,
                self._waited,
                f". {remark}" if remark else "",
            )
        self._sleep(self._pause)
        self._waited += self._pause
        self._pause = min(self._pause * 2, MOST_PAUSE)


@element_at.register
def _(node: Load, index: int) -> Any:
    if node.grows:
        raise refusal(
            node,
            index,
            ", as the order of a save in progress is not known: call load() without wait=True "
            "once the save is complete",
        )
    reader = opened(node)
    try:
        reader.skip(index)
        return next(reader)
    finally:
        reader.close()


@element_at.register
def _(node: LoadInTurn, index: int) -> Any:
    return element_in_turn(node, index)


@name_at.register
def _(node: Load, index: int) -> Name:
    return 0, index
