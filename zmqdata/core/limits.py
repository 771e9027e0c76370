"""How much of everything one dispatcher holds: whoever is let in cannot use up its
memory, by mistake or on purpose.

Nobody who works comes near these. What is over a limit is refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain, islice

MOST_DATASETS = 10_000
MOST_JOBS = 10_000
MOST_CLIENTS = 100_000
MOST_CLIENTS_OF_PEER = 100
"""Of one connection; ours have one each."""
MOST_WORKERS = 100_000
MOST_CONSUMERS = 10_000
"""Of one job, that read in step."""
MOST_TASKS = 4_096
"""Of one job whose order is promised."""
MOST_TASKS_TOGETHER = 500_000
"""Of all jobs, from which on there is no further job whose order is promised. Each
takes about a kilobyte.
"""
MOST_REGISTERED_BYTES = 1 << 30
"""Of all datasets together: what is known of them, and of their pipelines what came
with that.
"""
MOST_WAITING_BYTES = 1 << 30
"""Of all states together from which jobs wait to go on."""
MOST_CHECKPOINT_BYTES = 12 << 20
"""In the state from which a job goes on."""
MOST_UPLOADS = 10_000
"""Parts of pipelines that clients have begun to send."""
MOST_CHARACTERS = 1_000
"""In any name that a peer gives: to itself, to a job, to a dataset."""

REPEATED = (
    "request",
    "client",
    "worker",
    "dataset_id",
    "job",
    "digest",
    "compression",
    "on_poison",
    "run",
)
"""Fields of asks that answers may repeat."""


def too_many(what: str, there: int, most: int) -> str:
    """Why there cannot be one more; "" when there can.

    >>> too_many("jobs", 9, 10), too_many("jobs", 10, 10)
    ('', 'There are 10 jobs already, which is the most. Jobs go when nobody needs them; are there more than meant?')
    """
    if there < most:
        return ""
    text = f"There are {there} {what} already, which is the most. "
    return text + f"{what.capitalize()} go when nobody needs them; are there more than meant?"


def too_long(texts: Mapping[str, str]) -> str:
    """Why one of these texts cannot be taken, by what they are; "" when all can.

    >>> too_long({"name of a job": "training"}), too_long({"name of a job": "x" * 1_001})
    ('', 'The name of a job has at most 1000 characters, got 1001.')
    """
    for what, text in texts.items():
        if len(text) > MOST_CHARACTERS:
            return f"The {what} has at most {MOST_CHARACTERS} characters, got {len(text)}."
    return ""


def repeats_too_long(ask: object) -> str:
    """What of an ask is longer than a name, though its answer repeats it: who reads
    none has many of them wait here.
    """
    for name in REPEATED:
        text = getattr(ask, name, None)
        if isinstance(text, str) and len(text) > MOST_CHARACTERS:
            return too_long({f"{name} of a message": text})
    return ""


class Rotation:
    """Goes round a collection that may change meanwhile.

    Args:
        most: how many are taken at a time.

    Example:
        >>> rotation = Rotation(2)
        >>> [rotation.take("abc") for _ in range(3)]
        [('a', 'b'), ('c', 'a'), ('b', 'c')]
        >>> rotation.take("a")
        ('a',)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = 0

    def take(self, names: Collection[str]) -> tuple[str, ...]:
        """The next ones, all when there are no more than that; each of those that stay
        comes once in a round.
        """
        if len(names) <= self._most:
            return tuple(names)
        first = self._next % len(names)
        self._next = first + self._most
        return tuple(islice(chain(names, names), first, self._next))
