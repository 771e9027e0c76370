"""How a numbered consumer reads: blocks arrive in any order, elements are delivered step by step.

Each step is one round of one task; which one, and how far may be read, says the plan that the dispatcher has told.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from zmqdata import commands as c
from zmqdata import messages as m
from zmqdata.core.reading import Reading, ReadTask
from zmqdata.core.rounds import Run, rounds_before, run_at

Held = tuple[m.Block, object]


class Stepping(Reading):
    """All tasks that a consumer reads, in the order of its steps. ``step`` is the next one to deliver.

    Args:
        max_outstanding: most elements that each stream may have on its way; None: as its window says.
        do: takes the commands that result.
    """

    def __init__(self, max_outstanding: int | None, do: Callable[[object], None]) -> None:
        super().__init__(max_outstanding, do)
        self.step = 0
        self._first_step = 0
        self._plan = m.Plan((), 0, {})
        self._ask_at = 0
        self._held: dict[int, deque[Held]] = {}
        self._delivered: deque[tuple[int, int]] = deque()

    def begin(self, step: int) -> None:
        self.step = self._first_step = step

    def list(self, task_list: m.TaskList) -> None:
        plan = task_list.plan
        if plan is not None:
            if plan.horizon > self._plan.horizon:
                # Asked for in the middle of what is new, so that more is there before it is needed.
                self._ask_at = (max(self._plan.horizon, self._first_step) + plan.horizon) // 2
            self._plan = plan
        super().list(task_list)
        self._deliver_due()

    def _first_lacking(self, task: ReadTask) -> int:
        if task.received:
            return task.received.ranges[-1][1]
        return rounds_before(self._plan.views, task.place.task, self.step)

    # --- elements

    def _arrived(self, header: m.Block, content: object) -> None:
        self._held.setdefault(header.task, deque()).append((header, content))
        self._deliver_due()

    def _deliver_due(self) -> None:
        """Delivers what is here of the next steps, up to the first that is not, or to the horizon."""
        while (run := run_at(self._plan.views, self.step, self._plan.horizon)) is not None:
            if run.round >= self._plan.totals.get(run.task, math.inf):
                # All consumers pass it alike: its task has ended.
                self.step += run.count
            elif not self._deliver_run(run):
                return

    def _deliver_run(self, run: Run) -> bool:
        """Delivers as much of a run as the next block of its task holds; False when there is none."""
        held = self._held.get(run.task)
        if not held:
            return False
        header, content = held[0]
        skip = run.round - header.first
        stop = min(header.count, skip + run.count)
        if stop == header.count:
            held.popleft()
        self.step += stop - skip
        self._delivered.append((self.step, stop - skip))
        self._deliver(header, content, skip, stop)
        return True

    def hand_out(self, event: c.HandedOut) -> m.StreamGrant | None:
        count = event.stop - event.first
        while count:
            step, size = self._delivered.popleft()
            if size > count:
                self._delivered.appendleft((step, size - count))
            count -= min(size, count)
        return super().hand_out(event)

    # --- what the dispatcher is told, and the end

    @property
    def steps(self) -> int:
        if not self._delivered:
            return self.step
        step, size = self._delivered[0]
        return step - size

    @property
    def near(self) -> int:
        return self._plan.horizon if self._plan.views and self.steps >= self._ask_at else 0

    @property
    def unreported(self) -> dict[int, m.Ranges]:
        return {}

    def is_over(self, closed: bool) -> bool:
        return self._plan.end is not None and self.step >= self._plan.end and not self.waiting
