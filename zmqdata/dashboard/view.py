"""The state of a dispatcher as the page shows it: bounded, without ids of clients, and
in the order in which a reader looks for it.

The page computes nothing but positions and texts. All judgements are those of the
dispatcher's status.

Decision 0046; protocol 3.10.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zmqdata.measures.fields import unequal_loops
from zmqdata.peeking import counted

Row = Mapping[str, Any]

MOST_JOBS = 12
MOST_WORKERS_SHOWN = 2_000
MOST_READERS = 64
MOST_POISONED = 20
MOST_CHARACTERS_SHOWN = 400
"""Maximum number of jobs, workers, readers of a job, poisoned elements of a job, and
characters of a text on the page.
"""
WORST_FIRST = ("INPUT-BOUND", "STRAGGLER", "LINK-BOUND", "COMPUTE-BOUND", "UNKNOWN", "")
SECRET = re.compile(r"\b[0-9a-f]{16,}\b")
"""Ids of workers, clients and datasets."""


def view_of(status: Row, now: float) -> dict[str, Any]:
    """Return what the page shows of a dispatcher's status, as a JSON-compatible dict.

    Args:
        status: the result of ``zmqdata.client.calls.status``.
        now: present time, in seconds since 1970.

    Example:
        >>> empty = {"dispatcher": "tcp://a:1", "workers": [], "jobs": [], "tasks": []}
        >>> view_of(empty, 0.0)["workers"]["count"]
        0
    """
    tasks: dict[int, list[Row]] = defaultdict(list)
    for task in status["tasks"]:
        if not task["removed"]:
            tasks[task["iteration"]].append(task)
    jobs = [_job(job, tasks[job["iteration"]]) for job in status["jobs"]]
    jobs.sort(key=_urgency)
    return {
        "time": now,
        "trouble": "",
        "dispatcher": _text(status["dispatcher"]),
        "insecure": bool(status.get("config", {}).get("insecure")),
        "jobs": jobs[:MOST_JOBS],
        "more_jobs": max(0, len(jobs) - MOST_JOBS),
        "workers": _workers(status["workers"], status["tasks"]),
        "events": [
            {"time": one["time"], "level": one["level"], "text": without_ids(_text(one["text"]))}
            for one in status.get("events", ())
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


def _urgency(job: Row) -> tuple[bool, int, float, str]:
    word = job["verdict"]
    place = WORST_FIRST.index(word) if word in WORST_FIRST else len(WORST_FIRST)
    return job["state"] == "finished", place, -job["wait_share"], job["job"]


# --- a job


def _job(job: Row, tasks: Sequence[Row]) -> dict[str, Any]:
    running = [task for task in tasks if task["total"] is None]
    readers = _readers(job["readers"])
    measures = job.get("measures", {})
    return {
        "job": _text(job["job"]),
        "origin": _text(job.get("origin", "")),
        "iteration": job["iteration"],
        "repetition": job["repetition"],
        "mode": job["processing_mode"],
        "state": _state(job),
        "verdict": job.get("verdict", ""),
        "advice": _text(job.get("advice", "")),
        "workers_needed": job.get("workers_needed", 0),
        "workers": len({task["worker"] for task in running if task["worker"]}),
        "clients": job["clients"],
        "delivered": job["delivered"],
        "unit": _text(job.get("unit", "elements")),
        "rows_rate": job.get("rows_per_second"),
        "redone": measures.get("redone", 0),
        "left_out": measures.get("left_out", 0),
        "rate": sum(one["rate"] for one in readers),
        "wait_share": max((one["wait_share"] for one in readers), default=0.0),
        "making_share": _mean(task.get("making_share", 0.0) for task in running),
        "bytes_rate": sum(task.get("bytes_per_second", 0) for task in running),
        "failure": _text(job["failure"]),
        "poisoned": [_text(text) for text in job["poisoned"][:MOST_POISONED]],
        "more_poisoned": max(0, len(job["poisoned"]) - MOST_POISONED),
        "missing_consumers": list(job["missing_consumers"][:MOST_READERS]),
        "waits": _spread([one["wait_share"] for one in readers]),
        "stages": _stages(job, running or list(tasks), readers),
        "readers": readers[:MOST_READERS],
        "more_readers": max(0, len(readers) - MOST_READERS),
        "links": _links(measures.get("moved", ())),
    }


def _state(job: Row) -> str:
    if job["failure"]:
        return "failed"
    if job["finished"]:
        return "finished"
    if job["save"] is not None:
        return "saving"
    return "reading" if job["clients"] else "without a reader"


def _readers(readers: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the training loops: numbered consumers in order, the others by wait. Of
    too many, the marked ones come first, and then those that wait most.
    """
    rows, slower = [], unequal_loops(readers)
    for index, one in enumerate(readers):
        rows.append(
            {
                "name": _reader_name(one, index),
                "consumer": one.get("consumer"),
                "wait_share": one.get("wait_share", 0.0),
                "wait_ms": one.get("wait_ms", 0.0),
                "step_ms": one.get("step_ms", 0.0),
                "rate": one.get("elements_per_second", 0.0),
                "buffered": one.get("buffered", 0),
                "elements": one.get("elements", 0),
                "first": one.get("first_element_seconds"),
                "waited": one.get("waited_seconds", 0.0),
                "slower": round(slower[index], 2),
            }
        )
    if len(rows) > MOST_READERS:
        return sorted(rows, key=lambda row: (-row["slower"], -row["wait_share"]))
    if all(row["consumer"] is not None for row in rows):
        return sorted(rows, key=lambda row: row["consumer"])
    return sorted(rows, key=lambda row: -row["wait_share"])


