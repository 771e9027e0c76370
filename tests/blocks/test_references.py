"""Tests of ``zmqdata.blocks.references``: blocks inside a process, and their size."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from zmqdata.blocks.codec import BlockBuilder
from zmqdata.blocks.references import MAX_ELEMENTS, ReferenceBuilder, copied, size_of
from zmqdata.elements.ragged import RaggedTensor


def test_a_block_has_the_very_elements() -> None:
    """A block holds the very elements without a copy, and is its own frames."""
    elements = [{"x": np.zeros(3)}, object(), lambda: 1]
    builder = ReferenceBuilder()
    assert all(builder.add(element, describe=False) for element in elements)
    block = builder.build()
    assert [id(element) for element in block.elements()] == [id(element) for element in elements]
    assert [id(element) for element in block.elements(2)] == [id(elements[2])]
    assert list(block.elements(3)) == []
    assert (block.count, block.meta, block.frames) == (3, b"", block)


def test_a_block_counts_its_bytes() -> None:
    """A block's size is the total of its elements. The builder shows it as it grows,
    and restarts at zero.
    """
    builder = ReferenceBuilder()
    builder.add(np.zeros(4))
    builder.add(np.zeros(2, np.uint8))
    assert (builder.count, builder.nbytes) == (2, 34)
    assert builder.build().nbytes == 34
    assert (builder.count, builder.nbytes) == (0, 0)


def test_what_was_built_does_not_change() -> None:
    """Elements added after a build belong to the next block."""
    builder = ReferenceBuilder()
    builder.add("first")
    block = builder.build()
    builder.add("second")
    assert list(block.elements()) == ["first"]
    assert list(builder.build().elements()) == ["second"]


def test_a_described_element_is_added_as_it_is() -> None:
    """Adding a described element is the same as adding the element."""
    builder = ReferenceBuilder()
    element = {"x": [1]}
    assert builder.add_described(builder.describe(element))
    (found,) = builder.build("blosc").elements()
    assert found is element


def test_a_full_block_takes_nothing() -> None:
    """A full block rejects elements, and the builder continues with the next block."""
    builder = ReferenceBuilder()
    assert all(builder.add(None) for _ in range(MAX_ELEMENTS))
    size = builder.nbytes
    assert not builder.add(None)
    assert (builder.count, builder.nbytes) == (MAX_ELEMENTS, size)
    assert builder.build().count == MAX_ELEMENTS
    assert builder.add(None)


def test_there_is_no_block_without_elements() -> None:
    """Building without elements raises an error with the remedy, as in the encoding
    builder.
    """
    for builder in (ReferenceBuilder(), BlockBuilder()):
        with pytest.raises(ValueError, match="block without elements"):
            builder.build()


@dataclass
class Sample:
    image: Any


@dataclass(slots=True)
class Slim:
    image: Any


class Tensor:
    """A tensor as in other libraries."""

    nbytes = 12_345


def test_what_objects_refer_to_counts() -> None:
    """Arrays in attributes, slots and sets count, and so do the bytes an object
    reports.
    """
    image = np.zeros(1000)
    for element in (Sample(image), Slim(image), Sample(Slim({"x": image}))):
        assert image.nbytes <= size_of(element) <= image.nbytes + 500
    assert size_of(Tensor()) == Tensor.nbytes
    assert size_of(Sample) < 10_000
    itself = Sample(image)
    itself.image = itself
    assert size_of(itself) < 1000


def test_what_elements_share_counts_once_for_a_block() -> None:
    """A value shared by elements counts once per block. Scanning its million entries
    for each element would cost more.
    """
    vocabulary, image = list(range(1_000_000)), np.zeros(1000)
    builder = ReferenceBuilder()
    for _ in range(100):
        builder.add(Sample((vocabulary, image.copy())))
    shared, alone = size_of(Sample(vocabulary)), size_of(Sample((image,)))
    assert shared > 8_000_000
    assert shared < builder.nbytes < shared + 101 * alone


def test_of_many_parts_few_are_looked_at() -> None:
    """The size covers nearby parts only: large parts exactly, unvisited parts not at
    all.
    """
    images = [np.zeros(1_000_000, np.uint8) for _ in range(10)]
    for parts in ([*images, *[1] * 20_000], [[None] * 900, images]):
        assert 10_000_000 <= size_of(Sample(parts)) < 11_000_000
    assert size_of(Sample([np.zeros(1_000, np.uint8) for _ in range(10_000)])) < 1_200_000
    nested: Any = 7
    for _ in range(6):
        nested = [nested] * 1000
    assert size_of(Sample(nested)) > 8_000


@pytest.mark.parametrize(
    ("element", "size"),
    [
        (np.zeros((3, 5), np.int32), 60),
        (np.zeros(0), 0),
        ({"x": np.zeros(2), "y": {"z": np.zeros(3)}}, 40),
        ((np.zeros(2), [np.zeros(1), np.zeros(1)]), 32),
        ((), 0),
        (RaggedTensor(np.zeros(3), np.array([0, 1, 3], np.int32)), 36),
        (RaggedTensor(RaggedTensor(np.zeros(3), [0, 1, 3]), [0, 2]), 64),
        (np.array(["text", "ab"], object), 16 + sys.getsizeof("text") + sys.getsizeof("ab")),
        (np.array([b"", None]), 16),
        ("text", sys.getsizeof("text")),
        (7, sys.getsizeof(7)),
        (None, sys.getsizeof(None)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_sizes(element: object, size: int) -> None:
    """Arrays count their bytes, nestings their content, ragged tensors all their
    arrays. Other values count what Python reports.
    """
    assert size_of(element) == size


class Point(NamedTuple):
    """A structure that is neither a dict nor a plain tuple."""

    x: Any
    y: Any


def test_shared_blocks_hand_out_copies() -> None:
    """Each reader of a shared block gets a copy, so writes stay private."""
    ragged = RaggedTensor(np.arange(3), [0, 1, 3])
    element = {
        "a": np.zeros(2),
        "t": (np.ones(1), "text", 5),
        "p": Point(np.zeros(1), ragged),
        "o": Point,
    }
    builder = ReferenceBuilder(shared=True)
    builder.add(element)
    block = builder.build()
    for _ in range(2):
        (found,) = block.elements()
        assert found["t"][1:] == ("text", 5)
        assert type(found["p"]) is Point
        assert found["o"] is Point
        assert found["p"].y.equals(ragged)
        assert found["p"].y is not ragged
        for array, was in ((found["a"], 0), (found["t"][0], 1), (found["p"].x, 0)):
            assert (array == was).all()
            array[...] = 7
    assert (element["a"] == 0).all()


def test_copies_go_to_any_depth() -> None:
    """Arrays and ragged tensors are copied at any depth; other values are shared."""
    array, ragged, thing = np.zeros(2), RaggedTensor([1.0], [0, 1]), object()
    found = copied({"x": (array, Point(thing, ragged), 1), "y": "text"})
    assert found["x"][0] is not array
    assert found["x"][1].x is thing
    assert not np.shares_memory(found["x"][1].y.values, ragged.values)
    assert (found["x"][1].y.equals(ragged), found["x"][2], found["y"]) == (True, 1, "text")
    assert copied(array) is not array


def test_what_is_no_plain_structure_may_be_copied_otherwise() -> None:
    """Lists and other objects are copied by the given function at any depth."""
    assert copied({"x": ([1, 2], 3)}, tuple) == {"x": ((1, 2), 3)}
