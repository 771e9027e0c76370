"""Facts about task runners: what they note of where they are, and how one goes on from
what another one noted.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

from zmqdata import Dataset
from zmqdata.blocks import decode_block
from zmqdata.core.worker import events as e
from zmqdata.decisions import Decision, Decisions
from zmqdata.errors import DataLossError, FailedPreconditionError
from zmqdata.failures.codec import decode_failure
from zmqdata.iterators import guarding
from zmqdata.messages import TaskDefinition
from zmqdata.pipelines import pack_pipeline
from zmqdata.splits import Split
from zmqdata.testing.cluster import await_condition
from zmqdata.worker.processes.crumbs import IDLE, CrumbFile
from zmqdata.worker.tasks.relay import Relays
from zmqdata.worker.tasks.runner import TaskRunner
from zmqdata.worker.tasks.states import StateTaker
from zmqdata.worker.tasks.stride import LONGEST_GLANCE, PORTION

COUNT = 200
CRUMBS = CrumbFile()


class Run:
    """A runner that runs in the test's own thread to its end, over a ledger of single
    splits; and what it posted.
    """

    def __init__(
        self,
        dataset: Dataset,
        definition: TaskDefinition | None = None,
        *,
        hurried: bool = True,
        crumbs: CrumbFile | None = None,
        **changes: Any,
    ) -> None:
        packed = pack_pipeline(dataset.node)
        ledger = (
            *(Split(0, number, number + 1) for number in range(COUNT)),
            Split(0, COUNT, COUNT),
        )
        self.definition = definition or TaskDefinition(
            1, 1, 7, "dataset", packed.digest, "DYNAMIC", 9, None, (ledger,), (), iteration_seed=8
        )
        self.definition = msgspec.structs.replace(self.definition, **changes)
        self.posted: list[Any] = []
        command = e.StartTask(self.definition, packed.encoded)
        self.runner = TaskRunner(
            command, self.posted.append, "worker", lambda _: None, 1 << 30, crumbs
        )
        self.runner.allow(1 << 30)
        if hurried:
            self._hurry(self.runner._states)
        self.runner._run()

    def _hurry(self, states: StateTaker) -> None:
        """Makes a state due before every element: hours pass there, and no time while
        one is taken.
        """
        now, take = 0.0, states.take

        def hours_later() -> float:
            nonlocal now
            now += 3600.0
            return now

        def take_at_once(*args: Any) -> Any:
            states.clock = lambda: now
            try:
                return take(*args)
            finally:
                states.clock = hours_later

        states.clock, states.take = hours_later, take_at_once  # type: ignore[method-assign]  # as a clock would not do

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.posted if isinstance(one, kind)]

    @property
    def elements(self) -> dict[int, Any]:
        """By number; of a failure its text."""
        found: dict[int, Any] = {}
        for made in self.of(e.Produced):
            made_of = [str(decode_failure(made.failure))] if made.failure else _elements(made)
            for at, element in enumerate(made_of):
                assert made.first + at not in found
                found[made.first + at] = element
        return found

    @property
    def total(self) -> int:
        (ended,) = self.of(e.Exhausted)
        return int(ended.total)

    def again(self, dataset: Dataset, number: int, *skip: tuple[int, int]) -> Run:
        """Another attempt that is told the states up to a number, and no entry that the
        first of them does not need.
        """
        states = [one.state for one in self.of(e.StateNoted) if one.state.number <= number]
        useful = [states[-1]] if len(skip) == 1 else [states[0], states[-1]]
        base = min(state.needs[0] for state in useful)
        ledger = (self.definition.ledger[0][base:],)
        return Run(
            dataset,
            self.definition,
            ledger=ledger,
            bases=(base,),
            states=tuple(useful),
            skip=skip,
            attempt=2,
        )


def _elements(made: e.Produced) -> list[Any]:
    return [
        np.asarray(element).tolist() for element in decode_block(made.meta, made.frames).elements()
    ]


def shuffled() -> Dataset:
    return Dataset.range(COUNT).shuffle(8).map(lambda x: x * 2)


def test_another_runner_goes_on_from_a_state() -> None:
    """With the entries that the state needs it makes what follows, and the same."""
    first = Run(shuffled())
    second = first.again(shuffled(), 150, (0, 153))
    assert second.definition.bases[0] > 60
    assert second.elements == {number: first.elements[number] for number in range(153, COUNT)}
    assert first.total == second.total == COUNT


def test_a_runner_leaps_over_what_nobody_needs() -> None:
    """It makes what is missing early on, and goes on from the last state; what lies
    between is not made again.
    """
    first = Run(shuffled())
    second = first.again(shuffled(), 150, (0, 4), (6, 153))
    numbers = [4, 5, *range(153, COUNT)]
    assert second.elements == {number: first.elements[number] for number in numbers}
    assert second.total == COUNT
    taken = [one.state.number for one in second.of(e.StateNoted)]
    assert min(taken) >= 150


def flaky(*numbers: int) -> Dataset:
    """Leaves these out: it fails for them."""

    def function(x: int) -> int:
        if x in numbers:
            raise OSError(f"no {x}")
        return 2 * x

    return Dataset.range(COUNT).map(function, on_error="skip").prefetch(4)


def test_what_is_decided_is_told_before_what_was_made_since() -> None:
    """No block, state or end comes before the decisions that it depends on."""
    run = Run(flaky(50, 51, 120))
    decided, told = Decisions(), 0
    for one in run.posted:
        if isinstance(one, e.Decided):
            decided.take(one.first, one.decisions)
            told = max(decision.stop for decision in decided.entries)
        elif isinstance(one, e.Produced):
            assert max(_elements(one)) < 2 * told
        elif isinstance(one, e.StateNoted):
            assert one.state.decisions <= decided.length
    assert sorted(number for one in decided.entries for number in one.left_out) == [50, 51, 120]
    assert run.total == COUNT - 3


def test_another_runner_leaves_out_the_same() -> None:
    """From a state, with the decisions that this needs: what failed once stays out,
    though nothing fails any more.
    """
    first = Run(flaky(50, 51, 120))
    decided = Decisions()
    for one in first.of(e.Decided):
        decided.take(one.first, one.decisions)
    state = next(one.state for one in first.of(e.StateNoted) if one.state.number >= 100)
    decided.trim(state.decisions)
    assert decided.base > 50
    pipeline = pack_pipeline(flaky().node)
    definition = msgspec.structs.replace(
        first.definition, digest=pipeline.digest, states=(state,), skip=((0, 150),), attempt=2,
        first_decision=decided.base, decisions=tuple(decided.entries),
    )  # fmt: skip
    second = Run(flaky(), definition)
    assert second.elements == {number: first.elements[number] for number in range(150, COUNT - 3)}
    assert second.total == first.total


def test_what_came_before_and_fails_for_good_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called for again, and then the task fails as a whole: nobody gets other
    elements than he was promised.
    """
    monkeypatch.setattr(guarding, "PAUSES", (0.0, 0.0))
    first = Run(flaky())
    decisions = first.of(e.Decided)[-1].decisions
    pipeline = pack_pipeline(flaky(3).node)
    definition = msgspec.structs.replace(
        first.definition, digest=pipeline.digest, attempt=2, first_decision=first.of(e.Decided)[-1].first,
        decisions=(Decision("/0", 0, 100), *decisions),
    )  # fmt: skip
    second = Run(flaky(3), definition)
    (failed,) = second.of(e.TaskFailed)
    error = decode_failure(failed.failure)
    assert isinstance(error, DataLossError)
    assert "Element 3 that came to map(function) at test_runner.py" in str(error)
    assert not second.of(e.Exhausted)


