"""Messages by which a person records a trace: what workers and training loops do, as
spans of time.

Decision 0046; protocol 11.4 to 11.6.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from zmqdata.messages.discreet import Discreet
from zmqdata.messages.measures import Amount
from zmqdata.messages.parts import Message, Number

MOST_TRACE_SECONDS = 300.0
"""Longest duration of a trace, in seconds."""
MOST_SPANS_TOLD = 2_000
"""Maximum number of spans in a message."""
MOST_LABEL = 200
"""Maximum number of characters of a name in a trace."""

TraceName = Annotated[str, Meta(max_length=64)]
Label = Annotated[str, Meta(max_length=MOST_LABEL)]
Seconds = Annotated[float, Meta(ge=0, le=MOST_TRACE_SECONDS)]


class Span(Discreet, frozen=True, array_like=True):
    """A stretch of time in which something was done, or an instant."""

    task: Number
    """Id of the task; 0 if it belongs to none."""
    row: Label
    """Name of its row in the trace; spans of a row do not overlap."""
    name: Label
    """Name of the work, or of the wait."""
    began: float
    """Its beginning in seconds since 1970, by the clock of the machine that recorded
    it.
    """
    seconds: Amount
    """Its duration; 0 for an instant."""
    numbers: Annotated[dict[Label, float], Meta(max_length=8)] = field(default_factory=dict)
    """Counts and sizes that belong to it, by name."""


class Track(Discreet, frozen=True):
    """The spans of a process."""

    name: str
    """Name of the process for a person."""
    spans: tuple[Span, ...] = ()
    """The spans."""
    dropped: int = 0
    """Number of the oldest spans that were dropped, because memory is limited."""
    ahead: float = 0.0
    """Seconds by which the clock of its machine is ahead of that of the sender."""
    error: float = 0.0
    """Seconds by which ``ahead`` may be wrong."""


# --- client -> dispatcher or worker


class RequestTrace(Message, frozen=True):
    """Sent by a client whose user wants a trace. The receiver begins to record,
    and answers ``TraceRecorded``; it answers ``RequestRefused`` while it records for
    somebody else. The client asks again at the end of the trace.
    """

    request: str
    """Id of the request."""
    trace: TraceName
    """Name of the trace, which no other has."""
    seconds: Seconds = 0.0
    """Duration of the trace; 0: an unknown trace is not begun."""
    first: Number = 0
    """Number of spans that the client has; the answer holds those that follow."""


class SpansReported(Message, frozen=True):
    """Sent by a client that was told ``RecordSpans``, about every second during the
    trace, and at its end. The dispatcher keeps them for whoever has asked.
    """

    client: str
    """Id of the client."""
    trace: TraceName
    """Name of the trace."""
    first: Number
    """Number of spans before these."""
    spans: Annotated[tuple[Span, ...], Meta(max_length=MOST_SPANS_TOLD)]
    """The spans."""
    name: Label = ""
    """Name of the process for a person."""
    ahead: float = 0.0
    """Seconds by which the client's clock is ahead of the dispatcher's."""
    error: Amount = 0.0
    """Seconds by which ``ahead`` may be wrong."""


# --- dispatcher or worker -> client


class RecordSpans(Message, frozen=True):
    """Sent by the dispatcher to its clients, every second during a trace. A client
    that does not record yet begins, and sends ``SpansReported``.
    """

    trace: str
    """Name of the trace."""
    seconds: float
    """Seconds until its end."""


class TraceRecorded(Message, frozen=True):
    """Sent by a dispatcher or a worker, answering ``RequestTrace``. The receiver asks
    for the spans once nothing is left of the trace. A dispatcher has the spans of
    clients.
    """

    request: str
    """Id of the request."""
    left: float
    """Seconds until the trace is complete; no spans are sent before that."""
    total: int = 0
    """Number of all spans."""
    tracks: tuple[Track, ...] = ()
    """The spans from ``first`` on, as many as fit into a message."""
