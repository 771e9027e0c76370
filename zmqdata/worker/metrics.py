"""The metrics of a worker process for Prometheus."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator

from zmqdata.core.worker.decider import WorkerCore
from zmqdata.messages import TaskMeasures
from zmqdata.metrics.declared import HOSTED_STATES, Samples
from zmqdata.metrics.growth import MOST_NODES, Growth, seconds_by_doing
from zmqdata.worker.status import state_of_hosted

MOST_LABELS = 4 * MOST_NODES
"""Maximum number of nodes of all jobs with a label of their own."""


class WorkerMetrics:
    """Turns the state of a worker into samples. Thread-safe.

    Args:
        core: the decider.
        rejected: counts of refused messages.
    """

    def __init__(self, core: WorkerCore, rejected: Counter[str]) -> None:
        self._core, self._rejected = core, rejected
        self._growth = Growth()
        self._lock = threading.Lock()

    def end(self, measures: TaskMeasures | None) -> None:
        """Add the last measures of an attempt that ends. Call it in the loop's
        thread.
        """
        if measures is not None:
            with self._lock:
                self._take(measures)

    def waits_for(self) -> str:
        """Return what the worker waits for before it is ready; "" if it is ready. A
        worker that is cut off from its dispatcher serves its readers.
        """
        if not self._core.registered:
            return "The dispatcher does not know this worker yet."
        if self._core.heartbeats.is_cut_off:
            return "The dispatcher does not answer. This worker serves its readers meanwhile."
        return ""

    def look(self) -> Generator[None, None, Samples]:
        """Return the samples of this moment, in a single step in the loop's thread."""
        yield
        tasks = list(self._core.tasks.values())
        states = Counter(map(state_of_hosted, tasks))
        with self._lock:
            for task in tasks:
                if task.measures is not None:
                    self._take(task.measures)
            self._growth.forget({_owner(*task.key) for task in tasks})
            grown = self._growth.samples()
        memory = self._core.memory.use
        profile = self._core.profile
        return grown | {
            "zmqdata_worker_info": {(profile.name, profile.address): 1},
            "zmqdata_worker_registered": {(): float(not self.waits_for())},
            "zmqdata_worker_draining": {(): float(self._core.draining.begun)},
            "zmqdata_worker_tasks": {(state,): states[state] for state in HOSTED_STATES},
            "zmqdata_worker_clients": {(): len(self._core.links.by_client)},
            "zmqdata_worker_resident_bytes": {(): memory.rss},
            "zmqdata_worker_private_bytes": {(): memory.counted},
            "zmqdata_worker_memory_limit_bytes": {(): memory.limit},
            "zmqdata_worker_recycles_total": {(): memory.recycles},
            "zmqdata_rejected_messages_total": {(): sum(self._rejected.values())},
        }

    def samples(self, seen: Samples) -> Samples:
        """Return the samples of a snapshot, which are the snapshot."""
        return seen

    def _take(self, measures: TaskMeasures) -> None:
        owner, sums = _owner(measures.task, measures.attempt), measures.total
        take = self._growth.take
        take(owner, "", "zmqdata_worker_elements_total", (), sums.elements)
        take(owner, "", "zmqdata_worker_block_bytes_total", (), sums.nbytes)
        for word, seconds in seconds_by_doing(sums).items():
            take(owner, word, "zmqdata_worker_task_seconds_total", (word,), seconds)
        metric = "zmqdata_worker_node_seconds_total"
        for node in measures.nodes:
            labels = self._growth.tail(metric, "", (node.label,), MOST_LABELS)
            take(owner, (node.place, node.label), metric, labels, node.total)


def _owner(task: int, attempt: int) -> str:
    return f"{task}/{attempt}"
