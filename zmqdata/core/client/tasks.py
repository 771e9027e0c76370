"""The tasks that a client reads: the credit of each, and which elements were received,
handed out and reported.

``core.client.decider`` talks to the dispatcher, ``core.client.links`` keeps the links,
and ``core.client.coordinated`` decides in which order a numbered consumer reads.

Decisions 0002, 0004 and 0019; protocol 3.3, 6.4, 6.6 and 8.2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.order import HandedOut, Ordering, Runs
from zmqdata.core.credit import FIRST_ELEMENTS, TOTAL_BYTES, CreditWindow
from zmqdata.core.ranges import RangeSet

Grants = dict[str, list[m.StreamGrant]]
"""Grants to send, by the address of the worker."""


@dataclass
class ReadTask:
    """A task as this client sees it.

    It is never forgotten, because a late message must not start it anew.
    """

    place: m.TaskPlace
    """Attempt and host of the task."""
    window: CreditWindow
    """Credit of the stream of the present attempt."""
    received: RangeSet = field(default_factory=RangeSet)
    """Numbers of the elements received from all attempts."""
    waiting: int = 0
    """Number of elements received and not handed out."""
    ended: bool = False
    """True if the task has announced its end."""
    listed: bool = False
    """True if the task list names it."""
    first: int = 0
    """Number with which the stream of the present attempt begins."""
    total: int | None = None
    """Number of its elements, or None if unknown."""


@dataclass(frozen=True)
class Report:
    """The elements handed out since the previous report."""

    number: int
    """Number of the report."""
    delivered: dict[int, RangeSet]
    """Elements per task."""
    marks: dict[int, tuple[int, int]]
    """Attempt and count of handed-out elements in its stream, per task."""


class Reading:
    """All tasks that a client reads, in whatever order their blocks arrive.

    Args:
        max_outstanding: most elements in flight per stream. None leaves the limit to
            the window of the stream.
        do: receives the resulting commands.

    Attributes:
        tasks: every task ever heard of, by number.
        waiting: number of elements delivered to the queue and not handed out.
        report: number of the last report.
        repeats: number of elements that arrived again, or from an older attempt.
        unended: numbers of the listed tasks that have not announced their end.
        passed: what was handed out, and in which order.
        views: order in which a numbered consumer reads tasks.
        shared: True if other clients read, too.
        ordering: blocks that wait while elements have to arrive in the order of a
            state, or None.
    """

    views: tuple[m.View, ...] = ()
    _first_elements, _most_bytes = FIRST_ELEMENTS, TOTAL_BYTES
    ordering: Ordering | None = None

    def __init__(self, max_outstanding: int | None, do: Callable[[e.ClientCommand], None]) -> None:
        self.tasks: dict[int, ReadTask] = {}
        self.waiting = 0
        self.shared = False
        self.report = 0
        self.repeats = 0
        self.unended: set[int] = set()
        self.passed = HandedOut()
        self._at: dict[str, set[int]] = {}
        self._reports: deque[Report] = deque()
        self._fresh: dict[int, RangeSet] = {}
        self._max_outstanding = max_outstanding
        self._do = do

    # --- where tasks are

    def task(self, number: int) -> ReadTask:
        """Return the task of this number, which may be new."""
        task = self.tasks.get(number)
        if task is None:
            place = m.TaskPlace(number, 0, "", "")
            window = CreditWindow(self._max_outstanding, self._first_elements)
            task = self.tasks[number] = ReadTask(place, window)
            if self.shared:
                window.share()
        return task

    @property
    def addresses(self) -> list[str]:
        """Addresses of the workers that host a listed task."""
        return [address for address, tasks in self._at.items() if tasks]

    def begin(self, step: int) -> None:
        """Start to read. A numbered consumer continues at ``step``."""

    def list(self, task_list: m.TaskList) -> None:
        """Replace the list of tasks that may still owe elements."""
        places = task_list.tasks
        listed = {place.task for place in places}
        for number, task in self.tasks.items():
            if task.listed and number not in listed:
                self._unlist(task)
        for place in places:
            task = self.task(place.task)
            if place.attempt >= task.place.attempt:
                self.move(task, place)
            task.listed = True
            if not task.ended:
                self.unended.add(place.task)

    def share(self, is_shared: bool) -> None:
        """Have no more in flight than the training loop needs, if elements could go to
        other clients.
        """
        if is_shared and not self.shared:
            for task in self.tasks.values():
                task.window.share()
        self.shared = is_shared

    def _unlist(self, task: ReadTask) -> None:
        task.listed = False
        self.move(task, m.TaskPlace(task.place.task, task.place.attempt, "", ""))
        self.unended.discard(task.place.task)

    def move(self, task: ReadTask, place: m.TaskPlace) -> None:
        """Continue a task at another place.

        Blocks that the old host still sends do not count, and credit begins anew.
        """
        if place.attempt != task.place.attempt:
            task.window = task.window.renewed()
            task.first = self._first_lacking(task)
            task.ended = False
            if task.listed:
                self.unended.add(place.task)
        if place.address != task.place.address:
            self._at.get(task.place.address, set()).discard(place.task)
            if place.address:
                self._at.setdefault(place.address, set()).add(place.task)
        task.place = place

    def _first_lacking(self, task: ReadTask) -> int:
        """Return the number from which on elements of a task are wanted.

        A numbered consumer knows it. For other clients the dispatcher tells the new
        host.
        """
        return 0

    # --- elements

    def current(self, header: m.OnLink) -> ReadTask | None:
        """Return the task of a message, or None if the message comes from an attempt
        that does not count.
        """
        task = self.tasks.get(header.task)
        if task is not None and header.attempt < task.place.attempt and isinstance(header, m.Block):
            self.repeats += (
                header.stop - header.skip
            )  # the present attempt sends them again, or already has
        return (
            task
            if task is not None and task.listed and task.place.attempt == header.attempt
            else None
        )

    def end(self, task: ReadTask, total: int) -> None:
        """Record that every element of a task, ``total`` in number, has been sent to
        some client.
        """
        task.ended, task.total = True, total
        self.unended.discard(task.place.task)
        if self.ordering is not None:
            self.ordering.end(task.place.task)
            self._deliver_in_order(self.ordering)

    def take(self, task: ReadTask, header: m.Block, content: object) -> str:
        """Take a block that has arrived.

        Returns:
            What is wrong with a block that should not have been sent, otherwise an
            empty text.
        """
        first, stop = header.first + header.skip, header.first + header.stop
        task.ended = False
        self.unended.add(header.task)
        # A block goes to a single client as a whole, so a block that arrived before,
        # over a broken link, arrived as a whole.
        if not task.received.missing(first, stop):
            self.repeats += stop - first
            return ""
        if not task.window.admits(stop - first, header.size):
            return self._breach(task, header)
        task.window.receive(stop - first, header.size)
        task.received.add(first, stop)
        task.waiting += stop - first
        self._arrived(header, content)
        return ""

    def _arrived(self, header: m.Block, content: object) -> None:
        """Deliver a block at once, unless an order has to be kept."""
        if self.ordering is None:
            self._deliver(header, content, header.skip, header.stop)
        else:
            self.ordering.add(header.task, header, content)
            self._deliver_in_order(self.ordering)

    def _deliver_in_order(self, ordering: Ordering) -> None:
        for header, content, skip, stop in ordering.due():
            self._deliver(header, content, skip, stop)
        if not ordering:
            self.ordering = None

    def keep_order(self, order: Runs, indices: Mapping[int, int]) -> None:
        """Deliver elements of tasks, named by their index, in this order first."""
        self.ordering = Ordering(order, indices)

    def _deliver(self, header: m.Block, content: object, skip: int, stop: int) -> None:
        self.waiting += stop - skip
        self._do(e.Deliver(header, content, skip, stop))

    def _breach(self, task: ReadTask, header: m.Block) -> str:
        window = task.window
        window.breaches += 1
        return (
            f"task {header.task} has sent {header.stop - header.skip} elements "
            f"({header.size} bytes) after {window.received} ({window.received_bytes} "
            f"bytes), although only {window.told_elements} ({window.told_bytes} "
            "bytes) were granted"
        )

    def hand_out(self, event: e.TakenElements) -> Grants:
        """Count the elements that the training loop has taken, and return grants to
        send at once.
        """
        count = event.stop - event.first
        task = self.tasks[event.task]
        if count:
            self._fresh.setdefault(event.task, RangeSet()).add(event.first, event.stop)
            self.passed.add(event.task, event.first, event.stop)
        task.waiting -= count
        self.waiting -= count
        if task.place.attempt != event.attempt:
            return {}
        task.window.hand_out(count, event.size)
        starved = self._starved(task)
        for one in starved:
            # A larger window is of no use if the workers are slower than it allows; it
            # would only take more from other clients once they are faster.
            if not one.ended and (not self.shared or one.window.is_used_up):
                one.window.widen(len(self.unended), self._most_bytes)
        grants: Grants = {}
        for one in starved or [task] * task.window.worth_telling:
            if one.place.address:
                grants.setdefault(one.place.address, []).append(self._grant(one))
        return grants

    def _starved(self, task: ReadTask) -> Sequence[ReadTask]:
        """Return the tasks of which the training loop could have used more, after it
        took elements of ``task``.
        """
        return () if task.waiting else (task,)

    # --- where it stands

    def settle(self, oldest: int | None) -> None:
        """Forget the order of the elements before the oldest place to which an
        operation may return.

        Args:
            oldest: number of elements handed out before that place. None stands for the
                present place.
        """
        self.passed.settle(self.passed.count if oldest is None else oldest)

    def settled(self, task: int) -> RangeSet:
        """Return the elements of a task that will not be produced again."""
        return self.passed.of(task)

    def at(self, place: int) -> tuple[dict[int, RangeSet], Runs, int]:
        """Return what had been handed out of each task at a place, the runs handed out
        since, and the step there.
        """
        return *self.passed.at(place), 0

    @property
    def totals(self) -> dict[int, int]:
        """Known totals of tasks."""
        return {number: task.total for number, task in self.tasks.items() if task.total is not None}

    # --- grants and reports

    def _grant(self, task: ReadTask) -> m.StreamGrant:
        window = task.window
        elements, size = window.tell()
        return m.StreamGrant(
            task.place.task,
            task.place.attempt,
            elements,
            size,
            window.handed_out,
            window.reported,
            task.first,
        )

    def grants(self, address: str) -> tuple[m.StreamGrant, ...]:
        """Return the grants of all tasks that a worker hosts."""
        return tuple(
            self._grant(self.tasks[number]) for number in sorted(self._at.get(address, ()))
        )

    def _collect_report(self) -> None:
        """Begin a report if elements were handed out since the last report."""
        if self._fresh:
            self.report += 1
            marks = {
                number: (self.tasks[number].place.attempt, self.tasks[number].window.handed_out)
                for number in self._fresh
            }
            self._reports.append(Report(self.report, self._fresh, marks))
            self._fresh = {}

    def next_report(self) -> tuple[int, dict[int, m.Ranges], int]:
        """Return the next report: its number, the elements not yet acknowledged, and
        the step.
        """
        self._collect_report()
        return self.report, self.unreported, self.steps

    def count_unreported(self) -> int:
        """Return the number of handed-out elements that the dispatcher has not
        acknowledged.
        """
        return sum(
            stop - first for ranges in self.next_report()[1].values() for first, stop in ranges
        )

    @property
    def steps(self) -> int:
        """The step below which a numbered consumer has handed out everything."""
        return 0

    @property
    def near(self) -> int:
        """The horizon that a numbered consumer will reach soon, or 0."""
        return 0

    def is_over(self, closed: bool) -> bool:
        """True if every task has sent all its elements and the training loop has taken
        all that arrived here.

        Args:
            closed: True if no further task will be added.
        """
        return closed and not self.unended and not self.waiting and not self.ordering

    @property
    def unreported(self) -> dict[int, m.Ranges]:
        """Elements that were handed out and that the dispatcher has not
        acknowledged.
        """
        merged: dict[int, RangeSet] = {}
        for report in self._reports:
            for task, ranges in report.delivered.items():
                merged.setdefault(task, RangeSet()).update(ranges)
        return {task: ranges.ranges for task, ranges in merged.items()}

    def acknowledge(self, report: int) -> None:
        """Forget all reports up to this number, which the dispatcher has counted."""
        while self._reports and self._reports[0].number <= report:
            for number, (attempt, count) in self._reports.popleft().marks.items():
                task = self.tasks[number]
                if task.place.attempt == attempt:
                    task.window.reported = max(task.window.reported, count)
