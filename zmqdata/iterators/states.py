"""States of iterators: bookmarks, and states that are missing or do not fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

NO_STATE = "zmqdata: this iterator cannot say where it is"
"""Placeholder for the state of an iterator that cannot report one yet. A caller may
note it, but must refuse to save it.
"""


def holds_no_state(state: Any) -> bool:
    """Return True if a state, or a part of it, is missing.

    >>> holds_no_state([3, {"input": NO_STATE}]), holds_no_state([3, "text"])
    (True, False)
    """
    if isinstance(state, dict):
        return any(map(holds_no_state, state.values()))
    if isinstance(state, (list, tuple)):
        return any(map(holds_no_state, state))
    return isinstance(state, str) and state == NO_STATE


class Bookmark(ABC):
    """Stand-in for a state that is costly to compute: the caller that saves it asks for
    its ``plain`` values.

    A bookmark is cheap, so a caller may note it at any time. It can compute its state
    for as long as it is alive.
    """

    @abstractmethod
    def plain(self) -> Any:
        """Return the state: numbers, texts, bytes, lists and None."""


def holds_bookmark(state: Any) -> bool:
    """Return True if a state is a bookmark, or holds one.

    >>> holds_bookmark([1, {"input": None}])
    False
    """
    if isinstance(state, dict):
        return any(map(holds_bookmark, state.values()))
    if isinstance(state, (list, tuple)):
        return any(map(holds_bookmark, state))
    return isinstance(state, Bookmark)


def plain_state(state: Any) -> Any:
    """Return a copy of a state in which every bookmark is replaced by its plain values.

    >>> class Here(Bookmark):
    ...     def plain(self):
    ...         return "here"
    >>> plain_state([1, {"input": Here()}])
    [1, {'input': 'here'}]
    """
    if isinstance(state, dict):
        return {key: plain_state(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [plain_state(value) for value in state]
    return state.plain() if isinstance(state, Bookmark) else state


UNFIT = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Exceptions that ``ElementIterator.restore`` raises, besides its own errors, for a
value that is not a state of such an iterator.
"""


class Restoring:
    """Coordinates iterators of the service that are about to be restored with the
    iterator that they replace.

    Args:
        give_way: ends the replaced iterator. A job cannot begin anew while a client
            reads it, and the replaced iterator is such a reader.

    Attributes:
        gave_way: True once ``give_way`` was called.
        checks: functions that wait until the job is known to be resumable, and raise
            the reason if it is not.
    """

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self.gave_way = False
        self.checks: list[Callable[[], None]] = []

    def make_way(self) -> None:
        """End the replaced iterator before its job begins anew."""
        if not self.gave_way:
            self.gave_way = True
            self._give_way()
