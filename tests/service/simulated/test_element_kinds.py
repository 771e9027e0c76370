"""Facts about the kinds of elements that workers can send: everything arrives as it was
made.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.service.kinds import Pair, mixture, objects, of_every_kind, records, same
from zmqdata import Dataset, TensorSpec
from zmqdata.errors import FailedPreconditionError, PipelineError
from zmqdata.testing import SimulatedService


@pytest.mark.parametrize("function", [of_every_kind, objects, records, mixture])
def test_elements_arrive_as_they_were_made(
    make_service: Callable[..., SimulatedService], function: Any
) -> None:
    """Every leaf and structure has the type and the value that it has in the local
    pipeline, in the order of the only worker.
    """
    service = make_service(workers=1)
    ds = Dataset.range(20).map(function)
    found = list(service.read(ds))
    assert len(found) == 20
    assert all(map(same, found, ds))


def test_element_specs_are_those_of_the_local_pipeline(service: SimulatedService) -> None:
    """A distributed dataset has the local spec: objects and dataclasses are one leaf of
    dtype object.
    """
    for function in (of_every_kind, objects, records):
        ds = Dataset.range(3).map(function)
        assert service.read(ds).element_spec == ds.element_spec
    leaf = TensorSpec((), object)
    assert service.read(Dataset.range(3).map(records)).element_spec == Pair(
        TensorSpec((), "int64"), (leaf, Pair({"a": TensorSpec((), "int64")}, leaf))
    )


def test_objects_survive_compression_and_batches(service: SimulatedService) -> None:
    """Batches of objects, which are arrays of objects, arrive equal, also in compressed
    blocks.
    """
    ds = Dataset.range(64).map(lambda x: {int(x), "x" * 1000}).batch(16)
    found = list(service.read(ds, compression="zstd"))
    assert sorted(min(s, key=str) for batch in found for s in batch.tolist()) == list(range(64))
    assert {batch.dtype for batch in found} == {np.dtype(object)}


def test_large_memory_within_objects_belongs_to_the_receiver(service: SimulatedService) -> None:
    """Arrays within objects are the receiver's own: they are writable, and no two
    elements share them.
    """
    found = list(
        service.read(Dataset.range(6).map(lambda x: collections.deque([np.full(5000, int(x))])))
    )
    for element in found:
        element[0] += 100
    assert sorted(int(element[0][7]) for element in found) == list(range(100, 106))


def test_an_object_that_cannot_be_pickled_fails_alone(
    make_service: Callable[..., SimulatedService],
) -> None:
    """An object that cannot be sent is the failure of its element, at its place; all
    other elements arrive.
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
    make_service: Callable[..., SimulatedService],
) -> None:
    """An object of a module that is not imported here ends the iteration at once, and
    the error says what to import.
    """
    service = make_service(workers=1)

    def make(x: Any) -> Any:
        return type("Absent", (), {"__module__": "module_of_workers", "__qualname__": "Absent"})()

    with pytest.raises(FailedPreconditionError, match="import module_of_workers before reading"):
        list(service.read(Dataset.range(3).map(make, output_spec=TensorSpec((), object))))
