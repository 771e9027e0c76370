"""Tests of ``zmqdata.iterators.base``: contexts, seeds, and how functions are called
and their results converted.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import LedgerProvider
from zmqdata.errors import FailedPreconditionError, PipelineError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import call, failure, is_end
from zmqdata.iterators.context import Context, mixed_seed
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.states import NO_STATE, Bookmark, Restoring, holds_no_state, plain_state
from zmqdata.nodes.base import Node
from zmqdata.operations.batch import ListBatch
from zmqdata.operations.combinations import Zip
from zmqdata.operations.limits import Take
from zmqdata.operations.mapping import Collate, Map
from zmqdata.operations.sources import Range, TensorSlices

Point = namedtuple("Point", ["x", "y"])


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def zipped(*inputs: Node) -> Zip:
    return Zip(inputs=inputs, template=tuple(range(len(inputs))))


def providing(number: int) -> Context:
    """Return a context with a number of providers."""
    return Context(providers=tuple(LedgerProvider([[]]) for _ in range(number)))


def test_without_providers_a_source_reads_all_of_itself() -> None:
    """A context without providers passes None to each source."""
    assert Context().provider() is None
    assert Context().into(zipped(count(1), count(2)), 1).provider() is None


def test_a_source_takes_the_provider_that_came_down_to_it() -> None:
    """A source takes the only provider, below any number of operations with one
    input.
    """
    context = providing(1)
    assert context.providers is not None
    below = context.into(Take(inputs=(count(1),), count=1))
    assert below.provider() is context.providers[0]


@pytest.mark.parametrize("number", [0, 2])
def test_too_few_or_too_many_providers_are_an_error(number: int) -> None:
    """A source without exactly one provider reports how many it got and where the
    number comes from.
    """
    with pytest.raises(FailedPreconditionError, match=rf"got {number}: .*split_sources"):
        providing(number).provider()


def test_providers_are_shared_out_from_left_to_right() -> None:
    """Each input gets as many providers as it has sources. The last input gets any
    excess and refuses it.
    """
    tree = zipped(zipped(count(1), count(2)), count(3), zipped(count(4), count(5)))
    context = providing(5)
    assert context.providers is not None
    shares = [context.into(tree, index).providers for index in range(3)]
    assert shares == [context.providers[:2], context.providers[2:3], context.providers[3:]]
    with pytest.raises(FailedPreconditionError, match="got 2"):
        providing(3).into(zipped(count(1), count(2)), 1).provider()


def test_a_path_leads_to_each_node() -> None:
    """Contexts of different inputs have different paths, so that two shuffles in one
    pipeline have two orders.
    """
    tree = zipped(count(1), Take(inputs=(count(2),), count=1))
    assert Context().into(tree, 0).path == (0,)
    assert Context().into(tree, 1).into(tree.inputs[1]).path == (1, 0)


def test_nested_datasets_read_everything_with_seeds_of_their_own() -> None:
    """The seeds of nested datasets follow from the place and number of the outer
    element, and those that stay from its operation and number. They get no provider.
    """
    context = dataclasses.replace(providing(1), seed=3, fixed_seed=4, repetition=2, iteration=5)
    places = [context, context.into(Take(inputs=(count(1),), count=1))]
    nested = [place.nested(number) for place in places for number in range(3)]
    assert len({inner.seed for inner in nested}) == 6
    assert [inner.fixed_seed for inner in nested[:3]] == [inner.fixed_seed for inner in nested[3:]]
    makers = [None, count(1), Take(inputs=(count(1),), count=1)]
    made = {context.nested(number, maker=maker).fixed_seed for number in (0, 1) for maker in makers}
    assert len(made) == 6
    assert {(inner.providers, inner.path, inner.turn) for inner in nested} == {
        (None, (), context.turn)
    }
    assert places[1].nested(2) == nested[-1]


def test_each_iteration_and_repetition_is_a_turn_of_its_own() -> None:
    """Repetitions of different iterators are different turns, and repeating changes
    nothing else.
    """
    turns = {Context(iteration=i).repeated(r).turn for i in range(5) for r in (0, 1, 2**32 - 1)}
    assert len(turns) == 15
    assert Context(seed=1, path=(2,)).repeated(3) == Context(seed=1, path=(2,), repetition=3)


@given(st.lists(st.integers(), max_size=4), st.lists(st.integers(), max_size=4))
def test_seeds_depend_on_every_part(one: list[int], other: list[int]) -> None:
    """Seeds fit 63 bits, are the same for the same parts, and differ if any part or
    their order differs.
    """
    assert 0 <= mixed_seed(*one) < 2**63
    assert (mixed_seed(*one) == mixed_seed(*other)) == (one == other)


def test_seeds_are_the_same_on_every_machine() -> None:
    """A job keeps its order when it moves to another worker or is read by a later
    version.
    """
    seeds = [mixed_seed(), mixed_seed(1, 2), mixed_seed(-1)]
    assert seeds == [8238016292129134938, 6288156900839449082, 1129168158855626867]


def test_a_node_without_an_iterator_says_what_to_do() -> None:
    """The error names the kind of node, and how to make it runnable."""
    with pytest.raises(
        TypeError,
        match=r"registered for a Node: register an iterator with make_iterator\.register",
    ):
        make_iterator(Node(), Context())


def test_nodes_from_elsewhere_are_run_by_what_was_registered() -> None:
    """A registered function makes the iterator of a new kind of node, with its inputs
    and context.
    """

    @dataclass(frozen=True, kw_only=True)
    class Twice(Take):
        """A node that takes twice as many elements."""

    @make_iterator.register(Twice)
    def _(node: Twice, context: Context) -> ElementIterator:
        return make_iterator(Take(inputs=node.inputs, count=2 * node.count), context)

    iterator = make_iterator(Twice(inputs=(count(9),), count=2), Context())
    assert iter(iterator) is iterator
    assert [int(x) for x in iterator] == [0, 1, 2, 3]


def test_an_input_runs_in_its_own_part_of_the_context() -> None:
    """The second input of a zip reads the second provider's splits."""
    tree = zipped(count(3), count(5))
    assert [int(x) for x in input_iterator(tree, Context(), 1)] == [0, 1, 2, 3, 4]
    assert list(input_iterator(tree, providing(2), 1)) == []