def _spread(values: Sequence[float]) -> list[float]:
    """Return the least, the median and the largest of values.

    Example:
        >>> _spread([0.3, 0.1, 0.2])
        [0.1, 0.2, 0.3]
    """
    ordered = sorted(values) or [0.0]
    return [ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]]


def _reader_name(reader: Row, index: int) -> str:
    """Return a name for a training loop that contains no id.

    Example:
        >>> _reader_name({"consumer": 3, "process": "node7:4711:0a1b"}, 0)
        'consumer 3 (node7, process 4711)'
        >>> _reader_name({"consumer": None, "process": ""}, 4)
        'loop 5'
    """
    number = reader.get("consumer")
    name = f"loop {index + 1}" if number is None else f"consumer {number}"
    if number is None and reader.get("member"):
        name = f"rank {_text(reader['member'])}"
    host, _, rest = str(reader.get("process", "")).partition(":")
    pid = rest.partition(":")[0]
    return f"{name} ({_text(host)}, process {pid})" if host and pid.isdecimal() else name


def _links(moved: Iterable[Row]) -> list[dict[str, Any]]:
    rows = []
    for one in moved:
        transport, _, codec = one["by"].partition(" ")
        rows.append(
            {
                "transport": _text(transport),
                "codec": _text(codec) or "none",
                "bytes": one["bytes"],
                "elements": one["elements"],
            }
        )
    return rows


# --- the pipeline of a job


