"""Where a client stands in its iteration, put together from what its workers told, what
it handed out, and the plan.
"""

from __future__ import annotations

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.client.lineage import LineageKept
from zmqdata.core.client.order import can_come_again
from zmqdata.core.client.tasks import Reading
from zmqdata.errors import FailedPreconditionError

_NOT_AGAIN = (
    "an operation behind distribute() (such as shuffle, prefetch or interleave) holds elements of "
    "job {job!r} back, "
    "which would have to come again in the same order; but others read this job, too, and who gets "
    "which is not fixed. "
    "Use distribute(..., deterministic=True) or num_consumers, whose order is promised, or put "
    "such operations before "
    "distribute()"
)


class Standing:
    """Keeps what a checkpoint is made of.

    Args:
        client: our id.
        job: what we read.
        repetition: of it.
        reader: as whom.
        reading: what is read of each task.

    Attributes:
        indices: which task of the iteration each is.
        asks: how often somebody has left, or what was had could not be told any more.
    """

    def __init__(
        self, client: str, job: m.JobParameters, repetition: int, reader: m.Reader, reading: Reading
    ) -> None:
        self._client = client
        self._job = job
        self._repetition = repetition
        self._reader = reader
        self._reading = reading
        self._opened: m.IterationOpened | None = None
        self.indices: dict[int, int] = {}
        self._readers: tuple[str, ...] = ()
        self._before: set[int] = set()
        self.asks = self._answered = 0
        self._theirs: dict[
            int, m.Ranges
        ] = {}  # what was delivered, of tasks whose lineage up to there is not told
        self._upto: dict[
            int, tuple[int, int]
        ] = {}  # the ask that was answered last, and how far the answer goes
        self.kept = LineageKept()

    def begin(self, opened: m.IterationOpened, resumed: m.Checkpoint | None = None) -> None:
        """The iteration is open: takes what was before this client came, from its own
        checkpoint if it goes on.
        """
        self._opened = opened
        self.kept.begin(opened.sources)
        if opened.over:
            self._take_settled(opened)
        for task, ranges in opened.delivered_before.items():
            self._reading.passed.others_had(task, ranges)
        self._before = set(opened.delivered_before)
        if resumed is not None:
            numbers = {place.index: place.task for place in opened.task_list.tasks}
            for part in resumed.tasks:
                if part.index in numbers:
                    self._take(_lineage_of(part, resumed, numbers[part.index]))
            if resumed.order and self._reader.consumer_index is None:
                # An operation behind had elements, which have to come again as they
                # came then.
                self._reading.keep_order(list(resumed.order), self.indices)

    @property
    def lacking(self) -> set[int]:
        """The tasks of which others had elements, and what these depend on was not told
        yet.
        """
        untold = (self._before - self.kept.tasks.keys()) | self._theirs.keys()
        return {task for task in untold if self._is_listed(task)}

    def _is_listed(self, task: int) -> bool:
        known = self._reading.tasks
        return task in known and known[task].listed

    @property
    def is_behind(self) -> bool:
        """Whether somebody has left, and the dispatcher has not said what was delivered
        until then.

        Nor that all was of a task that nobody hosts any more, whose rest some of us
        hold: no worker will tell of it.
        """
        return self._answered < self.asks or not all(map(self._is_listed, self._theirs))

    @property
    def is_whole(self) -> bool:
        """Whether a checkpoint would say all that it has to."""
        return not self.is_behind and not self.lacking

    def catch_up(self, opened: m.IterationOpened) -> None:
        """Takes what was delivered to anybody: nobody else can say any more what those
        had who have left.
        """
        if not self.is_behind:
            return
        self._answered = self.asks
        self.kept.begin(opened.sources)
        self._take_settled(opened)
        self._theirs = dict(opened.delivered_before)
        for task in list(self._theirs):
            self._take_theirs(task)

    def _take_settled(self, opened: m.IterationOpened) -> None:
        """Notes of which tasks everything was delivered, also of those of which this
        client has never heard.
        """
        for task, total in opened.totals.items():
            if task in opened.over:
                self.kept.know(task, opened.over[task])
            self.kept.end(task, total)
            self._reading.passed.others_had(task, [(0, total)])

    def _take_theirs(self, task: int) -> None:
        """Counts what others had of a task, as far as it is known what that depends
        on.
        """
        asks, upto = self._upto.get(task, (0, 0))
        if asks >= self._answered and task in self._theirs:
            ranges = self._theirs.pop(task)
            self._reading.passed.others_had(
                task, [(first, min(stop, upto)) for first, stop in ranges if first < upto]
            )

    def list(self, task_list: m.TaskList) -> None:
        """Notes which task is which, and who reads."""
        listed = {place.task for place in task_list.tasks}
        if not {*self._readers} <= {*task_list.readers} or not self._theirs.keys() <= listed:
            self.asks += 1
        self._readers = task_list.readers
        self.indices.update(
            (place.task, place.index) for place in task_list.tasks if place.index >= 0
        )
        if task_list.plan is not None:
            self.indices.update(task_list.plan.indices)

    def take(self, news: m.Lineage) -> None:
        """Takes what the following messages of a task depend on."""
        if not self._take(news):
            self.asks += 1

    def _take(self, news: m.Lineage) -> bool:
        if news.origin is not None:
            self.indices[news.task] = news.origin.index
            self._reading.passed.others_had(news.task, [(0, news.origin.delivered)])
        is_complete = self.kept.take(news, self._reading.settled(news.task))
        self._upto[news.task] = (news.asks, news.upto)
        self._take_theirs(news.task)
        return is_complete

    def checkpoint(self, place: int) -> m.Checkpoint:
        """Where the client stood after so many elements, none of them before the oldest
        place that it keeps.

        Raises:
            FailedPreconditionError: it could not get the elements from there on again
                in the same order.
        """
        reading, opened = self._reading, self._opened
        delivered, order, step = reading.at(place)
        if not can_come_again(delivered, order):
            raise FailedPreconditionError(_NOT_AGAIN.format(job=self._job.name))
        sources, tasks = self.kept.parts(delivered, reading.totals)
        views = tuple([self._indexed(view) for view in reading.views])
        in_turn = {index for view in views for index, _ in view.tasks}  # of these the step says it
        tasks = tuple(
            [
                structs.replace(task, delivered=()) if task.index in in_turn else task
                for task in tasks
            ]
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
            views=views,
            order=tuple([(self._index(task), first, stop) for task, first, stop in order]),
        )

    def _indexed(self, view: m.View) -> m.View:
        return structs.replace(
            view, tasks=tuple([(self._index(task), first) for task, first in view.tasks])
        )

    def _index(self, task: int) -> int:
        """The number of a task within its iteration; -1 for one that had ended before
        this client came.
        """
        return self.indices.get(task, -1)


def _lineage_of(part: m.TaskPart, checkpoint: m.Checkpoint, task: int) -> m.Lineage:
    """What a checkpoint says of a task, as its host will tell it."""
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
