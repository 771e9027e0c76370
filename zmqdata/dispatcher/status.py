"""The state of a dispatcher as plain data, for ``zmqdata status`` and for tests.

Protocol 3.10 and 3.11.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from heapq import merge
from operator import itemgetter
from typing import Any, TypeAlias

from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.jobs import CollectedIteration
from zmqdata.core.dispatcher.poison import what
from zmqdata.core.dispatcher.state.audit import audit_of
from zmqdata.core.dispatcher.state.measures import JobTotals
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.measures.fields import (
    job_fields,
    loop_fields,
    task_fields,
    verdict_fields,
    worker_fields,
)
from zmqdata.messages import DatasetUnits, JobParameters, TaskMeasures, shown_name
from zmqdata.transport.process import described_process

MeasuredTasks: TypeAlias = Mapping[int, tuple[str, TaskMeasures]]
"""Address of the worker, and the measures, by task."""

STALLED = 60.0
"""Seconds without progress after which a task counts as stalled."""

EVENTS_KEPT = 200
"""Maximum number of events that are remembered: of warnings and errors, and of the
others.
"""
EVENT_CHARACTERS = 500
"""Maximum number of characters of an event."""
UNSHOWN = ("debug",)
"""Levels of lines of the log that are no events."""


class EventLog:
    """The newest lines that the dispatcher wrote to its log about the cluster. Jobs
    that begin and end do not displace warnings and errors.

    Example:
        >>> events = EventLog()
        >>> events.add(12.0, "info", "worker tcp://a:1 joined")
        >>> list(events.shown())
        [{'time': 12.0, 'level': 'info', 'text': 'worker tcp://a:1 joined'}]
    """

    def __init__(self) -> None:
        self._kept = [deque[tuple[float, str, str]](maxlen=EVENTS_KEPT) for _ in range(2)]

    def add(self, now: float, level: str, text: str) -> None:
        """Add a line.

        Args:
            now: seconds since 1970.
            level: its level in the log.
            text: the line.
        """
        if level not in UNSHOWN:
            self._kept[level == "info"].append((now, level, text[:EVENT_CHARACTERS]))

    def shown(self) -> Iterable[dict[str, Any]]:
        """Return the lines, oldest first."""
        return [
            {"time": round(now, 3), "level": level, "text": text}
            for now, level, text in merge(self._kept[0], self._kept[1], key=itemgetter(0))
        ]


def status_of(
    core: DispatcherCore,
    now: float,
    target: str,
    config: DispatcherConfig,
    rejected: Counter[str],
    events: EventLog | None = None,
) -> dict[str, Any]:
    """Return configuration, workers, iterations, jobs and tasks with their rates, and
    the newest events, as a JSON-compatible dict.
    """
    iterations = list(core.state.iterations.values())
    measured = {one.iteration: core.hosting.measures.tasks_of(one) for one in iterations}
    running = {task: found for those in measured.values() for task, found in those.items()}
    return {
        "dispatcher": target,
        "config": asdict(config),
        "workers": [_worker(core, name, now, running) for name in core.hosting.facts],
        "iterations": [_living(iteration) for iteration in iterations]
        + [_gone(one) for one in core.jobs.collected],
        "jobs": [_job(core, iteration) for iteration in iterations],
        "tasks": [
            _task(core, task, measured[iteration.iteration])
            for iteration in iterations
            for task in iteration.tasks.values()
        ],
        "totals": totals_of(core),
        "events": [] if events is None else list(events.shown()),
        "rejected": dict(rejected),
        "process": described_process(),
    }


def totals_of(core: DispatcherCore) -> list[dict[str, Any]]:
    """Return what each job has done so far, all its repetitions together."""
    return [
        {"job": name, **_totals(found)}
        for name, found in sorted(core.hosting.measures.totals().items())
    ]


def _totals(found: JobTotals) -> dict[str, Any]:
    return {
        "delivered": found.delivered,
        "redone": found.redone,
        "left_out": found.left_out,
        "making_seconds": round(found.sums.making, 3),
        "waiting_for_readers_seconds": round(found.sums.for_readers, 3),
        "waiting_for_splits_seconds": round(found.sums.for_splits, 3),
        "block_bytes": int(found.sums.nbytes),
        "loop_waiting_seconds": round(found.loop.waiting, 3),
        "loop_seconds": round(found.loop.seconds, 3),
        "nodes": [
            {"place": place, "node": label, "seconds": round(seconds, 3)}
            for (place, label), seconds in sorted(found.nodes.items())
        ],
        "moved": [
            {"by": by, "bytes": nbytes, "elements": elements}
            for by, (nbytes, elements) in sorted(found.moved.items())
        ],
    }


def audits_of(core: DispatcherCore, job: str) -> list[dict[str, Any]]:
    """Return the audits of all repetitions of a job, including collected ones."""
    gone = [one.audit for one in core.jobs.collected if one.job.name == job]
    living = core.state.jobs.get(job, {}).values()
    return gone + [audit_of(one) for known in living for one in known.iterations.values()]


def _worker(core: DispatcherCore, name: str, now: float, measured: MeasuredTasks) -> dict[str, Any]:
    facts, member = core.hosting.facts[name], core.workers.members[name]
    tasks = [
        measures
        for task in facts.tasks
        for address, measures in [measured.get(task, ("", None))]
        if address == facts.address and measures is not None
    ]
    return {
        "worker": name,
        "address": facts.address,
        "tags": list(facts.tags),
        "python": facts.python,
        "files": facts.files,
        "tasks": len(facts.tasks),
        **worker_fields(tasks),
        "silent_seconds": round(now - member.heard, 1),
        "connected": member.unreachable is None,
        "draining": facts.draining,
        **facts.memory.shown(),
    }


def _living(iteration: Iteration) -> dict[str, Any]:
    clients, finished = len(iteration.clients), iteration.finished
    return _iteration(
        iteration.iteration, iteration.repetition, iteration.job, clients, finished, False
    )


def _gone(one: CollectedIteration) -> dict[str, Any]:
    return _iteration(one.iteration, one.repetition, one.job, 0, one.finished, True)


def _iteration(
    number: int, repetition: int, job: JobParameters, clients: int, finished: bool, collected: bool
) -> dict[str, Any]:
    return {
        "iteration": number,
        "repetition": repetition,
        "job": job.name,
        "dataset_id": job.dataset_id,
        "processing_mode": job.processing_mode,
        "num_consumers": job.num_consumers,
        "num_clients": clients,
        "finished": finished,
        "collected": collected,
    }


def _job(core: DispatcherCore, iteration: Iteration) -> dict[str, Any]:
    tasks = iteration.live_tasks
    numbers = {client: number for number, client in iteration.consumers.items()}
    described = core.state.datasets.get(iteration.job.dataset_id)
    units = DatasetUnits() if described is None else described.units
    splits = [
        {
            "handed_out": cursor.next,
            "count": cursor.count(cursor.repetition),
            "unit": units.splits[number] if number < len(units.splits) else "splits",
            "repetition": cursor.repetition,
        }
        for number, cursor in enumerate(iteration.cursors)
    ]
    return {
        "job": iteration.job.name,
        "origin": units.origin,
        "dataset_id": iteration.job.dataset_id,
        "processing_mode": iteration.job.processing_mode,
        "iteration": iteration.iteration,
        "incarnation": iteration.incarnation,
        "repetition": iteration.repetition,
        "clients": len(iteration.clients),
        "readers": [
            {
                "client": shown_name(client),
                "run": opening.run,
                "member": opening.member,
                "process": opening.process,
                "how": opening.how,
                "given_back": iteration.tally.given_back.get(client, 0),
                "consumer": numbers.get(client),
                **loop_fields(core.hosting.measures.loop_of(iteration, client)),
            }
            for client, opening in sorted(iteration.openings.items())
        ],
        "save": None if iteration.job.save is None else iteration.job.save.path,
        "tasks": len(tasks),
        "delivered": iteration.delivered,
        "given_back": sum(iteration.tally.given_back.values()),
        "splits": splits,
        "finished": iteration.finished,
        "steps": [] if iteration.rounds is None else list(iteration.rounds.steps),
        "poisoned": [text for task in iteration.tasks.values() for text in task.poisoned.values()],
        "failure": "" if iteration.failure is None else iteration.failure.text,
        "missing_consumers": list(core.jobs.coordination.missing(iteration)),
        **verdict_fields(core.hosting.measures.verdict(iteration)),
        **job_fields(core.hosting.measures.loops_of(iteration), units.batch_rows),
        "measures": _totals(core.hosting.measures.of_iteration(iteration)),
    }


def _task(core: DispatcherCore, task: Task, measured: MeasuredTasks) -> dict[str, Any]:
    facts = core.hosting.facts.get(task.worker)
    report = facts.reports.get(task.task) if facts is not None else None
    waits = report is not None and report.waits
    idle = 0.0 if report is None or waits else report.idle
    _, measures = measured.get(task.task, ("", None))
    return {
        "task": task.task,
        "iteration": task.iteration,
        "attempt": task.attempt,
        "worker": task.worker,
        "address": "" if facts is None else facts.address,
        "produced": 0 if report is None else report.produced,
        "total": task.total,
        "delivered": len(task.delivered),
        "rest": task.rest,
        "removed": task.removed,
        "skipped": {} if report is None else report.skipped,
        "seconds_without_progress": round(idle, 1),
        "stalled": idle >= STALLED,
        "waits_for_readers": waits,
        "busy_seconds": 0.0 if report is None else round(report.busy, 1),
        "busy_with": "" if report is None or report.crumb is None else what(report.crumb),
        "deaths": len(task.deaths),
        "compressed": "" if report is None else report.compressed,
        **task_fields(measures, has_ended=task.removed or task.total is not None),
    }
