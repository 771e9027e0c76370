"""Random trees of nodes, up to five deep: restoring at any step continues exactly,
whatever the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.counts import how_many
from tests.iterators.checks import check_restore, provided, run
from tests.iterators.kinds import (
    CHUNK_NAMES,
    NOT_SAMPLED,
    SOURCES,
    STEPS,
    kinds,
    made_pipelines,
    sample_pipelines,
)
from zmqdata.errors import UnimplementedError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.inputs import UnaryIterator
from zmqdata.nodes.base import Node, Unary, every_node
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.cache import Cache
from zmqdata.operations.repeat import Repeat
from zmqdata.splits import ChunkSplits, IndexSplits, Split, SplitSource

NUMBERS = st.integers(0, 4)
TREES = st.tuples(
    st.sampled_from(range(len(SOURCES))),
    NUMBERS,
    st.lists(st.tuples(st.sampled_from(range(len(STEPS))), NUMBERS), max_size=5),
)


@settings(
    max_examples=how_many(60, 150), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(TREES)
def test_any_tree_continues_exactly_from_any_step(tree: Any) -> None:
    """A restored iterator yields what the first would have yielded, with errors at
    their place.
    """
    source, size, steps = tree
    dataset = SOURCES[source](size)
    for index, number in steps:
        dataset = STEPS[index](number)(dataset)
    check_restore(dataset.node, limit=40)


def ranges(source: SplitSource, width: int, repetition: int) -> Sequence[tuple[int, int] | Split]:
    """Return the ranges of splits that a source receives in a repetition: all ranges,
    or all but the first.
    """
    if isinstance(source, ChunkSplits):
        chunks = [Split(repetition, n, n + 1, (name,)) for n, name in enumerate(CHUNK_NAMES)]
        return chunks[repetition % 2 :]
    count = source.count if isinstance(source, IndexSplits) else 3
    stop = 4 if count is None else count
    cuts = [(start, min(start + width, stop)) for start in range(0, stop, width)]
    return cuts[repetition % 2 :]


@settings(
    max_examples=how_many(40, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(TREES, st.integers(1, 3))
def test_any_tree_that_gets_splits_continues_exactly(tree: Any, width: int) -> None:
    """Sources in the service read the splits that they receive, anew in each
    repetition.
    """
    source, size, steps = tree
    dataset = SOURCES[source](size)
    for index, number in steps:
        dataset = STEPS[index](number)(dataset)
    try:
        sources = split_sources(dataset.node)
    except UnimplementedError:
        return
    writes = any(isinstance(node, Cache) and node.filename for node in every_node(dataset.node))
    handed = [[ranges(one, width, repetition) for repetition in range(5)] for one in sources]
    if not writes:  # with the splits of the first run
        check_restore(dataset.node, provided(*handed), limit=40)


@dataclass(frozen=True, kw_only=True)
class _Anew(Unary):
    """Yields its input, with a new iterator for every pass."""


@make_iterator.register(_Anew)
class _AnewIterator(UnaryIterator):
    def __init__(self, node: _Anew, context: Context) -> None:
        self._input = make_iterator(node.input, context)

    def __next__(self) -> Any:
        return next(self._input)


def repeated(node: Node) -> Node:
    return Repeat(inputs=(node,), count=3)


@settings(
    max_examples=how_many(40, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(TREES, st.sampled_from([None, 1, 2]))
def test_a_rewound_iterator_is_as_a_new_one(tree: Any, width: int | None) -> None:
    """Passes that rewind their iterators yield what passes with new iterators yield,
    with and without splits, and continue exactly from any step.
    """
    source, size, steps = tree

    def built() -> Node:
        dataset = SOURCES[source](size)
        for index, number in steps[:3]:
            dataset = STEPS[index](number)(dataset)
        return dataset.node

    rewound, anew = repeated(built()), repeated(_Anew(inputs=(built(),)))
    context: Callable[[], Context] = partial(Context, seed=7)
    if width is not None:
        try:
            sources = split_sources(rewound)
        except UnimplementedError:
            return
        handed = [[ranges(one, width, repetition) for repetition in range(5)] for one in sources]
        context = provided(*handed)
    assert run(rewound, context(), 60) == run(anew, context(), 60)
    if not any(isinstance(node, Cache) and node.filename for node in every_node(rewound)):
        check_restore(rewound, context, limit=12)


@pytest.mark.parametrize("index", range(len(SOURCES) + len(STEPS)))
def test_each_kind_rewinds_exactly(index: int) -> None:
    """Each source and each step repeats exactly before it is used in a tree."""
    rewound, anew = (made[index].node for made in (sample_pipelines(), made_pipelines()))
    assert run(repeated(rewound)) == run(repeated(_Anew(inputs=(anew,))))


@pytest.mark.parametrize("index", range(len(SOURCES) + len(STEPS)))
def test_each_kind_continues_exactly_on_its_own(index: int) -> None:
    """Each source and each step restores correctly before it is used in a tree."""
    check_restore(sample_pipelines()[index].node, limit=40)


def test_every_kind_of_node_is_drawn() -> None:
    """The trees contain all operations of the package, except for those with a stated
    reason.
    """
    drawn = {type(node) for dataset in sample_pipelines() for node in every_node(dataset.node)}
    assert kinds() - drawn == NOT_SAMPLED.keys()
