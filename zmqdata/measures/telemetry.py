"""Spans of OpenTelemetry: one for each read of a client, and one for each attempt of a
task on a worker, which is its child.

They are off by default, and nothing is imported then. The program configures the SDK
and its exporters as usual. Only the API is needed here.

Decision 0046; protocol 11.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

PREFIX = "zmqdata."
"""Beginning of the names of all attributes."""


class OpenSpan(Protocol):
    """A span that has begun."""

    @property
    def traceparent(self) -> str:
        """The span as a W3C ``traceparent``, for its children in other processes; empty
        if it is not recorded.
        """

    def fail(self, error: BaseException) -> None:
        """Record an error, with which the span will end."""

    def end(self, attributes: Mapping[str, Any]) -> None:
        """End the span, the first time that this is called.

        Args:
            attributes: further attributes, without ``PREFIX``.
        """


class SilentSpan:
    """Stands for a span while none are wanted.

    Example:
        >>> SilentSpan().traceparent
        ''
    """

    traceparent = ""

    def fail(self, error: BaseException) -> None:
        """Do nothing."""

    def end(self, attributes: Mapping[str, Any]) -> None:
        """Do nothing."""


NO_SPAN = SilentSpan()
"""The span while none are wanted."""


class RecordedSpan:
    """A span of OpenTelemetry. It begins when it is made.

    Args:
        name: its name.
        attributes: attributes that are known, without ``PREFIX``.
        parent: its parent as a ``traceparent``; empty: the current span.
    """

    def __init__(self, name: str, attributes: Mapping[str, Any], parent: str = "") -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._propagator = TraceContextTextMapPropagator()
        self._in_context = trace.set_span_in_context
        # A parent that cannot be read makes a span without a parent.
        context = self._propagator.extract({"traceparent": parent}) if parent else None
        self._span = trace.get_tracer("zmqdata").start_span(
            name, context, attributes=_named(attributes)
        )
        self._failed = trace.StatusCode.ERROR
        self._has_ended = False

    @property
    def traceparent(self) -> str:
        """The span as a W3C ``traceparent``; empty if it is not recorded."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._in_context(self._span))
        return carrier.get("traceparent", "")

    def fail(self, error: BaseException) -> None:
        """Record an error, with which the span will end."""
        self._span.record_exception(error)
        self._span.set_status(self._failed, f"{type(error).__name__}: {error}")

    def end(self, attributes: Mapping[str, Any]) -> None:
        """End the span, the first time that this is called."""
        if not self._has_ended:
            self._has_ended = True
            self._span.set_attributes(_named(attributes))
            self._span.end()


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{PREFIX}{name}": value for name, value in attributes.items()}
