"""The sizes of what pipelines carry, for people who wait until it is sent."""

from __future__ import annotations

import logging
import types
from typing import Any, NamedTuple

import numpy as np

from zmqdata.nodes.base import Node
from zmqdata.peeking import is_a
from zmqdata.pipelines.fingerprints import nodes_in_order
from zmqdata.pipelines.holding import attributes, count, held
from zmqdata.pipelines.packing import pickled
from zmqdata.pipelines.parcels import Parcel
from zmqdata.pipelines.reducing import is_plain_class, is_tensor_class
from zmqdata.printable import shown_size

log = logging.getLogger(__name__)

SLOW = 1.0
"""Seconds after which packing or sending is spoken of."""
MUCH = 1 << 20
"""Size in bytes from which a description speaks of what a pipeline carries."""
_NAMED = ("variable", "global", "default")
_LOOKED_AT = 1000
"""Number of elements whose kind is looked at."""


class Weighed(NamedTuple):
    """What takes most of the bytes of a value."""

    path: str
    """Where it is, such as ``"Folder.samples"``."""
    kind: str
    """What it is, such as ``"list of 1,281,167 tuples"``."""
    nbytes: int
    """Its size in bytes."""

    def __str__(self) -> str:
        return f"{self.path}: {self.kind}, {shown_size(self.nbytes)}"


def weight_of(value: Any) -> int:
    """Return the number of bytes with which a value is sent, without those of files
    that travel as their paths; 0 for a value that cannot be sent.

    >>> weight_of(bytes(5_000_000)) // 1_000_000
    5
    """
    from zmqdata.pipelines.pickler import HashingFile

    file = HashingFile()
    try:
        pickled(value, file, {}, name="it")
    except (TypeError, ValueError):
        return 0
    return file.total


def heaviest(holder: Any, path: str = "") -> Weighed:
    """Return what takes most of the bytes of an object: the heaviest of its attributes,
    or that of an attribute, or a name that a function uses. Each is pickled once more.

    Args:
        holder: the object.
        path: where it is.

    >>> found = heaviest(Parcel([(1, 2.5)] * 2_000, "a list"))
    >>> found.path, found.kind
    ('Parcel.value', 'list of 2,000 tuples')
    """
    nbytes = weight_of(holder)
    while parts := [(weight_of(one), name, one) for name, one in _parts_of(holder)]:
        path = getattr(holder, "__qualname__", type(holder).__qualname__)
        nbytes, name, holder = max(parts, key=lambda each: each[0])
        path = f"{path.rpartition('<locals>.')[2]}.{name}"
    return Weighed(path or type(holder).__qualname__, _kind(holder), nbytes)


def carried(node: Node) -> str:
    """Return what a pipeline carries to workers, in words; "" if it is little.

    >>> from zmqdata import Dataset
    >>> pairs = Dataset.from_list([("a", number) for number in range(300_000)])
    >>> carried(pairs.node).partition(": ")[2]
    'tuple of 300,000 tuples, 2.57 MB. Each task opens a copy'
    """
    nodes = nodes_in_order(node)
    nbytes = weight_of(tuple(nodes))
    if nbytes < MUCH:
        return ""
    values = [
        (weight_of(value), one.label, value)
        for one in nodes
        for name, value in attributes(one)
        if name != "inputs"
    ]
    _, label, value = max(values, key=lambda each: each[0])
    return f"{shown_size(nbytes)}, most of it {heaviest(value, label)}. Each task opens a copy"


def _parts_of(holder: Any) -> list[tuple[str, Any]]:
    if is_a(holder, types.FunctionType):
        return [(str(step.name), one) for step, one in held(holder) if step.way in _NAMED]
    return [*attributes(holder)] if is_plain_class(type(holder)) else []


def _kind(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__
    if is_a(value, np.ndarray) or is_tensor_class(kind):
        return f"{name} of {value.dtype}, {tuple(value.shape)}"
    if not (length := count(value)):
        return name
    kinds = {type(one).__qualname__ for one in _first_of(value)}
    return f"{name} of {length:,} {f'{kinds.pop()}s' if len(kinds) == 1 else 'items'}"


def _first_of(values: Any) -> list[Any]:
    held = dict.values(values) if is_a(values, dict) else values
    return [one for one, _ in zip(held, range(_LOOKED_AT), strict=False)]


def say_slow(parcel: Parcel, done: str, seconds: float) -> None:
    """Say once of a parcel why it takes long, if it does.

    Args:
        parcel: the parcel.
        done: what was done, such as "packing".
        seconds: time that it took.
    """
    if seconds < SLOW or parcel.is_spoken_of:
        return
    parcel.is_spoken_of = True
    log.warning(
        "%s %s took %.1f s (%s). Most of it is %s. %s",
        done,
        parcel.name,
        seconds,
        shown_size(sum(parcel.sizes.values())),
        heaviest(parcel.value),
        parcel.advice,
    )
