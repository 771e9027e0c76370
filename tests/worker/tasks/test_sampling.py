"""Test that the threads of a pipeline publish the node that they work in."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.definitions import define
from tests.iterators.kinds import SOURCES, STEPS
from zmqdata import AUTOTUNE, Dataset
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.ownthreads import Place, Strand
from zmqdata.nodes.base import Node
from zmqdata.operations.choices import Choose
from zmqdata.operations.combinations import Concatenate
from zmqdata.operations.limits import AssertCardinality, Skip, Take
from zmqdata.operations.parallel import ParallelInterleave, ParallelMap
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.selections import IgnoreErrors, Shard, StaticShard, WithOptions
from zmqdata.testing.cluster import await_condition
from zmqdata.testing.iterators import run
from zmqdata.worker.processes.watch import WatchFile
from zmqdata.worker.tasks.sampling import NodeSampler
from zmqdata.worker.tasks.watch import TaskWatch

PATIENCE = 20.0


class Gate:
    """A function of a pipeline that stops at an element until it is opened."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, element: Any) -> Any:
        if int(element) == self._at:
            self.reached.set()
            assert self.opened.wait(PATIENCE)
        return element


def watched() -> Context:
    """Return the context of a pipeline of a worker."""
    task = define(1, 1, 7, "dataset", "digest", "OFF", 9, None, (), ())
    return Context(watch=TaskWatch(WatchFile(), task))


@contextmanager
def stopped(dataset: Dataset, gate: Gate) -> Iterator[Callable[[], Counter[tuple[str, str]]]]:
    """Run a dataset in a thread up to its gate, and return what looks at it."""
    context = watched()
    sampler = NodeSampler(dataset.node, context)
    thread = threading.Thread(target=lambda: list(make_iterator(dataset.node, context)))
    thread.start()
    try:
        assert gate.reached.wait(PATIENCE)
        yield sampler.look
    finally:
        gate.opened.set()
        thread.join(PATIENCE)


CHAINS: dict[str, tuple[Callable[[Gate], Dataset], str, str]] = {
    "map": (lambda gate: Dataset.range(9).map(gate).batch(3), "0", "map("),
    "map of a map": (lambda gate: Dataset.range(9).map(int).map(gate).map(int), "0", "map("),
    "first map": (lambda gate: Dataset.range(9).map(gate).map(int).map(int), "0.0", "map("),
    "filter": (lambda gate: Dataset.range(9).filter(lambda x: bool(gate(x) + 1)), "", "filter("),
    "source": (
        lambda gate: Dataset.from_generator(lambda: map(gate, range(9))).map(int).batch(2),
        "0.0",
        "from_generator(",
    ),
    "below a shuffle": (
        lambda gate: Dataset.range(9).map(gate).shuffle(4).batch(2).repeat(2),
        "0.0.0",
        "map(",
    ),
    "second input": (
        lambda gate: Dataset.zip(Dataset.range(9), Dataset.range(9).map(gate)),
        "1",
        "map(",
    ),
    "nested": (
        lambda gate: Dataset.range(9).flat_map(lambda x: Dataset.from_tensors(gate(x))),
        "",
        "flat_map(",
    ),
    "node of a nested dataset": (
        lambda gate: Dataset.range(9).interleave(lambda x: Dataset.range(7).map(gate).batch(2), 2),
        "",
        "interleave(",
    ),
    "guarded map": (lambda gate: Dataset.range(9).map(gate, on_error="skip").map(int), "0", "map("),
    "random map": (
        lambda gate: Dataset.range(9).random_map(lambda x, _: gate(x)),
        "",
        "random_map(",
    ),
    "scan": (lambda gate: Dataset.range(9).scan(0, lambda n, x: (n, gate(x))), "", "scan("),
    "take while": (
        lambda gate: Dataset.range(9).take_while(lambda x: gate(x) < 9),
        "",
        "take_while(",
    ),
    "batch": (
        lambda gate: Dataset.range(9).batch(3, collate_fn=lambda rows: list(map(gate, rows))),
        "",
        "batch(",
    ),
    "batches": (
        lambda gate: Dataset.range(9).map_batches(lambda rows: [*map(gate, rows)], 3).map(int),
        "0",
        "map_batches(",
    ),
    "lengths": (
        lambda gate: (
            Dataset.range(9)
            .map(lambda x: [x])
            .bucket_by_sequence_length(lambda x: int(gate(x[0])), [4], [2, 2])
        ),
        "",
        "bucket_by_sequence_length(",
    ),
    "keys": (
        lambda gate: Dataset.range(9).group_by_window(
            lambda x: gate(x) % 2, lambda key, group: group.batch(2), 2
        ),
        "",
        "group_by_window(",
    ),
    "sequence": (lambda gate: Dataset.from_source(Asked(gate)).map(int), "0", "from_source("),
    "again": (lambda gate: Dataset.range(9).map(gate).cache().repeat(2), "0.0", "map("),
}


