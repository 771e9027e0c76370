"""Tests of ``zmqdata.elements.conversion``."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from io import StringIO
from itertools import count
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import plain
from zmqdata import Dataset
from zmqdata.elements.conversion import as_element
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import PipelineError

Point = namedtuple("Point", ["x", "y"])


@pytest.mark.parametrize(
    ("value", "element"),
    [
        ([1, 2], np.array([1, 2])),
        ((1, [2]), (1, np.array([2]))),
        (
            {"x": {"y": [1.5]}, "z": ([True], "a")},
            {"x": {"y": np.array([1.5])}, "z": (np.array([True]), "a")},
        ),
        (Point([1], 2), Point(np.array([1]), 2)),
        (OrderedDict(a=[1]), OrderedDict(a=np.array([1]))),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        (np.datetime64(1, "s"), np.datetime64(1, "s")),
    ],
    ids=repr,
)
def test_lists_become_arrays_at_any_depth(value: Any, element: Any) -> None:
    """Only lists change; every other value keeps its type and its nesting."""
    assert plain(as_element(value)) == plain(element)
    assert type(as_element(value)) is type(element)


@pytest.mark.parametrize(
    "value",
    [
        1,
        "a",
        None,
        b"x",
        np.zeros(2),
        np.float32(1),
        {"x": np.zeros(2), "y": 1},
        (1, "a", np.str_("b")),
        {},
        (),
    ],
    ids=repr,
)
def test_elements_without_lists_are_not_copied(value: Any) -> None:
    """An element that needs no conversion is passed on without a copy."""
    assert as_element(value) is value


def test_what_no_list_can_hide_in_is_a_leaf() -> None:
    """An object of a user's class stays unchanged, whatever it holds."""
    thing = type("Thing", (), {"rows": [1]})()
    assert as_element((thing, [1]))[0] is thing


def test_rows_of_different_length_are_no_array() -> None:
    """A list of lists that differ in length is an error whose text names ragged
    tensors.
    """
    with pytest.raises(
        ValueError, match=r"differ in shape cannot become an array .*RaggedTensor.from_rows"
    ):
        as_element({"x": [[1], [2, 3]]})
    ragged = RaggedTensor([1], [0, 1])
    assert as_element((ragged,))[0] is ragged


def test_errors_name_the_place_in_the_element() -> None:
    """The place of a list is an expression from the element on."""
    with pytest.raises(ValueError, match=r"^at element\['a'\]\[1\]: a list with the int 1"):
        as_element({"a": ([1, 2], [1, "x"])})


def test_empty_lists_are_told() -> None:
    """The arrays made of empty lists are collected for their dtype to be found."""
    empties: list[Any] = []
    element = as_element({"a": [], "b": ([1], [[], []])}, empties)
    assert [array.shape for array in empties] == [(0,), (2, 0)]
    assert empties[0] is element["a"]


@pytest.mark.parametrize(
    "make",
    [lambda x: (y for y in [x]), lambda x: {"a": map(str, [x])}, lambda x: (count(x), 1)],
    ids=["generator", "map", "count"],
)
def test_an_iterator_is_no_part_of_an_element(make: Any) -> None:
    """The error names the operation that makes elements of what an iterator yields."""
    with pytest.raises(PipelineError, match=r"read only once.*flat_map"):
        list(Dataset.range(1).map(make))
    with pytest.raises(TypeError, match="read only once"):
        Dataset.from_list([make(1)])


def test_a_coroutine_is_no_part_of_an_element() -> None:
    """No event loop runs in a pipeline, and the error says so."""

    async def later(x: Any) -> Any:
        return x

    pending = later(1)
    with pytest.raises(TypeError, match=r"a coroutine, which nothing awaits.*asyncio\.run"):
        as_element(pending)
    pending.close()


def test_an_object_that_is_an_iterator_stays_an_object() -> None:
    """An open file, which the next function reads, passes between functions."""
    dataset = Dataset.range(1).map(lambda _: StringIO("text")).map(lambda file: file.read())
    assert list(dataset) == ["text"]
