"""Names of elements: what an element is called in every reading of its pipeline,
whichever task produces it. Random draws follow from names.

A name is a pair of a group and a position in the group. A source numbers its elements
in a group. An operation that reads several datasets, or one dataset several times,
gives each reading a group of its own. Operations that pass elements on pass on their
names. Elements of some operations (windows, caches) have no names: an operation that
needs a name counts them in its task (``Context.counted``).

Decision 0042.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqdata.iterators.base import ElementIterator, InputIterator
from zmqdata.iterators.context import Context, Name, Namer, subgroup

_MOST = 64  # groups that a namer remembers


def grouped(source: ElementIterator, number: int) -> Namer:
    """Return the namer of an operation while it reads one of several datasets, or one
    dataset once more.

    Args:
        source: the iterator over the dataset.
        number: number of the dataset or of the reading.
    """
    namer = source.namer()
    if namer is None:
        return unnamed
    groups: dict[int, int] = {}

    def name() -> Name | None:
        found = namer()
        if found is None:
            return None
        group, position = found
        try:
            return groups[group], position
        except KeyError:
            if len(groups) >= _MOST:
                groups.clear()
            groups[group] = subgroup(group, number)
            return groups[group], position

    return name


def unnamed() -> Name | None:
    """Return None, as the namer of elements without names does."""
    return None


class NamingIterator(InputIterator):
    """Yields pairs of an element and its name, for an operation that holds elements."""

    def __init__(self, source: ElementIterator, namer: Namer) -> None:
        self._input, self._namer = source, namer
        self._next = source.__next__  # bound once, which is faster than next(source)

    def __next__(self) -> Any:
        return self._next(), self._namer()

    def namer(self) -> None:
        """Return None: the elements hold their names."""


def carrying(source: ElementIterator, context: Context) -> ElementIterator:
    """Return an input of an operation that holds elements: it yields elements with
    their names if a later operation asks for names, and elements have names.
    """
    namer = source.namer() if context.named else None
    return source if namer is None else NamingIterator(source, namer)


class CarriedNames(ElementIterator):
    """Mixin for an iterator whose elements are pairs of an element and its name: it
    yields the elements and knows their names.
    """

    _name: Name | None = None

    def __next__(self) -> Any:
        element, self._name = super().__next__()  # type: ignore[safe-super]  # mixed into an iterator
        return element

    def namer(self) -> Namer | None:
        return self._last_name

    def _last_name(self) -> Name | None:
        return self._name


Call = Callable[[int, Any], tuple[Any, "BaseException | None"]]


def named_call(call: Call, takes_names: bool) -> Call:
    """Wrap a function from number and element to outcome, to be called with pairs of an
    element and its name: the result is such a pair, too.

    Args:
        call: the function.
        takes_names: True if the function takes such pairs itself.
    """

    def call_named(number: int, named: tuple[Any, Name | None]) -> tuple[Any, Any]:
        value, raised = call(number, named if takes_names else named[0])
        return ((value, named[1]) if raised is None else value), raised

    return call_named
