"""Facts about the kinds of elements that workers can send over real sockets.
``simulated/test_element_kinds.py`` states how each kind arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.service.conftest import Service
from tests.service.kinds import Pair, mixture, of_every_kind, same
from zmqdata import (
    Dataset,
    RaggedTensor,
    RaggedTensorSpec,
    TensorSpec,
    from_dataset_id,
    register_dataset,
)
from zmqdata.client.calls import status
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError


@pytest.mark.parametrize("function", [of_every_kind, mixture])
def test_elements_arrive_as_they_were_made(
    make_service: Callable[..., Service], function: Any
) -> None:
    """Every leaf and structure has the type and the value that it has in the local
    pipeline, in the order of the only worker.
    """
    service = make_service(workers=1)
    ds = Dataset.range(20).map(function)
    found = list(service.read(ds))
    assert len(found) == 20
    assert all(map(same, found, ds))


def test_empty_lists_have_one_dtype_on_every_worker(make_service: Callable[..., Service]) -> None:
    """Workers whose first elements are empty lists send them with the dtype of the
    others, as the spec says.
    """
    service = make_service(workers=2)
    lines = ["", "", "1 2", "", "3"] * 4
    ds = Dataset.from_list(lines).map(lambda line: [int(token) for token in line.split()])
    far = service.read(ds)
    assert far.element_spec == TensorSpec((None,), "int64")
    assert {row.dtype.name for row in far} == {"int64"}
    assert {batch.dtype.name for batch in service.read(ds).padded_batch(2)} == {"int64"}


class Spy:
    """An object that records its unpickling."""

    opened: ClassVar[list[int]] = []

    def __setstate__(self, state: Any) -> None:
        self.opened.append(1)

    def __getstate__(self) -> Any:
        """Return a state, so that unpickling calls ``__setstate__``."""
        return {"x": 1}


@pytest.mark.parametrize("protocol", ["tcp", "ipc", "shm"])
def test_a_client_that_allows_no_objects_unpickles_none(service: Service, protocol: str) -> None:
    """The iteration ends with an error that names the element and the object. The
    client delivers all earlier elements, with None and namedtuples among them.
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
    """The spec shows that a batch has objects, so iter() refuses it, also for a dataset
    known only by its id.
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
    """A worker and a client in the same process pickle nothing, so the client refuses
    nothing.
    """
    ds = Dataset.range(2).map(lambda x: {int(x)}).batch(2)
    local = service.read(ds, "parallel_epochs", target_workers="LOCAL", allow_objects=False)
    assert [[*batch] for batch in local] == [[{0}, {1}]] * len(service.workers)


UNKNOWN = [
    (TensorSpec((), "int32"), 1, False),
    (TensorSpec((), str), 1, False),
    (TensorSpec((1,), "int64"), 1, False),
    (TensorSpec((None, None), "int64"), np.arange(2), False),
    ({"x": TensorSpec((), "int64")}, 1, False),
    (TensorSpec((None,), "int64"), np.arange(2), True),
    (TensorSpec((None,), "int64"), [], True),
    (TensorSpec((), object), 1, True),
    (RaggedTensorSpec((None, None), "int64"), RaggedTensor.from_rows([[1], [2, 3]]), True),
    (RaggedTensorSpec((3, None), "int64"), RaggedTensor.from_rows([[1], [2, 3]]), False),
]


def test_a_declared_spec_that_nobody_knows_is_checked_at_the_first_element(
    service: Service,
) -> None:
    """If the dispatcher does not know the spec, the first element shows that a declared
    one is wrong, and every further call raises the same error.
    """
    client = threading.get_ident()

    def only_elsewhere(element: Any) -> Any:
        if threading.get_ident() == client:
            raise FileNotFoundError("only workers have this file")
        return element

    for spec, element, fits in UNKNOWN:
        ds = Dataset.range(1).map(lambda x, element=element: only_elsewhere(element))
        name = register_dataset(service.target, ds)
        iterator = iter(from_dataset_id("parallel_epochs", service.target, name, spec))
        if fits:
            assert len([*iterator]) == len(service.workers)
            continue
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match=r"is .* gave an element of"):
                next(iterator)
