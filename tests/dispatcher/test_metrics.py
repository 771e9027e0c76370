"""Tests of the metrics of a dispatcher, in simulated time: its counters equal what was
delivered, whatever dies meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

import pytest

from tests.kit.service import WatchedService
from zmqdata import Dataset
from zmqdata.core.worker.events import TaskMeasured
from zmqdata.dispatcher.metrics import DispatcherMetrics, DispatcherSnapshot
from zmqdata.errors import PipelineError
from zmqdata.measures.verdict import VERDICTS
from zmqdata.metrics.declared import DISPATCHER, Labels, Samples
from zmqdata.testing import Faults

STORM = Faults(drop=0.05, repeat=0.1, reorder=0.1, break_link=0.001)
COUNTED = {one.name for one in DISPATCHER if one.name.endswith("_total")}


def snapshot_of(steps: Generator[None, None, DispatcherSnapshot]) -> DispatcherSnapshot:
    """Return a snapshot, the rest of its steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: DispatcherSnapshot = end.value
            return found


class Scraper:
    """Scrapes a simulated service again and again, and checks that no counter ever
    shrinks. The workers measure their tasks before each scrape.

    Args:
        service: the service.
        times: number of scrapes.
        period: simulated seconds between them.
    """

    def __init__(self, service: WatchedService, times: int = 200, period: float = 0.1) -> None:
        self._service = service
        self._core: Any = None
        self._metrics: DispatcherMetrics | None = None
        self.last: dict[str, dict[Labels, float]] = {}
        for number in range(times):
            service.at(period * number, self.scrape)

    def scrape(self) -> Samples:
        """Measure, scrape and compare with the scrape before."""
        for worker in self._service.workers:
            for runner in worker.runners.values() if worker.alive else ():
                measures = runner.meter.report()
                if measures is not None:
                    worker.feed(TaskMeasured(measures))
        dispatcher = self._service.dispatcher
        if dispatcher.core is not self._core or self._metrics is None:
            self._core = dispatcher.core
            service = self._service
            self._metrics = DispatcherMetrics(self._core, Counter(), lambda: service.clock.now)
            self.last = {}
        found = self._metrics.samples(snapshot_of(self._metrics.look()))
        for name in COUNTED & self.last.keys():
            for labels, value in self.last[name].items():
                assert found[name][labels] >= value, f"{name}{labels} shrinks"
        self.last = found
        return found

    def value(self, name: str, *labels: str) -> float:
        """Return a value of a new scrape."""
        return self.scrape()[name][labels]


def numbers(elements: Iterator[Any]) -> list[int]:
    return [int(element) for element in elements]


@pytest.mark.parametrize("seed", range(3))
def test_the_counter_of_elements_is_what_readers_got(seed: int) -> None:
    """While workers die and their tasks move, each element that a reader got counts
    once, and no counter shrinks.
    """
    with WatchedService(3, seed=seed, pace=0.01, faults=STORM) as service:
        scraper = Scraper(service)
        elements = iter(service.read(Dataset.range(600).map(lambda x: x), job_name="train"))
        service.at(0.6, service.workers[0].kill)
        service.at(1.3, service.workers[1].kill)
        found = numbers(islice(elements, 250))
        service.add_worker()
        found += numbers(elements)
        service.run_until(lambda: False, 2.0)
        assert sorted(found) == list(range(600))
        assert scraper.value("zmqdata_elements_total", "train") == len(found)
        assert scraper.value("zmqdata_worker_losses_total") == 2
        # What dead workers made last was never reported, so this is a lower bound.
        assert 0 <= scraper.value("zmqdata_redone_elements_total", "train") < 200


def test_an_exception_of_a_function_fails_no_job() -> None:
    """The training process raises the exception of a function and reads on; the
    dispatcher does not count the job as failed.
    """
    with WatchedService(1) as service:
        scraper = Scraper(service)
        dataset = Dataset.range(4).map(lambda x: {0: 7, 2: 8, 3: 9}[int(x)])
        elements = iter(service.read(dataset, job_name="train"))
        assert numbers(islice(elements, 1)) == [7]
        with pytest.raises(PipelineError):
            next(elements)
        assert numbers(elements) == [8, 9]
        assert scraper.value("zmqdata_failed_jobs") == 0


def test_a_dead_reader_counts_nothing_twice() -> None:
    """Elements that a dead reader had and did not report reach the other reader, and
    count once.
    """
    with WatchedService(2, pace=0.005, client_timeout_ms=3000) as service:
        scraper = Scraper(service)
        dataset = Dataset.range(400).map(lambda x: x)
        dies, reads = [iter(service.read(dataset, job_name="shared")) for _ in range(2)]
        found = numbers(islice(reads, 50))
        had = numbers(islice(dies, 20))
        dies.kill()  # type: ignore[attr-defined]  # of the simulated service
        service.workers[0].kill()
        found += numbers(reads)
        service.run_until(lambda: False, 2.0)
        assert set(found) | set(had) == set(range(400))
        assert scraper.value("zmqdata_elements_total", "shared") == 400


