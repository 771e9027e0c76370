"""Facts about what elements may be when they come from workers: everything arrives as
it was made.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from tests.service.conftest import Service
from zmqdata import Dataset, RaggedTensor, TensorSpec, from_dataset_id, register_dataset
from zmqdata.client.calls import status
from zmqdata.errors import FailedPreconditionError, PipelineError


class Pair(NamedTuple):
    """A namedtuple of the script's."""

    number: Any
    rest: Any


@dataclasses.dataclass
class Example:
    """A dataclass of the script's."""

    image: Any
    labels: Any = dataclasses.field(default_factory=list)


class Colour(enum.Enum):
    """An enumeration of the script's."""

    RED = 0
    GREEN = 1


class Opaque:
    """An object of the script's."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        """By number."""
        return type(other) is Opaque and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


sys.modules.setdefault(__name__, sys.modules[Pair.__module__])

STRUCTURED = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("t", "<U2")])


def of_every_kind(x: Any) -> Any:
    """One leaf of every kind."""
    n = int(x)
    return {
        "int": n,
        "big": 2**70 + n,
        "float": n / 2,
        "bool": n % 2 == 0,
        "complex": complex(n, 1),
        "str": "ü" * n,
        "bytes": bytes(n),
        "none": None,
        "np": (
            np.float32(n),
            np.bool_(n),
            np.str_(n),
            np.bytes_(b"x"),
            np.datetime64(n, "s"),
            np.timedelta64(n, "25us"),
        ),
        "big-endian": np.arange(n, dtype=">i2"),
        "fortran": np.asfortranarray(np.full((2, 3), n)),
        "strided": np.arange(9)[::3] + n,
        "no axes": np.array(n),
        "empty": np.zeros((0, 3), "f2"),
        "texts": np.array(["a" * (n + 1)]),
        "times": np.array([n], "M8[D]"),
        "records": np.zeros(n, STRUCTURED),
        "ragged": RaggedTensor(np.arange(n), [0, n // 2, n]),
    }


def objects(x: Any) -> Any:
    """Objects of every origin."""
    n = int(x)
    return (
        {n, "x"},
        decimal.Decimal(n) / 3,
        datetime.datetime(2020, 1, 1 + n),
        Colour(n % 2),
        Opaque(n),
        np.array([None, n, "x"], object),
        np.ma.masked_array([n, 1], [True, False]),
        {(n, 1): "key"},
    )


def records(x: Any) -> Any:
    """Records of the script's classes, within each other."""
    n = int(x)
    return Pair(n, (Example(np.full(3, n), [n, "x"]), Pair({"a": n}, Example(n))))


def mixture(x: Any) -> Any:
    """Another structure at almost every element."""
    n = int(x)
    return [n, Pair(n, n), {"x": n}, Opaque(n), Example(n), (n, {n}), np.full(n, n), str(n)][n % 8]


def number_in(element: Any) -> int:
    """What sorts the elements of `records`."""
    return int(element[0])


