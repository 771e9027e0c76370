"""zmqdata.blocks.structures: what may be an element, and how it is taken apart and put together."""

from __future__ import annotations

import collections
import dataclasses
import enum
import sys
import threading
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

from zmqdata.blocks.flattening import describe_element, flattener
from zmqdata.blocks.objects import Pickled
from zmqdata.blocks.structures import (
    DictOf,
    Leaf,
    Node,
    RaggedOf,
    RecordOf,
    Structure,
    TupleOf,
    assemble,
    resolve_class,
)
from zmqdata.errors import ProtocolError
from zmqdata.ragged import RaggedTensor


class Point(NamedTuple):
    """A namedtuple that the receiver knows."""

    x: int
    y: float


class NamedPoint(Point):
    """A subclass of a namedtuple."""


@dataclasses.dataclass(frozen=True)
class Example:
    """A frozen dataclass whose constructor must not run on a peer's word."""

    image: Any
    label: int = 3

    def __post_init__(self) -> None:
        """Count the calls."""
        CALLS.append(self)


@dataclasses.dataclass
class Slotted:
    """A dataclass without a dict."""

    __slots__ = ("a",)
    a: int


@dataclasses.dataclass
class Guarded:
    """A dataclass whose field runs code when set."""

    a: int

    def __post_init__(self) -> None:
        """Nothing."""


Guarded.a = property(lambda self: 1, lambda self, value: CALLS.append(value))  # type: ignore[assignment]


class Colour(enum.IntEnum):
    """An int that is more than an int."""

    RED = 1


CALLS: list[object] = []

# Test modules may be imported under a name of the runner's; records are found by the module's name.
sys.modules.setdefault(__name__, sys.modules[Point.__module__])


def again(element: object) -> Any:
    """The element taken apart by the fast path and put together again."""
    structure, leaves = describe_element(element)
    fast = flattener(structure.node, element)(element)
    assert fast is not None
    assert [*map(repr, fast)] == [*map(repr, leaves)]
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
    ],
    ids=repr,
)
def test_nesting_comes_back(element: object) -> None:
    """Any nesting is the same after a round trip: types, order of keys, classes."""
    found = again(element)
    assert found == element
    assert repr(found) == repr(element)


def test_empty_nestings_have_as_many_elements_as_told() -> None:
    """Without leaves the count alone says how many elements there are, each of them a fresh dict."""
    first, second = assemble(DictOf((), ()), iter([]), 2)
    assert first == second == {}
    assert first is not second
    assert [*assemble(TupleOf(()), iter([]), 3)] == [(), (), ()]


def test_subclasses_of_dict_arrive_as_dict() -> None:
    """An OrderedDict or defaultdict travels, as a dict."""
    assert type(again(collections.OrderedDict(b=1, a=2))) is dict
    assert again(collections.defaultdict(int, a=2)) == {"a": 2}


@pytest.mark.parametrize(
    ("value", "dtype"),
    [([1, 2], "int64"), ([1.5, 2], "float64"), ([[True], [False]], "bool"), (["a", "bcd"], "<U3"), ([b"xy"], "S2")],
)
def test_lists_become_arrays(value: list[Any], dtype: str) -> None:
    """A list of equal numbers or texts is the array that numpy makes of it."""
    (leaf,) = describe_element({"x": value})[1]
    assert isinstance(leaf, np.ndarray)
    assert leaf.dtype == dtype
    assert leaf.tolist() == value


def test_memory_maps_are_arrays(tmp_path: Any) -> None:
    """A memmap is an array like others."""
    mapped = np.memmap(tmp_path / "x", np.uint8, "w+", shape=(3,))
    (leaf,) = describe_element(mapped)[1]
    assert type(leaf) is np.ndarray


def test_text_without_width_gets_one() -> None:
    """Arrays of text of no character, which numpy makes only by views, travel with one."""
    empty = np.zeros(3, [("a", "U0"), ("b", "i4")])["a"]
    (leaf,) = describe_element(empty)[1]
    assert isinstance(leaf, np.ndarray)
    assert leaf.dtype == "<U1"


LOOP: dict[str, Any] = {}
LOOP["again"] = LOOP


@pytest.mark.parametrize(
    ("element", "text"),
    [
        ({"a": (1, {2: threading.Lock()})}, r"element\['a'\]\[1\]\[2\] is of type _thread.lock.*Convert it"),
        (Point(lambda: 1, 2.0), r"element\.x is of type builtins.function.*made within a function"),  # type: ignore[arg-type]
        (np.array([len]), r"an array of dtype dtype\('O'\).*builtins.len"),
        (len, "builtins.len"),
        (LOOP, "deeper than 64 levels, or contains itself"),
        (tuple(range(4097)), "4097 leaves"),
        (object.__new__(Example), r"element\.image is not set"),
    ],
)
def test_what_does_not_travel_is_named(element: object, text: str) -> None:
    """What cannot be pickled, and excess, are a TypeError with the path, the type and the remedy."""
    with pytest.raises(TypeError, match=text):
        describe_element(element)


@pytest.mark.parametrize(
    "element",
    [
        object(),
        np.array([None]),
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
        RaggedTensor(np.array([None, 1]), [0, 1, 2]),
    ],
    ids=lambda element: type(element).__name__,
)
def test_everything_else_is_an_object(element: object) -> None:
    """What has no kind of its own is pickled as a whole, unless objects are not allowed."""
    structure, leaves = describe_element({"x": element})
    assert structure.leaves == (Leaf("object"),)
    assert [type(leaf) for leaf in leaves] == [Pickled]
    with pytest.raises(TypeError, match=r"element\['x'\] is .*, which does not travel: Python objects are not allowed"):
        describe_element({"x": element}, allow_objects=False)


