"""Measures as plain data, for statuses: the same names in the status of a worker and of
a dispatcher.

A share is of the last seconds, from 0 to 1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zmqdata.measures.situation import Situation
from zmqdata.measures.sums import added
from zmqdata.measures.verdict import UNEQUAL, Verdict
from zmqdata.messages import LoopMeasures, TaskMeasures, TaskSums


def task_fields(measures: TaskMeasures | None, has_ended: bool = False) -> dict[str, Any]:
    """Return what an attempt of a task does for how long.

    Args:
        measures: its newest measures; None if it was not measured.
        has_ended: True if it makes nothing any more, so that its last seconds are over.

    Example:
        >>> sums = TaskSums(seconds=2.0, making=1.0, elements=10.0)
        >>> task_fields(TaskMeasures(1, 1, sums, sums))["elements_per_second"]
        5.0
    """
    recent = TaskSums() if measures is None or has_ended else measures.recent
    linked = (0.0, 0.0) if measures is None or has_ended else measures.linked
    nodes = () if measures is None else measures.nodes
    return {
        "making_share": _quotient(recent.making, recent.seconds),
        "waiting_for_readers_share": _quotient(recent.for_readers, recent.seconds),
        "waiting_for_splits_share": _quotient(recent.for_splits, recent.seconds),
        "elements_per_second": _quotient(recent.elements, recent.seconds),
        "bytes_per_second": round(_quotient(recent.nbytes, recent.seconds)),
        "buffered_bytes": 0 if measures is None else round(measures.ahead),
        "link_busy_share": round(linked[0], 4),
        "link_bytes_per_second": round(linked[1]),
        "nodes": [
            {
                "place": node.place,
                "node": node.label,
                "seconds": round(node.total, 3),
                "share": _quotient(node.recent / node.threads, recent.making),
                "threads": node.threads,
                "queue": list(node.queue) if node.queue[1] else None,
            }
            for node in nodes
        ],
    }


def worker_fields(tasks: Iterable[TaskMeasures]) -> dict[str, Any]:
    """Return what a worker does for how long, over all of its tasks.

    Example:
        >>> sums = TaskSums(seconds=2.0, making=1.0, elements=10.0)
        >>> found = worker_fields(TaskMeasures(task, 1, sums, sums) for task in (1, 2))
        >>> found["elements_per_second"], found["making_share"]
        (10.0, 0.5)
    """
    found = list(tasks)
    recent = added((one.recent for one in found), TaskSums())
    rates = [(one.recent.elements, one.recent.nbytes, one.recent.seconds) for one in found]
    busiest = max((one.linked for one in found), default=(0.0, 0.0))
    return {
        "elements_per_second": _rounded(sum(_quotient(one, whole) for one, _, whole in rates)),
        "bytes_per_second": round(sum(_quotient(one, whole) for _, one, whole in rates)),
        "making_share": _quotient(recent.making, recent.seconds),
        "waiting_for_readers_share": _quotient(recent.for_readers, recent.seconds),
        "waiting_for_splits_share": _quotient(recent.for_splits, recent.seconds),
        "link_busy_share": round(busiest[0], 4),
    }


def job_fields(loops: Iterable[LoopMeasures], batch_rows: int | None) -> dict[str, Any]:
    """Return what the elements of a job are, and at which rate its training loops take
    them.

    Args:
        loops: measures of the loops.
        batch_rows: as ``DatasetUnits.batch_rows``.

    Example:
        >>> from zmqdata.messages import LoopSums
        >>> loop = LoopMeasures(recent=LoopSums(seconds=2.0, elements=10.0))
        >>> found = job_fields([loop, loop], 32)
        >>> found["unit"], found["elements_per_second"], found["rows_per_second"]
        ('batches', 10.0, 320.0)
        >>> job_fields([loop], 0)["rows_per_second"] is None
        True
    """
    rate = _rounded(sum(_quotient(one.recent.elements, one.recent.seconds) for one in loops))
    rows = 1 if batch_rows is None else batch_rows
    return {
        "unit": "elements" if batch_rows is None else "batches",
        "batch_rows": batch_rows or None,
        "elements_per_second": rate,
        "rows_per_second": rate * rows if rows else None,
    }


def loop_fields(measures: LoopMeasures | None) -> dict[str, Any]:
    """Return what a training loop does for how long, without the wait for its first
    element; None: it was not measured.

    Example:
        >>> loop_fields(None)["wait_share"]
        0.0
    """
    found = measures or LoopMeasures()
    recent = found.outer or found.recent
    situation = Situation(recent)
    return {
        "wait_share": round(situation.wait_share, 4),
        "wait_ms": round(1000 * _quotient(recent.waiting, recent.elements), 3),
        "step_ms": round(1000 * situation.step, 3),
        "elements_per_second": _quotient(recent.elements, recent.seconds),
        "first_element_seconds": found.first,
        "elements": int(found.total.elements),
        "waited_seconds": round((found.outer_total or found.total).waiting, 3),
        "buffered": found.waiting,
    }


def unequal_loops(readers: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return for each training loop of a job how many times as long its step takes as
    the median of the others; 0 if that is less than ``UNEQUAL`` times, or unknown.

    Args:
        readers: the loops, as they are in a status.

    Example:
        >>> loops = [{"elements": 9, "step_ms": step} for step in (10.0, 11.0, 30.0)]
        >>> unequal_loops([*loops, {}])
        [0.0, 0.0, 3.0, 0.0]
    """
    ordered = sorted(one["step_ms"] for one in readers if one.get("elements"))
    found = []
    for one in readers:
        step = one["step_ms"] if one.get("elements") else 0.0
        usual = _median_of_others(ordered, step)
        found.append(step / usual if 0 < UNEQUAL * usual <= step else 0.0)
    return found


def _median_of_others(ordered: Sequence[float], value: float) -> float:
    """Return the lower median of values without one of them; 0 if there is no other.

    Args:
        ordered: the values in rising order.
        value: one of them.

    Example:
        >>> _median_of_others([1.0, 2.0, 9.0], 9.0), _median_of_others([1.0], 1.0)
        (1.0, 0)
    """
    if len(ordered) < 2:
        return 0
    middle = (len(ordered) - 2) // 2
    return ordered[middle if middle < bisect_left(ordered, value) else middle + 1]


def verdict_fields(verdict: Verdict | None) -> dict[str, Any]:
    """Return a verdict; None: there is none yet.

    Example:
        >>> verdict_fields(None)
        {'verdict': '', 'advice': '', 'workers_needed': 0}
    """
    if verdict is None:
        return {"verdict": "", "advice": "", "workers_needed": 0}
    return {
        "verdict": verdict.word,
        "advice": verdict.advice,
        "workers_needed": verdict.workers_needed,
    }


def _quotient(part: float, whole: float) -> float:
    return _rounded(part / whole) if whole > 0 else 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
