"""The settings that select where a server answers Prometheus and probes. They have
their own module because dispatcher and worker share them.
"""

from __future__ import annotations

from zmqdata.config.checks import MOST_PORT
from zmqdata.config.settings import setting


def metrics_port_setting(more: str = "") -> int | None:
    """Declare the setting for the port of the metrics.

    Args:
        more: further words about the port.
    """
    return setting(
        None,
        "TCP port on which the server answers /metrics, /healthz and /readyz by HTTP; 0: any free "
        f"port, which the ready line names{more}; none: it does not; needs zmqdata[metrics]",
        least=0,
        most=MOST_PORT,
    )


def metrics_host_setting() -> str:
    """Declare the setting for the interface of the metrics."""
    return setting(
        "127.0.0.1",
        "address or name of this machine on which metrics_port listens; 0.0.0.0: every interface; "
        "any process that can reach it may read the metrics, without a key",
        metavar="ADDR",
    )


def metrics_names_setting() -> tuple[str, ...]:
    """Declare the setting for the names under which the metrics may be asked for."""
    return setting(
        (),
        "host name by which a scraper may ask metrics_port, such as that of a Kubernetes Service, "
        "in addition to addresses and the names of this machine",
        flag="--metrics-name",
        metavar="NAME",
    )
