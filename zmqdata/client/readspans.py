"""The span of OpenTelemetry of a client's read, whose children are the attempts of the
iteration's tasks.

Protocol 11.6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zmqdata.client.shell import ReaderShell
from zmqdata.config.settings import from_environment
from zmqdata.config.telemetry import TelemetrySettings
from zmqdata.core.client.profile import ClientProfile
from zmqdata.measures.meter import LoopMeter
from zmqdata.telemetry import SILENT, OpenSpan, RecordedSpan


def begun(profile: ClientProfile) -> tuple[OpenSpan, ClientProfile]:
    """Begin the span of a read if ``ZMQDATA_OTEL`` says so. Return it, and the profile
    with it as parent of the tasks.

    Args:
        profile: profile of the client.

    Raises:
        ValueError: the API of OpenTelemetry is not installed.

    Example:
        >>> from zmqdata.messages import JobParameters
        >>> profile = ClientProfile("me", JobParameters("job", "d", "OFF"), 0, "tcp://d:1")
        >>> begun(profile)[0].traceparent
        ''
    """
    if not from_environment(TelemetrySettings, {}).otel:
        return SILENT, profile
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


def end(span: OpenSpan, shell: ReaderShell, meter: LoopMeter) -> None:
    """End the span of a read.

    Args:
        span: the span.
        shell: counts the elements that the loop has taken.
        meter: measures the waits of the loop.
    """
    if span is SILENT:
        return
    sums = meter.sums()
    told: dict[str, Any] = {
        "elements": shell.place,
        "seconds": sums.seconds,
        "waiting_seconds": sums.waiting,
    }
    if meter.first is not None:
        told["first_element_seconds"] = meter.first
    span.end(told)
