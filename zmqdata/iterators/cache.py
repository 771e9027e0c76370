"""The iterator of a cache in memory, and the tape that it plays. Caches in files are in
``stored``.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from zmqdata import nodes
from zmqdata.blocks import copied
from zmqdata.errors import DataServiceError, FailedPreconditionError
from zmqdata.iterators.base import Context, ElementIterator
from zmqdata.iterators.inputs import input_iterator

_HOLE = object()
_MARK_EVERY = 64
_MOST_MARKS = 64


def identity(context: Context) -> list[int]:
    """What of a context decides which elements come, as a state holds it."""
    return [context.seed, context.fixed_seed, context.repetition, context.iteration]


def identified(context: Context, ids: list[int]) -> Context:
    """A context in which the elements come that came when the identity was taken."""
    seed, fixed_seed, repetition, iteration = ids
    return replace(
        context, seed=seed, fixed_seed=fixed_seed, repetition=repetition, iteration=iteration
    )


def origins_of(context: Context) -> dict[tuple[int, ...], Any] | None:
    """Where a repeat above keeps, through restoring, how the caches of a task began:
    see ``ResetCounter``.

    None where nothing is split, or nothing above repeats, so that nobody will ask a
    cache again.
    """
    return getattr(context.providers[0], "origins", None) if context.providers else None


class Tape:
    """The elements of one run of an input, as far as they were pulled, and how to pull
    the others again.

    Args:
        ids: the identity of the context of the run. Whoever pulls for the tape does so
            in such a context, whatever repetition he is in. Not the context itself,
            which holds the tape's owner and so would keep both alive.
        start: the state of the input at its beginning.
    """

    def __init__(self, ids: list[int], start: Any) -> None:
        self.ids = ids
        self.elements: list[Any] = []
        self.length: int | None = None
        self._marks = [(0, start)]
        self._every = _MARK_EVERY

    def put(self, number: int, element: Any) -> None:
        """Keep an element."""
        self.reach(number + 1)
        self.elements[number] = element

    def reach(self, count: int) -> None:
        """Have room for so many elements, which are not known yet."""
        self.elements.extend([_HOLE] * (count - len(self.elements)))

    def mark(self, number: int, source: ElementIterator) -> None:
        """Note the input's state before an element, if it is time."""
        if number - self._marks[-1][0] < self._every:
            return
        if len(self._marks) >= _MOST_MARKS:
            del self._marks[1::2]
            self._every *= 2
        self._marks.append((number, source.state()))

    def nearest(self, number: int) -> tuple[int, Any]:
        """The last noted state from before an element."""
        return max((mark for mark in self._marks if mark[0] <= number), key=lambda mark: mark[0])


_tapes: MutableMapping[object, dict[tuple[int, ...], Tape]] = WeakKeyDictionary()


def played(owner: object, number: int) -> tuple[Any] | None:
    """A copy of element ``number`` of an owner's tape, if it is on it."""
    tape = _tapes.get(owner, {}).get(())
    if tape is None or number >= len(tape.elements) or tape.elements[number] is _HOLE:
        return None
    return (copied(tape.elements[number]),)


class MemoryCacheIterator(ElementIterator):
    """Plays a tape, and pulls from its input what is not on it. All iterators of a
    dataset object share one tape.

    The state holds no elements. Restored while the tape is recorded it goes on at its
    place and pulls the elements before it when another repetition needs them; restored
    later it begins at the last noted state, at most a 32nd of the elements away. All
    that is pulled in the context of the first run, so that it comes out the same.

    With providers, which each task has its own, the tape is the task's: its worker
    plays what it saw.
    """

    def __init__(self, node: nodes.Cache, context: Context) -> None:
        self._node, self._context = node, context
        self._owner: object = context.providers[0] if context.providers else node
        self._position = 0
        self._input: ElementIterator | None = None
        self._at = 0  # the number of the input's next element
        self._place = context.path if context.providers else ()
        found = _tapes.get(self._owner, {}).get(self._place)
        self._tape = self._first_tape() if found is None else found

    def _first_tape(self) -> Tape:
        origins, path = origins_of(self._context), self._context.path
        if origins is not None and path in origins:  # the tape of another worker is not here
            return self._new_tape(*origins[path])
        ids = identity(self._context)
        self._input = self._make_input(ids)
        start = self._input.state()
        if origins is not None:
            origins[path] = ids, start
        return self._new_tape(ids, start)

    def _new_tape(self, ids: list[int], start: Any) -> Tape:
        """A tape with nothing on it, for all iterators that are made from now on."""
        tape = Tape(ids, start)
        _tapes.setdefault(self._owner, {})[self._place] = tape
        return tape

    def _make_input(self, ids: list[int]) -> ElementIterator:
        return input_iterator(self._node, identified(self._context, ids))

    def __next__(self) -> Any:
        position, tape = self._position, self._tape
        element = tape.elements[position] if position < len(tape.elements) else _HOLE
        if element is _HOLE:
            if position == tape.length:
                raise StopIteration
            element = self._pull(position)
        self._position = position + 1
        return copied(element)

    def _pull(self, number: int) -> Any:
        source = (
            self._input if self._at == number and self._input is not None else self._seek(number)
        )
        tape = self._tape
        again = number < len(tape.elements)
        while True:
            if not again:
                tape.mark(number, source)
            try:
                element = next(source)
            except StopIteration:
                if again:
                    raise self._lost(number) from None
                tape.length = number
                self.close()
                raise
            except DataServiceError as error:
                if again and not error.final:
                    continue
                raise
            self._at = number + 1
            tape.put(number, element)
            return element

    def _seek(self, number: int) -> ElementIterator:
        self.close()
        self._at, mark = self._tape.nearest(number)
        source = self._input = self._make_input(self._tape.ids)
        source.restore(mark)
        self._go_to(number)
        return source

    def _go_to(self, number: int) -> None:
        """Pull until the input's next element is this one."""
        assert self._input is not None
        while self._at < number:
            try:
                self._tape.put(self._at, next(self._input))
            except StopIteration:
                raise self._lost(self._at) from None
            except DataServiceError as error:
                if error.final:
                    raise
                continue  # it was raised when the tape was recorded
            self._at += 1

    def _lost(self, number: int) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"the input of {self._node.label} has {number} elements now and had more when they "
            "were cached: restore on "
            "the same input only"
        )

    def state(self) -> Any:
        tape, position = self._tape, self._position
        if self._input is not None and self._at == position:
            mark = (position, self._input.state())
        else:
            mark = tape.nearest(position)
        # Where all began tells besides which decisions are needed: a later repetition
        # pulls what is not on the tape.
        return [position, tape.length, tape.ids, *mark, tape.nearest(0)[1]]

    def restore(self, state: Any) -> None:
        self._position, length, ids, number, mark, *start = state
        if self._tape.ids != ids or len(self._tape.elements) < self._position:
            self.close()
            # The input begins where it began for the tape before; its providers may
            # have moved on since.
            self._tape = self._new_tape(ids, start[0] if start else self._tape.nearest(0)[1])
        tape = self._tape
        if length is not None:
            tape.length = length
        tape.reach(self._position if length is None else length)
        if self._position == length or (
            self._position < len(tape.elements) and tape.elements[self._position] is not _HOLE
        ):
            return
        self.close()
        self._input, self._at = self._make_input(ids), number
        self._input.restore(mark)
        self._go_to(self._position)

    def close(self) -> None:
        if self._input is not None:
            self._input.close()
        self._input = None
