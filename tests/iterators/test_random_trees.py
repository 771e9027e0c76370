"""Random trees of nodes, up to five deep: restoring at any step continues exactly,
whatever the tree.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, provided
from tests.iterators.kinds import NOT_SAMPLED, SOURCES, STEPS, kinds, sample_pipelines
from zmqdata.errors import UnimplementedError
from zmqdata.nodes import Cache, every_node, split_sources
from zmqdata.splits import IndexSplits, SplitSource

NUMBERS = st.integers(0, 4)
TREES = st.tuples(
    st.sampled_from(range(len(SOURCES))),
    NUMBERS,
    st.lists(st.tuples(st.sampled_from(range(len(STEPS))), NUMBERS), max_size=5),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


def ranges(source: SplitSource, width: int, repetition: int) -> list[tuple[int, int]]:
    """Return the ranges of splits that a source receives in a repetition: all ranges,
    or all but the first.
    """
    count = source.count if isinstance(source, IndexSplits) else 3
    stop = 4 if count is None else count
    cuts = [(start, min(start + width, stop)) for start in range(0, stop, width)]
    return cuts[repetition % 2 :]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