def _stages(job: Row, tasks: Sequence[Row], readers: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the way of an element from the training loop back to its source, as rows
    of a tree.
    """
    waits = max((one["wait_share"] for one in readers), default=0.0)
    measures = job.get("measures", {})
    made = sum(max(0, task["produced"] - task["delivered"]) for task in tasks)
    splits = job["splits"]
    hosts = len({task["worker"] for task in tasks if task["worker"]})
    rows = [
        _stage(
            "loop",
            "training loop" if len(readers) == 1 else f"{len(readers)} training loops",
            waits,
            "waits for elements",
            seconds=measures.get("loop_waiting_seconds"),
            queue=sum(one["buffered"] for one in readers),
            queued="ready to be taken",
        ),
        _stage(
            "link",
            "links from the workers",
            max((task.get("link_busy_share", 0.0) for task in tasks), default=0.0),
            "bytes in flight on the busiest",
            queue=made,
            queued="made and not delivered",
        ),
        _stage(
            "worker",
            counted(hosts, "worker"),
            _mean(task.get("making_share", 0.0) for task in tasks),
            "make elements",
            seconds=measures.get("making_seconds"),
        ),
        *_node_stages(tasks),
    ]
    rows += [
        _stage(
            "source",
            f"splits of source {number + 1}" if len(splits) > 1 else "splits",
            _mean(task.get("waiting_for_splits_share", 0.0) for task in tasks),
            "workers wait for splits",
            seconds=measures.get("waiting_for_splits_seconds"),
            queue=None if one["count"] is None else max(0, one["count"] - one["handed_out"]),
            queued="not handed out",
        )
        for number, one in enumerate(splits)
    ]
    return rows


def _stage(
    kind: str,
    label: str,
    share: float,
    doing: str,
    *,
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
        "share": round(min(1.0, share), 4),
        "doing": doing,
        "seconds": seconds,
        "threads": threads,
        "queue": queue,
        "queued": queued,
    }


def _node_stages(tasks: Sequence[Row]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    measured = [task for task in tasks if task.get("nodes")]
    for task in measured:
        for node in task["nodes"]:
            found[node["place"], node["node"]].append(node)
    return [
        _stage(
            "node",
            label or place.removeprefix("+"),
            sum(node["share"] for node in nodes) / len(measured),
            "",
            seconds=sum(node["seconds"] for node in nodes),
            threads=max(node["threads"] for node in nodes),
            depth=_depth(place),
        )
        for (place, label), nodes in sorted(found.items(), key=_in_order)
    ]


def _depth(place: str) -> int:
    """Return the depth of a node in the tree, from 1 on; 1 for the worker's own work.

    Example:
        >>> [_depth(place) for place in ("", "0", "0.1", "+packing")]
        [1, 2, 3, 1]
    """
    return 1 if not place or place.startswith("+") else 2 + place.count(".")


def _in_order(item: tuple[tuple[str, str], list[Row]]) -> tuple[bool, list[int], str]:
    place, label = item[0]
    if place.startswith("+"):
        return False, [], place
    return True, [int(part) for part in place.split(".") if part.isdecimal()], label


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0


# --- workers


def _workers(workers: Sequence[Row], tasks: Iterable[Row]) -> dict[str, Any]:
    """Return the workers as columns: thousands of them have to travel each second."""
    hosted: dict[str, list[Row]] = defaultdict(list)
    for task in tasks:
        if not task["removed"] and task["total"] is None:
            hosted[task["worker"]].append(task)
    shown = sorted(workers, key=lambda one: one["address"])[:MOST_WORKERS_SHOWN]
    states = [_worker_state(one, hosted[one["worker"]]) for one in workers]
    by_name = dict(zip((one["worker"] for one in workers), states, strict=True))

    def percents(name: str) -> list[int]:
        return [
            round(100 * _mean(task.get(name, 0.0) for task in hosted[one["worker"]]))
            for one in shown
        ]

    return {
        "count": len(workers),
        "states": {state: states.count(state) for state in sorted(set(states))},
        "address": [_text(one["address"]) for one in shown],
        "state": [by_name[one["worker"]] for one in shown],
        "making": percents("making_share"),
        "for_readers": percents("waiting_for_readers_share"),
        "for_splits": percents("waiting_for_splits_share"),
        "rate": [one["elements_per_second"] for one in shown],
        "tasks": [one["tasks"] for one in shown],
    }


def _worker_state(worker: Row, tasks: Iterable[Row]) -> str:
    if not worker["connected"]:
        return "not connected"
    if worker["draining"]:
        return "draining"
    if any(task["stalled"] for task in tasks):
        return "stalled"
    return "at work" if worker["tasks"] else "without a task"
