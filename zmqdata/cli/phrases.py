"""Words and numbers of a status, as the commands ``status`` and ``top`` show them. No
server is queried here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zmqdata.measures.situation import WAITS
from zmqdata.measures.verdict import COMPUTE_BOUND, INPUT_BOUND, LINK_BOUND, STRAGGLER
from zmqdata.peeking import counted
from zmqdata.printable import shown_size

LONG = 10.0
"""Seconds at an element from which on a task says so."""
SILENT = 3.0
"""Seconds without a sign from which on a worker counts as silent."""
STYLES = {
    INPUT_BOUND: "bold red",
    LINK_BOUND: "bold magenta",
    STRAGGLER: "bold yellow",
    COMPUTE_BOUND: "bold green",
}
"""Styles of the verdicts; others are bold."""

Row = Mapping[str, Any]


# --- numbers


def shown_rate(per_second: float) -> str:
    """Return a rate with at least three significant digits, and without an exponent. It
    is never shown as zero unless it is zero.

    >>> [shown_rate(rate) for rate in (0.0, 1e-5, 0.0123, 12.34, 12345.6)]
    ['0', '< 0.001', '0.0123', '12.3', '12,346']
    """
    if 0 < per_second < 0.001:
        return "< 0.001"
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def shown_share(share: float) -> str:
    """Return a share of the time in percent.

    >>> shown_share(0.754), shown_share(0.002), shown_share(0.0)
    ('75 %', '< 1 %', '0 %')
    """
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def shown_bytes_rate(per_second: float) -> str:
    """Return bytes per second; empty for none."""
    return f"{shown_size(per_second)}/s" if per_second else ""


# --- jobs


def job_name(job: Row) -> str:
    """Return the name of a job, with its incarnation if it began anew, and with its
    repetition from the second on. An invented name has beside it what is read.

    >>> job_name({"job": "train", "incarnation": 1, "repetition": 0})
    'train'
    >>> job_name({"job": "train", "incarnation": 2, "repetition": 3})
    'train (incarnation 2, repetition 3)'
    >>> job_name({"job": "anonymous_a9bb", "origin": "train.py:12, ImageFolder"})
    'anonymous_a9bb (train.py:12, ImageFolder)'
    """
    is_invented = str(job["job"]).startswith(("anonymous_", "loader-"))
    which = [job["origin"]] if is_invented and job.get("origin") else []
    which += [f"incarnation {job['incarnation']}"] if is_anew(job) else []
    which += [f"repetition {job['repetition']}"] if job.get("repetition") else []
    return f"{job['job']} ({', '.join(which)})" if which else str(job["job"])


def is_anew(job: Row) -> bool:
    """True if a job began more than once under its name."""
    return bool(job.get("incarnation", 1) > 1)


def unit_of(job: Row) -> str:
    """Return what the elements of a job are: batches or elements."""
    return str(job.get("unit", "elements"))


def shared_unit(jobs: Iterable[Row]) -> str:
    """Return what the elements of all jobs are: ``"batches"`` only if all are batches.

    >>> shared_unit([{"unit": "batches"}]), shared_unit([{"unit": "batches"}, {}])
    ('batches', 'elements')
    """
    units = set(map(unit_of, jobs))
    return units.pop() if len(units) == 1 else "elements"


def shown_splits(job: Row) -> str:
    """Return how many splits of each source were handed out, and what they are.

    >>> rows = {"handed_out": 1000, "count": 20000, "unit": "rows"}
    >>> shown_splits({"splits": [rows, {"handed_out": 5, "count": None}]})
    '1,000 of 20,000 rows, 5 of ? splits'
    """
    return ", ".join(
        f"{one['handed_out']:,} of {'?' if one['count'] is None else format(one['count'], ',')} "
        f"{one.get('unit', 'splits')}"
        for one in job["splits"]
    )


def verdict_of(job: Row) -> tuple[str, str]:
    """Return the verdict on a job, and its advice."""
    if job.get("failure"):
        return "FAILED", str(job["failure"])
    if job.get("finished"):
        return "FINISHED", "All of its elements were delivered, or are about to be."
    if job.get("save"):
        return "SAVING", f"Workers write its elements to {job['save']}."
    if not job.get("clients", 1):
        return "NOT READ", "No training loop reads it now."
    if job.get("verdict"):
        return str(job["verdict"]), str(job["advice"])
    return "UNKNOWN", "No training loop has sent measures yet."


def job_rates(job: Row) -> str:
    """Return at which rate the training loops take elements, and how many there were.

    >>> job = {"unit": "batches", "elements_per_second": 18.2, "rows_per_second": 91.0,
    ...     "delivered": 88, "splits": [{"handed_out": 5, "count": 9, "unit": "files"}]}
    >>> job_rates(job)
    '18.2 batches/s (91 rows/s); 88 batches delivered; splits handed out: 5 of 9 files'
    """
    unit, rows = unit_of(job), job.get("rows_per_second")
    in_rows = f" ({shown_rate(rows)} rows/s)" if rows is not None and unit == "batches" else ""
    parts = [
        f"{shown_rate(job.get('elements_per_second', 0.0))} {unit}/s{in_rows}",
        f"{job['delivered']:,} {unit} delivered",
        f"splits handed out: {shown_splits(job)}" if job["splits"] else "",
        *moved_bytes(job),
    ]
    return "; ".join(filter(None, parts))


def moved_bytes(job: Row) -> list[str]:
    """Return the bytes that arrived, by transport and codec.

    >>> moved = [{"by": "tcp zstd", "bytes": 12_600_000, "elements": 9}]
    >>> moved_bytes({"measures": {"moved": moved}})
    ['12.6 MB by tcp zstd']
    """
    moved = job.get("measures", {}).get("moved", ())
    return [f"{shown_size(one['bytes'])} by {one['by']}" for one in moved if one["bytes"]]


def troubles(job: Row, tasks: Iterable[Row]) -> str:
    """Return what is wrong with a job beside its verdict; empty if nothing is.

    Args:
        job: the job.
        tasks: its tasks.
    """
    found = list(tasks)
    stalled = sum(bool(task["stalled"]) for task in found)
    homeless = sum(not task["worker"] for task in found if not has_ended(task))
    poisoned, missing = len(job.get("poisoned", ())), job.get("missing_consumers", ())
    redone = job.get("measures", {}).get("redone", 0)
    left_out = job.get("measures", {}).get("left_out", 0)
    parts = [
        f"{counted(stalled, 'task')} without progress" if stalled else "",
        f"{counted(homeless, 'task')} between hosts" if homeless else "",
        f"missing consumers: {', '.join(map(str, missing))}" if missing else "",
        f"{counted(poisoned, 'element')} left out as poison" if poisoned else "",
        f"{counted(left_out, 'element')} skipped" if left_out else "",
        f"{counted(redone, 'element')} made again" if redone else "",
    ]
    return "; ".join(filter(None, parts))


# --- workers and tasks


def worker_state(worker: Row) -> str:
    """Return the state of a worker in words."""
    if not worker["connected"]:
        return "no connection"
    if worker["draining"]:
        return "leaves"
    silent = worker["silent_seconds"]
    return "alive" if silent < SILENT else f"silent for {silent:.0f} s"


def has_ended(task: Row) -> bool:
    """True if a task makes nothing any more."""
    return bool(task["removed"] or task["total"] is not None)


def task_state(task: Row) -> str:
    """Return the state of a task in words."""
    if task["removed"]:
        return "lost"
    if task["total"] is not None:
        return "ended"
    if not task["worker"]:
        return "between hosts"
    if task["waits_for_readers"]:
        return "waits for its readers"
    if task["busy_seconds"] >= LONG:
        busy_with = task["busy_with"]
        return f"for {task['busy_seconds']:.0f} s at {busy_with[:1].lower()}{busy_with[1:]}"
    idle = task["seconds_without_progress"]
    return f"no progress for {idle:.0f} s" if task["stalled"] else "running"


# --- training loops


def loop_name(reader: Row) -> str:
    """Return by what a training loop is known: its consumer number, or its rank.

    >>> loop_name({"consumer": 3, "member": "3"}), loop_name({"member": "1"})
    ('consumer 3', 'rank 1')
    """
    if reader.get("consumer") is not None:
        return f"consumer {reader['consumer']}"
    return f"rank {reader['member']}" if reader.get("member") else ""


def is_measured(reader: Row) -> bool:
    """True if a training loop has sent measures."""
    return bool(reader.get("elements"))


def is_waiting(reader: Row) -> bool:
    """True if a training loop waits more than it may without being held up."""
    return bool(reader.get("wait_share", 0.0) >= WAITS)
