"""The part of a dispatcher in a trace: it tells clients to record, and keeps the spans
that they report, for the person who has asked.

Decision 0046; protocol 11.5.
"""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.measures.trace import KEPT, MOST_SPANS, ReportedSpans, page_of, refusal_of

TELL = 1.0
"""Seconds between two messages that tell a client to record."""
LAST_REPORTS = 2.0
"""Seconds after the end of a trace in which clients send their last spans."""
MOST_TOGETHER = 200_000
"""Maximum number of spans of all clients together."""


class ReportedTrace:
    """Keeps what clients record, for one trace at a time.

    Example:
        >>> reported = ReportedTrace()
        >>> reported.answer(m.RequestTrace("request", "trace", 10.0), now=5.0).left
        12.0
        >>> reported.due(5.0, ["client"])
        RecordSpans(trace='trace', seconds=10.0)
        >>> reported.keep(m.SpansReported("client", "trace", 0, ()), now=16.0)
        >>> reported.answer(m.RequestTrace("request", "trace"), now=17.0).total
        0
    """

    def __init__(self) -> None:
        self._trace = ""
        self._until = self._tell_at = 0.0
        self._found: dict[str, ReportedSpans] = {}

    def answer(self, ask: m.RequestTrace, now: float) -> m.RequestRefused | m.TraceRecorded:
        """Return the answer to a request: a trace begins, goes on, or is sent."""
        if ask.trace != self._trace:
            left = self._until + LAST_REPORTS - now if self._trace else 0.0
            refusal = refusal_of(ask, max(0.0, left))
            if refusal is not None:
                return refusal
            self._trace, self._found = ask.trace, {}
            self._until, self._tell_at = now + ask.seconds, now
        left = self._until + LAST_REPORTS - now
        if left > 0:
            return m.TraceRecorded(ask.request, left)
        return page_of(ask, [one.track for one in self._found.values() if one.name])

    def due(self, now: float, clients: list[str]) -> m.RecordSpans | None:
        """Return what must be sent to all clients now, or None. Forget an old
        trace.

        Args:
            now: present time.
            clients: the living clients. Reports of others are ignored.
        """
        if self._trace and now > self._until + LAST_REPORTS + KEPT:
            self._trace, self._found = "", {}
        if not self._trace or now >= self._until or now < self._tell_at:
            return None
        self._tell_at = now + TELL
        for name in clients:
            self._found.setdefault(name, ReportedSpans())
        return m.RecordSpans(self._trace, self._until - now)

    def keep(self, report: m.SpansReported, now: float) -> None:
        """Keep the spans of a client that was told to record."""
        found = self._found.get(report.client)
        if found is None or report.trace != self._trace or now > self._until + LAST_REPORTS:
            return
        found.name, found.ahead, found.error = report.name, report.ahead, report.error
        room = MOST_TOGETHER - sum(len(one.spans) for one in self._found.values())
        found.add(report.first, report.spans, min(MOST_SPANS, len(found.spans) + room))
