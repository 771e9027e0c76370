"""Tests of ``zmqdata.operations.prefetch``."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, plain, provided
from zmqdata.elements.specs import AUTOTUNE
from zmqdata.errors import CancelledError, FailedPreconditionError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.nodes.options import Options
from zmqdata.operations import prefetch
from zmqdata.operations.mapping import Map
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.sources import FromGenerator, Range

DEADLINE = 10.0


def prefetched(node: Node, size: int = 4) -> Node:
    return Prefetch(inputs=(node,), buffer_size=size)


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def wait_until(condition: Callable[[], bool]) -> None:
    """Await a condition, with a deadline."""
    changed, deadline = threading.Event(), time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        changed.wait(0.002)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "zmqdata-prefetch"]


@pytest.mark.parametrize("size", [AUTOTUNE, 0, 1, 4, 1000])
def test_elements_come_in_order(size: int) -> None:
    """Elements come in the order of the input, whatever the buffer, and every step can
    be restored.
    """
    assert check_restore(prefetched(count(70), size)) == [plain(np.int64(x)) for x in range(70)]


def test_failures_come_at_their_place() -> None:
    """A failure is raised at the place of its element, and the next elements follow."""
    failing = Map(inputs=(count(5),), function=lambda x: 1 // (int(x) - 2))
    assert [outcome[0] for outcome in check_restore(prefetched(failing))] == [
        "int",
        "int",
        "raised",
        "int",
        "int",
    ]


def test_ledgers_are_followed_from_the_thread() -> None:
    """A state taken beside the running thread holds the provider's position before the
    delivered elements.
    """
    context = provided([[(0, 3), (5, 9)], [(1, 2)]])
    node = prefetched(Repeat(inputs=(prefetched(count(9), 2),), count=2), 3)
    assert [outcome[3] for outcome in check_restore(node, context)] == [0, 1, 2, 5, 6, 7, 8, 1]


def test_the_thread_stays_within_its_buffer() -> None:
    """The thread runs ahead by the size of the buffer and no further."""
    made: list[int] = []
    iterator = make_iterator(
        prefetched(Map(inputs=(count(99),), function=lambda x: made.append(int(x))), 3),
        Context(),
    )
    next(iterator)
    pump = iterator._pump  # type: ignore[attr-defined]
    wait_until(lambda: pump._resting)
    assert 3 <= len(made) <= 4
    iterator.close()


def test_it_runs_ahead_while_the_consumer_is_busy() -> None:
    """Elements are made before the consumer asks for them."""
    made = threading.Event()
    node = Map(inputs=(count(3),), function=lambda x: made.set() if x == 2 else None)
    iterator = make_iterator(prefetched(node), Context())
    next(iterator)
    assert made.wait(DEADLINE)
    iterator.close()


def test_no_thread_before_the_first_element() -> None:
    """Making, describing and closing an iterator starts no thread."""
    before = threads()
    iterator = make_iterator(prefetched(count(3)), Context())
    iterator.state()
    iterator.close()
    assert threads() == before
    assert list(iterator) == []


def test_close_ends_the_thread() -> None:
    """close() waits for the thread, closes the input, and may be called again."""
    closed = []

    def generate() -> Iterator[int]:
        try:
            yield from range(10**6)
        finally:
            closed.append(True)

    iterator = make_iterator(prefetched(FromGenerator(generator=generate)), Context())
    next(iterator)
    thread = iterator._pump._thread  # type: ignore[attr-defined]
    iterator.close()
    iterator.close()
    assert not thread.is_alive()
    assert closed == [True]
    assert list(iterator) == []


def test_a_forgotten_iterator_ends_its_thread() -> None:
    """An iterator that is garbage collected half-way leaves no thread behind."""
    iterator = make_iterator(prefetched(count(10**6)), Context())
    next(iterator)
    thread = iterator._pump._thread  # type: ignore[attr-defined]
    del iterator
    gc.collect()
    wait_until(lambda: not thread.is_alive())


def test_the_thread_ends_with_the_input() -> None:
    """The thread ends with the input, and the iterator stays ended."""
    iterator = make_iterator(prefetched(count(3)), Context())
    assert len(list(iterator)) == 3
    thread = iterator._pump._thread  # type: ignore[attr-defined]
    wait_until(lambda: not thread.is_alive())
    assert list(iterator) == []


def test_what_ends_a_thread_reaches_the_consumer() -> None:
    """A BaseException that is not an Exception is raised at its place, and the next
    elements follow.
    """

    def leave(x: Any) -> Any:
        if x == 1:
            raise SystemExit(3)
        return x

    iterator = make_iterator(prefetched(Map(inputs=(count(3),), function=leave)), Context())
    assert next(iterator) == 0
    with pytest.raises(SystemExit):
        next(iterator)
    assert list(iterator) == [2]


def test_a_pump_without_thread_does_not_wait_for_ever() -> None:
    """A consumer that waits for a stopped thread is told of the closed iterator."""
    iterator = make_iterator(prefetched(count(10**6), 1), Context())
    next(iterator)
    pump = iterator._pump  # type: ignore[attr-defined]
    pump.stop()
    pump.join()
    with pytest.raises(CancelledError, match="closed"):
        list(iterator)


def test_a_forked_child_does_not_hang() -> None:
    """The thread does not exist in a child forked while it pulls, so the child gets an
    error instead of silence.
    """
    block, pulling = threading.Event(), threading.Event()
    node = Map(
        inputs=(count(9),), function=lambda x: pulling.set() or block.wait(DEADLINE) if x else None
    )
    iterator = make_iterator(prefetched(node, 1), Context())
    next(iterator)
    assert pulling.wait(DEADLINE)
    pid = os.fork()
    if pid == 0:
        try:
            next(iterator)
        except FailedPreconditionError:
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    block.set()
    iterator.close()
    assert os.waitstatus_to_exitcode(status) == 0


def test_failures_below_are_pipeline_errors() -> None:
    """A failure of the input keeps its node and its original exception."""
    node = Map(inputs=(count(1),), function=lambda x: 1 // 0, site="a.py:2")
    with pytest.raises(PipelineError, match=r"map\(<lambda>\) at a.py:2") as caught:
        next(make_iterator(prefetched(node), Context()))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_quick_pulls_are_left_to_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread rests if changing threads costs more than the element, and works when
    pulls become slow.
    """
    where: list[str] = []

    def note(x: Any) -> Any:
        where.append(threading.current_thread().name)
        return x

    monkeypatch.setattr(prefetch, "_WORTH", 1e9)
    iterator: Any = make_iterator(
        prefetched(Map(inputs=(count(5000),), function=note), 16), Context()
    )
    assert [int(next(iterator)) for _ in range(2900)] == list(range(2900))
    assert "zmqdata-prefetch" not in where[1500:]
    monkeypatch.setattr(prefetch, "_WORTH", 0.0)
    assert len(list(iterator)) == 2100
    assert iterator._pump._worth


