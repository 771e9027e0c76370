"""Dispatchers that are closed for good, so that no wait lasts for them.

A dispatcher with a journal that is stopped may be started again, and its clients
continue. It counts as closed only if its cluster is closed. A dispatcher that closes
for good tells its clients, and this module tells the waits of the process that has
closed it.
"""

from __future__ import annotations

from functools import lru_cache

from zmqdata.config.endpoints import split_address
from zmqdata.transport.addresses import is_this_machine
from zmqdata.transport.handshakes import mechanism_of

LAST_LIFE = "last-life"
"""File in the work folder that a cluster lends, from the moment at which the cluster
closes: the folder is removed after this life of the dispatcher.
"""
SAVES = "saves"
"""File in the work folder of a dispatcher: the path of each distributed save, as JSON,
one a line.
"""
_CLUSTER = "LocalCluster"
_ports: dict[int, str] = {}
"""Class of the closed object, by the port of its dispatcher."""
_is_here = lru_cache(maxsize=64)(is_this_machine)


def note_closed(endpoint: str, what: str = _CLUSTER) -> None:
    """Record that this process has closed the dispatcher at a TCP endpoint of this
    machine, and that the dispatcher has ended.

    Args:
        endpoint: the endpoint.
        what: class of the closed object.
    """
    _ports[_port_of(endpoint)] = what


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
        _ports.pop(port, None)
        return ""
    what = _ports.get(port, _CLUSTER)
    done, call = ("closed", "close()") if what == _CLUSTER else ("stopped", "stop()")
    return (
        f"This process has {done} the {what} at {endpoint}, so no dispatcher answers there. "
        f"Read before `{call}`, or inside the `with` block, or make a new {what}. If you "
        "start a dispatcher there yourself, read once it listens."
    )


def _port_of(endpoint: str) -> int:
    """Return the port of an endpoint; -1 for a path."""
    protocol, _, address = endpoint.partition("://")
    return split_address(address)[1] if protocol == "tcp" else -1
