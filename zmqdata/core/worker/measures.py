"""The measures of tasks that a worker tells the clients that read them.

Decision 0046; protocol 10.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from zmqdata.core.limits import Rotation
from zmqdata.core.worker.coordinated import LaneStream
from zmqdata.core.worker.tasks import HostedTask
from zmqdata.messages import ConsumerPace, TaskMeasures

MOST_PACES = 64
"""Maximum number of consumers whose paces a client is told."""


def measures_of(tasks: Iterable[HostedTask], rotation: Rotation[int]) -> tuple[TaskMeasures, ...]:
    """Return the newest measures of tasks, of many tasks those whose turn it is.

    Args:
        tasks: the tasks.
        rotation: decides whose turn it is.
    """
    known = {one.definition.task: one.measures for one in tasks if one.measures is not None}
    return tuple(known[number] for number in rotation.take(known))


def paces_of(tasks: Iterable[HostedTask], client: str) -> tuple[ConsumerPace, ...]:
    """Return the paces of the other numbered consumers of tasks, the slowest first.

    Args:
        tasks: the tasks that a client reads.
        client: id of the client.
    """
    found: dict[int, ConsumerPace] = {}
    for task in tasks:
        for name, stream in task.dealing.streams.items():
            consumer = stream.consumer if isinstance(stream, LaneStream) else None
            if name != client and consumer is not None and stream.open:
                found[consumer] = ConsumerPace(consumer, stream.pace, stream.waits)
    return tuple(sorted(found.values(), key=lambda one: -one.step)[:MOST_PACES])
