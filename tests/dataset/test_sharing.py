"""Tests of iterators that threads share."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.forks import told_by_child
from zmqdata.dataset import Dataset
from zmqdata.errors import CancelledError, FailedPreconditionError, PipelineError
from zmqdata.testing.cluster import await_condition

N = 1_000
PIPELINES: dict[str, Callable[[], Dataset]] = {
    "range": lambda: Dataset.range(N),
    "map": lambda: Dataset.range(N).map(lambda x: x),
    "shuffle": lambda: Dataset.range(N).shuffle(50),
    "zip": lambda: Dataset.zip(Dataset.range(N), Dataset.range(N)).map(lambda a, b: a),
    "repeat": lambda: Dataset.range(N // 2).repeat(2).enumerate().map(lambda i, x: i),
    "unbatch": lambda: Dataset.range(N).batch(7).unbatch(),
    "prefetch": lambda: Dataset.range(N).prefetch(2),
    "parallel map": lambda: Dataset.range(N).map(int, num_parallel_calls=2),
    "take": lambda: Dataset.counter().take(N),
    "generator": lambda: Dataset.from_generator(lambda: range(N)),
}


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that are switched as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def in_threads(read: Callable[[], object], count: int = 4) -> list[BaseException]:
    """Run a function in several threads; return what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            read()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return errors


@pytest.mark.parametrize("name", PIPELINES)
def test_each_element_goes_to_one_thread(name: str, hasty: None) -> None:
    """Threads that share an iterator get each element once, and all come to the end."""
    iterator, found = iter(PIPELINES[name]()), list[int]()
    assert in_threads(lambda: found.extend(map(int, iterator))) == []
    assert Counter(found) == Counter(range(N))


def test_each_failure_goes_to_one_thread(hasty: None) -> None:
    """Threads that share an iterator get each failure once, and read on after it."""
    iterator = iter(Dataset.range(N).map(lambda x: int(x) if int(x) % 10 else 1 / 0))
    found: list[int] = []
    failures: list[PipelineError] = []

    def read() -> None:
        while True:
            try:
                found.extend(map(int, iterator))
                return
            except PipelineError as error:
                failures.append(error)

    assert in_threads(read) == []
    assert sorted(found) == [x for x in range(N) if x % 10]
    assert len(failures) == N // 10


def test_numpy_iterators_are_shared_too(hasty: None) -> None:
    """Threads may share what ``as_numpy_iterator`` returns."""
    iterator, found = Dataset.range(N).as_numpy_iterator(), list[int]()
    assert in_threads(lambda: found.extend(iterator)) == []
    assert Counter(found) == Counter(range(N))


class Gate:
    """A dataset whose second element waits until the gate is opened."""

    def __init__(self) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()
        self.dataset = Dataset.from_generator(self._elements).map(lambda x: x)

    def _elements(self) -> Iterator[int]:
        yield 0
        self.reached.set()
        assert self.opened.wait(60)
        yield from (1, 2)


