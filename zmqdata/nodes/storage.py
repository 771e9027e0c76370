"""The operations that keep elements, in memory or in files. Running them belongs to
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
    """The elements of its input, which runs once: in memory, or with a file name in the
    folder of that name.
    """

    filename: str = ""
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
        """Where the elements are kept."""
        return self.filename


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot(ByIdentity, Unary):
    """As a cache in files, one for each pipeline whose fingerprint differs. It is read
    as a whole.
    """

    path: str
    pipeline: str
    compression: str | None = "AUTO"
    operation: ClassVar[str] = "snapshot"
    restoring: ClassVar[str] = "reads on in its files; pulls again what was not in them"
    own_state: ClassVar[int] = 64
    is_source: ClassVar[bool] = True

    @property
    def argument(self) -> str:
        return repr(self.path)

    @property
    def folder(self) -> str:
        """Where the elements of this pipeline are kept."""
        return os.path.join(self.path, self.pipeline)

    @property
    def split_source(self) -> SplitSource:
        raise UnimplementedError(
            f"Splitting is not implemented for snapshot datasets: {self.label} must be read as a "
            "whole. Distribute it "
            "with ShardingPolicy.OFF, or take the snapshot away"
        )


@dataclass(frozen=True, kw_only=True)
class Load(Node):
    """The elements that ``save`` or ``distributed_save`` wrote.

    Attributes:
        run: tells whether something else was saved there since.
        elements_spec: None where it is not known.
        chunks: the number of chunks that several tasks may share; None: only one may
            read them.
    """

    path: str
    run: str
    count: int
    elements_spec: Any
    chunks: int | None = None
    operation: ClassVar[str] = "load"
    restoring: ClassVar[str] = "opens its file at the place"
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
    """The elements that ``distributed_save`` is writing now, those to come included.

    Attributes:
        run: tells whether something else was saved there since.
        elements_spec: None where it is not known.
    """

    path: str
    run: str
    elements_spec: Any
    operation: ClassVar[str] = "load"
    restoring: ClassVar[str] = "opens its file at the place"
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
            "must be read as a "
            "whole. Distribute it with ShardingPolicy.OFF, or call load() again once the save is "
            "done"
        )

    def spec(self, infer: Infer) -> Any:
        return self.elements_spec