@pytest.mark.parametrize("number", [0, 32, 64])
def test_an_end_at_a_mark_is_a_state(number: int) -> None:
    """If the end arrives with a state of the input, it becomes the state of the
    iterator.
    """
    node = prefetched(count(number))
    iterator = make_iterator(node, Context())
    assert len(list(iterator)) == number
    _, since, ended = state = iterator.state()
    assert (since, ended) == (0, True)
    again = make_iterator(node, Context())
    again.restore(state)
    assert list(again) == []


def test_it_can_start_before_the_first_element() -> None:
    """After start() the thread fills the buffer by itself, and a second start() begins
    no second thread.
    """
    iterator: Any = make_iterator(prefetched(count(9), 2), Context())
    assert not iterator.is_ready
    iterator.start()
    pump = iterator._pump
    wait_until(lambda: iterator.is_ready)
    iterator.start()
    assert iterator._pump is pump
    assert [int(x) for x in iterator] == list(range(9))
    assert iterator.is_ready


def test_stop_ends_the_thread_soon() -> None:
    """After stop() the thread ends by itself, and no more elements come."""
    iterator: Any = make_iterator(prefetched(count(10**6)), Context())
    assert next(iterator) == 0
    iterator.stop()
    assert iterator.is_ready
    assert list(iterator) == []
    wait_until(lambda: not iterator._pump._thread.is_alive())


def test_a_stopped_iterator_does_not_start() -> None:
    """After stop() without a thread, start() begins none."""
    iterator: Any = make_iterator(prefetched(count(3)), Context())
    iterator.stop()
    iterator.start()
    assert iterator._pump is None
    assert list(iterator) == []


