"""Tests of looking at objects that answer with errors."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata.peeking import has, is_a, peek


class Refusing:
    """An object that raises whatever it is asked."""

    given = 1

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        raise self.error(name)

    @property
    def __class__(self) -> Any:
        raise self.error("class")


@pytest.mark.parametrize("error", [AttributeError, KeyError, RecursionError, ZeroDivisionError])
def test_an_error_is_an_absent_attribute(error: type[Exception]) -> None:
    """An attribute that raises any error counts as absent; others are found."""
    thing = Refusing(error)
    assert (peek(thing, "absent"), peek(thing, "absent", 3), peek(thing, "given")) == (None, 3, 1)
    assert (has(thing, "absent"), has(thing, "given")) == (False, True)


def test_a_class_is_not_asked_for() -> None:
    """An object is of the class that made it, whatever its ``__class__`` answers."""
    assert is_a(Refusing(ValueError), Refusing)
    assert is_a(Refusing(ValueError), (int, Refusing))
    assert not is_a(Refusing(ValueError), int)
