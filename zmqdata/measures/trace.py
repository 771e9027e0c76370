"""Recorded spans as they travel: in pages of a limited size, and gathered from other
processes.

Decision 0046; protocol 11.4 and 11.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zmqdata.errors import NotFoundError, ResourceExhaustedError
from zmqdata.messages import (
    MOST_SPANS_TOLD,
    Block,
    RequestRefused,
    RequestTrace,
    Span,
    TraceRecorded,
    Track,
    shown_name,
)

MOST_SPANS = 20_000
"""Maximum number of spans that a process keeps: the newest, of about 300 bytes each."""
KEPT = 60.0
"""Seconds for which a recording is kept after its end."""
SENT, ARRIVED = "block sent", "block arrived"
"""Instants of a block, recorded by its worker and by its client."""
LINK = "link "
"""Beginning of the names of rows with these instants."""


def link_row(link: str) -> str:
    """Return the name of the row of a link, equal on both of its sides. The id of the
    link itself begins with that of its client, which is a secret.

    Example:
        >>> link_row("secret")
        'link 0ffde1ae45a58146'
    """
    return f"{LINK}{shown_name(link)}"


def block_numbers(block: Block) -> dict[str, float]:
    """Return the numbers of a block that belong to its instants.

    Example:
        >>> block_numbers(Block(1, 7, 1, 0, 16, 0, 128))["bytes"]
        128.0
    """
    return {
        "message": float(block.number),
        "attempt": float(block.attempt),
        "first": float(block.first),
        "elements": float(block.count),
        "bytes": float(block.size),
    }


def refusal_of(ask: RequestTrace, left: float) -> RequestRefused | None:
    """Return the refusal of a request for a recording that is not the present one; None
    if it may begin.

    Args:
        ask: the request.
        left: seconds until the end of the present recording.

    Example:
        >>> refusal_of(RequestTrace("request", "trace", 10.0), left=3.0).error
        'ResourceExhaustedError'
    """
    if not ask.seconds:
        text = (
            "The recording is unknown: this process was started after it began, or has forgotten "
            f"it. Recordings are kept for {KEPT:.0f} s. Record again."
        )
        return RequestRefused(ask.request, NotFoundError.__name__, text)
    if left:
        text = (
            "Another recording is running, and a process records one at a time. Try again in "
            f"{left:.0f} s."
        )
        return RequestRefused(ask.request, ResourceExhaustedError.__name__, text)
    return None


def page_of(ask: RequestTrace, tracks: Sequence[Track]) -> TraceRecorded:
    """Return the spans of tracks that a request asks for, as many as fit into an
    answer.

    Example:
        >>> span = Span(1, "", "making", 0.0, 1.0)
        >>> tracks = [Track("a", (span,)), Track("b", (span,))]
        >>> page = page_of(RequestTrace("request", "trace", first=1), tracks)
        >>> page.total, [(track.name, len(track.spans)) for track in page.tracks]
        (2, [('a', 0), ('b', 1)])
    """
    found, at, room = [], 0, MOST_SPANS_TOLD
    for track in tracks:
        first = max(0, ask.first - at)
        spans = track.spans[first : first + room]
        at += len(track.spans)
        room -= len(spans)
        found.append(Track(track.name, spans, track.dropped, track.ahead, track.error))
    return TraceRecorded(ask.request, 0.0, at, tuple(found))


@dataclass
class ReportedSpans:
    """The spans of another process, as it has reported them so far."""

    name: str = ""
    """Name of the process for a person."""
    spans: tuple[Span, ...] = ()
    """The newest spans."""
    seen: int = 0
    """Number of spans that the process has recorded, as far as is known."""
    ahead: float = 0.0
    """Seconds by which its clock is ahead."""
    error: float = 0.0
    """Seconds by which ``ahead`` may be wrong."""

    def add(self, first: int, spans: Iterable[Span], most: int) -> None:
        """Add spans. Spans that are known already change nothing.

        Args:
            first: number of the spans before them.
            spans: the spans.
            most: maximum number of spans to keep.

        Example:
            >>> span = Span(1, "", "making", 0.0, 1.0)
            >>> found = ReportedSpans()
            >>> for first in (0, 0, 3):
            ...     found.add(first, [span, span], 3)
            >>> found.seen, found.track.dropped
            (5, 2)
        """
        new = tuple(spans)
        new = new[max(0, self.seen - first) :]
        self.seen = max(self.seen, first + len(new)) if first >= self.seen else self.seen + len(new)
        self.spans = (self.spans + new)[-most:] if most else ()

    @property
    def track(self) -> Track:
        """The spans as they are sent on."""
        dropped = self.seen - len(self.spans)
        return Track(self.name, self.spans, dropped, self.ahead, self.error)
