"""Facts about distribute(..., deterministic=True): the order does not depend on which
worker makes an element.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zmqdata
from tests.kit.service import WatchedService
from zmqdata import Dataset, ShardingPolicy
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError


def stirred(count: int = 500) -> Dataset:
    """Return a pipeline whose order depends on buffers, seeds, nesting and threads."""
    return (
        Dataset.range(count)
        .shuffle(50)
        .map(lambda x: np.full(x % 7 + 1, x), num_parallel_calls=2)
        .interleave(lambda row: Dataset.from_tensor_slices(row), cycle_length=3, block_length=2)
        .shuffle(20, seed=5)
        .batch(4)
        .random_map(lambda row, rng: (row, rng.integers(1000)))
        .repeat(2)
    )


def hashed(elements: Iterator[Any]) -> str:
    """Return a hash that tells two streams apart, byte by byte."""
    found = hashlib.sha256()
    for row, number in elements:
        found.update(np.asarray(row, np.int64).tobytes() + b"|" + np.int64(number).tobytes())
    return found.hexdigest()


def ordered(
    service: WatchedService,
    dataset: Dataset,
    mode: ShardingPolicy | str = "distributed_epoch",
    **options: Any,
) -> Dataset:
    return service.read(dataset, mode, deterministic=True, **options)


@pytest.mark.parametrize("num_tasks", [1, 16])
def test_the_stream_is_the_same_with_any_number_of_workers(num_tasks: int) -> None:
    """The stream is the same in every byte on 1, 2 and 7 workers, and another number of
    tasks changes the order.
    """
    hashes = []
    for count in (1, 2, 7):
        with WatchedService(count) as cluster:
            hashes.append(hashed(iter(ordered(cluster, stirred(100), num_tasks=num_tasks))))
    assert len(set(hashes)) == 1
    with WatchedService(2) as cluster:
        assert hashed(iter(ordered(cluster, stirred(100), num_tasks=5))) not in hashes


def test_a_worker_hosts_more_tasks_than_there_are_elements() -> None:
    """A worker that hosts hundreds of tasks finishes them all, and then serves the next
    job as usual.
    """
    with WatchedService(1) as cluster:
        for tasks in (300, 4):
            found = [int(x) for x in ordered(cluster, Dataset.range(9), num_tasks=tasks)]
            assert found == list(range(9))


def test_what_keeps_order_comes_in_the_order_of_its_input() -> None:
    """The dispatcher assigns splits to tasks in turn, and the client takes elements in
    turn, so a map over a range is in order as a whole.
    """
    with WatchedService(3) as cluster:
        found = [int(x) for x in ordered(cluster, Dataset.range(3_001).map(lambda x: x * 2))]
    assert found == list(range(0, 6_002, 2))


def test_workers_that_come_and_go_change_nothing(
    make_service: Callable[..., WatchedService],
) -> None:
    """A worker that joins takes over tasks, and a worker that leaves hands its tasks
    over; the order stays.
    """
    with WatchedService(1) as cluster:
        expected = hashed(iter(ordered(cluster, stirred())))
    service = make_service(workers=1, worker_options={"buffer_bytes": 4096})
    iterator = iter(ordered(service, stirred(), max_outstanding_requests=8))
    taken = [next(iterator) for _ in range(100)]
    late = service.add_worker()
    assert service.run_until(lambda: late.num_tasks() == 8, 30.0)
    taken += [next(iterator) for _ in range(400)]
    late.stop()
    assert hashed(iter([*taken, *iterator])) == expected


TINY = {
    "range": lambda: Dataset.range(200),
    "batches": lambda: Dataset.range(200).map(lambda x: np.full(int(x) * 7, x)).ragged_batch(3),
    "choices": lambda: Dataset.sample_from_datasets(
        [Dataset.range(60), Dataset.range(100, 160), Dataset.range(200, 240)], seed=3
    ),
}
"""Pipelines of which a few elements exceed tiny buffers."""


@pytest.mark.parametrize("kind", TINY)
@pytest.mark.parametrize(("size", "tasks"), [(1, 1), (1, 4), (1024, 3), (2048, 4)])
def test_a_tiny_buffer_holds_up_no_task_whose_turn_it_is(
    make_service: Callable[..., WatchedService], kind: str, size: int, tasks: int
) -> None:
    """A task whose turn it is makes its next element whatever room the buffer of its
    worker has, also after two workers have died.
    """
    dataset = TINY[kind]()
    expected = [str(x) for x in ordered(make_service(1), dataset, num_tasks=tasks)]
    whole = make_service(1, worker_options={"buffer_bytes": size})
    assert [str(x) for x in ordered(whole, dataset, num_tasks=tasks)] == expected
    service = make_service(3, worker_options={"buffer_bytes": size})
    read = iter(ordered(service, dataset, num_tasks=tasks, max_outstanding_requests=4))
    found = [str(x) for x in islice(read, 15)]
    service.workers[0].kill()
    found += [str(x) for x in islice(read, 15)]
    service.workers[1].kill()
    assert [*found, *map(str, read)] == expected


def texts(number: Any) -> dict[str, Any]:
    """Return an element that only a function can put into a batch with others."""
    return {"x": number, "text": "t" * int(number), "row": np.arange(number % 3), "none": None}


def joined(elements: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch of such elements."""
    return {
        "x": [element["x"] for element in elements],
        "text": "+".join(element["text"] for element in elements),
        "row": np.concatenate([element["row"] for element in elements]),
        "none": elements[0]["none"],
    }


