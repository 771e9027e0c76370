"""Messages by which a person looks at a running service: how fast a server answers, and
what it takes to run a task again.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from zmqdata.messages.parts import Message, Part, TaskDefinition

MOST_ECHO_BYTES = 256 << 10
"""Largest content of an ``EchoSent``. The answers in the queue of a peer that reads
none therefore stay small.
"""

# --- client -> dispatcher or worker


class RequestEcho(Message, frozen=True):
    """Sent by a client that measures its connection to a dispatcher or a worker. The
    receiver answers ``EchoSent`` at once.
    """

    request: str
    """Id of the request."""
    size: Annotated[int, Meta(ge=0, le=MOST_ECHO_BYTES)] = 0
    """Number of bytes that the answer is to carry."""


class RequestTask(Message, frozen=True):
    """Sent by a client whose user runs a task again. The dispatcher answers
    ``TaskDescribed``, or ``RequestRefused`` if it does not know the task.
    """

    request: str
    """Id of the request."""
    task: int
    """Id of the task."""


# --- dispatcher or worker -> client


class EchoSent(Message, frozen=True):
    """Sent by a dispatcher or a worker, answering ``RequestEcho``. The receiver
    measures the time until it has arrived.
    """

    request: str
    """Id of the request."""
    clock: float
    """Seconds since 1970 by the clock of the sender's machine."""
    content: bytes = b""
    """As many bytes as were requested."""


class TaskDescribed(Message, frozen=True):
    """Sent by the dispatcher, answering ``RequestTask``. The receiver fetches the parts
    by ``RequestPiece`` and runs the pipeline; no element is delivered.
    """

    request: str
    """Id of the request."""
    job: str
    """Name of the job."""
    definition: TaskDefinition
    """Lineage of the task, with every state that the dispatcher has, and without the
    ticket.
    """
    pipeline: bytes
    """The packed pipeline; empty if it is one of the parts."""
    parts: tuple[Part, ...] = ()
    """Parts of the pipeline."""
