"""The tasks that a client reads: the credit of each, and which elements were received,
handed out and reported.

``core.client.decider`` talks to the dispatcher, ``core.client.links`` keeps the links,
and ``core.client.coordinated`` decides in which order a numbered consumer reads.

Decisions 0002, 0004, 0019 and 0036; protocol 3.3, 6.4, 6.6, 6.12 and 8.2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.order import HandedOut, Ordering, Runs
from zmqdata.core.credit import FIRST_ELEMENTS, TOTAL_BYTES, CreditWindow
from zmqdata.core.ranges import RangeSet

Grants = dict[str, list[m.StreamGrant]]
"""Grants to send, by the address of the worker."""
AHEAD = 0.05
"""Seconds of work that a training loop may have ahead if other clients read, too."""
PIECE = 0.004
"""Seconds for which a training loop should have work in a piece of a block. What it has
not begun can be given back.
"""
HALVED = 0.05
"""Seconds of work after which what was measured before counts half."""
KNOWN = 0.02
"""Seconds of work after which a pace is known. A loop may take a few elements at once
before it begins to work.
"""
ALIKE = 8
"""Number of pieces of a length while the pace is not known. Each piece is then small
compared with those before it, so that a slow loop holds little that it has begun.
"""
LEAST_KNOWN = 0.02
"""Seconds after which a loop that has not finished its first element counts as slow."""
ASK_AGAIN = 0.002
"""Least seconds between two occasions on which workers are told that the loop waits."""


class LoopPace:
    """Measures how long a training loop takes for an element, without its waits.

    Attributes:
        seconds: mean of the seconds for an element, in which the last ones count most;
            0 if unknown.
        at_work: True if the loop has taken elements and not yet come back for more.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.at_work = False
        self._since = self._work = self._count = 0.0
        self._taken = 0
        self._pieces = 0

    def begin(self, now: float) -> None:
        """Record that a loop that waited has something to take again."""
        if not self.at_work:
            self._since = now

    def took(self, count: int) -> None:
        """Count elements that the loop has taken."""
        self._taken += count

    def came_back(self, now: float) -> None:
        """Record that the loop has finished what it took."""
        self.at_work = False
        if self._taken:
            seconds = now - self._since
            kept = 0.5 ** (seconds / HALVED)
            self._work = self._work * kept + seconds
            self._count = self._count * kept + self._taken
            self.seconds = self._work / self._count
        self._since, self._taken = now, 0

    def present(self, now: float, busy: bool) -> float:
        """Return the seconds for an element; 0 if unknown.

        Args:
            now: present time.
            busy: True if the loop has something to take or is at work. The time since
                it last came back then counts, too: it may have paused.
        """
        since = (now - self._since) / max(1, self._taken) if busy else 0.0
        return max(self.seconds, since) if self.seconds or since > LEAST_KNOWN else 0.0

    @property
    def piece(self) -> int:
        """Number of elements in the next piece of a block. While little is known of the
        pace, pieces become longer and longer.
        """
        measured = max(1, int(PIECE / self.seconds)) if self.seconds else 0
        if self._work >= KNOWN:
            return measured
        self._pieces += 1
        cautious: int = 1 << max(0, (self._pieces - 1) // ALIKE - 1)
        return min(cautious, measured or cautious)


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
    overdue: float | None = None
    """Time since which the dispatcher knows its end and this client does not; None if
    that was never so.
    """
    first: int = 0
    """Number with which the stream of the present attempt begins."""
    total: int | None = None
    """Number of its elements, or None if unknown."""
    rest: int = 0
    """Number of elements after its last full round."""
    turn: int = 0
    """Turn in which it was last granted an element, if all streams have one limit."""


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
        max_outstanding: most elements in flight of all streams together. None leaves
            the limit to the window of each stream.
        do: receives the resulting commands.

    Attributes:
        tasks: every task ever heard of, by number.
        waiting: number of elements delivered to the queue and not handed out.
        report: number of the last report.
        repeats: number of elements that arrived again, or from an older attempt.
        given_back: number of elements that were given back for other clients.
        unended: numbers of the listed tasks that have not announced their end.
        passed: what was handed out, and in which order.
        views: order in which a numbered consumer reads tasks.
        shared: True if other clients read, too.
        now: time of the present event.
        pace: pace of the training loop.
        ordering: blocks that wait while elements have to arrive in the order of a
            state, or None.
        measures: what the training loop does for how long, or None.
    """

    views: tuple[m.View, ...] = ()
    _first_elements, _most_bytes = FIRST_ELEMENTS, TOTAL_BYTES
    _gives_back = True
    ordering: Ordering | None = None

    def __init__(self, max_outstanding: int | None, do: Callable[[e.ClientCommand], None]) -> None:
        self.tasks: dict[int, ReadTask] = {}
        self.waiting = 0
        self.shared = False
        self.now = 0.0
        self.pace = LoopPace()
        self.measures: m.LoopMeasures | None = None
        self._turns = 0
        self._ending: set[int] = set()  # tasks of which others may give elements back
        self._has_asked, self._asked_at = False, -1.0
        self.report = 0
        self.repeats = self.given_back = 0
        self.unended: set[int] = set()
        self.passed = HandedOut()
        self._at: dict[str, set[int]] = {}
        self._reports: deque[Report] = deque()
        self._fresh: dict[int, RangeSet] = {}
        self._most = max_outstanding
        self._do = do

    @property
    def _stream_limit(self) -> int | None:
        """Maximum number of elements in flight of a single stream, if it has its own
        limit.
        """
        return None

    def note(self, measures: m.LoopMeasures) -> None:
        """Record the newest measures of the training loop."""
        self.measures = measures

    # --- where tasks are

    def task(self, number: int) -> ReadTask:
        """Return the task of this number, which may be new."""
        task = self.tasks.get(number)
        if task is None:
            place = m.TaskPlace(number, 0, "", "")
            window = CreditWindow(self._stream_limit, self._first_elements)
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
            self._ending.discard(place.task)
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
            # The present attempt sends them again, or already has.
            self.repeats += header.stop - header.skip
        is_current = task is not None and task.listed and task.place.attempt == header.attempt
        return task if is_current else None

    def hear_end(self, task: ReadTask, header: m.EndOfTask) -> Grants:
        """Record the end of a task, or that only what others give back can follow, and
        return grants to send at once.
        """
        if header.held:
            self.note_ending(task)
            return self.ask_back({})
        self.end(task, header.total)
        return self.spread()

    def note_ending(self, task: ReadTask) -> None:
        """Record that nothing is left of a task but what other clients may give back,
        so that its worker has to know when the loop waits.
        """
        self._ending.add(task.place.task)
        self._has_asked = False

    def end(self, task: ReadTask, total: int) -> None:
        """Record that every element of a task, ``total`` in number, has been sent to
        some client.
        """
        task.ended, task.total = True, total
        self.unended.discard(task.place.task)
        if self.ordering is not None:
            self.ordering.end(task.place.task)
            self._deliver_in_order(self.ordering)

    def store(self, task: ReadTask, header: m.Block, content: object) -> str:
        """Store a block that has arrived.

        Returns:
            What is wrong with a block that should not have been sent, otherwise an
            empty text.
        """
        first, stop = header.first + header.skip, header.first + header.stop
        if header.recall < task.window.recall:
            return ""  # sent again over another link, and given back since
        task.ended = False
        self.unended.add(header.task)
        # A view of a block goes to a single client, so one that arrived before, over a
        # broken link, arrived as a whole.
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
        """Queue elements, in pieces if those that were not begun can be given back."""
        if not self.waiting:
            self.pace.begin(self.now)
        self._has_asked = False
        self.waiting += stop - skip
        while skip < stop:
            end = min(stop, skip + self.pace.piece) if self._gives_back else stop
            self._do(e.Deliver(header, content, skip, end))
            skip = end

    # --- giving back

    def asked_back(self, task: ReadTask, ask: m.TakeBackElements) -> None:
        """Have the elements dropped that a worker asks for. ``give_back`` follows.

        The task has more elements again, of which this client may get its share.
        """
        task.ended = False
        self.unended.add(ask.task)
        count = 0 if self.ordering is not None else max(0, task.window.received - ask.keep)
        self._do(e.DropUnbegun(ask.task, ask.attempt, ask.recall, min(count, task.waiting)))

    def give_back(self, event: e.UnbegunDropped) -> Grants:
        """Forget elements that were dropped, and return the grant that says so."""
        task = self.tasks[event.task]
        count = sum(stop - first for first, stop in event.ranges)
        for first, stop in event.ranges:
            task.received.remove(first, stop)
        task.waiting -= count
        self.waiting -= count
        self.given_back += count
        task.window.give_back(event.recall, count)
        return {task.place.address: [self._grant(task)]} if task.place.address else {}

    def _breach(self, task: ReadTask, header: m.Block) -> str:
        window = task.window
        window.breaches += 1
        return (
            f"task {header.task} has sent {header.stop - header.skip} elements "
            f"({header.size} bytes) after {window.received} ({window.received_bytes} "
            f"bytes), although only {window.granted_elements} ({window.granted_bytes} "
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
            self.pace.took(count)
        task.waiting -= count
        self.waiting -= count
        if task.place.attempt != event.attempt:
            return {}
        task.window.hand_out(count)
        starved = self._starved(task)
        for one in starved:
            if not one.ended and self._may_widen(one):
                one.window.widen(len(self.unended), self._most_bytes)
        if self._most is not None:
            return self.spread()
        grants: Grants = {}
        for one in starved or [task] * task.window.worth_telling:
            if one.place.address:
                grants.setdefault(one.place.address, []).append(self._grant(one))
        return grants

    # --- a limit of all streams together

    @property
    def _free(self) -> int | None:
        """Number of elements that may still be granted; None for any number."""
        if self._most is None:
            return None
        out = sum(
            one.waiting if one.ended else max(one.waiting, one.window.outstanding)
            for one in self.tasks.values()
            if one.place.address or one.waiting
        )
        return max(0, self._most - out)

    @property
    def _share(self) -> int:
        """Number of elements in flight that the limit leaves to each task. A slow task
        must not hold all of them, or the training loop would wait for it alone.
        """
        return max(1, (self._most or 0) // max(1, len(self.unended)))

    def _growth(self, task: ReadTask) -> int | None:
        """Return the number of elements by which the grant of a task may grow at once;
        None for any number. ``spread`` grants what is left over.
        """
        if self._free is None:
            return None
        return min(self._free, max(0, self._share - task.window.outstanding))

    def spread(self) -> Grants:
        """Grant what the limit permits to the streams with the least in flight, and
        return their grants.
        """
        grants: Grants = {}
        ready = [self.tasks[number] for number in sorted(self.unended)]
        ready = [one for one in ready if one.place.address]
        touched: dict[int, ReadTask] = {}
        # For tasks whose worker is not known yet.
        kept = sum(
            max(0, self._share - self.tasks[number].window.outstanding)
            for number in self.unended
            if not self.tasks[number].place.address
        )
        for left in range(self._free or 0, 0, -1):
            ready = [one for one in ready if one.window.outstanding < one.window.elements]
            if not ready:
                break
            task = min(ready, key=lambda one: (one.window.outstanding, one.turn))
            if left <= kept and task.window.outstanding >= self._share:
                break
            self._tell(task, 1)
            touched[task.place.task] = task
        for task in touched.values():
            grants.setdefault(task.place.address, []).append(self._grant(task))
        return grants

    def loop_seen(self, at_work: bool) -> None:
        """Record whether the training loop is at work, or has come back for more."""
        self.pace.at_work = at_work
        if not at_work:
            self.pace.came_back(self.now)

    @property
    def is_to_ask(self) -> bool:
        """True if workers should be told that the training loop has nothing left."""
        is_time = not self._has_asked and self.now >= self._asked_at + ASK_AGAIN
        return bool(self._ending) and is_time and self.is_waiting

    @property
    def is_waiting(self) -> bool:
        """True if the training loop has nothing left, and wants more."""
        return not self.waiting and not self.pace.at_work

    def ask_back(self, grants: Grants) -> Grants:
        """Add grants for the workers that can ask other clients to give elements back,
        if the loop has nothing left.
        """
        if not self.is_to_ask:
            return grants
        self._has_asked, self._asked_at = True, self.now
        ending = {self.tasks[number].place.address for number in self._ending}
        return grants | {address: list(self.grants(address)) for address in ending - {""}}

    def _may_widen(self, task: ReadTask) -> bool:
        """Return True if a larger window could end the wait of the training loop.

        It is of no use if the workers are slower than the window allows, and would only
        take more from other clients once they are faster. A message may be under way,
        so the loop gets enough for some time in any case.
        """
        seconds = task.window.elements * len(self.unended) * self.pace.seconds
        return not self.shared or task.window.is_used_up or 0 < seconds < AHEAD

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
    def rests(self) -> dict[int, int]:
        """Number of elements after the last full round of the tasks that have any."""
        return {}

    def last_before(self, step: int) -> int | None:
        """Return the step at which the last rounds begin; None if none of them lies
        before a step.
        """
        return None

    @property
    def totals(self) -> dict[int, int]:
        """Known totals of tasks."""
        return {number: task.total for number, task in self.tasks.items() if task.total is not None}

    # --- grants and reports

    def _tell(self, task: ReadTask, most: int | None) -> tuple[int, int]:
        before = task.window.granted_elements
        told = task.window.tell(most)
        if told[0] > before:
            self._turns += 1
            task.turn = self._turns
        return told

    def _grant(self, task: ReadTask) -> m.StreamGrant:
        window = task.window
        elements, size = self._tell(task, self._growth(task))
        return m.StreamGrant(
            task.place.task,
            task.place.attempt,
            elements,
            size,
            window.handed_out,
            window.reported,
            task.first,
            window.recall,
            window.kept,
        )

    def loop(self) -> tuple[float, bool]:
        """Return the seconds that the training loop takes for an element, 0 if unknown,
        and whether it has nothing left.
        """
        return self.pace.present(self.now, busy=not self.is_waiting), self.is_waiting

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
        self._collect_report()
        return sum(len(ranges) for one in self._reports for ranges in one.delivered.values())

    @property
    def steps(self) -> int:
        """The step below which a numbered consumer has handed out everything."""
        return 0

    @property
    def near(self) -> int:
        """The horizon that a numbered consumer will reach soon, or 0."""
        return 0

    @property
    def has_ended_task(self) -> bool:
        """True if a task has sent everything to this client and others."""
        return any(task.ended for task in self.tasks.values())

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

    def retell(self) -> None:
        """Report everything again that was ever handed out."""
        for number, delivered in self.passed.at(self.passed.count)[0].items():
            if delivered and number in self.tasks:
                self._fresh.setdefault(number, RangeSet()).update(delivered)

    def has_all(self, tasks: Iterable[int]) -> bool:
        """Return True if this client has received every element of some tasks."""
        known = [self.tasks.get(number) for number in tasks]
        return all(
            one is not None and one.total is not None and one.received.covers(0, one.total)
            for one in known
        )

    def acknowledge(self, report: int) -> None:
        """Forget all reports up to this number, which the dispatcher has counted."""
        while self._reports and self._reports[0].number <= report:
            for number, (attempt, count) in self._reports.popleft().marks.items():
                task = self.tasks[number]
                if task.place.attempt == attempt:
                    task.window.reported = max(task.window.reported, count)


def taking_more(address: str, breach: str) -> str:
    """Return the error for a worker that sends more than was granted."""
    return (
        f"The worker at `{address}` repeatedly sends more than it was granted: "
        f"{breach}. Restart that worker."
    )
