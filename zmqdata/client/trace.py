"""The part of a client in a trace: it sends spans of its training loop to the
dispatcher, and compares their clocks. And the span of OpenTelemetry of its read, whose
children are the attempts of the iteration's tasks.

Decision 0046; protocol 11.5 and 11.6.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from zmqdata import messages as m
from zmqdata.config.settings import from_environment
from zmqdata.config.telemetry import TelemetrySettings
from zmqdata.core.client import events as e
from zmqdata.core.client.decider import ClientCore
from zmqdata.core.client.profile import ClientProfile
from zmqdata.measures.meter import LoopMeter
from zmqdata.measures.telemetry import NO_SPAN, OpenSpan, RecordedSpan
from zmqdata.measures.trace import ARRIVED, TraceRecorder, block_numbers, link_row

REPORT = 1.0
"""Seconds between two reports."""


class ClientTrace:
    """Records what a training loop does while the dispatcher asks for that.

    Args:
        meter: measures the loop.
        core: decider of the client.
        send: carries out a command to send a message.
        wall: returns the seconds since 1970.

    Attributes:
        recorder: records the spans.
    """

    def __init__(
        self,
        meter: LoopMeter,
        core: ClientCore,
        send: Callable[[e.Send], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._meter, self._core, self._send, self._wall = meter, core, send, wall
        job = core.profile.job.name
        self._name = f"client {platform.node()} pid {os.getpid()}, job {job}"[: m.MOST_LABEL]
        self.recorder = TraceRecorder(lambda: meter.clock(), wall, threading.Lock())
        self._reported = 0.0
        self._echoes = 0
        self._asked: tuple[str, float] | None = None
        self._clocks: tuple[float, float] | None = None  # error, and seconds ahead

    def takes(self, event: e.Received | e.ShutOut) -> bool:
        """Return True if an event belongs to traces, and handle it then."""
        if not isinstance(event, e.Received) or event.peer != e.DISPATCHER:
            return False
        message = event.message
        if isinstance(message, m.RecordSpans):
            self._record(message)
        elif isinstance(message, m.EchoSent):
            self._compare(message)
        else:
            return False
        return True

    def _record(self, ask: m.RecordSpans) -> None:
        if ask.trace != self.recorder.trace and ask.seconds > 0:
            self.recorder.begin(ask.trace, ask.seconds)
            self._meter.recorder = self.recorder
            self._reported, self._clocks = self.recorder.clock(), None
        if self.recorder.is_on:
            self._echoes += 1
            name = f"{ask.trace}-{self._echoes}"
            self._asked = (name, self.recorder.clock())
            self._send(e.Send(e.DISPATCHER, m.RequestEcho(name)))

    def _compare(self, echo: m.EchoSent) -> None:
        """Compare the clocks, as NTP does: the echo was sent in the middle of the round
        trip, give or take half of it.
        """
        if self._asked is None or self._asked[0] != echo.request:
            return
        half = (self.recorder.clock() - self._asked[1]) / 2
        found = (half, self._wall() - half - echo.clock)
        self._clocks = found if self._clocks is None else min(self._clocks, found)
        self._asked = None

    def arrived(self, event: e.Arrived) -> None:
        """Record that a block has arrived."""
        if self.recorder.is_on and isinstance(event.header, m.Block):
            header = event.header
            row = link_row(event.link)
            self.recorder.mark(header.task, row, ARRIVED, block_numbers(header))

    def look(self) -> None:
        """Report what is due. Must be called several times a second."""
        has_ended = self.recorder.look(self._meter.cut)
        if has_ended:
            self._meter.recorder = None
        if has_ended or (self.recorder.is_on and self.recorder.clock() - self._reported >= REPORT):
            self.report()

    def close(self) -> None:
        """Report the last spans, because the client ends."""
        if self.recorder.is_on:
            self._meter.cut()
            self._meter.recorder = None
            self.report()
            self.recorder.forget()

    def report(self) -> None:
        """Send the spans that were not sent yet."""
        self._reported = self.recorder.clock()
        error, ahead = self._clocks or (0.0, 0.0)
        is_first = True
        while True:
            first, spans = self.recorder.take(m.MOST_SPANS_TOLD)
            if not spans and not is_first:
                return
            is_first = False
            report = m.SpansReported(
                self._core.client, self.recorder.trace, first, spans, self._name, ahead, error
            )
            self._send(e.Send(e.DISPATCHER, report))


# --- OpenTelemetry


class CountingReader(Protocol):
    """A reader that counts the elements that its loop has taken."""

    @property
    def place(self) -> int:
        """Number of these elements."""


def begin_read_span(profile: ClientProfile) -> tuple[OpenSpan, ClientProfile]:
    """Begin the span of a read if ``ZMQDATA_OTEL`` says so. Return it, and the profile
    with it as parent of the tasks.

    Args:
        profile: profile of the client.

    Raises:
        ValueError: the API of OpenTelemetry is not installed.

    Example:
        >>> from zmqdata.messages import JobParameters
        >>> profile = ClientProfile("me", JobParameters("job", "d", "OFF"), 0, "tcp://d:1")
        >>> begin_read_span(profile)[0].traceparent
        ''
    """
    if not from_environment(TelemetrySettings, {}).otel:
        return NO_SPAN, profile
    job = profile.job
    known: dict[str, Any] = {
        "job": job.name,
        "mode": job.processing_mode,
        "repetition": profile.repetition,
    }
    if profile.reader.consumer_index is not None:
        known["consumer"] = profile.reader.consumer_index
    span = RecordedSpan(f"zmqdata read of {job.name}", known)
    return span, replace(profile, traceparent=span.traceparent)


def end_read_span(span: OpenSpan, reader: CountingReader, meter: LoopMeter) -> None:
    """End the span of a read.

    Args:
        span: the span.
        reader: counts the elements that the loop has taken.
        meter: measures the waits of the loop.
    """
    if span is NO_SPAN:
        return
    sums = meter.sums()
    told: dict[str, Any] = {
        "elements": reader.place,
        "seconds": sums.seconds,
        "waiting_seconds": sums.waiting,
    }
    if meter.first is not None:
        told["first_element_seconds"] = meter.first
    span.end(told)
