"""What the kernel counts of this process's TCP connections. libzmq does not show them,
so they are found by port.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection
from struct import Struct as Layout
from typing import NamedTuple

FOLDER = "/proc/self/fd"
_COUNTED_BYTES = 192
_RECEIVED = Layout("<Q")
_RECEIVED_AT = 128
_ACKED = Layout("<Q")
_ACKED_AT = 120
_TIMES = Layout(
    "<QQ"
)  # microseconds: busy sending, and of these, those in which the receiver had no room
_TIMES_AT = 168
_SILENT = Layout("<I")  # milliseconds
_SILENT_AT = 52


class Sent(NamedTuple):
    """What a connection has sent: bytes that were acknowledged, and seconds with some
    on their way.

    Time in which the receiver took nothing does not count: it says nothing of the
    network.
    """

    nbytes: int
    busy: float


def sent_by_port(ports: Collection[int]) -> dict[int, Sent]:
    """For each of our ports that somebody is connected to, what was sent over it: by
    the busiest connection, if many.

    A kernel that counts less, or one that is not Linux's, gives nothing.
    """
    found: dict[int, Sent] = {}
    if not ports:
        return found
    with contextlib.suppress(OSError):
        for name in os.listdir(FOLDER):
            port, told = _look(int(name))
            sent = _counts(told)
            if sent is not None and port in ports and (port not in found or sent > found[port]):
                found[port] = sent
    return found


class ConnectionCounts(NamedTuple):
    """What the kernel tells of a connection.

    ``acked``: bytes that the other side has acknowledged; ``received``: that came from
    it. ``silent``: seconds since anything came. ``inode``: its number, which no other
    one has while it is there.
    """

    port: int
    acked: int
    received: int
    silent: float
    inode: int


def told_of(descriptor: int) -> ConnectionCounts | None:
    """What is known of a connection of ours; None where there is none, or nobody
    tells.
    """
    port, told = _look(descriptor)
    sent = _counts(told)
    if sent is None:
        return None
    [received], [silent] = (
        _RECEIVED.unpack_from(told, _RECEIVED_AT),
        _SILENT.unpack_from(told, _SILENT_AT),
    )
    try:
        return ConnectionCounts(
            port, sent.nbytes, received, silent / 1e3, os.fstat(descriptor).st_ino
        )
    except OSError:
        return None


def connections_of(port: int) -> dict[int, ConnectionCounts] | None:
    """What is known of all connections that others have made to a port of ours, by
    descriptor; None: nothing is told.

    Where no descriptor is left, none is found.
    """
    if not hasattr(socket, "TCP_INFO") or not os.path.isdir(FOLDER):
        return None
    found: dict[int, ConnectionCounts] = {}
    with contextlib.suppress(OSError):
        for descriptor in map(int, os.listdir(FOLDER)):
            told = told_of(descriptor)
            if told is not None and told.port == port:
                found[descriptor] = told
    return found


def _look(descriptor: int) -> tuple[int, bytes]:
    """The local port of a connection, and what the kernel tells of it."""
    # libzmq may close its descriptor at any moment: that is an error here, or somebody
    # else's counts for once.
    if not hasattr(socket, "TCP_INFO"):
        return 0, b""
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        return 0, b""
    try:
        if (
            connection.family not in (socket.AF_INET, socket.AF_INET6)
            or connection.type != socket.SOCK_STREAM
        ):
            return 0, b""
        connection.getpeername()  # one that listens has none
        return connection.getsockname()[1], connection.getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, 256
        )
    except OSError:
        return 0, b""
    finally:
        connection.detach()


def _counts(told: bytes) -> Sent | None:
    if len(told) < _COUNTED_BYTES:
        return None
    [acked], (busy, full) = _ACKED.unpack_from(told, _ACKED_AT), _TIMES.unpack_from(told, _TIMES_AT)
    return Sent(acked, max(0, busy - full) / 1e6)
