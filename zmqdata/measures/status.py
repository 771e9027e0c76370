"""States of tasks, workers and training loops, their shares of time, and the condition
of each job, as a status has them.

Whatever shows a status formats what is made here, so that all say the same. A rate and
a share are of the last seconds unless their name says *so far*.

Decisions 0046 and 0052.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from zmqdata import messages as m
from zmqdata.measures.situation import Situation, TaskEvidence, operations, share_of, unit_of
from zmqdata.measures.sums import RATIOS, added, ratio_of
from zmqdata.measures.verdict import (
    COMPUTE_BOUND,
    FAILED,
    INPUT_BOUND,
    LINK_BOUND,
    STRAGGLER,
    UNEQUAL,
    UNKNOWN,
    Verdict,
    judge,
)
from zmqdata.peeking import counted

SILENT_SECONDS = 3.0
"""Seconds without a sign of life from which on a worker counts as silent."""
STALLED_SECONDS = 60.0
"""Seconds without progress after which a task counts as stalled."""
LONG_SECONDS = 10.0
"""Seconds at one element from which on a task says so."""

CONNECTED, SILENT, DRAINING, DISCONNECTED = "connected", "silent", "draining", "disconnected"
WORKER_STATES = (CONNECTED, SILENT, DRAINING, DISCONNECTED)
"""All states of a worker."""
RUNNING, STARTING, WAITING, STALLED, UNHOSTED, ENDED, LOST = (
    "running",
    "starting",
    "waiting_for_readers",
    "stalled",
    "unhosted",
    "ended",
    "lost",
)
TASK_STATES = (STARTING, RUNNING, WAITING, STALLED, UNHOSTED, ENDED, LOST)
"""All states of a task. A waiting task has made all that its readers may still take."""
SAVING, NOT_READ, FINISHED = "SAVING", "NOT READ", "FINISHED"
CONDITIONS = (
    FAILED,
    INPUT_BOUND,
    STRAGGLER,
    LINK_BOUND,
    UNKNOWN,
    COMPUTE_BOUND,
    SAVING,
    NOT_READ,
    FINISHED,
)
"""All conditions of a job, the most urgent first."""


def worker_state(connected: bool, draining: bool, silent: float) -> str:
    """Return the state of a worker.

    Args:
        connected: True if the dispatcher can reach it.
        draining: True if it hands its tasks over and ends.
        silent: seconds since the dispatcher last heard from it.

    Example:
        >>> worker_state(True, False, 0.1), worker_state(True, False, 8.0)
        ('connected', 'silent')
    """
    if not connected:
        return DISCONNECTED
    if draining:
        return DRAINING
    return CONNECTED if silent < SILENT_SECONDS else SILENT


def time_fields(measures: Sequence[m.TaskMeasures]) -> dict[str, Any]:
    """Return what tasks do for how long, and how fast, together.

    Args:
        measures: the newest measures of tasks that have not ended.

    Example:
        >>> sums = m.TaskSums(seconds=2.0, making=1.0, elements=10.0)
        >>> found = time_fields([m.TaskMeasures(one, 1, sums, sums) for one in (1, 2)])
        >>> found["elements_per_second"], found["making_share"]
        (10.0, 0.5)
    """
    recents = [one.recent for one in measures]
    sums = added(recents, m.TaskSums())
    busiest = max((one.linked for one in measures), default=(0.0, 0.0))
    return {
        "elements_per_second": _rate(sum(_rate(one.elements, one.seconds) for one in recents)),
        "bytes_per_second": round(sum(_rate(one.nbytes, one.seconds) for one in recents)),
        "making_share": _share(sums.making, sums.seconds),
        "waiting_for_readers_share": _share(sums.for_readers, sums.seconds),
        "waiting_for_splits_share": _share(sums.for_splits, sums.seconds),
        "link_busy_share": round(busiest[0], 4),
    }


def task_operations(measures: m.TaskMeasures | None) -> list[m.OperationStatus]:
    """Return the operations of a task; None: it was not measured."""
    if measures is None:
        return []
    return operations([TaskEvidence("", measures.recent, measures.nodes)])


def job_time(running: Sequence[m.TaskMeasures]) -> dict[str, Any]:
    """Return what the tasks of a job do for how long.

    Args:
        running: the measures of those that have not ended.
    """
    found = time_fields(running)
    made = found.pop("elements_per_second")
    del found["waiting_for_readers_share"]
    return {**found, "made_per_second": made}


def job_fields(loops: Iterable[m.LoopMeasures], batch_rows: int | None) -> dict[str, Any]:
    """Return what the elements of a job are, and at which rate its training loops take
    them.

    Args:
        loops: measures of the loops that read it.
        batch_rows: as ``DatasetUnits.batch_rows``.

    Example:
        >>> from zmqdata.messages import LoopSums
        >>> loop = m.LoopMeasures(recent=LoopSums(seconds=2.0, elements=10.0))
        >>> found = job_fields([loop, loop], 32)
        >>> found["unit"], found["elements_per_second"], found["rows_per_second"]
        ('batches', 10.0, 320.0)
        >>> job_fields([loop], 0)["rows_per_second"] is None
        True
    """
    rate = _rate(sum(_rate(one.recent.elements, one.recent.seconds) for one in loops))
    rows = 1 if batch_rows is None else batch_rows
    return {
        "unit": unit_of(batch_rows),
        "batch_rows": batch_rows or None,
        "elements_per_second": rate,
        "rows_per_second": rate * rows if rows else None,
    }


def verdict_fields(found: tuple[Situation, Verdict] | None) -> dict[str, Any]:
    """Return the verdict on the training loop that decides about its job; None: no loop
    was measured.
    """
    if found is None:
        return {}
    situation, verdict = found
    return {
        "verdict": verdict.word,
        "advice": verdict.advice,
        "workers_needed": verdict.workers_needed,
        "node": verdict.node,
        "node_share": verdict.node_share,
        "wait_share": loop_fields(situation)["wait_share"],
    }


def reader_fields(measures: m.LoopMeasures | None) -> dict[str, Any]:
    """Return what a training loop does for how long, without the wait for its first
    element; None: it was not measured.

    Example:
        >>> reader_fields(None)["wait_share"]
        0.0
    """
    found = measures or m.LoopMeasures()
    recent = found.outer or found.recent
    return {
        **loop_fields(Situation(recent, pace=found.pace)),
        "first_element_seconds": found.first,
        "elements": int(found.total.elements),
        "waited_seconds": round((found.outer_total or found.total).waiting, 3),
        "buffered": found.waiting,
    }


def loop_fields(situation: Situation) -> dict[str, float]:
    """Return how long a loop waits for an element and works on it, lately."""
    loop = situation.loop
    return {
        "wait_share": round(situation.wait_share, 4),
        "wait_ms": round(1000 * _rate(loop.waiting, loop.elements), 3),
        "step_ms": round(1000 * situation.step, 3),
        "elements_per_second": _rate(loop.elements, loop.seconds),
    }


def named_readers(readers: Sequence[m.ReaderStatus]) -> list[m.ReaderStatus]:
    """Return training loops with their names and how much slower each is: the slower
    ones first, then numbered consumers in order, and the others by their wait.

    Example:
        >>> steps = (10.0, 11.0, 30.0)
        >>> loops = [m.ReaderStatus(elements=9, step_ms=step) for step in steps]
        >>> [(one.name, one.slower) for one in named_readers(loops)]
        [('loop 3', 3.0), ('loop 1', 0.0), ('loop 2', 0.0)]
    """
    steps = sorted(one.step_ms for one in readers if one.elements)
    found = [
        structs.replace(one, name=_reader_name(one, at), slower=_slower(one, steps))
        for at, one in enumerate(readers)
    ]
    if all(one.consumer is not None for one in found):
        return sorted(found, key=lambda one: (-one.slower, one.consumer or 0))
    return sorted(found, key=lambda one: (-one.slower, -one.wait_share))


def _reader_name(reader: m.ReaderStatus, at: int) -> str:
    name = f"rank {reader.member}" if reader.member else f"loop {at + 1}"
    if reader.consumer is not None:
        name = f"consumer {reader.consumer}"
    host, _, rest = reader.process.partition(":")
    pid = rest.partition(":")[0]
    return f"{name} ({host}:{pid})" if host and pid.isdecimal() else name


def _slower(reader: m.ReaderStatus, steps: Sequence[float]) -> float:
    """Return how many times as long a loop's step takes as the lower median of the
    others; 0 if that is less than ``UNEQUAL`` times, or unknown.

    Args:
        reader: the loop.
        steps: the steps of all measured loops in rising order, with its own.
    """
    if not reader.elements or len(steps) < 2:
        return 0.0
    middle = (len(steps) - 2) // 2
    usual = steps[middle if middle < bisect_left(steps, reader.step_ms) else middle + 1]
    is_slower = 0 < UNEQUAL * usual <= reader.step_ms
    return round(reader.step_ms / usual, 2) if is_slower else 0.0


def moved_of(moved: Mapping[str, tuple[int, int]]) -> list[m.MovedStatus]:
    """Return what arrived, from bytes and elements by transport and codec.

    Example:
        >>> found = moved_of({"tcp zstd": (9, 1), "shm": (9, 1)})
        >>> [(one.transport, one.codec) for one in found]
        [('shm', 'none'), ('tcp', 'zstd')]
    """
    found = []
    for by, (nbytes, elements) in sorted(moved.items()):
        transport, _, codec = by.partition(" ")
        found.append(
            m.MovedStatus(
                transport=transport, codec=codec or "none", bytes=nbytes, elements=elements
            )
        )
    return found


# --- jobs


def judged(jobs: Iterable[m.JobStatus], tasks: Iterable[m.TaskStatus]) -> list[m.JobStatus]:
    """Return jobs with their names, conditions and troubles, the most urgent first.

    Args:
        jobs: the jobs.
        tasks: the tasks of all jobs.
    """
    listed, by_job = list(jobs), defaultdict(list)
    for task in tasks:
        by_job[task.iteration].append(task)
    known = _incarnations(listed)
    found = []
    for job in listed:
        condition, sentence = condition_of(job)
        found.append(
            structs.replace(
                job,
                name=_job_name(job, sum(one > job.incarnation for one in known[job.job])),
                condition=condition,
                sentence=sentence,
                trouble=_trouble(job, by_job[job.iteration]),
            )
        )
    return sorted(found, key=_urgency)


def _urgency(job: m.JobStatus) -> tuple[int, float, str, int]:
    return CONDITIONS.index(job.condition), -job.wait_share, job.job, job.iteration


def _job_name(job: m.JobStatus, newer: int) -> str:
    is_invented = job.job.startswith(("anonymous_", "loader-"))
    which = [job.origin] if is_invented and job.origin else []
    which += [f"{counted(newer, 'incarnation')} ago"] if newer else []
    which += [f"repetition {job.repetition}"] if job.repetition else []
    return f"{job.job} ({', '.join(which)})" if which else job.job


def condition_of(job: m.JobStatus) -> tuple[str, str]:
    """Return the condition of a job, and the sentences that say it.

    Example:
        >>> job = m.JobStatus(clients=1, verdict="COMPUTE-BOUND", advice="It keeps up.")
        >>> condition_of(job)
        ('COMPUTE-BOUND', 'It keeps up.')
    """
    if job.failure:
        return FAILED, job.failure
    if job.finished:
        reached = "delivered" if job.save is None else f"written to {job.save}"
        return FINISHED, f"All of its {job.unit} were {reached}."
    if job.save is not None:
        return SAVING, f"Workers write its {job.unit} to {job.save}."
    if not job.clients:
        return NOT_READ, "No training loop reads it now."
    if job.verdict:
        return job.verdict, job.advice
    return UNKNOWN, "No training loop has sent measures yet."


def _trouble(job: m.JobStatus, tasks: Sequence[m.TaskStatus]) -> str:
    states = Counter(task.state for task in tasks)
    missing = ", ".join(map(str, job.missing_consumers))
    deaths, redone = sum(task.deaths for task in tasks), job.measures.redone
    parts = [
        f"workers died {counted(deaths, 'time')}" if deaths else "",
        f"{counted(states[STALLED], 'task')} without progress" if states[STALLED] else "",
        f"{counted(states[UNHOSTED], 'task')} without a host" if states[UNHOSTED] else "",
        f"missing consumers: {missing}" if missing else "",
        f"{counted(len(job.poisoned), 'element')} left out as poison" if job.poisoned else "",
        f"{counted(job.measures.left_out, 'element')} skipped" if job.measures.left_out else "",
        f"{counted(redone, job.unit)} made again" if redone else "",
    ]
    return "; ".join(filter(None, parts))


def shared_unit(jobs: Iterable[m.JobStatus]) -> str:
    """Return what the elements of all jobs are: ``"batches"`` only if all are batches.

    Example:
        >>> shared_unit([m.JobStatus(unit="batches"), m.JobStatus()])
        'elements'
    """
    units = {job.unit for job in jobs}
    return units.pop() if len(units) == 1 else "elements"


def worker_order(worker: m.WorkerStatus) -> tuple[bool, float, float]:
    """Return the place of a worker among others: those that are not connected first,
    then the busiest, and of equally busy ones the slowest.
    """
    is_well = worker.state == CONNECTED
    return is_well, -round(worker.making_share, 2), worker.elements_per_second


def task_order(task: m.TaskStatus) -> tuple[bool, bool, float]:
    """Return the place of a task among others: those that are not well first, then the
    busiest, and those that have ended last.
    """
    is_well = task.state in (RUNNING, WAITING, ENDED)
    return is_well, task.state in (ENDED, LOST), -task.making_share


def newest_jobs(jobs: Iterable[m.JobStatus]) -> list[m.JobStatus]:
    """Return the jobs without those that have begun anew since."""
    listed = list(jobs)
    known = _incarnations(listed)
    return [one for one in listed if one.incarnation == max(known[one.job])]


def _incarnations(jobs: Iterable[m.JobStatus]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for job in jobs:
        found.setdefault(job.job, set()).add(job.incarnation)
    return found


def agrees(found: m.ServiceStatus, expected: str, job: str = "") -> bool | None:
    """Return True if every job that is read, or has failed, has a verdict; False if one
    has another; None if nothing is known. Former incarnations do not count.

    Args:
        found: the status.
        expected: the verdict.
        job: name of the only job that counts; empty for all jobs.

    Example:
        >>> known = {"a": "UNKNOWN", "b": "FAILED"}
        >>> jobs = [m.JobStatus(job=one, condition=word) for one, word in known.items()]
        >>> found = m.ServiceStatus(jobs=jobs)
        >>> agrees(found, "COMPUTE-BOUND", "a"), agrees(found, "COMPUTE-BOUND")
        (None, False)
    """
    listed = [one for one in found.jobs if job in ("", one.job)]
    conditions = {one.condition for one in newest_jobs(listed)}
    conditions -= {SAVING, NOT_READ, FINISHED}
    if conditions - {expected, UNKNOWN}:
        return False
    return None if UNKNOWN in conditions or not conditions else True


def _rate(part: float, whole: float = 1.0) -> float:
    return float(f"{part / whole:.4g}") if whole > 0 else 0.0


def _share(part: float, whole: float) -> float:
    return round(share_of(part, whole), 4)


def count_fields(counts: Mapping[str, float]) -> dict[str, float]:
    """Return sums that operations counted, and the ratios of ``RATIOS``.

    Args:
        counts: the sums by name.
    """
    return {
        **counts,
        **{
            name: _rate(ratio_of(counts, name))
            for name, (_, whole) in RATIOS.items()
            if whole in counts
        },
    }


def stats_of(situation: Situation, *, with_texts: bool = True) -> dict[str, Any]:
    """Return the numbers, and the verdict, of a situation, by the names of ``stats()``.

    Args:
        situation: what is known of a loop and of all that feeds it.
        with_texts: True to include the verdict, the advice and the slowest operation.
    """
    verdict = judge(situation)
    found: dict[str, Any] = {
        **loop_fields(situation),
        "first_element_seconds": situation.first or 0.0,
        "elements": situation.total.elements,
        "waited_seconds": situation.total.waiting,
        "workers": float(situation.workers),
        "workers_needed": float(verdict.workers_needed),
        "node_share": verdict.node_share,
    }
    found |= count_fields(situation.counts)
    if with_texts:
        found |= {"verdict": verdict.word, "advice": verdict.advice, "node": verdict.node}
    return {f"data/{name}": value for name, value in found.items()}
