"""Choices of the dataset that is due, and the schedule that they follow. What takes the
elements belongs to ``mixing``.

Decision 0057.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context, mixed_seed
from zmqdata.iterators.draws import drawing_seed
from zmqdata.iterators.states import ENDED, Course
from zmqdata.nodes.base import AT_ITS_PLACE
from zmqdata.operations.choices import DrawnChoices

Weights = tuple[tuple[int, tuple[int, ...]], ...]
"""Weights of the datasets, each with the element of the mixture from which they hold,
in ascending order, from 0. They are whole numbers.
"""
_WORD = 2**64 - 1
_NEVER = 1 << 64
"""Number of an element that no mixture reaches."""


def weights_text(weights: Weights) -> str:
    """Return weights as text, as a state holds them: their numbers may have more than
    64 bits.

    >>> weights_text(((0, (1, 3)), (100, (1, 1))))
    '0:1,3 100:1,1'
    """
    return " ".join(f"{start}:{','.join(map(str, rates))}" for start, rates in weights)


def parsed_weights(text: str) -> Weights:
    """Return the weights of such a text.

    >>> parsed_weights('0:1,3 100:1,1')
    ((0, (1, 3)), (100, (1, 1)))
    """
    pairs = (part.split(":") for part in text.split(" "))
    return tuple((int(start), tuple(map(int, rates.split(",")))) for start, rates in pairs)


def named_weights(weights: Weights, names: Iterable[Any]) -> Any:
    """Return weights as a person would write them.

    >>> named_weights(((0, (1, 3)),), "ab")
    {'a': 1, 'b': 3}
    >>> named_weights(((0, (1, 3)), (9, (1, 1))), "ab")
    [(0, {'a': 1, 'b': 3}), (9, {'a': 1, 'b': 1})]
    """
    known = [*names]
    parts = [(start, dict(zip(known, rates, strict=False))) for start, rates in weights]
    return parts if len(parts) > 1 else parts[0][1]


def usable_weights(weights: Weights, first: int, left: set[int]) -> Weights:
    """Return the weights that hold from an element on, with those of other datasets
    than the given ones as 0.

    Weights of which none is left are left out: the following ones begin in their place.

    Args:
        weights: the weights.
        first: number of the element.
        left: the datasets that may be read.

    >>> usable_weights(((0, (1, 0)), (5, (0, 2))), 3, {0, 1})
    ((3, (1, 0)), (5, (0, 2)))
    >>> usable_weights(((0, (1, 0)), (5, (0, 2))), 3, {1})
    ((3, (0, 2)),)
    """
    found: list[tuple[int, tuple[int, ...]]] = []
    early: int | None = None
    for (start, rates), stop in zip(
        weights, [*[start for start, _ in weights[1:]], math.inf], strict=True
    ):
        if stop <= first:
            continue
        kept = tuple(rate if index in left else 0 for index, rate in enumerate(rates))
        begin = max(start, first) if early is None else early
        early = None if any(kept) else begin
        if early is None:
            found.append((begin, kept))
    return tuple(found)


class _Stretch:
    """A stretch of elements with the same weights of a dataset."""

    __slots__ = ("owed", "rate", "start")

    def __init__(self, start: int, owed: int, rate: int) -> None:
        self.start = start
        """First element."""
        self.owed = owed
        """Share of all elements before, in units of the schedule."""
        self.rate = rate
        """Share of each element."""


class DueSchedule:
    """Numbers of the datasets that yield the elements of a mixture, by the earliest
    deadline.

    The share of a dataset in the first n elements grows with each element by its
    weight. Its element k is due once its share exceeds k, and is late once its share
    exceeds k + 1. Each element of the mixture comes from the due dataset that would be
    late first. As all shares add up to n, none is ever late (Horn 1974, Tijdeman 1980):
    every dataset is within 1 of its share, also across changes of weights, which the
    schedule knows in advance. A dataset whose weight is 0 for a while is not read
    meanwhile; then the bound is 2.

    All numbers are whole, so that nothing is rounded, however long the mixture is.

    Args:
        weights: what ``usable_weights`` returns; never empty.
        ties: two numbers for each dataset, which decide between equal deadlines.
        number: number of the next element.
        counts: elements of each dataset since the first element of the weights.

    Attributes:
        number: number of the next element.
        counts: elements of each dataset since the first element of the weights.

    >>> schedule = DueSchedule(((0, (3, 1)),), [(0, 1), (1, 1)], 0, [0, 0])
    >>> [schedule.take() for _ in range(8)]
    [0, 0, 1, 0, 0, 0, 1, 0]
    """

    def __init__(
        self, weights: Weights, ties: Sequence[tuple[int, int]], number: int, counts: list[int]
    ) -> None:
        totals = [sum(rates) for _, rates in weights]
        whole = math.lcm(*totals)
        shares = [
            (start, [rate * (whole // total) for rate in rates])
            for (start, rates), total in zip(weights, totals, strict=True)
        ]
        divisor = math.gcd(whole, *[rate for _, rates in shares for rate in rates])
        self._whole = whole // divisor
        self._pieces: list[list[_Stretch]] = [[] for _ in ties]
        for at, (start, rates) in enumerate(shares):
            for pieces, rate in zip(self._pieces, rates, strict=True):
                owed = pieces[-1].owed + pieces[-1].rate * (start - shares[at - 1][0]) if at else 0
                pieces.append(_Stretch(start, owed, rate // divisor))
        # Deadlines are fractions with these denominators. Multiplied by its square and
        # rounded down, different ones stay different and equal ones equal.
        self._scale = max(piece.rate for pieces in self._pieces for piece in pieces) ** 2
        self._starts = [start for start, _ in shares]
        self._ties = ties
        self.number, self.counts = number, counts
        self._begin()

    def _begin(self) -> None:
        """Begin a stretch with the same weights."""
        at = sum(start <= self.number for start in self._starts) - 1
        self._stop = self._starts[at + 1] if at + 1 < len(self._starts) else math.inf
        self._ready: list[tuple[int, int, int]] = []
        self._waiting: list[tuple[int, tuple[int, int, int]]] = []
        self._plain: list[tuple[int, int, int, int, float]] = []
        for index, pieces in enumerate(self._pieces):
            piece = pieces[at]
            limit = pieces[at + 1].owed // self._whole - 1 if at + 1 < len(pieces) else math.inf
            base = piece.start * piece.rate - piece.owed
            self._plain.append((piece.rate, base, *self._ties[index], limit))
            if piece.rate:
                self._waiting.append(self._entry(index))
        heapify(self._waiting)

    def _entry(self, index: int) -> tuple[int, tuple[int, int, int]]:
        """Return the number of the element at which the next element of a dataset is
        due, and its deadline, tie and dataset.
        """
        count, pieces = self.counts[index], self._pieces[index]
        value, scale = count * self._whole, self._scale
        at = sum(piece.owed <= value for piece in pieces) - 1
        due, late = _NEVER, scale << 80
        for piece, stop in zip(pieces[at:], [*pieces[at + 1 :], None], strict=True):
            if not piece.rate:
                # It is read before the stretch or after it.
                if 2 * (piece.owed - value) >= self._whole:
                    late = piece.start * scale
                    break
                due = _NEVER
                continue
            if due == _NEVER:
                due = piece.start + max(0, value - piece.owed) // piece.rate
            missing = value + self._whole - piece.owed
            if stop is None or stop.owed >= value + self._whole:
                late = piece.start * scale + missing * scale // piece.rate
                break
        first, step = self._ties[index]
        return due, (late, first + count * step & _WORD, index)

    def wants(self, index: int) -> bool:
        """Return True if a dataset has a weight in an element to come."""
        pieces, starts = self._pieces[index], [*self._starts[1:], math.inf]
        return any(
            piece.rate and stop > self.number for piece, stop in zip(pieces, starts, strict=True)
        )

    def take(self) -> int:
        """Return the dataset of the next element, and go on to the element after it."""
        number, waiting, ready = self.number, self._waiting, self._ready
        if number >= self._stop:
            self._begin()
            waiting, ready = self._waiting, self._ready
        while waiting and waiting[0][0] <= number:
            heappush(ready, heappop(waiting)[1])
        if ready:
            index = heappop(ready)[2]
        else:  # those that are due have weight 0 for a while
            entry = min(waiting, key=lambda one: one[1])
            waiting.remove(entry)
            heapify(waiting)
            index = entry[1][2]
        count = self.counts[index] + 1
        self.counts[index] = count
        self.number = number + 1
        rate, base, first, step, limit = self._plain[index]
        if count < limit:
            value, scale = count * self._whole + base, self._scale
            late = (value + self._whole) * scale // rate
            heappush(waiting, (value // rate, (late, first + count * step & _WORD, index)))
        else:
            heappush(waiting, self._entry(index))
        return index


@dataclass(frozen=True, kw_only=True)
class DueChoices(DrawnChoices):
    """Numbers of datasets without end, each of the dataset that is due."""

    weights: Weights = field(compare=False)
    """Weights of the datasets. They are no part of the fingerprint, because a state
    names its own.
    """
    names: tuple[str, ...] = field(default=(), compare=False)
    """Names of the datasets, for errors."""
    reweight: bool = field(default=False, compare=False)
    """True to continue from a state with other weights."""
    operation: ClassVar[str] = "choices"
    cardinality: ClassVar[int] = INFINITE_CARDINALITY
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def state_bytes(self) -> int:
        return 48 + 10 * len(self.weights[0][1]) + 2 * len(weights_text(self.weights))

    state_growth: ClassVar[str] = "the weights, for each `reweight` of the job"


@make_iterator.register(DueChoices)
class DueChoicesIterator(ElementIterator):
    """Follows the schedule of the weights, which begins anew where a dataset has left
    and where a resumed job got other weights.

    Attributes:
        number: number of the next element.
    """

    def __init__(self, node: DueChoices, context: Context) -> None:
        self._publish_in(context)
        self._node, self._context = node, context
        self._text = weights_text(node.weights)
        self._course = Course() if context.depth else context.courses.of(context.path)
        seed = drawing_seed(node.seed, node.rerandomize, context, context.task)
        count = len(node.weights[0][1])
        self._ties = [
            (mixed_seed(seed, index), mixed_seed(seed, index, 1) | 1) for index in range(count)
        ]
        self._left = set(range(count))
        self._schedule: DueSchedule | None = None
        self._begin_at(0)
        self._stop: float = -1
        self._begun = self._waits = False

    def _begin_at(self, number: int) -> None:
        self._base = self._number = number
        self._counts = [0] * len(self._ties)
        self._schedule = None

    @property
    def number(self) -> int:
        """Number of the next element."""
        return self._number if self._schedule is None else self._schedule.number

    def __next__(self) -> int:
        schedule = self._schedule
        if schedule is None or schedule.number >= self._stop:
            schedule = self._scheduled()
        return schedule.take()

    def _scheduled(self) -> DueSchedule:
        """Return the schedule of the next element.

        Raises:
            StopIteration: no dataset is left.
            FailedPreconditionError: a state names other weights.
        """
        number, course = self.number, self._course
        if not self._begun:
            self._begun, self._waits = True, self._has_other_weights()
            course.follow(lambda: [self._context.repetition, self.number])
        if self._waits and not self._is_replaying():
            self._waits = False
            self._note(self._context.repetition, number, self._text)
        sections = course.sections(self._context.repetition)
        if any(self._base < start <= number for start, _ in sections):
            self._begin_at(number)
        self._stop = min((start for start, _ in sections if start > self._base), default=math.inf)
        if self._waits:
            self._stop = -1
        if self._schedule is None:
            text = [text for start, text in sections if start <= self._base][-1]
            weights = usable_weights(parsed_weights(text), self._base, self._left)
            if not weights:
                raise StopIteration
            self._schedule = DueSchedule(weights, self._ties, number, self._counts)
        return self._schedule

    def _is_replaying(self) -> bool:
        """Return True until the task has made what its earlier attempts determine."""
        deciding, turn = self._context.deciding, self._context.repetition
        follows = deciding is not None and deciding.follows
        return follows or self._course.has_ended(turn) or self._context.courses.is_replaying()

    def _has_other_weights(self) -> bool:
        """Compare the weights with those of the elements so far. Return True if the new
        ones begin once the task has made all elements of its earlier attempts again.
        """
        course, context, turn = self._course, self._context, self._context.repetition
        deciding = None if context.depth else context.deciding
        if deciding is not None:
            for rest, number in deciding.notes(self._notes):
                change, begun, text = rest.split(" ")
                course.merge([[int(change), int(begun), number, text.replace("_", " ")]])
        if not course.parts:
            self._note(0, 0, self._text)
            return False
        known = course.newest
        if not self._is_allowed(known):
            raise self._refusal(known)
        if known != self._text:
            if deciding is not None:
                return True
            turn, number = course.reached or (turn, self.number)
            self._note(turn, number, self._text)
        elif deciding is not None and all(part[1] < turn for part in course.parts):
            # A state of an earlier repetition may not name what an attempt begins now.
            self._note(turn, 0, course.sections(turn)[0][1])
        return False

    def _is_allowed(self, known: str) -> bool:
        return known == self._text or (self._node.reweight and not self._context.depth)

    @property
    def _notes(self) -> str:
        return f"/{'.'.join(map(str, self._context.path))} weights "

    def _note(self, turn: int, number: int, text: str) -> None:
        """Record, before an element leaves that follows from them, the weights that
        hold from an element of a repetition on.
        """
        change = self._course.next_number
        self._course.merge([[change, turn, number, text]])
        self._course.reached = None
        if self._context.deciding is not None and not self._context.depth:
            place = f"{self._notes}{change} {turn} {text.replace(' ', '_')}"
            self._context.deciding.note(place, number)

    def _refusal(self, known: str) -> FailedPreconditionError:
        error = FailedPreconditionError(
            f"The state of mix() has the weights {self._named(known)}, and this dataset has "
            f"{self._named(self._text)}. Pass the weights of the state, or reweight=True to begin "
            "the new ones at the element that was reached. Within a function of flat_map() or "
            "interleave(), begin anew"
        )
        error.final = True
        return error

    def _named(self, text: str) -> Any:
        names = self._node.names or range(len(self._ties))
        return named_weights(parsed_weights(text), names)

    # --- asked by the iterator that follows the choices

    def end(self) -> None:
        """Record that the mixture has ended: when it is made again, it ends here."""
        turn = self._context.repetition
        if self._context.deciding is not None and not self._course.has_ended(turn):
            self._note(turn, self.number, ENDED)

    def leave(self, index: int) -> None:
        """Choose another dataset in place of the last choice, and never this
        dataset again.
        """
        self._left.discard(index)
        self._begin_at(self.number - 1)

    def again(self, index: int) -> None:
        """Make the last choice, of this dataset, once more."""
        self._number = self.number - 1
        self._counts[index] -= 1
        self._schedule = None

    def wants(self, index: int) -> bool:
        """Return True if a dataset has a weight in an element to come."""
        assert self._schedule is not None
        return self._schedule.wants(index)

    def state(self) -> Any:
        course, deciding = self._course, self._context.deciding
        gone = [index for index in range(len(self._ties)) if index not in self._left]
        parts = [[*part] for part in course.parts]
        mark = None if deciding is None else deciding.mark()
        return [self.number, self._base, [*self._counts], gone, parts, mark]

    def restore(self, state: Any) -> None:
        number, base, counts, gone, parts, _ = state
        self._begin_at(base)
        self._number, self._counts = number, [*counts]
        self._left.difference_update(gone)
        self._course.merge(parts)
        if parts and not self._is_allowed(known := self._course.newest):
            raise self._refusal(known)
