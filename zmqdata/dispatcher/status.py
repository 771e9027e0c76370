"""The status of a dispatcher, from what its decider knows.

Protocol 3.10 and 3.11; decision 0052.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from heapq import merge
from operator import attrgetter
from typing import Any

from msgspec import structs

from zmqdata import messages as m
from zmqdata.config.checks import MODE_WORDS
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.readers.jobs import CollectedIteration
from zmqdata.core.dispatcher.state.audit import audit_of
from zmqdata.core.dispatcher.state.measures import JobTotals, judged_loop
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.poison import what
from zmqdata.measures import status as made
from zmqdata.measures.situation import operations, unit_of
from zmqdata.transport.process import described_process

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
        >>> [event.text for event in events.shown({})]
        ['worker tcp://a:1 joined']
    """

    def __init__(self) -> None:
        self._kept = [deque[m.EventStatus](maxlen=EVENTS_KEPT) for _ in range(2)]

    def add(self, now: float, level: str, text: str, job: str = "", incarnation: int = 0) -> None:
        """Add a line.

        Args:
            now: seconds since 1970.
            level: its level in the log.
            text: the line.
            job: name of the job that it concerns; empty for none.
            incarnation: number of the incarnation of that job.
        """
        if level not in UNSHOWN:
            about = {"level": level, "text": text[:EVENT_CHARACTERS], "job": job}
            event = m.EventStatus(time=round(now, 3), incarnation=incarnation, **about)
            self._kept[level == "info"].append(event)

    def shown(self, newest: Mapping[str, int]) -> list[m.EventStatus]:
        """Return the lines, oldest first. A line of an incarnation that is not the
        newest of its job says so.

        Args:
            newest: number of the newest incarnation of each job name.
        """
        return [
            structs.replace(one, text=f"earlier incarnation: {one.text}")
            if one.incarnation < newest.get(one.job, 0)
            else one
            for one in merge(self._kept[0], self._kept[1], key=attrgetter("time"))
        ]


def status_of(
    core: DispatcherCore,
    now: float,
    target: str,
    config: DispatcherConfig,
    rejected: Counter[str],
    events: EventLog | None = None,
) -> m.ServiceStatus:
    """Return configuration, workers, iterations, jobs and tasks with their rates, and
    the newest events.
    """
    iterations = list(core.state.iterations.values())
    tasks: list[m.TaskStatus] = []
    jobs: list[m.JobStatus] = []
    by_worker: dict[str, list[m.TaskMeasures]] = defaultdict(list)
    for iteration in iterations:
        measured, running = core.hosting.measures.tasks_of(iteration), []
        for task in iteration.tasks.values():
            address, measures = measured.get(task.task, ("", None))
            if measures is not None and not _has_ended(task):
                running.append(measures)
                by_worker[address].append(measures)
            tasks.append(_task(core, task, measures))
        jobs.append(_job(core, iteration, running))
    workers = (_worker(core, name, now, by_worker) for name in core.hosting.facts)
    desired = core.desired.decision(now)
    newest = {name: max(known) for name, known in core.state.jobs.items() if known}
    return m.ServiceStatus(
        dispatcher=target,
        config=asdict(config),
        workers=sorted(workers, key=made.worker_order),
        iterations=[*map(_iteration, iterations), *map(_iteration, core.jobs.collected)],
        jobs=made.judged(jobs, tasks),
        tasks=sorted(tasks, key=made.task_order),
        totals=totals_of(core),
        events=[] if events is None else events.shown(newest),
        rejected=dict(rejected),
        process=described_process(),
        desired_workers=desired.workers,
        desired_because=desired.reason,
    )


def totals_of(core: DispatcherCore) -> list[m.TotalsStatus]:
    """Return what each job has done so far, all its repetitions together."""
    return [
        structs.replace(_totals(found), job=name)
        for name, found in sorted(core.hosting.measures.totals().items())
    ]


