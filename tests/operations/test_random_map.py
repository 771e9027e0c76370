"""Tests of ``zmqdata.operations.random_map``."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, run
from tests.iterators.watch import RecordingWatch
from zmqdata.elements.specs import AUTOTUNE
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations.limits import Enumerate
from zmqdata.operations.random_map import GuardedRandomMap, ParallelRandomMap, RandomMap
from zmqdata.operations.sources import Range


def drawn(stop: int = 5, draws: int = 1, **arguments: Any) -> RandomMap:
    def draw(x: Any, rng: np.random.Generator) -> Any:
        return float(rng.random(draws)[-1] if draws > 1 else rng.random())

    return RandomMap(inputs=(Range(start=0, stop=stop),), function=draw, **arguments)


def test_draws_follow_from_the_number() -> None:
    """A restored iterator draws the same, however much earlier elements drew."""
    assert len(set(map(str, check_restore(drawn(20))))) == 20

    def greedy(x: Any, rng: np.random.Generator) -> Any:
        rng.random(int(x) * 100)
        rng.integers(5, dtype="int32")
        return float(rng.random())

    node = RandomMap(inputs=(Range(start=0, stop=9),), function=greedy)
    check_restore(node)


def test_what_was_drawn_before_leaves_no_trace() -> None:
    """Element 3 draws the same, whether earlier elements drew nothing or much."""
    one, two = [], []
    for taken, draws in [(one, 0), (two, 1001)]:

        def draw(x: Any, rng: np.random.Generator, taken: Any = taken, draws: int = draws) -> Any:
            if x < 3:
                rng.random(draws, dtype="float32")
                return 0
            taken.append(rng.random())
            return 0

        run(RandomMap(inputs=(Range(start=0, stop=5),), function=draw, seed=1))
    assert one == two


def test_each_seed_repetition_and_place_draws_otherwise() -> None:
    """Without a seed the context decides. With a seed it is the seed and the
    repetition, or the seed alone.
    """
    contexts = [
        Context(seed=1),
        Context(seed=2),
        Context(seed=1, repetition=1),
        Context(seed=1, path=(1,)),
    ]
    assert len({str(run(drawn(), context)) for context in contexts}) == 4
    assert len({str(run(drawn(seed=5), context)) for context in contexts}) == 2
    assert (
        len(
            {
                str(run(drawn(seed=5, rerandomize_each_iteration=False), context))
                for context in contexts
            }
        )
        == 1
    )
    assert (
        len({str(run(drawn(rerandomize_each_iteration=False), context)) for context in contexts})
        == 2
    )


def test_the_draws_are_the_same_for_ever() -> None:
    """A change of the stream would break resuming runs that an older version began."""
    assert [round(float(outcome[1]), 6) for outcome in run(drawn(3, seed=1))] == [
        0.336801,
        0.296266,
        0.00353,
    ]


def test_tuples_become_arguments_and_failures_name_the_node() -> None:
    """The generator is the last argument, and a failing element is a single failure."""
    pairs = Enumerate(inputs=(Range(start=5, stop=9),))
    node = RandomMap(
        inputs=(pairs,), function=lambda i, x, rng: 1 // int(i - 1) and int(x), site="a.py:1"
    )
    read = check_restore(node)
    assert [outcome[0] for outcome in read] == ["int", "raised", "int", "int"]
    assert read[1][2].startswith("random_map(<lambda>) at a.py:1 failed")


@pytest.mark.parametrize("spec", [None, "given"])
def test_its_spec_is_given_or_found(spec: Any) -> None:
    """A random map has the given spec, or finds it as map does."""
    assert drawn(output_spec=spec).spec(lambda node: None) == spec


def on_threads(function: Any, stop: int = 40, calls: int = 3, **arguments: Any) -> Node:
    source = Range(start=0, stop=stop)
    return ParallelRandomMap(
        inputs=(source,), function=function, num_parallel_calls=calls, **arguments
    )


@pytest.mark.parametrize("calls", [1, 3, AUTOTUNE])
def test_threads_change_no_draw(calls: int) -> None:
    """Any number of threads gives the draws and the order of a single thread, and every
    step can be restored.
    """

    def draw(x: Any, rng: np.random.Generator) -> Any:
        rng.random(int(x) % 7, dtype="float32")
        return float(rng.random()) if x != 7 else 1 // 0

    plain = RandomMap(inputs=(Range(start=0, stop=40),), function=draw, seed=4)
    assert check_restore(on_threads(draw, calls=calls, seed=4)) == run(plain)


def test_calls_at_the_same_time_have_generators_of_their_own() -> None:
    """A generator belongs to a single call until it returns."""
    meeting = threading.Barrier(3, timeout=10.0)

    def draw(x: Any, rng: np.random.Generator) -> Any:
        meeting.wait()
        drawn = [float(rng.random()) for _ in range(3)]
        meeting.wait()
        return (id(rng), *drawn, float(rng.random()))

    read = list(make_iterator(on_threads(draw, 6, seed=1), Context()))
    expected = RandomMap(
        inputs=(Range(start=0, stop=6),), function=lambda x, rng: rng.random(4), seed=1
    )
    assert [list(row[1:]) for row in read] == [
        row.tolist() for row in make_iterator(expected, Context())
    ]
    assert len({row[0] for row in read[:3]}) == 3


def test_out_of_order_the_draws_stay_with_their_elements() -> None:
    """An element that comes early because ``deterministic`` is False draws the same as
    in its place.
    """

    def draw(x: Any, rng: np.random.Generator) -> Any:
        return (int(x), int(rng.integers(1000)))

    loose = make_iterator(on_threads(draw, seed=2, deterministic=False), Context())
    assert sorted(loose) == list(make_iterator(on_threads(draw, seed=2), Context()))


def test_tuples_and_exits_on_threads() -> None:
    """Threads also unpack tuples into arguments, and pass a BaseException to the
    consumer unchanged.
    """
    pairs = Enumerate(inputs=(Range(start=5, stop=9),))

    def leave(i: Any, x: Any, rng: np.random.Generator) -> int:
        if i == 1:
            raise SystemExit(3)
        return int(i + x)

    iterator = make_iterator(
        ParallelRandomMap(inputs=(pairs,), function=leave, num_parallel_calls=2), Context()
    )
    assert next(iterator) == 5
    with pytest.raises(SystemExit):
        next(iterator)


@pytest.mark.parametrize("special", [{"poisoned": {"/": {2}}}, {"suspects": {"/": {2}}}])
def test_a_watched_one_draws_the_same(special: dict[str, Any]) -> None:
    """A watch notes each number and poison is skipped, while the other elements draw
    the same as ever.
    """
    watch = RecordingWatch(**special)
    watched = run(drawn(5, seed=1), Context(watch=watch, quarantine=[]))
    expected = run(drawn(5, seed=1))
    left_out = [2] if "poisoned" in special else []
    assert watched == [outcome for number, outcome in enumerate(expected) if number not in left_out]
    assert watch.notes["/"] == [number for number in range(5) if number not in left_out]
    assert watch.entered == 1 - len(left_out)


def test_a_guarded_one_draws_the_same() -> None:
    """A guarded random map draws the same as a plain random map."""
    plain = drawn(5, seed=1)
    guarded = GuardedRandomMap(
        inputs=plain.inputs, function=plain.function, seed=1, on_error="skip"
    )
    assert check_restore(guarded) == run(drawn(5, seed=1))
