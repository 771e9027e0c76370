"""The socket on which a server answers Prometheus and probes.

The process that supervises a server opens it, so that the port stays the same when the
server is started again. A scrape that comes in between waits for the next process.
"""

from __future__ import annotations

import importlib.util
import socket

from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.machine.descriptors import is_shortage, shortage
from zmqdata.transport.addresses import announced_address, resolve_host

MOST_VISITORS = 16
"""Maximum number of connections that are served at a time, and that wait."""


def check_installed() -> None:
    """Raise an error if the package for metrics is missing.

    Raises:
        FailedPreconditionError: prometheus-client is not installed.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise FailedPreconditionError(
            "`metrics_port` is set, and the package prometheus-client is not installed here. "
            "Install it with `pip install 'zmqdata[metrics]'`, or leave `metrics_port` out"
        )


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens for scrapes.

    Args:
        host: address or name of this machine.
        port: TCP port; 0 for any free port.

    Raises:
        FailedPreconditionError: prometheus-client is not installed.
        InvalidArgumentError: the address does not exist here, or the port is in use.
    """
    check_installed()
    numeric = "0.0.0.0" if host == "*" else resolve_host(host)  # noqa: S104 - what the user asked for
    family = socket.AF_INET6 if ":" in numeric else socket.AF_INET
    made = None
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
        # Otherwise the remains of closed connections keep the port busy.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((numeric, port))
        made.listen(MOST_VISITORS)
    except OSError as error:
        if made is not None:
            made.close()
        if is_shortage(error):
            raise shortage("the socket of `metrics_port`") from None
        raise InvalidArgumentError(
            f"Cannot listen on `metrics_host`={host!r}, `metrics_port`={port}: {error.strerror}. "
            "Give another port, or 0 for any free port"
        ) from None
    return made


def address_of(listening: socket.socket, host: str) -> str:
    """Return the address of the metrics, as the ready line names it.

    Example:
        >>> with socket.create_server(("127.0.0.1", 0)) as found:
        ...     address_of(found, "127.0.0.1").startswith("http://127.0.0.1:")
        True
    """
    port = listening.getsockname()[1]
    return f"http://{announced_address(host, None, None, port)}/metrics"


def announcement(address: str, metrics: str | None) -> str:
    """Return the part of a ready line that names the addresses of a server.

    Example:
        >>> announcement("tcp://127.0.0.1:5050", "http://127.0.0.1:9100/metrics")
        'tcp://127.0.0.1:5050, metrics at http://127.0.0.1:9100/metrics'
    """
    return address if metrics is None else f"{address}, metrics at {metrics}"
