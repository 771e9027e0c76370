"""Facts about the simulated service: real pipelines on a clock that tests advance."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from zmqdata import Dataset
from zmqdata.core.worker.events import StateNoted
from zmqdata.errors import UnavailableError
from zmqdata.testing import Faults, StuckPipeline

STORM = Faults(drop=0.05, repeat=0.1, reorder=0.1, break_link=0.001)


ANOTHER = threading.Event()
"""Set by the task that never comes."""


def await_another(x: Any) -> Any:
    ANOTHER.wait(20)
    return x


def numbers(dataset: Any) -> list[int]:
    return [int(element) for element in dataset]


def mixed(count: int = 400) -> Dataset:
    return Dataset.range(count).shuffle(30, seed=1).map(lambda x: x)


def stormy(seed: int) -> list[int]:
    """Return the elements that a reader gets while workers die and join, over a bad
    network.
    """
    with WatchedService(2, seed=seed, pace=0.005, faults=STORM, journalled=True) as service:
        elements = iter(service.read(mixed()))
        service.at(0.5, service.workers[0].kill)
        service.at(0.8, lambda: service.restart_dispatcher(0.5))
        found = numbers(islice(elements, 100))
        service.add_worker()
        return found + numbers(elements)


@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_repeated_by_its_seed(seed: int) -> None:
    """Deaths, restarts and a bad network lose nothing, and the same seed gives the same
    order of elements.
    """
    found = stormy(seed)
    assert sorted(found) == list(range(400))
    assert stormy(seed) == found


def shared(seed: int) -> list[int]:
    """Return the elements that one of three readers gets, of which another one dies."""
    options: dict[str, Any] = {"faults": STORM, "journalled": True, "client_timeout_ms": 5000}
    with WatchedService(2, seed=seed, pace=0.005, **options) as service:
        dies, reads, _ = [iter(service.read(mixed(), job_name="shared")) for _ in range(3)]
        service.at(0.7, dies.kill)
        return numbers(reads)


def test_readers_that_share_are_repeated_by_the_seed() -> None:
    """The seed decides which of several readers gets an element, too."""
    assert [shared(seed) for seed in range(3)] == [shared(seed) for seed in range(3)]


def test_a_killed_reader_says_nothing_more() -> None:
    """A killed reader sends no message, not even when its connections break, and its
    elements reach the other reader of its job.
    """
    with WatchedService(2, pace=0.005, client_timeout_ms=3000) as service:
        dies, reads = [iter(service.read(mixed(), job_name="shared")) for _ in range(2)]
        found = numbers(islice(reads, 50))
        dies.kill()
        senders: list[Any] = []
        send = service.network.send
        service.network.send = lambda *sent: (senders.append(sent[0]), send(*sent))[1]  # type: ignore[method-assign]
        found += numbers(reads)
        assert sorted(found) == list(range(400))
        assert reads._shell.name in senders
        assert dies._shell.name not in senders
        with pytest.raises(UnavailableError, match="The test has killed this reader"):
            next(dies)


def test_states_are_taken_in_simulated_time() -> None:
    """Tasks take their states by simulated time, in which the seed decides them, and
    not by the time that the test takes.
    """
    with WatchedService(1, pace=0.5) as service:
        seen: list[Any] = []
        feed = service.workers[0].feed
        service.workers[0].feed = lambda event: (seen.append(event), feed(event))[1]  # type: ignore[method-assign]
        numbers(service.read(mixed(100)))
        assert any(isinstance(event, StateNoted) for event in seen)


def test_seeds_differ() -> None:
    """Another seed gives another order of the elements of two workers."""
    assert len({tuple(stormy(seed)) for seed in range(3)}) == 3


def test_time_is_simulated() -> None:
    """Elements take the time of their worker, so two workers take half as long."""
    ends = []
    for workers in (1, 2):
        with WatchedService(workers, pace=0.5) as service:
            begun = service.clock.now
            assert len(list(service.read(Dataset.range(100)))) == 100
            ends.append(service.clock.now - begun)
    assert 50 <= ends[0] < 55
    assert 25 <= ends[1] < 30


def test_elements_are_encoded_and_decoded() -> None:
    """The reader has memory of its own, and the types that a socket would bring."""
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(np.full(3, x))
        return {"x": kept[-1], "text": "é"}

    with WatchedService(1) as service:
        for element in service.read(Dataset.range(20).map(keep)):
            assert element["text"] == "é"
            assert not any(np.shares_memory(element["x"], array) for array in kept)
            element["x"] += 1


def test_threads_of_a_pipeline_work() -> None:
    """Prefetch and parallel maps run in threads of their own, before and after
    distribute.
    """
    threads = set()

    def note(x: Any) -> Any:
        threads.add(threading.current_thread().name)
        return x

    with WatchedService(2) as service:
        made = Dataset.range(300).map(note, num_parallel_calls=3).prefetch(5).repeat(2)
        read = service.read(made).map(lambda x: x, num_parallel_calls=2).prefetch(3)
        assert sorted(numbers(read)) == sorted([*range(300)] * 2)
    assert not any(name.startswith("zmqdata-task") for name in threads)


@pytest.mark.filterwarnings("ignore:zip")
@pytest.mark.parametrize("seed", range(3))
def test_two_threads_of_a_pipeline_wait_for_splits(seed: int) -> None:
    """Splits that were requested ahead wake a source whose thread began to wait while
    the clock waited for another source, so the reading ends.
    """
    with WatchedService(3, seed=seed) as service:
        mapped = Dataset.range(300).map(lambda x: x, num_parallel_calls=3)
        pairs = list(service.read(Dataset.zip(mapped, Dataset.range(300).prefetch(4))))
    for side in zip(*pairs, strict=True):
        assert len(set(numbers(side))) == len(pairs) > 200


def test_functions_that_wait_for_each_other_are_an_error() -> None:
    """The error names a function that waits for another task, which the stopped clock
    does not run.
    """
    with WatchedService(1, turn_seconds=0.05) as service:
        with pytest.raises(StuckPipeline) as error:
            next(iter(service.read(Dataset.range(4).map(await_another))))
        ANOTHER.set()
    assert "waits for something that a simulated world does not bring" in str(error.value)


def test_what_is_not_simulated_is_refused() -> None:
    """Workers in the training process and pipelines that read from the service raise an
    error that names the alternative.
    """
    with WatchedService(1) as service:
        with pytest.raises(ValueError, match="use a `LocalCluster`"):
            service.read(Dataset.range(3), target_workers="LOCAL")
        with pytest.raises(ValueError, match="use a `LocalCluster`"):
            service.read(Dataset.range(3), placement="auto")
        with pytest.raises(TypeError, match="for a pipeline of several stages"):
            service.read(service.read(Dataset.range(3)).map(lambda x: x))


def test_a_reader_that_waits_in_vain_is_an_error() -> None:
    """A reader that gets no element for simulated hours raises an error at once,
    because the test is wrong.
    """
    with WatchedService(0) as service, pytest.raises(TimeoutError, match="has got nothing for"):
        next(iter(service.read(Dataset.range(3), dispatcher_timeout=1e9)))


def test_nothing_is_left_of_a_service() -> None:
    """The threads of all tasks end with the service, in any state of its readers."""
    before = set(threading.enumerate())
    with WatchedService(2) as service:
        next(iter(service.read(Dataset.range(10**6).prefetch(3))))
        next(iter(service.read(Dataset.range(10**6), job_name="named")))
    left = [one for one in set(threading.enumerate()) - before if "zmqdata-task" in one.name]
    for one in left:
        one.join(5)
    assert not any(one.is_alive() for one in left)
