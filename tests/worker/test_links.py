"""Tests of the sockets that a worker binds for its clients."""

from __future__ import annotations

from typing import Any

import pytest
import zmq

from zmqdata.config.worker import WorkerConfig
from zmqdata.core.worker import events as e
from zmqdata.machine import descriptors
from zmqdata.transport.access import Visitor
from zmqdata.transport.addresses import host_token
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects
from zmqdata.transport.sockets import NEAR_SEND_BYTES
from zmqdata.worker.links import OF_LINK, LinkSockets, domain_of


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


def test_a_client_that_comes_too_late_is_no_stranger() -> None:
    """The secret of a link opens it once. Shown after the link was closed, perhaps to
    another link that has its port, it is that of a late client; any other secret is
    that of a stranger.
    """
    config, told = WorkerConfig("127.0.0.1:1", insecure=True), list[e.LinkBound]()
    loop = Loop("test", lambda: None)
    with zmq.Context() as context:
        links = LinkSockets(
            context, loop, config, lambda port: f"127.0.0.1:{port}", told.append, Rejects(), None
        )
        for name in ("one", "two"):
            links.bind(e.BindLink(name, "elsewhere", ("tcp",)))
        one, two = (bound.secret.encode() for bound in told)

        def visit(name: str, secret: bytes) -> Visitor:
            return links.visitor(domain_of(name), b"PLAIN", [b"me", secret])

        assert visit("one", two) is Visitor.STRANGER
        assert visit("one", one) is Visitor.CLIENT
        assert visit("one", one) is Visitor.STRANGER
        links.unbind(e.UnbindLink("one"))
        assert [visit("one", one), visit("two", one)] == [Visitor.LATE, Visitor.LATE]
        assert visit("one", b"guess") is Visitor.STRANGER
        assert visit("two", two) is Visitor.CLIENT
        links.close()
        loop.discard()


def test_links_whose_clients_are_on_their_way_keep_their_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link is refused with a remedy while the descriptors that are left are those of
    links that were granted before. When a client has connected, it has its own.
    """
    config, told = WorkerConfig("127.0.0.1:1", insecure=True), list[Any]()
    loop = Loop("test", lambda: None)
    monkeypatch.setattr(descriptors, "left", lambda: 2 * OF_LINK)
    with zmq.Context() as context:
        links = LinkSockets(
            context, loop, config, lambda port: f"127.0.0.1:{port}", told.append, Rejects(), None
        )
        for name in ("one", "two", "three"):
            links.bind(e.BindLink(name, "elsewhere", ("tcp",)))
        assert [bound.error == "" for bound in told] == [True, True, False]
        assert f"needs {3 * OF_LINK} file descriptors" in told[2].error
        assert "raise the limit" in told[2].error
        secret = told[0].secret.encode()
        assert links.visitor(domain_of("one"), b"PLAIN", [b"me", secret]) is Visitor.CLIENT
        links.bind(e.BindLink("three", "elsewhere", ("tcp",)))
        assert told[3].error == ""
        links.close()
        loop.discard()
