"""The metrics of a dispatcher for Prometheus.

The loop's thread takes a snapshot. Another thread makes samples of it, so that a scrape
costs the loop as little as possible.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass

from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.state.measures import JobTotals, judged_loop
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.dispatcher.status import state_of_task, state_of_worker
from zmqdata.measures.situation import Situation
from zmqdata.measures.status import TASK_STATES, WORKER_STATES, moved_of
from zmqdata.measures.verdict import UNKNOWN, VERDICTS
from zmqdata.metrics.declared import (
    EVERY,
    OTHER,
    Labels,
    Samples,
)
from zmqdata.metrics.growth import (
    MOST_CONSUMERS,
    MOST_LINKS,
    MOST_NODES,
    Growth,
    JobLabels,
    seconds_by_doing,
)


@dataclass(frozen=True)
class PassSnapshot:
    """An iteration that is not collected."""

    iteration: int
    """Number of the iteration."""
    job: str
    """Name of its job."""
    readers: int
    """Number of clients that read it."""
    is_wanted: bool
    """True if clients read it, or workers save it."""
    failed: bool
    """True if it has ended with an error."""
    buffered: dict[int | None, int]
    """Elements that have arrived and were not taken, by numbered consumer."""
    situations: Mapping[str, Situation]
    """The evidence for a verdict, by client; empty if no training loop has reported."""
    deaths: int
    """Deaths of which an element of it may be the cause."""
    poisoned: int
    """Elements that are left out because they kill their worker."""


@dataclass(frozen=True)
class DispatcherSnapshot:
    """The state of a dispatcher at a moment, as far as metrics show it."""

    totals: tuple[tuple[str, JobTotals], ...]
    """Totals with the name of their job: of collected iterations, and of each that is
    not collected.
    """
    passes: tuple[PassSnapshot, ...]
    """The iterations that are not collected."""
    workers: dict[str, int]
    """Number of workers by state."""
    tasks: dict[str, int]
    """Number of tasks by state."""
    resident: int
    """Resident memory of all workers, in bytes."""
    lost_workers: int
    """Number of workers that died or were cut off."""
    rejected: int
    """Number of messages that were refused."""
    desired: int
    """Number of worker processes that would feed all jobs."""


class DispatcherMetrics:
    """Turns the state of a dispatcher into samples.

    Args:
        core: the decider.
        rejected: counts of refused messages.
        clock: returns the time of the core in seconds.
    """

    def __init__(
        self,
        core: DispatcherCore,
        rejected: Counter[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core, self._rejected, self._clock = core, rejected, clock
        self._labels = JobLabels()
        self._growth = Growth()

    def look(self) -> Generator[None, None, DispatcherSnapshot]:
        """Take a snapshot, an iteration in each step. Call all steps in the thread of
        the dispatcher's loop, which may do other things between them.

        An iteration that is collected between two steps is missing in the snapshot. It
        is never in it twice, which would spoil the counters.
        """
        core, measures = self._core, self._core.hosting.measures
        totals, passes, tasks = list(measures.ended().items()), [], Counter[str]()
        for number in list(core.state.iterations):
            yield
            iteration = core.state.iterations.get(number)
            if iteration is not None:
                totals.append((iteration.job.name, measures.of_iteration(iteration)))
                passes.append(self._pass(iteration))
                tasks.update(state_of_task(core, task)[0] for task in iteration.live_tasks)
        yield
        now = self._clock()
        workers = Counter(state_of_worker(core, name, now) for name in core.hosting.facts)
        return DispatcherSnapshot(
            totals=tuple(totals),
            passes=tuple(passes),
            workers=_counted(WORKER_STATES, workers),
            tasks=_counted(TASK_STATES, tasks),
            resident=sum(facts.memory.rss for facts in core.hosting.facts.values()),
            lost_workers=measures.lost_workers,
            rejected=sum(self._rejected.values()),
            desired=core.desired.decision(now).workers,
        )

    def _pass(self, iteration: Iteration) -> PassSnapshot:
        measures = self._core.hosting.measures
        buffered: dict[int | None, int] = {}
        for client in iteration.clients:
            loop, opening = measures.loop_of(iteration, client), iteration.openings.get(client)
            consumer = None if opening is None else opening.consumer
            held = 0 if loop is None else loop.waiting
            buffered[consumer] = buffered.get(consumer, 0) + held
        tasks = list(iteration.tasks.values())
        return PassSnapshot(
            iteration=iteration.iteration,
            job=iteration.job.name,
            readers=len(iteration.clients),
            is_wanted=bool(iteration.clients)
            or (iteration.saving is not None and not iteration.finished),
            failed=iteration.failure is not None,
            buffered=buffered,
            situations=measures.situations(iteration) if iteration.clients else {},
            deaths=sum(len(task.deaths) for task in tasks),
            poisoned=sum(len(task.poisoned) for task in tasks),
        )

    # --- in another thread

    def samples(self, seen: DispatcherSnapshot) -> Samples:
        """Return the samples of a snapshot. Call it in one thread at a time.

        Args:
            seen: a snapshot that is newer than the one before.
        """
        known: dict[str, JobTotals] = {}
        for job, part in seen.totals:
            known.setdefault(job, JobTotals()).add(part)
        wanted = {one.job for one in seen.passes if one.is_wanted}
        for label in self._labels.look(known, wanted):
            self._growth.drop(label)
        for job, totals in known.items():
            self._grow(job, self._labels[job], totals)
        for one in seen.passes:
            self._grow_pass(one, self._labels[one.job])
        self._growth.forget(known)
        return self._growth.samples() | self._gauges(seen)

    def _grow(self, job: str, label: str, totals: JobTotals) -> None:
        sums, loop_count = totals.sums, totals.begun
        numbers: dict[str, tuple[Labels, float]] = {
            "zmqdata_elements_total": ((label,), totals.delivered),
            "zmqdata_redone_elements_total": ((label,), totals.redone),
            "zmqdata_skipped_total": ((label,), totals.left_out),
            "zmqdata_block_bytes_total": ((label,), sums.nbytes),
            "zmqdata_client_first_element_seconds_count": ((label,), loop_count),
            "zmqdata_client_first_element_seconds_sum": ((label,), totals.first_seconds),
        }
        for metric, (labels, value) in numbers.items():
            self._growth.take(job, "", metric, labels, value)
        for word, seconds in seconds_by_doing(sums).items():
            self._growth.take(job, word, "zmqdata_task_seconds_total", (label, word), seconds)
        for (place, node), seconds in totals.nodes.items():
            metric = "zmqdata_node_seconds_total"
            tail = self._growth.tail(metric, label, (node,), MOST_NODES)
            self._growth.take(job, (place, node), metric, (label, *tail), seconds)
        for name, amount in totals.counts.items():
            metric = "zmqdata_operation_counts_total"
            tail = self._growth.tail(metric, label, (name,), MOST_NODES)
            self._growth.take(job, name, metric, (label, *tail), amount)
        for one in moved_of(totals.moved):
            metric, link = "zmqdata_bytes_total", (one.transport, one.codec)
            tail = self._growth.tail(metric, label, link, MOST_LINKS)
            self._growth.take(job, link, metric, (label, *tail), one.bytes)
        for consumer, loop in totals.consumers.items():
            working = max(0.0, loop.seconds - loop.waiting)
            for name, total in (("wait", loop.waiting), ("step", working)):
                metric = f"zmqdata_client_{name}_seconds"
                labels = (label, *self._consumer(metric, label, consumer))
                self._growth.take(job, consumer, f"{metric}_sum", labels, total)
                self._growth.take(job, consumer, f"{metric}_count", labels, loop.elements)

    def _grow_pass(self, one: PassSnapshot, label: str) -> None:
        for metric, value in (
            ("zmqdata_task_deaths_total", one.deaths),
            ("zmqdata_poisoned_elements_total", one.poisoned),
        ):
            self._growth.take(one.job, one.iteration, metric, (label,), value)

    def _consumer(self, metric: str, label: str, consumer: int | None) -> Labels:
        if consumer is None:
            return (EVERY,)
        return self._growth.tail(metric, label, (str(consumer),), MOST_CONSUMERS)

    def _gauges(self, seen: DispatcherSnapshot) -> Samples:
        read = [one for one in seen.passes if one.readers]
        readers: dict[Labels, float] = {}
        buffered: dict[Labels, float] = {}
        verdicts: dict[Labels, float] = {}
        needed: dict[Labels, float] = {}
        judged = {one.iteration: judged_loop(one.situations) for one in read}
        found = {number: one[1] for number, one in judged.items() if one is not None}
        for one in read:
            label, verdict = self._labels[one.job], found.get(one.iteration)
            readers[label,] = readers.get((label,), 0) + one.readers
            for consumer, count in one.buffered.items():
                labels = (label, *self._consumer("zmqdata_buffer_elements", label, consumer))
                buffered[labels] = buffered.get(labels, 0) + count
            need = 0 if verdict is None else verdict.workers_needed
            needed[label,] = max(needed.get((label,), 0), need)
            if label != OTHER:
                word = UNKNOWN if verdict is None else verdict.word
                verdicts |= {(label, known): float(known == word) for known in VERDICTS}
        return {
            "zmqdata_workers": {(state,): count for state, count in seen.workers.items()},
            "zmqdata_tasks": {(state,): count for state, count in seen.tasks.items()},
            "zmqdata_workers_resident_bytes": {(): seen.resident},
            "zmqdata_worker_losses_total": {(): seen.lost_workers},
            "zmqdata_rejected_messages_total": {(): seen.rejected},
            "zmqdata_desired_workers": {(): seen.desired},
            "zmqdata_failed_jobs": {(): len({one.job for one in seen.passes if one.failed})},
            "zmqdata_readers": {**readers},
            "zmqdata_buffer_elements": {**buffered},
            "zmqdata_verdict": {**verdicts},
            "zmqdata_needed_workers": {**needed},
        }


def _counted(states: Iterable[str], counts: Counter[str]) -> dict[str, int]:
    return {state: counts[state] for state in states}
