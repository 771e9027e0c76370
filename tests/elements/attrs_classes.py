"""Classes as the library attrs makes them. The tests do not depend on attrs itself: the
attribute ``__attrs_attrs__`` is all that its users go by.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Field(NamedTuple):
    """A field, of which attrs keeps more."""

    name: str
    init: bool = True


class Marked:
    """A class whose constructor accepts only what a user passes."""

    __attrs_attrs__ = (Field("x"), Field("y"))

    def __init__(self, x: Any, y: Any) -> None:
        if type(x) is int and x == 7:
            raise ValueError("7 is not allowed")
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Marked(x={self.x!r}, y={self.y!r})"


class Slotted:
    """A frozen class with slots."""

    __slots__ = ("_a",)
    __attrs_attrs__ = (Field("_a"),)

    def __init__(self, a: Any) -> None:
        object.__setattr__(self, "_a", a)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._a == self._a

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Slotted({self._a!r})"
