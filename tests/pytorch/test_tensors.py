"""Leaves of elements become tensors that the loop may write to, or stay what they
are.
"""

from __future__ import annotations

import datetime
import warnings
from collections import namedtuple
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from zmqdata.elements.ragged import RaggedTensor
from zmqdata.torch.tensors import tensor_of, tensors_of

Pair = namedtuple("Pair", "left right")
NUMBERS = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64"
COMPLEX = "complex64 complex128"


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """Let a warning of torch, such as that of memory that cannot be written to, fail
    the test.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("copy", [False, True], ids=["shared", "copied"])
@pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big"])
@pytest.mark.parametrize("name", f"{NUMBERS} {COMPLEX}".split())
def test_every_dtype_and_byte_order(name: str, order: str, copy: bool) -> None:
    """An array of each dtype that torch has is a tensor of that dtype, in either byte
    order.
    """
    plain = np.arange(6).reshape(2, 3).astype(name)
    tensor = tensor_of(plain.astype(plain.dtype.newbyteorder(order)), copy=copy)
    assert tensor.dtype is getattr(torch, name)
    assert tensor.tolist() == plain.tolist()
    scalar = tensor_of(plain.astype(plain.dtype.newbyteorder(order))[1, 2])
    assert scalar.dtype is getattr(torch, name)
    assert scalar.tolist() == plain[1, 2]


@pytest.mark.parametrize("copy", [False, True], ids=["shared", "copied"])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: x[::-1],
        lambda x: x[:, ::-2],
        lambda x: x.T,
        lambda x: np.asfortranarray(x),
        lambda x: x[1:, 1::3],
        lambda x: x[:0],
        lambda x: x[1, 1, ...].reshape(()),
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
        lambda x: np.frombuffer(bytearray(b"a" + x.tobytes()), "u1")[1:].view(x.dtype),
        lambda x: as_field(x),
    ],
    ids=[
        "plain",
        "reversed",
        "strided",
        "transposed",
        "fortran",
        "gaps",
        "empty",
        "scalar",
        "broadcast",
        "bytes",
        "odd",
        "field",
    ],
)
def test_arrays_however_they_lie_in_memory(make: Any, copy: bool) -> None:
    """An array becomes a tensor of equal values that may be written to, whatever its
    strides, its alignment and its owner.
    """
    array = make(np.arange(24.0).reshape(4, 6))
    before = array.tolist()
    tensor = tensor_of(array, copy=copy)
    assert tensor.tolist() == before
    tensor += 1
    assert copy is False or array.tolist() == before


def as_field(array: Any) -> Any:
    """Return a column of records, whose strides are no multiple of its size."""
    records = np.zeros(array.shape, [("flag", "i1"), ("value", array.dtype)])
    records["value"] = array
    return records["value"]


def test_memory_is_shared_unless_a_copy_is_wanted() -> None:
    """A tensor shares the memory of an array that may be written to, and does not if a
    copy is wanted or the array is read-only.
    """
    array = np.arange(3.0)
    assert tensor_of(array).data_ptr() == array.ctypes.data
    assert tensor_of(array, copy=True).data_ptr() != array.ctypes.data
    array.flags.writeable = False
    tensor = tensor_of(array)
    tensor += 1
    assert array.tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_mapped_files_keep_what_they_hold(tmp_path: Path, mode: str) -> None:
    """A mapped file becomes a tensor. Only a file that is mapped for writing may
    change with it.
    """
    path = tmp_path / "numbers.npy"
    np.save(path, np.arange(3.0))
    tensor = tensor_of(np.load(path, mmap_mode=mode))
    tensor += 1
    assert tensor.tolist() == [1, 2, 3]
    assert np.load(path).tolist() == ([1, 2, 3] if mode == "r+" else [0, 1, 2])


def test_numbers_of_python() -> None:
    """A number is a tensor of the widest dtype of its kind, and stays what it is if 64
    bits do not hold it.
    """
    wanted = {True: torch.bool, 3: torch.int64, 0.1: torch.float64, 1j: torch.complex128}
    for number, dtype in wanted.items():
        tensor = tensor_of(number)
        assert tensor.dtype is dtype
        assert tensor.item() == number
    for number in (2**63 - 1, -(2**63)):
        assert tensor_of(number).item() == number
    for number in (2**63, -(2**63) - 1, 2**80):
        assert tensor_of(number) is number
    assert tensor_of(np.uint64(2**64 - 1)).item() == 2**64 - 1


@pytest.mark.parametrize(
    "leaf",
    [
        None,
        "text",
        b"bytes",
        datetime.date(2020, 1, 1),
        Fraction(1, 3),
        np.str_("text"),
        np.bytes_(b"bytes"),
        np.datetime64("2020"),
        np.timedelta64(3, "s"),
        np.longdouble(1),
        np.array(["a"]),
        np.array([b"a"]),
        np.array([None]),
        np.array(["2020"], "M8[D]"),
        np.array([1], "m8[s]"),
        np.ones(2, np.longdouble),
        np.ones(2, np.clongdouble),
        np.zeros(2, [("a", "i4")]),
        np.ma.masked_array([1, 2], [True, False]),
        {1, 2},
    ],
    ids=lambda leaf: f"{type(leaf).__name__} {getattr(leaf, 'dtype', '')}",
)
def test_what_torch_lacks_stays_what_it_is(leaf: Any) -> None:
    """Texts, dates, objects and numbers of a dtype that torch lacks are left alone."""
    assert tensor_of(leaf) is leaf
    assert tensor_of(leaf, copy=True) is leaf


FLOATS = "bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"


@pytest.mark.parametrize("copy", [False, True], ids=["shared", "copied"])
@pytest.mark.parametrize("name", FLOATS.split())
def test_short_floats(name: str, copy: bool) -> None:
    """An array of a short float of ``ml_dtypes`` is a tensor of the same bits."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.array([[1, 2, 4], [0.5, 0.25, 8]]).astype(getattr(ml_dtypes, name))
    for one in (array, array[:, ::-1], array[1:], array[:0], array[1, 2].reshape(()), array[1, 2]):
        tensor = tensor_of(one, copy=copy)
        assert tensor.dtype is getattr(torch, name)
        assert tuple(tensor.shape) == one.shape
        assert tensor.double().tolist() == one.astype(np.float64).tolist()


