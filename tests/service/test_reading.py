"""Facts about reading a job over real sockets."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dill
import numpy as np
import pytest

from tests.service.conftest import Service, wait_until
from zmqdata import Dataset, ShardingPolicy, from_dataset_id, register_dataset
from zmqdata.client.calls import status
from zmqdata.core.worker.streams import BLOCK_COST
from zmqdata.errors import FailedPreconditionError


def numbers(dataset: Any) -> list[int]:
    return [int(element) for element in dataset]


@pytest.mark.parametrize("protocol", [None, "tcp", "ipc", "shm"])
@pytest.mark.parametrize("mode", [ShardingPolicy.DYNAMIC, "distributed_epoch"])
def test_dynamic_gives_each_element_once(service: Service, mode: Any, protocol: str | None) -> None:
    """DYNAMIC delivers every element exactly once, over any transport."""
    ds = service.read(
        Dataset.range(1000).map(lambda x: x * 2), mode, data_transfer_protocol=protocol
    )
    assert sorted(numbers(ds)) == list(range(0, 2000, 2))


@pytest.mark.parametrize("mode", [ShardingPolicy.OFF, "parallel_epochs"])
def test_off_gives_a_copy_for_each_worker(service: Service, mode: Any) -> None:
    """OFF delivers as many copies as there are workers."""
    assert Counter(numbers(service.read(Dataset.range(300), mode))) == Counter(
        dict.fromkeys(range(300), 2)
    )


def test_one_worker_keeps_the_order(make_service: Callable[..., Service]) -> None:
    """A single worker keeps the order of the pipeline."""
    assert numbers(make_service(workers=1).read(Dataset.range(1000))) == list(range(1000))


@pytest.mark.parametrize("compression", ["AUTO", None, "lz4", "zstd"])
def test_structures_and_compression(service: Service, compression: str | None) -> None:
    """Nested elements arrive as they were made, with any compression."""
    ds = Dataset.range(20).map(
        lambda x: {"image": np.full((40, 40), x, np.uint8), "label": (int(x), f"n{x}")}
    )
    found = sorted(
        service.read(ds, compression=compression), key=lambda element: element["label"][0]
    )
    for number, element in enumerate(found):
        assert element["label"] == (number, f"n{number}")
        assert element["image"].dtype == np.uint8
        assert element["image"].shape == (40, 40)
        assert (element["image"] == number).all()
    assert len(found) == 20


def test_every_iterator_is_a_new_repetition(service: Service) -> None:
    """Reading a distributed dataset again reads all of it again."""
    ds = service.read(Dataset.range(100))
    assert sorted(numbers(ds)) == sorted(numbers(ds)) == list(range(100))


def test_repeat_after_distribute(service: Service) -> None:
    """repeat(3) after distribute reads three repetitions."""
    assert Counter(numbers(service.read(Dataset.range(50)).repeat(3))) == Counter(
        dict.fromkeys(range(50), 3)
    )


def test_repeat_before_distribute(service: Service) -> None:
    """repeat(3) before distribute assigns every split three times."""
    assert Counter(numbers(service.read(Dataset.range(50).repeat(3)))) == Counter(
        dict.fromkeys(range(50), 3)
    )


def test_empty_data_ends(service: Service) -> None:
    """An empty pipeline ends at once."""
    assert numbers(service.read(Dataset.range(0))) == []


def test_an_ended_iterator_stays_ended(service: Service) -> None:
    """An iterator that has ended continues to raise StopIteration."""
    it = iter(service.read(Dataset.range(3)))
    assert len(list(it)) == 3
    assert list(it) == []


def test_shuffle_batch_and_files(service: Service, tmp_path: Path) -> None:
    """The dispatcher lists the files, and a single worker reads each file."""
    for number in range(7):
        (tmp_path / f"part-{number}.txt").write_text(
            "".join(f"{number}-{line}\n" for line in range(10))
        )
    ds = Dataset.list_files(f"{tmp_path}/*.txt").flat_map(
        lambda name: Dataset.from_tensor_slices(_lines(name))
    )
    found = [str(line) for batch in service.read(ds.shuffle(16).batch(4)) for line in batch]
    assert sorted(found) == sorted(f"{number}-{line}" for number in range(7) for line in range(10))


def _lines(name: Any) -> list[str]:
    return Path(str(name)).read_text().splitlines()


def test_named_job_is_shared(service: Service) -> None:
    """Clients of the same named job together get each element once."""
    datasets = [service.read(Dataset.range(4000), job_name="shared") for _ in range(3)]
    found: list[int] = []
    lock = threading.Lock()

    def read(dataset: Dataset) -> None:
        mine = numbers(dataset)
        with lock:
            found.extend(mine)

    threads = [threading.Thread(target=read, args=(dataset,)) for dataset in datasets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == list(range(4000))


def test_a_finished_named_job_is_over(service: Service) -> None:
    """A second reader of a named job whose epoch another has read gets nothing, as in
    tf.data, and then the next epoch.
    """
    one, other = (service.read(Dataset.range(10), job_name="once") for _ in range(2))
    assert len(numbers(one)) == 10
    assert numbers(other) == []
    assert len(numbers(other)) == 10


def test_a_dataset_that_is_made_anew_for_each_iteration_is_an_error(service: Service) -> None:
    """A dataset that is made after its process has read the epoch raises an error with
    the remedy, instead of yielding nothing.
    """
    assert len(numbers(service.read(Dataset.range(10), job_name="once"))) == 10
    with pytest.raises(FailedPreconditionError, match="Make the dataset once and call iter"):
        numbers(service.read(Dataset.range(10), job_name="once"))


def test_worker_that_joins_late_takes_part(make_service: Callable[..., Service]) -> None:
    """Workers that join later make the elements of a job that started without
    workers.
    """
    service = make_service(workers=0)
    it = iter(service.read(Dataset.range(1000)))
    service.add_worker()
    assert sorted(numbers(it)) == list(range(1000))


def test_worker_joining_a_running_job_gets_a_task(make_service: Callable[..., Service]) -> None:
    """A worker that joins during a job gets a task of it."""
    service = make_service(workers=1)
    it = iter(service.read(Dataset.range(10**9)))
    next(it)
    late = service.add_worker()
    wait_until(late.num_tasks, "the late worker has a task")
    it.close()


def test_worker_that_stops_loses_nothing(make_service: Callable[..., Service]) -> None:
    """A worker that leaves during a DYNAMIC job loses no element and repeats none."""
    service = make_service(workers=2)
    it = iter(service.read(Dataset.range(200_000).map(lambda x: x), data_transfer_protocol="tcp"))
    found = [int(next(it)) for _ in range(1000)]
    service.workers[0].stop()
    found += numbers(it)
    assert sorted(found) == list(range(200_000))


def test_register_and_read_by_id(service: Service) -> None:
    """A client reads a registered dataset by its id, with the spec and the cardinality
    of the original.
    """
    ds = Dataset.range(10).batch(5)
    name = register_dataset(service.target, ds, dataset_id="numbers")
    assert register_dataset(service.target, ds, dataset_id="numbers") == name == "numbers"
    again = from_dataset_id("distributed_epoch", service.target, "numbers")
    assert again.element_spec == ds.element_spec
    assert sorted(int(n) for batch in again for n in batch) == list(range(10))


def test_each_dataset_id_has_its_own_jobs(service: Service) -> None:
    """Readers share a job if they name it and the same dataset id. Under another id,
    the same name is another job, even for an equal dataset.
    """
    for name in ("first", "second"):
        register_dataset(service.target, Dataset.range(40), dataset_id=name)

    def read(name: str) -> Any:
        return from_dataset_id("distributed_epoch", service.target, name, job_name="job")

    (one, late), other = (read("first") for _ in range(2)), read("second")
    assert sorted(numbers(one)) == sorted(numbers(other)) == list(range(40))
    assert numbers(late) == []


def test_status_tells_what_is_there(service: Service) -> None:
    """status() lists workers, jobs and tasks while a job is read."""
    it = iter(service.read(Dataset.range(10**9), job_name="long"))
    next(it)
    found = status(service.target)
    assert [worker["state"] for worker in found["workers"]] == ["connected"] * 2
    assert [job["job"] for job in found["jobs"]] == ["long"]
    assert len(found["tasks"]) == 2
    it.close()


def test_max_outstanding_requests(make_service: Callable[..., Service]) -> None:
    """At most three elements wait for a slow training loop with
    max_outstanding_requests=3.
    """
    service = make_service(workers=1)
    it = iter(service.read(Dataset.range(300).map(lambda x: x), max_outstanding_requests=3))
    found, most = [], 0
    for x in it:
        found.append(int(x))
        most = max(most, it._shell.core.reading.waiting)
    assert found == list(range(300))
    assert 1 <= most <= 3


def test_blocks_of_one_element_do_not_fill_the_memory(make_service: Callable[..., Service]) -> None:
    """A worker counts what a block costs besides its eight bytes, when it produces
    ahead of a client that takes one element at a time.
    """
    room = 100 * BLOCK_COST
    service = make_service(workers=1, worker_options={"buffer_bytes": room})
    it = iter(service.read(Dataset.range(2**40), max_outstanding_requests=1))
    worker = service.workers[0]

    def task() -> dict[str, Any]:
        (found,) = status(worker.address)["tasks"]
        return found

    next(it)
    wait_until(lambda: task()["produced"] >= 90, "the worker produces ahead")
    for count in range(1, 200):
        assert int(next(it)) == count
        if count % 50 == 0:
            assert task()["produced"] < count + 1000
    it.close()


def test_a_copy_of_a_distributed_dataset_has_a_job_of_its_own(service: Service) -> None:
    """A pickled copy of a distributed dataset reads everything, even if others read the
    original.
    """
    ds = service.read(Dataset.range(200))
    original = iter(ds)
    next(original)
    assert sorted(numbers(dill.loads(dill.dumps(ds)))) == list(range(200))
    assert len(list(original)) == 199


def test_a_distributed_dataset_inside_a_function_is_read_in_full(service: Service) -> None:
    """A distributed dataset that the function of flat_map returns is read in full each
    time, on every worker.
    """
    inner = service.read(Dataset.range(10))
    ds = Dataset.range(4).flat_map(lambda i: inner)
    assert len(numbers(ds)) == 40
    assert len(numbers(service.read(ds))) == 40


AFTER = {
    "prefetch": lambda ds: ds.prefetch(2),
    "shuffle": lambda ds: ds.shuffle(10),
    "parallel map": lambda ds: ds.map(lambda x: x, num_parallel_calls=2),
    "cache": lambda ds: ds.cache(),
    "repeat": lambda ds: ds.batch(7).repeat(1).unbatch(),
    "interleave": lambda ds: ds.interleave(lambda x: Dataset.from_tensors(x), 3),
    "scan": lambda ds: ds.scan(0, lambda state, x: (state, x)),
}


@pytest.mark.parametrize("name", AFTER)
def test_operations_after_distribute(service: Service, name: str) -> None:
    """Operations after distribute run in the training process, and a state of the whole
    pipeline resumes them.
    """
    dataset = AFTER[name](service.read(Dataset.range(100)))
    it = iter(dataset)
    found = [int(next(it)) for _ in range(11)]
    state = it.state_dict()
    it.close()
    again = iter(dataset)
    again.load_state_dict(state)
    assert sorted(found + numbers(again)) == list(range(100))


def test_an_iterator_that_is_dropped_reads_no_more(service: Service) -> None:
    """An iterator that its user drops ends its thread, as a closed one does."""
    before = threading.enumerate()
    iterator = iter(service.read(Dataset.range(10**9)))
    next(iterator)
    threads = [thread for thread in threading.enumerate() if "zmqdata-client" in thread.name]
    [thread] = [thread for thread in threads if thread not in before]
    del iterator
    gc.collect()
    wait_until(lambda: not thread.is_alive(), "the end of its thread")
