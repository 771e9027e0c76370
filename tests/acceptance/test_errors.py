"""Section 7: rows that no other module tests, and the classes of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import zmqdata
from tests.acceptance.reading import OFF, numbers, read
from zmqdata import Dataset, errors


@pytest.mark.claim("7.0")
@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (errors.InvalidArgumentError, ValueError),
        (errors.NotFoundError, LookupError),
        (errors.FailedPreconditionError, RuntimeError),
        (errors.UnavailableError, ConnectionError),
        (errors.UnimplementedError, NotImplementedError),
        (errors.PermissionDeniedError, PermissionError),
        (errors.AlreadyExistsError, errors.DataServiceError),
        (errors.CancelledError, errors.DataServiceError),
        (errors.DataLossError, errors.DataServiceError),
        (errors.PipelineError, errors.DataServiceError),
        (errors.ProtocolError, ValueError),
    ],
)
def test_classes_are_of_both_worlds(kind: type[Exception], also: type[Exception]) -> None:
    """An error of the service is an instance of tf.data's class and of Python's."""
    assert issubclass(kind, errors.DataServiceError)
    assert issubclass(kind, also)


@pytest.mark.claim("7.0")
@pytest.mark.core
def test_an_error_leaves_the_service_usable(cluster: zmqdata.LocalCluster) -> None:
    """After a refused job, a failed job and an unknown id, the service serves the next
    reader.
    """
    with pytest.raises(errors.UnimplementedError):
        next(iter(read(read(Dataset.range(3), cluster), cluster)))
    with pytest.raises(errors.PipelineError):
        list(read(Dataset.range(3).map(lambda x: 1 // 0), cluster))
    with pytest.raises(errors.NotFoundError):
        zmqdata.from_dataset_id(OFF, cluster.target, "nobody registered this")
    assert sorted(numbers(read(Dataset.range(9), cluster))) == list(range(9))


@pytest.mark.claim("7.63")
def test_fault_tolerance_needs_a_work_dir() -> None:
    """Fault tolerance without a work folder is refused in tf.data's words."""
    with pytest.raises(
        ValueError, match="Cannot enable fault tolerant mode without configuring a work dir"
    ):
        zmqdata.DispatcherConfig(fault_tolerant_mode=True)


@pytest.mark.claim("7.48", "7.49", "7.43")
def test_what_is_loaded_is_what_was_saved(tmp_path: Any) -> None:
    """Loading refuses an absent save, and a spec or compression that is not stored."""
    with pytest.raises(errors.NotFoundError):
        Dataset.load(str(tmp_path / "nothing"))
    path = str(tmp_path / "saved")
    Dataset.range(3).save(path, compression="zstd")
    with pytest.raises(
        ValueError, match=r"User specified element_spec .* but the actual element_spec is"
    ):
        Dataset.load(path, element_spec=zmqdata.TensorSpec((), "float32"))
    with pytest.raises(
        ValueError, match="User specified compression lz4, but the actual compression is zstd"
    ):
        Dataset.load(path, compression="lz4")


@pytest.mark.claim("4.2c")
def test_refusals_reach_every_reader(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """The dispatcher repeats an error of the whole job to each new reader."""
    cluster = make_cluster(1)
    ds = Dataset.range(10).shard(zmqdata.SHARD_HINT, zmqdata.SHARD_HINT)
    for _ in range(3):
        with pytest.raises(errors.FailedPreconditionError, match="HINT"):
            list(read(ds, cluster, OFF, job_name="refused"))
