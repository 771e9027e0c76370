"""Tests of ``zmqdata.iterators.parallel_interleave``."""

from __future__ import annotations

import gc
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, provided, run
from tests.iterators.test_parallel import DEADLINE, wait_until
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import AUTOTUNE
from zmqdata.errors import InvalidElementError
from zmqdata.iterators import Context, make_iterator
from zmqdata.nodes.base import Node
from zmqdata.nodes.mapping import ParallelInterleave
from zmqdata.nodes.options import Options
from zmqdata.nodes.sources import Range
from zmqdata.nodes.transforms import Interleave


def threads() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith("zmqdata-map-")
    ]


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Let iterators that other tests have dropped end their threads."""
    gc.collect()
    wait_until(lambda: threads() == [])


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


def test_every_step_is_restorable() -> None:
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
        assert threads() == []
    elif ending == "exhaust":
        assert len(list(iterator)) == 999
    del iterator
    gc.collect()
    wait_until(lambda: threads() == [])


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
    wait_until(lambda: len(threads()) > 1)
    del iterator
    gc.collect()
    wait_until(lambda: threads() == [])
