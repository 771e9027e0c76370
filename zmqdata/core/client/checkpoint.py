"""Position of a client in its iteration, and the checkpoint made of it.

A checkpoint combines the lineage that workers have sent, the elements that were handed
out, and the plan of a coordinated read. Restoring a checkpoint belongs to the
dispatcher.

Decisions 0019 and 0020; protocol 3.12 and 8.4b.
"""

from __future__ import annotations

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.client.lineage import LineageKept
from zmqdata.core.client.order import can_come_again
from zmqdata.core.client.tasks import Reading
from zmqdata.core.job_rules import is_copied
from zmqdata.errors import FailedPreconditionError

_NOT_AGAIN = (
    "An operation after `distribute` (such as `shuffle`, `prefetch` or `interleave`) "
    "holds elements of job {job!r}, which would have to arrive again in the same "
    "order. Other clients read this job too, and which client receives which element "
    "is not fixed. Number the clients by `num_consumers`, or apply such operations "
    "before `distribute`. A single client may use `deterministic=True`."
)


class Standing:
    """Everything that a checkpoint of a client is made of.

    Args:
        client: id of the client.
        job: parameters of the job that the client reads.
        reader: the role in which the client reads.
        reading: received and handed-out elements of each task.
        repetition: repetition that the client asks for; the answer says which it gets.

    Attributes:
        indices: index of each known task within the iteration.
        asks: number of times so far that the client has had to ask what was delivered:
            a reader left, a task left the list, or lineage had a gap.
        kept: lineage of each task, as far as this client needs it.
    """

    def __init__(
        self,
        client: str,
        job: m.JobParameters,
        reader: m.Reader,
        reading: Reading,
        repetition: int = 0,
    ) -> None:
        self._client = client
        self._job = job
        self._repetition = repetition
        self._reader = reader
        self._reading = reading
        self._opened: m.IterationOpened | None = None
        self.indices: dict[int, int] = {}
        self._readers: tuple[str, ...] = ()
        self._is_closed = False
        self._start, self._version = 0, -1
        self._before: set[int] = set()
        self.asks = self._answered = 0
        # Per task, what any client was delivered; its lineage up to there is missing.
        self._theirs: dict[int, m.Ranges] = {}
        # Number of the last answered ask, and the element that the answer reaches.
        self._upto: dict[int, tuple[int, int]] = {}
        self.kept = LineageKept()

    def begin(self, opened: m.IterationOpened, resumed: m.Checkpoint | None = None) -> None:
        """Start from the answer to ``OpenIteration``.

        Everything delivered before this client joined counts as delivered. A client
        that resumes takes its lineage from its own checkpoint, unless it was let into
        another iteration.
        """
        self._opened, self._repetition = opened, opened.repetition
        self.kept.begin(opened.sources)
        if opened.over:
            self._count_settled(opened)
        for task, ranges in opened.delivered_before.items():
            self._reading.passed.count_delivered(task, ranges)
        self._before = set(opened.delivered_before)
        if resumed is not None and resumed.seed == opened.seed:
            numbers = {place.index: place.task for place in opened.task_list.tasks}
            for part in resumed.tasks:
                if part.index in numbers:
                    task = numbers[part.index]
                    last = max((stop for _, stop in self._reading.settled(task)), default=0)
                    # Later states may be of other weights of a mixture.
                    states = tuple([state for state in part.states if state.number <= last])
                    part = structs.replace(part, states=states)
                    self._keep_lineage(_lineage_of(part, resumed, task))
            if resumed.order and self._reader.consumer_index is None:
                # An operation after the iterator held elements, which have to arrive
                # again in the same order.
                self._reading.keep_order(list(resumed.order), self.indices)

    @property
    def tasks_without_lineage(self) -> set[int]:
        """Listed tasks that other clients read, of which the lineage has not arrived
        yet.
        """
        untold = (self._before - self.kept.tasks.keys()) | self._theirs.keys()
        return {task for task in untold if self._is_listed(task)}

    def _is_listed(self, task: int) -> bool:
        known = self._reading.tasks
        return task in known and known[task].listed

    @property
    def is_behind(self) -> bool:
        """True while the dispatcher still has to say what readers that have left were
        delivered.

        Also true while such a task is no longer listed although its lineage is missing,
        because no worker hosts it and could send that.
        """
        return self._answered < self.asks or not all(map(self._is_listed, self._theirs))

    @property
    def is_whole(self) -> bool:
        """True if a checkpoint taken now would be complete."""
        return not self.is_behind and not self.tasks_without_lineage

    def catch_up(self, opened: m.IterationOpened) -> None:
        """Count what was delivered to any client.

        Readers that have left cannot report it themselves, so only the dispatcher can.
        """
        if not self.is_behind:
            return
        self._answered = self.asks
        self.kept.begin(opened.sources)
        self._count_settled(opened)
        self._theirs = dict(opened.delivered_before)
        for task in list(self._theirs):
            self._count_others_deliveries(task)

    def _count_settled(self, opened: m.IterationOpened) -> None:
        """Count every element of the settled tasks as delivered, including tasks that
        this client has never heard of.
        """
        for task, total in opened.totals.items():
            if task in opened.over:
                self.kept.know(task, opened.over[task])
            self.kept.end(task, total)
            self._reading.passed.count_delivered(task, [(0, total)])

    def _count_others_deliveries(self, task: int) -> None:
        """Count what other clients were delivered of a task, as far as the lineage of
        the task has arrived.
        """
        asks, upto = self._upto.get(task, (0, 0))
        if asks >= self._answered and task in self._theirs:
            ranges = self._theirs.pop(task)
            self._reading.passed.count_delivered(
                task, [(first, min(stop, upto)) for first, stop in ranges if first < upto]
            )

    def is_newest(self, task_list: m.TaskList, answers: bool) -> bool:
        """Return True unless a task list was made before the last one.

        Versions begin anew at each start of the dispatcher. A message of a former start
        may come late, so a list of another start counts only in an answer.

        Args:
            task_list: the list.
            answers: True if it answers the newest message that was answered.
        """
        if task_list.start != self._start:
            return answers or self._version < 0
        return task_list.version >= self._version

    def list(self, task_list: m.TaskList) -> None:
        """Record the indices of the tasks and the names of the readers of a task
        list.
        """
        self._start, self._version = task_list.start, task_list.version
        listed = {place.task for place in task_list.tasks}
        if not {*self._readers} <= {*task_list.readers} or not self._theirs.keys() <= listed:
            self.asks += 1
        self._readers, self._is_closed = task_list.readers, task_list.closed
        self.indices.update(
            (place.task, place.index) for place in task_list.tasks if place.index >= 0
        )
        if task_list.plan is not None:
            self.indices.update(task_list.plan.indices)

    def receive_lineage(self, news: m.Lineage) -> None:
        """Record the lineage on which the next messages of a task depend."""
        if not self._keep_lineage(news):
            self.asks += 1

    def _keep_lineage(self, news: m.Lineage) -> bool:
        if news.origin is not None:
            self.indices[news.task] = news.origin.index
            self._reading.passed.count_delivered(news.task, [(0, news.origin.delivered)])
        is_complete = self.kept.receive(news, self._reading.settled(news.task))
        self._upto[news.task] = (news.asks, news.upto)
        self._count_others_deliveries(news.task)
        return is_complete

    def checkpoint(self, place: int) -> m.Checkpoint:
        """Return the state of the iteration at a place.

        Args:
            place: number of elements handed out before the place, not less than the
                oldest place that is still kept.

        Raises:
            FailedPreconditionError: the elements after the place could not arrive again
                in the same order.
        """
        reading, opened = self._reading, self._opened
        delivered, order, step = reading.at(place)
        if order and (len(self._readers) > 1 or not can_come_again(delivered, order)):
            raise FailedPreconditionError(_NOT_AGAIN.format(job=self._job.name))
        sources, tasks = self.kept.parts(delivered, reading.totals, reading.rests)
        views = tuple([self._indexed(view) for view in reading.views])
        # The step says what was delivered of these.
        in_turn = {index for view in views for index, _ in view.tasks}
        tasks = tuple(
            [structs.replace(one, delivered=()) if one.index in in_turn else one for one in tasks]
        )
        seeds = [kept.origin.iteration_seed for kept in self.kept.tasks.values()]
        shards = [kept.origin.num_shards for kept in self.kept.tasks.values()]
        return m.Checkpoint(
            version=m.CHECKPOINT_VERSION,
            job=self._job,
            fingerprint=opened.fingerprint if opened is not None else "",
            repetition=self._repetition,
            seed=seeds[0] if seeds else opened.seed if opened is not None else 0,
            num_shards=shards[0] if shards else opened.num_shards if opened is not None else 0,
            reader=self._reader,
            part=m.shown_name(self._client),
            parts=self._readers,
            sources=sources,
            tasks=tasks,
            step=step,
            ahead=reading.steps - step,
            views=views,
            last=reading.last_before(reading.steps),
            order=tuple([(self._index(task), first, stop) for task, first, stop in order]),
            over=(is_copied(self._job) or self._reader.consumer_index is not None)
            and self._has_everything_at(place),
        )

    def _has_everything_at(self, place: int) -> bool:
        """Return True if no task of the list owed an element at a place."""
        has_ended = self._is_closed or self._reading.has_ended_task
        return place == self._reading.passed.count and self._reading.is_over(has_ended)

    def _indexed(self, view: m.View) -> m.View:
        return structs.replace(
            view, tasks=tuple([(self._index(task), first) for task, first in view.tasks])
        )

    def _index(self, task: int) -> int:
        """Return the index of a task within its iteration, or -1 for a task that had
        ended before this client joined.
        """
        return self.indices.get(task, -1)


def _lineage_of(part: m.TaskPart, checkpoint: m.Checkpoint, task: int) -> m.Lineage:
    """Return what a checkpoint contains about a task, in the form in which a host would
    send it.
    """
    return m.Lineage(
        number=0,
        task=task,
        attempt=0,
        bases=part.bases,
        ledger=part.ledger,
        states=part.states,
        origin=m.Origin(
            index=part.index,
            seed=part.seed,
            shard=part.shard,
            iteration_seed=checkpoint.seed,
            num_shards=checkpoint.num_shards,
            poisoned=part.poisoned,
        ),
        first_decision=part.first_decision,
        decisions=part.decisions,
    )
