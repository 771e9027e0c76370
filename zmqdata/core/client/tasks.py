"""What a client reads of each task: what it may be sent, what has come, what was handed
out and reported.

The consumer core talks with the dispatcher; links are kept by ``core.client.links``; in
which order a numbered consumer reads is ``core.client.coordinated``'s affair.
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
"""What workers are told, by their addresses."""


@dataclass
class ReadTask:
    """A task as this client sees it, remembered for good: a late message must not make
    it begin anew.

    ``received`` covers all attempts; the window belongs to the current one, as does
    ``first``, the number that its stream begins with. ``waiting`` counts elements
    received and not handed out. ``listed``: whether the task list names it. ``total``:
    how many elements it has, once that is known.
    """

    place: m.TaskPlace
    window: CreditWindow
    received: RangeSet = field(default_factory=RangeSet)
    waiting: int = 0
    ended: bool = False
    listed: bool = False
    first: int = 0
    total: int | None = None


@dataclass(frozen=True)
class Report:
    """What was handed out since the report before. ``marks``: attempt and count in its
    stream, per task.
    """

    number: int
    delivered: dict[int, RangeSet]
    marks: dict[int, tuple[int, int]]


class Reading:
    """All tasks that a client reads, in whatever order their blocks arrive.

    Args:
        max_outstanding: most elements that each stream may have on its way; None: as
            its window says.
        do: takes the commands that result.

    Attributes:
        passed: what was handed out, and in which order.
        views: the order in which a numbered consumer reads tasks.
        ordering: blocks that wait, while elements have to come in the order that a
            state tells.
    """

    views: tuple[m.View, ...] = ()
    _first_elements, _most_bytes = FIRST_ELEMENTS, TOTAL_BYTES
    ordering: Ordering | None = None

    def __init__(self, max_outstanding: int | None, do: Callable[[e.ClientCommand], None]) -> None:
        self.tasks: dict[int, ReadTask] = {}
        self.waiting = 0
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
        """The task of this number, which may be new."""
        task = self.tasks.get(number)
        if task is None:
            place = m.TaskPlace(number, 0, "", "")
            task = self.tasks[number] = ReadTask(
                place, CreditWindow(self._max_outstanding, self._first_elements)
            )
        return task

    @property
    def addresses(self) -> list[str]:
        """The workers that host something to read."""
        return [address for address, tasks in self._at.items() if tasks]

    def begin(self, step: int) -> None:
        """The iteration is open. ``step``: where a numbered consumer goes on."""

    def list(self, task_list: m.TaskList) -> None:
        """Takes the tasks that may still give elements, in place of those listed
        before.
        """
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

    def _unlist(self, task: ReadTask) -> None:
        task.listed = False
        self.move(task, m.TaskPlace(task.place.task, task.place.attempt, "", ""))
        self.unended.discard(task.place.task)

    def move(self, task: ReadTask, place: m.TaskPlace) -> None:
        """The task goes on elsewhere: what its old host still sends does not count, and
        credit begins anew.
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
        """The number from which on elements of a task are wanted, where that is not
        said by somebody else.
        """
        return 0

    # --- elements

    def current(self, header: m.OnLink) -> ReadTask | None:
        """The task of a message, unless it comes from an attempt that does not
        count.
        """
        task = self.tasks.get(header.task)
        if task is not None and header.attempt < task.place.attempt and isinstance(header, m.Block):
            self.repeats += (
                header.count - header.skip
            )  # somebody else makes them again, or has already
        return (
            task
            if task is not None and task.listed and task.place.attempt == header.attempt
            else None
        )

    def end(self, task: ReadTask, total: int) -> None:
        """Everything made of a task, which is so much, has been given to somebody."""
        task.ended, task.total = True, total
        self.unended.discard(task.place.task)
        if self.ordering is not None:
            self.ordering.end(task.place.task)
            self._deliver_in_order(self.ordering)

    def take(self, task: ReadTask, header: m.Block, content: object) -> str:
        """Takes a block that arrived; the text says what is wrong with one that should
        not have been sent.
        """
        first, stop = header.first + header.skip, header.first + header.count
        task.ended = False
        self.unended.add(header.task)
        # Blocks are given whole to one client: a block that came before over a broken
        # link came before as a whole.
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
        """Does with a block what is to be done with it: here, delivers it at once,
        unless an order is to be kept.
        """
        if self.ordering is None:
            self._deliver(header, content, header.skip, header.count)
        else:
            self.ordering.add(header.task, header, content)
            self._deliver_in_order(self.ordering)

    def _deliver_in_order(self, ordering: Ordering) -> None:
        for header, content, skip, stop in ordering.due():
            self._deliver(header, content, skip, stop)
        if not ordering:
            self.ordering = None

    def keep_order(self, order: Runs, indices: Mapping[int, int]) -> None:
        """The elements of tasks, by their index, have to come in this order first."""
        self.ordering = Ordering(order, indices)

    def _deliver(self, header: m.Block, content: object, skip: int, stop: int) -> None:
        self.waiting += stop - skip
        self._do(e.Deliver(header, content, skip, stop))

    def _breach(self, task: ReadTask, header: m.Block) -> str:
        window = task.window
        window.breaches += 1
        return (
            f"task {header.task} has sent {header.count - header.skip} elements of {header.size} "
            "bytes after "
            f"{window.received} of {window.received_bytes}, more than was granted "
            f"({window.told_elements} of "
            f"{window.told_bytes})"
        )

    def hand_out(self, event: e.TakenElements) -> Grants:
        """Counts what the training loop has taken; returns grants that workers should
        know at once, by address.
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
            if not one.ended:
                one.window.widen(len(self.unended), self._most_bytes)
        grants: Grants = {}
        for one in starved or [task] * task.window.worth_telling:
            if one.place.address:
                grants.setdefault(one.place.address, []).append(self._grant(one))
        return grants

    def _starved(self, task: ReadTask) -> Sequence[ReadTask]:
        """The tasks of which the training loop could have used more, after it has taken
        something of one.
        """
        return () if task.waiting else (task,)

    # --- where it stands

    def settle(self, oldest: int | None) -> None:
        """Nobody goes back behind the place where so many elements were handed out;
        None: behind the present one.
        """
        self.passed.settle(self.passed.count if oldest is None else oldest)

    def settled(self, task: int) -> RangeSet:
        """The elements of a task that will not be made again."""
        return self.passed.of(task)

    def at(self, place: int) -> tuple[dict[int, RangeSet], Runs, int]:
        """What had been handed out of each task at a place, in which runs the rest was
        since, and the step there.
        """
        return *self.passed.at(place), 0

    @property
    def totals(self) -> dict[int, int]:
        """What is known of the ends of tasks."""
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
        """The grants of all tasks that a worker hosts."""
        return tuple(
            self._grant(self.tasks[number]) for number in sorted(self._at.get(address, ()))
        )

    def _collect_report(self) -> None:
        """Begins a report if something was handed out since the last one."""
        if self._fresh:
            self.report += 1
            marks = {
                number: (self.tasks[number].place.attempt, self.tasks[number].window.handed_out)
                for number in self._fresh
            }
            self._reports.append(Report(self.report, self._fresh, marks))
            self._fresh = {}

    def next_report(self) -> tuple[int, dict[int, m.Ranges], int]:
        """What the dispatcher is told now: the number of the report, what it tells, and
        the step.
        """
        self._collect_report()
        return self.report, self.unreported, self.steps

    def count_unreported(self) -> int:
        """How many elements were handed out of which the dispatcher has not said that
        it knows.
        """
        return sum(
            stop - first for ranges in self.next_report()[1].values() for first, stop in ranges
        )

    @property
    def steps(self) -> int:
        """The steps below which a numbered consumer has handed out everything."""
        return 0

    @property
    def near(self) -> int:
        """The horizon that a numbered consumer will reach soon, 0 if none."""
        return 0

    def is_over(self, closed: bool) -> bool:
        """Whether every task has given all it has, and the training loop has taken all
        that came here.

        ``closed``: whether there will be no further task.
        """
        return closed and not self.unended and not self.waiting and not self.ordering

    @property
    def unreported(self) -> dict[int, m.Ranges]:
        """What was handed out and is not yet acknowledged by the dispatcher."""
        merged: dict[int, RangeSet] = {}
        for report in self._reports:
            for task, ranges in report.delivered.items():
                merged.setdefault(task, RangeSet()).update(ranges)
        return {task: ranges.ranges for task, ranges in merged.items()}

    def acknowledge(self, report: int) -> None:
        """The dispatcher has counted all reports up to this one."""
        while self._reports and self._reports[0].number <= report:
            for number, (attempt, count) in self._reports.popleft().marks.items():
                task = self.tasks[number]
                if task.place.attempt == attempt:
                    task.window.reported = max(task.window.reported, count)
