"""The recorder of a process: spans of time for a timeline, for a limited time and in
limited memory.

It is off by default. A place that could record asks ``is_on`` first, and does nothing
else.

Decision 0046; protocol 11.4.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType

from zmqdata.measures.trace import KEPT, MOST_SPANS, page_of, refusal_of
from zmqdata.messages import (
    MOST_LABEL,
    MOST_TRACE_SECONDS,
    Message,
    RequestTrace,
    Span,
    TraceRecorded,
    Track,
)

SHORTEST = 1e-9
"""Seconds below which a span is left out: no clock tells its beginning from its end."""
MERGED = 0.005
"""Most seconds between two spans that are merged."""
NEAR = 8
"""Number of the newest spans among which one is looked for that goes on."""
LEAST_LEFT = 0.05
"""Least seconds after which to ask again: the end of a recording is noticed late."""
NO_NUMBERS: Mapping[str, float] = MappingProxyType({})


class Recorder:
    """Records spans while somebody looks. Thread-safe.

    Args:
        clock: returns the time of the spans, in seconds.
        wall: returns the seconds since 1970.
        most: maximum number of spans that are kept.

    Example:
        >>> recorder = Recorder(lambda: 0.0, lambda: 1_000.0)
        >>> recorder.note(7, "", "making", 0.0, 2.0)
        >>> recorder.begin("trace", 1.5)
        >>> recorder.note(7, "", "making", -1.0, 2.0)
        >>> recorder.spans()
        (Span(task=7, row='', name='making', began=1000.0, seconds=1.5, numbers={}),)
    """

    def __init__(
        self, clock: Callable[[], float], wall: Callable[[], float], most: int = MOST_SPANS
    ) -> None:
        self.clock, self._wall, self._most = clock, wall, most
        self.is_on = False
        self.trace = ""
        self._began = self._until = self._offset = 0.0
        self._noted = 0
        self._spans: deque[Span] = deque()
        self._rows: dict[tuple[int, str], float] = {}
        self._lock = threading.Lock()

    def begin(self, trace: str, seconds: float) -> None:
        """Begin a recording, and forget the one before.

        Args:
            trace: its name.
            seconds: its duration.
        """
        with self._lock:
            self.trace = trace
            self._began = self.clock()
            self._offset = self._wall() - self._began
            self._until = self._began + min(seconds, MOST_TRACE_SECONDS)
            self._spans = deque(maxlen=self._most)
            self._noted = 0
            self._rows = {}
            self.is_on = True

    @property
    def left(self) -> float:
        """Seconds until the end of the recording; 0 if it has ended."""
        return max(0.0, self._until - self.clock()) if self.is_on else 0.0

    def look(self, cut: Callable[[], None]) -> bool:
        """Return True if the recording has just ended.

        Args:
            cut: notes what lasts on at the end.
        """
        now = self.clock()
        if self.is_on and now >= self._until:
            cut()
            self.is_on = False
            return True
        if not self.is_on and self._spans and now >= self._until + KEPT:
            self.forget()
        return False

    def forget(self) -> None:
        """Forget the recording, and end it."""
        with self._lock:
            self.is_on, self.trace = False, ""
            self._spans, self._rows = deque(), {}

    # --- spans

    def note(
        self,
        task: int,
        row: str,
        name: str,
        since: float,
        until: float,
        numbers: Mapping[str, float] = NO_NUMBERS,
        merges: bool = False,
    ) -> None:
        """Record a span. The part that lies outside of the recording, or overlaps an
        earlier span of the row, is left out.

        Args:
            task: id of the task; 0 if it belongs to none.
            row: name of the row.
            name: name of the work, or of the wait.
            since: its beginning, by ``clock``.
            until: its end.
            numbers: counts and sizes that belong to it.
            merges: True to make one span with the span before it, if that has the same
                name.
        """
        with self._lock:
            if not self.is_on or since > self._until:
                return
            row, name = row[:MOST_LABEL], name[:MOST_LABEL]
            last = self._rows.get((task, row), self._began)
            since, until = max(since, last), min(until, self._until)
            if until - since < SHORTEST:
                return
            self._rows[task, row] = until
            merged = merges and since - last <= MERGED and self._merge(task, row, name, until)
            if not merged:
                self._append(task, row, name, since, until - since, dict(numbers))

    def mark(self, task: int, row: str, name: str, numbers: Mapping[str, float]) -> None:
        """Record an instant, which is now. See ``note``."""
        with self._lock:
            now = self.clock()
            if self.is_on and now <= self._until:
                self._append(task, row[:MOST_LABEL], name[:MOST_LABEL], now, 0.0, dict(numbers))

    def _merge(self, task: int, row: str, name: str, until: float) -> bool:
        """Lengthen the newest span if it is of this row and name, or one of the few
        before it is.
        """
        for at in range(1, 1 + min(len(self._spans), NEAR)):
            span = self._spans[-at]
            if (span.task, span.row) == (task, row):
                if span.name != name:
                    return False
                seconds = until + self._offset - span.began
                self._spans[-at] = Span(task, row, name, span.began, seconds, span.numbers)
                return True
        return False

    def _append(
        self,
        task: int,
        row: str,
        name: str,
        since: float,
        seconds: float,
        numbers: dict[str, float],
    ) -> None:
        self._spans.append(Span(task, row, name, since + self._offset, seconds, numbers))
        self._noted += 1

    def spans(self) -> tuple[Span, ...]:
        """Return the recorded spans that are kept."""
        with self._lock:
            return tuple(self._spans)

    @property
    def dropped(self) -> int:
        """Number of the oldest spans that were dropped."""
        return self._noted - len(self._spans)

    def take(self, most: int) -> tuple[int, tuple[Span, ...]]:
        """Remove the oldest spans. Return the number of spans before them, and them."""
        with self._lock:
            first = self._noted - len(self._spans)
            count = min(most, len(self._spans))
            return first, tuple(self._spans.popleft() for _ in range(count))

    # --- answers

    def answer(self, ask: RequestTrace, name: str) -> Message:
        """Return the answer to a request: the recording begins, goes on, or is sent.

        Args:
            ask: the request.
            name: name of this process for a person.
        """
        if ask.trace != self.trace:
            refusal = refusal_of(ask, self.left)
            if refusal is not None:
                return refusal
            self.begin(ask.trace, ask.seconds)
        if self.is_on:
            return TraceRecorded(ask.request, max(self.left, LEAST_LEFT))
        return page_of(ask, [Track(name, self.spans(), self.dropped)])
