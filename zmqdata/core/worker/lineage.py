"""The worker's side of lineage that travels in-band: what a client must be told of a
task before its next message.

Pure bookkeeping; that it is pushed in time is the worker core's affair, what clients
keep is ``core.client.lineage``'s.
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
    """The decisions of a task that are durable, and what waits for those that are not.

    ``kept``: the durable ones, as answer number ``version`` has made them; those from
    number ``growing`` on may still grow. ``ask``: the one that has no answer, last sent
    at ``asked``, after which those from ``growing_then`` on may. ``waiting``: what came
    since, in order.
    """

    kept: Decisions
    growing: int
    version: int = 0
    ask: m.ElementsDecided | None = None
    asked: float = 0.0
    growing_then: int = 0
    waiting: deque[Held | e.Decided] = field(default_factory=deque)

    @classmethod
    def of(cls, definition: m.TaskDefinition) -> Agreement:
        """What comes with a task."""
        kept = Decisions(list(definition.decisions), definition.first_decision)
        return cls(kept, kept.length)

    def repeated(self, now: float, after: float) -> m.ElementsDecided | None:
        """The ask that had no answer for so long, as it has to be sent again."""
        if self.ask is None or now - self.asked < after:
            return None
        self.asked = now
        return self.ask


@dataclass(frozen=True)
class KnownLineage:
    """How much a client knows: per source how far its ledger was started, and the
    number of the newest state.

    ``asks``: the newest ask of the client that was answered. ``version``: of the
    decisions, of which those from number ``growing`` on may have grown since.
    """

    places: tuple[tuple[int, int], ...]
    state: int
    version: int = 0
    growing: int = 0
    asks: int = 0


def news_for(
    told: KnownLineage | None,
    definition: m.TaskDefinition,
    feeds: Sequence[SplitFeed],
    states: Sequence[m.TaskState],
    agreement: Agreement,
    asks: int = 0,
    upto: int = 0,
) -> tuple[m.Lineage, KnownLineage] | None:
    """What a client has not been told yet, and how much it knows then; None when it
    knows all.

    Args:
        told: how much it knows, None when its stream begins: then it is told
            everything.
        definition: the task.
        feeds: the ledgers of its sources.
        states: the newest places where its pipeline was, oldest first, without those
            that came with it.
        agreement: what its operations have decided.
        asks: how often the client has asked for what others may have had.
        upto: all elements below were made, by this host or one before.
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
