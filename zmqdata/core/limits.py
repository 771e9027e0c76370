"""Limits on what a dispatcher holds, so that an authorized peer cannot exhaust its
memory, by mistake or on purpose.

No legitimate workload comes near these limits. A request that exceeds a limit is
refused and changes nothing.

Protocol 2.9, 3.6, 3.12, 4.2 and 6.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain, islice
from typing import Generic, TypeVar

from zmqdata.config.checks import MOST_CHARACTERS
from zmqdata.messages import Message

Item = TypeVar("Item")

MOST_DATASETS = 10_000
MOST_CHECKS = 1_000
"""Registrations that wait until workers have looked at files."""
MOST_JOBS = 10_000
MOST_CLIENTS = 100_000
MOST_CLIENTS_OF_PEER = 100
"""Clients of one connection; zmqdata's own clients have a connection each."""
MOST_WORKERS = 100_000
MOST_CONSUMERS = 10_000
"""Numbered consumers of one job."""
MOST_TASKS = 4_096
"""Tasks of one job with a promised order."""
MOST_TASKS_TOGETHER = 500_000
"""Tasks of all jobs. Above this number no job with a promised order is admitted. Each
task takes about a kilobyte.
"""
MOST_REGISTERED_BYTES = 1 << 30
"""Bytes of all dataset descriptions together, including pipelines sent with them."""
MOST_WAITING_BYTES = 1 << 30
"""Bytes of all states that wait for the other states of their job."""
MOST_CHECKPOINT_BYTES = 12 << 20
"""Bytes of the state from which a job resumes."""
MOST_LOADER_WORKERS = 4_096
"""Workers of one data loader."""
MOST_COPIES = 16
"""Processes through which a copy of a dataset has come to its reader."""
MOST_UPLOADS = 10_000
"""Parts of pipelines that clients are sending."""

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
    "save_id",
)
"""Fields of requests that answers may repeat."""


def too_many(what: str, there: int, most: int) -> str:
    """Return the reason why another item would exceed a limit; "" if it would not.

    >>> too_many("jobs", 9, 10), too_many("jobs", 10, 10)[:48]
    ('', 'The dispatcher already has 10 jobs, its maximum.')
    """
    if there < most:
        return ""
    text = f"The dispatcher already has {there} {what}, its maximum. "
    return (
        text
        + f"{what.capitalize()} are removed when no longer needed. Are more in use than intended?"
    )


def too_long(texts: Mapping[str, str]) -> str:
    """Return the reason why a text is too long; "" if none is. The texts are keyed by
    their description.

    >>> too_long({"name of a job": "training"})
    ''
    >>> too_long({"name of a job": "x" * 1_001})
    'The name of a job has at most 1000 characters, got 1001.'
    """
    for what, text in texts.items():
        if len(text) > MOST_CHARACTERS:
            return f"The {what} has at most {MOST_CHARACTERS} characters, got {len(text)}."
    return ""


def repeats_too_long(ask: Message) -> str:
    """Return the reason why a request repeats a text that is too long; "" if none is.
    Answers repeat these texts and would pile up in the queue of a peer that reads none.
    """
    for name in REPEATED:
        text = getattr(ask, name, None)
        if isinstance(text, str) and len(text) > MOST_CHARACTERS:
            return too_long({f"{name} of a message": text})
    return ""


class Rotation(Generic[Item]):
    """Round-robin over a changing collection, a bounded number at a time.

    Args:
        most: maximum number of items taken at a time.

    Example:
        >>> rotation = Rotation(2)
        >>> [rotation.next_items("abc") for _ in range(3)]
        [('a', 'b'), ('c', 'a'), ('b', 'c')]
        >>> rotation.next_items("a")
        ('a',)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = 0

    def next_items(self, items: Collection[Item]) -> tuple[Item, ...]:
        """Return the next items, or all of them if they are few enough. Each item that
        stays in the collection comes once per round.
        """
        if len(items) <= self._most:
            return tuple(items)
        first = self._next % len(items)
        self._next = first + self._most
        return tuple(islice(chain(items, items), first, self._next))
