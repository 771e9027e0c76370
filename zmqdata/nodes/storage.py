"""Operations that store elements, in memory or in files. Running belongs to
``iterators``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from zmqdata.elements.specs import UNKNOWN_CARDINALITY, DatasetSpec
from zmqdata.errors import UnimplementedError
from zmqdata.nodes.base import AT_ITS_PLACE, IN_LABEL, ByIdentity, Infer, Node
from zmqdata.nodes.grouping import Wrap
from zmqdata.nodes.records import whole_only
from zmqdata.nodes.transforms import Unary
from zmqdata.splits import ChunkSplits, IndexSplits, SplitSource

ChunkParts = tuple[str, int, int]
"""A chunk: name of its file, number of elements and size in bytes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cache(ByIdentity, Unary):
    """Yields the elements of its input, which runs once; stores them in memory, or in a
    folder.
    """

    filename: str = ""
    """Path of the folder; "" stores in memory."""
    operation: ClassVar[str] = "cache"
    restoring: ClassVar[str] = (
        "pulls up to a 32nd of the elements again; all of them if its file is gone"
    )
    own_state: ClassVar[int] = 64

    @property
    def argument(self) -> str:
        return repr(self.filename) if self.filename else ""

    @property
    def folder(self) -> str:
        """Folder of the elements."""
        return self.filename

    shard_function: ClassVar[Callable[..., Any] | None] = None
    keeps_order: ClassVar[bool] = True
    """True if the elements are read in the order in which they were written."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot(ByIdentity, Unary):
    """Cache in files, with a folder for each pipeline fingerprint. It is read as a
    whole.
    """

    path: str = field(metadata=IN_LABEL)
    """Folder of all snapshots."""
    pipeline: str
    """Fingerprint of the pipeline; name of its folder."""
    compression: str | None = "AUTO"
    """Compression of the files; None: uncompressed."""
    shard_function: Callable[..., Any] | None = None
    """Returns the number of an element's shard; None: there is a single shard."""
    reader_function: Callable[[Any], Any] | None = None
    """Returns the dataset to read, from a dataset of the shards; None: the elements are
    read in the order in which they were written.
    """
    wrap: Wrap | None = field(default=None, repr=False)
    """Makes a dataset from a node, for ``reader_function``."""
    operation: ClassVar[str] = "snapshot"
    restoring: ClassVar[str] = "continues in its files; pulls elements again that are not in them"
    own_state: ClassVar[int] = 64
    is_source: ClassVar[bool] = True

    @property
    def draws_once(self) -> bool:
        return self.reader_function is not None

    @property
    def keeps_order(self) -> bool:
        """True if the elements are read in the order in which they were written."""
        return self.reader_function is None

    @property
    def folder(self) -> str:
        """Folder of the elements of this pipeline."""
        return os.path.join(self.path, self.pipeline)

    @property
    def split_source(self) -> SplitSource:
        raise UnimplementedError(
            f"Splitting is not implemented for snapshot datasets: {self.label} must be read as a "
            "whole. Distribute it with ShardingPolicy.OFF, or remove the snapshot"
        )


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
