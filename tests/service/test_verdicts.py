"""Test the verdict on real processes: why a loop waits for the service."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, DatasetIterator, LocalCluster, distribute
from zmqdata.client.calls import status
from zmqdata.errors import FailedPreconditionError
from zmqdata.testing.cluster import await_condition

PATIENCE = 40.0
ENDLESS = 10**9
NEVER = threading.Event()
SLOW_THREAD = "ZMQDATA_TEST_SLOW_THREAD"


def slow_map(number: Any) -> Any:
    NEVER.wait(0.03)  # the work that the test is about
    return number


def slow_first(number: Any) -> Any:
    if not number:
        NEVER.wait(2.0)  # what a first call opens and loads
    return number


@contextmanager
def reading(dataset: Dataset, step: float = 0.0) -> Iterator[DatasetIterator]:
    """Read a dataset in a thread that takes ``step`` seconds for an element."""
    iterator, over = iter(dataset), threading.Event()

    def loop() -> None:
        for _ in iterator:
            if over.wait(step):
                return

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield iterator
    finally:
        over.set()
        thread.join(PATIENCE)
        iterator.close()


def await_verdict(iterator: DatasetIterator, word: str, *texts: str) -> dict[str, Any]:
    """Wait until the verdict has this word, and its advice these texts."""
    found: dict[str, Any] = {}

    def is_right() -> bool:
        found.update(iterator.stats())
        advice = found["data/advice"]
        return found["data/verdict"] == word and all(text in advice for text in texts)

    try:
        await_condition(is_right, PATIENCE, f"{word} {texts}")
    except TimeoutError as error:
        raise AssertionError(found) from error
    return found


def await_elements(iterator: DatasetIterator, count: int) -> None:
    """Wait until the loop has taken so many elements."""
    await_condition(lambda: iterator.stats()["data/elements"] >= count, PATIENCE)


def test_a_slow_node_is_named_with_the_workers_that_would_do() -> None:
    """The statistics, the status and the profile name the function that keeps two
    workers busy, and how many workers would feed the loop.
    """
    with LocalCluster(2, in_process=True) as cluster:
        train = distribute("distributed_epoch", cluster.target, "train")
        dataset = Dataset.range(ENDLESS).map(slow_map).apply(train)
        with reading(dataset, step=0.0055) as iterator:
            label = "map(slow_map) at test_verdicts.py"
            found = await_verdict(iterator, "INPUT-BOUND", label, "with 2 workers")
            await_condition(
                lambda: iterator.stats()["data/workers_needed"] in (5.0, 6.0),
                PATIENCE,
                "5 or 6 workers",
            )
            assert found["data/wait_share"] > 0.4
            [job] = status(cluster.target)["jobs"]
            await_condition(
                lambda: status(cluster.target)["jobs"][0]["verdict"] == "INPUT-BOUND",
                PATIENCE,
                "the same verdict in the status",
            )
            assert job["job"] == "train"
            assert iterator.stats(scalars=True).keys() == found.keys() - {
                "data/verdict",
                "data/advice",
                "data/node",
            }


def slow_at_times(number: Any) -> Any:
    NEVER.wait(0.25 if number % 20 == 19 else 0.005)  # the work that the test is about
    return number


def test_a_slow_call_at_the_head_is_told() -> None:
    """A map whose finished results wait for one slow call is advised to let them pass,
    and makes elements much faster once the advice is obeyed.
    """
    rates = []
    for deterministic in (None, False):
        with LocalCluster(1, in_process=True) as cluster:
            mapped = Dataset.range(ENDLESS).map(slow_at_times, 4, deterministic).batch(4)
            read = distribute("distributed_epoch", cluster.target)
            with reading(mapped.apply(read), step=0.001) as iterator:
                advice = "deterministic=False in map(slow_at_times) lets them pass"
                await_verdict(iterator, "INPUT-BOUND", *[advice] * (deterministic is None))
                await_elements(iterator, 40)
                found = iterator.stats()
                rates.append(found["data/elements_per_second"])
                assert (advice in found["data/advice"]) is (deterministic is None), found
    assert rates[1] > 1.5 * rates[0], rates


@pytest.mark.parametrize("function", [slow_map, slow_at_times])
def test_an_order_that_is_no_limit_or_is_wanted_is_kept(function: Callable[[Any], Any]) -> None:
    """Calls that take equally long, and an order that the user asks for, get no advice
    on the order.
    """
    wanted = None if function is slow_map else True
    with LocalCluster(1, in_process=True) as cluster:
        mapped = Dataset.range(ENDLESS).map(function, 4, deterministic=wanted)
        dataset = mapped.apply(distribute("distributed_epoch", cluster.target))
        with reading(dataset, step=0.001) as iterator:
            await_verdict(iterator, "INPUT-BOUND", "num_parallel_calls=")
            await_elements(iterator, 100)
            assert "deterministic" not in iterator.stats()["data/advice"]


def test_a_slow_loop_is_not_the_inputs_fault() -> None:
    """A loop that takes longer than its workers is told so."""
    with LocalCluster(1, in_process=True) as cluster:
        dataset = Dataset.range(ENDLESS).apply(distribute("distributed_epoch", cluster.target))
        with reading(dataset, step=0.05) as iterator:
            await_verdict(iterator, "COMPUTE-BOUND", "The input keeps up")


def test_operations_of_this_process_are_told_apart() -> None:
    """If operations after ``distribute`` take the time, the advice names them and is
    to move them.
    """
    with LocalCluster(1, in_process=True) as cluster:
        on_workers = distribute("distributed_epoch", cluster.target)
        dataset = Dataset.range(ENDLESS).apply(on_workers).map(slow_map)
        with reading(dataset, step=0.001) as iterator:
            await_verdict(
                iterator, "INPUT-BOUND", "map(slow_map) at test_verdicts.py", "runs in this process"
            )


@pytest.mark.full
def test_too_few_elements_under_way_are_told() -> None:
    """A loop that waits for workers which wait for it has too few elements under
    way, if the user has limited them.
    """
    with LocalCluster(1, in_process=True) as cluster:
        on_workers = distribute(
            "distributed_epoch", cluster.target, max_outstanding_requests=1, compression=None
        )
        dataset = Dataset.range(ENDLESS).apply(on_workers)
        with reading(dataset) as iterator:
            await_verdict(iterator, "INPUT-BOUND", "Raise max_outstanding_requests")


def slow_in_one_thread(number: Any) -> Any:
    """Take long in the thread that calls first. All workers share the environment."""
    mine = str(threading.get_ident())
    NEVER.wait(0.03 if os.environ.setdefault(SLOW_THREAD, mine) == mine else 0.002)
    return number


def test_a_slow_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that takes ten times as long as the others is named by its address, if
    the loop waits for it: here by the order that a number of tasks promises.
    """
    monkeypatch.setenv(SLOW_THREAD, "")
    monkeypatch.delenv(SLOW_THREAD)
    with LocalCluster(3, in_process=True) as cluster:
        on_workers = distribute(
            "distributed_epoch", cluster.target, deterministic=True, num_tasks=3
        )
        dataset = Dataset.range(ENDLESS).map(slow_in_one_thread).batch(2).apply(on_workers)
        with reading(dataset, step=0.005) as iterator:
            await_verdict(iterator, "STRAGGLER", "Worker tcp://127.0.0.1:")
            await_condition(
                lambda: iterator.stats()["data/workers"] == 3.0,
                PATIENCE,
                "the report of the third worker",
            )


