"""Elements of every kind, and a comparison of two elements in every detail."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import sys
from typing import Any, NamedTuple

import numpy as np

from zmqdata import RaggedTensor


class Pair(NamedTuple):
    """A namedtuple that the script defines."""

    number: Any
    rest: Any


@dataclasses.dataclass
class Example:
    """A dataclass that the script defines."""

    image: Any
    labels: Any = dataclasses.field(default_factory=list)


class Colour(enum.Enum):
    """An enumeration that the script defines."""

    RED = 0
    GREEN = 1


class Opaque:
    """An object of a class that the script defines."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        """Compare the numbers."""
        return type(other) is Opaque and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


sys.modules.setdefault(__name__, sys.modules[Pair.__module__])

STRUCTURED = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("t", "<U2")])


def of_every_kind(x: Any) -> Any:
    """Return an element with a leaf of every kind."""
    n = int(x)
    return {
        "int": n,
        "big": 2**70 + n,
        "float": n / 2,
        "bool": n % 2 == 0,
        "complex": complex(n, 1),
        "str": "ü" * n,
        "bytes": bytes(n),
        "none": None,
        "np": (
            np.float32(n),
            np.bool_(n),
            np.str_(n),
            np.bytes_(b"x"),
            np.datetime64(n, "s"),
            np.timedelta64(n, "25us"),
        ),
        "big-endian": np.arange(n, dtype=">i2"),
        "fortran": np.asfortranarray(np.full((2, 3), n)),
        "strided": np.arange(9)[::3] + n,
        "no axes": np.array(n),
        "empty": np.zeros((0, 3), "f2"),
        "texts": np.array(["a" * (n + 1)]),
        "times": np.array([n], "M8[D]"),
        "records": np.zeros(n, STRUCTURED),
        "ragged": RaggedTensor(np.arange(n), [0, n // 2, n]),
        "unpadded": np.array(["ü" * n, "\ud800", "a\0"], object),
        "ragged texts": RaggedTensor(np.array(["a\0"] * n, object), [0, n // 2, n]),
    }


def objects(x: Any) -> Any:
    """Return an element with objects of every origin."""
    n = int(x)
    return (
        {n, "x"},
        decimal.Decimal(n) / 3,
        datetime.datetime(2020, 1, 1 + n),
        Colour(n % 2),
        Opaque(n),
        np.array([None, n, "x"], object),
        np.ma.masked_array([n, 1], [True, False]),
        {(n, 1): "key"},
    )


def records(x: Any) -> Any:
    """Return an element of nested records whose classes the script defines."""
    n = int(x)
    return Pair(n, (Example(np.full(3, n), [n, "x"]), Pair({"a": n}, Example(n))))


def mixture(x: Any) -> Any:
    """Return an element whose structure differs at almost every number."""
    n = int(x)
    return [n, Pair(n, n), {"x": n}, Opaque(n), Example(n), (n, {n}), np.full(n, n), str(n)][n % 8]


def same(left: Any, right: Any) -> bool:
    """Return whether two elements are equal in type, dtype, shape and value."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return [*left] == [*right] and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left):
        return same(vars(left), vars(right))
    if isinstance(left, RaggedTensor):
        return left.equals(right)
    if isinstance(left, (np.ndarray, np.generic)):
        return left.dtype == right.dtype and left.shape == right.shape and repr(left) == repr(right)
    return bool(left == right)
