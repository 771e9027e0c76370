"""Tests of ``zmqdata.blocks.structures``: valid structures, and assembling elements."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from tests.blocks.samples import (
    CALLS,
    Closed,
    ClosedPoint,
    Example,
    Guarded,
    NamedPoint,
    Point,
    Slotted,
)
from tests.elements.attrs_classes import Marked
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
from zmqdata.elements.nesting import field_names
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import ProtocolError


def test_empty_nestings_have_as_many_elements_as_told() -> None:
    """Without leaves the count alone gives the number of elements, all fresh dicts."""
    first, second = assemble(DictOf((), ()), iter([]), 2)
    assert first == second == {}
    assert first is not second
    assert [*assemble(TupleOf(()), iter([]), 3)] == [(), (), ()]


def test_nestings_are_put_together() -> None:
    """Every element takes the next value of each leaf from left to right. Records keep
    their class.
    """
    node = TupleOf(
        (DictOf(("b", 1), (Leaf("int"), TupleOf((Leaf("str"),)))), record(Point, "namedtuple"))
    )
    found = list(
        assemble(
            node, iter([iter(column) for column in ([1, 2], ["x", "y"], [3, 4], [0.5, 1.5])]), 2
        )
    )
    assert found == [({"b": 1, 1: ("x",)}, Point(3, 0.5)), ({"b": 2, 1: ("y",)}, Point(4, 1.5))]
    assert type(found[0][1]) is Point  # type: ignore[index]
    assert list(assemble(record(NamedPoint, "namedtuple"), iter([iter([1]), iter([2])]), 1)) == [
        NamedPoint(1, 2)
    ]
    assert list(assemble(record(Slotted), iter([iter([5])]), 1)) == [Slotted(5)]


def test_ragged_tensors_are_put_together() -> None:
    """Values and splits become a tensor again, also inside another tensor."""
    flat = Leaf("array", "<i8", 1)
    columns = [iter([np.arange(3)]), iter([np.array([0, 1, 3])]), iter([np.array([0, 2])])]
    (found,) = assemble(RaggedOf((RaggedOf((flat, flat)), flat)), iter(columns), 1)
    assert isinstance(found, RaggedTensor)
    assert found.equals(RaggedTensor(RaggedTensor(np.arange(3), [0, 1, 3]), [0, 2]))


def test_structures_are_equal_by_what_they_say() -> None:
    """Equality and hash follow the description, where 1 and True are different."""
    assert Structure(DictOf((1,), (Leaf("int"),))) == Structure(DictOf((1,), (Leaf("int"),)))
    assert hash(Structure(Leaf("int"))) == hash(Structure(Leaf("int")))
    assert Structure(DictOf((1,), (Leaf("int"),))) != Structure(DictOf((True,), (Leaf("int"),)))
    assert Structure(Leaf("int")) != "Structure"
    assert "int" in repr(Structure(Leaf("int")))


def test_the_dtypes_are_those_of_the_leaves() -> None:
    """A leaf has the dtype that numpy knows under its name. Text has none, as its
    column stores the width, and neither have other leaves.
    """
    structure = Structure(
        TupleOf(
            (Leaf("array", "<i4", 2), Leaf("array", "<U", 1), Leaf("scalar", "<f8"), Leaf("int"))
        )
    )
    assert structure.dtypes == (np.dtype("i4"), None, np.dtype("f8"), None)


def nested(depth: int) -> Node:
    """Return nested tuples."""
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
    """The receiver checks a structure's depth, number of leaves, names and dtypes."""
    with pytest.raises(ProtocolError):
        Structure(node)


def record(cls: type, form: Any = "dataclass", **changes: Any) -> RecordOf:
    """Return the node of a class's instance, as a peer may have changed it."""
    names = (
        getattr(cls, "_fields", None)
        or field_names(cls)
        or tuple(getattr(cls, "__dataclass_fields__", ()))
    )
    node = RecordOf(
        form, cls.__module__, cls.__qualname__, names, tuple(Leaf("int") for _ in names)
    )
    return RecordOf(**{**{name: getattr(node, name) for name in node.__struct_fields__}, **changes})


class Lazy(types.ModuleType):
    """A module whose attributes must not be read."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.mark.parametrize(
    "node",
    [
        record(Point, "namedtuple", module="not_imported_anywhere"),
        record(Point, "namedtuple", qualname="Missing"),
        record(Point, "namedtuple", qualname="Point.x.deep"),
        record(Point, "namedtuple", qualname="CALLS"),
        record(Point, "namedtuple", fields=("y", "x")),
        record(Point, "dataclass"),
        record(Example, "namedtuple"),
        record(Guarded),
        record(Closed),
        record(ClosedPoint, "namedtuple"),
        record(Example, fields=("label", "image")),
        record(Example, "attrs"),
        record(Marked, "attrs", fields=("y", "x")),
        record(Marked, "dataclass"),
        RecordOf("dataclass", "builtins", "int", (), ()),
        RecordOf("namedtuple", "sys", "version_info", (), ()),
        RecordOf("dataclass", "lazy", "x", ("a",), (Leaf("int"),)),
    ],
    ids=lambda node: f"{node.form} {node.qualname} {node.fields}",
)
def test_unknown_or_unfit_classes_arrive_as_dicts(
    node: RecordOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of a missing, changed or code-running class arrives as a dict of its
    fields. Nothing is imported.
    """
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    before = len(CALLS)
    assert resolve_class(node) is None
    (element,) = assemble(node, iter([iter([index]) for index in range(len(node.fields))]), 1)
    assert element == dict(zip(node.fields, range(len(node.fields)), strict=True))
    assert len(CALLS) == before


def test_no_constructor_runs() -> None:
    """A dataclass is assembled without its `__init__` and `__post_init__`, and an attrs
    class as well.
    """
    before = len(CALLS)
    (marked,) = assemble(record(Marked, "attrs"), iter([iter([7]), iter([2])]), 1)
    assert (type(marked), marked.x, marked.y) == (Marked, 7, 2)
    (element,) = assemble(record(Example), iter([iter([1]), iter([2])]), 1)
    assert element.image == 1  # type: ignore[attr-defined]
    assert type(element) is Example
    assert len(CALLS) == before


@pytest.mark.parametrize(
    "children",
    [(Leaf("int"), Leaf("array", "<i8", 1)), (Leaf("array", "<i8", 1), Leaf("array", "<i8", 2))],
)
def test_ragged_structures_that_lie_are_refused(children: Any) -> None:
    """A ragged structure is rejected if its values have no axis or its splits are
    invalid.
    """
    with pytest.raises(ProtocolError, match="a ragged tensor claims"):
        Structure(RaggedOf(children))