def test_a_straggling_split_is_told() -> None:
    """The last split that keeps one worker busy, while the others have none left, is
    the straggler.
    """
    files = Dataset.from_tensor_slices([400, 2, 2])  # elements behind each of three splits
    dataset = files.flat_map(lambda count: Dataset.range(int(count)).map(slow_map))
    with LocalCluster(3, in_process=True) as cluster:
        on_workers = distribute("distributed_epoch", cluster.target)
        with reading(dataset.apply(on_workers)) as iterator:
            await_verdict(iterator, "STRAGGLER", "1 worker of", "still reads a split")


@pytest.mark.full
def test_a_slow_consumer_is_named_to_the_others() -> None:
    """Consumers of a coordinated job that wait for the slowest among them are told its
    number, and that one is told that the others wait for it.
    """
    with LocalCluster(1, in_process=True) as cluster:
        numbers = Dataset.range(ENDLESS).repeat()
        rank = partial(
            distribute,
            "parallel_epochs",
            cluster.target,
            "ranks",
            num_consumers=2,
            max_outstanding_requests=2,
        )
        datasets = [numbers.apply(rank(consumer_index=number)) for number in range(2)]
        with reading(datasets[0], 0.001) as fast, reading(datasets[1], 0.1) as slow:
            await_verdict(fast, "STRAGGLER", "Consumer 1 takes")
            await_verdict(slow, "STRAGGLER", "This consumer (1) takes")
            await_condition(
                lambda: status(cluster.target)["jobs"][0]["verdict"] == "STRAGGLER",
                PATIENCE,
                "the same verdict in the status",
            )