def background(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start a thread that calls a function, and return it with its results to be."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    return thread, results


def test_a_state_is_taken_between_two_elements() -> None:
    """``state_dict`` waits for a thread that takes an element, and the state has that
    element behind it.
    """
    gate = Gate()
    iterator = iter(gate.dataset)
    assert next(iterator) == 0
    taking, taken = background(lambda: next(iterator))
    assert gate.reached.wait(60)
    saving, saved = background(iterator.state_dict)
    await_condition(lambda: iterator._turns._is_shared, what="a thread that waits")  # type: ignore[union-attr]
    assert saved == []
    gate.opened.set()
    for thread in (taking, saving):
        thread.join(60)
    assert taken == [1]
    again = iter(gate.dataset)
    again.load_state_dict(saved[0])
    assert list(again) == [2]
    assert list(iterator) == [2]


def refused(iterator: Any) -> str:
    """Return the text with which an iterator refuses an element."""
    with pytest.raises(CancelledError) as told:
        next(iterator)
    return str(told.value)


def test_closing_ends_the_wait_for_a_turn() -> None:
    """After ``close``, a thread that waits for its turn is told so, and no state is
    invented for the thread that was taking an element. StopIteration would say that
    there were no more.
    """
    gate = Gate()
    iterator = iter(gate.dataset)
    next(iterator)
    taking, taken = background(lambda: next(iterator))
    assert gate.reached.wait(60)
    waiting, waited = background(lambda: refused(iterator))
    await_condition(lambda: iterator._turns._is_shared, what="a thread that waits")  # type: ignore[union-attr]
    closing, _ = background(iterator.close)
    waiting.join(60)
    assert waited == ["The iterator was closed while a thread waited for its element"]
    gate.opened.set()
    for thread in (taking, closing):
        thread.join(60)
    assert taken == [1]
    assert refused(iterator) == "The iterator was closed by another thread"
    iterator.close()
    with pytest.raises(FailedPreconditionError, match="closed while a thread was taking"):
        iterator.state_dict()


@pytest.mark.parametrize("calls", [None, 2])
def test_an_iterator_that_another_thread_closes_does_not_seem_complete(calls: int | None) -> None:
    """A loop whose iterator another thread closes gets an error, and the thread that
    closes it comes to the end.
    """
    iterator = iter(Dataset.range(9).map(abs, num_parallel_calls=calls))
    next(iterator)
    background(iterator.close)[0].join(60)
    assert refused(iterator) == "The iterator was closed by another thread"
    mine = iter(Dataset.range(9).map(abs, num_parallel_calls=calls))
    mine.close()
    assert list(mine) == []


@pytest.mark.parametrize("use", [next, lambda iterator: iterator.state_dict()])
def test_a_function_cannot_use_the_iterator_that_calls_it(use: Callable[[Any], Any]) -> None:
    """A function that takes an element of the iterator that calls it gets an error at
    once, in an iterator that threads share, too.
    """
    iterators: list[Any] = []
    iterators.append(iter(Dataset.range(9).map(lambda x: use(iterators[0]) if x == 1 else x)))
    for shared in (False, True):
        if shared:
            iterators[0] = iter(Dataset.range(9).map(lambda x: use(iterators[0]) if x == 1 else x))
            iterators[0]._turns._await_turn()
        assert next(iterators[0]) == 0
        with pytest.raises(PipelineError, match="used by a function that it was just calling"):
            next(iterators[0])
        assert [int(x) for x in iterators[0]] == list(range(2, 9))


ON_THREADS: dict[str, Callable[[Callable[[Any], Any]], Dataset]] = {
    "map": lambda f: Dataset.range(8).map(f, num_parallel_calls=2),
    "free map": lambda f: Dataset.range(8).map(f, 4, deterministic=False),
    "prefetch": lambda f: Dataset.range(8).map(f).prefetch(2),
    "map and prefetch": lambda f: Dataset.range(8).map(f, num_parallel_calls=2).prefetch(2),
    "shuffle": lambda f: Dataset.range(8).map(f, num_parallel_calls=1).shuffle(3),
    "open": lambda f: Dataset.range(8).interleave(
        lambda x: Dataset.from_tensors(f(x)), 2, num_parallel_calls=2
    ),
    "nested": lambda f: Dataset.range(2).interleave(
        lambda x: Dataset.range(4).map(f), 2, num_parallel_calls=1
    ),
    "free nested": lambda f: Dataset.range(2).interleave(
        lambda x: Dataset.range(4).map(f, num_parallel_calls=1),
        num_parallel_calls=1,
        deterministic=False,
    ),
}


@pytest.mark.parametrize("name", ON_THREADS)
def test_a_function_on_a_thread_does_not_wait_for_its_own_iterator(name: str) -> None:
    """A function gets an element of its own iterator or an error, and every element is
    yielded or reported.
    """
    held: list[Any] = []

    def use(x: Any) -> int:
        return int(next(held[0]) if int(x) % 2 else x)

    iterator = iter(ON_THREADS[name](use))
    held.append(iterator)
    elements: list[int] = []
    errors: list[str] = []

    def read() -> str:
        while True:
            try:
                elements.append(next(iterator))
            except StopIteration:
                return "end"
            except PipelineError as error:
                errors.append(str(error))

    thread, ended = background(read)
    thread.join(20)
    assert ended == ["end"]
    assert {0, 2} <= {*elements}
    assert all("own iterator" in one or "by a function that it was just" in one for one in errors)
    iterator.close()


def test_an_interrupt_leaves_the_iterator_free() -> None:
    """An interrupt within a step ends that step only, in all threads."""
    interrupts = [KeyboardInterrupt()]

    def interrupted(x: int) -> int:
        if x == 2 and interrupts:
            raise interrupts.pop()
        return x

    iterator = iter(Dataset.range(6).map(interrupted))
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    found: list[int] = []
    assert in_threads(lambda: found.extend(map(int, iterator))) == []
    assert sorted(found) == [3, 4, 5]


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    """A child that was forked while a thread took an element gets an error; one forked
    between two elements reads on.
    """
    gate = Gate()
    iterator = iter(gate.dataset)
    assert told_by_child(lambda: next(iterator)) == "0"
    next(iterator)
    taking, _ = background(lambda: next(iterator))
    assert gate.reached.wait(60)

    def read() -> str:
        try:
            return str(next(iterator))
        except FailedPreconditionError as error:
            return str(error)

    assert "was forked while another thread" in told_by_child(read)
    gate.opened.set()
    taking.join(60)
    assert next(iterator) == 2


def test_a_child_that_was_forked_in_a_function_goes_on() -> None:
    """A child that a function of the pipeline forked runs the element itself, so no
    thread of it is told that the element was left running.
    """
    told: list[str] = []

    def fork(x: Any) -> Any:
        told.append(told_by_child(lambda: iterator._turns._is_left))  # type: ignore[union-attr]
        return x

    iterator = iter(Dataset.range(1).map(fork))
    assert (list(iterator), told) == ([0], ["False"])


@pytest.mark.parametrize("shared", [False, True])
def test_an_iterator_ends_with_its_last_reference(shared: bool) -> None:
    """An iterator is freed at once, without the garbage collector, even after threads
    have shared it.
    """
    gc.disable()
    try:
        iterator = iter(Dataset.range(10_000).map(lambda x: x))
        next(iterator)
        if shared:
            iterator._turns._await_turn()  # type: ignore[union-attr]
            next(iterator)
        gone = weakref.ref(iterator._executor)
        del iterator
        assert gone() is None
    finally:
        gc.enable()


def test_a_thread_that_waits_costs_no_processor() -> None:
    """A thread that waits for its turn looks about a hundred times a second."""
    gate = Gate()
    iterator = iter(gate.dataset)
    next(iterator)
    taking, _ = background(lambda: next(iterator))
    assert gate.reached.wait(60)
    waiting, _ = background(lambda: next(iterator))
    began = time.process_time()
    assert not waiting.join(0.5)
    assert time.process_time() - began < 0.25
    gate.opened.set()
    for thread in (taking, waiting):
        thread.join(60)
