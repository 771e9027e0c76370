"""Tests of the states of tasks: when they are taken, what they need, and that a task
continues from them without anything else.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.counts import how_many
from tests.iterators.kinds import SOURCES, STEPS
from tests.iterators.test_random_trees import TREES, ranges
from zmqdata import Dataset
from zmqdata.core.lineage import MOST_STATE_BYTES
from zmqdata.errors import DataLossError, UnimplementedError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.states import NO_STATE, Bookmark
from zmqdata.messages import TaskState
from zmqdata.nodes.base import Node, every_node
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.cache import Cache
from zmqdata.splits import Split
from zmqdata.testing.iterators import outcomes
from zmqdata.worker.tasks.ledger import LedgerProvider, needs_of
from zmqdata.worker.tasks.states import BYTES_PER_SECOND, COST, EVERY, StateTaker, restore


class Told(ElementIterator):
    """An iterator that needs a given time to return a given state."""

    def __init__(self, state: Any, now: list[float], seconds: float = 0.0) -> None:
        self.told, self.now, self.seconds = state, now, seconds

    def __next__(self) -> Any:
        raise StopIteration

    def state(self) -> Any:
        self.now[0] += self.seconds
        if isinstance(self.told, Exception):
            raise self.told
        return self.told

    def restore(self, state: Any) -> None:
        self.told = state


def test_a_state_is_due_after_a_second_of_work() -> None:
    """Only the time in which elements can be made counts toward the next state."""
    now = [10.0]
    taker = StateTaker(0, lambda: now[0])
    assert taker.due == 10.0 + EVERY
    taker.idle(5.0)
    assert taker.due == 15.0 + EVERY


def test_states_that_cost_much_are_rare() -> None:
    """States take at most a hundredth of the time, and a bounded number of bytes per
    second in the journal.
    """
    now = [0.0]
    taker = StateTaker(0, lambda: now[0])
    assert taker.take(Told(1, now), 7) == TaskState(7, msgspec.msgpack.encode(1))
    assert taker.due == EVERY
    taker.take(Told(1, now, 0.25), 8)
    assert taker.due == 0.25 + COST * 0.25
    taker.take(Told(b"x" * (10 * BYTES_PER_SECOND), now), 9)
    assert taker.due == pytest.approx(0.25 + 10, abs=0.01)


def test_a_state_that_is_too_large_is_not_told() -> None:
    """A state that is too large is checked again later, as it may shrink."""
    now = [0.0]
    taker = StateTaker(0, lambda: now[0])
    assert taker.take(Told(b"x" * (MOST_STATE_BYTES + 1), now), 7) is None
    assert EVERY < taker.due < math.inf


@pytest.mark.parametrize("state", [[1, NO_STATE], object(), ValueError("no")])
def test_a_pipeline_that_cannot_say_where_it_is_is_not_asked_again(state: Any) -> None:
    """The task continues without states and does not ask such a pipeline again."""
    taker = StateTaker(0, lambda: 0.0)
    assert taker.take(Told(state, [0.0]), 7) is None
    assert taker.due == math.inf


class Place(Bookmark):
    """The bookmark of a service."""

    def plain(self) -> Any:
        raise NotImplementedError


def test_a_pipeline_that_reads_from_a_service_is_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A task of a second stage has no states, and its worker warns of nothing."""
    taker = StateTaker(0, lambda: 0.0)
    assert taker.take(Told([1, {"input": Place()}], [0.0]), 7) is None
    assert taker.due == math.inf
    assert caplog.record_tuples == []
    assert taker.take(Told(object(), [0.0]), 7) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


