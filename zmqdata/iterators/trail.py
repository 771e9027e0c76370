"""Where to pull again from: states of an input from before the elements that an
iterator still holds.

For the iterators that hold elements or what they made of them (shuffle, flat_map,
interleave). Their own states keep numbers only; restoring pulls the elements again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import MethodType
from typing import Any
from weakref import WeakMethod

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.base import ElementIterator, is_end

_MOST_MARKS = 64


class Again(dict[int, Any]):
    """Elements that were pulled again, by their numbers. One that is asked for and
    failed could be made before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failed: dict[int, Exception] = {}

    def __missing__(self, number: int) -> Any:
        error = self.failed.get(number)
        raise FailedPreconditionError(
            f"element {number} of the input could be made when the state was taken, and fails now: "
            f"{error}. Restore on "
            "the same input only"
        ) from error


class Trail:
    """Pulls from an input, numbers what comes, and notes the input's state every now
    and then.

    Args:
        source: the input; nothing else may pull from it.
        every: how many pulls lie between two noted states. Fewer make states costlier
            to take, more to restore.
        oldest: the number of the oldest element still held; asked when a state is
            noted. A method is referred to weakly: its object holds the trail, and what
            both hold (files, locks) must go with their last user.
    """

    def __init__(self, source: ElementIterator, every: int, oldest: Callable[[], int]) -> None:
        self.source = source
        self._next = source.__next__  # called as it is, which is quicker than next(source)
        self.pulled = 0
        self._every = every
        self._oldest_reference = (
            WeakMethod(oldest) if isinstance(oldest, MethodType) else lambda: oldest
        )
        self._due = 0
        self._marks: list[tuple[int, Any]] = []
        # While what is held is pulled again, which nobody else knows of yet.
        self._restored: int | None = None

    def _oldest(self) -> int:
        if self._restored is not None:
            return self._restored
        oldest = self._oldest_reference()
        return oldest() if oldest is not None else self.pulled

    def pull(self) -> Any:
        """The next element, which gets the number that ``pulled`` was. A failing
        element counts, too, the end not.
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

    def _mark(self, number: int) -> None:
        self._forget(min(self._oldest(), number))
        if len(self._marks) >= _MOST_MARKS:  # something old is held for long: fewer marks will do
            del self._marks[1::2]
        self._marks.append((number, self.source.state()))
        self._due = number + self._every

    def _forget(self, oldest: int) -> None:
        while len(self._marks) > 1 and self._marks[1][0] <= oldest:
            del self._marks[0]

    def state(self) -> list[Any]:
        """From where to pull everything that is held again:
        ``[number, state before it, pulled]``.
        """
        oldest = self._oldest()
        if oldest >= self.pulled or not self._marks:
            return [self.pulled, self.source.state(), self.pulled]
        self._forget(oldest)
        return [*self._marks[0], self.pulled]

    def restore(self, saved: list[Any], wanted: Collection[int]) -> dict[int, Any]:
        """Go where ``state`` was taken. Returns the elements with the wanted numbers,
        pulled again.
        """
        first, inner, pulled = saved
        self.source.restore(inner)
        self.pulled = self._due = self._restored = first
        self._marks.clear()
        try:
            return self._pull_again(pulled, wanted)
        finally:
            self._restored = None

    def _pull_again(self, pulled: int, wanted: Collection[int]) -> dict[int, Any]:
        found = Again()
        while self.pulled < pulled:
            number = self.pulled
            try:
                element = self.pull()
            except StopIteration:
                raise FailedPreconditionError(
                    f"the input has {number} elements now and had {pulled} or more when the state "
                    "was taken: restore "
                    "on the same input only"
                ) from None
            except Exception as error:
                if is_end(error):
                    raise  # such as why a job could not go on: nothing comes behind it
                found.failed[number] = error
                continue  # it was raised where it belonged, before the state was taken
            if number in wanted:
                found[number] = element
        return found
