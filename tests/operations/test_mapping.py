"""Tests of ``zmqdata.operations.mapping``: the properties of all kinds of map."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.samples import STR, empty, endless, infer, parse, ten, unknown
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.nodes.base import NOTHING_AGAIN, Node
from zmqdata.operations.batch import ListBatch
from zmqdata.operations.mapping import Collate, GuardedMap
from zmqdata.operations.parallel import ParallelCollate, ParallelInterleave, ParallelMap
from zmqdata.operations.random_map import ParallelRandomMap, RandomMap


def parallel(**arguments: Any) -> Node:
    return ParallelMap(inputs=(ten(),), function=parse, num_parallel_calls=2, **arguments)


def interleaved(**arguments: Any) -> Node:
    return ParallelInterleave(
        inputs=(ten(),), function=parse, cycle_length=3, num_parallel_calls=2, **arguments
    )


def random(**arguments: Any) -> Node:
    return RandomMap(inputs=(ten(),), function=parse, **arguments)


def drawing(**arguments: Any) -> Node:
    return ParallelRandomMap(inputs=(ten(),), function=parse, num_parallel_calls=2, **arguments)


def guarded(**arguments: Any) -> Node:
    return GuardedMap(inputs=(ten(),), function=parse, **arguments)


def collating(**arguments: Any) -> Node:
    lists = ListBatch(inputs=(ten(),), batch_size=4)
    return Collate(inputs=(lists,), function=parse, **arguments)


def collating_on_threads(**arguments: Any) -> Node:
    lists = ListBatch(inputs=(ten(),), batch_size=4, drop_remainder=True)
    return ParallelCollate(inputs=(lists,), function=parse, num_parallel_calls=2, **arguments)


@pytest.mark.parametrize(
    ("node", "label"),
    [
        (collating(site="a.py:7"), "batch(collate_fn=parse) at a.py:7"),
        (collating_on_threads(), "batch(collate_fn=parse)"),
        (random(), "random_map(parse)"),
        (guarded(site="a.py:7"), "map(parse) at a.py:7"),
        (parallel(), "map(parse)"),
        (interleaved(), "interleave(parse)"),
        (drawing(), "random_map(parse)"),
    ],
)
def test_labels_are_those_of_the_method(node: Node, label: str) -> None:
    """A label is the method of Dataset and the function, with or without threads or
    guards.
    """
    assert node.label == label


@pytest.mark.parametrize(
    "make", [random, guarded, parallel, drawing, collating, collating_on_threads]
)
def test_specs_are_those_that_were_told(make: Any) -> None:
    """A map has the spec that the user gave, and no spec otherwise."""
    assert make(output_spec=STR).spec(infer) == STR
    assert make().spec(infer) is None


def test_an_interleave_has_no_spec() -> None:
    """The spec of the datasets that the function makes is not known beforehand."""
    assert interleaved().spec(infer) is None


def test_cardinalities_are_those_of_the_plain_kinds() -> None:
    """A map keeps the number of elements of its input, and an interleave does not know
    it.
    """
    assert [node.cardinality for node in (random(), guarded(), parallel(), interleaved())] == [
        10,
        10,
        10,
        UNKNOWN,
    ]
    assert RandomMap(inputs=(unknown(),), function=parse).cardinality == UNKNOWN
    assert [collating().cardinality, collating_on_threads().cardinality] == [3, 2]


@pytest.mark.parametrize("make", [parallel, interleaved, drawing, collating_on_threads])
@pytest.mark.parametrize(("told", "deterministic"), [(None, True), (True, True), (False, False)])
def test_only_an_explicit_no_gives_up_the_order(
    make: Any, told: bool | None, deterministic: bool
) -> None:
    """Operations on threads are deterministic unless deterministic=False is given."""
    assert make(deterministic=told).is_deterministic is deterministic


def test_one_thread_is_deterministic() -> None:
    """Guarded and random maps keep the order of their input."""
    assert random().is_deterministic
    assert guarded().is_deterministic
    assert collating().is_deterministic


def test_the_state_of_an_interleave_grows_with_its_cycle() -> None:
    """Each dataset of the cycle adds 16 bytes to the state. Threads add the numbers of
    the elements in flight.
    """
    assert [node.state_bytes for node in (interleaved(), parallel(), random())] == [48, 32, 8]
    assert [node.state_bytes for node in (collating(), collating_on_threads())] == [8, 32]


def test_operations_on_threads_tell_what_restoring_repeats() -> None:
    """describe() reports that restoring pulls elements again. Maps in the consumer's
    thread repeat nothing.
    """
    assert "32 elements" in parallel().restoring
    assert collating_on_threads().restoring == parallel().restoring
    assert "32 datasets" in interleaved().restoring
    assert random().restoring == guarded().restoring == collating().restoring == NOTHING_AGAIN


def test_what_may_be_left_out_is_of_no_known_number() -> None:
    """A map that skips failures promises no number of elements, unless its input is
    empty or endless.
    """
    assert guarded(on_error="skip").cardinality == parallel(on_error="skip").cardinality == UNKNOWN
    assert guarded(on_error="retry").cardinality == 10
    for source in (empty(), endless()):
        assert (
            GuardedMap(inputs=(source,), function=parse, on_error="skip").cardinality
            == source.cardinality
        )


def test_guards_are_off_unless_asked_for() -> None:
    """Guards raise a failure, never retry, and allow any number of skipped elements by
    default.
    """
    node: Any = guarded()
    assert (node.on_error, node.retries, node.max_errors) == ("raise", 0, None)
    assert isinstance(parallel(), GuardedMap)
    for drawn in (random(), drawing()):
        assert (drawn.seed, drawn.rerandomize_each_iteration) == (None, True)  # type: ignore[attr-defined]
