"""Dispatchers that this process has closed for good, so that no wait in this process
lasts for them.

Servers that stop for another reason may be started again, and are not recorded here.
"""

from __future__ import annotations

from functools import lru_cache

from zmqdata.config.endpoints import split_address
from zmqdata.transport.addresses import is_this_machine
from zmqdata.transport.handshakes import mechanism_of

_ports: set[int] = set()
_is_here = lru_cache(maxsize=64)(is_this_machine)


def note_closed(endpoint: str) -> None:
    """Record that this process has closed the dispatcher at a TCP endpoint of this
    machine, and that the dispatcher has ended.
    """
    _ports.add(_port_of(endpoint))


def why_closed(endpoint: str) -> str:
    """Return why no dispatcher answers at an endpoint that this process has closed, or
    an empty text if it has not.

    The closing is forgotten once another server listens there. Its greeting proves
    that, whereas its messages do not: a dispatcher may be quiet for long. Where no
    process listens, as after a closing, the question takes a tenth of a millisecond.
    """
    if not _ports:
        return ""
    port = _port_of(endpoint)
    if port not in _ports or not _is_here(endpoint):
        return ""
    if mechanism_of(endpoint) is not None:
        _ports.discard(port)
        return ""
    return (
        f"This process has closed the LocalCluster at {endpoint}, so no dispatcher answers there. "
        "Read before `close()`, or inside the `with` block, or make a new LocalCluster. If you "
        "start a dispatcher there yourself, read once it listens."
    )


def _port_of(endpoint: str) -> int:
    """Return the port of an endpoint; -1 for a path."""
    protocol, _, address = endpoint.partition("://")
    return split_address(address)[1] if protocol == "tcp" else -1