class Asked(list[int]):
    """A sequence that asks a gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(range(9))
        self._gate = gate

    def __getitem__(self, place: Any) -> Any:
        return self._gate(place)


@pytest.mark.parametrize("name", CHAINS)
def test_the_node_of_the_running_function_is_seen(name: str) -> None:
    """The thread counts in the node whose code it runs, not in those that wait for
    it.
    """
    make, place, label = CHAINS[name]
    gate = Gate(5)
    with stopped(make(gate), gate) as look:
        [(seen, count)] = look().items()
    assert (seen[0], seen[1].startswith(label), count) == (place, True, 1), seen


@pytest.mark.parametrize(
    ("make", "label", "count"),
    [
        (lambda gate: Dataset.range(9).map(gate).prefetch(2), "map(", 1),
        (lambda gate: Dataset.range(9).map(gate, num_parallel_calls=2), "map(", 1),
        (lambda gate: Dataset.range(9).map(lambda x: gate(0 * x), num_parallel_calls=2), "map(", 2),
        (lambda gate: Dataset.range(9).map(gate).map(int, num_parallel_calls=AUTOTUNE), "map(", 1),
        (
            lambda gate: Dataset.range(9).interleave(
                lambda x: Dataset.from_tensors(gate(x)), 2, num_parallel_calls=2
            ),
            "interleave(",
            1,
        ),
        (
            lambda gate: Dataset.range(2).interleave(
                lambda x: Dataset.range(2).map(lambda y: gate(x + y)), num_parallel_calls=2
            ),
            "interleave(",
            1,
        ),
        (lambda gate: Dataset.range(9).map(lambda x: gate(x - 5)).prefetch(2), "map(", 1),
        (lambda gate: Dataset.range(9).map(lambda x: gate(x - 5), num_parallel_calls=2), "map(", 1),
        (
            lambda gate: Dataset.range(1).interleave(
                lambda x: Dataset.range(9).map(lambda y: gate(y - 5)),
                num_parallel_calls=2,
                deterministic=False,
            ),
            "interleave(",
            1,
        ),
    ],
)
def test_a_thread_that_waits_for_another_does_not_count(
    make: Callable[[Gate], Dataset], label: str, count: int
) -> None:
    """Only threads that run the function count, once they keep all other threads of the
    pipeline waiting.
    """
    gate = Gate(0)
    with stopped(make(gate), gate) as look:
        await_condition(
            lambda: (
                [(name.startswith(label), seen) for (_, name), seen in look().items()]
                == [(True, count)]
            ),
            what=f"{count} threads in {label}",
        )


def test_nobody_works_after_the_end() -> None:
    """Threads that run ahead publish nothing once they have ended or rest."""
    dataset = Dataset.range(9).map(int, num_parallel_calls=2).prefetch(2)
    context = watched()
    iterator = make_iterator(dataset.node, context)
    assert len(list(iterator)) == 9
    iterator.close()
    assert NodeSampler(dataset.node, context).look() == {}


class Log(Strand):
    """A strand that keeps all that is published in it."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen: list[Place | None] = []

    @property
    def place(self) -> Place | None:  # type: ignore[override]
        return self.seen[-1] if self.seen else None

    @place.setter
    def place(self, place: Place | None) -> None:
        self.seen.append(place)


