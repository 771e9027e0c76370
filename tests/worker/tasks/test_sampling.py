"""Test that the stack of a thread tells the node that it works in."""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from zmqdata import AUTOTUNE, Dataset
from zmqdata.blocks import BlockBuilder
from zmqdata.iterators import Context, make_iterator
from zmqdata.testing.cluster import await_condition
from zmqdata.worker.tasks.sampling import COMPRESSION, NodeSampler

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


@contextmanager
def stopped(dataset: Dataset, gate: Gate) -> Iterator[Callable[[], Counter[tuple[str, str]]]]:
    """Run a dataset in a thread up to its gate, and return what looks at it."""
    context = Context()
    sampler = NodeSampler(dataset.node, context.threads)
    thread = threading.Thread(target=lambda: list(make_iterator(dataset.node, context)))
    thread.start()
    try:
        assert gate.reached.wait(PATIENCE)
        yield lambda: sampler.look(sys._current_frames(), thread.ident or 0)
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
}


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
    "make",
    [
        lambda gate: Dataset.range(9).map(gate).prefetch(2),
        lambda gate: Dataset.range(9).map(gate, num_parallel_calls=2),
        lambda gate: Dataset.range(9).map(gate).map(int, num_parallel_calls=AUTOTUNE),
    ],
)
def test_a_thread_that_waits_for_another_does_not_count(make: Callable[[Gate], Dataset]) -> None:
    """Only the thread that runs the function counts, once it keeps all other threads of
    the pipeline waiting.
    """
    gate = Gate(0)
    dataset = make(gate)
    with stopped(dataset, gate) as look:
        await_condition(
            lambda: (
                [(label[:9], count) for (_, label), count in look().items()] == [("map(Gate)", 1)]
            ),
            what="one thread in map(Gate)",
        )


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
    context = Context()
    sampler = NodeSampler(dataset.node, context.threads)
    iterator = make_iterator(dataset.node, context)
    thread = threading.Thread(target=list, args=(iterator,))
    thread.start()
    try:
        assert gate.reached.wait(PATIENCE)
        await_condition(
            lambda: [fill for fill, most in sampler.queues().values() if 1 < fill <= most],
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


def test_compression_is_the_workers_own_work() -> None:
    """A thread in the compression of a block counts there, and not in the pipeline."""
    frames: list[Any] = []

    class Codec(str):
        """A codec whose name is asked for in the middle of compressing."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            frames.append(sys._getframe())
            return str(self) == other

        def __hash__(self) -> int:
            return hash(str(self))

    builder = BlockBuilder()
    builder.add(bytes(10_000))
    from zmqdata.blocks import Compression

    builder.build(Compression(Codec("zstd")))
    sampler = NodeSampler(Dataset.range(3).node, Context().threads)
    inner = [frame for frame in frames if "compression.py" in str(frame.f_back)]
    assert inner
    seen = sampler.look({1: inner[0].f_back}, 1)
    assert list(seen) == [COMPRESSION]