@pytest.mark.parametrize("calls", [None, 3])
@pytest.mark.parametrize("drop", [False, True])
def test_batches_by_a_function_hold_what_stacked_batches_hold(
    service: WatchedService, calls: int | None, drop: bool
) -> None:
    """A single task makes the batches of a local reading. Of several tasks, each makes
    batches of its own rows, the same ones as a plain batch.
    """

    def read(dataset: Dataset, **options: Any) -> list[Any]:
        return list(ordered(service, dataset, **options))

    rows = Dataset.range(50)
    made = rows.map(texts).batch(4, drop, calls, collate_fn=joined)
    local = list(made)
    assert len(local) == (12 if drop else 13)
    assert str(read(made, num_tasks=1)) == str(local)
    for tasks in (3, 16):
        expected = [
            joined([*map(texts, batch)]) for batch in read(rows.batch(4, drop), num_tasks=tasks)
        ]
        assert [
            {**batch, "x": batch["x"].tolist(), "row": batch["row"].tolist()}
            for batch in read(made, num_tasks=tasks)
        ] == [{**batch, "row": batch["row"].tolist()} for batch in expected]


def test_static_parts_are_those_of_the_tasks() -> None:
    """Tasks under DATA each have every n-th element, and need no list of workers."""
    with WatchedService(2) as cluster:
        found = [
            int(x) for x in ordered(cluster, Dataset.range(100), ShardingPolicy.DATA, num_tasks=4)
        ]
    assert found == list(range(100))


def test_files_are_dealt_in_turn_in_every_repetition(tmp_path: Path) -> None:
    """Tasks in different repetitions each get the files of their own repetition."""
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text(
            "".join(f"{number}{line}\n" for line in range(number % 3 + 1))
        )
    files = Dataset.list_files(str(tmp_path / "*.txt"), shuffle=True, seed=3).repeat(3)
    hashes = []
    for count in (1, 3):
        with WatchedService(count) as cluster:
            lines = files.interleave(zmqdata.TextLineDataset, cycle_length=1)
            hashes.append([str(x) for x in ordered(cluster, lines, num_tasks=3)])
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 3 * sum(number % 3 + 1 for number in range(7))