PASSES_ON = (
    AssertCardinality,
    Choose,
    Concatenate,
    IgnoreErrors,
    Shard,
    Skip,
    StaticShard,
    Take,
    WithOptions,
)
"""Operations that make nothing of an element."""


def places(node: Node, at: Place = ()) -> set[Place]:
    """Return the places of the operations that the reader's thread runs, as far as each
    makes something of elements.
    """
    found = set() if isinstance(node, PASSES_ON) else {at}
    if isinstance(node, (ParallelInterleave, ParallelMap, Prefetch)):
        return found
    return found.union(*(places(inner, (*at, i)) for i, inner in enumerate(node.inputs)))


@pytest.mark.parametrize("number", range(len(SOURCES) + len(STEPS)))
def test_each_operation_publishes_itself(number: int) -> None:
    """Each operation of the package publishes its own place while it runs."""
    made = [*SOURCES, *(lambda n, step=step: step(n)(Dataset.range(4 * n)) for step in STEPS)]
    node = made[number](3).node
    run(node, replace(watched(), strand=(log := Log())))
    assert places(node) <= {*log.seen}


PAUSE = threading.Event()


def slowly(element: Any) -> Any:
    """Take so long that a thread of its own pays off."""
    PAUSE.wait(0.002)
    return element


@pytest.mark.parametrize(
    "ahead",
    [
        lambda dataset: dataset.map(slowly).prefetch(4),
        lambda dataset: dataset.map(slowly, num_parallel_calls=2),
    ],
)
def test_the_fill_of_queues_is_known(ahead: Callable[[Dataset], Dataset]) -> None:
    """An operation that runs ahead of a slow one has elements in its queue, which is
    forgotten with its iterator.
    """
    gate = Gate(1)
    dataset = ahead(Dataset.range(9)).map(gate)
    context = watched()
    sampler = NodeSampler(dataset.node, context)
    iterator = make_iterator(dataset.node, context)
    thread = threading.Thread(target=list, args=(iterator,))
    thread.start()
    try:
        assert gate.reached.wait(PATIENCE)
        await_condition(
            lambda: [one for one in sampler.queues().values() if 1 < one.ready <= one.most],
            what="elements in the queue",
        )
        assert [place for place, _ in sampler.queues()] == ["0"]
    finally:
        gate.opened.set()
        thread.join(PATIENCE)
    iterator.close()
    del iterator, thread
    gc.collect()
    assert sampler.queues() == {}


@pytest.mark.parametrize(
    ("held", "owns_splits", "is_held_up"),
    [
        (lambda dataset, gate: dataset.map(gate, 2), False, True),
        (
            lambda dataset, gate: dataset.random_map(lambda x, _: gate(x), num_parallel_calls=2),
            False,
            True,
        ),
        (lambda dataset, gate: dataset.map(gate, 2), True, False),
        (lambda dataset, gate: dataset.map(gate, 2, True), False, False),
        (
            lambda dataset, gate: dataset.flat_map(lambda _: Dataset.range(9).map(gate, 2)),
            False,
            False,
        ),
    ],
)
def test_a_node_whose_order_may_change_is_held_up(
    held: Callable[[Dataset, Gate], Dataset], owns_splits: bool, is_held_up: bool
) -> None:
    """Results wait for a slow call at the head. The queue is held up if another order
    of the node would let them pass: the user asks for none, nor do the other tasks.
    """
    gate = Gate(0)
    dataset = held(Dataset.range(9), gate)
    context = replace(watched(), owns_splits=owns_splits)
    sampler = NodeSampler(dataset.node, context)
    thread = threading.Thread(target=lambda: list(make_iterator(dataset.node, context)))
    thread.start()
    try:
        assert gate.reached.wait(PATIENCE)
        await_condition(lambda: (3, 4) in [one[:2] for one in sampler.queues().values()])
        if is_held_up:
            await_condition(lambda: [one.is_held_up for one in sampler.queues().values()] == [True])
        for _ in range(1000):
            assert [one.is_held_up for one in sampler.queues().values()] == [is_held_up]
    finally:
        gate.opened.set()
        thread.join(PATIENCE)
