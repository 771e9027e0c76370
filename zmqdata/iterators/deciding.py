"""Decisions of a task: which elements its operations leave out, recorded as the task
runs, and followed in a replay.

An operation that skips failures decides for each element. A replay of the task must
decide the same, whatever fails this time, because later elements are identified by
their number.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from zmqdata.decisions import Decision
from zmqdata.errors import DataLossError, PipelineError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.nodes.base import Node

DECIDED = "zmqdata.decided"
"""Tag in a state: the next item of the list is the number of the first decision that a
replay from this state may need.
"""
OUTPUT = "output"
"""Place of the decisions of a task about the failures that it hands over."""
PAUSES = (0.1, 0.5, 2.0)
"""Seconds to wait before retrying an element that was produced in an earlier attempt,
and fails now.
"""
_LEVEL = re.compile(r"/([\d.]*)(?: in repetition (\d+))?(?:\[(\d+)\])?")
_MOST_OPEN = 64
"""Most decisions, and elements left out in them, that are resent with new decisions;
above it they are closed.
"""


class _Run:
    """Consecutive numbers that an operation has decided, and that are not yet
    reported.
    """

    def __init__(self, place: str, first: int) -> None:
        self.place = place
        self.first = self.stop = first
        self.left_out: deque[int] = deque()
        self.closed = False


class _Known:
    """Decisions of earlier attempts at a place."""

    def __init__(self) -> None:
        self.left_out: set[int] = set()
        self.firsts: list[int] = []
        self._stops: list[int] = []

    @property
    def stop(self) -> int:
        """First number that has no decision, nor has any number above it."""
        return self._stops[-1] if self._stops else 0

    def add(self, decision: Decision) -> None:
        """Add a decision. Decisions come in order, except those that repeat known
        facts.
        """
        self.left_out.update(decision.left_out)
        if self._stops and decision.first <= self._stops[-1]:
            self._stops[-1] = max(self._stops[-1], decision.stop)
        else:
            self.firsts.append(decision.first)
            self._stops.append(decision.stop)

    def was_kept(self, number: int) -> bool:
        """Return True if an element was delivered."""
        at = bisect_right(self.firsts, number) - 1
        return at >= 0 and number < self._stops[at] and number not in self.left_out


def is_over(place: str, at: str) -> bool:
    """Return True if the pipeline has left a place for good on reaching another: in an
    earlier repetition, or for an earlier outer element.

    >>> is_over("/0[7]/1", "/0[8]/1"), is_over("/0[7]/1", "/0[7]/1")
    (True, False)
    >>> is_over("/0[7]/1", "/1[8]/1"), is_over("/0", "/0 in repetition 2")
    (False, True)
    >>> is_over("/0[3]/ in repetition 2", "/0[3]/ in repetition 1")
    False
    """
    for (path, *turns), (other, *now) in zip(_levels(place), _levels(at), strict=False):
        if path != other:
            return False
        if turns != now:
            return turns < now
    return False


def _levels(place: str) -> list[tuple[str, int, int]]:
    """Split a place into its nested datasets: for each, the place of the node, its
    repetition, and the number of the element being read.
    """
    return [
        (path, int(turn or 0), int(inside or -1)) for path, turn, inside in _LEVEL.findall(place)
    ]


def loss(text: str) -> DataLossError:
    """Return the error for an element that was produced before and cannot be produced
    now. It ends the task.
    """
    error = DataLossError(text)
    error.final = True
    error.is_decided = True  # type: ignore[attr-defined]  # operations in between recognize it
    return error


def is_loss(error: BaseException) -> bool:
    """Return True if an error was made by ``loss``.

    >>> is_loss(loss("element 3 fails now"))
    True
    >>> is_loss(DataLossError("a record is damaged"))
    False
    """
    return getattr(error, "is_decided", False) is True


class Deciding:
    """Decisions of the operations in an attempt of a task.

    Any thread may decide. ``news`` and ``seal`` must not be called concurrently.

    Args:
        first: number of the first decision in ``past``; earlier decisions are not
            needed.
        past: decisions of earlier attempts.
        pause: waits for a number of seconds, unless the attempt was cancelled.

    Attributes:
        learns: True if the pipeline will be recreated within this attempt, and then
            follows the decisions of this attempt as well.
    """

    def __init__(
        self, first: int, past: Sequence[Decision], pause: Callable[[float], None]
    ) -> None:
        self.pause = pause
        self._sealed = first + len(past)
        self._open: list[Decision] = []
        # index among the open decisions of the last decision of each place
        self._newest: dict[str, int] = {}
        self._runs: list[_Run] = []
        self._known: dict[str, _Known] = {}
        # By place, the numbers of the past decisions that it has not passed yet.
        self._ahead: dict[str, list[int]] = {}
        self.learns = True
        for number, decision in enumerate(past, first):
            self._learn(decision)
            self._ahead.setdefault(decision.place, []).append(number)

    def known(self, place: str) -> _Known | None:
        """Return the earlier decisions at a place; None if the place has none."""
        return self._known.get(place)

    def begin(self, place: str, number: int) -> _Run:
        """Begin to record the decisions at a place, from ``number`` on."""
        run = _Run(place, number)
        self._runs.append(run)
        return run

    def note(self, place: str, number: int) -> None:
        """Record a single number at a place that has no elements to leave out."""
        run = self.begin(place, number)
        run.stop, run.closed = number + 1, True

    def notes(self, prefix: str) -> list[tuple[str, int]]:
        """Return the numbers that earlier attempts recorded at places with a prefix,
        each with the rest of its place. States name them from now on.
        """
        found = [place for place in self._known if place.startswith(prefix)]
        for place in found:
            self.come_through(place)
        return [
            (place.removeprefix(prefix), number)
            for place in found
            for number in self._known[place].firsts
        ]

    @property
    def follows(self) -> bool:
        """True while operations have not passed all decisions of earlier attempts."""
        return bool(self._ahead)

    def mark(self) -> list[Any]:
        """Return the mark that a state uses to find the decisions that it needs."""
        return [
            DECIDED,
            min([self._sealed, *[numbers[0] for numbers in list(self._ahead.values())]]),
        ]

    def leap(self, first: int) -> None:
        """Resume the pipeline from a state that needs the decisions from number
        ``first`` on.
        """
        behind = {
            place: [one for one in numbers if one >= first]
            for place, numbers in self._ahead.items()
        }
        self._ahead = {place: numbers for place, numbers in behind.items() if numbers}

    def come_to(self, place: str) -> None:
        """Note that the pipeline begins at a place."""
        for other in list(self._ahead):
            if is_over(other, place):
                self._ahead.pop(other, None)

    def come_through(self, place: str) -> None:
        """Note that a place has passed all of its earlier decisions."""
        self._ahead.pop(place, None)

    def news(self) -> tuple[int, tuple[Decision, ...]] | None:
        """Return the number of the first new or changed decision, and all decisions
        from it on; None without changes.

        Report them before any element leaves that was produced since.
        """
        changed = False
        runs, living = list(self._runs), []
        for run in runs:
            closed, stop = run.closed, run.stop  # read in this order: a closed run does not grow
            if stop > run.first:
                left_out = []
                while run.left_out and run.left_out[0] < stop:
                    left_out.append(run.left_out.popleft())
                self._add(Decision(run.place, run.first, stop, tuple(left_out)))
                run.first = stop
                changed = True
            if not closed:
                living.append(run)
        # Another thread may have appended runs behind those inspected.
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
        """Close all decisions so far: a state taken from now on needs none of them."""
        self._sealed += len(self._open)
        self._open, self._newest = [], {}

    def _learn(self, decision: Decision) -> None:
        self._known.setdefault(decision.place, _Known()).add(decision)


class Decider:
    """Makes and records the decisions of an operation.

    Args:
        label: name of the operation in errors.
        place: place of the operation, as ``Context.place`` returns it.
        deciding: decisions of the attempt.
    """

    def __init__(self, label: str, place: str, deciding: Deciding) -> None:
        self._label, self.place, self._deciding = label, place, deciding
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
        """Return True if an element was left out before, and so must be now."""
        return number < self._known_stop and number in self._known.left_out

    def first_left_out(self, first: int, stop: int) -> int | None:
        """Return the first number from ``first`` to ``stop`` (exclusive) that was left
        out before, or None.
        """
        if first >= self._known_stop:
            return None
        numbers, known = range(first, stop), self._known.left_out
        if len(numbers) > len(known):
            return min(filter(numbers.__contains__, known), default=None)
        return next(filter(known.__contains__, numbers), None)

    def is_decided(self, number: int) -> bool:
        """Return True if this number, or a later one, was decided before."""
        return number < self._known_stop

    def was_kept(self, number: int) -> bool:
        """Return True if an element was delivered before, and so must be now."""
        return number < self._known_stop and self._known.was_kept(number)

    def keep(self, number: int) -> None:
        """Record that element ``number`` is delivered. Numbers are decided in order."""
        if number >= self._known_stop:
            run = self._run or self._begin(number)
            run.stop = number + 1
        elif number + 1 == self._known_stop:
            self._deciding.come_through(self.place)

    def leave_out(self, number: int) -> None:
        """Record that element ``number`` is left out."""
        if number >= self._known_stop:
            run = self._run or self._begin(number)
            run.left_out.append(number)
            run.stop = number + 1
        elif number + 1 == self._known_stop:
            self._deciding.come_through(self.place)

    def leave_out_by_itself(self, number: int) -> None:
        """Record that element ``number`` is left out, where elements come in any order
        and the other numbers remain undecided.
        """
        if not self.is_left_out(number):
            run = self._deciding.begin(self.place, number)
            run.left_out.append(number)
            run.stop, run.closed = number + 1, True

    def follow(self, number: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a function for element ``number``, or raise its error,
        as decided before or now.

        Raises:
            PipelineError: the element failed before.
            DataLossError: the element did not fail before.
        """
        if self.is_left_out(number):
            raise PipelineError("it failed in an earlier attempt of this task")
        for pause in (*PAUSES, None):
            try:
                made = function(*arguments)
            except FAILURES as error:
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
        self._deciding.come_through(self.place)
        self._run = self._deciding.begin(self.place, number)
        return self._run

    def loss(self, number: int, error: BaseException | None) -> DataLossError:
        """Return the error for an element that was produced before and cannot be
        produced now. It ends the task.
        """
        return loss(
            f"Element {number} that came to {self._label} was produced in an earlier attempt and "
            f"fails now: {str(error) or 'the input has ended'}. Later elements were numbered after "
            "it, so it cannot be left out now. Begin anew once it can be produced, or restore an "
            "older state"
        )