def few_files(folder: Path) -> Dataset:
    """Return the lines of four files, read for ever."""
    for number in range(4):
        (folder / f"{number}.txt").write_text(f"{number}0\n{number}1\n")
    names = Dataset.list_files(str(folder / "*.txt"), shuffle=False)
    return names.interleave(zmqdata.TextLineDataset, cycle_length=1).repeat().map(int)


FEW: dict[str, tuple[Callable[[Path], Dataset], list[int]]] = {
    "rows": (lambda _: Dataset.range(3).repeat(), [0, 1, 2] * 10),
    "a row": (lambda _: Dataset.range(1).repeat(), [0] * 30),
    "files": (few_files, [0, 10, 20, 30, 1, 11, 21, 31] * 3 + [0, 10, 20, 30, 1, 11]),
    "prefetched": (lambda _: Dataset.range(3).prefetch(2).repeat().prefetch(2), [0, 1, 2] * 10),
    "cached": (lambda _: Dataset.range(3).cache().repeat(), [0, 1, 2] * 10),
    "filtered": (lambda _: Dataset.range(4).filter(lambda x: x < 3).repeat(), [0, 1, 2] * 10),
    "taken": (lambda _: Dataset.range(3).repeat().take(5), [0, 1, 2] * 5),
    "finite": (lambda _: Dataset.range(3).repeat(5), [0, 1, 2] * 5),
    "nothing": (lambda _: Dataset.range(2).filter(lambda x: x < 0).repeat(), []),
}


@pytest.mark.parametrize("kind", FEW)
def test_tasks_without_elements_end_an_endless_repeat(
    make_service: Callable[..., WatchedService], tmp_path: Path, kind: str
) -> None:
    """An endless repeat of fewer splits than tasks has the elements of each pass in
    turn, on any number of workers, and a state continues where it was taken.
    """
    make, expected = FEW[kind]
    dataset = make(tmp_path)
    for workers in (1, 3):
        service = make_service(workers=workers)
        options: dict[str, Any] = {
            "job_name": f"{kind} on {workers}",
            "max_outstanding_requests": 2,
        }
        iterator = iter(ordered(service, dataset, **options))
        found = [int(x) for x in islice(iterator, 10)]
        again = iter(ordered(service, dataset, **options))
        again.load_state_dict(iterator.state_dict())  # type: ignore[attr-defined]
        assert found + [int(x) for x in islice(again, 20)] == expected


def test_tasks_that_end_do_not_keep_the_names_of_files(
    make_service: Callable[..., WatchedService], tmp_path: Path
) -> None:
    """The dispatcher forgets the files of past passes although tasks without files
    have ended.
    """
    service = make_service()
    iterator = iter(ordered(service, few_files(tmp_path), max_outstanding_requests=2))
    assert len([*islice(iterator, 400)]) == 400
    (iteration,) = service.dispatcher.core.state.iterations.values()
    assert min(iteration.cursors[0].names) > 25


def test_a_task_does_not_choose_without_an_input(service: WatchedService) -> None:
    """A task that would choose among inputs without one of them, which has fewer splits
    than the order has tasks, is an error that names the remedy.
    """
    inputs = [Dataset.range(40).repeat(), Dataset.range(3).repeat()]
    chosen = Dataset.sample_from_datasets(inputs, [0.5, 0.5], seed=1)
    with pytest.raises(InvalidArgumentError, match="`num_tasks` of at most the number of splits"):
        list(islice(ordered(service, chosen), 200))
    found = [int(x) for x in islice(ordered(service, chosen, num_tasks=3), 3_000)]
    assert 0.45 < sum(x < 3 for x in found) / 3_000 - 0.5 * 3 / 40 < 0.55


