"""The monitor of a server, if its configuration asks for one.

``serving`` is imported only then: it brings the whole of ``http``, which no other part
of a server needs, and which each worker process would have to load.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from zmqdata.metrics.declared import Metric
from zmqdata.metrics.listening import listener

if TYPE_CHECKING:
    from zmqdata.metrics.serving import Monitor


class MetricsConfig(Protocol):
    """The configuration of a server, as far as it concerns metrics."""

    @property
    def metrics_port(self) -> int | None:
        """Port of the metrics; None if they are not shown."""

    @property
    def metrics_host(self) -> str:
        """Host on which this port is."""

    @property
    def metrics_names(self) -> tuple[str, ...]:
        """Further names under which the metrics may be asked for."""


def monitor_of(
    config: MetricsConfig,
    listening: socket.socket | None,
    role: str,
    metrics: Sequence[Metric],
    begins: str,
) -> Monitor | None:
    """Return the monitor of a server; None if its configuration has no port for it.

    Args:
        config: configuration of the server.
        listening: socket to use; None to open one.
        role: as for ``Monitor``, like the other arguments.
        metrics: see there.
        begins: see there.
    """
    if config.metrics_port is None:
        return None
    from zmqdata.metrics.serving import Monitor

    made = listening or listener(config.metrics_host, config.metrics_port)
    return Monitor(made, config.metrics_host, role, metrics, begins, config.metrics_names)
