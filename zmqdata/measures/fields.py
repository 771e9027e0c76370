"""Measures as plain data, for statuses: the same names in the status of a worker and of
a dispatcher.

A share is of the last seconds, from 0 to 1.
"""

from __future__ import annotations

from typing import Any

from zmqdata.measures.verdict import Situation, Verdict
from zmqdata.messages import LoopMeasures, TaskMeasures, TaskSums


def task_fields(measures: TaskMeasures | None) -> dict[str, Any]:
    """Return what an attempt of a task does for how long; None: it was not measured.

    Example:
        >>> sums = TaskSums(seconds=2.0, making=1.0, elements=10.0)
        >>> task_fields(TaskMeasures(1, 1, sums, sums))["elements_per_second"]
        5.0
    """
    recent = TaskSums() if measures is None else measures.recent
    nodes = () if measures is None else measures.nodes
    return {
        "making_share": _quotient(recent.making, recent.seconds),
        "waiting_for_readers_share": _quotient(recent.for_readers, recent.seconds),
        "waiting_for_splits_share": _quotient(recent.for_splits, recent.seconds),
        "elements_per_second": _quotient(recent.elements, recent.seconds),
        "bytes_per_second": round(_quotient(recent.nbytes, recent.seconds)),
        "buffered_bytes": 0 if measures is None else round(measures.ahead),
        "link_busy_share": 0.0 if measures is None else round(measures.linked[0], 4),
        "link_bytes_per_second": 0 if measures is None else round(measures.linked[1]),
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


def loop_fields(measures: LoopMeasures | None) -> dict[str, Any]:
    """Return what a training loop does for how long, without the wait for its first
    element; None: it was not measured.

    Example:
        >>> loop_fields(None)["wait_share"]
        0.0
    """
    found = measures or LoopMeasures()
    recent, situation = found.recent, Situation(found.recent)
    return {
        "wait_share": round(situation.wait_share, 4),
        "wait_ms": round(1000 * _quotient(recent.waiting, recent.elements), 3),
        "step_ms": round(1000 * situation.step, 3),
        "elements_per_second": _quotient(recent.elements, recent.seconds),
        "first_element_seconds": found.first,
        "elements": int(found.total.elements),
        "waited_seconds": round(found.total.waiting, 3),
        "buffered": found.waiting,
    }


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
    return float(f"{part / whole:.4g}") if whole > 0 else 0.0