def test_states_lie_between_rounds() -> None:
    """Where an element goes to each of three consumers, no state is taken between
    them.
    """
    run = Run(shuffled(), num_consumers=3, finite="drop")
    numbers = [one.state.number for one in run.of(e.StateNoted)]
    assert numbers == sorted(set(numbers))
    assert run.total == COUNT // 3


def test_a_state_that_does_not_fit_fails_the_task() -> None:
    """Nothing is made from it: the failure is the job's, with the reason."""
    first = Run(shuffled())
    second = first.again(Dataset.range(COUNT).batch(2), 150, (0, 153))
    packed = pack_pipeline(Dataset.range(COUNT).batch(2).node)
    second = Run(Dataset.range(COUNT).batch(2), second.definition, digest=packed.digest)
    [failed] = second.of(e.TaskFailed)
    assert str(decode_failure(failed.failure))
    assert (second.elements, second.of(e.Exhausted)) == ({}, [])


PATIENCE = 10.0


@contextmanager
def running(
    dataset: Dataset,
    reason: str = "",
    relays: Relays | None = None,
    task: int = 1,
    timeless: bool = True,
) -> Iterator[tuple[TaskRunner, queue.SimpleQueue[Any]]]:
    """A runner of this pipeline, and what it posts.

    ``relays``: it is read in turn with others; ``timeless``: its clock stands still, so
    that no state is due and no turn ends early, however busy the machine is.
    """
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    packed = pack_pipeline(dataset.node)
    consumers, finite = (None, None) if relays is None else (1, "drop")
    definition = TaskDefinition(
        task,
        1,
        7,
        "dataset",
        packed.digest,
        "OFF",
        9,
        None,
        (),
        (),
        num_consumers=consumers,
        finite=finite,
    )
    command = e.StartTask(definition, packed.encoded, reason)
    told = (events.put, "tcp://w", lambda digest: None, 1 << 30, None, relays)
    runner = TaskRunner(command, *told)
    if timeless:
        runner._states.clock = lambda: 0.0
    runner.start()
    yield runner, events
    runner.stop()
    assert runner.join(PATIENCE)


