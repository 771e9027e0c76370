"""Tests of ``zmqdata.operations.parallel`` and ``zmqdata.iterators.crew``."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, outcomes, plain, provided, run
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import AUTOTUNE
from zmqdata.errors import FailedPreconditionError, InvalidElementError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.nodes.options import Options
from zmqdata.operations import parallel
from zmqdata.operations.batch import Batch
from zmqdata.operations.mapping import Map
from zmqdata.operations.nested import Interleave
from zmqdata.operations.parallel import ParallelInterleave, ParallelMap
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import FromGenerator, Range

DEADLINE = 10.0


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def mapped(function: Any, node: Node | int = 9, calls: int = 3, **arguments: Any) -> ParallelMap:
    source = count(node) if isinstance(node, int) else node
    return ParallelMap(inputs=(source,), function=function, num_parallel_calls=calls, **arguments)


def wait_until(condition: Callable[[], bool]) -> None:
    """Await a condition, with a deadline."""
    changed, deadline = threading.Event(), time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        changed.wait(0.002)


def threads() -> list[str]:
    return sorted(
        thread.name for thread in threading.enumerate() if thread.name.startswith("zmqdata-map-")
    )


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Let iterators that other tests have dropped end their threads."""
    gc.collect()
    wait_until(lambda: threads() == [])


def picky(x: Any) -> int:
    if x % 3 == 1:
        raise ValueError(f"not {x}")
    return int(x)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 80), st.sampled_from([1, 2, 5, AUTOTUNE]))
def test_order_and_failures_are_those_of_a_plain_map(stop: int, calls: int) -> None:
    """Elements and failures have the order of a single thread, whatever the threads
    do.
    """
    assert run(mapped(picky, stop, calls)) == run(Map(inputs=(count(stop),), function=picky))


@pytest.mark.parametrize("calls", [1, 3, AUTOTUNE])
def test_every_step_is_restorable(calls: int) -> None:
    """States taken beside working threads continue exactly, also over shuffles, splits
    and repetitions.
    """
    check_restore(mapped(picky, 70, calls))
    shuffled = Shuffle(inputs=(count(30),), buffer_size=5)
    check_restore(Batch(inputs=(mapped(picky, shuffled, calls),), batch_size=2))
    node = mapped(int, Repeat(inputs=(mapped(int, 9, calls),), count=2), calls)
    read = check_restore(node, provided([[(0, 3), (5, 9)], [(1, 2)]]))
    assert [outcome[1] for outcome in read] == [0, 1, 2, 5, 6, 7, 8, 1]


def test_skipping_keeps_the_order_and_the_budget() -> None:
    """on_error works as in a single thread. Its count is part of the state, and the
    quarantine is in order.
    """
    node = mapped(picky, 30, on_error="skip", max_errors=6)
    read = check_restore(node)
    assert [outcome[0] for outcome in read].count("raised") == 4
    context = Context()
    assert list(make_iterator(mapped(picky, on_error="skip"), context)) == [0, 2, 3, 5, 6, 8]
    assert [left_out.number for left_out in context.quarantine] == [1, 4, 7]


def test_out_of_order_nobody_waits_for_a_slow_call() -> None:
    """Elements after a blocked call are yielded before it if ``deterministic`` is
    False.
    """
    release = threading.Event()
    node = mapped(
        lambda x: release.wait(DEADLINE) and 0 if x == 0 else int(x), 6, 2, deterministic=False
    )
    iterator = make_iterator(node, Context())
    assert [next(iterator) for _ in range(5)] == [1, 2, 3, 4, 5]
    release.set()
    assert list(iterator) == [0]


@pytest.mark.parametrize("taken", [0, 1, 3, 6])
def test_a_state_out_of_order_misses_nothing_and_doubles_nothing(taken: int) -> None:
    """A restored iterator yields every element that the state does not list as
    delivered, and no other.
    """
    release = threading.Event()
    node = mapped(
        lambda x: release.wait(DEADLINE) and 0 if x == 0 else int(x), 40, 2, deterministic=False
    )
    iterator = make_iterator(node, Context())
    before = [next(iterator) for _ in range(taken)]
    state = msgspec.msgpack.encode(iterator.state())
    release.set()
    iterator.close()
    again = make_iterator(node, Context())
    again.restore(msgspec.msgpack.decode(state))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(again.state())) == msgspec.msgpack.decode(
        state
    )
    assert sorted(before + list(again)) == list(range(40))


