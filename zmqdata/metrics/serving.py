"""The HTTP server of a dispatcher or worker: ``/metrics`` for Prometheus, ``/healthz``
and ``/readyz`` for probes.

It answers in threads of its own. For metrics it asks the server's loop for a snapshot
and waits for a bounded time, so that a scrape never blocks the loop, and a loop that
hangs never blocks a scrape.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from zmqdata.machine import installed_version
from zmqdata.metrics.declared import CONSTANT, COUNTER, SUMMARY, Metric, Samples
from zmqdata.metrics.listening import MOST_VISITORS, address_of
from zmqdata.transport.loop import Loop
from zmqdata.transport.visitors import HostNames, Visit, VisitorServer

log = logging.getLogger(__name__)
T = TypeVar("T")

LOOP_PATIENCE = 5.0
"""Seconds for which a scrape waits for the loop: half of Prometheus' timeout."""
STILL = 10.0
"""Seconds without a turn of the loop after which the server counts as hanging."""
KEPT = 0.5
"""Seconds for which a snapshot answers further scrapes."""


class Watched(Protocol):
    """A server of which the metrics are shown."""

    def look(self) -> Generator[None, None, Any]:
        """Return a snapshot, in steps between which the loop may do other things.
        Called in the loop's thread.
        """

    def samples(self, seen: Any) -> Samples:
        """Return the samples of a snapshot. Called in one other thread at a time."""


def ask(loop: Loop, steps: Generator[None, None, T], seconds: float) -> T:
    """Return what the thread of a loop makes in several steps. Whatever waits for the
    loop gets its turn between two steps.

    Args:
        loop: the loop.
        steps: makes a step until it returns.
        seconds: maximum time to wait.

    Raises:
        TimeoutError: the loop has not made all steps within this time.
    """
    answers: SimpleQueue[tuple[T | None, Exception | None]] = SimpleQueue()
    given_up = threading.Event()

    def step() -> None:
        try:
            next(steps)
        except StopIteration as end:
            answers.put((end.value, None))
        except Exception as error:
            answers.put((None, error))
        else:
            if not given_up.is_set():
                loop.post(step)

    loop.post(step)
    try:
        found, error = answers.get(timeout=seconds)
    except Empty:
        given_up.set()
        raise TimeoutError(f"The loop has not answered within {seconds:g} s.") from None
    if error is not None:
        raise error
    return found  # type: ignore[return-value]  # of the last step


class Monitor:
    """Answers scrapes and probes for a server.

    It answers from its creation on. Until ``watch`` is called the server is alive and
    not ready.

    Args:
        listening: socket that listens; it is closed with the monitor.
        host: host that the user gave for it.
        role: role of the server.
        metrics: the metrics of the server.
        begins: what the server does until ``watch`` is called, for ``/readyz``.
        names: further names under which the metrics may be asked for.

    Attributes:
        address: the address of the metrics, for users.
    """

    def __init__(
        self,
        listening: socket.socket,
        host: str,
        role: str,
        metrics: Sequence[Metric],
        begins: str,
        names: Sequence[str] = (),
    ) -> None:
        self.address = address_of(listening, host)
        self._build, self._metrics = (installed_version(), role), metrics
        self._waits_for: Callable[[], str] = lambda: begins
        self._watched: tuple[Loop, Watched] | None = None
        self._turned: float | None = None
        self._kept: tuple[float, bytes, str] | None = None
        self._one_at_a_time = threading.Lock()
        self._server = _MetricsServer(listening, self, HostNames([host, *names]))
        self._server.start()

    def watch(self, loop: Loop, watched: Watched, waits_for: Callable[[], str]) -> None:
        """Show the metrics of a server whose loop is about to run.

        Args:
            loop: its loop.
            watched: makes snapshots of it.
            waits_for: returns what the server waits for before it is ready; empty if it
                is ready. Called in any thread.
        """
        # A loop that hangs in its first turn hangs, too.
        self._watched, self._waits_for, self._turned = (loop, watched), waits_for, time.monotonic()

    def turned(self) -> None:
        """Record that the loop has turned."""
        self._turned = time.monotonic()

    def close(self) -> None:
        """Stop answering, and close the socket."""
        self._server.stop()

    # --- in the threads of visitors

    def healthz(self) -> tuple[int, str]:
        """Return the status and text of ``/healthz``."""
        still = 0.0 if self._turned is None else time.monotonic() - self._turned
        if still > STILL:
            return 503, f"The loop has not turned for {still:.0f} s.\n"
        return 200, "alive\n"

    def readyz(self) -> tuple[int, str]:
        """Return the status and text of ``/readyz``."""
        status, text = self.healthz()
        waits_for = self._waits_for()
        if status == 200 and waits_for:
            return 503, f"{waits_for}\n"
        return (status, text) if status != 200 else (200, "ready\n")

    def scrape(self, accepted: str) -> tuple[int, bytes, str]:
        """Return status, text and content type of ``/metrics``.

        Args:
            accepted: the formats that the visitor accepts, as in HTTP.
        """
        from prometheus_client.exposition import choose_encoder

        try:
            encoder, kind = choose_encoder(accepted)
        except (TypeError, ValueError):  # of a version that is no number
            encoder, kind = choose_encoder("")
        with self._one_at_a_time:
            now = time.monotonic()
            kept = self._kept
            if kept is not None and now - kept[0] < KEPT and kept[2] == kind:
                return 200, kept[1], kind
            if self._watched is None:
                return 503, b"The server is starting.\n", TEXT
            loop, watched = self._watched
            try:
                seen = ask(loop, watched.look(), LOOP_PATIENCE)
            except TimeoutError as error:
                return 503, f"{error}\n".encode(), TEXT
            text: bytes = encoder(_registry(self._metrics, self._build, watched.samples(seen)))
            self._kept = now, text, kind
            return 200, text, kind


