"""The updates by which an interrupted iteration begins anew: they give a fresh
dispatcher's state the iteration's past.

Pure: validated checkpoints (``core.dispatcher.passes.checkpoints``) become updates.
``core.dispatcher.passes.incarnations`` decides when, and for which clients.

Decision 0020; protocol 3.12.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.passes.checkpoints import Past, informed, is_settled, joined, useful
from zmqdata.core.dispatcher.state.outbox import derived
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.job_rules import is_seeded
from zmqdata.core.ledger import MOST_REPETITIONS, Ledger, SplitCursor, cursor_of
from zmqdata.core.ranges import RangeSet
from zmqdata.core.rounds import rounds_before
from zmqdata.errors import InvalidArgumentError
from zmqdata.files.filenames import legible
from zmqdata.splits import ChunkSplits, IndexSplits, Split, SplitSource

OPEN_END = 1 << 53
"""End of a range of files whose number is unknown. The listing shortens the range."""


@dataclass(frozen=True)
class Beginning:
    """The dispatcher's contribution to the new incarnation."""

    job: m.JobParameters
    """Parameters of the job."""
    dataset: m.DatasetDescription
    """Description of its dataset."""
    incarnation: int
    """Number of the incarnation."""
    iteration: int
    """Number of the new iteration."""
    first_task: int
    """Number of its first task."""
    derive_seed: Callable[..., int]
    """Derives seeds for tasks that no reader knows."""
    drawn: tuple[int, int] = (0, 0)
    """Seed and number of static shards of the iteration, if no reader knows it."""

    @property
    def sources(self) -> tuple[SplitSource, ...]:
        """The sources whose splits are handed out."""
        return (self.dataset.sources or ()) if self.job.processing_mode == "DYNAMIC" else ()

    def seed_of(self, past: Past, index: int) -> int:
        """Return the seed of an unknown task; if seeds follow from the client's, the
        seed that it has had.
        """
        return (derived if is_seeded(past.job) else self.derive_seed)(past.seed, index)


def incarnation_of(checkpoints: Sequence[m.Checkpoint], new: Beginning) -> list[u.AnyUpdate]:
    """Return the updates that create an iteration which continues where its readers
    were, with no client and no host yet.

    Args:
        checkpoints: the checkpoints of all its readers.
        new: the dispatcher's contribution.

    Raises:
        InvalidArgumentError: the checkpoints contain invalid values.
        FailedPreconditionError: they are not of the same iteration.
        DataLossError: some elements cannot be made again from what is known.
    """
    past = joined(informed(checkpoints, new.drawn), new.sources)
    # The client's seed continues too, whatever seed this run of the program has.
    return list(
        _updates(past, replace(new, job=msgspec.structs.replace(new.job, seed=past.job.seed)))
    )


def _updates(past: Past, new: Beginning) -> Iterator[u.AnyUpdate]:
    number = new.iteration
    yield u.BeginIncarnationUpdate(new.incarnation, new.job)
    yield u.CreateIterationUpdate(
        number, new.incarnation, past.repetition, past.seed, past.num_shards
    )
    for (source, repetition), spent in sorted(past.spent.items()):
        yield u.RestoreSpentUpdate(number, source, repetition, spent.ranges)
    in_turn = {index for view in _views(past) for index, _ in view.tasks}
    indices = sorted(past.tasks.keys() | set(range(past.num_shards)) | in_turn)
    if _lacks_task(past, new):
        indices.append(max(indices, default=-1) + 1)
    numbers = {index: new.first_task + at for at, index in enumerate(indices)}
    delivered = _delivered(past)
    for index, task in numbers.items():
        known = past.tasks.get(index)
        if known is None:
            yield from _of_unknown(index, task, past, new)
        else:
            yield from _of_task(known, task, new, delivered[index])
            if past.over and not past.steps and not is_settled(known, delivered[index]):
                yield u.RemoveTaskUpdate(task)  # a copy that was lost with its worker
    yield from _cursors(past, new, numbers)
    if past.steps:
        yield _rounds(past, new, numbers, delivered)
    if past.num_shards or past.over or past.last is not None:
        yield u.CloseTaskListUpdate(number)


def _of_task(
    part: m.TaskPart, number: int, new: Beginning, delivered: RangeSet
) -> Iterator[u.AnyUpdate]:
    states = useful(part, delivered, new.job.name)
    yield u.CreateTaskUpdate(number, new.iteration, part.seed, part.shard, part.index)
    for source, (base, entries) in enumerate(zip(part.bases, part.ledger, strict=True)):
        yield u.RestoreLedgerUpdate(number, source, entries, 0, base)
    if part.first_decision or part.decisions:
        yield u.DecideUpdate(number, part.first_decision, part.decisions)
    for node, element in part.poisoned:
        yield u.PoisonUpdate(number, node, element, "was left out before this state was taken")
    for state in states:
        yield u.TakeStateUpdate(number, state)
    # After the states: a delivery forgets the ledger entries that no known state needs.
    if delivered:
        yield u.DeliverUpdate(number, delivered.ranges)
    if part.total is not None:
        yield u.EndTaskUpdate(number, part.total, part.rest)


