"""Facts about the kinds of elements that workers can send: everything arrives as it was
made.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from tests.service.kinds import Pair, mixture, objects, of_every_kind, records, same
from zmqdata import Dataset, TensorSpec
from zmqdata.elements.specs import merge_specs, spec_of
from zmqdata.errors import FailedPreconditionError, PipelineError


@pytest.mark.parametrize("function", [of_every_kind, objects, records, mixture])
def test_elements_arrive_as_they_were_made(
    make_service: Callable[..., WatchedService], function: Any
) -> None:
    """Every leaf and structure has the type and the value that it has in the local
    pipeline, in the order of the only worker.
    """
    service = make_service(workers=1)
    ds = Dataset.range(20).map(function)
    found = list(service.read(ds))
    assert len(found) == 20
    assert all(map(same, found, ds))


def test_element_specs_are_those_of_the_local_pipeline(service: WatchedService) -> None:
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


DTYPES = [
    "?",
    "i1",
    "u2",
    "i4",
    ">i4",
    "i8",
    "u8",
    "f2",
    "f4",
    ">f8",
    "g",
    "F",
    "D",
    "S3",
    "U2",
    ">U2",
    "M8[D]",
    "M8[ns]",
    "m8[s]",
    "V3",
    "i4,f8",
]


def of_every_dtype(number: Any) -> dict[str, Any]:
    """Return an array, a scalar, a list and a part of an array for each dtype."""
    rows = {code: np.zeros((4, 2), code) for code in DTYPES}
    rows["U2"][:], rows["S3"][:] = "a", b"b"
    return {
        code: (array[0], array[1, 0], [*array[2]], array[::2, ::-1]) for code, array in rows.items()
    }


@pytest.mark.parametrize(
    "shaped",
    [
        lambda dataset: dataset,
        lambda dataset: dataset.batch(2),
        lambda dataset: dataset.padded_batch(2),
        lambda dataset: dataset.ragged_batch(2),
        lambda dataset: (
            dataset.map(lambda element: {key: v[0] for key, v in element.items()})
            .batch(2)
            .unbatch()
        ),
    ],
)
def test_specs_and_elements_agree_over_every_transport(
    service: WatchedService, shaped: Callable[[Dataset], Dataset], tmp_path: Path
) -> None:
    """Elements of every dtype match the spec locally, from the service and from a
    save.
    """
    dataset = shaped(Dataset.range(4).map(of_every_dtype))
    spec = dataset.element_spec
    dataset.save(str(tmp_path / "save"))
    saved = Dataset.load(str(tmp_path / "save"))
    assert service.read(dataset).element_spec == spec
    assert merge_specs(spec, saved.element_spec) == spec
    local = list(dataset)
    for found in (local, list(service.read(dataset)), list(saved)):
        assert len(found) == len(local)
        for element in found:
            assert merge_specs(spec, spec_of(element)) == spec
            assert same(element, local[0])


@pytest.mark.parametrize(
    "shaped",
    [
        lambda dataset: dataset.batch(8),
        lambda dataset: dataset.batch(4).rebatch(8),
        lambda dataset: dataset.batch(4).batch(2).cache(),
        lambda dataset: dataset.batch(4).map(lambda x: x[x != ""]).ragged_batch(2),
        lambda dataset: dataset.map(lambda x: [x]).padded_batch(8),
    ],
)
def test_texts_of_either_form_arrive_without_pickle(
    make_service: Callable[..., WatchedService],
    shaped: Callable[[Dataset], Dataset],
    tmp_path: Path,
) -> None:
    """Batches of texts, some of which would pad too much, arrive and are saved in the
    form that they have locally, by a reader that unpickles nothing.
    """
    dataset = shaped(Dataset.range(32).map(lambda x: "b" * 1_000_000 if x == 12 else "a" * int(x)))
    local = list(dataset)
    forms = [getattr(batch, "flat_values", batch).dtype.kind for batch in local]
    assert forms == ["U", "O", "U", "U"]
    assert dataset.element_spec.dtype == np.dtype(str)
    dataset.save(str(tmp_path / "save"))
    distributed = make_service(workers=1).read(dataset, allow_objects=False)
    for found in (list(distributed), list(Dataset.load(str(tmp_path / "save")))):
        assert all(map(same, found, local))
        assert len(found) == len(local)


def test_objects_survive_compression_and_batches(service: WatchedService) -> None:
    """Batches of objects, which are arrays of objects, arrive equal, also in compressed
    blocks.
    """
    ds = Dataset.range(64).map(lambda x: {int(x), "x" * 1000}).batch(16)
    found = list(service.read(ds, compression="zstd"))
    assert sorted(min(s, key=str) for batch in found for s in batch.tolist()) == list(range(64))
    assert {batch.dtype for batch in found} == {np.dtype(object)}


def test_large_memory_within_objects_belongs_to_the_receiver(service: WatchedService) -> None:
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
    make_service: Callable[..., WatchedService],
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
    make_service: Callable[..., WatchedService],
) -> None:
    """An object of a module that is not imported here ends the iteration at once, and
    the error says what to import.
    """
    service = make_service(workers=1)

    def make(x: Any) -> Any:
        return type("Absent", (), {"__module__": "module_of_workers", "__qualname__": "Absent"})()

    with pytest.raises(FailedPreconditionError, match="import module_of_workers before reading"):
        list(service.read(Dataset.range(3).map(make, output_spec=TensorSpec((), object))))