@pytest.mark.parametrize("name", ["int2", "int4", "uint4", "float8_e3m4", "float8_e4m3b11fnuz"])
def test_dtypes_with_which_torch_does_not_compute(name: str) -> None:
    """An array of a dtype of ``ml_dtypes`` that torch lacks, or knows by name only,
    stays an array.
    """
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.zeros(3).astype(getattr(ml_dtypes, name))
    assert tensor_of(array) is array
    assert tensor_of(array[0]).dtype == array.dtype


def test_nests_stay_what_they_are() -> None:
    """An element keeps its nesting, its order of keys and its texts."""
    element = {"z": Pair(np.ones(2), ("a", np.int8(3))), "a": None, "b": {"c": True}}
    found = tensors_of(element)
    assert list(found) == ["z", "a", "b"]
    assert type(found["z"]) is Pair
    assert found["z"].left.tolist() == [1, 1]
    assert found["z"].right[0] == "a"
    assert found["z"].right[1].dtype is torch.int8
    assert found["a"] is None
    assert found["b"]["c"].item() is True
    assert tensors_of(np.arange(2)).tolist() == [0, 1]


def test_ragged_tensors_stay_what_they_are() -> None:
    """A ragged tensor of zmqdata is no array, and is left alone."""
    ragged = RaggedTensor.from_rows([[1, 2], [3]])
    assert tensors_of({"x": ragged})["x"] is ragged