def _of_unknown(index: int, number: int, past: Past, new: Beginning) -> Iterator[u.AnyUpdate]:
    """Yield the updates of a task from which no reader has had an element. It begins,
    or had no element when its turn was over.
    """
    shard = index if past.num_shards else None
    yield u.CreateTaskUpdate(number, new.iteration, new.seed_of(past, index), shard, index)
    if rounds_before(_views(past), index, past.horizon) or (past.over and past.steps):
        yield u.EndTaskUpdate(number, 0)


# --- where splits come from


def _lacks_task(past: Past, new: Beginning) -> bool:
    """Return True if splits are left that no task can take, because all known tasks
    were given the end of their repetition.
    """
    if past.num_shards:
        return False
    for source, described in enumerate(new.sources):
        cursor = _cursor(past, source, described, _spent(past, source))
        left = {split.repetition for split in cursor.returned}
        if cursor.remaining(cursor.repetition) != 0:
            left.add(cursor.repetition)
        ledgers = [
            Ledger(list(task.ledger[source])) for task in past.tasks.values() if task.total is None
        ]
        if any(all(ledger.ends(one) for ledger in ledgers) for one in left):
            return True
    return False


def _spent(past: Past, source: int) -> dict[int, RangeSet]:
    return {repetition: ranges for (at, repetition), ranges in past.spent.items() if at == source}


def _cursors(past: Past, new: Beginning, numbers: dict[int, int]) -> Iterator[u.AnyUpdate]:
    for source, described in enumerate(new.sources):
        spent = _spent(past, source)
        if past.job.num_tasks is None:
            one = _cursor(past, source, described, spent)
            yield u.RestoreCursorUpdate(
                new.iteration, source, one.repetition, one.next, tuple(one.returned)
            )
            continue
        for index, task in numbers.items():
            part = past.tasks.get(index)
            entries = part.ledger[source] if part is not None else ()
            repetition, following = own_place(index, past.num_shards, spent, entries)
            yield u.RestoreCursorUpdate(new.iteration, source, repetition, following, (), task)


def _cursor(
    past: Past, source: int, described: SplitSource, spent: dict[int, RangeSet]
) -> SplitCursor:
    """Return the position of the iteration in a source. It includes the splits before
    that position that no task has.
    """
    taken = {repetition: ranges.copy() for repetition, ranges in spent.items()}
    over = -1
    for task in past.tasks.values():
        for split in task.ledger[source]:
            # The end mark of a repetition shows that all its splits were handed out,
            # even if the tasks that had them are unknown.
            ranges = taken.setdefault(split.repetition, RangeSet())
            if split.is_end:
                over = max(over, split.repetition)
            else:
                ranges.add(split.start, split.stop)
    repetition = max(taken, default=0)
    cursor = cursor_of(described)
    if isinstance(described, ChunkSplits):
        # The next look into the folder finds the chunks that no task has.
        cursor.restore(repetition, 0, ())
        return cursor
    count = described.count if isinstance(described, IndexSplits) else OPEN_END
    following = taken[repetition].ranges[-1][1] if taken.get(repetition) else 0
    if over == repetition and count is not None:
        following = count
    returned = []
    oldest = _oldest(spent)
    standing = sorted(earlier for earlier in spent if earlier < oldest)
    for earlier in (*standing, *range(oldest, repetition + 1)):
        stop = following if earlier == repetition or count is None else count
        gaps = taken.get(earlier, RangeSet()).missing(0, stop)
        returned += [Split(earlier, first, end) for first, end in gaps]
    cursor.restore(repetition, following, returned)
    return cursor


def _oldest(spent: dict[int, RangeSet]) -> int:
    """Return the oldest repetition of which everything is known. An unmentioned split
    of it was not started, or only by a task from which no reader has had an element.

    The used-up splits of older repetitions are forgotten. If a task still held splits
    of one, the repetition is mentioned as a whole.
    """
    newest = sorted(spent)[-MOST_REPETITIONS:]
    return newest[0] if len(newest) == MOST_REPETITIONS else 0


def own_place(
    index: int, step: int, spent: dict[int, RangeSet], entries: Iterable[Split]
) -> tuple[int, int]:
    """Return the repetition and the next split of a task that has each ``step``-th
    split.

    >>> own_place(1, 4, {0: RangeSet([(5, 6)])}, [Split(0, 9, 14, step=4)])
    (0, 17)
    >>> own_place(2, 4, {}, [])
    (0, 2)
    """
    places: dict[int, int] = {}
    for repetition, ranges in spent.items():
        for first, stop in ranges:
            last = stop - 1 - (stop - 1 - index) % step
            if last >= first:
                places[repetition] = last + step
    for split in entries:
        if not split.is_end:
            following = split.start + split.size * step
            places[split.repetition] = max(following, places.get(split.repetition, 0))
    repetition = max(places, default=0)
    return repetition, places.get(repetition, index)


