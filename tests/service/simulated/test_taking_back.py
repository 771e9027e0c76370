"""Facts about splits and elements that are taken back in simulated time: neither a slow
worker nor a slow reader delays the end.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.service import WatchedService
from zmqdata import Dataset
from zmqdata.core.worker import events as e
from zmqdata.core.worker.memory import READINGS, MemoryLimit, MemoryWatch

TOTAL = 1_500
BEFORE = 100
MADE: Counter[str] = Counter()
"""Number of elements that each task has made. Functions of an importable module are
pickled by name.
"""


def make(x: Any) -> Any:
    MADE[threading.current_thread().name] += 1
    return x


@pytest.mark.parametrize("repetitions", [1, 2])
def test_a_worker_that_turns_slow_loses_what_it_has_not_started(
    make_service: Callable[..., WatchedService], repetitions: int
) -> None:
    """A slow worker with hundreds of leased splits makes the splits that it has begun,
    and the other worker makes all the rest, each once.
    """
    service = make_service(pace=0.001)
    MADE.clear()
    elements = iter(service.read(Dataset.range(TOTAL).repeat(repetitions).map(make)))
    got = [int(next(elements)) for _ in range(2 * BEFORE)]
    [name] = [f"zmqdata-task-{task}" for task in service.workers[0].core.tasks]
    before, service.workers[0].pace = MADE[name], 10.0
    got += map(int, elements)
    assert sorted(got) == sorted([*range(TOTAL)] * repetitions)
    assert sum(MADE.values()) == TOTAL * repetitions
    # A source begins the splits of a twentieth of a second, here about 50.
    assert before < MADE[name] < before + 150


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_reader_leaves_most_of_a_small_job_to_another(
    make_service: Callable[..., WatchedService], workers: int
) -> None:
    """A reader whose loop takes a single element, and pauses, gives back most of what
    it has received, however few elements there are.
    """
    for seed in range(5):
        service = make_service(workers, seed=seed)
        pauses, reads = (iter(service.read(Dataset.range(10), job_name="small")) for _ in range(2))
        found = [int(next(pauses)), *map(int, reads)]
        assert len(found) > 5
        assert sorted(found + [int(x) for x in pauses]) == list(range(10))


PIPELINES = {
    "shuffle": Dataset.range(600).shuffle(50, seed=1).map(make),
    "parallel": Dataset.range(600).map(make, num_parallel_calls=4).prefetch(8),
    "batches": Dataset.range(600).map(make).repeat(2).batch(7).unbatch(),
}


@pytest.mark.parametrize("kind", PIPELINES)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_recycled_worker_stops_between_elements(
    make_service: Callable[..., WatchedService], kind: str, workers: int
) -> None:
    """A worker whose memory is full stops wherever its pipeline is. Clients get what it
    had produced, the rest comes from other workers or from its successor, and each
    element comes once.
    """
    service = make_service(workers, pace=0.001)
    elements = iter(service.read(PIPELINES[kind], max_outstanding_requests=4))
    got = [int(next(elements)) for _ in range(BEFORE)]
    for turn in range(2):
        worker = service.workers[turn]
        worker.core.memory = MemoryWatch(MemoryLimit(1000))
        for _ in range(READINGS):
            worker.feed(e.MemoryRead(rss=900, counted=1000))
        made = [task.produced for task in worker.core.tasks.values()]
        service.run_until(lambda worker=worker: worker.core.draining.done, 10.0)  # type: ignore[misc]
        assert [task.produced for task in worker.core.tasks.values()] in (made, [])
        worker.stop()
        service.add_worker()
        got += [int(next(elements)) for _ in range(BEFORE)]
    got += map(int, elements)
    assert sorted(got) == sorted([*range(600)] * (1 + (kind == "batches")))
