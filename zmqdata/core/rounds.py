"""Arithmetic of coordinated reads: which step is which round of which task, and how far
consumers may read.

A step is a round, made by a single task; every consumer takes it at the same place of
its own stream. Views say which tasks take turns from which step on. The last rounds are
made of what fills no round of any task alone.
``core.dispatcher.readers.coordinated`` decides which client may read what, and when a
view begins.

Decisions 0011 and 0045; protocol 9.4 to 9.7 and 9.11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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


def first_empty_steps(view: View, full: Mapping[int, int]) -> int:
    """Return the first step at which every task of a view has had an empty step.

    Args:
        view: the view.
        full: the full rounds of its tasks.

    Example:
        >>> first_empty_steps(View(10, ((7, 3), (8, 5))), {7: 5, 8: 5})
        14
    """
    return max(
        view.first_step + max(0, full[task] - first_round) * len(view.tasks) + at
        for at, (task, first_round) in enumerate(view.tasks)
    )


@dataclass(frozen=True)
class LastRounds:
    """The last rounds of an iteration, made of the rests of its tasks.

    The rest of a task is the elements after its last full round. The rests of all tasks
    in a row, in the order of their numbers, are dealt to the consumers one by one.
    Elements at the end that fill no round are dropped. A consumer gets at most one
    element of a rest, since a rest is shorter than a round.
    """

    first_step: int
    """Step of the first of these rounds."""
    rests: tuple[tuple[int, int, int], ...]
    """For each task with a rest its number, its number of full rounds, and the number
    of elements of its rest.
    """
    num_consumers: int
    """Number of consumers."""

    @property
    def count(self) -> int:
        """Number of rounds."""
        return sum(count for _, _, count in self.rests) // self.num_consumers

    @property
    def stop(self) -> int:
        """The step behind the last."""
        return self.first_step + self.count

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """For each task with a rest the place of its first element in the row of all
        rests, and the number of its elements that are not dropped.

        Example:
            >>> LastRounds(9, ((1, 4, 2), (2, 5, 2), (3, 4, 1)), 3).places
            {1: (0, 2), 2: (2, 1), 3: (4, 0)}
        """
        found, before, kept = {}, 0, self.count * self.num_consumers
        for task, _, count in self.rests:
            found[task] = before, max(0, min(count, kept - before))
            before += count
        return found

    def view(self, consumer: int) -> View:
        """Return the tasks that a consumer reads in these rounds, one in each step.

        Example:
            >>> last = LastRounds(9, ((1, 4, 2), (2, 5, 2), (3, 4, 2)), 3)
            >>> [last.view(consumer).tasks for consumer in range(3)]
            [((1, 4), (2, 5)), ((1, 4), (3, 4)), ((2, 5), (3, 4))]
        """
        mine = [
            (task, full)
            for task, full, _ in self.rests
            if self._step_of(task, consumer) is not None
        ]
        return View(self.first_step, tuple(mine))

    def _step_of(self, task: int, consumer: int) -> int | None:
        """Return the step at which a consumer gets an element of the rest of a task;
        None if it gets none.
        """
        before, kept = self.places.get(task, (0, 0))
        behind = (consumer - before) % self.num_consumers
        return self.first_step + (before + behind) // self.num_consumers if behind < kept else None

    def has_passed(self, task: int, consumer: int, step: int) -> bool:
        """Return True if a consumer that has passed all steps before this one needs
        nothing of the rest of a task.
        """
        due = self._step_of(task, consumer)
        return step >= self.first_step if due is None else step > due


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

    def last(
        self,
        full: Mapping[int, int],
        rests: Mapping[int, int],
        live: Iterable[int],
        *,
        is_fixed: bool,
    ) -> LastRounds | None:
        """Return the last rounds; None until they are certain: every task has ended,
        and its full rounds lie before the horizon, which does not move any more.

        Consumers may already have passed the empty steps before the horizon, so these
        rounds begin there. With a fixed number of tasks the horizon is far away, and
        every consumer has waited for the end of the task that ended last: at the step
        after its last full round, if not before.

        Args:
            full: the full rounds of tasks that have ended.
            rests: the number of elements after them.
            live: all live tasks.
            is_fixed: True if the number of tasks is fixed.
        """
        live = list(live)
        end = self.end(full, live)
        if end is None or end > self.horizon or not full.keys() >= set(live):
            return None
        places = tuple((task, full[task], rests[task]) for task in sorted(live) if rests.get(task))
        first = first_empty_steps(self.views[-1], full) if is_fixed else self.horizon
        return LastRounds(first, places, len(self.steps))

    def passed(self, task: int, full: int | None) -> tuple[int, ...]:
        """Return how many rounds of a task each consumer has passed, at most ``full``
        if that is known.
        """
        counts = (rounds_before(self.views, task, step) for step in self.steps)
        return tuple(count if full is None else min(count, full) for count in counts)