def changed_files(iteration: Iteration, source: int, repetition: int, names: Sequence[str]) -> str:
    """Return how a new listing of files differs from the files that tasks were given
    before; "" if it does not.
    """
    for task in iteration.tasks.values():
        for split in task.ledger[source].entries:
            now = tuple(names[split.start : split.stop : split.step])
            if split.repetition == repetition and split.names and split.names != now:
                return (
                    f"The files of job {iteration.job.name} have changed since its "
                    f"state was taken: the files from number {split.start} on were "
                    f"{', '.join(map(legible, split.names[:3]))}, now they are "
                    f"{', '.join(map(legible, now[:3])) or 'none'}. Restore the files, or start "
                    "reading them from the beginning."
                )
    return ""


# --- steps


def _delivered(past: Past) -> dict[int, RangeSet]:
    """Return the elements of each task that need not be made again: with numbered
    consumers, the rounds that all of them have passed.
    """
    delivered = {index: RangeSet(_without_rest(task)) for index, task in past.tasks.items()}
    lowest = min(past.steps.values(), default=0)
    views = _views(past)
    for index in {index for view in views for index, _ in view.tasks} & past.tasks.keys():
        rounds, part = rounds_before(views, index, lowest), past.tasks[index]
        had = rounds if part.total is None else min(rounds, part.total - (part.rest > 0))
        delivered[index] = RangeSet([(0, had)])
    for index, part in past.tasks.items():
        if past.over and past.steps and part.total is not None:
            delivered[index] = RangeSet([(0, part.total)])
    return delivered


def _without_rest(part: m.TaskPart) -> m.Ranges:
    """Return what was delivered of a task without its rest, of which a consumer that
    has read to the end knows, and others may lack their elements.
    """
    if part.total is None or not part.rest:
        return part.delivered
    full = part.total - 1
    return tuple([(first, min(stop, full)) for first, stop in part.delivered if first < full])


def _views(past: Past) -> tuple[m.View, ...]:
    """Return the views up to the horizon. Later views are planned anew.

    If no checkpoint has these views, the view that begins at that step tells how many
    rounds its tasks have had.
    """
    horizon = past.horizon
    begun = [first for first in sorted(past.views) if first < horizon]
    if not begun and horizon in past.views and (horizon or past.over):
        begun.append(horizon)
    return tuple([past.views[first] for first in begun])


def _rounds(
    past: Past, new: Beginning, numbers: dict[int, int], delivered: dict[int, RangeSet]
) -> u.AnyUpdate:
    views, steps = _views(past), tuple([past.steps[consumer] for consumer in sorted(past.steps)])
    in_turn = [(view.first_step, view.tasks) for view in views]
    if past.horizon and (not views or views[0].first_step > min(steps)):
        raise InvalidArgumentError(
            f"The states of the consumers of job {new.job.name} do not tell which "
            f"tasks take turns from step {min(steps)} on. Take the states of all "
            "consumers at the same step."
        )
    known = {index for _, tasks in in_turn for index, _ in tasks}
    known |= {
        index
        for index, task in past.tasks.items()
        if task.total and delivered[index].covers(0, task.total - (task.rest > 0))
    }
    renumbered = [
        m.View(first, tuple([(numbers[index], at) for index, at in tasks]))
        for first, tasks in in_turn
    ]
    tasks = tuple(sorted(numbers[index] for index in known))
    # The last rounds begin at the horizon.
    horizon = past.horizon if past.last is None else past.last
    return u.RestoreRoundsUpdate(new.iteration, steps, tuple(renumbered), horizon, tasks)


def used_up(iteration: Iteration) -> tuple[m.SourcePart, ...]:
    """Return the splits of which no element will be made again: splits of settled
    tasks and splits that every ledger has dropped.
    """
    found: list[m.SourcePart] = []
    for source, cursor in enumerate(iteration.cursors):
        spent = copy.deepcopy(iteration.spent[source])
        held: list[Split] = []
        for task in iteration.tasks.values():
            if not task.settled:
                held += task.ledger[source].entries
                continue
            for split in task.ledger[source].entries:
                spent.add(split)
        found += [
            m.SourcePart(repetition, ranges.ranges, source)
            for repetition, ranges in spent.repetitions.items()
        ]
        if len(spent.repetitions) >= MOST_REPETITIONS:
            described = cursor.source
            count = described.count if isinstance(described, IndexSplits) else None
            found += _old_parts(source, held, min(spent.repetitions), count or OPEN_END)
    return tuple(found)


def _old_parts(
    source: int, held: Iterable[Split], oldest: int, count: int
) -> Iterator[m.SourcePart]:
    """Yield what is used up of the repetitions before ``oldest``, whose used-up splits
    are forgotten: of their ``count`` splits, all that no task holds. A task that has
    stood still meanwhile may hold some.
    """
    old: dict[int, RangeSet] = {}
    for split in held:
        if split.repetition < oldest and split.step == 1 and not split.is_end:
            old.setdefault(split.repetition, RangeSet()).add(split.start, split.stop)
    for repetition, ranges in old.items():
        yield m.SourcePart(repetition, tuple(ranges.missing(0, count)), source)
