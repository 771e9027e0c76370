"""The sizes of what pipelines carry, for people who wait until it is sent."""

from __future__ import annotations

import logging
import types
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from zmqdata.nodes.base import Node
from zmqdata.peeking import is_a
from zmqdata.pipelines.fingerprints import nodes_in_order
from zmqdata.pipelines.holding import attributes, count, held
from zmqdata.pipelines.parcels import Parcel
from zmqdata.pipelines.reducing import is_plain_class, is_tensor_class
from zmqdata.printable import shown_size

log = logging.getLogger(__name__)

SLOW = 1.0
"""Seconds after which packing or sending is spoken of."""
MUCH = 1 << 20
"""Size in bytes from which a description speaks of what a pipeline carries."""
_NAMED = ("variable", "global", "default")
_INPUTS = "inputs"
_DEEPEST = 8
"""Number of objects within each other that are weighed: each is pickled again."""
_LOOKED_AT = 1000
"""Number of elements whose kind is looked at."""


def weight_of(value: Any, holders: Sequence[Any] = ()) -> int:
    """Return the number of bytes with which a value is sent, without those of files
    that travel as their paths; 0 for a value that cannot be sent. The bytes beyond the
    size of a message are not counted.

    Args:
        value: the value.
        holders: objects that count as nothing where the value refers to them.

    >>> weight_of(bytes(5_000_000)) // 1_000_000
    5
    """
    from zmqdata.pipelines.pickler import PickleFile, PipelinePickler, UnsendableError

    file = PickleFile(keeps=False, counts=True)
    pickler = PipelinePickler(file, name="it")
    pickler.memo = {id(one): (number, one) for number, one in enumerate(holders)}
    try:
        pickler.dump(value)
    except UnsendableError:
        return 0
    except ValueError:
        pass  # it is too large, which is worth telling
    return file.total


def heaviest(holder: Any, path: str = "") -> str:
    """Return what takes most of the bytes of an object: the heaviest of its attributes,
    or that of an attribute, or a name that a function uses. Each is pickled once more.

    Args:
        holder: the object.
        path: where it is.

    >>> heaviest(Parcel([(1, 2.5)] * 200_000, "a list"))
    'Parcel.value: list of 200,000 tuples, 401 kB'
    """
    nbytes = weight_of(holder)
    holders: list[Any] = []
    while len(holders) < _DEEPEST:
        holders.append(holder)
        parts = [
            (weight_of(one, holders), name, one)
            for name, one in _parts_of(holder)
            if all(one is not each for each in holders)
        ]
        if not parts:
            break
        path = getattr(holder, "__qualname__", type(holder).__qualname__)
        nbytes, name, holder = max(parts, key=lambda each: each[0])
        path = f"{path.rpartition('<locals>.')[2]}.{name}"
    return f"{path or type(holder).__qualname__}: {_kind(holder)}, {shown_size(nbytes)}"


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
        (one.label, each) for one in nodes for name, each in attributes(one) if name != _INPUTS
    ]
    label, most = max(values, key=lambda pair: weight_of(pair[1]))
    return f"{shown_size(nbytes)}, most of it {heaviest(most, label)}. Each task opens a copy"


def _parts_of(holder: Any) -> list[tuple[str, Any]]:
    if is_a(holder, types.FunctionType):
        return [(str(step.name), one) for step, one in held(holder) if step.way in _NAMED]
    return [*attributes(holder)] if is_plain_class(type(holder)) else []


def _kind(value: Any) -> str:
    name, length = type(value).__qualname__, count(value)
    if is_a(value, np.ndarray) or is_tensor_class(type(value)):
        return f"{name} of {value.dtype}, {tuple(value.shape)}"
    if not length:
        return name
    values = dict.values(value) if is_a(value, dict) else value
    kinds = {type(one).__qualname__ for one in islice(values, _LOOKED_AT)}
    return f"{name} of {length:,} {f'{kinds.pop()}s' if len(kinds) == 1 else 'items'}"


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
    size, most = shown_size(sum(parcel.sizes.values())), heaviest(parcel.value)
    text = "%s %s took %.1f s (%s). Most of it is %s. %s"
    log.warning(text, done, parcel.name, seconds, size, most, parcel.advice)
