"""Tests of ``zmqdata.iterators.draws``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zmqdata.dataset import Dataset
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.draws import Draws, drawing_seed
from zmqdata.nodes.base import Node
from zmqdata.operations.combinations import Zip
from zmqdata.operations.limits import Take
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.random_map import RandomMap
from zmqdata.operations.sources import Range, Tensors


def test_a_draw_is_known_by_its_number() -> None:
    """Draws are the same in any order, also across the groups in which they are
    made.
    """
    one, two = Draws(7), Draws(7)
    forward = [one.at(number) for number in range(1020, 1030)]
    assert [two.at(number) for number in reversed(range(1020, 1030))] == forward[::-1]
    assert all(0 <= value < 1 for value in forward)
    assert len({Draws(seed).at(0) for seed in range(20)}) == 20


def test_draws_are_even() -> None:
    """Ten thousand draws have the mean of a uniform distribution."""
    draws = Draws(3)
    assert abs(sum(map(draws.at, range(10_000))) / 10_000 - 0.5) < 0.02


def test_seeds_vary_with_what_they_should() -> None:
    """A user's seed replaces the context's. A varying seed differs by repetition, and
    places in the tree differ.
    """
    context = Context(seed=1, fixed_seed=2)
    later, elsewhere = context.repeated(1), replace(context, path=(0,))
    assert (
        drawing_seed(5, False, context)
        == drawing_seed(5, False, later)
        != drawing_seed(6, False, context)
    )
    assert drawing_seed(5, True, context) != drawing_seed(5, True, later)
    assert drawing_seed(None, False, context) == drawing_seed(None, False, replace(later, seed=9))
    assert (
        len(
            {
                drawing_seed(None, True, one)
                for one in (context, later, elsewhere, replace(context, seed=9))
            }
        )
        == 4
    )


def test_a_chain_draws_a_seed_for_each() -> None:
    """Operations of a chain with the same seed draw different numbers, also in and
    around a nested dataset. Inputs of a zip draw the same, and so does a dataset with
    another operation behind it.
    """

    def drawn(node: Node) -> Node:
        return RandomMap(
            inputs=(node,), function=lambda *given: (*given[:-1], given[-1].random()), seed=1
        )

    numbers = Range(start=0, stop=20)
    one = drawn(numbers)
    twice = [(first, second) for _, first, second in read(drawn(one))]
    nest = FlatMap(inputs=(numbers,), function=lambda x: Dataset(drawn(Tensors(tensors=x))))
    nested = [(first, second) for _, first, second in read(drawn(nest))]
    assert all(first != second for first, second in twice + nested)
    both = read(Zip(inputs=(one, drawn(numbers)), template=(0, 1)))
    assert all(first[1] == second[1] for first, second in both)
    assert read(Take(inputs=(one,), count=20)) == read(one)


def read(node: Node) -> list[Any]:
    return list(make_iterator(node, Context()))