def test_a_restarted_dispatcher_counts_on() -> None:
    """A dispatcher that continues from its journal knows the elements that were
    delivered before.
    """
    with WatchedService(2, pace=0.01, journalled=True) as service:
        scraper = Scraper(service)
        elements = iter(service.read(Dataset.range(300).map(lambda x: x), job_name="train"))
        service.at(0.8, lambda: service.restart_dispatcher(0.5))
        service.at(1.0, service.workers[0].kill)
        found = numbers(elements)
        service.run_until(lambda: False, 2.0)
        assert scraper.value("zmqdata_elements_total", "train") == len(found) == 300


def test_collected_jobs_keep_their_totals() -> None:
    """The elements of a job stay in its counter after the dispatcher has collected it,
    and the next job of the same name adds to them.
    """
    with WatchedService(1, pace=0.001, job_gc_timeout_ms=500) as service:
        scraper = Scraper(service)
        dataset = service.read(Dataset.range(50).map(lambda x: x), job_name="train")
        for _ in range(2):
            numbers(iter(dataset))
            service.run_until(lambda: not service.dispatcher.core.state.iterations, 20.0)
        assert not service.dispatcher.core.state.iterations
        assert scraper.value("zmqdata_elements_total", "train") == 100
        assert scraper.last["zmqdata_readers"] == {}


def test_a_job_shows_what_it_does() -> None:
    """While a job is read, its readers, tasks and verdict are shown, and the seconds of
    its nodes and tasks.
    """
    with WatchedService(2, pace=0.01) as service:
        scraper = Scraper(service)
        elements = iter(service.read(Dataset.range(500).map(lambda x: x), job_name="train"))
        numbers(islice(elements, 400))
        found = scraper.scrape()
        assert found["zmqdata_readers"] == {("train",): 1}
        assert found["zmqdata_workers"]["connected",] == 2
        assert sum(found["zmqdata_tasks"].values()) == 2
        assert [word for _, word in found["zmqdata_verdict"]] == list(VERDICTS)
        assert sum(found["zmqdata_verdict"].values()) == 1
        assert found["zmqdata_desired_workers"] == {(): 2}  # the need is unknown
        assert found["zmqdata_block_bytes_total"]["train",] > 0
        numbers(elements)


def test_the_desired_workers_are_those_of_the_status() -> None:
    """The gauge has the number that the dispatcher decides and its status shows: the
    workers that are there while the need is unknown, and none when nobody reads.
    """
    with WatchedService(3, pace=0.01) as service:
        scraper = Scraper(service)
        elements = iter(service.read(Dataset.range(5000).map(lambda x: x), job_name="train"))
        numbers(islice(elements, 800))
        status = service.status()
        assert scraper.value("zmqdata_desired_workers") == status["desired_workers"] == 3
        assert status["desired_because"].startswith("1 job has no known need")
        elements.kill()  # type: ignore[attr-defined]  # of the simulated service
        service.run_until(lambda: False, 150.0)
        assert scraper.value("zmqdata_desired_workers") == 0


def test_a_job_that_is_collected_between_two_steps_counts_once() -> None:
    """A snapshot is taken in steps. An iteration that is collected meanwhile is never
    counted twice, and the next scrape has it.
    """
    with WatchedService(1, pace=0.001, job_gc_timeout_ms=500) as service:
        metrics = DispatcherMetrics(service.dispatcher.core, Counter())
        numbers(iter(service.read(Dataset.range(50).map(lambda x: x), job_name="train")))
        steps = metrics.look()
        next(steps)
        service.run_until(lambda: not service.dispatcher.core.state.iterations, 20.0)
        assert metrics.samples(snapshot_of(steps)).get("zmqdata_elements_total", {}) == {}
        found = metrics.samples(snapshot_of(metrics.look()))
        assert found["zmqdata_elements_total"] == {("train",): 50}


def test_each_sample_is_declared() -> None:
    """The dispatcher makes no sample that is not declared, with as many labels as
    declared.
    """
    with WatchedService(2, pace=0.01) as service:
        scraper = Scraper(service)
        numbers(iter(service.read(Dataset.range(100).map(lambda x: x), job_name="train")))
        declared = {name: len(one.labels) for one in DISPATCHER for name in one.shown}
        for name, values in scraper.scrape().items():
            assert {len(labels) for labels in values} <= {declared[name]}, name
