"""Tests of the sockets that a worker binds for its clients."""

from __future__ import annotations

import pytest
import zmq

from zmqdata.config.worker import WorkerConfig
from zmqdata.core.worker import events as e
from zmqdata.transport.addresses import host_token
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects
from zmqdata.transport.sockets import NEAR_SEND_BYTES
from zmqdata.worker.links import LinkSockets


@pytest.mark.parametrize("near", [True, False])
def test_little_waits_in_the_kernel_for_a_client_that_shows_this_host(near: bool) -> None:
    """Even over TCP, a client on the worker's host gets a socket with small buffers.
    Any other client may be anywhere.
    """
    config, told = WorkerConfig("127.0.0.1:1", insecure=True), list[object]()
    loop = Loop("test", lambda: None)
    with zmq.Context() as context:
        links = LinkSockets(
            context, loop, config, lambda port: f"127.0.0.1:{port}", told.append, Rejects(), None
        )
        links.bind(e.BindLink("link", host_token() if near else "elsewhere", ("tcp",)))
        kept = links._links["link"].socket.get(zmq.SNDBUF)
        links.close()
        loop.discard()
    assert [type(one) for one in told] == [e.LinkBound]
    assert kept == (NEAR_SEND_BYTES if near else -1)
