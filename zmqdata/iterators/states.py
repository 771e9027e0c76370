"""States of iterators: bookmarks, and states that are missing or do not fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from zmqdata.iterators.quarantine import LeftOut

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


class SavedState(msgspec.Struct, frozen=True):
    """The content of a state dict, as it is validated when it is loaded."""

    version: int
    """Version of this form."""
    fingerprint: str
    """Fingerprint of the pipeline."""
    pipeline: list[str]
    """Tree of the pipeline, a line for each operation, to show a difference."""
    seed: int
    """Seed of the iterator."""
    fixed_seed: int
    """Seed of everything that is the same in all iterators of the program."""
    iteration: int
    """Number of the iterator among the iterators of its dataset."""
    position: Any
    """Positions of the operations, as plain values."""
    orders: list[int] = []
    """Numbers of the orders that the program draws once."""
    weights: dict[str, Any] = {}
    """Weights by which mixtures have chosen, and how far they are, by path."""
    quarantine: list[LeftOut] = []
    """The newest skipped elements, as ``LeftOut`` describes them."""


ENDED = "end"
"""Text in place of weights for the end of a mixture in a repetition."""


@dataclass
class Course:
    """The weights by which the elements of a mixture were chosen so far."""

    parts: list[list[Any]] = field(default_factory=list)
    """For each change: its number, the repetition and the element from which the
    weights hold, and the weights as text. None is left out, because a part may arrive
    between two others.
    """
    reached: list[int] | None = None
    """Repetition and number of the next element when the state was taken that this
    comes from; None if it comes from none.
    """
    _here: Callable[[], list[int]] | None = None

    def follow(self, here: Callable[[], list[int]]) -> None:
        """Record how far the mixture is by a function that returns both numbers."""
        self._here = here

    @property
    def place(self) -> list[int] | None:
        """Repetition and number of the next element, as far as the mixture has
        begun.
        """
        return self.reached if self._here is None else self._here()

    @property
    def next_number(self) -> int:
        """Number of the next change."""
        return self.parts[-1][0] + 1 if self.parts else 0

    @property
    def newest(self) -> str:
        """The newest weights.

        >>> Course([[0, 0, 0, "a"], [1, 0, 7, ENDED]]).newest
        'a'
        """
        found: str = [text for *_, text in self.parts if text != ENDED][-1]
        return found

    def has_ended(self, repetition: int) -> bool:
        """Return True if an earlier attempt has come to the end in a repetition."""
        return any(part[1] == repetition and part[3] == ENDED for part in self.parts)

    def merge(self, parts: Iterable[list[Any]]) -> None:
        """Add changes that may be known.

        >>> course = Course([[0, 0, 0, "a"]])
        >>> course.merge([[2, 0, 9, "a"], [0, 0, 0, "a"], [1, 0, 7, "b"]])
        >>> course.parts
        [[0, 0, 0, 'a'], [1, 0, 7, 'b'], [2, 0, 9, 'a']]
        """
        known = {part[0]: list(part) for part in [*self.parts, *parts]}
        self.parts = [part for _, part in sorted(known.items())]

    def sections(self, repetition: int) -> list[tuple[int, str]]:
        """Return the weights of a repetition, and the elements from which they hold. A
        change holds in place of earlier changes that would begin at its place or later.

        >>> Course([[0, 0, 0, "a"], [1, 1, 7, "b"]]).sections(1)
        [(0, 'a'), (7, 'b')]
        >>> Course([[0, 0, 0, "a"], [1, 1, 7, "b"], [2, 1, 7, "a"]]).sections(1)
        [(0, 'a')]
        """
        found: list[tuple[int, int, str]] = []
        for _, turn, number, text in self.parts:
            if text == ENDED:
                continue
            while found and found[-1][:2] >= (turn, number):
                found.pop()
            if not found or found[-1][2] != text:
                found.append((turn, number, text))
        before = [(0, text) for turn, _, text in found if turn < repetition]
        return before[-1:] + [(number, text) for turn, number, text in found if turn == repetition]


class Courses:
    """The courses of the mixtures of a pipeline, by their paths.

    Args:
        saved: what ``saved`` returned when a state was taken.
        is_replaying: returns True while a task makes elements of its earlier attempts
            again.
    """

    def __init__(
        self, saved: Mapping[str, Any] | None = None, is_replaying: Callable[[], bool] = bool
    ) -> None:
        self.is_replaying = is_replaying
        self._courses = {
            path: Course([list(part) for part in parts], reached)
            for path, (parts, reached) in (saved or {}).items()
        }

    def of(self, path: tuple[int, ...]) -> Course:
        """Return the course of the mixture at a path."""
        return self._courses.setdefault(".".join(map(str, path)), Course())

    def saved(self) -> dict[str, Any]:
        """Return the courses and how far the mixtures are, as plain values."""
        return {
            path: [[[*part] for part in one.parts], one.place]
            for path, one in self._courses.items()
            if one.parts
        }
