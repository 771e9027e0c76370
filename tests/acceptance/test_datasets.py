"""Sections 2.1 to 2.4: registered datasets, their ids, and the properties that the
dispatcher stores.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zmqdata
from tests.acceptance.reading import DYNAMIC, OFF, numbers, read, together
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

RANGE = zmqdata.Dataset.range(10)


@pytest.mark.claim("2.1a", "2.4a", "2.4e")
@pytest.mark.core
def test_a_registered_dataset_is_read_by_its_id(cluster: zmqdata.LocalCluster) -> None:
    """A reader needs only the id, because the dispatcher stores spec, cardinality and
    compression.
    """
    ds = RANGE.map(lambda x: {"x": np.full(3, x, np.float32), "name": f"n{x}"}).batch(2)
    dataset_id = zmqdata.register_dataset(cluster.target, ds, compression="zstd")
    again = zmqdata.from_dataset_id(DYNAMIC, cluster.target, dataset_id)
    assert again.element_spec == ds.element_spec
    found = list(again)
    assert sorted(float(x) for batch in found for x in batch["x"][:, 0]) == list(range(10))
    assert all(batch["x"].dtype == np.float32 for batch in found)


@pytest.mark.claim("2.4b", "7.33")
@pytest.mark.parametrize(
    "other",
    [
        zmqdata.Dataset.range(11),
        RANGE.map(lambda x: x / 2, output_spec=zmqdata.TensorSpec((), np.float64)),
        RANGE.map(lambda x: (x, x), output_spec=(zmqdata.TensorSpec((), np.int64),) * 2),
        RANGE.batch(1),
        RANGE.repeat(),
    ],
)
def test_an_id_has_one_structure(cluster: zmqdata.LocalCluster, other: zmqdata.Dataset) -> None:
    """The dispatcher refuses another cardinality or spec under a known id, and names
    the difference.
    """
    zmqdata.register_dataset(cluster.target, RANGE, dataset_id="structured")
    text = "Datasets with the same ID should have the same structure, got diff"
    with pytest.raises(InvalidArgumentError, match=text):
        zmqdata.register_dataset(cluster.target, other, dataset_id="structured")
    assert sorted(numbers(zmqdata.from_dataset_id(DYNAMIC, cluster.target, "structured"))) == list(
        range(10)
    )


@pytest.mark.claim("2.4b", "7.33")
def test_an_id_has_one_compression(cluster: zmqdata.LocalCluster) -> None:
    """The dispatcher refuses another compression under a known id."""
    zmqdata.register_dataset(cluster.target, RANGE, dataset_id="compressed")
    with pytest.raises(InvalidArgumentError, match=r"same structure, got diff.*compression"):
        zmqdata.register_dataset(cluster.target, RANGE, compression=None, dataset_id="compressed")


@pytest.mark.claim("2.4c")
@pytest.mark.core
def test_registering_again_keeps_the_first(cluster: zmqdata.LocalCluster) -> None:
    """A second dataset of equal structure under a known id leaves the first dataset in
    place.
    """
    first = RANGE.map(lambda x: x, output_spec=zmqdata.TensorSpec((), np.int64))
    other = RANGE.map(lambda x: x + 100, output_spec=zmqdata.TensorSpec((), np.int64))
    for ds in (first, first, other):
        assert zmqdata.register_dataset(cluster.target, ds, dataset_id="kept") == "kept"
    assert sorted(numbers(zmqdata.from_dataset_id(DYNAMIC, cluster.target, "kept"))) == list(
        range(10)
    )


@pytest.mark.claim("2.4d")
def test_different_datasets_get_different_ids(cluster: zmqdata.LocalCluster) -> None:
    """The dispatcher chooses a distinct id for each dataset that is registered without
    an id.
    """
    ids = [zmqdata.register_dataset(cluster.target, zmqdata.Dataset.range(n)) for n in range(3, 6)]
    assert len(set(ids)) == 3
    for n, dataset_id in zip(range(3, 6), ids, strict=True):
        assert len(numbers(zmqdata.from_dataset_id(DYNAMIC, cluster.target, dataset_id))) == n


@pytest.mark.claim("2.4d")
def test_a_chosen_id_is_not_given_to_another(cluster: zmqdata.LocalCluster) -> None:
    """The dispatcher never chooses an id that a client chose."""
    chosen = [str(n) for n in range(1000, 1030)]
    for dataset_id in chosen:
        zmqdata.register_dataset(cluster.target, zmqdata.Dataset.range(77), dataset_id=dataset_id)
    given = zmqdata.register_dataset(cluster.target, zmqdata.Dataset.range(78))
    assert given not in chosen


@pytest.mark.claim("2.4f", "7.32")
def test_an_unknown_id_is_not_found(cluster: zmqdata.LocalCluster) -> None:
    """``from_dataset_id`` with an unknown id is an error at the call."""
    with pytest.raises(NotFoundError, match=r"Dataset id UnregisteredID not found\."):
        zmqdata.from_dataset_id(OFF, cluster.target, "UnregisteredID")


WRONG_SPECS = [
    zmqdata.TensorSpec((), object),
    zmqdata.TensorSpec((), np.int32),
    zmqdata.TensorSpec((3,), np.int64),
    {"x": zmqdata.TensorSpec((), np.int64)},
    (zmqdata.TensorSpec((), np.int64), zmqdata.TensorSpec((), np.int64)),
    zmqdata.RaggedTensorSpec((None, None), np.int64),
    "int64",
    5,
    [1],
]


@pytest.mark.claim("2.4g", "7.31")
@pytest.mark.parametrize("spec", WRONG_SPECS, ids=repr)
def test_a_wrong_spec_is_refused(cluster: zmqdata.LocalCluster, spec: Any) -> None:
    """A spec that does not fit the elements, or that is no spec, is refused."""
    dataset_id = zmqdata.register_dataset(cluster.target, RANGE)
    with pytest.raises((TypeError, ValueError), match="element_spec"):
        next(iter(zmqdata.from_dataset_id(OFF, cluster.target, dataset_id, element_spec=spec)))


@pytest.mark.claim("2.4g")
def test_a_right_spec_is_taken(cluster: zmqdata.LocalCluster) -> None:
    """A reader may give a spec that is wider than the stored one."""
    dataset_id = zmqdata.register_dataset(cluster.target, RANGE.map(lambda x: [x, x]))
    wide = zmqdata.TensorSpec((None,), np.int64)
    ds = zmqdata.from_dataset_id(DYNAMIC, cluster.target, dataset_id, element_spec=wide)
    assert ds.element_spec == wide
    assert len(list(ds)) == 10


@pytest.mark.claim("2.4h")
def test_a_spec_that_cannot_be_found_here_is_unknown(
    cluster: zmqdata.LocalCluster, tmp_path: Path
) -> None:
    """If a function fails at registration, the spec is unknown and a reader may give
    it.
    """
    path = tmp_path / "later"
    ds = zmqdata.Dataset.range(3).map(lambda x: int(path.read_text()) + x)
    dataset_id = zmqdata.register_dataset(cluster.target, ds)
    path.write_text("5")
    spec = zmqdata.TensorSpec((), np.int64)
    found = zmqdata.from_dataset_id(DYNAMIC, cluster.target, dataset_id, element_spec=spec)
    assert found.element_spec == spec
    assert sorted(numbers(found)) == [5, 6, 7]


@pytest.mark.claim("2.4i")
def test_many_may_register_at_once(cluster: zmqdata.LocalCluster) -> None:
    """Eight clients that register one id concurrently all get it."""
    calls = [lambda: zmqdata.register_dataset(cluster.target, RANGE, dataset_id="at-once")] * 8
    assert together(*calls) == ["at-once"] * 8


@pytest.mark.claim("2.4j")
def test_large_datasets_are_registered(cluster: zmqdata.LocalCluster) -> None:
    """The service runs a pipeline that holds tens of megabytes."""
    table = np.arange(4_000_000, dtype=np.float64)
    ds = zmqdata.Dataset.range(8).map(lambda i: table[int(i) * 500_000])
    assert sorted(numbers(read(ds, cluster))) == [i * 500_000 for i in range(8)]


@pytest.mark.claim("1.1h", "2.3a")
def test_datasets_outlive_their_dispatcher(
    make_cluster: Callable[..., zmqdata.LocalCluster], tmp_path: Path
) -> None:
    """A dataset object that was distributed before a restart of the dispatcher can be
    read after it.
    """
    cluster = make_cluster(1, work_dir=str(tmp_path / "work"))
    ds = read(zmqdata.Dataset.range(50), cluster)
    assert sorted(numbers(ds)) == list(range(50))
    cluster.dispatcher.restart()
    assert sorted(numbers(ds)) == list(range(50))


@pytest.mark.claim("2.1a")
def test_an_id_that_means_something_else_now_is_refused(make_worker: Any) -> None:
    """After a restart without memory, a client refuses another dataset under its id."""
    with zmqdata.DispatchServer() as dispatcher:
        target = dispatcher.target
        zmqdata.register_dataset(target, zmqdata.Dataset.range(5), dataset_id="mine")
        ds = zmqdata.from_dataset_id("distributed_epoch", target, "mine")
    with zmqdata.DispatchServer(zmqdata.DispatcherConfig(port=int(target.rpartition(":")[2]))):
        with pytest.raises(NotFoundError, match="Dataset id mine not found"):
            list(ds)
        zmqdata.register_dataset(target, zmqdata.Dataset.range(6), dataset_id="mine")
        with pytest.raises(
            FailedPreconditionError,
            match="dataset with id mine is no longer the dataset that it was",
        ):
            list(ds)
        make_worker(target)
        assert len(list(zmqdata.from_dataset_id("distributed_epoch", target, "mine"))) == 6


def scaled(by: int) -> Any:
    """Return a dataset whose spec and cardinality do not depend on ``by``, while its
    function does.
    """
    spec = zmqdata.TensorSpec((), np.int64)
    return zmqdata.Dataset.range(5).map(
        (lambda x: x * by) if by < 10 else (lambda x: x + by), output_spec=spec
    )


@pytest.mark.claim("2.4c", "4.2b")
@pytest.mark.core
@pytest.mark.parametrize(
    ("other", "said"), [(3, "Known values that functions hold: <"), (10, "Known functions: <")]
)
def test_an_id_that_means_other_functions_now_is_refused(
    make_worker: Any, other: int, said: str
) -> None:
    """A client refuses other functions under its id after a restart without memory, and
    names both contents.
    """
    with zmqdata.DispatchServer() as dispatcher:
        target = dispatcher.target
        make_worker(target)
        zmqdata.register_dataset(target, scaled(2), dataset_id="mine")
        ds = zmqdata.from_dataset_id("distributed_epoch", target, "mine", job_name="training")
        assert sorted(numbers(ds)) == [0, 2, 4, 6, 8]
    with zmqdata.DispatchServer(zmqdata.DispatcherConfig(port=int(target.rpartition(":")[2]))):
        zmqdata.register_dataset(target, scaled(other), dataset_id="mine")
        with pytest.raises(
            FailedPreconditionError, match="content of dataset id mine differs"
        ) as caught:
            list(ds)
        assert said in str(caught.value)
        assert "; found: <" in str(caught.value)
        assert "without a work_dir" in str(caught.value)
        again = zmqdata.from_dataset_id("distributed_epoch", target, "mine", job_name="training")
        assert sorted(numbers(again)) == sorted(
            x * other if other < 10 else x + other for x in range(5)
        )


@pytest.mark.claim("2.4c", "4.1b")
def test_an_id_that_means_the_same_again_is_read_on(make_worker: Any) -> None:
    """After a restart without memory, registering the same dataset makes its id
    readable.
    """
    with zmqdata.DispatchServer() as dispatcher:
        target = dispatcher.target
        make_worker(target)
        zmqdata.register_dataset(target, scaled(2), dataset_id="mine")
        ds = zmqdata.from_dataset_id("distributed_epoch", target, "mine")
    with zmqdata.DispatchServer(zmqdata.DispatcherConfig(port=int(target.rpartition(":")[2]))):
        zmqdata.register_dataset(target, scaled(2), dataset_id="mine")
        assert sorted(numbers(ds)) == [0, 2, 4, 6, 8]
