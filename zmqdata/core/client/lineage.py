"""The client's side of in-band lineage: what it knows of each task, and therefore where
its iteration is.

Pure bookkeeping. ``core.worker.lineage`` decides what workers send, and when.
``core.client.tasks`` counts what was handed out.

Decisions 0015, 0019 and 0028; protocol 8.4, 8.4b and 8.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from zmqdata import messages as m
from zmqdata.core.ledger import Ledger, SpentSplits
from zmqdata.core.lineage import keep_needed, useful_states
from zmqdata.core.ranges import RangeSet
from zmqdata.decisions import Decisions
from zmqdata.splits import Split


@dataclass
class KeptTask:
    """The known lineage of a task."""

    origin: m.Origin
    """Index, seeds and shard of the task."""
    ledger: list[Ledger]
    """Started entries per source. The last entry is cut where the task has got to."""
    states: list[m.TaskState] = field(default_factory=list)
    """States of its pipeline, by ascending number."""
    total: int | None = None
    """Number of its elements, or None if unknown."""
    decisions: Decisions = field(default_factory=Decisions)
    """Decisions of its operations to skip elements or not."""


class LineageKept:
    """A client's knowledge of where its iteration can be continued.

    Attributes:
        tasks: known lineage of each task.
        gone: splits per source that no task needs any more.
    """

    def __init__(self) -> None:
        self.tasks: dict[int, KeptTask] = {}
        self.gone: dict[int, SpentSplits] = {}

    def begin(self, sources: Sequence[m.SourcePart]) -> None:
        """Take the splits that were used up before this client joined."""
        for part in sources:
            self.gone.setdefault(part.source, SpentSplits()).restore(part.repetition, part.gone)

    def receive(self, news: m.Lineage, delivered: RangeSet) -> bool:
        """Store the lineage that a worker sends, and forget what is no longer needed.

        Args:
            news: lineage of a task.
            delivered: elements of the task that will not be produced again.

        Returns:
            True if nothing is missing. False if entries were forgotten as no longer
            needed before this client learnt of them. Only the dispatcher can then say
            which splits these were.
        """
        task = self.tasks.get(news.task)
        if task is None:
            if news.origin is None:
                return True  # impossible: a stream begins with all of its lineage
            ledger = [
                Ledger(list(entries), base)
                for base, entries in zip(news.bases, news.ledger, strict=False)
            ]
            task = self.tasks[news.task] = KeptTask(news.origin, ledger)
            is_complete = not any(news.bases)
        else:
            begins = news.origin is not None
            told = enumerate(zip(task.ledger, news.bases, news.ledger, strict=False))
            joined = [
                self._join(source, ledger, first, entries, begins=begins)
                for source, (ledger, first, entries) in told
            ]
            is_complete = all(joined)
        if news.origin is not None:
            task.origin = news.origin
        task.decisions.take(news.first_decision, news.decisions)
        # An incomplete state, taken while everything was computed again, does not
        # replace a complete one.
        known = {
            state.number: state
            for state in (*task.states, *news.states)
            if _is_complete(state, task)
        }
        task.states = [known[number] for number in sorted(known)]
        self.trim(news.task, delivered)
        return is_complete

    def _join(
        self, source: int, ledger: Ledger, first: int, entries: Sequence[Split], *, begins: bool
    ) -> bool:
        """Merge the known ledger of a source with the received entries.

        Either may begin earlier, and either may end later. The last known entry was
        sent as far as it was started. A host whose stream begins after that entry
        (``begins``) does not say how much of it was started later.

        Returns:
            False if entries between the two may be missing.
        """
        is_complete = first < ledger.length or (first == ledger.length and not (begins and first))
        if not entries:
            return is_complete
        if first > ledger.length:  # the gap is not needed, or it would have been sent
            self._count_gone(source, ledger.entries)
            ledger.entries, ledger.base = list(entries), first
            return is_complete
        both = min(ledger.length, first + len(entries)) - 1
        if both >= max(first, ledger.base):
            ledger.entries[both - ledger.base] = max(
                ledger.entries[both - ledger.base],
                entries[both - first],
                key=lambda split: split.stop,
            )
        ledger.entries += entries[ledger.length - first :]
        if first < ledger.base:
            ledger.entries[:0] = entries[: ledger.base - first]
            ledger.base = first
        return is_complete

    def know(self, task: int, origin: m.Origin) -> None:
        """Register a task. If no lineage of it has arrived, nothing is needed to
        continue it.
        """
        self.tasks.setdefault(task, KeptTask(origin, []))

    def end(self, task: int, total: int) -> None:
        """Record the number of elements of a task that has ended."""
        if task in self.tasks:
            self.tasks[task].total = total

    def trim(self, task: int, delivered: RangeSet) -> None:
        """Forget the states from which nothing will be computed again, and the entries
        that no other state needs.
        """
        kept = self.tasks[task]
        if not kept.states:
            return
        before = [(ledger.base, list(ledger.entries)) for ledger in kept.ledger]
        keep_needed(kept.states, kept.ledger, kept.decisions, delivered, is_cache=False)
        for source, (base, entries) in enumerate(before):
            self._count_gone(source, entries[: kept.ledger[source].base - base])

    def _count_gone(self, source: int, entries: Sequence[Split]) -> None:
        """Record entries that leave a ledger."""
        for split in entries:
            self.gone.setdefault(source, SpentSplits()).add(split)

    def parts(
        self,
        delivered: Mapping[int, RangeSet],
        totals: Mapping[int, int],
        rests: Mapping[int, int] = MappingProxyType({}),
    ) -> tuple[tuple[m.SourcePart, ...], tuple[m.TaskPart, ...]]:
        """Return what a checkpoint contains about sources and tasks.

        Args:
            delivered: elements per task that training loops have received.
            totals: further known totals of tasks.
            rests: number of elements after the last full round of each task that has
                any.
        """
        sources = tuple(
            m.SourcePart(repetition, ranges.ranges, source)
            for source, gone in sorted(self.gone.items())
            for repetition, ranges in sorted(gone.repetitions.items())
        )
        tasks = [
            self._part(
                number,
                delivered.get(number, RangeSet()),
                totals.get(number, kept.total),
                rests.get(number, 0),
            )
            for number, kept in self.tasks.items()
        ]
        return sources, tuple(sorted(tasks, key=lambda part: part.index))

    def _part(self, number: int, delivered: RangeSet, total: int | None, rest: int) -> m.TaskPart:
        kept = self.tasks[number]
        return m.TaskPart(
            index=kept.origin.index,
            seed=kept.origin.seed,
            shard=kept.origin.shard,
            bases=tuple([ledger.base for ledger in kept.ledger]),
            ledger=tuple([tuple(ledger.entries) for ledger in kept.ledger]),
            states=self._states(kept, delivered, total),
            delivered=delivered.ranges,
            total=total,
            first_decision=kept.decisions.base,
            decisions=tuple(kept.decisions.entries),
            poisoned=kept.origin.poisoned,
            rest=0 if total is None else rest,
        )

    def _states(
        self, kept: KeptTask, delivered: RangeSet, total: int | None
    ) -> tuple[m.TaskState, ...]:
        """Return the useful states, or all states if the knowledge of other clients
        decides which are useful.
        """
        if kept.states and delivered.covers(0, kept.states[0].number):
            return useful_states(kept.states, delivered, total)
        return tuple(kept.states)


def _is_complete(state: m.TaskState, task: KeptTask) -> bool:
    """True if everything needed to continue from a state is known."""
    if not state.number:
        return False  # a state before the first element is not needed: the task then starts anew
    splits = all(
        ledger.base <= need for ledger, need in zip(task.ledger, state.needs, strict=False)
    )
    return splits and task.decisions.base <= state.decisions
