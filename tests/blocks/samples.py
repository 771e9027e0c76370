"""Classes of users that elements are made of, in the tests of this folder."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

CALLS: list[object] = []
"""What ran that must not run on a peer's word."""


class Point(NamedTuple):
    """A namedtuple that the receiver knows."""

    x: int
    y: float


class NamedPoint(Point):
    """A subclass of a namedtuple."""


@dataclasses.dataclass(frozen=True)
class Example:
    """A frozen dataclass whose constructor must not run on a peer's word."""

    image: Any
    label: int = 3

    def __post_init__(self) -> None:
        """Count the calls."""
        CALLS.append(self)


@dataclasses.dataclass
class Slotted:
    """A dataclass without a dict."""

    __slots__ = ("a",)
    a: int


@dataclasses.dataclass
class Guarded:
    """A dataclass whose field runs code when set."""

    a: int

    def __post_init__(self) -> None:
        """Nothing."""


Guarded.a = property(lambda self: 1, lambda self, value: CALLS.append(value))  # type: ignore[assignment]


class Closing:
    """What runs code when it goes."""

    def __del__(self) -> None:
        """Say so."""
        CALLS.append(self)


@dataclasses.dataclass
class Closed(Closing):
    """A dataclass that inherits a `__del__`."""

    a: int


class ClosedPoint(Point):
    """A namedtuple with a `__del__`."""

    def __del__(self) -> None:
        """Say so."""
        CALLS.append(self)


class Colour(enum.IntEnum):
    """An int that is more than an int."""

    RED = 1
