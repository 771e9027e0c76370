"""Tests of unread large answers and silent peers, on real connections."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import ExitStack, closing

import pytest
import zmq

from zmqdata.testing.cluster import await_condition
from zmqdata.transport import sockets
from zmqdata.transport.connections import LARGE, MOST_UNTAKEN, Connections

SIZE = 4 << 20

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts what a connection has carried"
)


class Ends:
    """A ROUTER and its peers, each heard once."""

    def __init__(self, silence: float = 60.0) -> None:
        self._stack = ExitStack()
        self._context = self._stack.enter_context(sockets.new_context())
        self.router, self._endpoint = sockets.control_router(
            self._context, "tcp://127.0.0.1:0", 10_000
        )
        self._stack.enter_context(closing(self.router))
        self.connections = Connections(int(self._endpoint.rpartition(":")[2]), silence, SIZE)

    def join(self, **options: object) -> tuple[bytes, zmq.Socket[bytes]]:
        dealer = self._stack.enter_context(closing(self._context.socket(zmq.DEALER)))
        dealer.linger = 0
        for name, value in options.items():
            setattr(dealer, name, value)
        dealer.connect(self._endpoint)
        dealer.send(b"hello")
        assert self.router.poll(10_000)
        peer, *frames = self.router.recv_multipart(copy=False)
        self.connections.heard(peer.bytes, frames, time.monotonic())
        return peer.bytes, dealer

    def is_there(self, peer: bytes) -> bool:
        try:
            self.router.send_multipart([peer, b"still there?"], zmq.NOBLOCK)
        except zmq.Again:
            return True
        except zmq.ZMQError:
            return False
        return True

    def close(self) -> None:
        self._stack.close()


def test_who_takes_nothing_gets_no_more() -> None:
    """A peer that reads nothing gets no large answers beyond a limit, until it reads
    again. Small answers do not count.
    """
    with closing(Ends()) as ends:
        connections = ends.connections
        name, dealer = ends.join(rcvhwm=1)

        def answer() -> bool:
            fits = connections.has_room(name, SIZE)
            if fits:
                ends.router.send_multipart([name, bytes(SIZE)])
            return fits

        await_condition(lambda: not answer(), what="the limit")
        assert connections.has_room(name, LARGE - 1)
        assert connections.has_room(b"somebody else", SIZE)

        def take_and_ask() -> bool:
            while dealer.poll(0):
                dealer.recv()
            return answer()

        await_condition(take_and_ask, what="room again")
        assert dealer.poll(10_000)


def test_one_answer_may_be_larger_than_all_that_may_wait() -> None:
    """A peer without unread answers gets an answer of any size."""
    with closing(Ends()) as ends:
        name, _ = ends.join()
        assert [ends.connections.has_room(name, MOST_UNTAKEN + 1) for _ in range(2)] == [
            True,
            False,
        ]
        ends.connections.lost(name)
        assert ends.connections.has_room(name, MOST_UNTAKEN + 1)


def test_a_name_that_comes_back_is_another_connection() -> None:
    """A peer that returns under its chosen name counts as a new connection. The server
    counts the acknowledgements of that connection alone.
    """
    with closing(Ends()) as ends:
        before = set(os.listdir("/proc/self/fd"))
        name, first = ends.join(routing_id=b"chosen")
        old = ends.connections._of[name].descriptor
        first.close()
        await_condition(lambda: not ends.is_there(name), what="its end")
        await_condition(
            lambda: set(os.listdir("/proc/self/fd")) <= before, what="the end of both of its sides"
        )
        other, _ = ends.join()
        ends.join(routing_id=b"chosen")
        known = ends.connections._of
        assert known[other].descriptor == old, "the system gives the lowest number that is free"
        assert known[name].descriptor != old


def test_a_silent_connection_is_ended() -> None:
    """A connection without heartbeats is closed after a timeout; an active connection
    stays.
    """
    with closing(Ends(silence=3.0)) as ends:
        silent, _ = ends.join()
        beating, _ = ends.join(heartbeat_ivl=100)

        def is_gone() -> bool:
            ends.connections.end_silent(time.monotonic())
            return not ends.is_there(silent)

        await_condition(is_gone, what="its end")
        assert ends.is_there(beating)
        assert ends.connections.has_room(beating, MOST_UNTAKEN + 1)
        assert not ends.connections.has_room(beating, MOST_UNTAKEN + 1)  # it is still tracked


def test_somebody_else_s_connection_is_left_alone() -> None:
    """A descriptor reused after libzmq closed it is left alone, as its port is not the
    server's.
    """
    with closing(Ends(silence=0.0)) as ends, socket.create_server(("127.0.0.1", 0)) as server:
        name, _ = ends.join()
        with (
            socket.create_connection(server.getsockname()) as other,
            server.accept()[0] as accepted,
        ):
            ends.connections._of[name].descriptor = other.fileno()
            ends.connections.end_silent(1.0)
            assert ends.connections.has_room(name, MOST_UNTAKEN + 1)
            accepted.sendall(b"x")
            assert other.recv(1) == b"x"