def test_lists_within_dataclasses_stay_lists() -> None:
    """A pipeline does not look into dataclasses, so the wire leaves their lists alone, at any depth."""
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
        ({"a": (1, (2,))}, {"a": (1, 2)}),
        (((1,), 2), 5),
    ],
)
def test_other_nesting_is_noticed(example: object, other: object) -> None:
    """The fast path made for one element finds nothing in an element of other nesting."""
    flatten = flattener(describe_element(example)[0].node, example)
    assert flatten(example) is not None
    assert flatten(other) is None


def test_structures_are_equal_by_what_they_say() -> None:
    """Equality and hash follow the description, in which 1 and True are different keys."""
    assert describe_element({"a": 1})[0] == describe_element({"a": 2})[0]
    assert hash(describe_element(1)[0]) == hash(describe_element(2)[0])
    assert describe_element({1: 1})[0] != describe_element({True: 1})[0]
    assert describe_element(1)[0] != "Structure"
    assert "int" in repr(describe_element(1)[0])


def nested(depth: int) -> Node:
    """Tuples within tuples."""
    node: Node = Leaf("int")
    for _ in range(depth):
        node = TupleOf((node,))
    return node


@pytest.mark.parametrize(
    "node",
    [
        nested(65),
        TupleOf((Leaf("int"),) * 4097),
        DictOf(("a",), ()),
        DictOf(("a", "a"), (Leaf("int"), Leaf("int"))),
        DictOf(([],), (Leaf("int"),)),
        DictOf((1.5,), (Leaf("int"),)),
        RecordOf("dataclass", "m", "q", ("a", "a"), (Leaf("int"), Leaf("int"))),
        Leaf("array", "|O"),
        Leaf("array", "<i4", -1),
        Leaf("array", "<i4", 31),
        Leaf("scalar", "<i4", 1),
        Leaf("scalar", "<U"),
    ],
    ids=lambda node: str(node)[:40],
)
def test_structures_that_no_sender_makes_are_refused(node: Node) -> None:
    """Depth, number of leaves, names and dtypes are checked when a structure is received."""
    with pytest.raises(ProtocolError):
        Structure(node)


def record(cls: type, form: Any = "dataclass", **changes: Any) -> RecordOf:
    """The node of a class's instance, as a peer may have changed it."""
    names = getattr(cls, "_fields", None) or tuple(getattr(cls, "__dataclass_fields__", ()))
    node = RecordOf(form, cls.__module__, cls.__qualname__, names, tuple(Leaf("int") for _ in names))
    return RecordOf(**{**{name: getattr(node, name) for name in node.__struct_fields__}, **changes})


class Lazy(types.ModuleType):
    """A module that must not be touched."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.mark.parametrize(
    "node",
    [
        record(Point, "namedtuple", module="not_imported_anywhere"),
        record(Point, "namedtuple", qualname="Missing"),
        record(Point, "namedtuple", qualname="Point.x.deep"),
        record(Point, "namedtuple", qualname="describe_element"),
        record(Point, "namedtuple", fields=("y", "x")),
        record(Point, "dataclass"),
        record(Example, "namedtuple"),
        record(Guarded),
        record(Example, fields=("label", "image")),
        RecordOf("dataclass", "builtins", "int", (), ()),
        RecordOf("namedtuple", "sys", "version_info", (), ()),
        RecordOf("dataclass", "lazy", "x", ("a",), (Leaf("int"),)),
    ],
    ids=lambda node: f"{node.form} {node.qualname} {node.fields}",
)
def test_unknown_or_unfit_classes_arrive_as_dicts(node: RecordOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that is not there, has other fields, or would run code gives a dict of the fields, without an import."""
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    before = len(CALLS)
    assert resolve_class(node) is None
    (element,) = assemble(node, iter([iter([index]) for index in range(len(node.fields))]), 1)
    assert element == dict(zip(node.fields, range(len(node.fields)), strict=True))
    assert len(CALLS) == before


def test_no_constructor_runs() -> None:
    """A dataclass is put together without its `__init__` and `__post_init__`."""
    node, before = describe_element(Example(image=1))[0].node, len(CALLS)
    (element,) = assemble(node, iter([iter([1]), iter([2])]), 1)
    assert element.image == 1  # type: ignore[attr-defined]
    assert type(element) is Example
    assert len(CALLS) == before


def test_ragged_tensors_are_nodes_of_their_own() -> None:
    """A ragged tensor is taken apart into its values and splits, at any depth, and another class is not."""
    ragged = RaggedTensor(RaggedTensor(np.arange(3), [0, 1, 3]), [0, 2])
    assert again({"r": ragged})["r"].equals(ragged)
    structure, leaves = describe_element(ragged)
    assert [leaf.dtype for leaf in structure.leaves] == ["<i8"] * 3
    assert [leaf.tolist() for leaf in leaves] == [[0, 1, 2], [0, 1, 3], [0, 2]]  # type: ignore[attr-defined]
    assert flattener(structure.node, ragged)(5) is None
    assert flattener(structure.node, ragged)(ragged.values) is None


@pytest.mark.parametrize(
    "children",
    [(Leaf("int"), Leaf("array", "<i8", 1)), (Leaf("array", "<i8", 1), Leaf("array", "<i8", 2))],
)
def test_ragged_structures_that_lie_are_refused(children: Any) -> None:
    """Values without an axis, and splits that are none, are no structure."""
    with pytest.raises(ProtocolError, match="a ragged tensor claims"):
        Structure(RaggedOf(children))