def test_what_is_at_work_is_known_within_a_run_of_elements() -> None:
    """However many are made before the runner looks around, the process always tells
    the one that it is at.
    """

    def look(x: np.int64) -> int:
        from tests.worker.tasks.test_runner import CRUMBS  # memory does not travel with a function

        return next(note.number for note in CRUMBS.notes() if not note.place)

    run = Run(Dataset.range(COUNT).map(look), hurried=False, crumbs=CRUMBS)
    assert len(run.of(e.Produced)) == 1
    assert run.elements == {number: number for number in range(COUNT)}


class Bulky:
    """An object that tells, when it is pickled, which element the process says that it
    is at.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        from tests.worker.tasks.test_runner import CRUMBS

        return (int, (next(note.number for note in CRUMBS.notes() if not note.place),))


def test_what_is_pickled_is_known_within_a_run_of_elements() -> None:
    """A process that dies of an element's own methods tells that one, and not the last
    of its run.
    """
    dataset = Dataset.range(COUNT).map(lambda x: Bulky() if x in (150, 151, 153) else int(x))
    run = Run(dataset, hurried=False, crumbs=CRUMBS)
    assert run.elements == {number: number for number in range(COUNT)}


def test_an_error_within_a_run_takes_the_place_of_its_element() -> None:
    """What was made before it and behind it keeps its number."""
    run = Run(Dataset.range(COUNT).map(lambda x: 1000 // (int(x) - 70)), hurried=False)
    assert [number for number, found in run.elements.items() if isinstance(found, str)] == [70]
    assert [run.elements[number] for number in (69, 71)] == [-1000, 1000]
    assert run.total == COUNT


class Drift:
    """A clock that a pipeline moves."""

    now = 0.0


def grow(x: np.int64) -> Any:
    """Small at once, until 1100; then a megabyte, which takes ten milliseconds."""
    from tests.worker.tasks.test_runner import Drift  # it does not travel with a function

    if x < 1100:
        return np.zeros(1)
    Drift.now += 0.01
    return np.zeros(1 << 17)


def test_memory_is_bounded_where_elements_become_large_within_a_run() -> None:
    """It notices at its next look at the clock, not when it has made as many of them as
    of small ones.
    """
    packed = pack_pipeline(Dataset.range(3000).map(grow).node)
    definition = TaskDefinition(1, 1, 7, "dataset", packed.digest, "OFF", 9, None, (), ())
    command = e.StartTask(definition, packed.encoded)
    runner = TaskRunner(command, lambda event: None, "tcp://w", lambda digest: None)
    runner._states.clock = lambda: Drift.now
    runner.allow(1 << 20)
    runner.start()
    await_condition(
        lambda: runner.watch.cells[runner.watch.at] == IDLE, what="a rest of the pipeline"
    )
    assert 1100 < runner.number <= 1100 + 2 * LONGEST_GLANCE
    runner.stop()
    assert runner.join(PATIENCE)


def swell(x: np.int64) -> Any:
    """An image, and from the 100th on two megabytes; both take no time."""
    return np.zeros(2 << 20 if x >= 100 else 150_528, np.uint8)


@pytest.mark.parametrize(
    ("buffer", "element"), [(1 << 20, "image"), (16 << 20, "image"), (16 << 20, "swelling")]
)
def test_memory_is_bounded_where_images_are_made_together(buffer: int, element: str) -> None:
    """It stops with the element that fills its buffer, or the next one, also where they
    become larger within a run.
    """
    make = swell if element == "swelling" else lambda x: np.zeros(150_528, np.uint8)
    taken = 15_000_000 if element == "swelling" else 0
    with running(Dataset.range(3000).map(make)) as (runner, events):
        runner._states.clock = lambda: 0.0
        allowed, largest = 0, 2 << 20 if element == "swelling" else 150_528
        for allowed in range(buffer, buffer + taken + 1, 1_000_000):
            runner.allow(allowed)
            await_condition(
                lambda: (
                    runner.watch.cells[runner.watch.at] == IDLE and runner._output.nbytes >= allowed  # noqa: B023
                ),
                what="a rest of the pipeline",
            )
            assert runner._output.nbytes < allowed + max(PORTION, largest)
        assert not events.empty() or buffer == 1 << 20


def test_a_runner_that_is_stopped_looks_up_within_a_run() -> None:
    """After the element that it is at, and not after hundreds that nobody wants."""
    gate = Gate.new()
    with running(Dataset.range(3000).map(stick_late)) as (runner, _):
        runner.allow(1 << 20)
        assert gate.entered.wait(PATIENCE)
        runner.stop()
        gate.leave.set()
    assert runner.number == 1102


def test_elements_are_bounded_while_nobody_reads() -> None:
    """It stops at a number of elements and hands over what it has; without such a
    number it goes on to the end.
    """
    with running(Dataset.range(20)) as (runner, events):
        runner.allow(1 << 20, 8)
        made = events.get(timeout=PATIENCE)
        assert (type(made), made.first, made.count) == (e.Produced, 0, 8)
        runner.allow(1 << 20)
        made = events.get(timeout=PATIENCE)
        assert (type(made), made.first, made.count) == (e.Produced, 8, 12)
        assert events.get(timeout=PATIENCE) == e.Exhausted(1, 1, 20)


def test_a_pipeline_that_cannot_be_opened_fails_the_task() -> None:
    """It makes no element and has no end: the failure stands for all of it."""
    with running(Dataset.range(20), reason="the part is lost") as (_, events):
        failed = events.get(timeout=PATIENCE)
        assert isinstance(failed, e.TaskFailed)
        error = decode_failure(failed.failure)
        assert (type(error), str(error)) == (FailedPreconditionError, "the part is lost")


class Changed:
    """An object of the user's own."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __reduce__(self) -> tuple[Any, ...]:
        return (int, (self.x,))


