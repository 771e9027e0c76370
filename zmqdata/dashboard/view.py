"""The status of a dispatcher as the page shows it: bounded, and without ids of clients.

Nothing is judged or summed here, but for the rows of tables that are left out.

Decisions 0046 and 0052; protocol 3.10.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from zmqdata.measures.status import FINISHED
from zmqdata.messages import (
    JobStatus,
    OperationStatus,
    ReaderStatus,
    ServiceStatus,
    TaskStatus,
    WorkerStatus,
)
from zmqdata.peeking import counted

MOST_JOBS = 12
MOST_WORKERS_SHOWN = 2_000
MOST_READERS = 64
MOST_POISONED = 20
MOST_CHARACTERS_SHOWN = 400
"""Maximum number of jobs, workers, readers of a job, poisoned elements of a job, and
characters of a text on the page.
"""
STAGE = ("seconds", "threads", "queue")
"""Fields of a stage that may be unknown."""
SECRET = re.compile(r"\b[0-9a-f]{16,}\b")
"""Ids of workers, clients and datasets."""


def view_of(status: ServiceStatus, now: float) -> dict[str, Any]:
    """Return what the page shows of a dispatcher's status, as a JSON-compatible dict.

    Args:
        status: the status.
        now: present time, in seconds since 1970.

    Example:
        >>> view_of(ServiceStatus(dispatcher="tcp://a:1"), 0.0)["workers"]["count"]
        0
    """
    return {
        "time": now,
        "trouble": "",
        "dispatcher": _text(status.dispatcher),
        "insecure": bool(status.config.get("insecure")),
        "jobs": [_job(job, status.tasks) for job in status.jobs[:MOST_JOBS]],
        "more_jobs": max(0, len(status.jobs) - MOST_JOBS),
        "workers": _workers(status.workers),
        "events": [
            {"time": one.time, "level": one.level, "text": without_ids(_text(one.text))}
            for one in status.events
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


def _text(text: object) -> str:
    shown = str(text)
    return shown if len(shown) <= MOST_CHARACTERS_SHOWN else f"{shown[:MOST_CHARACTERS_SHOWN]}..."


# --- a job


def _job(job: JobStatus, tasks: Sequence[TaskStatus]) -> dict[str, Any]:
    return {
        "job": _text(job.name),
        "origin": _text(job.origin),
        "iteration": job.iteration,
        "mode": job.processing_mode,
        "condition": job.condition,
        "sentence": _text(job.sentence),
        "trouble": _text(job.trouble),
        "is_over": job.condition == FINISHED,
        "workers_needed": job.workers_needed,
        "workers": job.workers,
        "clients": job.clients,
        "delivered": job.delivered,
        "unit": _text(job.unit),
        "rate": job.elements_per_second,
        "made_rate": job.made_per_second,
        "rows_rate": job.rows_per_second,
        "wait_share": job.wait_share,
        "making_share": job.making_share,
        "bytes_rate": job.bytes_per_second,
        "poisoned": [_text(text) for text in job.poisoned[:MOST_POISONED]],
        "more_poisoned": max(0, len(job.poisoned) - MOST_POISONED),
        "waits": _spread([one.wait_share for one in job.readers]),
        "stages": _stages(job, [task for task in tasks if task.iteration == job.iteration]),
        "readers": [_reader(one) for one in job.readers[:MOST_READERS]],
        "more_readers": max(0, len(job.readers) - MOST_READERS),
        "links": [
            {
                "transport": _text(one.transport),
                "codec": _text(one.codec),
                "bytes": one.bytes,
                "elements": one.elements,
            }
            for one in job.measures.moved
        ],
    }


def _reader(one: ReaderStatus) -> dict[str, Any]:
    return {
        "name": _text(one.name),
        "wait_share": one.wait_share,
        "wait_ms": one.wait_ms,
        "step_ms": one.step_ms,
        "rate": one.elements_per_second,
        "buffered": one.buffered,
        "elements": one.elements,
        "first": one.first_element_seconds,
        "waited": one.waited_seconds,
        "slower": one.slower,
    }


def _spread(values: Sequence[float]) -> list[float]:
    """Return the least, the median and the largest of values.

    Example:
        >>> _spread([0.3, 0.1, 0.2])
        [0.1, 0.2, 0.3]
    """
    ordered = sorted(values) or [0.0]
    return [ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]]


# --- the pipeline of a job


def _stages(job: JobStatus, tasks: Iterable[TaskStatus]) -> list[dict[str, Any]]:
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


def _operation(one: OperationStatus) -> dict[str, Any]:
    return _stage(
        "node",
        one.node or one.place.removeprefix("+"),
        one.share,
        seconds=one.seconds,
        threads=one.threads,
        depth=one.depth + 1,
    )


def _stage(kind: str, label: str, share: float, **fields: Any) -> dict[str, Any]:
    known = {"kind": kind, "label": _text(label), "share": share, "doing": "", "queued": ""}
    return dict.fromkeys(STAGE) | {"depth": 0} | known | fields


# --- workers


def _workers(workers: Sequence[WorkerStatus]) -> dict[str, Any]:
    """Return the workers as columns: thousands of them have to travel each second. They
    are in the order of their addresses, so that each keeps its place on the page.
    """
    shown = sorted(workers[:MOST_WORKERS_SHOWN], key=lambda one: one.address)

    def percents(name: str) -> list[int]:
        return [round(100 * getattr(one, name)) for one in shown]

    return {
        "count": len(workers),
        "states": dict(sorted(Counter(one.state for one in workers).items())),
        "address": [_text(one.address) for one in shown],
        "state": [one.state for one in shown],
        "making": percents("making_share"),
        "for_readers": percents("waiting_for_readers_share"),
        "for_splits": percents("waiting_for_splits_share"),
        "rate": [one.elements_per_second for one in shown],
        "tasks": [one.tasks for one in shown],
    }