class Failures:
    """Failures that an attempt hands over in place of elements.

    A client has received a failure as an element, and may have gone on. A file that
    could be read only the other time would shift the numbers of all later elements.
    Therefore these numbers are decisions of the task, and a replay that differs ends
    the task. The last operations that make an element of each element move no other
    element when they fail, and these failures are not recorded.

    Args:
        node: the pipeline.
        deciding: decisions of the attempt.
        repeated: numbers of the elements that clients may have received. Behind them,
            an attempt need not follow an earlier attempt.

    Attributes:
        due: number of the next failure of an earlier attempt.
    """

    def __init__(self, node: Node, deciding: Deciding, repeated: range) -> None:
        self._decider = Decider(node.label, OUTPUT, deciding)
        self._stop = repeated.stop
        self._harmless = set()
        while node.inputs and node.is_one_to_one:
            self._harmless.add(node.label)
            node = node.inputs[0]
        self.due = self._next(repeated.start)

    def _next(self, number: int) -> int:
        found = self._decider.first_left_out(number, self._stop)
        return sys.maxsize if found is None else found

    def failed(self, number: int, error: BaseException) -> None:
        """Record that element ``number`` failed.

        Raises:
            DataLossError: it did not fail in an earlier attempt.
        """
        known = self.due == number
        if getattr(error, "node", "") not in self._harmless:
            if number < self._stop and not known:
                raise self._decider.loss(number, error) from error
            self._decider.leave_out(number)
        if known:
            self.due = self._next(number + 1)

    def made(self, number: int) -> None:
        """Check that element ``number`` did not fail in an earlier attempt.

        Raises:
            DataLossError: it failed.
        """
        if number == self.due:
            raise loss(
                f"Element {number} of this task failed in an earlier attempt and succeeds now. "
                "Later elements were numbered after the failure. Begin anew, or restore an older "
                "state"
            )