def same(left: Any, right: Any) -> bool:
    """Equal in type, dtype, shape and value."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return [*left] == [*right] and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left):
        return same(vars(left), vars(right))
    if isinstance(left, RaggedTensor):
        return left.equals(right)
    if isinstance(left, (np.ndarray, np.generic)):
        return left.dtype == right.dtype and left.shape == right.shape and repr(left) == repr(right)
    return bool(left == right)


@pytest.mark.parametrize("function", [of_every_kind, objects, records, mixture])
def test_elements_arrive_as_they_were_made(
    make_service: Callable[..., Service], function: Any
) -> None:
    """Every leaf and structure is equal to that of the local pipeline, with equal
    types, in the order of one worker.
    """
    service = make_service(workers=1)
    ds = Dataset.range(20).map(function)
    found = list(service.read(ds))
    assert len(found) == 20
    assert all(map(same, found, ds))


def test_element_specs_are_those_of_the_local_pipeline(service: Service) -> None:
    """The spec of a distributed dataset is the local one: objects and dataclasses are
    one leaf of dtype object.
    """
    for function in (of_every_kind, objects, records):
        ds = Dataset.range(3).map(function)
        assert service.read(ds).element_spec == ds.element_spec
    leaf = TensorSpec((), object)
    assert service.read(Dataset.range(3).map(records)).element_spec == Pair(
        TensorSpec((), "int64"), (leaf, Pair({"a": TensorSpec((), "int64")}, leaf))
    )


def test_objects_survive_compression_and_batches(service: Service) -> None:
    """Arrays of objects, as batches of objects are, and compressed blocks of them
    arrive equal.
    """
    ds = Dataset.range(64).map(lambda x: {int(x), "x" * 1000}).batch(16)
    found = list(service.read(ds, compression="zstd"))
    assert sorted(min(s, key=str) for batch in found for s in batch.tolist()) == list(range(64))
    assert {batch.dtype for batch in found} == {np.dtype(object)}


def test_large_memory_within_objects_belongs_to_the_receiver(service: Service) -> None:
    """Arrays within objects are the receiver's own: writable, and not shared between
    elements.
    """
    found = list(
        service.read(Dataset.range(6).map(lambda x: collections.deque([np.full(5000, int(x))])))
    )
    for element in found:
        element[0] += 100
    assert sorted(int(element[0][7]) for element in found) == list(range(100, 106))


def test_an_object_that_cannot_be_pickled_fails_alone(make_service: Callable[..., Service]) -> None:
    """One object that cannot travel is the failure of its element, at its place; those
    around it arrive.
    """
    service = make_service(workers=1)

    def make(x: Any) -> Any:
        return {"f": (lambda: 1) if x == 3 else {int(x)}}

    iterator = iter(service.read(Dataset.range(6).map(make)))
    assert [next(iterator)["f"] for _ in range(3)] == [{0}, {1}, {2}]
    with pytest.raises(
        PipelineError, match=r"element\['f'\] is of type builtins.function.*numpy array"
    ) as caught:
        next(iterator)
    assert "test_element_kinds.py:" in caught.value.node
    assert [element["f"] for element in iterator] == [{4}, {5}]


def test_a_class_that_the_client_does_not_have_is_named(
    make_service: Callable[..., Service],
) -> None:
    """An object of a module that is not imported here ends the iteration at once, and
    the error says what to import.
    """
    service = make_service(workers=1)

    def make(x: Any) -> Any:
        return type("Absent", (), {"__module__": "module_of_workers", "__qualname__": "Absent"})()

    with pytest.raises(FailedPreconditionError, match="import module_of_workers before reading"):
        list(service.read(Dataset.range(3).map(make, output_spec=TensorSpec((), object))))


class Spy:
    """An object that tells when it is unpickled."""

    opened: ClassVar[list[int]] = []

    def __setstate__(self, state: Any) -> None:
        self.opened.append(1)

    def __getstate__(self) -> Any:
        """Something to set."""
        return {"x": 1}


@pytest.mark.parametrize("protocol", ["tcp", "ipc", "shm"])
def test_a_client_that_allows_no_objects_unpickles_none(service: Service, protocol: str) -> None:
    """The iteration ends with what is wrong where; what came before, None and
    namedtuples among it, is handed out.
    """
    Spy.opened.clear()

    def element(number: Any) -> Any:
        return {"n": number, "none": None, "x": (Pair(number, None), Spy() if number == 5 else 1)}

    ds = service.read(
        Dataset.range(6).map(element),
        "parallel_epochs",
        allow_objects=False,
        data_transfer_protocol=protocol,
    )
    found = []
    with pytest.raises(
        FailedPreconditionError,
        match=r"element\['x'\]\[1\] is a Python object.*allow_objects=False",
    ):
        found.extend(int(x["x"][0].number) for x in ds)
    assert Spy.opened == []
    assert set(found) <= set(range(5))


def test_a_spec_with_objects_is_refused_before_anybody_is_asked(service: Service) -> None:
    """A batch of objects is known to be one: iter() says so, of a dataset known by its
    id alone, too.
    """
    ds = Dataset.from_generator(
        lambda: iter([{1}, {2}]), output_signature=TensorSpec((), object)
    ).batch(2)
    with pytest.raises(
        FailedPreconditionError, match=r"element is a Python object.*allow_objects=False"
    ):
        iter(service.read(ds, allow_objects=False))
    name = register_dataset(service.target, ds)
    known = from_dataset_id("parallel_epochs", service.target, name, allow_objects=False)
    with pytest.raises(
        FailedPreconditionError, match=r"element is a Python object.*allow_objects=False"
    ):
        iter(known)
    assert status(service.target)["jobs"] == []


def test_elements_that_stay_in_the_process_may_be_anything(service: Service) -> None:
    """Nothing is pickled between a worker and a client of one process, so there is
    nothing to refuse.
    """
    ds = Dataset.range(2).map(lambda x: {int(x)}).batch(2)
    local = service.read(ds, "parallel_epochs", target_workers="LOCAL", allow_objects=False)
    assert [[*batch] for batch in local] == [[{0}, {1}]] * len(service.workers)