class Desk:
    """Provide each source of a pipeline with the ledger of the first run, or with the
    end of it.
    """

    def __init__(self, node: Node, width: int) -> None:
        self.node = node
        handed = [
            [ranges(one, width, repetition) for repetition in range(5)]
            for one in split_sources(node)
        ]
        self.ledgers = [
            [
                Split(number, *one, _names(*one)) if isinstance(one, tuple) else one
                for number, cuts in enumerate(source)
                for one in [*cuts, (0, 0)]
            ]
            for source in handed
        ]

    def open(self, bases: tuple[int, ...] | None = None) -> ElementIterator:
        bases = bases or (0,) * len(self.ledgers)
        self.providers: list[LedgerProvider] = []
        for source, (ledger, base) in enumerate(zip(self.ledgers, bases, strict=True)):
            self.providers.append(
                LedgerProvider(ledger[base:], self._give_end(source), source=source, base=base)
            )
        return make_iterator(self.node, Context(seed=7, providers=tuple(self.providers)))

    def _give_end(self, source: int) -> Any:
        """Answer each request beyond the ledger with the end of the repetition, which
        the ledger then holds.
        """

        def want(repetition: int, have: int, waiting: bool, pace: float) -> None:
            if waiting:
                end = Split(repetition, 0, 0)
                self.ledgers[source].append(end)
                self.providers[source].feed([end])

        return want


def _names(start: int, stop: int) -> tuple[str, ...]:
    return tuple(f"file {number}" for number in range(start, stop))


@settings(
    max_examples=how_many(50, 120), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(TREES, st.integers(1, 3))
def test_any_task_goes_on_with_the_entries_that_its_state_needs(tree: Any, width: int) -> None:
    """A state needs no ledger entry before the first that it names, whatever the
    pipeline holds back.
    """
    source, size, steps = tree
    dataset = SOURCES[source](size)
    for index, number in steps:
        dataset = STEPS[index](number)(dataset)
    try:
        desk = Desk(dataset.node, width)
    except UnimplementedError:
        return
    if any(isinstance(node, Cache) and node.filename for node in every_node(dataset.node)):
        return  # its files belong to the first run
    states, made = first_run(desk)
    for place, state in states:
        needs = needs_of(msgspec.msgpack.decode(state), len(desk.ledgers))
        assert list(rest(desk, needs, state, len(made) - place)) == made[place:]


def first_run(desk: Desk) -> tuple[list[tuple[int, bytes]], list[Any]]:
    """Return some states with the numbers of the elements after them, and at most 40
    elements.
    """
    iterator, states, made = desk.open(), [], []
    try:
        for element in outcomes(iterator):
            made.append(element)
            if len(made) % 3 == 1:
                states.append((len(made), msgspec.msgpack.encode(iterator.state())))
            if len(made) == 40:
                break
    finally:
        iterator.close()
    return states, made


def rest(desk: Desk, needs: tuple[int, ...], state: bytes, count: int) -> Any:
    iterator = desk.open(needs)
    try:
        restore(iterator, TaskState(1, state))
        following = outcomes(iterator)
        for _ in range(count):
            yield next(following)
    finally:
        iterator.close()


def test_a_long_task_needs_few_entries() -> None:
    """The state of a shuffle with batches needs as many entries as its buffers may
    hold, not all entries so far.
    """
    desk = Desk(Dataset.range(1000).shuffle(20).batch(2).prefetch(2).node, 1)
    iterator = desk.open()
    for _ in range(400):
        next(iterator)
    assert needs_of(iterator.state(), 1)[0] > 650
    iterator.close()


@pytest.mark.parametrize(
    "content", [b"", b"\xc1", msgspec.msgpack.encode({}), msgspec.msgpack.encode([7, 7])]
)
def test_a_damaged_state_is_data_loss(content: bytes) -> None:
    """A damaged state is data loss, whatever its bytes are and however the operations
    react to them.
    """
    iterator = Desk(
        Dataset.range(1000).shuffle(20).bucket_by_sequence_length(int, [2], [2, 2]).node, 1
    ).open()
    with pytest.raises(DataLossError, match=r"element 5 does not fit .* \(.*older state"):
        restore(iterator, TaskState(5, content))
    iterator.close()
