"""Facts about distribute(..., deterministic=True) on real sockets and in threads.
``simulated/test_promised_order.py`` states the promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.service.conftest import Service, wait_until
from zmqdata import Dataset


def stirred(count: int = 400) -> Dataset:
    """Return a pipeline whose order depends on buffers, seeds and threads."""
    return (
        Dataset.range(count)
        .shuffle(50)
        .map(lambda x: np.full(x % 7 + 1, x), num_parallel_calls=2)
        .interleave(lambda row: Dataset.from_tensor_slices(row), cycle_length=3, block_length=2)
        .batch(4)
        .random_map(lambda row, rng: (row, rng.integers(1000)))
    )


def plain(elements: Any) -> list[Any]:
    return [(row.tolist(), int(number)) for row, number in elements]


def test_workers_that_come_and_go_change_nothing(make_service: Callable[..., Service]) -> None:
    """A worker that joins takes over tasks, and a worker that leaves hands its tasks
    over; the order is that of two workers which stay.
    """
    expected = plain(make_service().read(stirred(), deterministic=True, num_tasks=8))
    service = make_service(workers=1, worker_options={"buffer_bytes": 4096})
    options = {"num_tasks": 8, "max_outstanding_requests": 4}
    iterator = iter(service.read(stirred(), deterministic=True, **options))
    taken = [next(iterator) for _ in range(50)]
    late = service.add_worker()
    wait_until(lambda: late.num_tasks() == 4, "the newcomer to host half of the tasks")
    taken += [next(iterator) for _ in range(100)]
    late.stop()
    assert plain([*taken, *iterator]) == expected