def _totals(found: JobTotals) -> m.TotalsStatus:
    return m.TotalsStatus(
        delivered=found.delivered,
        redone=found.redone,
        left_out=found.left_out,
        counts=made.count_fields(found.counts),
        making_seconds=round(found.sums.making, 3),
        waiting_for_readers_seconds=round(found.sums.for_readers, 3),
        waiting_for_splits_seconds=round(found.sums.for_splits, 3),
        block_bytes=int(found.sums.nbytes),
        loop_waiting_seconds=round(found.loop.waiting, 3),
        loop_seconds=round(found.loop.seconds, 3),
        nodes=[
            m.NodeSeconds(place=place, node=label, seconds=round(seconds, 3))
            for (place, label), seconds in sorted(found.nodes.items())
        ],
        moved=made.moved_of(found.moved),
    )


def audits_of(core: DispatcherCore, job: str) -> list[dict[str, Any]]:
    """Return the audits of all repetitions of a job, including collected ones."""
    gone = [one.audit for one in core.jobs.collected if one.job.name == job]
    living = core.state.jobs.get(job, {}).values()
    return gone + [audit_of(one) for known in living for one in known.iterations.values()]


def _worker(
    core: DispatcherCore, name: str, now: float, running: Mapping[str, Sequence[m.TaskMeasures]]
) -> m.WorkerStatus:
    facts, member = core.hosting.facts[name], core.workers.members[name]
    return m.WorkerStatus(
        worker=name,
        address=facts.address,
        process=facts.process,
        name=facts.name,
        state=state_of_worker(core, name, now),
        tags=list(facts.tags),
        python=facts.python,
        tasks=len(facts.tasks),
        silent_seconds=round(now - member.heard, 1),
        **made.time_fields(running.get(facts.address, ())),
        **facts.memory.shown(),
    )


def state_of_worker(core: DispatcherCore, name: str, now: float) -> str:
    """Return the state of a worker, one of ``WORKER_STATES``."""
    facts, member = core.hosting.facts[name], core.workers.members[name]
    return made.worker_state(member.unreachable is None, facts.draining, now - member.heard)


def _iteration(one: Iteration | CollectedIteration) -> m.IterationStatus:
    job = one.job
    return m.IterationStatus(
        iteration=one.iteration,
        repetition=one.repetition,
        job=job.name,
        dataset_id=job.dataset_id,
        processing_mode=_mode(job),
        num_consumers=job.num_consumers,
        num_clients=len(one.clients) if isinstance(one, Iteration) else 0,
        finished=one.finished,
        collected=not isinstance(one, Iteration),
    )


def _mode(job: m.JobParameters) -> str:
    return MODE_WORDS.get(job.processing_mode, job.processing_mode)


def _job(
    core: DispatcherCore, iteration: Iteration, running: Sequence[m.TaskMeasures]
) -> m.JobStatus:
    measures, job = core.hosting.measures, iteration.job
    described = core.state.datasets.get(job.dataset_id)
    units = m.DatasetUnits() if described is None else described.units
    situations = measures.situations(iteration, unit_of(units.batch_rows))
    tasks = iteration.live_tasks
    return m.JobStatus(
        job=job.name,
        origin=units.origin,
        dataset_id=job.dataset_id,
        processing_mode=_mode(job),
        iteration=iteration.iteration,
        incarnation=iteration.incarnation,
        repetition=iteration.repetition,
        clients=len(iteration.clients),
        readers=_readers(core, iteration),
        save=None if job.save is None else job.save.path,
        workers=len({task.worker for task in tasks if task.worker and not _has_ended(task)}),
        tasks=len(tasks),
        delivered=iteration.delivered,
        given_back=sum(iteration.tally.given_back.values()),
        splits=_splits(iteration, units),
        finished=iteration.finished,
        steps=[] if iteration.rounds is None else list(iteration.rounds.steps),
        poisoned=[text for task in iteration.tasks.values() for text in task.poisoned.values()],
        failure="" if iteration.failure is None else iteration.failure.text,
        missing_consumers=list(core.jobs.coordination.missing(iteration)),
        operations=operations(measures.evidence(iteration)),
        measures=_totals(measures.of_iteration(iteration)),
        **made.job_fields(measures.loops_of(iteration), units.batch_rows),
        **made.job_time(running),
        **made.verdict_fields(judged_loop(situations)),
    )


