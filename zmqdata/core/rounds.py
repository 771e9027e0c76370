"""Arithmetic of coordinated reads: which step is which round of which task, and how far
consumers may read.

A step is a round, made by a single task; every consumer takes it at the same place of
its own stream. Views say which tasks take turns from which step on.
``core.dispatcher.coordinated`` decides which client may read what, and when a view
begins.

Decision 0011; protocol 9.4 to 9.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from zmqdata.messages import View

FEWEST_STEPS = 4
MOST_STEPS = 1 << 20
STEADY_SECONDS = 30.0


@dataclass(frozen=True)
class Run:
    """Consecutive steps that are consecutive rounds of the same task."""

    task: int
    """Number of the task."""
    round: int
    """The first round."""
    count: int
    """The number of steps."""


def run_at(views: Sequence[View], step: int, horizon: int) -> Run | None:
    """Return the task and the round of a step, and the number of steps from there that
    are consecutive rounds of the same task.

    The result is None at or beyond the horizon.

    Example:
        >>> views = (View(0, ((7, 0), (8, 0))), View(10, ((8, 5),)))
        >>> run_at(views, 3, 20), run_at(views, 12, 20), run_at(views, 20, 20)
        (Run(task=8, round=1, count=1), Run(task=8, round=7, count=8), None)
    """
    if step >= horizon:
        return None
    stop = horizon
    for view in reversed(views):
        if view.first_step <= step:
            turn, at = divmod(step - view.first_step, len(view.tasks))
            task, first_round = view.tasks[at]
            return Run(task, first_round + turn, stop - step if len(view.tasks) == 1 else 1)
        stop = view.first_step
    return None


def turns_at(views: Sequence[View], step: int, horizon: int) -> tuple[int, int]:
    """Return the number of tasks that take turns at a step, and the step at which the
    next view begins, or the horizon.

    Example:
        >>> views = (View(0, ((7, 0), (8, 0))), View(10, ((8, 5),)))
        >>> turns_at(views, 3, 20), turns_at(views, 12, 20)
        ((2, 10), (1, 20))
    """
    stop = horizon
    for view in reversed(views):
        if view.first_step <= step:
            return len(view.tasks), stop
        stop = min(stop, view.first_step)
    return 1, stop


def rounds_before(views: Sequence[View], task: int, step: int) -> int:
    """Return the number of rounds of a task that lie before a step.

    Example:
        >>> views = (View(0, ((7, 0), (8, 0))), View(10, ((8, 5), (9, 0))))
        >>> [rounds_before(views, 8, step) for step in (0, 1, 2, 10, 11, 13)]
        [0, 0, 1, 5, 6, 7]
    """
    stop = step
    for view in reversed(views):
        if view.first_step > step:
            continue
        for at, (number, first_round) in enumerate(view.tasks):
            if number == task:
                return first_round + max(0, -(-(stop - view.first_step - at) // len(view.tasks)))
        stop = view.first_step
    return 0


def last_step(view: View, totals: Mapping[int, int]) -> int | None:
    """Return the step from which on the tasks of a view have no rounds left; None if a
    task's total is unknown.

    Example:
        >>> view = View(10, ((7, 3), (8, 5)))
        >>> last_step(view, {7: 5, 8: 5}), last_step(view, {7: 5})
        (13, None)
    """
    end = view.first_step
    for at, (task, first_round) in enumerate(view.tasks):
        if task not in totals:
            return None
        left = totals[task] - first_round
        if left > 0:
            end = max(end, view.first_step + (left - 1) * len(view.tasks) + at + 1)
    return end


def steps_ahead(previous: int, seconds: float, tasks: int) -> int:
    """Return the number of steps by which the horizon moves now.

    The number is small at first, so that consumers soon read from a worker that joins.
    It grows up to what takes half a minute: for that time the consumers can do without
    a dispatcher.

    Args:
        previous: the number of steps of the last move, 0 if it is the first.
        seconds: seconds since the last move.
        tasks: the number of tasks that take turns.
    """
    if previous == 0:
        return max(FEWEST_STEPS, 2 * tasks)
    if seconds < STEADY_SECONDS / 2:
        return min(MOST_STEPS, previous * 2)
    return max(FEWEST_STEPS, tasks, previous // 2) if seconds > STEADY_SECONDS else previous


class Rounds:
    """The progress of the consumers of an iteration, and the horizon up to which they
    may read. Only updates change it.

    Args:
        num_consumers: the number of consumers.

    Attributes:
        steps: the step that each consumer has reported last.
        seats: for each consumer, the client that reads as it or did so last; "" if none
            did.
        views: the views that some consumer has not passed yet.
        horizon: the step before which consumers may read.
        known: all tasks that were ever in a view.
    """

    def __init__(self, num_consumers: int) -> None:
        self.steps = [0] * num_consumers
        self.seats = [""] * num_consumers
        self.views: list[View] = []
        self.horizon = 0
        self.known: set[int] = set()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rounds) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def restore(
        self, steps: Iterable[int], views: Iterable[View], horizon: int, known: Iterable[int]
    ) -> None:
        """Set the steps, views, horizon and known tasks."""
        self.steps, self.views, self.horizon, self.known = (
            list(steps),
            list(views),
            horizon,
            set(known),
        )

    def begin(self, tasks: tuple[tuple[int, int], ...]) -> None:
        """Begin a view at the horizon."""
        self.views.append(View(self.horizon, tasks))
        self.known.update(task for task, _ in tasks)

    def extend(self, horizon: int) -> None:
        """Move the horizon forward."""
        self.horizon = max(self.horizon, horizon)

    def advance(self, consumer: int, step: int) -> dict[int, int]:
        """Record that a consumer has passed all steps below this one. Return, per task,
        the rounds that all consumers have passed.
        """
        self.steps[consumer] = max(self.steps[consumer], step)
        lowest = min(self.steps)
        passed = {
            task: rounds_before(self.views, task, lowest)
            for view in self.views
            for task, _ in view.tasks
        }
        while len(self.views) > 1 and self.views[1].first_step <= lowest:
            del self.views[0]
        return passed

    def next_tasks(
        self, totals: Mapping[int, int], live: Iterable[int]
    ) -> tuple[tuple[int, int], ...]:
        """Return the tasks of a view that begins at the horizon: listed tasks with
        rounds left, followed by new ones.

        Args:
            totals: the rounds of tasks that have ended.
            live: all live tasks.
        """
        listed = [task for task, _ in self.views[-1].tasks] if self.views else []
        places = [(task, rounds_before(self.views, task, self.horizon)) for task in listed]
        places += [(task, 0) for task in live if task not in self.known]
        return tuple((task, at) for task, at in places if at < totals.get(task, at + 1))

    def has(self, tasks: tuple[tuple[int, int], ...]) -> bool:
        """Return True if the last view already has exactly these tasks."""
        return bool(self.views) and [task for task, _ in self.views[-1].tasks] == [
            task for task, _ in tasks
        ]

    def end(self, totals: Mapping[int, int], live: Iterable[int]) -> int | None:
        """Return the step before which all rounds of these tasks lie; None if further
        rounds are possible.
        """
        fresh = any(totals.get(task, 1) for task in live if task not in self.known)
        return last_step(self.views[-1], totals) if self.views and not fresh else None

    def passed(self, task: int, total: int | None) -> tuple[int, ...]:
        """Return how many rounds of a task each consumer has passed, at most ``total``
        if that is known.
        """
        counts = (rounds_before(self.views, task, step) for step in self.steps)
        return tuple(count if total is None else min(count, total) for count in counts)
