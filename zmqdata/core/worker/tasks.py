"""What a worker knows of one task that it hosts: how far it is made, and what is owed
to whom.

Pure bookkeeping; what is sent, started and stopped is the worker core's affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.credit import FEW_BYTES, few_bytes
from zmqdata.core.job_rules import outlives_host
from zmqdata.core.worker import events as e
from zmqdata.core.worker.coordinated import RoundRobin
from zmqdata.core.worker.cross_trainer import Windowed
from zmqdata.core.worker.dealing import Dealing
from zmqdata.core.worker.ledger import SplitFeed
from zmqdata.core.worker.lineage import Agreement, news_for
from zmqdata.core.worker.streams import Portion, Stream
from zmqdata.decisions import Decisions

STATES_KEPT = 4
UNREAD_ELEMENTS = 8
"""Elements to have ready for the first client: as many as it asks for at first."""


@dataclass
class HostedTask:
    """A task that this worker hosts. ``dealing`` holds what it made, ``feeds`` are the
    ledgers of its sources.

    ``allowed``: how many bytes it may make, and ``unread`` how many elements while
    nobody reads it, None while somebody does. ``few_bytes``: what its blocks of few
    large elements hold. ``hungry``: a client waits for the next element.
    ``incomplete``: a client that is gone took elements with it that are not here any
    more. ``failure``: why it can not run; it has no end then, so that nobody takes it
    for empty. ``states``: the newest places where its pipeline was, oldest first.
    ``busy``: for how many seconds it has been at ``crumb``. ``compressed``: what its
    blocks are compressed with, in words. ``agreement``: what its operations have
    decided, and what waits for the dispatcher to know of it.
    """

    definition: m.TaskDefinition
    feeds: list[SplitFeed]
    dealing: Dealing
    started: bool = False
    produced: int = 0
    produced_bytes: int = 0
    allowed: int = 0
    unread: int | None = 0
    few_bytes: int = FEW_BYTES
    total: int | None = None
    dropped: int = 0
    left_out: int = 0
    hungry: bool = False
    incomplete: bool = False
    failure: bytes = b""
    progress: float = 0.0
    states: deque[m.TaskState] = field(default_factory=lambda: deque(maxlen=STATES_KEPT))
    busy: float = 0.0
    crumb: m.Crumb | None = None
    compressed: str = ""
    agreement: Agreement = field(default_factory=lambda: Agreement(Decisions(), 0))

    @property
    def key(self) -> e.TaskKey:
        return e.TaskKey(self.definition.task, self.definition.attempt)

    @property
    def skipped(self) -> dict[str, int]:
        """How many elements each trainer of a shared cache was too slow for."""
        return self.dealing.skipped if isinstance(self.dealing, Windowed) else {}

    @property
    def owes_elements(self) -> bool:
        """Whether something that is made waits for a client that reads here."""
        return bool(self.agreement.waiting) or any(
            not self.dealing.has_all(stream) for stream in self.dealing.streams.values()
        )

    @property
    def is_spent_copy(self) -> bool:
        """Whether it is a copy of the input that has come to its end and that nobody
        reads: losing it is no loss.
        """
        read = any(stream.open for stream in self.dealing.streams.values())
        return self.total is not None and not read and not outlives_host(self.definition)

    def add(self, made: e.Produced, now: float) -> None:
        """Takes a block that was made."""
        self.dealing.add(
            Portion(
                first=made.first,
                count=made.count,
                size=made.size,
                meta=made.meta,
                frames=made.frames,
                failure=made.failure,
                lane=made.lane,
            )
        )
        self.produced = max(self.produced, made.first + made.count)
        self.produced_bytes += made.size
        self.progress = now
        self.hungry = False

    def notice(self, event: e.Busy | e.Compressing) -> None:
        """Notes what is seen of its runner from outside."""
        if isinstance(event, e.Busy):
            self.busy, self.crumb = event.seconds, event.crumb
        else:
            self.compressed = event.compressed

    def reach(self, places: tuple[tuple[int, int], ...]) -> None:
        """Notes how far its sources have started on their ledgers."""
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
        """Works out how much may be made: ``room`` bytes ahead of clients; says whether
        that is news for its runner.

        While nobody reads it: a few elements more than there were when the last one
        left. Where tasks are read in turn, the ``neighbours``, so many of its iteration
        as are here, have as much together. How large its blocks are depends on how many
        bytes of memory each stream shares with who reads it.
        """
        if self.definition.num_consumers is not None:
            room //= max(1, neighbours)
        if self.definition.cache:
            # Nothing shall fall out of the window before the fastest reader had it.
            room = min(room, cache_bytes // 2)
        allowed = max(self.allowed, self.produced_bytes - self.dealing.ahead + room)
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
        """Makes no room for rounds that nobody waits for. Once all are made they hold
        up nobody, and are kept.
        """
        if self.total is None and isinstance(self.dealing, RoundRobin):
            self.dealing.skip(unwanted)

    def news_for(self, stream: Stream) -> m.Lineage | None:
        """What has to be pushed before the next message of a stream, counted as told;
        None when nothing has.

        Trainers that share a cache have no state: what they missed is never made again.
        """
        if self.definition.cache:
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
        )
        if news is None:
            return None
        stream.told = news[1]
        return news[0]

    def news_of_others(self, usable: Callable[[Stream], bool]) -> list[tuple[str, m.Lineage]]:
        """What clients are told who come late, or ask as somebody has left: else they
        know nothing of what he had.
        """
        if not self.produced and not self.definition.skip:
            return []
        asking = [one for one in self.dealing.streams.values() if usable(one) and one.is_asking]
        return [(one.client, news) for one in asking if (news := self.news_for(one)) is not None]

    def repeated(
        self, now: float, after: float
    ) -> list[m.RequestSplits | m.ElementsDecided | None]:
        """The asks that had no answer for so long, as they have to be sent again."""
        return [
            *(feed.repeated(now, after) for feed in self.feeds),
            self.agreement.repeated(now, after),
        ]

    def report(self, now: float) -> m.TaskReport:
        """What the dispatcher is told of it."""
        idle = 0.0 if self.total is not None else now - self.progress
        incomplete = self.incomplete or any(
            stream.lacking for stream in self.dealing.streams.values()
        )
        return m.TaskReport(
            *self.key,
            self.produced,
            self.total,
            idle,
            incomplete,
            self.skipped,
            self.dropped,
            self.failure,
            self.busy,
            self.crumb,
            self.left_out,
            self.compressed,
        )


def _replayed(definition: m.TaskDefinition) -> int:
    """How many elements, or rounds, clients have behind them that a new host makes
    again first.
    """
    return max(definition.skip[-1][1] if definition.skip else 0, min(definition.passed, default=0))
