"""The status of a dispatcher as the page shows it: bounded, and without ids of clients.

All texts of the page are made here, but for times of day. Nothing is judged or summed
here, but for the rows of tables that are left out.

Decisions 0046 and 0052; protocol 3.10.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from zmqdata import messages as m
from zmqdata.measures.situation import doing_of
from zmqdata.measures.status import FINISHED
from zmqdata.measures.verdict import shown_seconds
from zmqdata.peeking import counted
from zmqdata.printable import shown_rate, shown_share, shown_size

MOST_JOBS = 12
MOST_WORKERS_SHOWN = 2_000
MOST_ROWS = 100
MOST_READERS = 64
MOST_NAMED = 5
MOST_POISONED = 20
MOST_CHARACTERS_SHOWN = 400
"""Maximum number of jobs, workers, workers in the table, readers of a job, slower
readers that a sentence names, poisoned elements of a job, and characters of a text on
the page.
"""
SECRET = re.compile(r"\b[0-9a-f]{16,}\b")
"""Ids of workers, clients and datasets."""


def view_of(status: m.ServiceStatus, now: float) -> dict[str, Any]:
    """Return what the page shows of a dispatcher's status, as a JSON-compatible dict.

    Args:
        status: the status.
        now: present time, in seconds since 1970.

    Example:
        >>> view_of(m.ServiceStatus(dispatcher="tcp://a:1"), 0.0)["dispatcher"]
        'tcp://a:1'
    """
    jobs, more = status.jobs[:MOST_JOBS], len(status.jobs) - MOST_JOBS
    no_job = "No job runs. It appears here once a training loop reads."
    return {
        "time": now,
        "trouble": "",
        "title": " - ".join([*_words(jobs[:1], "{1} - {0}"), "zmqdata"]),
        "announcement": ". ".join(_words(jobs, "{0}: {1}")),
        "dispatcher": _text(status.dispatcher)
        + (", without a key" if status.config.get("insecure") else ""),
        "no_job": no_job if status.dispatcher and not jobs else "",
        "jobs": [_job(job, status.tasks) for job in jobs],
        "more_jobs": f"{counted(more, 'more job')}: zmqdata status lists all." if more > 0 else "",
        **_workers(status.workers),
        "events": [
            {"time": one.time, "level": _text(one.level), "text": without_ids(_text(one.text))}
            for one in reversed(status.events)
        ],
    }


def without_ids(found: Any) -> Any:
    """Return a view in which ids are replaced, for a file that is shown to others.

    Example:
        >>> without_ids({"text": "worker 0123456789abcdef left", "count": 2})
        {'text': 'worker (id) left', 'count': 2}
    """
    if isinstance(found, str):
        return SECRET.sub("(id)", found)
    if isinstance(found, dict):
        return {without_ids(key): without_ids(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [without_ids(value) for value in found]
    return found


def _words(jobs: Iterable[m.JobStatus], form: str) -> list[str]:
    return [form.format(_text(job.name), job.condition) for job in jobs]


def _text(text: object) -> str:
    shown = str(text)
    return shown if len(shown) <= MOST_CHARACTERS_SHOWN else f"{shown[:MOST_CHARACTERS_SHOWN]}..."


def _known(value: float | None, shown: Callable[[Any], str]) -> str:
    return "" if value is None else shown(value)


# --- a job


def _job(job: m.JobStatus, tasks: Sequence[m.TaskStatus]) -> dict[str, Any]:
    poisoned = counted(len(job.poisoned), "element")
    sent, busy = shown_size(job.bytes_per_second), shown_share(job.link_busy_share)
    links = f"Workers send {sent}/s; the busiest link has bytes in flight {busy} of the time."
    moved = job.measures.moved
    return {
        "job": _text(job.name),
        "iteration": job.iteration,
        "condition": job.condition,
        "sentence": _text(job.sentence),
        "trouble": _text(job.trouble),
        "is_over": job.condition == FINISHED,
        "facts": [{"figure": figure, "text": text} for figure, text in _facts(job)],
        "rate": job.elements_per_second,
        "wait_share": job.wait_share,
        "making_share": job.making_share,
        "newest_rate": shown_rate(job.elements_per_second),
        "newest_wait": shown_share(job.wait_share),
        "newest_making": shown_share(job.making_share),
        "poison": f"{poisoned} left out because workers died of them" if job.poisoned else "",
        "poisoned": [{"text": _text(text)} for text in job.poisoned[:MOST_POISONED]],
        "stages": _stages(job, [task for task in tasks if task.iteration == job.iteration]),
        "readers": [_reader(one) for one in job.readers[:MOST_READERS]],
        "slower": _slower([_text(one.name) for one in job.readers if one.slower]),
        "spread": _spread([one.wait_share for one in job.readers]),
        "links": [_link(one) for one in moved],
        "sent": links if moved or job.bytes_per_second else "",
    }


def _facts(job: m.JobStatus) -> list[tuple[str, str]]:
    """Return figures of a job, each with what it counts."""
    lacks = 0 < job.workers < job.workers_needed
    found = [
        (counted(job.delivered, job.unit), "delivered"),
        (shown_rate(job.elements_per_second), f"{job.unit}/s taken"),
        (shown_rate(job.made_per_second), f"{job.unit}/s made by workers"),
        (
            counted(job.workers, "worker"),
            f"of {job.workers_needed} that would feed it" if lacks else "",
        ),
        (counted(job.clients, "training loop"), ""),
        (job.processing_mode, "sharding"),
    ]
    if job.origin:
        found.append((_text(job.origin), "is read"))
    if job.unit == "batches" and job.rows_per_second:
        found.append((shown_rate(job.rows_per_second), "rows/s"))
    return found


def _reader(one: m.ReaderStatus) -> dict[str, Any]:
    return {
        "name": _text(one.name),
        "mark": f"{one.slower:.1f} x the others' step" if one.slower else "",
        "wait_share": one.wait_share,
        "percent": shown_share(one.wait_share),
        "wait": f"{shown_rate(one.wait_ms)} ms",
        "step": f"{shown_rate(one.step_ms)} ms",
        "rate": shown_rate(one.elements_per_second),
        "buffered": f"{one.buffered:,}",
        "first": _known(one.first_element_seconds, shown_seconds),
    }


def _slower(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    listed = "; ".join([*names[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
    waiting = "Slower than the others, which wait for it if they read in step"
    return f"{waiting}: {listed}." if names else ""


def _spread(waits: Sequence[float]) -> str:
    """Return how long several readers wait.

    Example:
        >>> _spread([0.3, 0.1, 0.2])
        'The loops wait 10 % (least), 20 % (median) and 30 % (most) of their time.'
    """
    if len(waits) < 2:
        return ""
    ordered, more = [shown_share(one) for one in sorted(waits)], len(waits) - MOST_READERS
    least, middle, most = ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]
    spread = f"The loops wait {least} (least), {middle} (median) and {most} (most) of their time."
    return f"{spread} {more:,} more are not in the table." if more > 0 else spread


def _link(one: m.MovedStatus) -> dict[str, str]:
    return {
        "transport": _text(one.transport),
        "codec": _text(one.codec),
        "bytes": shown_size(one.bytes),
        "elements": f"{one.elements:,}",
        "each": shown_size(one.bytes / one.elements) if one.elements else "",
    }


# --- the pipeline of a job


def _stages(job: m.JobStatus, tasks: Iterable[m.TaskStatus]) -> list[dict[str, Any]]:
    """Return the way of an element from the training loop back to its source, as rows
    of a tree.
    """
    measures, readers = job.measures, len(job.readers)
    rows = [
        _stage(
            "loop",
            "training loop" if readers == 1 else f"{readers} training loops",
            job.wait_share,
            doing="waits for elements",
            seconds=measures.loop_waiting_seconds,
            queue=sum(one.buffered for one in job.readers),
            queued="ready to be taken",
        ),
        _stage(
            "link",
            "links from the workers",
            job.link_busy_share,
            doing="bytes in flight on the busiest",
            queue=sum(max(0, task.produced - task.delivered) for task in tasks),
            queued="made and not delivered",
        ),
        _stage(
            "worker",
            counted(job.workers, "worker"),
            job.making_share,
            doing="make elements",
            seconds=measures.making_seconds,
        ),
        *map(_operation, job.operations),
    ]
    rows += [
        _stage(
            "source",
            f"splits of source {number + 1}" if len(job.splits) > 1 else "splits",
            job.waiting_for_splits_share,
            doing="workers wait for splits",
            seconds=measures.waiting_for_splits_seconds,
            queue=None if one.count is None else max(0, one.count - one.handed_out),
            queued="not handed out",
        )
        for number, one in enumerate(job.splits)
    ]
    return rows


def _operation(one: m.OperationStatus) -> dict[str, Any]:
    return _stage(
        "node",
        one.node or one.place.removeprefix("+"),
        one.share,
        doing=doing_of(one),
        seconds=one.seconds,
        threads=one.threads,
        depth=one.depth + 1,
    )


def _stage(
    kind: str,
    label: str,
    share: float,
    doing: str = "",
    seconds: float | None = None,
    threads: int | None = None,
    queue: int | None = None,
    queued: str = "",
    depth: int = 0,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "label": _text(label),
        "depth": depth,
        "doing": doing,
        "share": share,
        "percent": shown_share(share),
        "seconds": _known(seconds, shown_rate),
        "threads": _known(threads, str),
        "queue": _known(queue, "{:,}".format),
        "queued": "" if queue is None else queued,
    }


# --- workers


def _workers(workers: Sequence[m.WorkerStatus]) -> dict[str, Any]:
    """Return the workers as columns: thousands of them have to travel each second. They
    are in the order of their addresses, so that each keeps its place on the page.
    """
    shown = sorted(workers[:MOST_WORKERS_SHOWN], key=lambda one: one.address)
    is_cut = len(workers) > MOST_ROWS
    urgent = f"{MOST_ROWS} of {len(workers):,} workers: those in trouble and the busiest"

    def percents(name: str) -> list[int]:
        return [round(100 * getattr(one, name)) for one in shown]

    return {
        "workers": {
            "address": [_text(one.address) for one in shown],
            "state": [one.state for one in shown],
            "making": percents("making_share"),
            "for_readers": percents("waiting_for_readers_share"),
            "for_splits": percents("waiting_for_splits_share"),
            "rate": [shown_rate(one.elements_per_second) for one in shown],
        },
        "workers_summary": _summary(workers),
        "workers_caption": urgent if is_cut else "Workers",
        "workers_rows": [_worker(one) for one in (workers[:MOST_ROWS] if is_cut else shown)],
    }


def _summary(workers: Sequence[m.WorkerStatus]) -> str:
    if not workers:
        return "No worker is registered. Start some with: zmqdata worker --dispatcher ADDRESS"
    states = sorted(Counter(one.state for one in workers).items())
    listed = ", ".join(f"{count:,} {state}" for state, count in states)
    making = shown_share(fmean(one.making_share for one in workers))
    parts = [
        f"{counted(len(workers), 'worker')}: {listed}.",
        f"On average they make elements {making} of the time.",
    ]
    if len(workers) > MOST_WORKERS_SHOWN:
        parts.append(f"{MOST_WORKERS_SHOWN:,} are shown.")
    return " ".join(parts)


def _worker(one: m.WorkerStatus) -> dict[str, str]:
    return {
        "address": _text(f"{one.address} ({one.name})" if one.name else one.address),
        "process": _text(one.process),
        "state": one.state,
        "tasks": f"{one.tasks:,}",
        "making": shown_share(one.making_share),
        "for_readers": shown_share(one.waiting_for_readers_share),
        "for_splits": shown_share(one.waiting_for_splits_share),
        "rate": shown_rate(one.elements_per_second),
    }
