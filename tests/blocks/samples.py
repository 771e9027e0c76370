"""User classes of elements for the tests of this folder."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

CALLS: list[object] = []
"""Records of code that must not run at a peer's request."""


class Point(NamedTuple):
    """A namedtuple that the receiver knows."""

    x: int
    y: float


class NamedPoint(Point):
    """A subclass of a namedtuple."""


@dataclasses.dataclass(frozen=True)
class Example:
    """A frozen dataclass whose constructor must not run at a peer's request."""

    image: Any
    label: int = 3

    def __post_init__(self) -> None:
        """Record the call."""
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
        """Do nothing."""


Guarded.a = property(lambda self: 1, lambda self, value: CALLS.append(value))  # type: ignore[assignment]


class Closing:
    """A class that runs code when it is deleted."""

    def __del__(self) -> None:
        """Record the call."""
        CALLS.append(self)


@dataclasses.dataclass
class Closed(Closing):
    """A dataclass that inherits a `__del__`."""

    a: int


class ClosedPoint(Point):
    """A namedtuple with a `__del__`."""

    def __del__(self) -> None:
        """Record the call."""
        CALLS.append(self)


class Colour(enum.IntEnum):
    """An int with an extra meaning."""

    RED = 1
