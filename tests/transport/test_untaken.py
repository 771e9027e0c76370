"""What a peer has not taken of large answers is known, on a real connection."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest
import zmq

from zmqdata.testing.cluster import await_condition
from zmqdata.transport import sockets
from zmqdata.transport.untaken import LARGE, MOST, Untaken

SIZE = 4 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a connection has carried")


def test_who_takes_nothing_gets_no_more() -> None:
    """So much of large answers waits for a peer as may; small ones do not count, and what it takes makes room."""
    untaken = Untaken()
    with sockets.new_context() as context:
        router, endpoint = sockets.control_router(context, "tcp://127.0.0.1:0", 10_000)
        dealer = context.socket(zmq.DEALER)
        dealer.linger, dealer.rcvhwm = 0, 1
        with closing(router), closing(dealer):
            dealer.connect(endpoint)
            dealer.send(b"hello")
            assert router.poll(10_000)
            peer, *frames = router.recv_multipart(copy=False)
            name = peer.bytes
            untaken.heard(name, frames)

            def answer() -> bool:
                fits = untaken.has_room(name, SIZE)
                if fits:
                    router.send_multipart([name, bytes(SIZE)])
                return fits

            await_condition(lambda: not answer(), what="the limit")
            assert untaken.has_room(name, LARGE - 1)
            assert untaken.has_room(b"somebody else", SIZE)
            while dealer.poll(500):
                dealer.recv()
            await_condition(answer, what="room again")
            assert dealer.poll(10_000)


def test_one_answer_may_be_larger_than_all_that_may_wait() -> None:
    """Whoever has taken everything gets any answer."""
    untaken = Untaken()
    with sockets.new_context() as context:
        router, endpoint = sockets.control_router(context, "tcp://127.0.0.1:0", 10_000)
        dealer = context.socket(zmq.DEALER)
        with closing(router), closing(dealer):
            dealer.connect(endpoint)
            dealer.send(b"hello")
            assert router.poll(10_000)
            peer, *frames = router.recv_multipart(copy=False)
            untaken.heard(peer.bytes, frames)
            assert [untaken.has_room(peer.bytes, MOST + 1) for _ in range(2)] == [True, False]
            untaken.lost(peer.bytes)
            assert untaken.has_room(peer.bytes, MOST + 1)
