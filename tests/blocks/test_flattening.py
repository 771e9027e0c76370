"""Tests of ``zmqdata.blocks.flattening``: valid elements and their flattening."""

from __future__ import annotations

import collections
import threading
from typing import Any

import numpy as np
import pytest

from tests.blocks.samples import Colour, Example, NamedPoint, Point, Slotted
from tests.elements.attrs_classes import Marked
from zmqdata.blocks.flattening import describe_element, transposer
from zmqdata.blocks.objects import Pickled
from zmqdata.blocks.structures import DictOf, Leaf, Structure, TupleOf, assemble
from zmqdata.elements.ragged import RaggedTensor


def again(element: object) -> Any:
    """Take an element apart by the fast path and put it together again."""
    structure, leaves = describe_element(element)
    fast = transposer(structure.node, element)([element, element])
    assert fast is not None
    assert [repr([*column]) for column in fast] == [repr([leaf, leaf]) for leaf in leaves]
    return next(assemble(structure.node, iter([iter([leaf]) for leaf in leaves]), 1))


@pytest.mark.parametrize(
    "element",
    [
        5,
        (),
        {},
        (1, "a", b"b", None, 2.5, True, 1j),
        {"b": 1, "a": {"y": (), "x": {}}},
        {1: 2, True + 1: 3, b"k": 4, None: 5, "s": 6},
        {False: 1, "x": (1, {"deep": (2, (3,))})},
        Point(1, 2.0),
        (Point(1, 2.0), {"p": Point(3, 4.0)}),
        NamedPoint(1, 2.0),
        Example(image=(1, 2)),
        {"e": Example(image={"a": 1}, label=4)},
        Slotted(5),
        Marked({"a": 1}, Marked(2, (None,))),
    ],
    ids=repr,
)
def test_nesting_comes_back(element: object) -> None:
    """Any nesting survives a round trip with its types, key order and classes."""
    found = again(element)
    assert found == element
    assert repr(found) == repr(element)


def test_subclasses_of_dict_arrive_as_dict() -> None:
    """An OrderedDict or defaultdict arrives as a dict."""
    assert type(again(collections.OrderedDict(b=1, a=2))) is dict
    assert again(collections.defaultdict(int, a=2)) == {"a": 2}


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, 2], "int64"),
        ([1.5, 2], "float64"),
        ([[True], [False]], "bool"),
        (["a", "bcd"], "<U3"),
        ([b"xy"], "S2"),
    ],
)
def test_lists_become_arrays(value: list[Any], dtype: str) -> None:
    """A list of equal numbers or texts becomes the array that numpy makes of it."""
    (leaf,) = describe_element({"x": value})[1]
    assert isinstance(leaf, np.ndarray)
    assert leaf.dtype == dtype
    assert leaf.tolist() == value


def test_memory_maps_are_arrays(tmp_path: Any) -> None:
    """A memmap is treated as an array."""
    mapped = np.memmap(tmp_path / "x", np.uint8, "w+", shape=(3,))
    (leaf,) = describe_element(mapped)[1]
    assert type(leaf) is np.ndarray


def test_text_without_width_gets_one() -> None:
    """A text array of width 0, which only views have, arrives with width 1."""
    empty = np.zeros(3, [("a", "U0"), ("b", "i4")])["a"]
    (leaf,) = describe_element(empty)[1]
    assert isinstance(leaf, np.ndarray)
    assert leaf.dtype == "<U1"


LOOP: dict[str, Any] = {}
LOOP["again"] = LOOP


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (
            {"a": (1, {2: threading.Lock()})},
            r"element\['a'\]\[1\]\[2\] is of type _thread.lock.*Convert it",
        ),
        (
            Point(lambda: 1, 2.0),
            r"element\.x is of type builtins.function.*defined within a function",
        ),  # type: ignore[arg-type]
        (np.array([len]), r"an array of dtype dtype\('O'\).*builtins.len"),
        (len, "builtins.len"),
        (LOOP, "deeper than 64 levels, or contains itself"),
        (tuple(range(4097)), "4097 leaves"),
        (object.__new__(Example), r"element\.image is not set"),
    ],
)
def test_what_does_not_travel_is_named(element: object, text: str) -> None:
    """An unpicklable or excessive element raises with its path, type and remedy."""
    with pytest.raises(TypeError, match=text):
        describe_element(element)


