"""Facts about pipelines that read from the service and are distributed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from tests.service.conftest import Service
from zmqdata import Dataset, distribute
from zmqdata.errors import UnimplementedError


def numbers(dataset: Any) -> list[int]:
    return [int(element) for element in dataset]


def test_two_levels_on_two_clusters(make_service: Callable[..., Service]) -> None:
    """A distributed dataset can be transformed and distributed again, on another
    cluster.
    """
    inner, outer = make_service(workers=2), make_service(workers=1)
    ds = inner.read(Dataset.range(100)).map(lambda x: x * 10)
    assert sorted(numbers(outer.read(ds, "parallel_epochs"))) == list(range(0, 1000, 10))


def test_two_levels_on_one_cluster(service: Service) -> None:
    """The same workers may run both levels: each copy of the outer level reads a job of
    its own.
    """
    ds = service.read(service.read(Dataset.range(100)).map(lambda x: x + 1), "parallel_epochs")
    assert Counter(numbers(ds)) == Counter(dict.fromkeys(range(1, 101), 2))


def test_a_named_inner_job_is_shared_by_the_outer_copies(service: Service) -> None:
    """Outer copies that read the same inner job share its elements."""
    ds = service.read(
        service.read(Dataset.range(1000), job_name="inner").map(lambda x: x), "parallel_epochs"
    )
    assert sorted(numbers(ds)) == list(range(1000))


def test_distribute_inside_interleave(service: Service) -> None:
    """A function that interleave calls may return a distributed dataset."""
    target = service.target
    ds = Dataset.range(4).interleave(
        lambda x: (
            Dataset.range(10)
            .map(lambda y: y + 10 * x)
            .apply(distribute("distributed_epoch", target))
        ),
        cycle_length=2,
    )
    assert sorted(numbers(ds)) == list(range(40))


def test_distribute_inside_a_distributed_flat_map(service: Service) -> None:
    """A function on a worker may read from the service."""
    target = service.target
    ds = Dataset.range(3).flat_map(
        lambda x: (
            Dataset.range(5).map(lambda y: y + 5 * x).apply(distribute("parallel_epochs", target))
        )
    )
    assert Counter(numbers(service.read(ds))) == Counter(dict.fromkeys(range(15), 2))


def test_zip_of_two_modes(make_service: Callable[..., Service]) -> None:
    """zip combines two distributed datasets with different modes; the shorter dataset
    ends both.
    """
    service = make_service(workers=2)
    pairs = Dataset.zip(
        service.read(Dataset.range(50), "parallel_epochs"),
        service.read(Dataset.range(60), "distributed_epoch"),
    )
    found = list(pairs)
    assert len(found) == 60
    assert sorted(int(second) for _, second in found) == list(range(60))


def test_zip_of_different_modes_with_one_name(service: Service) -> None:
    """A job name cannot stand for two modes."""
    pairs = Dataset.zip(
        service.read(Dataset.range(50), "parallel_epochs", job_name="one"),
        service.read(Dataset.range(50), "distributed_epoch", job_name="one"),
    )
    with pytest.raises(Exception, match=r"but found an existing job with diff"):
        list(pairs)


def test_the_same_dataset_zipped_with_itself(make_service: Callable[..., Service]) -> None:
    """Two readers of the same distributed dataset read two repetitions."""
    ds = make_service(workers=1).read(Dataset.range(100))
    assert [(int(a), int(b)) for a, b in Dataset.zip(ds, ds)] == [(n, n) for n in range(100)]


def test_repeat_before_and_after(service: Service) -> None:
    """repeat() before distribute is part of the job; repeat() after it starts a new
    iteration each time.
    """
    assert Counter(numbers(service.read(Dataset.range(20).repeat(3)))) == Counter(
        dict.fromkeys(range(20), 3)
    )
    assert Counter(numbers(service.read(Dataset.range(20)).repeat(3))) == Counter(
        dict.fromkeys(range(20), 3)
    )
    assert len(list(islice(service.read(Dataset.range(20)).repeat(), 100))) == 100


def test_an_empty_first_repetition_does_not_end_the_others(service: Service) -> None:
    """A reader that comes too late for a repetition of a shared job reads the next
    repetition.
    """
    one, other = (service.read(Dataset.range(20), job_name="shared") for _ in range(2))
    assert sorted(numbers(one)) == list(range(20))
    late = iter(other.repeat())
    assert sorted(int(x) for x in islice(late, 20)) == list(range(20))
    late.close()


def test_an_empty_dataset_is_over_at_once(service: Service) -> None:
    """repeat() does not repeat a dataset forever that is known to be empty."""
    assert numbers(service.read(Dataset.range(0)).repeat()) == []
    assert numbers(service.read(Dataset.range(0))) == []
    assert numbers(service.read(Dataset.range(0)).repeat(2)) == []


def test_a_job_cannot_be_split_by_another(service: Service) -> None:
    """A distributed dataset is read as a whole when it is the source of another
    distributed dataset.
    """
    inner = service.read(Dataset.range(20)).map(lambda x: x)
    with pytest.raises(
        UnimplementedError, match="split providers for dataset of type DataServiceDataset"
    ):
        numbers(service.read(inner))
