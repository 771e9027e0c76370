"""Tests of task runners: which progress they record, and how another attempt continues
from the record of a predecessor.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.definitions import changed, define
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
from zmqdata.worker.processes.watch import IDLE, WatchFile
from zmqdata.worker.tasks.relay import Relays
from zmqdata.worker.tasks.runner import TaskRunner
from zmqdata.worker.tasks.states import StateTaker
from zmqdata.worker.tasks.stride import LONGEST_GLANCE, PORTION

COUNT = 200
WATCH_FILE = WatchFile()


class Run:
    """Run a runner to its end in the test's own thread, over a ledger of single splits,
    and keep its events.
    """

    def __init__(
        self,
        dataset: Dataset,
        definition: TaskDefinition | None = None,
        *,
        hurried: bool = True,
        watch_file: WatchFile | None = None,
        **changes: Any,
    ) -> None:
        packed = pack_pipeline(dataset.node)
        ledger = (
            *(Split(0, number, number + 1) for number in range(COUNT)),
            Split(0, COUNT, COUNT),
        )
        self.definition = definition or define(
            1, 1, 7, "dataset", packed.digest, "DYNAMIC", 9, None, (ledger,), (), iteration_seed=8
        )
        self.definition = changed(self.definition, **changes)
        self.posted: list[Any] = []
        command = e.StartTask(self.definition, packed.encoded)
        self.runner = TaskRunner(
            command, self.posted.append, "worker", lambda _: None, 1 << 30, watch_file
        )
        self.runner.allow(1 << 30)
        if hurried:
            self._hurry(self.runner._states)
        self.runner._run()

    def _hurry(self, states: StateTaker) -> None:
        """Make a state due before every element: the clock advances by hours between
        states, and stops while a state is taken.
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

        states.clock, states.take = hours_later, take_at_once  # type: ignore[method-assign,assignment]  # replaces the clock

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.posted if isinstance(one, kind)]

    @property
    def elements(self) -> dict[int, Any]:
        """Elements by number; the text of a failure in its place."""
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
        """Start another attempt from the states up to a number, without the entries
        that no such state needs.
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
    """Another runner makes the same elements after a state, with only the entries that
    the state needs.
    """
    first = Run(shuffled())
    second = first.again(shuffled(), 150, (0, 153))
    assert second.definition.bases[0] > 60
    assert second.elements == {number: first.elements[number] for number in range(153, COUNT)}
    assert first.total == second.total == COUNT


def test_a_runner_leaps_over_what_nobody_needs() -> None:
    """A runner makes the early missing elements, leaps to the last state, and does not
    make the elements between again.
    """
    first = Run(shuffled())
    second = first.again(shuffled(), 150, (0, 4), (6, 153))
    numbers = [4, 5, *range(153, COUNT)]
    assert second.elements == {number: first.elements[number] for number in numbers}
    assert second.total == COUNT
    taken = [one.state.number for one in second.of(e.StateNoted)]
    assert min(taken) >= 150


def flaky(*numbers: int) -> Dataset:
    """Make a function that fails for the given elements."""

    def function(x: int) -> int:
        if x in numbers:
            raise OSError(f"no {x}")
        return 2 * x

    return Dataset.range(COUNT).map(function, on_error="skip").prefetch(4)


def test_what_is_decided_is_told_before_what_was_made_since() -> None:
    """No block, state or end precedes the decisions on which it depends."""
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
    """A runner that continues from a state skips the elements that failed before, even
    if they would not fail now.
    """
    first = Run(flaky(50, 51, 120))
    decided = Decisions()
    for one in first.of(e.Decided):
        decided.take(one.first, one.decisions)
    state = next(one.state for one in first.of(e.StateNoted) if one.state.number >= 100)
    decided.trim(state.decisions)
    assert decided.base > 50
    pipeline = pack_pipeline(flaky().node)
    definition = changed(
        first.definition, digest=pipeline.digest, states=(state,), skip=((0, 150),), attempt=2,
        first_decision=decided.base, decisions=tuple(decided.entries),
    )  # fmt: skip
    second = Run(flaky(), definition)
    assert second.elements == {number: first.elements[number] for number in range(150, COUNT - 3)}
    assert second.total == first.total


def test_what_came_before_and_fails_for_good_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner retries an element that succeeded before. If it fails for good, so does
    the task: no client gets other elements than promised.
    """
    monkeypatch.setattr(guarding, "PAUSES", (0.0, 0.0))
    first = Run(flaky())
    decisions = first.of(e.Decided)[-1].decisions
    pipeline = pack_pipeline(flaky(3).node)
    definition = changed(
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
    """No state is taken between the elements of a round for three consumers."""
    run = Run(shuffled(), num_consumers=3, finite="drop")
    numbers = [one.state.number for one in run.of(e.StateNoted)]
    assert numbers == sorted(set(numbers))
    assert run.total == -(-COUNT // 3)


def test_a_state_that_does_not_fit_fails_the_task() -> None:
    """A runner makes no element from a state that does not fit. The job fails with the
    reason.
    """
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
    """Start a runner of this pipeline, and yield it with its events.

    With ``relays`` the task is read in turn with others. With ``timeless`` its clock
    stands still, so that no state is due and no turn ends early on a busy machine.
    """
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    packed = pack_pipeline(dataset.node)
    consumers, finite = (None, None) if relays is None else (1, "drop")
    definition = define(
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
    """The process always notes its current element, however many elements a run has."""

    def look(x: np.int64) -> int:
        from tests.worker.tasks.test_runner import (
            WATCH_FILE,  # memory does not travel with a function
        )

        return next(note.number for note in WATCH_FILE.notes() if not note.place)

    run = Run(Dataset.range(COUNT).map(look), hurried=False, watch_file=WATCH_FILE)
    assert len(run.of(e.Produced)) == 1
    assert run.elements == {number: number for number in range(COUNT)}


class Bulky:
    """An object whose pickling returns the element that the process notes at the
    time.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        from tests.worker.tasks.test_runner import WATCH_FILE

        return (int, (next(note.number for note in WATCH_FILE.notes() if not note.place),))


def test_what_is_pickled_is_known_within_a_run_of_elements() -> None:
    """A process that dies in an element's own methods leaves the number of that
    element, not of the last in its run.
    """
    dataset = Dataset.range(COUNT).map(lambda x: Bulky() if x in (150, 151, 153) else int(x))
    run = Run(dataset, hurried=False, watch_file=WATCH_FILE)
    assert run.elements == {number: number for number in range(COUNT)}


def test_an_error_within_a_run_takes_the_place_of_its_element() -> None:
    """The elements before and after an error keep their numbers."""
    run = Run(Dataset.range(COUNT).map(lambda x: 1000 // (int(x) - 70)), hurried=False)
    assert [number for number, found in run.elements.items() if isinstance(found, str)] == [70]
    assert [run.elements[number] for number in (69, 71)] == [-1000, 1000]
    assert run.total == COUNT


class Drift:
    """A clock that a pipeline advances."""

    now = 0.0


def grow(x: np.int64) -> Any:
    """Return a small array up to 1100, then an array of a megabyte that takes ten
    milliseconds.
    """
    from tests.worker.tasks.test_runner import Drift  # a class does not travel with a function

    if x < 1100:
        return np.zeros(1)
    Drift.now += 0.01
    return np.zeros(1 << 17)


def test_memory_is_bounded_where_elements_become_large_within_a_run() -> None:
    """The runner notices large elements at its next look at the clock, not at the end
    of a run sized for small elements.
    """
    packed = pack_pipeline(Dataset.range(3000).map(grow).node)
    definition = define(1, 1, 7, "dataset", packed.digest, "OFF", 9, None, (), ())
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
    """Return an image, and two megabytes from element 100 on, both without delay."""
    return np.zeros(2 << 20 if x >= 100 else 150_528, np.uint8)


@pytest.mark.parametrize(
    ("buffer", "element"), [(1 << 20, "image"), (16 << 20, "image"), (16 << 20, "swelling")]
)
def test_memory_is_bounded_where_images_are_made_together(buffer: int, element: str) -> None:
    """The runner stops at the element that fills its buffer or at the next, also if
    elements grow within a run.
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
    """A stopped runner ends after its current element, not after hundreds of unwanted
    elements.
    """
    gate = Gate.new()
    with running(Dataset.range(3000).map(stick_late)) as (runner, _):
        runner.allow(1 << 20)
        assert gate.entered.wait(PATIENCE)
        runner.stop()
        gate.leave.set()
    assert runner.number == 1102


def test_elements_are_bounded_while_nobody_reads() -> None:
    """The runner stops at its maximum of elements and hands over what it has. Without a
    maximum it continues to the end.
    """
    with running(Dataset.range(20)) as (runner, events):
        runner.allow(1 << 20, 8)
        made = events.get(timeout=PATIENCE)
        assert (type(made), made.first, made.count) == (e.Produced, 0, 8)
        runner.allow(1 << 20)
        made = events.get(timeout=PATIENCE)
        assert (type(made), made.first, made.count) == (e.Produced, 8, 12)
        ended = events.get(timeout=PATIENCE)
        assert structs.replace(ended, measures=None) == e.Exhausted(1, 1, 20)


def test_a_pipeline_that_cannot_be_opened_fails_the_task() -> None:
    """A pipeline that cannot be opened makes no element and no end, only the
    failure.
    """
    with running(Dataset.range(20), reason="the part is lost") as (_, events):
        failed = events.get(timeout=PATIENCE)
        assert isinstance(failed, e.TaskFailed)
        error = decode_failure(failed.failure)
        assert (type(error), str(error)) == (FailedPreconditionError, "the part is lost")


class Changed:
    """An object of a user's class."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __reduce__(self) -> tuple[Any, ...]:
        return (int, (self.x,))


def reusing(make: str) -> Iterator[Any]:
    """Yield the same object again and again, each time with another number."""
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
    long the run is.
    """
    dataset = Dataset.from_generator(lambda: reusing(make))
    packed = pack_pipeline(dataset.node)
    run = Run(
        dataset,
        define(1, 1, 7, "dataset", packed.digest, "OFF", 9, None, (), ()),
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
    """Convert arrays to lists, at any depth."""
    if isinstance(element, dict):
        return {key: _plain(part) for key, part in element.items()}
    return element.tolist() if isinstance(element, np.ndarray) else element


def untidy() -> Iterator[int]:
    """Yield numbers, and fail when the generator is closed."""
    try:
        yield from range(10)
    finally:
        raise RuntimeError("cannot clean up")


def test_what_fails_after_the_last_element_does_not_fail_the_task() -> None:
    """A generator whose clean-up fails takes away no element that was requested and
    made.
    """
    with running(Dataset.from_generator(untidy).take(3)) as (runner, events):
        runner.allow(1 << 20)
        assert made_of(events)[-1][1] == 3
        assert runner.join(PATIENCE)
        assert events.empty()


class Gate:
    """A gate at which a pipeline stays until the test lets it continue."""

    now: Gate

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()

    @classmethod
    def new(cls) -> Gate:
        cls.now = cls()
        return cls.now


def stick(x: Any) -> Any:
    """Wait at the gate for element 3."""
    if x == 3:
        Gate.now.entered.set()
        Gate.now.leave.wait(PATIENCE)
    return x


def stick_late(x: Any) -> Any:
    """Wait at the gate for element 1101."""
    if x == 1101:
        Gate.now.entered.set()
        Gate.now.leave.wait(PATIENCE)
    return x


def made_of(events: queue.SimpleQueue[Any]) -> list[tuple[int, int]]:
    """Return first and stop of each block of a task up to its end."""
    blocks = []
    while not isinstance(made := events.get(timeout=PATIENCE), e.Exhausted):
        blocks.append((made.first, made.first + made.count))
    return blocks


def test_tasks_that_are_read_in_turn_end_their_blocks_together() -> None:
    """The tasks end their blocks at multiples of powers of two, so that an interleaving
    reader consumes them together.
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
    """A single task at a time makes elements. A task that is no longer wanted gives its
    turn to the next.
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
    """A waiting client gets the elements of an overlong turn at the first look after
    the turn should have ended.
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
