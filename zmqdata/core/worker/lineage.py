"""The worker's side of in-band lineage: what a client must know of a task before its
next message.

Pure bookkeeping. ``core.worker.distribution`` pushes the lineage in time, and
``core.client.lineage`` keeps it.

Decisions 0015 and 0028; protocol 8.4a, 8.4b and 8.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker.ledger import SplitFeed
from zmqdata.decisions import Decisions

Held = e.Produced | e.StateNoted | e.Exhausted
"""Events that depend on all decisions made before them."""


@dataclass
class Agreement:
    """The durable decisions of a task, and the events that wait for other decisions to
    become durable.
    """

    kept: Decisions
    """The durable decisions, as of report ``version``."""
    growing: int
    """Number of the first decision in ``kept`` that may still grow."""
    version: int = 0
    """Number of the last acknowledged report."""
    ask: m.ElementsDecided | None = None
    """The report that was not acknowledged yet; None if there is none."""
    asked: float = 0.0
    """Time at which ``ask`` was last sent."""
    growing_then: int = 0
    """Value of ``growing`` after ``ask`` is acknowledged."""
    waiting: deque[Held | e.Decided] = field(default_factory=deque)
    """Events since ``ask``, in order."""

    @classmethod
    def of(cls, definition: m.TaskDefinition) -> Agreement:
        """Return the agreement that comes with a task."""
        kept = Decisions(list(definition.decisions), definition.first_decision)
        return cls(kept, kept.length)

    def overdue_report(self, now: float, after: float) -> m.ElementsDecided | None:
        """Return the report if it had no answer for ``after`` seconds and must be
        resent.
        """
        if self.ask is None or now - self.asked < after:
            return None
        self.asked = now
        return self.ask


@dataclass(frozen=True)
class KnownLineage:
    """The part of a task's lineage that a client knows."""

    places: tuple[tuple[int, int], ...]
    """For each source, the position up to which the client knows the ledger."""
    state: int
    """Number of the newest state that it knows."""
    version: int = 0
    """Number of the report of decisions that it knows."""
    growing: int = 0
    """Number of the first decision that may have grown since."""
    asks: int = 0
    """Number of the client's last request that was answered."""


def news_for(
    told: KnownLineage | None,
    definition: m.TaskDefinition,
    feeds: Sequence[SplitFeed],
    states: Sequence[m.TaskState],
    agreement: Agreement,
    asks: int = 0,
    upto: int = 0,
    written: m.JournalCounts | None = None,
) -> tuple[m.Lineage, KnownLineage] | None:
    """Return the lineage that a client does not know yet, and what it knows afterwards.
    Return None if it knows everything.

    Args:
        told: what the client knows. None at the start of its stream; it is then told
            everything.
        definition: the task.
        feeds: the ledgers of the task's sources.
        states: the newest states of the pipeline, oldest first, without those that came
            with the task.
        agreement: decisions of the task's operations.
        asks: number of times that the client has asked what others may have received.
        upto: all elements below this number were produced, by this host or an earlier
            one.
        written: what the dispatcher had written when it sent the newest splits.
    """
    places = tuple([feed.reached for feed in feeds])
    if told is None:
        known = (*definition.states, *states)
        first = tuple([feed.base for feed in feeds])
        decided = agreement.kept.base
    else:
        known = tuple([state for state in states if state.number > told.state])
        if not known and (places, agreement.version, asks) == (
            told.places,
            told.version,
            told.asks,
        ):
            return None
        first = tuple([at for at, _ in told.places])
        decided = told.growing if agreement.version != told.version else agreement.kept.length
        decided = max(decided, agreement.kept.base)
    ledger = tuple([feed.started(at) for feed, at in zip(feeds, first, strict=True)])
    newest = known[-1].number if known else (told.state if told is not None else 0)
    origin = _origin(definition) if told is None else None
    decisions = agreement.kept.since(decided)
    news = m.Lineage(
        0,
        definition.task,
        definition.attempt,
        bases=first,
        ledger=ledger,
        states=known,
        origin=origin,
        first_decision=decided,
        decisions=decisions,
        asks=asks,
        upto=upto,
        written=written,
    )
    return news, KnownLineage(places, newest, agreement.version, agreement.growing, asks)


def _origin(definition: m.TaskDefinition) -> m.Origin:
    shards = definition.num_shards
    shard = definition.shard if shards else None
    return m.Origin(
        index=definition.stream,
        seed=definition.seed,
        shard=shard,
        iteration_seed=definition.iteration_seed,
        num_shards=shards,
        delivered=definition.delivered,
        poisoned=definition.poisoned,
    )