def test_calls_run_at_the_same_time() -> None:
    """As many calls as requested run together, on threads that are named after their
    operation.
    """
    meeting = threading.Barrier(3, timeout=DEADLINE)
    names = set()

    def meet(x: Any) -> int:
        names.add(threading.current_thread().name)
        meeting.wait()
        return int(x)

    assert list(make_iterator(mapped(meet, 9), Context())) == list(range(9))
    assert names == {"zmqdata-map-0", "zmqdata-map-1", "zmqdata-map-2"}


def test_the_threads_stay_within_their_window() -> None:
    """At most twice as many elements as threads are made ahead, even without a
    consumer.
    """
    made: list[int] = []
    iterator = make_iterator(mapped(lambda x: made.append(int(x)), 99, 2), Context())
    next(iterator)
    crew = iterator._crew  # type: ignore[attr-defined]
    wait_until(lambda: crew._full)
    assert len(made) <= 5
    iterator.close()


def test_no_thread_before_the_first_element() -> None:
    """Making, describing and closing an iterator starts no thread."""
    iterator = make_iterator(mapped(picky), Context())
    iterator.state()
    iterator.close()
    assert threads() == []
    assert list(iterator) == []


def test_close_ends_the_threads() -> None:
    """close() waits for the threads, closes the input once, and may be called again."""
    closed = []

    def generate() -> Iterator[int]:
        try:
            yield from range(10**6)
        finally:
            closed.append(True)

    iterator = make_iterator(mapped(int, FromGenerator(generator=generate)), Context())
    next(iterator)
    iterator.close()
    iterator.close()
    assert threads() == []
    assert closed == [True]
    assert list(iterator) == []


def test_a_forgotten_iterator_ends_its_threads() -> None:
    """An iterator that is garbage collected half-way leaves no thread behind."""
    iterator = make_iterator(mapped(int, 10**6), Context())
    next(iterator)
    del iterator
    gc.collect()
    wait_until(lambda: threads() == [])


def test_the_threads_end_with_the_input() -> None:
    """All threads end with the input, and the iterator stays ended."""
    iterator = make_iterator(mapped(int), Context())
    assert list(iterator) == list(range(9))
    wait_until(lambda: threads() == [])
    assert list(iterator) == []


@pytest.mark.parametrize("below", [False, True])
def test_what_ends_a_thread_reaches_the_consumer(below: bool) -> None:
    """A BaseException that is not an Exception is raised at its place, and is the
    end.
    """

    def leave(x: Any) -> Any:
        if x == 2:
            raise SystemExit(3)
        return int(x)

    node = mapped(int, Map(inputs=(count(9),), function=leave)) if below else mapped(leave)
    iterator = make_iterator(node, Context())
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(SystemExit):
        next(iterator)
    assert list(iterator) == []
    wait_until(lambda: threads() == [])


def test_a_forked_child_does_not_hang() -> None:
    """The threads do not exist in a forked child, so the child gets an error instead of
    silence.
    """
    block = threading.Event()
    iterator = make_iterator(mapped(lambda x: block.wait(DEADLINE) if x else None), Context())
    next(iterator)
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


def test_autotune_takes_threads_that_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that waits gets more threads, up to the number of cores."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    wait = threading.Event()
    iterator = make_iterator(mapped(lambda x: wait.wait(0.002), 10**6, AUTOTUNE), Context())
    deadline = time.monotonic() + 4 * DEADLINE
    while iterator._tuner is None or iterator._tuner.size < 3:  # type: ignore[attr-defined]
        next(iterator)
        assert time.monotonic() < deadline
    iterator.close()
    assert threads() == []