def test_who_asks_for_readiness_sets_a_resting_thread_to_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A resting thread with an empty buffer fills it when a consumer asks if an element
    is ready, and no element is lost.
    """
    monkeypatch.setattr(prefetch, "_WORTH", 1e9)
    iterator: Any = make_iterator(prefetched(count(5000), 16), Context())
    found = [int(next(iterator))]
    pump = iterator._pump
    while not (pump._resting and not pump._buffer) and len(found) < 4000:
        found.append(int(next(iterator)))
    assert pump._resting
    assert not pump._buffer
    wait_until(lambda: iterator.is_ready)
    found.extend(map(int, iterator))
    assert found == list(range(5000))


def test_a_function_may_close_the_iterator_that_runs_it() -> None:
    """close() in the thread itself does not wait for that thread, which ends after the
    function.
    """
    started, closed = threading.Event(), threading.Event()

    def close(x: Any) -> Any:
        assert started.wait(DEADLINE)
        iterator.close()
        closed.set()
        return x

    iterator: Any = make_iterator(prefetched(Map(inputs=(count(9),), function=close)), Context())
    iterator.start()
    started.set()
    assert closed.wait(DEADLINE)
    wait_until(lambda: not iterator._pump._thread.is_alive())
    assert list(iterator) == []


def test_a_forked_child_goes_on_alone() -> None:
    """A child forked while the thread rests yields the buffer and all further elements
    without a thread.
    """
    iterator: Any = make_iterator(prefetched(count(100), 4), Context())
    read = [int(next(iterator))]
    wait_until(lambda: iterator._pump._resting)
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if [int(x) for x in iterator] == list(range(1, 100)) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert read + [int(x) for x in iterator] == list(range(100))


def test_close_while_it_starts_leaves_no_thread() -> None:
    """close() and stop() between making the pump and starting its thread start no
    thread, and close the input.
    """
    for ending in ("close", "stop"):
        closed: list[bool] = []
        iterator: Any = make_iterator(
            prefetched(FromGenerator(generator=lambda: iter(range(9)))), Context()
        )
        source = iterator._source
        close, state = source.close, source.state
        source.close = lambda closed=closed, close=close: (closed.append(True), close())
        end = getattr(iterator, ending)
        source.state = lambda end=end, state=state: (end(), state())[1]
        with pytest.raises(CancelledError, match="closed"):
            next(iterator)
        assert closed
        assert iterator._pump._thread.ident is None
        assert list(iterator) == []


def test_a_pump_stopped_before_its_thread_can_be_joined() -> None:
    """close() does not wait for a pump without a thread, and no thread starts
    afterwards.
    """
    iterator: Any = make_iterator(prefetched(count(9)), Context())
    pump = iterator._pump = prefetch._Pump(iterator._source, iterator._size, iterator._own_threads)
    iterator.close()
    pump.start()
    assert pump._thread.ident is None


def test_autotune_bridges_a_consumer_that_takes_in_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer grows as long as bursts find it empty after it was full, and then
    stays.
    """
    made: list[int] = []
    rest = threading.Event()
    monkeypatch.setattr(prefetch, "perf_counter", lambda: len(made) * 20e-6)

    def make(x: Any) -> int:
        """Take 20 us of simulated time. In a burst the thread is slower than the
        consumer.
        """
        if threading.current_thread() is iterator._pump._thread:
            wait_until(lambda: rest.is_set() or iterator._pump._empty)
        made.append(int(x))
        return int(x)

    iterator: Any = make_iterator(
        prefetched(Map(inputs=(count(100_000),), function=make), AUTOTUNE), Context()
    )
    read = 0
    for _ in range(8):
        rest.clear()
        for _ in range(20):
            assert next(iterator) == read
            read += 1
        rest.set()
        wait_until(
            lambda: iterator._pump._resting and len(iterator._pump._buffer) > iterator._size.low
        )
    assert iterator._size.most == 32
    assert len(made) - read <= 32
    iterator.close()


@pytest.mark.parametrize(
    ("settings", "most"),
    [({}, 4), ({"autotune.enabled": False}, 8), ({"autotune.ram_budget": 24}, 3)],
)
def test_options_bound_what_autotune_holds(settings: dict[str, Any], most: int) -> None:
    """ram_budget bounds the bytes of the elements. Without tuning the size is
    constant.
    """
    options = Options(settings.items())
    iterator: Any = make_iterator(prefetched(count(50), AUTOTUNE), Context(options=options))
    assert int(next(iterator)) == 0
    wait_until(lambda: iterator._pump._resting)
    assert iterator._size.most == most
    assert most - 1 <= len(iterator._pump._buffer) <= most
    iterator.close()


def test_only_slow_stretches_are_timed_pull_by_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single pulls are not timed while the total time is small."""
    ticks = itertools.count()
    monkeypatch.setattr(prefetch, "perf_counter", lambda: next(ticks) * 1e-7)
    iterator: Any = make_iterator(prefetched(count(2000), 2), Context())
    for _ in range(1000):
        next(iterator)
    assert not iterator._pump._timing
    assert not iterator._pump._worth
    iterator._pump._noted = (-1e9, iterator._pump._pulled)
    timed = [iterator._pump._timing for _ in range(64) if next(iterator) is not None]
    assert timed[0] is False
    assert True in timed
    assert len(list(iterator)) == 936
