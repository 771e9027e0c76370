"""What is durable of a distributed save beside its tasks: the chunks that count, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SavedChunk:
    """A chunk that counts: the attempt that wrote it, its elements ``first ... stop - 1``, its bytes, their spec."""

    attempt: int
    first: int
    stop: int
    size: int
    spec: bytes = b""


@dataclass
class Saving:
    """What is particular to an iteration that is saved.

    ``specs``: those of its chunks, each once. ``failure``: what a pipeline failed with. ``ended``: the marker that ends
    it is on the disk.
    """

    specs: dict[bytes, bytes] = field(default_factory=dict)
    failure: bytes = b""
    ended: bool = False
