"""Tests of ``zmqdata.operations.storage``."""

from __future__ import annotations

import pytest

from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import UnimplementedError
from zmqdata.nodes.base import Node, source_nodes
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.cache import Cache
from zmqdata.operations.combinations import Zip
from zmqdata.operations.loading import Load
from zmqdata.operations.sources import Range
from zmqdata.operations.stored import Snapshot
from zmqdata.splits import ChunkSplits, IndexSplits

INT = TensorSpec((), "int64")
THREE = Range(start=0, stop=3)


def infer(node: Node) -> object:
    return node.spec(infer)


def test_a_cache_is_as_its_input() -> None:
    """The spec, the cardinality and the splits of a cache are those of its input."""
    memory, files = Cache(inputs=(THREE,)), Cache(inputs=(THREE,), filename="/a")
    assert (memory.label, files.label, files.folder) == ("cache()", "cache('/a')", "/a")
    assert (memory.cardinality, infer(memory), split_sources(memory)) == (3, INT, [IndexSplits(3)])


def test_a_snapshot_hides_its_sources_from_splitting() -> None:
    """A snapshot counts as a single source, which cannot be split. Its folder depends
    on its pipeline.
    """
    node = Snapshot(inputs=(Zip(inputs=(THREE, THREE), template=(0, 1)),), path="/a", pipeline="b")
    assert (node.label, node.folder) == ("snapshot('/a')", "/a/b")
    assert source_nodes(Zip(inputs=(THREE, node), template=(0, 1))) == [THREE, node]
    with pytest.raises(
        UnimplementedError, match="Splitting is not implemented for snapshot datasets"
    ):
        split_sources(node)


def test_what_was_saved_describes_itself() -> None:
    """Count and spec of a saved dataset are known without reading it, and it cannot be
    split.
    """
    node = Load(path="/a", save_id="r", count=5, elements_spec=INT)
    assert (node.label, node.cardinality, infer(node)) == ("load('/a')", 5, INT)
    with pytest.raises(
        UnimplementedError, match="Cannot create split providers for dataset of type LoadDataset"
    ):
        _ = node.split_source


def test_what_was_saved_in_chunks_is_split_by_chunk() -> None:
    """Tasks share the chunks of a finished save by number, and the chunks of a save in
    progress by name.
    """
    node = Load(path="/a", save_id="r", count=5, elements_spec=INT, chunks=3)
    assert node.split_source == IndexSplits(3)
    growing = Load(path="/a", save_id="r", elements_spec=INT, grows=True)
    assert (growing.label, growing.cardinality, infer(growing)) == (
        "load('/a', wait=True)",
        -2,
        INT,
    )
    assert growing.split_source == ChunkSplits("/a", "r")
