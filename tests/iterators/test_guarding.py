"""Tests of ``zmqdata.iterators.guarding``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.iterators.checks import check_restore, outcomes, provided
from zmqdata.dataset import Dataset
from zmqdata.errors import PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.deciding import Deciding
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.batch import Batch
from zmqdata.operations.combinations import Concatenate, Zip
from zmqdata.operations.files import TFRecords
from zmqdata.operations.folds import GroupByReducer, Reducer
from zmqdata.operations.limits import Enumerate
from zmqdata.operations.mapping import Filter, GuardedMap, Map
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.parallel import ParallelMap
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import Range
from zmqdata.operations.unbatch import Unbatch


def odd_fails(x: Any) -> int:
    if x % 2:
        raise ValueError(f"odd {x}")
    return int(x)


def guarded(function: Any = odd_fails, stop: int = 8, **arguments: Any) -> GuardedMap:
    return GuardedMap(
        inputs=(Range(start=0, stop=stop),), function=function, site="a.py:7", **arguments
    )


def test_skipped_elements_are_in_quarantine() -> None:
    """The quarantine holds its number, the map, the error and a traceback that leads to
    the user's line.
    """
    context = Context()
    assert list(make_iterator(guarded(on_error="skip"), context)) == [0, 2, 4, 6]
    assert [left_out.number for left_out in context.quarantine] == [1, 3, 5, 7]
    first = context.quarantine[0]
    assert (first.node, first.error, first.split) == (
        "map(odd_fails) at a.py:7",
        "ValueError: odd 1",
        None,
    )
    assert 'raise ValueError(f"odd {x}")' in first.traceback
    check_restore(guarded(on_error="skip"))


def splits_left_out(below: Any, map_kind: Any = GuardedMap, **arguments: Any) -> list[Any]:
    """Return the splits of the elements that an always failing map skips, after a
    pipeline on two ranges of a source.
    """
    pipeline = below(Range(start=0, stop=8))
    context = provided([[FIRST, SECOND]], *[[[]]] * (len(split_sources(pipeline)) - 1))()
    context = replace(context, deciding=Deciding(0, (), lambda seconds: None))  # as every task has
    node = map_kind(inputs=(pipeline,), function=lambda *x: 1 // 0, on_error="skip", **arguments)
    assert list(make_iterator(node, context)) == []
    return [left_out.split for left_out in context.quarantine]


FIRST, SECOND = (2, 4), (6, 8)


@pytest.mark.parametrize(
    ("below", "splits"),
    [
        (lambda source: source, [FIRST, FIRST, SECOND, SECOND]),
        (lambda source: Map(inputs=(source,), function=int), [FIRST, FIRST, SECOND, SECOND]),
        (
            lambda source: Filter(inputs=(source,), predicate=lambda x: x % 2 == 0),
            [FIRST, SECOND],
        ),
        (lambda source: Enumerate(inputs=(source,)), [FIRST, FIRST, SECOND, SECOND]),
        (lambda source: Repeat(inputs=(source,), count=1), [FIRST, FIRST, SECOND, SECOND]),
        (
            lambda source: Concatenate(inputs=(source, TFRecords(filenames=()))),
            [FIRST, FIRST, SECOND, SECOND],
        ),
        (lambda source: Batch(inputs=(source,), batch_size=2), [FIRST, SECOND]),
        (lambda source: Batch(inputs=(source,), batch_size=3), [SECOND, SECOND]),
        (
            lambda source: Unbatch(inputs=(Batch(inputs=(source,), batch_size=2),)),
            [FIRST, FIRST, SECOND, SECOND],
        ),
        (
            lambda source: FlatMap(inputs=(source,), function=lambda x: Dataset.range(int(x) // 2)),
            [FIRST, FIRST, *[SECOND] * 6],
        ),
        (lambda source: Zip(inputs=(source,), template=(0,)), [None] * 4),
        (lambda source: Shuffle(inputs=(source,), buffer_size=2), [None] * 4),
        (
            lambda source: GroupByReducer(
                inputs=(source,),
                key_function=int,
                reducer=Reducer(int, lambda state, x: state, int),
            ),
            [None] * 4,
        ),
    ],
)
def test_a_split_is_named_where_it_is_known(below: Any, splits: list[Any]) -> None:
    """The quarantine names the split of an element after any operation that passes
    elements on at once.
    """
    assert splits_left_out(below) == splits


def test_threads_know_the_split_of_each_element() -> None:
    """A parallel map notes the split of an element when it is pulled, not when its call
    fails.
    """
    assert splits_left_out(lambda source: source, ParallelMap, num_parallel_calls=3) == [
        FIRST,
        FIRST,
        SECOND,
        SECOND,
    ]
    quiet = Context()
    node = ParallelMap(
        inputs=guarded().inputs, function=odd_fails, on_error="skip", num_parallel_calls=2
    )
    assert list(make_iterator(node, quiet)) == [0, 2, 4, 6]
    assert [left_out.split for left_out in quiet.quarantine] == [None] * 4
    check_restore(node, provided([[FIRST, SECOND]]))


@pytest.mark.parametrize("most", [0, 1, 3, 4])
def test_the_budget_bounds_what_is_left_out(most: int) -> None:
    """Failures beyond max_errors are raised at their place, and the count is part of
    the state.
    """
    read = check_restore(guarded(on_error="skip", max_errors=most))
    assert [outcome[0] for outcome in read].count("raised") == 4 - most
    iterator = make_iterator(guarded(on_error="skip", max_errors=1), Context())
    with pytest.raises(
        PipelineError, match=r"odd 3\n1 elements were left out before.*quarantine"
    ) as caught:
        list(iterator)
    assert isinstance(caught.value.__cause__, ValueError)


def flaky(failures: int) -> Any:
    """Make a function that fails a number of times for each element."""
    tried: dict[int, int] = {}

    def function(x: Any) -> int:
        tried[int(x)] = tried.get(int(x), 0) + 1
        if tried[int(x)] <= failures:
            raise OSError("try again")
        return tried[int(x)]

    return function


@pytest.mark.parametrize("on_error", ["retry", "skip"])
def test_retrying(on_error: str) -> None:
    """A map retries its function up to ``retries`` times, then raises the failure or
    skips the element.
    """
    assert list(make_iterator(guarded(flaky(2), 3, on_error=on_error, retries=2), Context())) == [
        3,
        3,
        3,
    ]
    read = [
        outcome[0]
        for outcome in outcomes(
            make_iterator(guarded(flaky(3), 3, on_error=on_error, retries=2), Context())
        )
    ]
    assert read == (["raised"] * 3 if on_error == "retry" else [])


def test_leaving_the_program_is_no_failure() -> None:
    """SystemExit is neither retried nor skipped."""

    def leave(x: Any) -> Any:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        list(make_iterator(guarded(leave, on_error="skip", retries=3), Context()))


def test_failures_below_pass() -> None:
    """A map skips the failures of its own function, not failures of its input."""
    node = GuardedMap(
        inputs=(Map(inputs=guarded().inputs, function=odd_fails),),
        function=int,
        on_error="skip",
    )
    assert [outcome[0] for outcome in check_restore(node)] == ["int", "raised"] * 4
