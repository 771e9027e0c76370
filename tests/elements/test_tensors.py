"""Tests of ``zmqdata.elements.tensors``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.elements.conversion import as_element
from zmqdata.elements.lists import array_of
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import TensorSpec, spec_of
from zmqdata.elements.tensors import array_of_tensor, as_stackable, is_tensor, sort_of
from zmqdata.iterators.stacking import stack


class Convertible:
    """A tensor of another library."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self.array


class Exchangeable:
    """A tensor that only DLPack can read."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Picture:
    """An image: an array can be made of it."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


class Unwilling:
    """A tensor in the memory of a device."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("it is on the device cuda:0")


Table = type("Table", (Convertible,), {"__module__": "pyarrow.lib"})


@pytest.mark.parametrize("kind", [Convertible, Exchangeable])
def test_tensors_become_arrays(kind: Any) -> None:
    """A tensor that a function returns is an array of the same values, at any depth and
    in lists; one without axes is a scalar.
    """
    element = as_element({"x": kind([1.5, 2.5]), "y": (kind(3), [kind([1]), kind([2])])})
    assert element["x"].tolist() == [1.5, 2.5]
    assert type(element["y"][0]) is np.int64
    assert element["y"][1].tolist() == [[1], [2]]
    assert as_element(kind([1])).tolist() == [1]


def test_arrays_of_tensors_can_be_written() -> None:
    """Memory that its library does not let others write is copied."""
    fixed = np.ones(2)
    fixed.flags.writeable = False
    assert array_of_tensor(Convertible(fixed)).flags.writeable
    free = np.ones(2)
    assert array_of_tensor(Convertible(free)) is free


def test_images_stay_images_between_functions() -> None:
    """An image becomes an array where it is stacked or described, not before."""
    picture = Picture(np.zeros((2, 3), np.uint8))
    assert as_element({"x": picture})["x"] is picture
    assert as_stackable(picture).shape == (2, 3)
    assert spec_of(picture) == TensorSpec((2, 3), np.uint8)
    assert array_of([picture, picture]).shape == (2, 2, 3)


def test_what_is_no_tensor() -> None:
    """numpy's own values, ragged tensors, tables and plain objects stay what they
    are.
    """
    ragged = RaggedTensor([1], [0, 1])
    for value in (np.ma.masked_array([1], [True]), np.void(b"a"), ragged, Table([1]), object()):
        assert not is_tensor(type(value))
        assert as_element((value, [1]))[0] is value
    assert sort_of(Table) == "frame"


def test_a_tensor_that_gives_no_array_is_an_error() -> None:
    """The error has the place, the class, and the words of the library."""
    with pytest.raises(TypeError, match=r"element\['x'\]: a .*Unwilling cannot .*cuda:0"):
        as_element({"x": Unwilling()})
    with pytest.raises(TypeError, match=r"Unwilling.*Elements hold numpy arrays"):
        array_of([Unwilling()])


def test_single_values_of_tables_are_errors() -> None:
    """numpy would make integers of the bytes of a text: the error says what to call."""
    scalar = type("Scalar", (), {"__module__": "pyarrow.lib", "__getitem__": lambda self, at: 1})()
    for make in (as_element, Dataset.from_tensor_slices, Dataset.from_tensors, array_of_two):
        with pytest.raises(TypeError, match=r"single value: call \.as_py\(\)"):
            make(scalar)


def array_of_two(value: Any) -> Any:
    return array_of([value, value])


def test_missing_integers_do_not_become_nan() -> None:
    """A column of integers that its library gives as floats, for want of NaN, is an
    error.
    """
    column = Convertible([1.0, np.nan])
    assert as_element(column).dtype == float
    column.dtype = "Int64"  # type: ignore[attr-defined]  # as in pandas and pyarrow
    with pytest.raises(TypeError, match="it holds missing values"):
        as_element(column)


def test_tables_are_objects_in_batches() -> None:
    """A table that a function returns keeps the names of its columns."""
    table = Table([1])
    batch = stack([table, table])
    assert (batch.dtype, batch[0]) == (np.dtype(object), table)


class Strict(type):
    """A metaclass that knows no attribute beyond those of its classes."""

    def __getattr__(cls, name: str) -> Any:
        raise KeyError(name)


class Strictly(metaclass=Strict):
    """An object of a class that raises another error than AttributeError."""


def test_a_class_that_raises_any_error_is_no_tensor() -> None:
    """An object stays as it is if its class raises an error for unknown attributes."""
    thing = Strictly()
    assert as_element((thing, [thing]))[0] is thing
    assert spec_of({"a": thing}) == {"a": TensorSpec((), object)}
