"""Facts about coordinated reads on real sockets and in threads.
``simulated/test_coordinated.py`` states what such a job promises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.service.conftest import Service
from zmqdata import Dataset, from_dataset_id, register_dataset

ENDLESS = 10**15


def numbered(count: int = ENDLESS) -> Dataset:
    """Return numbers, each with the thread of the task that makes it. The filter hides
    the cardinality.
    """
    return Dataset.range(count).filter(lambda x: True).map(lambda x: (x, threading.get_ident()))


def consumers(
    service: Service, count: int, dataset: Dataset, **options: Any
) -> list[Iterator[Any]]:
    """Return an iterator for each consumer of a job."""
    named = {"job_name": "job", "num_consumers": count, **options}
    return [
        iter(service.read(dataset, "parallel_epochs", consumer_index=index, **named))
        for index in range(count)
    ]


def whole(rounds_of_one: list[list[int]]) -> bool:
    """Return whether the rounds of a copy are complete, in order, and without a gap."""
    flat = [x for one in rounds_of_one for x in one]
    return flat == list(range(len(flat)))


def test_a_registered_dataset_is_read_in_step(service: Service) -> None:
    """``from_dataset_id`` takes the same arguments as ``distribute``, and returns the
    same cardinality.
    """
    register_dataset(service.target, numbered(), dataset_id="numbers")
    datasets = [
        from_dataset_id("parallel_epochs", service.target, "numbers", None, "job", index, 2)
        for index in range(2)
    ]
    assert [dataset.cardinality() for dataset in datasets] == [-1, -1]
    readers = [iter(dataset) for dataset in datasets]
    rounds: dict[int, list[list[int]]] = {}
    for _ in range(20):
        step = [next(reader) for reader in readers]
        [maker] = {int(maker) for _, maker in step}
        rounds.setdefault(maker, []).append([int(x) for x, _ in step])
    assert all(map(whole, rounds.values()))


def test_consumers_in_threads_end_at_the_same_step(make_service: Callable[..., Service]) -> None:
    """Consumers that read at the same time all reach the end with equally many
    elements.
    """
    readers = consumers(make_service(workers=3), 4, numbered(101), finite="pad")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda reader: [int(x) for x, _ in reader], readers))
    assert len({len(one) for one in found}) == 1
    assert {x for one in found for x in one} == set(range(101))


def test_rounds_of_a_lost_worker_are_made_again(make_service: Callable[..., Service]) -> None:
    """Another worker continues the task of a worker that has left with the very next
    round, for every consumer.
    """
    service = make_service(workers=2, worker_options={"buffer_bytes": 4096})
    readers = consumers(service, 3, Dataset.counter().map(lambda x: (x, 0)))
    taken = [[int(x) for x, _ in map(next, readers)] for _ in range(50)]
    service.workers[0].stop()
    taken += [[int(x) for x, _ in map(next, readers)] for _ in range(2000)]
    # The two copies take turns, and neither misses a round.
    assert whole(taken[::2])
    assert whole(taken[1::2])
