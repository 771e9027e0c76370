"""Trail of states of an input, from before the elements that an iterator still holds.

It serves the iterators that hold elements or results made from them (shuffle, flat_map,
interleave). Their own states hold only numbers; restoring pulls the elements again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import MethodType
from typing import Any
from weakref import WeakMethod

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.base import ElementIterator
from zmqdata.iterators.calling import is_end
from zmqdata.iterators.context import Name, Namer
from zmqdata.iterators.naming import unnamed

_MOST_MARKS = 64


class Again(dict[int, Any]):
    """Elements that were pulled again, by number. Access to an element that failed
    raises: it was produced before.

    Attributes:
        failed: errors of the elements that failed.
        names: names of the elements.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failed: dict[int, Exception] = {}
        self.names: dict[int, Name | None] = {}

    def __missing__(self, number: int) -> Any:
        error = self.failed.get(number)
        raise FailedPreconditionError(
            f"Element {number} of the input was produced before the state was taken, and fails "
            f"now: {error}. Restore on the same input only"
        ) from error


class Trail:
    """Pulls from an input, numbers the elements, and notes the input's state at
    intervals.

    Attributes:
        source: the input.
        pulled: number of elements pulled so far.
        name: returns the name of the last element.

    Args:
        source: the input; only the trail may pull from it.
        every: number of pulls between two noted states. A smaller number makes taking
            states costlier, a larger number restoring.
        oldest: returns the number of the oldest element still held; called when a state
            is noted. A method is referenced weakly: its object holds the trail, and
            their resources (files, locks) must be released with their last user.
    """

    def __init__(self, source: ElementIterator, every: int, oldest: Callable[[], int]) -> None:
        self.source = source
        self._next = source.__next__  # bound once, which is faster than next(source)
        self.name: Namer = source.namer() or unnamed
        self.pulled = 0
        self._every = every
        self._oldest_reference = (
            WeakMethod(oldest) if isinstance(oldest, MethodType) else lambda: oldest
        )
        self._due = 0
        self._marks: list[tuple[int, Any]] = []
        # Number of the oldest element while held elements are pulled again; the owner
        # does not know them yet.
        self._restored: int | None = None

    def _oldest(self) -> int:
        if self._restored is not None:
            return self._restored
        oldest = self._oldest_reference()
        return oldest() if oldest is not None else self.pulled

    def pull(self) -> Any:
        """Return the next element, and give it the number ``pulled``. A failed element
        also counts, the end does not.
        """
        number = self.pulled
        if number >= self._due:
            self._mark(number)
        self.pulled = number + 1
        try:
            return self._next()
        except BaseException as error:
            if is_end(error):
                self.pulled = number
            raise

    def rewind(self, repetition: int) -> bool:
        """Rewind the input, see ``ElementIterator.rewind``."""
        self.pulled = self._due = 0
        self._marks.clear()
        return self.source.rewind(repetition)

    def _mark(self, number: int) -> None:
        if len(self._marks) > 1:
            self._forget(min(self._oldest(), number))
        if len(self._marks) >= _MOST_MARKS:
            # An old element is held for long: fewer marks suffice.
            del self._marks[1::2]
        self._marks.append((number, self.source.state()))
        self._due = number + self._every

    def _forget(self, oldest: int) -> None:
        while len(self._marks) > 1 and self._marks[1][0] <= oldest:
            del self._marks[0]

    def state(self) -> list[Any]:
        """Return the position from which to pull all held elements again:
        ``[number, state before it, pulled]``.
        """
        oldest = self._oldest()
        if oldest >= self.pulled or not self._marks:
            return [self.pulled, self.source.state(), self.pulled]
        self._forget(oldest)
        return [*self._marks[0], self.pulled]

    def restore(self, saved: list[Any], wanted: Collection[int]) -> Again:
        """Return to the position where ``state`` was taken, and return the wanted
        elements, pulled again, by number.
        """
        first, inner, pulled = saved
        self.source.restore(inner)
        self.pulled = self._due = self._restored = first
        self._marks.clear()
        try:
            return self._pull_again(pulled, wanted)
        finally:
            self._restored = None

    def _pull_again(self, pulled: int, wanted: Collection[int]) -> Again:
        found = Again()
        while self.pulled < pulled:
            number = self.pulled
            try:
                element = self.pull()
            except StopIteration:
                raise FailedPreconditionError(
                    f"The input has {number} elements now and had {pulled} or more when the state "
                    "was taken: restore on the same input only"
                ) from None
            except Exception as error:
                if is_end(error):
                    # for example, the reason why a job could not continue: nothing
                    # follows it
                    raise
                found.failed[number] = error
                continue  # the error was raised to the consumer before the state was taken
            if number in wanted:
                found[number] = element
                found.names[number] = self.name()
        return found
