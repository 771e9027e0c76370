"""Which elements an operation leaves out, written down as it goes, and followed when
the task is made again.

An operation that passes over what fails decides for each element. Whoever makes the
same task again has to decide the same, whatever fails this time: what lies behind an
element is known by its number.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from zmqdata.decisions import Decision
from zmqdata.errors import DataLossError, PipelineError

DECIDED = "zmqdata.decided"
"""By this a state tells that what follows it in a list is the number of the first
decision that may lie behind it.
"""
PAUSES = (0.1, 0.5, 2.0)
"""Seconds before an element is called for again that could be made before, and fails
now.
"""
_LEVEL = re.compile(r"/([\d.]*)(?: in repetition (\d+))?(?:\[(\d+)\])?")
_MOST_OPEN = 64
"""Decisions, and elements left out in them, that are told again with whatever is new;
then they are closed.
"""


class _Run:
    """Numbers that one operation has decided, one after the other, and nobody has been
    told of.
    """

    def __init__(self, place: str, first: int) -> None:
        self.place = place
        self.first = self.stop = first
        self.left_out: deque[int] = deque()
        self.closed = False


class _Known:
    """What was decided before at one place."""

    def __init__(self) -> None:
        self.left_out: set[int] = set()
        self._firsts: list[int] = []
        self._stops: list[int] = []

    @property
    def stop(self) -> int:
        """Nothing is known of this number and those above it."""
        return self._stops[-1] if self._stops else 0

    def add(self, decision: Decision) -> None:
        """Takes one more; they come in order, but for those that say again what is
        known.
        """
        self.left_out.update(decision.left_out)
        if self._stops and decision.first <= self._stops[-1]:
            self._stops[-1] = max(self._stops[-1], decision.stop)
        else:
            self._firsts.append(decision.first)
            self._stops.append(decision.stop)

    def was_kept(self, number: int) -> bool:
        """Whether an element was there."""
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number < self._stops[at] and number not in self.left_out


def is_over(place: str, at: str) -> bool:
    """Whether a place was left for good by the time that another was come to: an
    earlier repetition, or outer element.

    >>> is_over("/0[7]/1", "/0[8]/1"), is_over("/0[7]/1", "/0[7]/1"), is_over("/0[7]/1", "/1[8]/1")
    (True, False, False)
    >>> is_over("/0", "/0 in repetition 2"), is_over("/0[3]/ in repetition 2", "/0[3]/ in repetition 1")
    (True, False)
    """
    for (path, *turns), (other, *now) in zip(_levels(place), _levels(at), strict=False):
        if path != other:
            return False
        if turns != now:
            return turns < now
    return False


def _levels(place: str) -> list[tuple[str, int, int]]:
    """Of each dataset in the other: the place of the node, its repetition, and its
    element that is gone into.
    """
    return [
        (path, int(turn or 0), int(inside or -1)) for path, turn, inside in _LEVEL.findall(place)
    ]


def loss(text: str) -> DataLossError:
    """What is raised where an element that was there before can not be made now. It
    ends the task.
    """
    error = DataLossError(text)
    error.final = True
    error.is_decided = True  # type: ignore[attr-defined]  # by which operations in between know it
    return error


def is_loss(error: BaseException) -> bool:
    """Whether this is such an error.

    >>> is_loss(loss("element 3 fails now")), is_loss(DataLossError("a record is damaged"))
    (True, False)
    """
    return getattr(error, "is_decided", False) is True


class Deciding:
    """What the operations of one attempt of a task decide.

    Any thread may decide. ``news``, ``seal`` and ``learn`` are called by one at a time.

    Args:
        first: the number of the first decision in ``past``; nobody needs those before.
        past: what earlier attempts have decided.
        pause: waits for so many seconds, unless the attempt is not wanted any more.

    Attributes:
        learns: whether the pipeline will be made anew within this attempt, and has to
            follow what it decides itself.
    """

    def __init__(
        self, first: int, past: Sequence[Decision], pause: Callable[[float], None]
    ) -> None:
        self.pause = pause
        self._sealed = first + len(past)
        self._open: list[Decision] = []
        self._newest: dict[str, int] = {}  # by place, where its last one is among the open ones
        self._runs: list[_Run] = []
        self._known: dict[str, _Known] = {}
        self._ahead: dict[
            str, list[int]
        ] = {}  # by place, the numbers of past decisions that it has not come through
        self.learns = True
        for number, decision in enumerate(past, first):
            self._learn(decision)
            self._ahead.setdefault(decision.place, []).append(number)

    def known(self, place: str) -> _Known | None:
        """What was decided at a place before; None where nothing was."""
        return self._known.get(place)

    def begin(self, place: str, number: int) -> _Run:
        """Begins to write down what is decided at a place, from this number on."""
        run = _Run(place, number)
        self._runs.append(run)
        return run

    def mark(self) -> list[Any]:
        """What a state says by which the decisions behind it are found."""
        return [
            DECIDED,
            min([self._sealed, *[numbers[0] for numbers in list(self._ahead.values())]]),
        ]

    def leap(self, first: int) -> None:
        """The pipeline goes on from a state that needs the decisions from this number
        on.
        """
        behind = {
            place: [one for one in numbers if one >= first]
            for place, numbers in self._ahead.items()
        }
        self._ahead = {place: numbers for place, numbers in behind.items() if numbers}

    def come_to(self, place: str) -> None:
        """The pipeline begins at a place."""
        for other in list(self._ahead):
            if is_over(other, place):
                self._ahead.pop(other, None)

    def come_through(self, place: str) -> None:
        """All that was decided at a place before was decided again."""
        self._ahead.pop(place, None)

    def news(self) -> tuple[int, tuple[Decision, ...]] | None:
        """The number of the first decision that has grown or is new, and those from it
        on; None when there is none.

        To be told before anything leaves that was made since.
        """
        changed = False
        runs, living = list(self._runs), []
        for run in runs:
            closed, stop = run.closed, run.stop  # in this order: it does not grow once it is closed
            if stop > run.first:
                left_out = []
                while run.left_out and run.left_out[0] < stop:
                    left_out.append(run.left_out.popleft())
                self._add(Decision(run.place, run.first, stop, tuple(left_out)))
                run.first = stop
                changed = True
            if not closed:
                living.append(run)
        # Others may have begun meanwhile, behind those that were looked at.
        self._runs[: len(runs)] = living
        if not changed:
            return None
        told = self._sealed, tuple(self._open)
        if sum(1 + len(one.left_out) for one in self._open) >= _MOST_OPEN:
            self.seal()
        return told

    def _add(self, new: Decision) -> None:
        if self.learns:
            self._learn(new)
        at = self._newest.get(new.place)
        if at is not None and self._open[at].stop == new.first:
            one = self._open[at]
            self._open[at] = Decision(one.place, one.first, new.stop, one.left_out + new.left_out)
            return
        self._newest[new.place] = len(self._open)
        self._open.append(new)

    def seal(self) -> None:
        """No decision so far grows any more: a state that is taken now needs none of
        them.
        """
        self._sealed += len(self._open)
        self._open, self._newest = [], {}

    def _learn(self, decision: Decision) -> None:
        self._known.setdefault(decision.place, _Known()).add(decision)


class Decider:
    """Decides for one operation, and writes it down.

    Args:
        label: what errors call the operation.
        place: its own, as ``Context.place`` has it.
        deciding: of the attempt.
    """

    def __init__(self, label: str, place: str, deciding: Deciding) -> None:
        self._label, self._place, self._deciding = label, place, deciding
        known = deciding.known(place)
        self._known = known or _Known()
        self._known_stop = self._known.stop
        self._run: _Run | None = None
        self.pause = deciding.pause
        deciding.come_to(place)

    def __del__(self) -> None:
        if self._run is not None:
            self._run.closed = True

    def is_left_out(self, number: int) -> bool:
        """Whether an element was left out before, and so must be."""
        return number < self._known_stop and number in self._known.left_out

    def first_left_out(self, first: int, stop: int) -> int | None:
        """The first of these numbers that was left out before."""
        if first >= self._known_stop:
            return None
        return next(
            (number for number in range(first, stop) if number in self._known.left_out), None
        )

    def was_kept(self, number: int) -> bool:
        """Whether an element was there before, and so must come."""
        return number < self._known_stop and self._known.was_kept(number)

    def keep(self, number: int) -> None:
        """Element ``number`` comes. Numbers are decided one after the other."""
        if number >= self._known_stop:
            run = self._run or self._begin(number)
            run.stop = number + 1
        elif number + 1 == self._known_stop:
            self._deciding.come_through(self._place)

    def leave_out(self, number: int) -> None:
        """Element ``number`` does not come."""
        if number >= self._known_stop:
            run = self._run or self._begin(number)
            run.left_out.append(number)
            run.stop = number + 1
        elif number + 1 == self._known_stop:
            self._deciding.come_through(self._place)

    def leave_out_by_itself(self, number: int) -> None:
        """The same where elements come in any order, of which nothing is known but that
        this one did not come.
        """
        if not self.is_left_out(number):
            run = self._deciding.begin(self._place, number)
            run.left_out.append(number)
            run.stop, run.closed = number + 1, True

    def follow(self, number: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function makes of element ``number``, or raises: as it was decided
        before, or is decided now.

        Raises:
            PipelineError: it has failed before.
            DataLossError: it did not fail before.
        """
        if self.is_left_out(number):
            raise PipelineError("it failed when this task was made before")
        for pause in (*PAUSES, None):
            try:
                made = function(*arguments)
            except Exception as error:
                if not self.was_kept(number):
                    self.leave_out(number)
                    raise
                if pause is None:
                    raise self.loss(number, error) from error
                self.pause(pause)
            else:
                self.keep(number)
                return made
        raise AssertionError("unreachable")

    def _begin(self, number: int) -> _Run:
        self._deciding.come_through(self._place)
        self._run = self._deciding.begin(self._place, number)
        return self._run

    def loss(self, number: int, error: BaseException | None) -> DataLossError:
        """What to raise for an element that was there before and can not be made now.
        It ends the task.
        """
        return loss(
            f"element {number} that came to {self._label} could be made the first time and fails "
            "now: "
            f"{str(error) or 'nothing more comes'}. What comes behind it has been numbered with "
            "it, so it can not be "
            "left out now. Begin anew once it can be made, or from an older state"
        )
