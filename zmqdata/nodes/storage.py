"""Operations that store elements, in memory or in files. Running belongs to
``iterators``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

from zmqdata.elements.specs import UNKNOWN_CARDINALITY
from zmqdata.errors import UnimplementedError
from zmqdata.nodes.base import ByIdentity, Infer, Node
from zmqdata.nodes.records import whole_only
from zmqdata.nodes.transforms import Unary
from zmqdata.splits import IndexSplits, SplitSource


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot(ByIdentity, Unary):
    """Cache in files, with a folder for each pipeline fingerprint. It is read as a
    whole.
    """

    path: str
    """Folder of all snapshots."""
    pipeline: str
    """Fingerprint of the pipeline; name of its folder."""
    compression: str | None = "AUTO"
    """Compression of the files; None: uncompressed."""
    operation: ClassVar[str] = "snapshot"
    restoring: ClassVar[str] = "continues in its files; pulls elements again that are not in them"
    own_state: ClassVar[int] = 64
    is_source: ClassVar[bool] = True

    @property
    def argument(self) -> str:
        return repr(self.path)

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
    count: int
    """Number of elements."""
    elements_spec: Any
    """Spec of the elements; None if it is unknown."""
    chunks: int | None = None
    """Number of chunks that several tasks may share; None: a single task must read them
    all.
    """
    operation: ClassVar[str] = "load"
    restoring: ClassVar[str] = "opens its file at the position"
    own_state: ClassVar[int] = 32

    @property
    def argument(self) -> str:
        return repr(self.path)

    @property
    def cardinality(self) -> int:
        return self.count

    @property
    def split_source(self) -> SplitSource:
        if self.chunks is None:
            raise whole_only(self, "LoadDataset")
        return IndexSplits(self.chunks)

    def spec(self, infer: Infer) -> Any:
        return self.elements_spec


@dataclass(frozen=True, kw_only=True)
class LoadGrowing(Node):
    """Yields the elements of a ``distributed_save`` in progress, including elements yet
    to be written.
    """

    path: str
    """Folder of the save."""
    save_id: str
    """Identifies the save, to detect that it was replaced."""
    elements_spec: Any
    """Spec of the elements; None if it is unknown."""
    operation: ClassVar[str] = "load"
    restoring: ClassVar[str] = "opens its file at the position"
    own_state: ClassVar[int] = 32
    state_growth: ClassVar[str] = "16 bytes for each chunk that was begun"

    @property
    def argument(self) -> str:
        return f"{self.path!r}, wait=True"

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    @property
    def split_source(self) -> SplitSource:
        raise UnimplementedError(
            f"Splitting is not implemented for a save that is still being written: {self.label} "
            "must be read as a whole. Distribute it with ShardingPolicy.OFF, or call load() "
            "again once the save is complete"
        )

    def spec(self, infer: Infer) -> Any:
        return self.elements_spec
