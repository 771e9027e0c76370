"""The audit of an iteration: what was handed out, finished, made again, delivered and dropped, as plain data."""

from __future__ import annotations

from typing import Any

from zmqdata.core.tasks import Iteration
from zmqdata.messages import shown_name


def audit_of(iteration: Iteration) -> dict[str, Any]:
    """What happened to splits, tasks and elements, as a JSON-compatible dict; the text of ``ServiceIterator.audit``.

    Everything in it is durable, so a restart of the dispatcher does not show.
    """
    tally, tasks = iteration.tally, list(iteration.tasks.values())
    settled = [task for task in tasks if task.settled and not task.removed]
    clients = sorted(iteration.clients | tally.delivered.keys() | tally.repeats.keys())
    rounds = iteration.rounds
    return {
        "job": iteration.job.name,
        "repetition": iteration.repetition,
        "iteration": iteration.iteration,
        "processing_mode": iteration.job.processing_mode,
        "finished": iteration.finished,
        "failure": None if iteration.failure is None else iteration.failure[1],
        "splits": {
            "handed_out": sum(tally.splits.values()),
            "finished": sum(tally.splits.get(task.task, 0) for task in settled),
            "rehosted": tally.rehosted,
        },
        "tasks": {
            "count": len(tasks),
            "finished": len(settled),
            "lost": sum(task.removed for task in tasks),
            "rehosted": sum(task.attempt > 1 for task in tasks),
            "attempts": sum(task.attempt for task in tasks),
        },
        "elements": {
            "made": sum(task.total or 0 for task in tasks),
            "delivered": iteration.delivered,
            "left_out": sum(task.left_out for task in tasks),
            "dropped": sum(task.dropped for task in tasks),
            "duplicates_dropped": sum(tally.repeats.values()),
        },
        "clients": [
            {
                "client": shown_name(client),
                "delivered": tally.delivered.get(client, 0),
                "duplicates_dropped": tally.repeats.get(client, 0),
                "reads": client in iteration.clients,
            }
            for client in clients
        ],
        "consumers": [] if rounds is None else list(rounds.steps),
    }
