"""Dispatchers that this process has closed for good, so that no wait in this process
lasts for them.

Servers that stop for another reason may be started again, and are not recorded here.
"""

from __future__ import annotations

import ipaddress

from zmqdata.config.endpoints import split_address

_closed: set[str] = set()


def note_closed(endpoint: str) -> None:
    """Record that this process has closed the dispatcher at an endpoint."""
    _closed.add(_without_alias(endpoint))


def note_opened(endpoint: str) -> None:
    """Record that this process has started a dispatcher at an endpoint."""
    _closed.discard(_without_alias(endpoint))


def why_closed(endpoint: str) -> str:
    """Return why no dispatcher answers at an endpoint that this process has closed, or
    an empty text if it has not.

    Example:
        >>> note_closed("tcp://127.0.0.1:9")
        >>> why_closed("tcp://localhost:9")[:53]
        'This process has closed the LocalCluster at tcp://loc'
        >>> note_opened("tcp://127.0.0.1:9")
        >>> why_closed("tcp://localhost:9")
        ''
    """
    if not _closed or _without_alias(endpoint) not in _closed:
        return ""
    return (
        f"This process has closed the LocalCluster at {endpoint}, so no dispatcher answers there. "
        "Read before `close()`, or inside the `with` block, or make a new LocalCluster."
    )


def _without_alias(endpoint: str) -> str:
    """Return an endpoint in which all names of this machine's loopback are equal. It
    asks no name server.
    """
    protocol, _, address = endpoint.partition("://")
    if protocol != "tcp":
        return endpoint
    host, port = split_address(address)
    try:
        is_alias = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_alias = False
    return f"loopback:{port}" if is_alias else endpoint
