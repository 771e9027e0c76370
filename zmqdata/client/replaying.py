"""The description of a task, fetched from its dispatcher by a person who runs the task
again.

Nothing is executed here; ``worker.tasks.replay`` runs the pipeline.

Protocol 3.18.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from zmqdata import messages as m
from zmqdata.client.calls import ask_dispatcher
from zmqdata.config.checks import check_timeout
from zmqdata.config.endpoints import Service
from zmqdata.errors import DataLossError, NotFoundError, UnavailableError


@dataclass(frozen=True)
class FetchedTask:
    """A task with everything that running it again in this process takes."""

    job: str
    """Name of its job."""
    definition: m.TaskDefinition
    """Its lineage."""
    pipeline: bytes = field(repr=False)
    """The packed pipeline."""
    parts: Mapping[str, bytes] = field(repr=False)
    """Content of the parts of the pipeline, by digest."""


def fetch_task(service: Service, task: int, timeout: float = 60.0) -> FetchedTask:
    """Return the description of a task that a dispatcher knows, with its pipeline.

    Args:
        service: address of the dispatcher, ``"tcp://host:port"``.
        task: id of the task, as ``zmqdata status`` and the errors of elements show it.
        timeout: seconds to wait for all of it.

    Raises:
        ValueError: an argument has an invalid value.
        NotFoundError: the dispatcher does not know the task, or no longer has its
            pipeline.
        UnavailableError: the dispatcher has not sent everything within ``timeout``.

    Example:
        >>> from zmqdata.dispatcher.server import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     try:
        ...         fetch_task(dispatcher.target, 4001)
        ...     except NotFoundError as error:
        ...         str(error)[:24]
        'Task 4001 is unknown. A '

    Has no counterpart in tf.data.
    """
    check_timeout("timeout", timeout)
    until = time.monotonic() + timeout
    found = ask_dispatcher(
        service, lambda request: m.RequestTask(request, task), m.TaskDescribed, timeout
    )
    parts = {part.digest: _part(service, part, until) for part in found.parts}
    pipeline = found.pipeline or parts.get(found.definition.digest, b"")
    return FetchedTask(found.job, found.definition, pipeline, parts)


def _part(service: Service, part: m.Part, until: float) -> bytes:
    """Return the content of a part, fetched piece by piece."""
    content = bytearray()
    while len(content) < part.size:
        left = until - time.monotonic()
        if left <= 0:
            raise UnavailableError(
                f"The dispatcher at {service} has sent {len(content):,} of {part.size:,} bytes of "
                "a part of the pipeline in the given time. Give it more time with --timeout."
            )
        sent = ask_dispatcher(service, partial(_ask, part, len(content)), m.PieceSent, left)
        if sent.reason or not sent.content:
            reason = sent.reason or "the dispatcher has sent an empty piece"
            raise NotFoundError(
                f"A part of the pipeline is not available: {reason}. Start the job again."
            )
        content += sent.content
    if hashlib.sha256(content).hexdigest() != part.digest:
        raise DataLossError(
            f"A part of the pipeline has other content than its digest {part.digest[:16]}... says. "
            "Check whether the dispatcher's work folder was changed."
        )
    return bytes(content)


def _ask(part: m.Part, offset: int, request: str) -> m.RequestPiece:
    return m.RequestPiece("", part.digest, offset, request)
