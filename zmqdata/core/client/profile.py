"""The profile of a client: what it reads, in which role, and its limits.

See the page on the design.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.client.links import LinkProfile

HEARTBEAT = 1.0
"""Default number of seconds between two heartbeats."""


@dataclass(frozen=True)
class ClientProfile:
    """The job that a client reads, its role there, and its limits."""

    client: str
    """Id of the client."""
    job: m.JobParameters
    """Parameters of the job."""
    repetition: int
    """Number of the iterator among those of its dataset object."""
    service: str
    """Address of the dispatcher, for messages to the user."""
    dispatcher_timeout: float = 3600.0
    """Seconds without an answer of the dispatcher after which the iterator fails."""
    heartbeat: float = HEARTBEAT
    """Seconds between two heartbeats."""
    host: str = ""
    """Name of this machine, by which workers recognise a client of their host."""
    transports: tuple[str, ...] = ("ipc", "tcp")
    """Transports that this client supports."""
    reader: m.Reader = field(default_factory=m.Reader)
    """The role in which the client reads."""
    local_workers: tuple[str, ...] = ()
    """Addresses of the workers in this process."""
    process: str = field(default="", repr=False)
    """Secret of this process, which its own workers know."""
    resume: bytes = b""
    """Encoded checkpoint to resume from, or empty."""
    allow_objects: bool = True
    """True if leaves of elements may be unpickled."""
    decompresses: bool = True
    """False if this process has no codec."""
    affiliation: m.Affiliation = field(default_factory=m.Affiliation)
    """The run to which the client belongs."""
    cardinality: int = -2
    """Number of elements of a repetition; below 0 if it is infinite or unknown."""
    traceparent: str = ""
    """Span of the read, as a W3C ``traceparent``; empty if there is none."""
    was_read: bool = False
    """True if this process has read the repetition to its end before the dataset object
    was made.
    """
    shows_task_log: bool = False
    """True if this process shows what functions on workers print."""


def link_profile(client: str, profile: ClientProfile) -> LinkProfile:
    """Return the profile with which a client opens its links.

    Args:
        client: present name of the client.
        profile: its profile.
    """
    return LinkProfile(
        client,
        profile.host,
        profile.transports,
        profile.reader,
        profile.process,
        profile.decompresses,
        profile.shows_task_log,
    )


def opening(
    profile: ClientProfile, client: str, iteration: int | None, age: float
) -> m.OpenIteration:
    """Return the request with which a client joins its iteration.

    Args:
        profile: its profile.
        client: present name of the client.
        iteration: the iteration that it has been in; None if it was in none. It
            continues there, also if a checkpoint has begun that iteration.
        age: seconds since the client was made.
    """
    return m.OpenIteration(
        client,
        profile.job,
        profile.repetition,
        reader=profile.reader,
        local_workers=profile.local_workers,
        iteration=iteration,
        resume=profile.resume if iteration is None else b"",
        affiliation=_aged(profile.affiliation, age),
        traceparent=profile.traceparent,
    )


def _aged(affiliation: m.Affiliation, seconds: float) -> m.Affiliation:
    """Return the affiliation of a client so many seconds later."""
    copies = [structs.replace(copy, age=copy.age + seconds) for copy in affiliation.copies]
    return structs.replace(affiliation, copies=tuple(copies)) if copies else affiliation