def reusing(make: str) -> Iterator[Any]:
    """Hands out the same object again and again, each time with another number."""
    inner = {"x": -1}
    reused: Any = {
        "dict": inner,
        "nested": {"deep": inner, "list": [1, 2]},
        "tuple": (inner, 5),
        "object": Changed(-1),
    }
    for number in range(COUNT):
        inner["x"] = reused["object"].x = number
        yield reused[make]


@pytest.mark.parametrize("make", ["dict", "nested", "tuple", "object"])
def test_an_element_is_what_it_was_when_it_was_made(make: str) -> None:
    """A pipeline may change its dicts, lists and objects for the next element, however
    many are made in a run.
    """
    dataset = Dataset.from_generator(lambda: reusing(make))
    packed = pack_pipeline(dataset.node)
    run = Run(
        dataset,
        TaskDefinition(1, 1, 7, "dataset", packed.digest, "OFF", 9, None, (), ()),
        hurried=False,
    )
    wanted = {
        "dict": lambda number: {"x": number},
        "nested": lambda number: {"deep": {"x": number}, "list": [1, 2]},
        "tuple": lambda number: [{"x": number}, 5],
        "object": lambda number: number,
    }[make]
    found = {number: _plain(element) for number, element in run.elements.items()}
    assert found == {number: wanted(number) for number in range(COUNT)}