TEXT = "text/plain; charset=utf-8"
UNKNOWN = (
    "The name {!r} is not known to this server. Ask by an address, or start the server with "
    "`--metrics-name` and this name.\n"
)


def _registry(metrics: Sequence[Metric], build: tuple[str, str], samples: Samples) -> Any:
    """Return a registry of prometheus-client that collects samples."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        InfoMetricFamily,
        SummaryMetricFamily,
    )

    def families() -> Any:
        for metric in metrics:
            labels = metric.labels
            if metric.kind == CONSTANT:
                known = dict(zip(labels, build, strict=True))
                yield InfoMetricFamily(metric.name, metric.meaning, value=known)
                continue
            if metric.kind == SUMMARY:
                summary = SummaryMetricFamily(metric.name, metric.meaning, labels=labels)
                sums, counts = (samples.get(name, {}) for name in metric.shown)
                for values, total in sums.items():
                    summary.add_metric(values, int(counts.get(values, 0.0)), total)
                yield summary
                continue
            kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.meaning, labels=labels)
            at_first: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}
            for values, value in samples.get(metric.name, at_first).items():
                family.add_metric(values, value)
            yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    ProcessCollector(registry=registry)
    return registry


class _Collector:
    """A custom collector of prometheus-client."""

    def __init__(self, families: Callable[[], Any]) -> None:
        self.collect = families


class _MetricsServer(VisitorServer):
    """Serves scrapes and probes."""

    def __init__(self, listening: socket.socket, monitor: Monitor, names: HostNames) -> None:
        super().__init__(listening, _MetricsVisit, MOST_VISITORS, "zmqdata-metrics")
        self.monitor, self.names = monitor, names


class _MetricsVisit(Visit):
    """Answers a scrape or a probe."""

    server: _MetricsServer

    def visit(self) -> None:
        """Answer the request."""
        path, monitor = self.path.partition("?")[0], self.server.monitor
        host = self.headers.get("Host")
        if path == "/metrics" and host is not None and not self.server.names.has(host):
            self.answer(421, UNKNOWN.format(host[:80]))
        elif path == "/metrics":
            try:
                status, content, kind = monitor.scrape(self.headers.get("Accept", ""))
            except Exception:
                log.exception("the metrics cannot be shown")
                status, kind = 500, TEXT
                content = b"The metrics cannot be shown. The log says why.\n"
            self.answer(status, content, kind)
        elif path in ("/healthz", "/readyz"):
            status, text = monitor.healthz() if path == "/healthz" else monitor.readyz()
            self.answer(status, text)
        else:
            self.answer(404, "Ask for /metrics, /healthz or /readyz.\n")
