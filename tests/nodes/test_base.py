"""Tests of ``zmqdata.nodes.base``: what every node has, sources in order, and finding
files.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from tests.nodes.samples import endless, infer, parse, slices, ten
from zmqdata.elements.specs import UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.errors import UnimplementedError
from zmqdata.nodes.base import Node, function_name, known_spec, source_nodes
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.batch import Batch
from zmqdata.operations.combinations import Concatenate, Zip
from zmqdata.operations.files import ListFiles, TextLines, TFRecords
from zmqdata.operations.mapping import Map
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.sources import FromGenerator, Range, Tensors
from zmqdata.operations.unbatch import Rebatch, Unbatch
from zmqdata.splits import FileSplits, IndexSplits


@dataclass(frozen=True, kw_only=True)
class Foreign(Node):
    """A source defined elsewhere."""


def test_a_node_promises_nothing_of_itself() -> None:
    """A kind of node without further properties is named after its class, and has an
    unknown number of unknown elements.
    """
    assert Foreign().label == "Foreign()"
    assert Foreign().cardinality == UNKNOWN_CARDINALITY
    assert infer(Foreign()) is None


def test_a_label_ends_with_the_users_line() -> None:
    """The label names the place in the user's code, if it is known."""
    assert Foreign(site="train.py:12").label == "Foreign() at train.py:12"
    assert (
        Map(inputs=(ten(),), function=parse, site="train.py:12").label
        == "map(parse) at train.py:12"
    )


def test_a_function_without_name_is_called_by_its_class() -> None:
    """Callable objects are named after their class."""
    callable_object = type("Parser", (), {"__call__": lambda self, x: x})()
    assert Map(inputs=(ten(),), function=callable_object).label == "map(Parser)"
    assert [function_name(kind) for kind in (len, int, lambda: 0, parse)] == [
        "len",
        "int",
        "<lambda>",
        "parse",
    ]


def test_sources_describe_their_splits_from_left_to_right() -> None:
    """Each source has a provider: of indices, of files, or of a single split for the
    whole. They have the order of the inputs.
    """
    files = ListFiles(patterns=("/a/*",), shuffle=False, seed=3)
    lines = TextLines(filenames=("/a", "/b"))
    generator = FromGenerator(generator=parse)
    inner = Concatenate(inputs=(Map(inputs=(files,), function=parse), lines))
    tree = Zip(inputs=(slices(4), inner, Tensors(tensors=1), generator), template=(0, 1, 2, 3))
    assert source_nodes(tree)[1:3] == [files, lines]
    assert split_sources(tree) == [
        IndexSplits(4),
        FileSplits(("/a/*",), False, 3),
        IndexSplits(2),
        IndexSplits(1),
        IndexSplits(1),
    ]


def test_a_source_read_twice_has_two_providers() -> None:
    """A node in two places counts as two sources."""
    source = ten()
    assert split_sources(Concatenate(inputs=(source, source))) == [
        IndexSplits(10),
        IndexSplits(10),
    ]


def test_a_source_without_splits_says_so_by_name() -> None:
    """An unsplittable source is refused with tf.data's words, the place and the
    remedy.
    """
    tree = Zip(inputs=(ten(), Foreign(site="train.py:3")), template=(0, 1))
    with pytest.raises(
        UnimplementedError, match=r"split providers for dataset of type Foreign: .* at train.py:3"
    ):
        split_sources(tree)


def test_nodes_are_equal_by_what_they_are() -> None:
    """Equality depends on the arguments and inputs of a node, not on the line of code
    that made it.
    """
    assert dataclasses.replace(ten(), site="a.py:1") == ten()
    assert ten() != Range(start=0, stop=11)
    assert hash(endless()) == hash(endless())


def test_nodes_do_not_change() -> None:
    """Many datasets can share a node, as it cannot be changed."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        ten().stop = 11  # type: ignore[misc]


def test_a_spec_is_known_where_no_function_decides() -> None:
    """The spec follows by the rules of the nodes, and is None if a function has to
    run.
    """
    assert known_spec(Batch(inputs=(ten(),), batch_size=3)) == TensorSpec((None,), "int64")
    assert known_spec(Batch(inputs=(Map(inputs=(ten(),), function=parse),), batch_size=3)) is None


def test_specs_of_long_pipelines_need_no_recursion() -> None:
    """The spec of thousands of operations follows without recursion, whether or not it
    is known.
    """
    for source, spec in (
        (ten(), TensorSpec((), "int64")),
        (Map(inputs=(ten(),), function=parse), None),
    ):
        node: Node = source
        for _ in range(3000):
            node = Concatenate(inputs=(node, source))
        assert known_spec(node) == spec


def test_what_an_element_is() -> None:
    """Elements are batches behind an operation that batches, and no more behind one
    that takes them apart. Operations on batches leave their number of rows.
    """
    batches = Batch(inputs=(ten(),), batch_size=4)
    assert (ten().batch_rows, batches.batch_rows) == (None, 4)
    mapped = Map(inputs=(Prefetch(inputs=(batches,), buffer_size=2),), function=parse)
    assert mapped.batch_rows == 4
    assert Batch(inputs=(mapped,), batch_size=3).batch_rows == 12
    assert Rebatch(inputs=(mapped,), batch_sizes=(5,)).batch_rows == 5
    assert Rebatch(inputs=(mapped,), batch_sizes=(5, 6)).batch_rows == 0
    taken_apart: list[Node] = [
        Unbatch(inputs=(mapped,)),
        FlatMap(inputs=(mapped,), function=parse),
    ]
    assert [one.batch_rows for one in taken_apart] == [None, None]


def test_joined_batches() -> None:
    """Elements of several inputs are batches if those of all inputs are."""
    four, five = (Batch(inputs=(ten(),), batch_size=size) for size in (4, 5))

    def joined(*inputs: Node) -> Node:
        return Concatenate(inputs=inputs)

    assert joined(four, four).batch_rows == 4
    assert joined(four, five).batch_rows == 0
    assert joined(four, ten()).batch_rows is None


def test_a_function_may_say_that_it_makes_batches() -> None:
    """The number of rows that a function states counts, whatever its elements are."""

    class Fetch:
        zmqdata_batch_rows = 8

        def __call__(self, number: int) -> int:
            return number

    assert Map(inputs=(ten(),), function=Fetch()).batch_rows == 8
    assert FlatMap(inputs=(ten(),), function=Fetch()).batch_rows == 8


def test_units_of_splits() -> None:
    """The splits of a source are rows, unless it reads files."""
    assert (ten().split_unit, slices(3).split_unit) == ("rows", "rows")
    lines = TextLines(filenames=("a",))
    assert (lines.split_unit, TFRecords(filenames=("a",)).split_unit) == ("files", "files")
