"""Values that travel apart from the pipelines that hold them, such as the dataset of a
loader, which a new pipeline holds in each pass.

A pipeline names its parcel by a digest, so the dispatcher and the workers know it
again. ``packing`` finds the digest and the bytes. Nothing is imported here, because
what walks over the objects of a pipeline knows this class.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, NamedTuple


class Piece(NamedTuple):
    """A part of a pickle."""

    name: str
    """SHA-256 of its bytes in hex."""
    size: int
    """Number of its bytes."""
    content: bytes
    """The bytes; empty if only their hash was wanted."""


class Parcel:
    """A value that travels apart from the pipelines that hold it.

    Args:
        value: the value.
        name: what it is, for errors and logs.
        advice: how it becomes faster, as a sentence.

    Attributes:
        sources: source code that is shipped with it, by the SHA-256 of its bytes.
        packed: what a worker needs to open it, a ``PackedPipeline`` without its
            payload; None until ``packing`` has looked at the value.
        sizes: numbers of bytes of what it consists of, by digest.
        content: these bytes, if they are to be sent.
        is_odd: True if they are other ones each time that the value is pickled.
        is_of_other: True if another process sends it, which may have other bytes.
        is_spoken_of: True if the user was told that it takes long.
        key: key under which workers keep it opened between tasks: the id of a
            dataset, "/", and which process reads; "" if each task opens it anew.
        begun: numbers of the virtual workers that have run its ``worker_init_fn``.
    """

    def __init__(self, value: Any, name: str = "a loader", advice: str = "") -> None:
        self.value = value
        self.name = name
        self.advice = advice
        self.sources: dict[str, bytes] = {}
        self.packed: Any = None
        self.sizes: dict[str, int] = {}
        self.content: dict[str, bytes] = {}
        self.is_odd = self.is_of_other = self.is_spoken_of = False
        self.key = ""
        self.begun: set[int] = set()


class ParcelChangedError(Exception):
    """The bytes of a parcel are other ones than when it was looked at. It keeps them
    now, so that a pipeline can be packed with it.
    """


_kept: dict[tuple[str, int], Parcel] = {}
"""Opened parcels by ``key`` and the number of the task within its job."""


def kept_parcel(key: str, stream: int, open_now: Callable[[], Parcel]) -> Parcel:
    """Return an opened parcel, from an earlier task of this number if there was one.

    Args:
        key: as in ``Parcel``.
        stream: number of the task within its job.
        open_now: opens the parcel.
    """
    if not key:
        return open_now()
    found = _kept.get((key, stream))
    return found or _kept.setdefault((key, stream), open_now())


def kept_parcels() -> frozenset[str]:
    """Return the ids of the datasets for which this process keeps opened parcels."""
    return frozenset(key.partition("/")[0] for key, _ in list(_kept))


def drop_parcels(datasets: Container[str]) -> None:
    """Drop the opened parcels of some datasets. Tasks that run keep theirs."""
    for key, stream in list(_kept):
        if key.partition("/")[0] in datasets:
            _kept.pop((key, stream), None)


def open_parcel(encoded: bytes, key: str) -> Parcel:
    """Return a parcel with its opened value. Called while unpickling, where a function
    that finds the bytes takes its place.
    """
    raise NotImplementedError
