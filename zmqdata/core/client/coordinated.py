"""Reads of a numbered consumer: blocks arrive in any order, and elements are delivered
step by step.

Each step is a round of a task. The plan of the dispatcher says of which task, and up to
which horizon the consumer may read. Blocks that are not due yet wait here. Making the
plan belongs to the dispatcher.

Decisions 0011, 0018 and 0045; protocol 9.3 to 9.8 and 9.12.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.order import Runs
from zmqdata.core.client.tasks import Grants, Reading, ReadTask
from zmqdata.core.credit import IN_TURN_BYTES, IN_TURN_ELEMENTS
from zmqdata.core.ranges import RangeSet
from zmqdata.core.rounds import LastRounds, Run, rounds_before, run_at, turns_at

Held = tuple[m.Block, object]


@dataclass
class Stretch:
    """Consecutive steps whose elements were delivered together.

    The first elements are at the steps ``steps``. Each further ``cycle`` of steps
    yields as many elements again.
    """

    steps: tuple[int, ...]
    """Steps of the first cycle that yield an element, in order."""
    stop: int
    """Number after the last step."""
    count: int
    """Number of elements."""
    cycle: int = 1
    """Number of steps after which the same tasks take turns again."""
    taken: int = 0
    """Number of elements that the training loop has taken."""

    @property
    def reached(self) -> int:
        """The step below which the training loop has taken every element."""
        if self.taken == self.count:
            return self.stop
        turns, place = divmod(self.taken, len(self.steps))
        return self.steps[place] + turns * self.cycle


ALONE = m.Reader(consumer_index=0)
FEWEST_CYCLES = 2
"""Fewest whole cycles that are delivered at once. Fewer would not pay for the
search.
"""


class Stepping(Reading):
    """All tasks that a consumer reads, in the order of its steps.

    Args:
        max_outstanding: most elements in flight per stream. None leaves the limit to
            the window of the stream.
        do: receives the resulting commands.
        reader: the role in which the client reads.
        num_consumers: number of consumers.

    Attributes:
        step: the next step to deliver.
    """

    _first_elements, _most_bytes = IN_TURN_ELEMENTS, IN_TURN_BYTES
    _gives_back = False

    @property
    def _stream_limit(self) -> int | None:
        return self._limit

    def __init__(
        self,
        max_outstanding: int | None,
        do: Callable[[e.ClientCommand], None],
        reader: m.Reader = ALONE,
        num_consumers: int = 1,
    ) -> None:
        self._limit = max_outstanding
        self._consumer, self._num_consumers = reader.consumer_index or 0, num_consumers
        super().__init__(None, do)
        self.step = 0
        self._first_step = 0
        self._plan = m.Plan((), 0, {})
        self._last: LastRounds | None = None
        self._last_views: tuple[m.View, ...] = ()
        self._ask_at = 0
        self._held: dict[int, deque[Held]] = {}
        self._held_rests: dict[int, deque[Held]] = {}
        self._delivered: deque[Stretch] = deque()
        # Kept since the oldest place to which an operation may go back.
        self._taken: deque[Stretch] = deque()
        self._taken_from = 0  # the place at which ``_taken`` begins
        self._oldest_step = 0
        self._seen: set[int] = set()

    def retell(self) -> None:
        """Do nothing: each report says all steps that were taken."""

    def begin(self, step: int) -> None:
        self.step = self._first_step = self._oldest_step = step

    def list(self, task_list: m.TaskList) -> None:
        plan = task_list.plan
        if plan is not None:
            if plan.horizon > self._plan.horizon:
                # The next horizon is requested halfway through the new steps, so that
                # it arrives before the consumer needs it.
                self._ask_at = (max(self._plan.horizon, self._first_step) + plan.horizon) // 2
            has_begun, self._plan = bool(self.views), plan
            self.views = self._kept_views(plan)
            self._plan_last(plan)
            for task in () if has_begun else self.tasks.values():
                # Requested, perhaps, before the first step was known.
                task.first = self._first_lacking(task)
            self._seen.update(task for view in plan.views for task, _ in view.tasks)
        super().list(task_list)
        self._deliver_due()

    def _kept_views(self, plan: m.Plan) -> tuple[m.View, ...]:
        """Return the views of a plan, and those before them that hold since the oldest
        place to which an operation may go back.
        """
        first = plan.views[0].first_step if plan.views else 0
        before = [view for view in self.views if view.first_step < first]
        while len(before) > 1 and before[1].first_step <= self._oldest_step:
            del before[0]
        is_needed = self._oldest_step < first
        return (*(before if is_needed else ()), *plan.views)

    def _plan_last(self, plan: m.Plan) -> None:
        """Find out which tasks this consumer reads in the last rounds."""
        if plan.last is None or self._last is not None:
            return
        rests = tuple([(task, plan.full[task], plan.rests[task]) for task in sorted(plan.rests)])
        self._last = LastRounds(plan.last, rests, self._num_consumers)
        self._last_views = (self._last.view(self._consumer),)

    def _first_lacking(self, task: ReadTask) -> int:
        if task.received:
            return task.received.ranges[-1][1]
        return self._rounds_before(task.place.task, self.step)

    def _rounds_before(self, task: int, step: int) -> int:
        """Return the number of rounds of a task that lie before a step. The rest of the
        task counts as a round as soon as this consumer needs nothing of it.
        """
        count = self._full_before(task, step)
        if self._last is not None and task in self._plan.rests:
            count += self._last.has_passed(task, self._consumer, step)
        return count

    def _full_before(self, task: int, step: int) -> int:
        """Return the number of full rounds of a task that lie before a step."""
        count = rounds_before(self.views, task, step)
        return min(count, self._plan.full[task]) if task in self._plan.full else count

    # --- elements

    def _arrived(self, header: m.Block, content: object) -> None:
        # An element of a rest may come before the plan that says at which step it is.
        held = self._held_rests if header.rest else self._held
        held.setdefault(header.task, deque()).append((header, content))
        self._deliver_due()

    def _deliver_due(self) -> None:
        """Deliver the next steps, up to the first missing element or to the horizon."""
        plan, last = self._plan, self._last
        end = plan.horizon if plan.end is None else min(plan.horizon, plan.end)
        usual = end if last is None else last.first_step
        while (run := run_at(plan.views, self.step, usual)) is not None:
            if self._is_empty(run):
                self.step += run.count
            elif not self._weave(usual) and not self._deliver_run(run, self._held):
                return
        has_all = all(self.task(number).total is not None for number in plan.rests)
        while last is not None and has_all:
            run = run_at(self._last_views, self.step, end)
            if run is None or not self._deliver_run(run, self._held_rests):
                return

    def _is_empty(self, run: Run) -> bool:
        """Return True if the task of a step has ended, so that every consumer passes
        the step alike. A task with a rest must also have sent its end: a state behind
        the step needs its whole lineage, which precedes the end.
        """
        has_ended = run.round >= self._plan.full.get(run.task, math.inf)
        return has_ended and (
            run.task not in self._plan.rests or self.task(run.task).total is not None
        )

    def _weave(self, end: int) -> bool:
        """Deliver as many whole cycles of a view at once as the next blocks of its
        tasks contain.

        Returns:
            False if too few cycles are available to be worth it.
        """
        cycle, stop = turns_at(self._plan.views, self.step, end)
        rounds = (stop - self.step) // cycle
        if cycle == 1 or rounds < FEWEST_CYCLES:
            return False
        due: dict[int, Run] = {}
        # Lazily: with thousands of tasks, the first ones often decide.
        for step in range(self.step, self.step + cycle):
            run = run_at(self._plan.views, step, stop)
            if run is None or self._is_empty(run):
                continue
            held = self._held.get(run.task)
            rounds = min(rounds, held[0][0].first + held[0][0].count - run.round) if held else 0
            if rounds < FEWEST_CYCLES:
                return False
            due[step] = run
        self._deliver_cycles(due, rounds, cycle)
        return True

    def _deliver_cycles(self, due: dict[int, Run], rounds: int, cycle: int) -> None:
        woven = tuple([_next_part(run, rounds, self._held) for run in due.values()])
        count = rounds * len(woven)
        self.step += rounds * cycle
        self._delivered.append(Stretch(tuple(due), self.step, count, cycle))
        self.waiting += count
        self._do(e.Weave(woven, tuple(due), cycle))

    def _deliver_run(self, run: Run, blocks: dict[int, deque[Held]]) -> bool:
        """Deliver as much of a run as the next block of its task contains. Return False
        if no block is available.
        """
        held = blocks.get(run.task)
        if not held:
            return False
        header = held[0][0]
        part = _next_part(run, min(run.count, header.first + header.count - run.round), blocks)
        first, self.step = self.step, self.step + part.stop - part.skip
        self._delivered.append(Stretch((first,), self.step, self.step - first))
        self._deliver(part.header, part.content, part.skip, part.stop)
        return True

    def hand_out(self, event: e.TakenElements) -> Grants:
        count = event.stop - event.first
        while count:
            stretch = self._delivered[0]
            fresh = min(count, stretch.count - stretch.taken)
            stretch.taken += fresh
            count -= fresh
            if stretch.taken == stretch.count:
                self._taken.append(self._delivered.popleft())
        return super().hand_out(event)

    def _starved(self, task: ReadTask) -> Sequence[ReadTask]:
        # While elements wait to be taken, no single task delays the training loop.
        # Afterwards all windows are announced at once.
        if self.waiting:
            return ()
        unended = [self.tasks[number] for number in self.unended | {task.place.task}]
        return [one for one in unended if not one.waiting and one.window.is_news]

    # --- where it stands

    def settle(self, oldest: int | None) -> None:
        self._oldest_step = self.steps if oldest is None else self._step_at(oldest)
        oldest = self.passed.count if oldest is None else oldest
        while self._taken and self._taken_from + self._taken[0].count <= oldest:
            self._taken_from += self._taken.popleft().count
        self.passed.settle(oldest)

    def settled(self, task: int) -> RangeSet:
        return self._rounds(task, self._oldest_step)

    def _rounds(self, task: int, step: int) -> RangeSet:
        """Return the rounds of a task before a step."""
        viewed = any(task == number for view in self.views for number, _ in view.tasks)
        # A task that is in no view any more had ended before every present view.
        ended = self._plan.full.get(task, 0) if task in self._seen and not viewed else 0
        count = ended or self._full_before(task, step)
        if task in self._plan.rests and self._plan.end is not None:
            # Every rest says which consumer gets what of the rests after it.
            count += step >= self._plan.end
        return RangeSet([(0, count)])

    def _step_at(self, place: int) -> int:
        """Return the step that the training loop had reached at a place."""
        left = place - self._taken_from
        for stretch in chain(self._taken, self._delivered):
            if left < stretch.count:
                return replace(stretch, taken=left).reached
            left -= stretch.count
        return self.step

    def at(self, place: int) -> tuple[dict[int, RangeSet], Runs, int]:
        step = self._step_at(place)
        return {task: self._rounds(task, step) for task in self.tasks}, [], step

    @property
    def totals(self) -> dict[int, int]:
        # The plan may be ahead of the lineage of a task that has arrived, except where
        # every round of the task has been passed.
        plan, step = self._plan, self._oldest_step
        totals = {
            task: plan.full[task] + (task in plan.rests) for task in self._seen & plan.full.keys()
        }
        return super().totals | {
            task: total
            for task, total in totals.items()
            if self._rounds(task, step).covers(0, total)
        }

    @property
    def rests(self) -> dict[int, int]:
        # The plan may tell that a task has ended before the task itself does.
        told = {number: task.rest for number, task in self.tasks.items() if task.rest}
        return self._plan.rests | told

    def last_before(self, step: int) -> int | None:
        last = self._last
        return last.first_step if last is not None and step > last.first_step else None

    def hear_end(self, task: ReadTask, header: m.EndOfTask) -> Grants:
        task.total, task.rest = header.total, header.rest
        grants = {} if header.held else super().hear_end(task, header)
        self._deliver_due()
        return grants

    # --- what the dispatcher is told, and the end

    @property
    def steps(self) -> int:
        return self._delivered[0].reached if self._delivered else self.step

    @property
    def near(self) -> int:
        return self._plan.horizon if self._plan.views and self.steps >= self._ask_at else 0

    @property
    def unreported(self) -> dict[int, m.Ranges]:
        return {}

    def is_over(self, closed: bool) -> bool:
        return self._plan.end is not None and self.step >= self._plan.end and not self.waiting


class CachedReading(Reading):
    """All tasks that a trainer reads through a shared cache. It logs the elements that
    a lost host had in its window and that the next host does not make again.
    """

    def store(self, task: ReadTask, header: m.Block, content: object) -> str:
        """Store a block that has arrived. The first block of a new host shows how many
        elements are missing here.
        """
        is_moved = not task.window.received and bool(task.received)
        last = task.received.ranges[-1][1] if is_moved else 0
        missing = header.first + header.skip - last
        if is_moved and missing > 0:
            text = (
                f"up to {missing} elements of task {header.task} are missing here: the worker "
                "that hosted it has ended, and its window of the cross-trainer cache with it. "
                f"Faster trainers had read them, and the new host {task.place.address} continues "
                "behind them. A trainer that reads as fast as the others misses none"
            )
            self._do(e.LogLine("warning", text))
        return super().store(task, header, content)


def reading_of(
    job: m.JobParameters,
    reader: m.Reader,
    max_outstanding: int | None,
    do: Callable[[e.ClientCommand], None],
) -> Reading:
    """Return the tasks that a client reads, in the way that its role asks for."""
    if reader.consumer_index is None:
        return (CachedReading if job.cache else Reading)(max_outstanding, do)
    return Stepping(max_outstanding, do, reader, job.num_consumers or 1)


def _next_part(run: Run, count: int, blocks: dict[int, deque[Held]]) -> e.Deliver:
    """Return the next ``count`` rounds of a task, which lie in a single block. Forget a
    block that is used up.
    """
    header, content = blocks[run.task][0]
    skip = run.round - header.first
    if skip + count == header.count:
        blocks[run.task].popleft()
    return e.Deliver(header, content, skip, skip + count)