def test_consumers_of_few_splits_need_few_tasks(service: WatchedService) -> None:
    """Consumers of an order with more tasks than splits get an error that names the
    number of tasks, and read on with fewer tasks.
    """

    def read(tasks: int) -> Any:
        options: dict[str, Any] = {"job_name": f"{tasks} tasks", "num_consumers": 2}
        return [
            iter(ordered(service, Dataset.range(3).repeat(), num_tasks=tasks, consumer_index=index,
                         **options))
            for index in range(2)
        ]  # fmt: skip

    with pytest.raises(FailedPreconditionError, match="`num_tasks` of at most the number"):
        list(islice(zip(*read(4), strict=True), 4))
    steps = [[int(x) for x in step] for step in islice(zip(*read(3), strict=True), 6)]
    assert steps == [[0, 0], [1, 1], [2, 2]] * 2


def test_the_seed_of_the_program_decides_what_is_random() -> None:
    """set_random_seed gives another order, and the same order each time."""
    found = []
    try:
        for seed in (1, 1, 2):
            zmqdata.set_random_seed(seed)
            with WatchedService(1) as cluster:
                found.append([int(x) for x in ordered(cluster, Dataset.range(100).shuffle(100))])
    finally:
        zmqdata.set_random_seed(0)
    assert found[0] == found[1] != found[2]


def test_repetitions_of_a_job_differ_and_can_be_repeated(service: WatchedService) -> None:
    """Iterators of the dataset each read the next repetition, which is shuffled anew,
    and alike on another cluster.
    """
    dataset = ordered(service, Dataset.range(50).shuffle(50))
    first, second = [int(x) for x in dataset], [int(x) for x in dataset]
    assert first != second
    with WatchedService(2) as cluster:
        again = ordered(cluster, Dataset.range(50).shuffle(50))
        assert [[int(x) for x in again], [int(x) for x in again]] == [first, second]


def test_consumers_of_a_job_share_one_order(service: WatchedService) -> None:
    """Each step is a round with num_consumers, and the rounds are the same on any
    number of workers.
    """
    taken = []
    for _ in range(2):
        service.add_worker()
        readers = [
            iter(ordered(service, Dataset.range(64).shuffle(9), job_name=f"job{len(taken)}", num_tasks=4,
                         consumer_index=index, num_consumers=2, finite="drop"))
            for index in range(2)
        ]  # fmt: skip
        taken.append([[int(x) for x in step] for step in zip(*readers, strict=True)])
    assert taken[0] == taken[1]
    assert sorted(x for step in taken[0] for x in step) == list(range(64))


def test_an_error_takes_the_place_of_its_element(service: WatchedService) -> None:
    """An element whose function fails is missing at its place, and all others keep
    their places.
    """
    iterator = iter(
        ordered(service, Dataset.range(40).map(lambda x: 100 // (int(x) - 20)), num_tasks=3)
    )
    taken = [int(next(iterator)) for _ in range(20)]
    with pytest.raises(zmqdata.errors.PipelineError, match="ZeroDivisionError"):
        next(iterator)
    assert taken + [int(x) for x in iterator] == [100 // (x - 20) for x in range(40) if x != 20]


def test_one_client_reads_at_a_time(service: WatchedService) -> None:
    """The dispatcher refuses a second reader of the job while the first lives."""
    first = iter(ordered(service, Dataset.range(10**4), job_name="job"))
    next(first)
    with pytest.raises(FailedPreconditionError, match="has a single reader at a time"):
        next(iter(ordered(service, Dataset.range(10**4), job_name="job")))


def test_a_job_with_an_order_is_not_one_without(service: WatchedService) -> None:
    """Clients that differ in the promised order do not share a job; the refusal names
    both sides.
    """
    first = iter(ordered(service, Dataset.range(10**4), job_name="job", num_tasks=3))
    next(first)
    with pytest.raises(
        InvalidArgumentError, match=r"number of tasks in a promised order: <3>; got <4>"
    ):
        next(iter(ordered(service, Dataset.range(10**4), job_name="job", num_tasks=4)))
    with pytest.raises(
        InvalidArgumentError, match=r"number of tasks in a promised order: <3>; got <None>"
    ):
        next(iter(service.read(Dataset.range(10**4), job_name="job")))
