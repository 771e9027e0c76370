"""The client's side of lineage that travels in-band: what it knows of each task, and so
where its iteration stands.

Pure bookkeeping. What workers tell, and when, is ``core.worker.lineage``'s; what was
handed out is counted by ``core.client.tasks``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.ledger import Ledger, SpentSplits
from zmqdata.core.lineage import keep_needed, useful_states
from zmqdata.core.ranges import RangeSet
from zmqdata.decisions import Decisions
from zmqdata.splits import Split


@dataclass
class KeptTask:
    """What is known of a task. ``ledger`` holds entries that it has started, per
    source, the last one cut.

    ``decisions``: which elements its operations have left out, and which not.
    """

    origin: m.Origin
    ledger: list[Ledger]
    states: list[m.TaskState] = field(default_factory=list)
    total: int | None = None
    decisions: Decisions = field(default_factory=Decisions)


class LineageKept:
    """Where an iteration can be continued, as far as one client knows.

    Attributes:
        tasks: what is known of each.
        gone: per source, the splits that no task needs any more.
    """

    def __init__(self) -> None:
        self.tasks: dict[int, KeptTask] = {}
        self.gone: dict[int, SpentSplits] = {}

    def begin(self, sources: Sequence[m.SourcePart]) -> None:
        """Takes over which splits were used up before this client came."""
        for part in sources:
            self.gone.setdefault(part.source, SpentSplits()).restore(part.repetition, part.gone)

    def take(self, news: m.Lineage, delivered: RangeSet) -> bool:
        """Takes what a worker tells, and forgets what is not needed any more.

        Args:
            news: of one task.
            delivered: the elements of it that will not be made again.

        Returns:
            Whether nothing is missing: entries that nobody needs any more were given up
            before they were told here, and then only the dispatcher can say which
            splits these were.
        """
        task = self.tasks.get(news.task)
        if task is None:
            if news.origin is None:
                return True  # it can not be: a stream begins with everything
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
        # One that lacks something, taken while all was made again, does not replace one
        # that does not.
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
        """Puts what is known and what is told together; False when something between
        them may be missing.

        One of them may go further back, and one may go further. The last entry that is
        known was told as far as it was started: a host whose stream ``begins`` behind
        it does not say how much of it was started after that.
        """
        is_complete = first < ledger.length or (first == ledger.length and not (begins and first))
        if not entries:
            return is_complete
        if first > ledger.length:  # nobody needs what came before, or it would have been told
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
        """There is a task, of which nothing is needed to go on if nothing was told."""
        self.tasks.setdefault(task, KeptTask(origin, []))

    def end(self, task: int, total: int) -> None:
        """A task has come to its end."""
        if task in self.tasks:
            self.tasks[task].total = total

    def trim(self, task: int, delivered: RangeSet) -> None:
        """Forgets the states from which nothing will be made again, and the entries
        that none of the others needs.
        """
        kept = self.tasks[task]
        if not kept.states:
            return
        before = [(ledger.base, list(ledger.entries)) for ledger in kept.ledger]
        keep_needed(kept.states, kept.ledger, kept.decisions, delivered, is_cache=False)
        for source, (base, entries) in enumerate(before):
            self._count_gone(source, entries[: kept.ledger[source].base - base])

    def _count_gone(self, source: int, entries: Sequence[Split]) -> None:
        """Counts entries that leave a ledger."""
        for split in entries:
            self.gone.setdefault(source, SpentSplits()).add(split)

    def parts(
        self, delivered: Mapping[int, RangeSet], totals: Mapping[int, int]
    ) -> tuple[tuple[m.SourcePart, ...], tuple[m.TaskPart, ...]]:
        """What a checkpoint says of sources and tasks.

        Args:
            delivered: per task, the elements that training loops have had.
            totals: what is known besides of the ends of tasks.
        """
        sources = tuple(
            m.SourcePart(repetition, ranges.ranges, source)
            for source, gone in sorted(self.gone.items())
            for repetition, ranges in sorted(gone.repetitions.items())
        )
        tasks = [
            self._part(number, delivered.get(number, RangeSet()), totals.get(number, kept.total))
            for number, kept in self.tasks.items()
        ]
        return sources, tuple(sorted(tasks, key=lambda part: part.index))

    def _part(self, number: int, delivered: RangeSet, total: int | None) -> m.TaskPart:
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
        )

    def _states(
        self, kept: KeptTask, delivered: RangeSet, total: int | None
    ) -> tuple[m.TaskState, ...]:
        """Those that are of use; all where it takes what other clients know to tell."""
        if kept.states and delivered.covers(0, kept.states[0].number):
            return useful_states(kept.states, delivered, total)
        return tuple(kept.states)


def _is_complete(state: m.TaskState, task: KeptTask) -> bool:
    """Whether all that is needed to go on from a state is there."""
    if not state.number:
        return False  # whoever makes the first element next begins at the beginning
    splits = all(
        ledger.base <= need for ledger, need in zip(task.ledger, state.needs, strict=False)
    )
    return splits and task.decisions.base <= state.decisions