def test_autotune_keeps_to_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements that are large for the budget are made ahead in smaller number."""
    monkeypatch.setattr(parallel, "RAM_BUDGET", 10_000)
    iterator = make_iterator(mapped(lambda x: np.zeros(1000), 50, AUTOTUNE), Context())
    assert len(list(outcomes(iterator))) == 50
    assert iterator._crew.window == 1  # type: ignore[attr-defined]


def test_a_shrunk_crew_goes_on() -> None:
    """Threads beyond the size leave at their next turn at the latest, without ending
    the iterator.
    """
    iterator = make_iterator(mapped(int, 100_000), Context())
    read = [next(iterator)]
    crew = iterator._crew  # type: ignore[attr-defined]
    crew.resize(1, 2)

    def have_left() -> bool:  # without a consumer, the thread in turn may wait for room forever
        read.append(next(iterator))
        return threads() == ["zmqdata-map-0"]

    wait_until(have_left)
    crew.resize(2, 4)
    read += islice(iterator, 50)
    assert [plain(x) for x in read] == [plain(x) for x in range(len(read))]
    iterator.close()


def test_options_bound_what_autotune_does() -> None:
    """An operation obeys deterministic, autotune.enabled, cpu_budget and ram_budget of
    the pipeline's options.
    """
    options = Options(
        [
            ("autotune.cpu_budget", 3),
            ("autotune.enabled", False),
            ("autotune.ram_budget", 5),
            ("deterministic", False),
        ]
    )
    iterator: Any = make_iterator(mapped(int, 50, AUTOTUNE), Context(options=options))
    assert (iterator._calls, iterator._ordered, iterator._most_bytes) == (3, False, 5)
    assert sorted(iterator) == list(range(50))
    told: Any = make_iterator(mapped(int, 5, deterministic=True), Context(options=options))
    assert told._ordered


@pytest.mark.parametrize(
    ("size", "calls", "allowed"),
    [(2, 5, 2), (7, 5, 5), (0, 5, 4), (0, AUTOTUNE, 4), (3, AUTOTUNE, 3), (None, 9, 9)],
)
def test_the_pool_bounds_calls(
    monkeypatch: pytest.MonkeyPatch, size: int | None, calls: int, allowed: int
) -> None:
    """Neither an operation's own setting nor AUTOTUNE exceeds private_threadpool_size,
    and 0 means the number of cores.
    """
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    options = Options([] if size is None else [("threading.private_threadpool_size", size)])
    iterator: Any = make_iterator(mapped(int, 50, calls), Context(options=options))
    assert (iterator._cores if calls == AUTOTUNE else iterator._calls) == allowed
    assert list(iterator) == list(range(50))


def test_close_while_it_starts_leaves_no_thread() -> None:
    """An iterator that is closed between making its crew and starting threads starts
    none, and closes its input.
    """
    closed: list[bool] = []
    iterator: Any = make_iterator(
        mapped(int, FromGenerator(generator=lambda: iter(range(9)))), Context()
    )
    source = iterator._source
    close = source.close
    source.close = lambda: (closed.append(True), close())
    state = source.state
    source.state = lambda: (iterator.close(), state())[1]
    with pytest.raises(FailedPreconditionError, match="closed"):
        next(iterator)
    assert closed
    assert threads() == []


def threads_of_parallel_interleave() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith("zmqdata-map-")
    ]


@pytest.fixture(autouse=True)
def quiet_of_parallel_interleave() -> None:
    """Let iterators that other tests have dropped end their threads."""
    gc.collect()
    wait_until(lambda: threads_of_parallel_interleave() == [])


def mixed(n: Any) -> Dataset:
    """Datasets of lengths 0 to 3. A dataset cannot be made, and another has a failing
    element.
    """
    if n == 5:
        raise ValueError("five")
    return Dataset.range(n * 10, n * 10 + int(n) % 4).map(lambda x: 1 // int(x != 70) and int(x))


def interleaved(
    stop: int = 9, cycle: int = 3, block: int = 1, calls: int = 2, **arguments: Any
) -> Node:
    return ParallelInterleave(
        inputs=(Range(start=0, stop=stop),),
        function=arguments.pop("function", mixed),
        cycle_length=cycle,
        block_length=block,
        num_parallel_calls=calls,
        **arguments,
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 12), st.integers(1, 5), st.integers(1, 3), st.sampled_from([1, 3, AUTOTUNE]))
def test_the_order_is_that_of_one_thread(stop: int, cycle: int, block: int, calls: int) -> None:
    """Elements and failures have the order of a single thread, whatever is read
    ahead.
    """
    plain = Interleave(
        inputs=(Range(start=0, stop=stop),), function=mixed, cycle_length=cycle, block_length=block
    )
    assert run(interleaved(stop, cycle, block, calls)) == run(plain)


def test_every_step_is_restorable_of_parallel_interleave() -> None:
    """States taken beside running threads continue exactly, also with splits."""
    check_restore(interleaved())
    read = check_restore(interleaved(block=2), provided([[(2, 4), (6, 9)]]))
    assert len(read) == 2 + 3 + 2 + 3


def test_datasets_are_read_at_the_same_time() -> None:
    """As many datasets as requested are read together, although elements are requested
    singly.
    """
    meeting = threading.Barrier(3, timeout=DEADLINE)

    def met(n: Any) -> Dataset:
        return Dataset.range(2).map(lambda x: (meeting.wait(), int(n * 2 + x))[1])

    iterator = make_iterator(interleaved(3, 3, calls=3, function=met), Context())
    assert list(iterator) == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize("taken", [0, 2, 5])
def test_out_of_order_nobody_waits_for_a_slow_dataset(taken: int) -> None:
    """Other datasets are read to their end if ``deterministic`` is False, and a state
    loses and repeats no element.
    """
    release = threading.Event()

    def slow(n: Any) -> Dataset:
        return Dataset.range(n * 10, n * 10 + 3).map(
            lambda x: (x == 0 and release.wait(DEADLINE), int(x))[1]
        )

    node = interleaved(4, 2, calls=2, function=slow, deterministic=False)
    iterator = make_iterator(node, Context())
    before = [next(iterator) for _ in range(taken)]
    assert 0 not in before
    state = msgspec.msgpack.encode(iterator.state())
    rest = [next(iterator) for _ in range(9 - taken)]
    assert sorted(before + rest) == [10, 11, 12, 20, 21, 22, 30, 31, 32]
    release.set()
    assert list(iterator) == [0, 1, 2]
    again = make_iterator(node, Context())
    again.restore(msgspec.msgpack.decode(state))
    assert sorted(before + list(again)) == sorted(before + rest + [0, 1, 2])


@pytest.mark.parametrize("ending", ["close", "drop", "exhaust"])
def test_no_thread_stays(ending: str) -> None:
    """Closing, dropping and exhausting an iterator end all of its threads."""
    node = interleaved(50, 4, function=lambda n: Dataset.range(20))
    iterator: Any = make_iterator(node, Context())
    next(iterator)
    if ending == "close":
        iterator.close()
        iterator.close()
        assert threads_of_parallel_interleave() == []
    elif ending == "exhaust":
        assert len(list(iterator)) == 999
    del iterator
    gc.collect()
    wait_until(lambda: threads_of_parallel_interleave() == [])


def test_a_function_that_leaves_the_program_does() -> None:
    """SystemExit in the function reaches the consumer."""

    def leave(n: Any) -> Any:
        raise SystemExit(2)

    with pytest.raises(SystemExit):
        next(make_iterator(interleaved(function=leave), Context()))


def test_the_method_makes_the_node() -> None:
    """interleave takes tf.data's arguments."""
    dataset = Dataset.range(3).interleave(
        lambda n: Dataset.range(2), 2, 1, num_parallel_calls=2, deterministic=True
    )
    assert [int(x) for x in dataset] == [0, 0, 1, 1, 0, 1]
    assert dataset.element_spec == Dataset.range(1).element_spec


def test_the_pool_bounds_what_is_read_at_the_same_time() -> None:
    """Reading and opening obey private_threadpool_size, whatever num_parallel_calls
    is.
    """
    options = Options([("threading.private_threadpool_size", 1)])
    reading: list[int] = []

    def read(n: Any) -> Dataset:
        def note(x: Any) -> int:
            reading.append(1)
            assert len(reading) == 1
            reading.pop()
            return int(x)

        return Dataset.range(20).map(note)

    iterator: Any = make_iterator(
        interleaved(6, 3, calls=4, function=read), Context(options=options)
    )
    assert iterator._opening._calls == 1
    assert sorted(iterator) == sorted(list(range(20)) * 6)


def test_a_failure_keeps_no_threads() -> None:
    """An iterator that raised an error ends its threads when it is dropped, even while
    they wait for more room.
    """
    iterator = make_iterator(interleaved(stop=99, function=lambda n: None), Context())
    with pytest.raises(InvalidElementError, match="must return a Dataset"):
        next(iterator)
    wait_until(lambda: len(threads_of_parallel_interleave()) > 1)
    del iterator
    gc.collect()
    wait_until(lambda: threads_of_parallel_interleave() == [])
