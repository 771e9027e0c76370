"""A pipeline and its runner for simulated worlds: elements are names, produced at a
seeded pace. User code does not belong here.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker import events as e
from zmqdata.core.worker.streams import occupied
from zmqdata.iterators.deciding import Decider, Deciding
from zmqdata.messages import TaskDefinition, TaskMeasures, TaskState, TaskSums, Work
from zmqdata.splits import Split
from zmqdata.testing.clock import Clock

Name = tuple[int, int, int]
"""Repetition, split and number within the split: the name of an element of a simulated
pipeline.
"""


@dataclass(frozen=True)
class SimulatedPipeline:
    """A deterministic pipeline: split ``i`` yields ``yields(i)`` elements, in each of
    ``repetitions`` passes.
    """

    splits: int
    """Number of splits."""
    repetitions: int = 1
    """Number of passes over the splits."""
    most: int = 3
    """Most elements of a split."""
    unit: int = 100
    """Scale of the sizes of elements, in bytes."""
    fails: int = 0
    """Every so many-th split yields failures instead of elements. 0: none does."""
    kills: int = 0
    """The first element of every so many-th split kills the worker that produces it. 0:
    none does.
    """
    slips: int = 0
    """The elements of every so many-th split fail now and then, and are skipped if they
    do. 0: none does.
    """
    healed: bool = False
    """True if nothing kills or fails any more. Elements known to have killed are
    skipped all the same.
    """

    def yields(self, index: int) -> int:
        """Return the number of elements of a split, which may be 0."""
        return (index * 7 + 1) % (self.most + 1) if self.most > 1 else 1

    def size(self, name: Name) -> int:
        """Return the bytes of credit of an element."""
        return self.unit * (1 + (name[1] * 5 + name[2]) % 7)

    def is_failure(self, name: Name) -> bool:
        """True if the element cannot be produced."""
        return bool(self.fails) and name[1] % self.fails == self.fails - 1

    def is_poison(self, name: Name) -> bool:
        """True if producing the element kills the process."""
        return bool(self.kills) and name[1] % self.kills == self.kills - 1 and name[2] == 0

    def is_slippery(self, name: Name) -> bool:
        """True if the element may fail, once or always."""
        return bool(self.slips) and name[1] % self.slips == self.slips - 1

    def place(self, name: Name) -> tuple[str, int]:
        """Return the node and number that name an element at which a process dies.

        Any number will do that is the same in every attempt.
        """
        return "/0", (name[0] << 40) + (name[1] << 10) + name[2]

    def names(self) -> list[Name]:
        """Return every element of all passes that can be produced."""
        return [name for name in self.all_names() if not self.is_poison(name)]

    def poison(self) -> tuple[tuple[str, int], ...]:
        """Return the places of the elements that kill their process."""
        return tuple([self.place(name) for name in self.all_names() if self.is_poison(name)])

    def all_names(self) -> list[Name]:
        """Return every element of all passes, including elements that kill."""
        pairs = itertools.product(range(self.repetitions), range(self.splits))
        return [(*pair, at) for pair in pairs for at in range(self.yields(pair[1]))]


@dataclass(frozen=True)
class Fatal:
    """Event: the process of a runner dies at this element."""

    work: Work
    """The element."""


@dataclass(frozen=True)
class Slipped:
    """Event: an element is skipped by the operation of a task that skips failing
    elements.
    """

    task: int
    """Number of the task."""
    number: int
    """Number of the element among those that reached the operation."""
    name: Name
    """Name of the element."""


RunnerEvent = e.WorkerEvent | Fatal | Slipped
"""All events that a simulated runner emits."""


@dataclass
class BlockInWork:
    """A block that grows."""

    names: list[Name] = field(default_factory=list)
    """Its elements."""
    first: int = 0
    """Number of its first element."""


class SimulatedRunner:
    """Runner of a task: produces the elements of its splits, in blocks of seeded sizes,
    as far as it is allowed to.

    Args:
        definition: the task. Elements in its ``skip`` are produced and numbered, but
            not handed over. In a coordinated job each numbered consumer has its own
            blocks, and numbers are those of rounds. The runner sees only the given part
            of the ledger, so a state kept without the entries that it needs is
            detected.
        pipeline: what to produce.
        clock: the clock by which it works.
        seed: decides pace and block sizes, on which elements must not depend.
        emit: receives ``SplitsWanted``, ``SplitsStarted``, ``Produced``,
            ``StateNoted``, ``Decided``, ``Exhausted``, ``Slipped`` and ``Fatal``.

    Attributes:
        made: number of elements produced, including elements that no client needed.
        making: the element that it has made last, or works on.
        slips_now: probability that an element that may fail does so in this attempt.
        free: number of the first element that past decisions did not determine. None:
            they determined all.
        holds: True if it holds elements back until splits come or end.
    """

    holds = False

    def __init__(
        self,
        definition: TaskDefinition,
        pipeline: SimulatedPipeline,
        clock: Clock,
        seed: int,
        emit: Callable[[RunnerEvent], None],
    ) -> None:
        self.definition = definition
        self.key = (definition.task, definition.attempt)
        self.pipeline = pipeline
        self.clock = clock
        self.random = random.Random(seed)
        self.pace = self.random.choice([0.001, 0.02, 0.1])
        self.target = self.random.choice([1, 3, 10, 40])
        self.eager = self.random.random() < 0.5
        self.mark_every = self.random.choice([1, 4, 30])
        self.note_every = self.random.choice([0.05, 0.5])
        self.stopped = False
        self.made = 0
        self.slips_now = self.random.choice([0.0, 0.3, 1.0])
        self.free: int | None = None
        self._emit = emit
        self._entries = list(definition.ledger[0]) if definition.ledger else self._everything()
        self._base = definition.bases[0] if definition.bases else 0
        self._fixed = self._length
        self._at, self._started = self._base, 0
        self._reached = (self._base, 0)
        self._given = 0  # elements yielded of the last split begun
        self._reserved = -1  # the entry that it waited for
        self._repetition = 0
        self._names = self._make()
        decided = (definition.first_decision, definition.decisions)
        self._deciding = Deciding(*decided, lambda seconds: None)
        self._decider = self._make_decider()
        self._came = 0  # number of elements that reached the skipping operation
        self._ahead = list(definition.states)
        self._skip = RangeSet(definition.skip)
        self._marks: list[tuple[int, list[int]]] = []
        self._restoring = False
        self._noted = clock.now
        self._round: list[Name] = []
        self._lanes = [BlockInWork() for _ in range(definition.job.num_consumers or 1)]
        self.making: Work | None = None
        self._untried = self._suspects()
        self._next = self._position = 0
        self._allowed = self._used = 0
        self._most: int | None = None
        self._flush = self._planned = self._asking = self._waiting = False
        self._began, self._handed_over = clock.now, 0

    def _suspects(self) -> set[tuple[str, int]]:
        """Return the suspects that the pipeline makes."""
        suspects = set(self.definition.suspects)
        return suspects and suspects & set(map(self.pipeline.place, self.pipeline.all_names()))

    def _everything(self) -> list[Split]:
        """Return the ledger of a task that reads the whole input by itself."""
        count, entries = self.pipeline.splits, []
        for repetition in range(self.pipeline.repetitions):
            entries += [Split(repetition, 0, count), Split(repetition, count, count)]
        return entries

    # --- what the worker core wants

    def feed(self, source: int, splits: tuple[Split, ...]) -> None:
        """Take the next ledger entries."""
        assert source == 0
        if self._waiting:
            self._reserved = self._length
        self._asking = self._waiting = False
        self._entries.extend(splits)
        self._plan()

    def allow(self, size: int, elements: int | None = None) -> None:
        """Allow production until blocks add up to ``size`` bytes, or to ``elements``
        elements.
        """
        self._allowed, self._most = size, elements
        self._plan()

    def flush(self) -> None:
        """Hand over the present elements, or the next element at once."""
        self._flush = True
        self.clock.after(0.0, self._hand_over)

    def stop(self) -> None:
        """Emit nothing from now on."""
        self.stopped = True

    @property
    def next_number(self) -> int:
        """Number of the next element."""
        return self._next

    @property
    def _length(self) -> int:
        return self._base + len(self._entries)

    def _entry(self, number: int) -> Split:
        assert number >= self._base, (
            f"entry {number} is needed and those before {self._base} are gone"
        )
        return self._entries[number - self._base]

    def _make_decider(self) -> Decider:
        self._tell_decisions()
        self._deciding.learns = bool(self.definition.states)
        return Decider("map(g)", "/1", self._deciding)

    def _tell_decisions(self) -> None:
        news = self._deciding.news()
        if news is not None:
            self._emit(e.Decided(*self.key, *news))

    def _tell(self, event: e.WorkerEvent) -> None:
        """Emit an event, and before it the decisions and started splits on which it
        depends.
        """
        self._tell_decisions()
        place = max(self._reached, (self._at, self._started))
        if self.definition.ledger and place != self._reached:
            self._reached = place
            self._emit(e.SplitsStarted(*self.key, (place,)))
        self._emit(event)

    # --- states

    def _mark(self) -> None:
        """Record the position now and then, as an iterator does that holds elements
        back.
        """
        if not self._marks or self.made - self._marks[-1][0] >= self.mark_every:
            decided = self._deciding.mark()[1]
            split, came = (self._at, self._started, self._given), (self._position, self._came)
            place = [*split, self._repetition, *came, decided]
            self._marks = [*self._marks[-1:], (self.made, place)]

    def _note(self) -> None:
        """Emit a state."""
        is_due = self.clock.now - self._noted >= self.note_every
        state = None if self._round or self._ahead or not is_due else self._state()
        if state is None:
            return
        content, (at, started), decided = state
        self._noted = self.clock.now
        self._tell_decisions()
        self._deciding.seal()
        needs = (max(0, at - (not started)),) if self.definition.ledger else ()
        packed = msgspec.msgpack.encode(content)
        self._tell(e.StateNoted(*self.key, TaskState(self._next, packed, needs, decided)))

    def _state(self) -> tuple[Any, tuple[int, int], int] | None:
        """Return a state, the split from which it goes on, and the first decision that
        it needs; None if there is none yet.

        The state is the mark before the last one, and the number of elements since.
        """
        if not self._marks:
            return None
        made, place = self._marks[0]
        return [place, self.made - made], (place[0], place[1]), place[-1]

    def _leap(self) -> None:
        """Continue from a later state as soon as no client needs the elements before
        it.
        """
        while self._ahead and self._ahead[0].number <= self._next:
            del self._ahead[0]
        while self._ahead and not self._round:
            if not self._skip.covers(self._next, self._ahead[0].number):
                return
            self._hand_over()
            state = self._ahead.pop(0)
            self._next, self._marks = state.number, []
            self._deciding.leap(state.decisions)
            self._decider = self._make_decider()
            self._restoring = True
            self._return_to(msgspec.msgpack.decode(state.content))
            self._restoring = False

    def _return_to(self, content: Any) -> None:
        """Continue from a state."""
        place, behind = content
        self._at, self._started, self._given, self._repetition, *came = place
        self._position, self._came, _ = came
        self._names = self._make()
        for _ in range(behind):
            name = next(self._names)
            assert name is not None, "a state is told of splits not yet given"
            self._is_kept(name)

    # --- work

    def _make(self) -> Iterator[Name | None]:
        """Yield the elements in order, and None whenever the next element needs splits
        that have not arrived.
        """
        while self._repetition < self.pipeline.repetitions:
            if self._at == self._length:
                yield None
                continue
            split = self._entry(self._at)
            if split.repetition == self._repetition and not split.is_end:
                yield from self._make_entry()
                continue
            self._repetition += split.repetition == self._repetition
            self._at += 1

    def _make_entry(self) -> Iterator[Name]:
        """Yield the elements of the present entry, whose end may be returned
        meanwhile.
        """
        if self._started:
            yield from self._make_split()  # the rest of a split in which it was restored
        while self._started < self._entry(self._at).size:
            self._started, self._given = self._started + 1, 0
            if self.eager and self._at == self._length - 1:
                self._want(ahead=True)
            yield from self._make_split()
        self._at, self._started = self._at + 1, 0

    def _make_split(self) -> Iterator[Name]:
        split = self._entry(self._at)
        index = split.start + (self._started - 1) * split.step
        while self._given < self.pipeline.yields(index):
            self._given += 1
            if self._is_mine():
                self.made += 1
                yield (split.repetition, index, self._given - 1)

    def _is_mine(self) -> bool:
        """True if the next element of the whole input belongs to the static part of
        this task.
        """
        position, self._position = self._position, self._position + 1
        definition = self.definition
        is_whole = definition.ledger or not definition.num_shards
        return bool(is_whole) or position % definition.num_shards == definition.shard

    def _plan(self) -> None:
        if not self._planned and not self.stopped:
            self._planned = True
            self.clock.after(self.pace * self.random.uniform(0.5, 1.5), self._step)

    def _step(self) -> None:
        self._planned = False
        for _ in range(self.random.choice([1, 1, 5, 20])):
            if self.stopped:
                return
            if self._used >= self._allowed or (self._most is not None and self._next >= self._most):
                self._hand_over()  # a real runner, too, keeps nothing back while it waits
                return
            self._leap()
            self._mark()
            self._note()
            try:
                name = next(self._names)
            except StopIteration:
                self._end()
                return
            if name is None:
                self._want()
                return
            is_kept = self._is_kept(name)
            if self._survives(name) and is_kept:
                self._add(name)
        self._plan()

    def _survives(self, name: Name) -> bool:
        """True if an element can be had. A poisonous element kills the process, unless
        it is known and skipped.
        """
        if self.stopped:
            return True
        node, number = place = self.pipeline.place(name)
        if place in self.definition.poisoned:
            return False
        self.making = Work(*self.key, number, node, "map(f)", True, None, self._next)
        is_deadly = self.pipeline.is_poison(name)
        if is_deadly and self.pipeline.healed:
            self.free = self._next if self.free is None else self.free
        if not is_deadly or self.pipeline.healed:
            self._try(place)
            return True
        if place not in self.definition.suspects:
            # The process runs on for a moment, and its next element may be noted.
            late = number + self.random.choice([0, 0, 1, 2])
            self.making = Work(*self.key, late, node, "map(f)", True, None, self._next)
        self.stopped = True
        self._emit(Fatal(self.making))
        return False

    def noted(self) -> list[Work]:
        """Return the element that it is making, if any, when another task kills its
        process.
        """
        if self.stopped or self.making is None or self.random.random() < 0.3:
            return []
        return [self.making]

    def _try(self, place: tuple[str, int]) -> None:
        """Note that a suspect lives. Say so when it was the last."""
        if place in self._untried:
            self._untried.discard(place)
            if not self._untried:
                self.clock.after(0.25, lambda: self._emit(e.SuspectsTried(*self.key)))

    def _is_kept(self, name: Name) -> bool:
        """True if an element is not skipped: as was decided, or by chance if nothing
        was decided.
        """
        number, self._came = self._came, self._came + 1
        fails = self.pipeline.is_slippery(name) and self.random.random() < self.slips_now
        known = self._decider.is_left_out(number) or self._decider.was_kept(number)
        if self.pipeline.is_slippery(name) and not known and self.free is None:
            self.free = self._next
        if self._decider.is_left_out(number) or (fails and not self._decider.was_kept(number)):
            self._decider.leave_out(number)
            self._emit(Slipped(self.definition.task, number, name))
            return False
        self._decider.keep(number)
        return True

    def _want(self, ahead: bool = False) -> None:
        is_asked = self._waiting or (ahead and self._asking)
        if self.definition.ledger and not self._restoring and not is_asked:
            self._asking, self._waiting = True, not ahead
            pace, place = self.random.choice([0.0, self.pace]), (self._repetition, self._length)
            self._emit(e.SplitsWanted(*self.key, 0, *place, not ahead, pace, self._next))

    def give_back(self, source: int) -> e.LedgerCut:
        """Forget the splits that were not begun, but keep a split that the runner has
        waited for.
        """
        assert source == 0
        at, started = self._at, self._started
        if at == self._reserved and at < self._length:
            started = max(started, 1)
        if at < self._fixed:
            at, started = self._fixed, 0
        count = at + (started > 0)
        stop = self._entry(count - 1).stop if count > self._base else 0
        if started:
            stop = min(stop, self._entry(at).start + started)
        changed = count < self._length or (count > self._base and stop < self._entries[-1].stop)
        if changed:
            del self._entries[count - self._base :]
            if self._entries:
                self._entries[-1] = self._entries[-1].part(0, stop - self._entries[-1].start)
            self._asking = False
        return e.LedgerCut(*self.key, source, count, stop, changed)

    def _end(self) -> None:
        """Drop or fill the last round, and emit the end."""
        left = len(self._round)
        if left and self.definition.job.finite == "pad":
            while self._round:
                self._add(self._round[len(self._round) % left])
        self._hand_over()
        rest = tuple(self._block(0, self._next, (name,)) for name in self._round)
        total, measures = self._next + bool(rest), self._measures()
        self._tell(e.Exhausted(*self.key, total, rest=rest, measures=measures))
        self.stopped = True

    def _add(self, name: Name) -> None:
        self._round.append(name)
        if len(self._round) < len(self._lanes):
            return
        names, self._round = self._round, []
        number, self._next = self._next, self._next + 1
        if number in self._skip:
            self._hand_over()
            return
        flush = self._flush
        for lane, one in enumerate(names):
            self._append(lane, number, one)
        if flush or any(len(block.names) >= self.target for block in self._lanes):
            self._hand_over()

    def _append(self, lane: int, number: int, name: Name) -> None:
        block, failure = self._lanes[lane], self.pipeline.is_failure(name)
        if failure:
            self._hand_over_lane(lane)
        if not block.names:
            block.first = number
            self._used += occupied(0)
        block.names.append(name)
        self._used += self.pipeline.size(name)
        if failure:
            self._hand_over_lane(lane)

    def _hand_over(self) -> None:
        for lane in range(len(self._lanes)):
            self._hand_over_lane(lane)

    def _hand_over_lane(self, lane: int) -> None:
        block = self._lanes[lane]
        if self.stopped or not block.names:
            return
        names, self._flush = tuple(block.names), False
        block.names = []
        self._handed_over += len(names)
        self._tell(self._block(lane, block.first, names))
        self._emit(e.TaskMeasured(self._measures()))

    def _measures(self) -> TaskMeasures:
        seconds = self.clock.now - self._began
        sums = TaskSums(seconds, seconds, elements=float(self._handed_over))
        return TaskMeasures(*self.key, sums, sums)

    def _block(self, lane: int, first: int, names: tuple[Name, ...]) -> e.Produced:
        size = sum(map(self.pipeline.size, names))
        failure = b"failure" if self.pipeline.is_failure(names[0]) else b""
        return e.Produced(*self.key, first, len(names), size, b"", names, failure, lane)