def _plain(element: Any) -> Any:
    """With lists for arrays."""
    if isinstance(element, dict):
        return {key: _plain(part) for key, part in element.items()}
    return element.tolist() if isinstance(element, np.ndarray) else element


def untidy() -> Iterator[int]:
    """Fails when it is left."""
    try:
        yield from range(10)
    finally:
        raise RuntimeError("cannot clean up")


def test_what_fails_after_the_last_element_does_not_fail_the_task() -> None:
    """All that was asked for was made; a generator that cannot clean up takes none of
    it away.
    """
    with running(Dataset.from_generator(untidy).take(3)) as (runner, events):
        runner.allow(1 << 20)
        assert made_of(events)[-1][1] == 3
        assert runner.join(PATIENCE)
        assert events.empty()


class Gate:
    """Where a pipeline stays until the test lets it go on."""

    now: Gate

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()

    @classmethod
    def new(cls) -> Gate:
        cls.now = cls()
        return cls.now


def stick(x: Any) -> Any:
    """Stays at 3."""
    if x == 3:
        Gate.now.entered.set()
        Gate.now.leave.wait(PATIENCE)
    return x


def stick_late(x: Any) -> Any:
    """Stays at 1101."""
    if x == 1101:
        Gate.now.entered.set()
        Gate.now.leave.wait(PATIENCE)
    return x


def made_of(events: queue.SimpleQueue[Any]) -> list[tuple[int, int]]:
    """First and stop of the blocks of a task up to its end."""
    blocks = []
    while not isinstance(made := events.get(timeout=PATIENCE), e.Exhausted):
        blocks.append((made.first, made.first + made.count))
    return blocks


def test_tasks_that_are_read_in_turn_end_their_blocks_together() -> None:
    """At multiples of powers of two: whoever weaves them together uses them up
    together.
    """
    relays = Relays()
    with (
        running(Dataset.range(500), relays=relays) as one,
        running(Dataset.range(500), relays=relays, task=2) as two,
    ):
        for runner, _ in (one, two):
            runner.allow(1 << 20)
        for blocks in (made_of(one[1]), made_of(two[1])):
            assert [first for first, _ in blocks] == [0, *(stop for _, stop in blocks[:-1])]
            assert blocks[-1][1] == 500
            assert all(
                stop % (1 << (stop - first).bit_length() - 1) == 0 for first, stop in blocks[:-1]
            )


def test_a_task_that_is_stuck_holds_up_others_until_it_is_given_up() -> None:
    """One at a time makes elements; who is not wanted any more gives its turn to the
    next.
    """
    gate = Gate.new()
    relays = Relays()
    with (
        running(Dataset.range(5).map(stick), relays=relays) as (stuck, _),
        running(Dataset.range(3), relays=relays, task=2) as (other, others),
    ):
        stuck.allow(1 << 20)
        assert gate.entered.wait(PATIENCE)
        other.allow(1 << 20)
        assert others.empty()
        stuck.stop()
        assert sum(stop - first for first, stop in made_of(others)) == 3
        gate.leave.set()


def test_a_turn_that_lasts_too_long_is_no_reason_to_wait() -> None:
    """What was made in it is handed over when somebody waits, as soon as one looks
    after the turn should have ended.
    """
    gate = Gate.new()
    with running(Dataset.range(5).map(stick), relays=Relays(), timeless=False) as (runner, events):
        runner.allow(1 << 20)
        assert gate.entered.wait(PATIENCE)
        runner.flush()
        got = 0
        while got < 3:
            runner.look()
            if not events.empty():
                got += events.get().count
        gate.leave.set()
        assert isinstance(made_of(events)[-1], tuple)