def _readers(core: DispatcherCore, iteration: Iteration) -> list[m.ReaderStatus]:
    numbers = {client: number for number, client in iteration.consumers.items()}
    return made.named_readers(
        [
            m.ReaderStatus(
                client=m.shown_name(client),
                run=opening.run,
                member=opening.member,
                process=opening.process,
                how=opening.how,
                given_back=iteration.tally.given_back.get(client, 0),
                consumer=numbers.get(client),
                **made.reader_fields(core.hosting.measures.loop_of(iteration, client)),
            )
            for client, opening in sorted(iteration.openings.items())
        ]
    )


def _splits(iteration: Iteration, units: m.DatasetUnits) -> list[m.SplitsStatus]:
    return [
        m.SplitsStatus(
            handed_out=cursor.next,
            count=cursor.count(cursor.repetition),
            unit=units.splits[number] if number < len(units.splits) else "splits",
            repetition=cursor.repetition,
        )
        for number, cursor in enumerate(iteration.cursors)
    ]


def _has_ended(task: Task) -> bool:
    return task.removed or task.total is not None


def _task(core: DispatcherCore, task: Task, measures: m.TaskMeasures | None) -> m.TaskStatus:
    facts = core.hosting.facts.get(task.worker)
    report = facts.reports.get(task.task) if facts is not None else None
    waits = report is not None and report.waits
    idle = 0.0 if report is None or waits else report.idle
    state, doing = state_of_task(core, task)
    running = [] if measures is None or _has_ended(task) else [measures]
    return m.TaskStatus(
        task=task.task,
        iteration=task.iteration,
        attempt=task.attempt,
        worker=task.worker,
        address="" if facts is None else facts.address,
        state=state,
        doing=doing,
        produced=max(report.produced if report else 0, task.total or 0, len(task.delivered)),
        total=task.total,
        delivered=len(task.delivered),
        rest=task.rest,
        removed=task.removed,
        skipped={} if report is None else report.skipped,
        seconds_without_progress=round(idle, 1),
        busy_seconds=0.0 if report is None else round(report.busy, 1),
        busy_with="" if report is None or report.work is None else what(report.work),
        deaths=len(task.deaths),
        compressed="" if report is None else report.compressed,
        buffered_bytes=0 if measures is None else round(measures.ahead),
        link_bytes_per_second=round(running[0].linked[1]) if running else 0,
        nodes=made.task_operations(measures),
        **made.time_fields(running),
    )


def state_of_task(core: DispatcherCore, task: Task) -> tuple[str, str]:
    """Return the state of a task, one of ``TASK_STATES``, and the same in words."""
    facts = core.hosting.facts.get(task.worker)
    report = None if facts is None else facts.reports.get(task.task)
    if task.removed:
        return made.LOST, made.LOST
    if task.total is not None:
        return made.ENDED, made.ENDED
    if facts is None:
        return made.UNHOSTED, "between hosts"
    if report is None:
        return made.STARTING, made.STARTING
    if report.waits:
        return made.WAITING, "waits for its readers"
    state = made.STALLED if report.idle >= made.STALLED_SECONDS else made.RUNNING
    if report.busy >= made.LONG_SECONDS and report.work is not None:
        busy_with = what(report.work)
        return state, f"for {report.busy:.0f} s at {busy_with[:1].lower()}{busy_with[1:]}"
    return state, made.RUNNING if state == made.RUNNING else f"no progress for {report.idle:.0f} s"