def test_closing_is_allowed_to_an_iterator_that_holds_nothing() -> None:
    """close() may be called on any iterator, and again."""
    iterator = make_iterator(count(1), Context())
    iterator.close()
    iterator.close()


def test_a_failure_names_the_node_and_the_fault() -> None:
    """The error text is the label of the node, with the user's line, then class and
    text of the original error.
    """
    node = Map(inputs=(count(1),), function=len, site="train.py:12")
    error = failure(node, ValueError("bad"))
    assert isinstance(error, PipelineError)
    assert str(error) == "map(len) at train.py:12 failed: ValueError: bad"
    assert error.node == "map(len) at train.py:12"


@pytest.mark.parametrize("function", [lambda x: x, lambda x, y, z: x])
def test_a_function_of_other_arguments_is_told_what_it_gets(function: Any) -> None:
    """If the call itself fails, the error explains how tuples become arguments. It does
    not if the function fails inside.
    """
    pairs = TensorSlices(tensors=(np.arange(2), np.arange(2)))
    mapped = Map(inputs=(pairs,), function=function)
    with pytest.raises(
        PipelineError, match=r"positional argument.* plain tuple is passed as separate arguments"
    ):
        next(make_iterator(mapped, Context()))
    lists = ListBatch(inputs=(pairs,), batch_size=2)
    with pytest.raises(PipelineError, match=r"positional argument.* gets the list of the elements"):
        next(make_iterator(Collate(inputs=(lists,), function=lambda x, y: x), Context()))
    inside = Map(inputs=(pairs,), function=lambda x, y: function())
    with pytest.raises(PipelineError, match=r"positional argument[^.]*$"):
        next(make_iterator(inside, Context()))


@pytest.mark.parametrize(
    ("element", "arguments"),
    [
        ((1, 2), (1, 2)),
        ((), ()),
        (Point(1, 2), (Point(1, 2),)),
        ({"a": 1}, ({"a": 1},)),
        ([1, 2], ([1, 2],)),
    ],
)
def test_only_a_plain_tuple_becomes_arguments(element: Any, arguments: tuple[Any, ...]) -> None:
    """Only a plain tuple is unpacked; a namedtuple, a dict or any other value is a
    single argument.
    """
    assert call(lambda *args: args, element) == arguments


@pytest.mark.parametrize(
    "state", [NO_STATE, [1, NO_STATE], (2, [NO_STATE]), {"a": 1, "b": [0, {"c": NO_STATE}]}]
)
def test_a_missing_part_of_a_state_is_found_at_any_depth(state: Any) -> None:
    """Lists, tuples and the values of dicts are searched for a missing state."""
    assert holds_no_state(state)


@pytest.mark.parametrize(
    "state", [None, 0, "text", NO_STATE.encode(), [], {}, {NO_STATE: 1}, [1, ("a", {"b": None})]]
)
def test_other_states_are_whole(state: Any) -> None:
    """None, empty containers, other texts and the keys of dicts are not missing
    states.
    """
    assert not holds_no_state(state)


class Here(Bookmark):
    """A place that is computed when a state is saved."""

    def plain(self) -> Any:
        return b"here"


def test_bookmarks_are_worked_out_wherever_they_stand_in_a_state() -> None:
    """Bookmarks in lists, tuples and dicts are computed. Everything else stays
    unchanged, and tuples become lists.
    """
    assert plain_state([1, {"input": Here()}, (Here(), "text")]) == [
        1,
        {"input": b"here"},
        [b"here", "text"],
    ]
    assert plain_state(Here()) == b"here"


def test_one_iterator_makes_way_for_those_that_are_restored_in_its_place() -> None:
    """The first iterator gives way once, before a restored iterator begins a job anew.
    Otherwise it is left alone.
    """
    ended: list[str] = []
    restoring = Restoring(lambda: ended.append("before"))
    assert not restoring.gave_way
    for _ in range(2):
        restoring.make_way()
    assert (ended, restoring.gave_way, restoring.checks) == (["before"], True, [])


def test_an_error_stands_for_an_element_unless_it_is_the_end() -> None:
    """An error is the end if it is StopIteration or declares itself final."""
    final = FailedPreconditionError("the service is gone")
    final.final = True
    assert [is_end(error) for error in (StopIteration(), final, PipelineError("f failed"))] == [
        True,
        True,
        False,
    ]
