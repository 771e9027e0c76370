"""Tests of ``zmqdata.elements.nesting``."""

from __future__ import annotations

from collections import deque, namedtuple
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.elements.attrs_classes import Field, Marked, Slotted
from zmqdata import Dataset, TensorSpec
from zmqdata.elements.nesting import (
    field_names,
    fits_attrs,
    leaves_of,
    map_arrays,
    map_structure,
    nesting_of,
    places_of,
)

Point = namedtuple("Point", ["x", "y"])


def test_attrs_classes_are_structures() -> None:
    """Walks enter attrs classes as they enter namedtuples. They build instances without
    the constructor, which might refuse what is no element.
    """
    element = {"a": Marked(1, Point(2, None)), "b": Slotted([3])}
    assert leaves_of(element) == [1, 2, None, [3]]
    mapped = map_structure(lambda leaf: 7, element)
    assert (mapped["a"].x, mapped["a"].y, mapped["b"]._a) == (7, Point(7, 7), 7)
    assert places_of(element, "element") == [
        "element['a'].x",
        "element['a'].y.x",
        "element['a'].y.y",
        "element['b']._a",
    ]
    assert nesting_of(element) == nesting_of(mapped)
    assert nesting_of(Marked(1, 2)).unflatten([7, 8]).x == 7


def test_none_is_a_leaf_that_arrays_may_leave_out() -> None:
    """A function of arrays does not see None."""
    assert map_arrays(len, ("ab", None, Marked("c", None))) == (2, None, Marked(1, None))


def test_lists_are_leaves_unless_asked_for() -> None:
    """A list in an element is an array, and a list in a spec a structure."""
    assert leaves_of(([1, 2],)) == [[1, 2]]
    assert leaves_of(([1, Marked(2, 3)],), in_lists=True) == [1, 2, 3]
    assert map_structure(abs, [-1], in_lists=True) == [1]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Marked, ("x", "y")),
        (Slotted, ("_a",)),
        (int, None),
        (Point, None),
        (type("Odd", (ValueError,), {"__attrs_attrs__": Marked.__attrs_attrs__}), None),
    ],
)
def test_fields_are_those_that_attrs_lists(kind: type, names: tuple[str, ...] | None) -> None:
    """Only attrs classes have fields, with the names of their attributes."""
    assert field_names(kind) == names
    assert fits_attrs(kind, names or ()) == (names is not None)
    assert not fits_attrs(kind, ("z",))


def test_deques_are_objects_in_elements_specs_and_batches() -> None:
    """A deque is a single leaf, and a list of rows for `from_tensor_slices`."""
    window = deque([1, 2])
    assert leaves_of({"a": (window, 3)}) == [window, 3]
    dataset = Dataset.range(2).map(lambda _: (window, 3))
    assert dataset.element_spec[0] == TensorSpec((), object)
    (batch,) = dataset.batch(2)
    assert [leaf.dtype for leaf in batch] == [spec.dtype for spec in dataset.batch(2).element_spec]
    assert batch[0].tolist() == [window, window]
    assert list(Dataset.from_tensor_slices(window)) == [1, 2]
    with pytest.raises(ValueError, match="the str 'a'"):
        Dataset.from_tensor_slices(deque([1, "a"]))


def test_exceptions_are_leaves() -> None:
    """An exception cannot be built without its constructor."""
    error = type("Odd", (ValueError,), {"__attrs_attrs__": Marked.__attrs_attrs__})()
    assert leaves_of((error,)) == [error]


def test_what_a_peer_names_runs_no_code() -> None:
    """The fields of a class that a peer names are looked up without its metaclass."""

    class Watchful(type):
        def __getattr__(cls, name: str) -> Any:
            raise AssertionError(name)

    class Watched(metaclass=Watchful):
        pass

    assert not fits_attrs(Watched, ("x",))
    assert not fits_attrs(Marked(1, 2), ("x", "y"))


def test_many_threads_may_meet_a_class_first() -> None:
    """A class is registered once, whichever thread sees it first."""

    def kind() -> Any:
        return type("New", (), {"__attrs_attrs__": (Field("x"),), "x": 1})

    kinds = [kind() for _ in range(20)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda one: leaves_of(one()), kinds * 4))
    assert found == [[1]] * 80
