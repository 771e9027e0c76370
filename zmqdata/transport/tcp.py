"""The kernel's statistics of this process's TCP connections. libzmq does not expose its
connections, so they are found by port.
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
_TIMES = Layout("<QQ")  # microseconds: busy sending, and of these, with a full receiver
_TIMES_AT = 168
_SILENT = Layout("<I")  # milliseconds
_SILENT_AT = 52


class Sent(NamedTuple):
    """Progress of a connection.

    Time in which the receiver had no room does not count, since it says nothing about
    the network.
    """

    nbytes: int
    """Bytes acknowledged by the receiver."""
    busy: float
    """Seconds with bytes in flight."""


def sent_by_port(ports: Collection[int]) -> dict[int, Sent]:
    """Return what was sent over each of the given local ports; of several connections
    of a port, the busiest counts.

    The result is empty on a kernel without these statistics, or on a system other than
    Linux.
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
    """The kernel's statistics of a connection."""

    port: int
    """Local port."""
    acked: int
    """Bytes sent and acknowledged by the peer."""
    received: int
    """Bytes received from the peer."""
    silent: float
    """Seconds since the last byte came."""
    inode: int
    """Inode of the socket; unique while the connection exists."""


def told_of(descriptor: int) -> ConnectionCounts | None:
    """Return the statistics of a connection of this process; None if it is not a
    connection, or the kernel has none.
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
    """Return the statistics of all connections accepted on a local port, by descriptor;
    None if the system has none.

    If no file descriptor is left, the result is empty.
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
    """Return the local port of a connection and its ``TCP_INFO``."""
    # libzmq may close the descriptor at any moment: then this fails, or reads the
    # statistics of an unrelated connection once.
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
        connection.getpeername()  # raises for a listening socket
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