@pytest.mark.full
def test_threads_that_hold_the_interpreter_are_told() -> None:
    """A loop whose process is kept busy by other threads in Python is not told to add
    workers.
    """
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            sum(range(10_000))

    threads = [threading.Thread(target=spin) for _ in range(3)]
    with LocalCluster(1) as cluster:
        on_workers = distribute("distributed_epoch", cluster.target, max_outstanding_requests=8)
        with reading(Dataset.range(ENDLESS).apply(on_workers)) as iterator:
            for thread in threads:
                thread.start()
            try:
                await_verdict(iterator, "COMPUTE-BOUND", "hold the interpreter lock")
            finally:
                over.set()
                for thread in threads:
                    thread.join(PATIENCE)


@pytest.mark.full
def test_compression_that_does_not_pay_is_told() -> None:
    """A loop whose worker spends its time on compressing what cannot be compressed is
    told to leave that out.
    """
    noise = Dataset.from_tensors(np.random.default_rng(0).normal(size=250_000)).repeat()
    with LocalCluster(1) as cluster:
        on_workers = distribute(
            "parallel_epochs", cluster.target, compression="zstd", data_transfer_protocol="tcp"
        )
        with reading(noise.apply(on_workers)) as iterator:
            await_verdict(iterator, "INPUT-BOUND", "Compressing blocks takes", "AUTO")


@pytest.mark.full
def test_a_cold_start_is_told_apart() -> None:
    """The wait for the first element is no wait of the steps, and the advice tells of
    it.
    """
    with LocalCluster(1, in_process=True) as cluster:
        on_workers = distribute("parallel_epochs", cluster.target)
        with reading(
            Dataset.range(ENDLESS).map(slow_first).apply(on_workers), step=0.02
        ) as iterator:
            await_condition(
                lambda: "The first element took " in iterator.stats()["data/advice"],
                PATIENCE,
                "what is said of the first element",
            )
            found = iterator.stats()
    first = found["data/first_element_seconds"]
    assert first >= 2.0
    assert f"The first element took {first:.1f} s" in found["data/advice"]
    assert found["data/waited_seconds"] < first


@pytest.mark.parametrize("read", [iter, lambda dataset: iter(dataset.prefetch(1))])
def test_a_local_dataset_has_no_verdict(read: Callable[[Dataset], DatasetIterator]) -> None:
    """A dataset that is not distributed is refused, with the remedy."""
    with pytest.raises(FailedPreconditionError, match=r"look at `ds.profile\(\)`"):
        read(Dataset.range(3)).stats()


def test_short_passes_are_counted() -> None:
    """All elements of passes that are over in a moment are in the totals of their job,
    of its loops and of its links.
    """
    with LocalCluster(2, in_process=True) as cluster:
        read = distribute("distributed_epoch", cluster.target, "short")
        dataset = Dataset.range(200).batch(10).apply(read)
        count = sum(len(list(dataset)) for _ in range(5))

        def totals() -> dict[str, Any]:
            [found] = status(cluster.target)["totals"]
            return found

        await_condition(lambda: totals()["delivered"] == count, PATIENCE, "all elements")
        moved = sum(one["elements"] for one in totals()["moved"])
        assert moved == count
        assert totals()["loop_seconds"] > 0
