"""Validation of the checkpoints that clients bring, and their combination.

A client may bring anything. No accepted checkpoint may break the dispatcher or name a
split twice. ``passes.resuming`` turns checkpoints into an iteration.
``passes.incarnations`` tracks which client brings which checkpoint, and when all are
present.

Decision 0020; protocol 3.12.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.job_rules import UNSPLIT, is_copied
from zmqdata.core.limits import MOST_CHECKPOINT_BYTES
from zmqdata.core.lineage import MOST_STATE_BYTES
from zmqdata.core.ranges import RangeSet
from zmqdata.core.rounds import rounds_before
from zmqdata.decisions import Decisions
from zmqdata.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from zmqdata.messages.identity import Fingerprint
from zmqdata.messages.parts import MOST_NUMBER
from zmqdata.printable import shown_size
from zmqdata.splits import (
    FIRST_CHUNK,
    ChunkSplits,
    FileSplits,
    IndexSplits,
    Split,
    SplitSource,
    chunk_number,
)

MOST_TOLD_TASKS = 10_000
"""Maximum number of tasks in a checkpoint."""
MOST_PART = 64
"""Maximum number of characters in the id of the reader that saved a checkpoint."""


@dataclass
class Past:
    """The known past of an interrupted iteration."""

    job: m.JobParameters
    """Parameters of the job."""
    repetition: int
    """Repetition of the job."""
    seed: int
    """Seed of the iteration."""
    num_shards: int
    """Number of shards; 0 if the tasks are not static."""
    spent: dict[tuple[int, int], RangeSet] = field(default_factory=dict)
    """Used-up splits by source and repetition."""
    tasks: dict[int, m.TaskPart] = field(default_factory=dict)
    """Tasks by index."""
    steps: dict[int, int] = field(default_factory=dict)
    """Step by consumer index, in coordinated reads."""
    horizon: int = 0
    """Step up to which the rounds must come again, in coordinated reads: the most
    advanced consumer has had elements up to there.
    """
    views: dict[int, m.View] = field(default_factory=dict)
    """Views by their first step, in coordinated reads."""
    over: bool = False
    """True if nothing was to come: for numbered consumers, or of copies of the
    input.
    """
    last: int | None = None
    """Step at which the last rounds begin, if a consumer has passed any of them."""


def read_checkpoint(ask: m.OpenIteration, dataset: m.DatasetDescription) -> m.Checkpoint:
    """Return the checkpoint that a request brings, if it fits the request.

    Raises:
        DataLossError: it is damaged.
        InvalidArgumentError: it is no checkpoint, has another version, or belongs to a
            job with other parameters.
        FailedPreconditionError: it belongs to another pipeline.
    """
    if len(ask.resume) > MOST_CHECKPOINT_BYTES:
        raise InvalidArgumentError(
            f"The state to resume from has {shown_size(len(ask.resume))}, more than "
            f"{shown_size(MOST_CHECKPOINT_BYTES)}. States of shuffles over many "
            "large elements are large: use a smaller buffer_size."
        )
    checkpoint = m.decode_checkpoint(ask.resume)
    _require(len(checkpoint.part) <= MOST_PART, "the name of the reader")
    _compare(checkpoint, ask, dataset)
    return checkpoint


def _compare(checkpoint: m.Checkpoint, ask: m.OpenIteration, dataset: m.DatasetDescription) -> None:
    expected = checkpoint.job.fingerprint or dataset.fingerprint
    before = Fingerprint.parse(checkpoint.fingerprint or expected)
    now = Fingerprint.parse(dataset.fingerprint)
    if before.is_other(now):
        raise FailedPreconditionError(
            "The state belongs to another pipeline: it was taken from a pipeline "
            f"with fingerprint {before.structure[:24]}, this one has {now.structure[:24]}. Load "
            "it with the dataset that it was taken from: the same operations and parameters."
        )
    one, other = checkpoint.job, ask.job
    pairs = [
        ("processing_mode", one.processing_mode, other.processing_mode),
        ("num_consumers", one.num_consumers, other.num_consumers),
        ("consumer_index", checkpoint.reader.consumer_index, ask.reader.consumer_index),
        ("num_tasks", one.num_tasks, other.num_tasks),
        ("finite", one.finite, other.finite),
    ]
    told = [f"{name} was {then}, is {now}" for name, then, now in pairs if then != now]
    if told:
        raise InvalidArgumentError(
            f"The state was taken from a job with other parameters: {'; '.join(told)}."
        )
    if one.cache or other.cache:
        raise InvalidArgumentError(
            "A job with a cross-trainer cache cannot resume from a state, because "
            "trainers share the cache."
        )


# --- what several say together


def informed(checkpoints: Sequence[m.Checkpoint], drawn: tuple[int, int]) -> list[m.Checkpoint]:
    """Return checkpoints that all name the iteration, those that knew it first. The
    others were taken before the dispatcher had let their client in: at its first
    element.

    Args:
        checkpoints: the checkpoint of each client; never empty.
        drawn: seed and number of static shards of an iteration that none of them knows.
    """
    begun = [one for one in checkpoints if one.fingerprint]
    known = max(begun or checkpoints, key=lambda one: one.repetition)
    seed, num_shards = (known.seed, known.num_shards) if begun else drawn
    return begun + [
        m.Checkpoint(
            version=one.version,
            job=known.job,
            fingerprint="",
            # A consumer in a later repetition has had the one that the others are in.
            repetition=max(one.repetition, known.repetition),
            seed=seed,
            num_shards=num_shards,
            reader=one.reader,
            part=one.part,
            parts=(),
            sources=(),
            tasks=(),
        )
        for one in checkpoints
        if not one.fingerprint
    ]


def joined(checkpoints: Sequence[m.Checkpoint], sources: Sequence[SplitSource]) -> Past:
    """Return the combined past that the checkpoints of all clients of an iteration
    describe.

    Args:
        checkpoints: the checkpoint of each client; never empty.
        sources: the sources of the dataset, if its splits are handed out.

    Raises:
        InvalidArgumentError: they contain invalid values.
        FailedPreconditionError: they are not of the same iteration.
        DataLossError: they were taken so far apart that what lies between is unknown.
    """
    first = checkpoints[0]
    past = Past(first.job, first.repetition, first.seed, first.num_shards)
    is_countable = is_copied(first.job) or first.job.num_consumers is not None
    past.over = is_countable and all(one.over for one in checkpoints)
    for one in checkpoints:
        if (one.seed, one.num_shards, one.repetition) != (
            past.seed,
            past.num_shards,
            past.repetition,
        ):
            raise FailedPreconditionError(
                f"The states of the readers of job {past.job.name} are not of the "
                "same iteration. Load states that were taken together."
            )
        _add(past, one, len(sources))
    past.views = {first: _indexed(view, past.job) for first, view in past.views.items()}
    _check(past, sources)
    _end_empty_tasks(past, checkpoints)
    if past.steps and min(past.steps.values()) < max(past.steps.values()):
        _check_between(past, sorted(checkpoints, key=lambda one: one.step))
    return past


def _end_empty_tasks(past: Past, checkpoints: Sequence[m.Checkpoint]) -> None:
    """Record as empty the tasks of which a consumer has passed a round without knowing
    them.

    A task that ends without an element leaves the list at once, so a consumer that is
    ahead may have forgotten it while the others do not know its end yet. A task with
    elements stays known until all consumers have passed them.
    """
    views = [past.views[first] for first in sorted(past.views)]
    for one in checkpoints:
        known = {part.index for part in one.tasks}
        for index, part in past.tasks.items():
            if (
                part.total is None
                and index not in known
                and rounds_before(views, index, one.reached)
            ):
                past.tasks[index] = structs.replace(part, total=0)


def _add(past: Past, one: m.Checkpoint, num_sources: int) -> None:
    _require(len(one.tasks) <= MOST_TOLD_TASKS, "the number of tasks")
    for part in one.sources:
        _require(0 <= part.source < num_sources and 0 <= part.repetition <= MOST_NUMBER, "a source")
        _check_ranges(part.gone)
        past.spent.setdefault((part.source, part.repetition), RangeSet()).update(part.gone)
    for task in one.tasks:
        _check_shape(task, num_sources)
        known = past.tasks.get(task.index)
        past.tasks[task.index] = task if known is None else _both(known, task, past)
    if one.reader.consumer_index is not None:
        _require(0 <= one.step <= MOST_NUMBER and 0 <= one.ahead <= MOST_NUMBER, "a step")
        past.steps[one.reader.consumer_index] = one.step
        past.horizon = max(past.horizon, one.reached)
        if one.last is not None:
            _require(
                0 <= one.last < one.reached and past.last in (None, one.last), "the last rounds"
            )
            past.last = one.last
        for view in one.views:
            past.views[view.first_step] = _both_views(past.views.get(view.first_step, view), view)


def _both(one: m.TaskPart, other: m.TaskPart, past: Past) -> m.TaskPart:
    """Combine what two clients know of a task. Their knowledge may begin and end at
    different places.
    """
    totals = {total for total in (one.total, other.total) if total is not None}
    same = (one.seed, one.shard) == (other.seed, other.shard) and len(totals) < 2
    if None not in (one.total, other.total):
        same = same and one.rest == other.rest
    _require(same, f"the combination of two states of task {one.index}")
    ledgers = [
        _both_ledgers(
            (one.bases[at], one.ledger[at]), (other.bases[at], other.ledger[at]), past, at
        )
        for at in range(len(one.bases))
    ]
    states = {state.number: state for state in (*one.states, *other.states)}
    delivered = RangeSet(one.delivered)
    delivered.update(other.delivered)
    decisions = Decisions(list(one.decisions), one.first_decision)
    decisions.take(other.first_decision, other.decisions)
    return m.TaskPart(
        one.index,
        one.seed,
        one.shard,
        tuple([base for base, _ in ledgers]),
        tuple([entries for _, entries in ledgers]),
        tuple([states[number] for number in sorted(states)]),
        delivered.ranges,
        max(totals, default=None),
        decisions.base,
        tuple(decisions.entries),
        tuple(sorted({*one.poisoned, *other.poisoned})),
        max(one.rest, other.rest),
    )


def _both_views(one: m.View, other: m.View) -> m.View:
    """Combine what two consumers know of a view. A consumer that came late does not
    know the tasks that had ended.
    """
    _require(
        one.tasks != () and len(one.tasks) == len(other.tasks) <= MOST_TOLD_TASKS,
        "the turns of tasks",
    )
    tasks = []
    for (index, at), (same, there) in zip(one.tasks, other.tasks, strict=True):
        fits = -1 in (index, same) or index == same
        sane = (
            -1 <= index < MOST_TOLD_TASKS
            and -1 <= same < MOST_TOLD_TASKS
            and 0 <= at <= MOST_NUMBER
        )
        _require(
            fits and sane and at == there and 0 <= one.first_step <= MOST_NUMBER,
            "the turns of tasks",
        )
        tasks.append((max(index, same), at))
    return m.View(one.first_step, tuple(tasks))


def _indexed(view: m.View, job: m.JobParameters) -> m.View:
    """Return a view in which unknown tasks have indices. With a fixed number of tasks,
    their order is known; otherwise unknown tasks get indices of their own.
    """
    base = 0 if job.num_tasks is not None else MOST_TOLD_TASKS
    tasks = [
        (base + place if index < 0 else index, at) for place, (index, at) in enumerate(view.tasks)
    ]
    return m.View(view.first_step, tuple(tasks))


Known = tuple[int, tuple[Split, ...]]


def _both_ledgers(one: Known, other: Known, past: Past, source: int) -> Known:
    (base, entries), (later, news) = sorted((one, other), key=lambda known: known[0])
    if later > base + len(entries):
        # A client forgets entries only if no client needs them.
        for split in entries:
            if not split.is_end:
                past.spent.setdefault((source, split.repetition), RangeSet()).add(
                    split.start, split.stop
                )
        return later, news
    merged = list(entries)
    for at, split in enumerate(news, later - base):
        if at == len(merged):
            merged.append(split)
            continue
        known = merged[at]
        place = (known.repetition, known.start, known.step, known.is_end)
        _require(
            place == (split.repetition, split.start, split.step, split.is_end),
            "the combination of two ledgers of a task",
        )
        merged[at] = max(known, split, key=lambda entry: entry.stop)
    return base, tuple(merged)


# --- what is invalid


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvalidArgumentError(
            f"The state to resume from is damaged, or was not made by zmqdata: {what} is invalid."
        )


def _check_ranges(ranges: Iterable[tuple[int, int]]) -> None:
    end = -1
    for first, stop in ranges:
        _require(end < first < stop <= MOST_NUMBER, "a range")
        end = stop


def _check_shape(task: m.TaskPart, num_sources: int) -> None:
    _require(0 <= task.index < MOST_TOLD_TASKS and 0 <= task.seed < 1 << 64, "a task")
    _require(len(task.ledger) == len(task.bases) == num_sources, "the number of sources")
    _require(all(0 <= base <= MOST_NUMBER for base in task.bases), "the beginning of a ledger")
    _require(task.total is None or 0 <= task.total <= MOST_NUMBER, "a total")
    _check_ranges(task.delivered)
    _require(0 <= task.first_decision <= MOST_NUMBER, "the number of a decision")
    for decision in task.decisions:
        _require(0 <= decision.first <= decision.stop <= MOST_NUMBER, "a decision")
    _require(all(0 <= number <= MOST_NUMBER for _, number in task.poisoned), "a left-out element")
    stop = task.delivered[-1][1] if task.delivered else 0
    _require(task.total is None or stop <= task.total, "a delivered range")


def _check(past: Past, sources: Sequence[SplitSource]) -> None:
    shards = range(past.num_shards)
    _require(
        0 <= past.num_shards <= MOST_TOLD_TASKS and 0 <= past.seed < 1 << 64, "the number of parts"
    )
    num_tasks = past.job.num_tasks
    _require(num_tasks is None or num_tasks == past.num_shards, "the number of tasks")
    static = num_tasks is not None or past.job.processing_mode not in UNSPLIT
    _require(static == bool(past.num_shards), "the number of parts")
    for task in past.tasks.values():
        _require(
            task.shard == task.index and task.index in shards if static else task.shard is None,
            "a part",
        )
        most = (past.job.num_consumers or 1) - 1 if task.total else 0
        _require(0 <= task.rest <= most, "the number of elements after the last full round")
        _check_states(task)
    for source, one in enumerate(sources):
        _check_splits(past, source, one, num_tasks or 1)


def _check_states(task: m.TaskPart) -> None:
    number = -1
    lengths = [base + len(entries) for base, entries in zip(task.bases, task.ledger, strict=True)]
    for state in task.states:
        _require(
            number < state.number <= (MOST_NUMBER if task.total is None else task.total),
            "the place of a state",
        )
        _require(
            len(state.needs) == len(lengths) and len(state.content) <= MOST_STATE_BYTES, "a state"
        )
        _require(
            all(0 <= need <= length for need, length in zip(state.needs, lengths, strict=True)),
            "a state's needs",
        )
        _require(
            0 <= state.decisions <= task.first_decision + len(task.decisions), "a state's needs"
        )
        number = state.number


def _check_splits(past: Past, source: int, described: SplitSource, step: int) -> None:
    """Require that no split is in two places, and that all are splits of the source."""
    count = (
        described.count
        if isinstance(described, IndexSplits) and described.count is not None
        else MOST_NUMBER
    )
    _check_kind(past, source, described)
    found: dict[int, list[Split]] = {}
    for task in past.tasks.values():
        repetition = 0
        for split in task.ledger[source]:
            _require(repetition <= split.repetition <= MOST_NUMBER, "the order of a ledger")
            repetition = split.repetition
            _require(
                0 <= split.start <= split.stop <= (MOST_NUMBER if split.is_end else count),
                "a split",
            )
            if split.is_end:
                continue
            mine = step == 1 or split.start % step == task.index
            _require(split.step == step and mine and _is_named(split, described), "a split")
            found.setdefault(repetition, []).append(split)
    for (at, _), spent in past.spent.items():
        _require(at != source or not spent or spent.ranges[-1][1] <= count, "a split")
    if step == 1:
        for splits in found.values():
            splits.sort(key=lambda split: split.start)
            apart = all(one.stop <= two.start for one, two in itertools.pairwise(splits))
            _require(apart, "a split that two tasks have")


def _check_kind(past: Past, source: int, described: SplitSource) -> None:
    """Raise if a state of ``load(wait=True)`` is loaded without ``wait``, or the
    reverse.
    """
    is_growing = isinstance(described, ChunkSplits)
    if not is_growing and not (isinstance(described, IndexSplits) and described.count):
        return
    splits = (split for task in past.tasks.values() for split in task.ledger[source])
    numbers = [split.start for split in splits if not split.is_end]
    numbers += [gone.ranges[0][0] for (at, _), gone in past.spent.items() if at == source and gone]
    if any((number >= FIRST_CHUNK) != is_growing for number in numbers):
        one, other = ("out", "") if is_growing else ("", "out")
        raise FailedPreconditionError(
            f"The state of job {past.job.name} was taken from load() with{one} wait=True, and this "
            f"dataset comes from load() with{other} wait=True. They count the chunks of a save in "
            f"different ways. Call load() with{one} wait=True"
        )


def _is_named(split: Split, described: SplitSource) -> bool:
    """Return True if a split has the names that splits of its source have."""
    if isinstance(described, FileSplits):
        return len(split.names) == split.size
    if isinstance(described, ChunkSplits):
        return [chunk_number(name) for name in split.names] == list(
            range(split.start, min(split.stop, split.start + 2))
        )
    return not split.names


def _check_between(past: Past, checkpoints: Sequence[m.Checkpoint]) -> None:
    """Require that the last consumer also has, or can still get in the same rounds,
    everything that the other consumers have passed.

    If no state needed a split any more where the others were, the last consumer may not
    even know which task had it. No checkpoint keeps which tasks took turns at an
    earlier step.
    """
    behind, ahead = checkpoints[0], checkpoints[-1]
    between = f"the elements between steps {behind.step} and {ahead.step}"
    known = {(part.source, part.repetition): RangeSet(part.gone) for part in behind.sources}
    for task in past.tasks.values():
        for source, ledger in enumerate(task.ledger):
            for split in ledger:
                if not split.is_end:
                    known.setdefault((source, split.repetition), RangeSet()).add(
                        split.start, split.stop
                    )
    for place, spent in past.spent.items():
        if not all(
            known.get(place, RangeSet()).covers(first, stop) for first, stop in spent.ranges
        ):
            raise too_far_apart(past.job.name, between)
    # A client that knows a view also knows all earlier views, back to the oldest it
    # keeps.
    views = [[view.first_step for view in one.views] for one in checkpoints if one.views]
    oldest = ahead.views[0].first_step if ahead.views else ahead.step
    while oldest > behind.step:
        before = min((firsts[0] for firsts in views if oldest in firsts), default=oldest)
        if before == oldest:
            raise too_far_apart(past.job.name, between)
        oldest = before


def too_far_apart(job: str, what: str) -> DataLossError:
    """Return the error for states that do not tell how to make some elements again."""
    return DataLossError(
        f"The states of the readers of job {job} do not tell enough of {what} to make "
        "them again: they were taken too far apart. Take the states of all readers "
        "at the same step."
    )


def is_settled(task: m.TaskPart, delivered: RangeSet) -> bool:
    """Return True if every element of a task was delivered."""
    return task.total is not None and delivered.covers(0, task.total)


def useful(task: m.TaskPart, delivered: RangeSet, name: str) -> list[m.TaskState]:
    """Return the states from which a task can continue with the known part of its
    ledger. States after the last delivered element are left out: the job may have other
    weights from there on.

    Raises:
        DataLossError: it cannot be made again.
    """
    last = max((stop for _, stop in delivered), default=0)
    states = [
        state
        for state in task.states
        if state.number <= last
        and all(base <= need for base, need in zip(task.bases, state.needs, strict=True))
        and task.first_decision <= state.decisions
    ]
    is_whole = is_settled(task, delivered) or not any((*task.bases, task.first_decision))
    if not is_whole and not (states and delivered.covers(0, states[0].number)):
        raise too_far_apart(name, f"the next elements of task {task.index}")
    return states
