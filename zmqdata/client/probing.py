"""Measurements of the connection to a server: whether it answers, how long a round trip
takes, how its clock differs from the local clock, and how many bytes arrive per second.

The bytes travel on the control connection, with the encryption of the cluster and
without compression. Every measurement has a limit of time and of bytes.

Protocol 3.17.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.client.calls import client_context, converse, new_request, read_status
from zmqdata.errors import ProtocolError
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.transport import sockets
from zmqdata.transport.keychoice import shown_key

AnsweredT = TypeVar("AnsweredT", bound=m.Message)

ROUND_TRIPS = 5
"""Number of round trips, of which the fastest counts."""
AHEAD = 32
"""Number of echoes that are requested ahead, so that a distant server does not wait for
requests.
"""


@dataclass(frozen=True)
class ServerAnswer:
    """The answer of a server, and the time that it took."""

    status: dict[str, Any] = field(repr=False)
    """Its state, as plain data."""
    round_trip: float
    """Seconds of the fastest round trip."""
    clock_ahead: float
    """Seconds by which its clock is ahead of the local clock, exact to half a round
    trip.
    """


class MeasuredConnection:
    """An open control connection to a server. Use ``measured`` to open one.

    Args:
        endpoint: address of the server, as ZeroMQ takes it.
        role: kind of server.
    """

    def __init__(self, endpoint: str, role: str) -> None:
        self._endpoint = endpoint
        with shortage_explained(f"a connection to {endpoint}"):
            self._socket, self._handshakes = sockets.control_dealer(
                client_context(), endpoint, shown_key(), role
            )

    def ask(
        self, make_ask: Callable[[str], m.Message], kind: type[AnsweredT], until: float
    ) -> AnsweredT:
        """Send a request until it is answered.

        Args:
            make_ask: returns the request with an id.
            kind: class of the answer.
            until: time of ``time.monotonic`` at which to give up.

        Raises:
            DataServiceError: as ``answer`` does, or the server refuses.
        """
        request = new_request()
        ask = make_ask(request)
        left = max(0.0, until - time.monotonic())
        return converse(self._socket, self._handshakes, self._endpoint, ask, kind, request, left)

    def answer(self, until: float) -> ServerAnswer:
        """Return the state of the server, and the time that a round trip takes.

        Args:
            until: time of ``time.monotonic`` at which to give up.

        Raises:
            UnavailableError: the server has not answered in time, or sends no status.
            PermissionDeniedError: the server does not accept this client's key.
            VersionMismatchError: the server speaks another version of the protocol.
        """
        report = self.ask(m.RequestStatus, m.StatusReported, until)
        status = read_status(report, self._endpoint)
        seconds, ahead = self.clock(until)
        return ServerAnswer(status, seconds, ahead)

    def clock(self, until: float) -> tuple[float, float]:
        """Return the seconds of the fastest of some round trips, and those by which the
        server's clock is ahead, exact to half of them.

        Args:
            until: time of ``time.monotonic`` at which to give up.

        Raises:
            DataServiceError: as ``answer`` does.
        """
        return min(self._round_trip(until) for _ in range(ROUND_TRIPS))

    def _round_trip(self, until: float) -> tuple[float, float]:
        """Return the seconds of a round trip, and those by which the server's clock is
        ahead.
        """
        sent, began = time.time(), time.perf_counter()
        echo = self.ask(m.RequestEcho, m.EchoSent, until)
        seconds = time.perf_counter() - began
        return seconds, echo.clock - (sent + seconds / 2)

    def throughput(self, seconds: float, most_bytes: int) -> float | None:
        """Return how many bytes of echoes arrive in a second; None if none arrives.

        Args:
            seconds: limit of the measurement.
            most_bytes: number of bytes after which it ends.
        """
        wanted, arrived = set[str](), 0
        began = time.perf_counter()
        left = seconds
        requested = -(-most_bytes // m.MOST_ECHO_BYTES)
        while left > 0 and arrived < most_bytes:
            while requested and len(wanted) < AHEAD:
                wanted.add(request := new_request())
                self._socket.send_multipart(wire.pack(m.RequestEcho(request, m.MOST_ECHO_BYTES)))
                requested -= 1
            if self._socket.poll(max(1, int(left * 1000))):
                arrived += self._received(wanted)
            left = seconds - (time.perf_counter() - began)
        return arrived / (time.perf_counter() - began) if arrived else None

    def _received(self, wanted: set[str]) -> int:
        try:
            message: m.Message = wire.to_client.control(self._socket.recv_multipart())
        except ProtocolError:
            return 0
        if not isinstance(message, m.EchoSent) or message.request not in wanted:
            return 0
        wanted.remove(message.request)
        return len(message.content)

    def close(self) -> None:
        """Close the connection. Echoes that are under way are dropped."""
        self._handshakes.close()
        self._socket.close(linger=0)


@contextmanager
def measured(endpoint: str, role: str) -> Iterator[MeasuredConnection]:
    """Return a context manager with an open connection to a server.

    Args:
        endpoint: address of the server, as ZeroMQ takes it.
        role: ``"dispatcher"`` or ``"worker"``.

    Example:
        >>> from zmqdata.dispatcher.server import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     with measured(dispatcher.target, "dispatcher") as connection:
        ...         answer = connection.answer(time.monotonic() + 10)
        >>> answer.status["workers"], answer.round_trip > 0
        ([], True)
    """
    connection = MeasuredConnection(endpoint, role)
    try:
        yield connection
    finally:
        connection.close()
