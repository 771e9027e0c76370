"""Facts about target workers, and about reads within a process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.service.conftest import Service, wait_until
from zmqdata import Dataset
from zmqdata.errors import InvalidArgumentError, PipelineError
from zmqdata.transport.local import withdraw_worker


def numbers(dataset: Any) -> list[int]:
    return [int(element) for element in dataset]


@pytest.fixture
def half(make_service: Callable[..., Service]) -> Service:
    """A service with a worker of this process, and a worker that counts as another
    process's.
    """
    service = make_service(workers=2)
    withdraw_worker(service.workers[1].address)
    return service


@pytest.mark.parametrize(
    ("target", "copies"), [("AUTO", 2), ("ANY", 2), ("LOCAL", 1), ("local", 1)]
)
def test_targets_choose_the_workers(half: Service, target: str, copies: int) -> None:
    """LOCAL reads only the worker of this process; the other targets read both
    workers.
    """
    ds = half.read(Dataset.range(100), "parallel_epochs", target_workers=target)
    assert Counter(numbers(ds)) == Counter(dict.fromkeys(range(100), copies))


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_local_reads_give_everything(half: Service, mode: str) -> None:
    """The workers in the client's process run all of its job, in either mode, and again
    in a second iteration.
    """
    ds = half.read(Dataset.range(1000), mode, target_workers="LOCAL")
    assert sorted(numbers(ds)) == sorted(numbers(ds)) == list(range(1000))


def test_colocated_workers_of_others_are_left_out(make_service: Callable[..., Service]) -> None:
    """AUTO does not read a worker tagged COLOCATED that is in another process; ANY
    does.
    """
    service = make_service(workers=1)
    withdraw_worker(service.add_worker(worker_tags=("colocated",)).address)
    ds = Dataset.range(50)
    assert len(numbers(service.read(ds, "parallel_epochs"))) == 50
    assert len(numbers(service.read(ds, "parallel_epochs", target_workers="ANY"))) == 100
    assert sorted(numbers(service.read(ds))) == list(range(50))


def test_consumers_in_step_read_colocated_workers_of_others(
    make_service: Callable[..., Service],
) -> None:
    """All consumers of a coordinated job read the same workers in each step, so AUTO
    leaves out none.
    """
    service = make_service(workers=2, worker_options={"worker_tags": ("COLOCATED",)})
    withdraw_worker(service.workers[1].address)
    ds = Dataset.range(100).repeat()
    consumers = [
        iter(
            service.read(
                ds, "parallel_epochs", job_name="steps", consumer_index=index, num_consumers=2
            )
        )
        for index in range(2)
    ]
    rounds = [[int(next(one)) for one in consumers] for _ in range(4)]
    assert rounds == [[0, 1], [0, 1], [2, 3], [2, 3]]
    for one in consumers:
        one.close()


@pytest.mark.parametrize("target", ["AUTO", "any"])
def test_consumers_in_step_read_local_workers_too(half: Service, target: str) -> None:
    """Consumers read in step from the worker of this process as from the other, and in
    each step from the same round.
    """
    iterators = [
        iter(
            half.read(
                Dataset.range(1_000).repeat(),
                "parallel_epochs",
                job_name="steps",
                consumer_index=index,
                num_consumers=2,
                target_workers=target,
            )
        )
        for index in range(2)
    ]
    steps = [numbers(next(one) for one in iterators) for _ in range(6)]
    assert steps == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]
    for one in iterators:
        one.close()


def test_other_tags_change_nothing(make_service: Callable[..., Service]) -> None:
    """A client reads a worker with any other tag as it reads a worker without tags."""
    service = make_service(workers=1)
    withdraw_worker(service.add_worker(worker_tags=("GPU",)).address)
    assert len(numbers(service.read(Dataset.range(50), "parallel_epochs"))) == 100


def test_local_reads_need_a_local_worker(make_service: Callable[..., Service]) -> None:
    """LOCAL without a local worker raises an error that says what to do."""
    service = make_service(workers=1)
    withdraw_worker(service.workers[0].address)
    with pytest.raises(
        InvalidArgumentError,
        match=r"Local reads require local tf.data workers, but no local worker",
    ):
        next(iter(service.read(Dataset.range(5), target_workers="LOCAL")))


def test_clients_of_a_job_agree_on_the_target(service: Service) -> None:
    """A named job has a single target, and the refusal of a second client shows both
    sides.
    """
    first = iter(service.read(Dataset.range(100).repeat(), job_name="shared"))
    next(first)
    with pytest.raises(InvalidArgumentError, match="Existing target workers: <AUTO>; got <ANY>"):
        next(
            iter(service.read(Dataset.range(100).repeat(), job_name="shared", target_workers="ANY"))
        )
    first.close()


class Unsendable:
    """Holds a lock, so it cannot be pickled."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock = threading.Lock()


def test_local_elements_are_handed_over_as_they_are(service: Service) -> None:
    """Within a process any object can be an element, because nothing is serialised."""
    ds = Dataset.range(10).map(lambda x: {"object": Unsendable(int(x)), "array": np.full(3, x)})
    found = list(service.read(ds, target_workers="LOCAL"))
    assert sorted(element["object"].number for element in found) == list(range(10))
    assert all((element["array"] == element["object"].number).all() for element in found)


def test_local_failures_take_the_place_of_their_element(
    make_service: Callable[..., Service],
) -> None:
    """A user's error within a process is raised once, and the iteration continues after
    it.
    """
    ds = make_service(workers=1).read(
        Dataset.range(4).map(lambda x: 6 // (int(x) - 1)), target_workers="LOCAL"
    )
    it, found = iter(ds), []
    with pytest.raises(PipelineError, match="ZeroDivisionError"):
        found.extend(it)
    assert [*found, *it] == [-6, 6, 3]


def test_local_is_a_transport(half: Service) -> None:
    """data_transfer_protocol="local" reads as target LOCAL does, and contradicts
    ANY.
    """
    ds = Dataset.range(20)
    assert len(numbers(half.read(ds, "parallel_epochs", data_transfer_protocol="local"))) == 20
    assert (
        len(
            numbers(
                half.read(
                    ds, "parallel_epochs", target_workers="LOCAL", data_transfer_protocol="tcp"
                )
            )
        )
        == 20
    )
    with pytest.raises(InvalidArgumentError, match=r"leave one of the two out"):
        half.read(ds, target_workers="ANY", data_transfer_protocol="local")


def test_local_tasks_end_with_their_reader(service: Service) -> None:
    """A worker that only its own process reads keeps no task of a closed iterator."""
    ds = service.read(Dataset.range(10).repeat(), "parallel_epochs", target_workers="LOCAL")
    for _ in range(3):
        it = iter(ds)
        assert len(list(islice(it, 5))) == 5
        it.close()
    wait_until(
        lambda: not any(worker.num_tasks() for worker in service.workers), "tasks have ended"
    )


@pytest.mark.parametrize("target", ["local ", "REMOTE", "", None, 3])
def test_other_targets_are_refused_at_the_call(service: Service, target: Any) -> None:
    """The call refuses a target that does not exist, before any read."""
    with pytest.raises(InvalidArgumentError, match="Unrecognized target workers"):
        service.read(Dataset.range(5), target_workers=target)
