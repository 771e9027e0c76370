"""The worker's record of a hosted task: its progress, and what it owes to each client.

Pure bookkeeping. ``core.worker.decider`` decides what is started and stopped, and
``core.worker.distribution`` what is sent.

Protocol 4.3, 8.5 and 8.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.credit import FEW_BYTES, few_bytes
from zmqdata.core.job_rules import outlives_host
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker import events as e
from zmqdata.core.worker.coordinated import RoundRobin
from zmqdata.core.worker.cross_trainer import Windowed
from zmqdata.core.worker.dealing import Dealing, FirstCome
from zmqdata.core.worker.ledger import SplitFeed
from zmqdata.core.worker.lineage import Agreement, news_for
from zmqdata.core.worker.streams import Portion, Stream, occupied
from zmqdata.core.worker.tasklog import KeptLines
from zmqdata.decisions import LEFT_OUT_KEPT, Decisions

STATES_KEPT = 4
"""Number of recent states that a task keeps."""
LAST_WORDS = 2.0
"""Seconds for which a task that is over and has left out elements is kept, although the
dispatcher wants it dropped.
"""
UNREAD_ELEMENTS = 8
"""Elements that a task prepares for its first client: as many as a client asks for at
first.
"""


@dataclass
class HostedTask:
    """A task that this worker hosts."""

    definition: m.TaskDefinition
    """Definition of the task."""
    feeds: list[SplitFeed]
    """Copies of the ledgers of the task's sources."""
    dealing: Dealing
    """Blocks that were produced, and their distribution among the clients."""
    started: bool = False
    """True once the runner was started."""
    produced: int = 0
    """Number of elements produced; rounds, in coordinated jobs."""
    produced_bytes: int = 0
    """Number of bytes that the blocks produced have occupied."""
    allowed: int = 0
    """Number of bytes that the runner's blocks may occupy in total."""
    unread: int | None = 0
    """Maximum number of elements while no client reads the task; None while a client
    reads it.
    """
    few_bytes: int = FEW_BYTES
    """Size up to which blocks of few large elements are filled, in bytes."""
    total: int | None = None
    """Number of elements that the task has; None until its end is known."""
    rest: int = 0
    """Number of elements after the last full round."""
    left_out: int = 0
    """Number of elements that failed and that the pipeline skipped."""
    quarantine: deque[m.LeftOutElement] = field(default_factory=lambda: deque(maxlen=LEFT_OUT_KEPT))
    """The newest elements that failed and that the pipeline skipped."""
    quarantined: int = 0
    """Number of elements that ``quarantine`` has had."""
    unwanted: float | None = None
    """Time since which the dispatcher wants the task dropped; None if it does not."""
    hungry: bool = False
    """True if a client waits for the next element."""
    incomplete: bool = False
    """True if a client has left with elements that the worker no longer has."""
    failure: bytes = b""
    """Encoded error because of which the task cannot run; empty if none. Such a task
    has no total, so that it is not mistaken for an empty task.
    """
    progress: float = 0.0
    """Time of the last block produced."""
    states: deque[m.TaskState] = field(default_factory=lambda: deque(maxlen=STATES_KEPT))
    """The newest states of the pipeline, oldest first."""
    busy: float = 0.0
    """Seconds that the runner has been working on ``work``."""
    work: m.Work | None = None
    """Note of what the runner is working on; None if unknown."""
    tried: bool = False
    """True if every suspect of the task was made."""
    compressed: str = ""
    """Description of the compression of the task's blocks; "" for none."""
    measures: m.TaskMeasures | None = None
    """The newest measures of the attempt; None before the first."""
    written: m.JournalCounts | None = None
    """Counts of the iteration when the dispatcher last sent splits."""
    lines: KeptLines = field(default_factory=KeptLines)
    """Lines that its functions have printed and no client has received."""
    agreement: Agreement = field(default_factory=lambda: Agreement(Decisions(), 0))
    """Decisions of the task's operations, and the events that wait for the dispatcher
    to acknowledge them.
    """

    @classmethod
    def of(cls, definition: m.TaskDefinition, dealing: Dealing, now: float) -> HostedTask:
        """Return a task that begins now, with copies of its ledgers."""
        bases = definition.bases or (0,) * len(definition.ledger)
        feeds = [
            SplitFeed.of(base, entries)
            for base, entries in zip(bases, definition.ledger, strict=True)
        ]
        return cls(definition, feeds, dealing, progress=now, agreement=Agreement.of(definition))

    @property
    def key(self) -> e.TaskKey:
        return e.TaskKey(self.definition.task, self.definition.attempt)

    @property
    def skipped(self) -> dict[str, int]:
        """Number of elements that each trainer of a shared cache was too slow for."""
        return self.dealing.skipped if isinstance(self.dealing, Windowed) else {}

    @property
    def owes_elements(self) -> bool:
        """True if something that was produced waits for a client that reads here."""
        has_rest = isinstance(self.dealing, RoundRobin) and bool(self.dealing.rest)
        return (
            bool(self.agreement.waiting)
            or has_rest
            or any(not self.dealing.has_all(stream) for stream in self.dealing.streams.values())
        )

    @property
    def waits_for_readers(self) -> bool:
        """True if the runner has produced all that it may before readers take some."""
        may_go_on = self.produced_bytes < self.allowed and (
            self.unread is None or self.produced < self.unread
        )
        return self.started and self.total is None and not may_go_on

    @property
    def is_spent_copy(self) -> bool:
        """True if the task is a copy of the input that has ended and that no client
        reads. Losing it loses no element.
        """
        read = any(stream.open for stream in self.dealing.streams.values())
        return self.total is not None and not read and not outlives_host(self.definition.job)

    def add(self, made: e.Produced, now: float) -> None:
        """Add a block that was produced."""
        self.dealing.add(_portion(made))
        self.produced = max(self.produced, made.first + made.count)
        self.produced_bytes += occupied(made.size)
        self.progress = now
        self.hungry = False

    def end(self, event: e.Exhausted) -> None:
        """Record the end. The dispatcher says later which consumers get the rest."""
        self.total = self.produced = event.total
        self.measures = event.measures or self.measures
        self.left_out, self.rest = event.left_out, len(event.rest)
        if event.rest and isinstance(self.dealing, RoundRobin):
            self.dealing.rest = tuple(map(_portion, event.rest))
        for feed in self.feeds:
            feed.ask = None  # splits requested ahead of time are not needed

    def deal_rest(self, message: m.DealRest) -> None:
        """Give the rest to the consumers that the dispatcher names. Idempotent."""
        if isinstance(self.dealing, RoundRobin):
            self.dealing.deal_rest(message.consumer, message.count)

    def header_of(self, portion: Portion, stream: Stream) -> m.Block:
        """Return the header of a block for a client."""
        return m.Block(
            0,
            *self.key,
            portion.first,
            portion.count,
            portion.skip,
            portion.size,
            portion.meta,
            portion.failure,
            cut=portion.cut,
            recall=stream.recall.number,
            rest=portion.rest,
        )

    def grant(self, stream: Stream, grant: m.StreamGrant, now: float) -> None:
        """Apply a grant, with which a client may give elements back."""
        returned = stream.grant(grant, now)
        if returned and isinstance(self.dealing, FirstCome):
            self.dealing.restore(returned)

    def ask_back(
        self, usable: Callable[[Stream], bool], now: float
    ) -> list[tuple[Stream, m.TakeBackElements]]:
        """Return the streams of clients that are asked for elements, because others
        could hand them out earlier, each with the request.
        """
        if self.total is None or not isinstance(self.dealing, FirstCome):
            return []
        return [
            (stream, m.TakeBackElements(0, *self.key, stream.recall.number, keep))
            for stream, keep in self.dealing.ask_back(usable, now)
        ]

    def may_end(self, stream: Stream, usable: Callable[[Stream], bool], now: float) -> bool:
        """Return True if a client need not wait for elements that others hold, or that
        fill no round of the task.
        """
        if isinstance(self.dealing, RoundRobin):
            return not self.dealing.rest
        return not isinstance(self.dealing, FirstCome) or self.dealing.may_end(stream, usable, now)

    def release(self, message: m.ReleaseClient) -> None:
        """Deal the elements again that a client had received and that no client has
        delivered.

        A task that the message does not name has ended, or belongs to another worker.
        Its elements are owed to no client.
        """
        delivered = message.delivered.get(self.definition.task, ((0, self.produced),))
        complete = self.dealing.release(message.client, RangeSet(delivered))
        self.incomplete = not complete or self.incomplete

    def notice(self, event: e.Noticed) -> bool:
        """Record what was observed of the runner. Return True if the dispatcher waits
        for it.
        """
        had_tried = self.tried
        if isinstance(event, e.TaskMeasured):
            self.measures = structs.replace(event.measures, ahead=float(self.dealing.ahead))
        elif isinstance(event, e.Busy):
            self.busy, self.work = event.seconds, event.work
        elif isinstance(event, e.Quarantined):
            self.quarantine.append(event.element)
            self.quarantined += 1
        elif isinstance(event, e.SuspectsTried):
            self.tried = True
        else:
            self.compressed = event.compressed
        return self.tried and not had_tried

    def may_go(self, attempt: int, now: float) -> bool:
        """Return True if the task may go now that the dispatcher wants it dropped, up
        to an attempt.

        A task that is over is kept a little longer if clients that are about to connect
        may await what it has left out. The dispatcher asks again at each heartbeat.
        """
        if self.definition.attempt > attempt:
            return False
        self.unwanted = now if self.unwanted is None else self.unwanted
        is_over = self.total is not None and not self.owes_elements
        is_read = self.quarantined > 0 and not self.definition.save_path
        return not (is_over and is_read) or now - self.unwanted >= LAST_WORDS

    def left_out_for(self, stream: Stream) -> m.ElementsLeftOut | None:
        """Return the newest elements that were left out and that a client has not heard
        of, and record them as told. Return None if it has heard of all.
        """
        fresh = min(self.quarantined - stream.sent_left_out, len(self.quarantine))
        stream.sent_left_out = self.quarantined
        if not fresh:
            return None
        news = tuple(islice(self.quarantine, len(self.quarantine) - fresh, None))
        return m.ElementsLeftOut(0, *self.key, news)

    def reach(self, places: tuple[tuple[int, int], ...]) -> None:
        """Record the positions of the sources in their ledgers."""
        for feed, place in zip(self.feeds, places, strict=True):
            feed.reached = max(feed.reached, place)

    def allow(
        self,
        room: int,
        cache_bytes: int,
        usable: Callable[[Stream], bool],
        neighbours: int = 1,
        memory_of: Callable[[Stream], int] = lambda stream: 0,
    ) -> bool:
        """Compute how much may be produced, and return True if the runner must be told.

        While no client reads the task, that is a few elements more than it had when the
        last client left. Tasks that are read in turn share the room with the tasks of
        the same iteration on this worker. A task with nothing ahead may always produce
        its next element. The size of blocks depends on the memory that each stream
        shares with its reader.

        Args:
            room: bytes that may be produced ahead of clients.
            cache_bytes: size of the window of a shared cache.
            usable: returns True if a stream can be sent to.
            neighbours: number of tasks of the same iteration on this worker.
            memory_of: returns the bytes of memory that a stream shares with its reader.
        """
        if self.definition.job.num_consumers is not None:
            room //= max(1, neighbours)
        if self.definition.job.cache:
            # No block may leave the window before the fastest reader has received it.
            room = min(room, cache_bytes // 2)
        # A share may be zero bytes, and the reader may wait for this very task.
        allowed = max(self.allowed, self.produced_bytes - self.dealing.ahead + max(1, room))
        unread = None
        streams = [stream for stream in self.dealing.streams.values() if usable(stream)]
        if not self.definition.save_path and not streams:
            unread = self.unread or max(self.produced, _replayed(self.definition)) + UNREAD_ELEMENTS
        few = min(
            [few_bytes(stream.window_bytes, memory_of(stream)) for stream in streams],
            default=self.few_bytes,
        )
        news = (allowed, unread, few)
        if (
            not self.started
            or self.total is not None
            or news == (self.allowed, self.unread, self.few_bytes)
        ):
            return False
        self.allowed, self.unread, self.few_bytes = news
        return True

    def skip(self, unwanted: tuple[int, ...]) -> None:
        """Reserve no room for rounds that no client waits for. Once all rounds are
        produced they block no client, and are kept.
        """
        if self.total is None and isinstance(self.dealing, RoundRobin):
            self.dealing.skip(unwanted)

    def news_for(self, stream: Stream) -> m.Lineage | None:
        """Return the lineage to push before the next message of a stream, and record it
        as told. Return None if the client knows everything.

        Trainers that share a cache get no lineage, because elements that they missed
        are never produced again.
        """
        if self.definition.job.cache:
            return None
        upto = max(self.produced, _replayed(self.definition))
        news = news_for(
            stream.told,
            definition=self.definition,
            feeds=self.feeds,
            states=self.states,
            agreement=self.agreement,
            asks=stream.asks,
            upto=upto,
            written=self.written or self.definition.written,
        )
        if news is None:
            return None
        stream.told = news[1]
        return news[0]

    def news_of_others(self, usable: Callable[[Stream], bool]) -> list[tuple[str, m.Lineage]]:
        """Return the lineage for clients that joined late, or that ask after another
        client has left. Without it they know nothing of that client's elements.
        """
        if not self.produced and not self.definition.skip:
            return []
        asking = [one for one in self.dealing.streams.values() if usable(one) and one.is_asking]
        return [(one.client, news) for one in asking if (news := self.news_for(one)) is not None]

    def overdue_requests(
        self, now: float, after: float
    ) -> list[m.RequestSplits | m.ElementsDecided | None]:
        """Return the requests that had no answer for ``after`` seconds and must be
        resent.
        """
        return [
            *(feed.overdue_request(now, after) for feed in self.feeds),
            self.agreement.overdue_report(now, after),
        ]

    def report(self, now: float, is_measured: bool = False) -> m.TaskReport:
        """Return the task's report for the dispatcher.

        Args:
            now: present time.
            is_measured: True if the report includes the measures.
        """
        idle = 0.0 if self.total is not None else now - self.progress
        incomplete = self.incomplete or any(
            stream.has_gap for stream in self.dealing.streams.values()
        )
        return m.TaskReport(
            *self.key,
            self.produced,
            self.total,
            idle,
            incomplete,
            self.skipped,
            self.rest,
            self.failure,
            self.busy,
            self.work,
            self.left_out,
            self.compressed,
            self.waits_for_readers,
            self.measures if is_measured else None,
            self.tried,
        )


def _portion(made: e.Produced) -> Portion:
    return Portion(
        first=made.first,
        count=made.count,
        size=made.size,
        meta=made.meta,
        frames=made.frames,
        failure=made.failure,
        lane=made.lane,
    )


def _replayed(definition: m.TaskDefinition) -> int:
    """Return the number of elements, or rounds, that clients have already received and
    that a new host produces again first.
    """
    return max(definition.skip[-1][1] if definition.skip else 0, min(definition.passed, default=0))