@pytest.mark.parametrize(
    "element",
    [
        object(),
        np.array([1j], object),
        np.zeros(2, [("a", object)]),
        np.ma.masked_array([1], [True]),
        np.rec.array([(1,)], [("a", "i4")]),
        np.zeros((1,) * 31),
        np.dtype("i4"),
        [1, "a"],
        [b"a\0"],
        [None, 1],
        [[1], [2, 3]],
        [2**70],
        Colour.RED,
        Colour,
        Example,
        bytearray(3),
        {1.5: 1},
        {(1,): 1},
        {2**63: 1},
        {"\ud800": 1},
        RaggedTensor(np.array([1j, 1], object), [0, 1, 2]),
    ],
    ids=lambda element: type(element).__name__,
)
def test_everything_else_is_an_object(element: object) -> None:
    """A value of no other kind is pickled whole, unless objects are not allowed."""
    structure, leaves = describe_element({"x": element})
    assert structure.leaves == (Leaf("object"),)
    assert [type(leaf) for leaf in leaves] == [Pickled]
    with pytest.raises(
        TypeError,
        match=r"element\['x'\] is .*, which cannot be stored: files hold no Python objects",
    ):
        describe_element({"x": element}, allow_objects=False)


def test_lists_within_dataclasses_stay_lists() -> None:
    """Lists inside dataclasses stay lists at any depth, as a pipeline treats them as
    opaque.
    """
    structure, _ = describe_element(Example(image=[1, 2], label={"x": (3, [4])}))  # type: ignore[arg-type]
    assert [leaf.kind for leaf in structure.leaves] == ["object", "int", "object"]


@pytest.mark.parametrize(
    ("example", "other"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1: 1}, {True: 1}),
        ({"a": 1}, (1,)),
        ((1, 2), (1, 2, 3)),
        ((1, 2), Point(1, 2)),
        (Point(1, 2), (1, 2)),
        (Point(1, 2), NamedPoint(1, 2)),
        (Example(1), 1),
        (Example(1), object.__new__(Example)),
        (Marked(1, 2), object.__new__(Marked)),
        (Marked(1, 2), Point(1, 2)),
        ({"a": (1, (2,))}, {"a": (1, 2)}),
        (((1,), 2), 5),
    ],
)
def test_other_nesting_is_noticed(example: object, other: object) -> None:
    """The fast path of an element rejects an element with a different nesting."""
    transpose = transposer(describe_element(example)[0].node, example)
    assert transpose([example, example]) is not None
    assert transpose([other]) is None
    assert transpose([example, other]) is None


def test_ragged_tensors_are_nodes_of_their_own() -> None:
    """A ragged tensor is flattened into values and splits at any depth; another class
    is not.
    """
    ragged = RaggedTensor(RaggedTensor(np.arange(3), [0, 1, 3]), [0, 2])
    assert again({"r": ragged})["r"].equals(ragged)
    structure, leaves = describe_element(ragged)
    assert [leaf.dtype for leaf in structure.leaves] == ["<i8"] * 3
    assert [leaf.tolist() for leaf in leaves] == [[0, 1, 2], [0, 1, 3], [0, 2]]  # type: ignore[attr-defined]
    assert transposer(structure.node, ragged)([5]) is None
    assert transposer(structure.node, ragged)([ragged.values]) is None


def test_the_structure_tells_kinds_and_order() -> None:
    """The structure records the order of keys and the kind of each leaf."""
    structure, leaves = describe_element({"b": (1, None), "a": np.zeros((2, 3), "f4")})
    assert structure == Structure(
        DictOf(("b", "a"), (TupleOf((Leaf("int"), Leaf("none"))), Leaf("array", "<f4", 2)))
    )
    assert leaves[:2] == [1, None]
