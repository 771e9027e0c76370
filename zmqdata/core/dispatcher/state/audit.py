"""The audit of an iteration: which splits and elements were handed out, finished, made
again, delivered and dropped, as plain data.

Protocol 3.11.
"""

from __future__ import annotations

from typing import Any

from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.rounds import rounds_before
from zmqdata.messages import shown_name


def audit_of(iteration: Iteration) -> dict[str, Any]:
    """Return the history of splits, tasks and elements as a JSON-compatible dict, the
    content of ``ServiceIterator.audit``.

    All of it is durable, so a restart of the dispatcher leaves no trace in it.
    """
    tally, tasks = iteration.tally, list(iteration.tasks.values())
    settled = [task for task in tasks if task.settled and not task.removed]
    # Numbered consumers report steps, and a client may succeed another, so their counts
    # are not per client.
    clients = (
        iteration.clients | tally.delivered.keys() | tally.repeats.keys()
        if iteration.rounds is None
        else set()
    )
    consumers = _had_by_consumers(iteration)
    return {
        "job": iteration.job.name,
        "repetition": iteration.repetition,
        "iteration": iteration.iteration,
        "processing_mode": iteration.job.processing_mode,
        "finished": iteration.finished,
        "failure": None if iteration.failure is None else iteration.failure.text,
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
            "made": sum(task.full or 0 for task in tasks) * (len(consumers) or 1)
            + sum(iteration.rests.values()),
            "delivered": sum(consumers) if consumers else iteration.delivered,
            "left_out": sum(task.left_out for task in tasks),
            "dropped": iteration.dropped,
            "duplicates_dropped": sum(tally.repeats.values()),
            "given_back": sum(tally.given_back.values()),
        },
        "clients": [
            {
                "client": shown_name(client),
                "delivered": tally.delivered.get(client, 0),
                "duplicates_dropped": tally.repeats.get(client, 0),
                "given_back": tally.given_back.get(client, 0),
                "reads": client in iteration.clients,
            }
            for client in sorted(clients)
        ],
        "consumers": consumers,
    }


def _had_by_consumers(iteration: Iteration) -> list[int]:
    """Return the number of elements that each numbered consumer has had. Turns of
    exhausted tasks do not count.
    """
    rounds = iteration.rounds
    if rounds is None:
        return []
    in_turn = {task for view in rounds.views for task, _ in view.tasks}
    last = iteration.last_rounds

    def before(step: int, task: Task) -> int:
        if task.task not in in_turn:  # all consumers have passed it, or none has reached it yet
            return len(task.delivered) if task.full is None else min(len(task.delivered), task.full)
        count = rounds_before(rounds.views, task.task, step)
        return count if task.full is None else min(count, task.full)

    found = {
        step: sum(before(step, task) for task in iteration.tasks.values())
        + (0 if last is None else max(0, min(step, last.stop) - last.first_step))
        for step in set(rounds.steps)
    }
    return [found[step] for step in rounds.steps]
