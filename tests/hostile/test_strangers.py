"""Tests of peers without the right key: no server decodes their messages, or sends them
anything.
"""

from __future__ import annotations

import socket as plain
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
import zmq
from zmq.utils.monitor import parse_monitor_message

from benchmarks.attackers import place_of, recorded
from tests.hostile.conftest import (
    NOTHING_COMES,
    Peer,
    Service,
    check_serves,
    endpoints,
    examples,
    kinds,
    servers,
    wait_until,
)
from zmqdata import Dataset, wire
from zmqdata import messages as m
from zmqdata.transport import sockets
from zmqdata.transport.keychoice import own_key
from zmqdata.transport.keys import Key, new_key

UNREADABLE = [wire.MAGIC, b"\xc1"]
"""Bytes that no decoder accepts. A server that tried would have counted them."""


@pytest.fixture
def connect() -> Iterator[Callable[..., tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]]:
    """Make a stranger's sockets, each with a monitor of the end of its connection, or
    of a successful handshake.
    """
    context, made = zmq.Context(), []
    ended = (
        zmq.Event.HANDSHAKE_FAILED_AUTH
        | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
        | zmq.Event.DISCONNECTED
    )

    def connect(
        endpoint: str,
        show: Callable[[zmq.Socket[bytes]], None],
        kind: int = zmq.DEALER,
        until: int = ended,
        says: Sequence[Sequence[bytes]] = (),
    ) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
        socket = context.socket(kind)
        socket.linger = 0
        show(socket)
        monitor = socket.get_monitor_socket(until | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL)
        made.append((socket, monitor))
        socket.connect(endpoint)
        # Sending must not wait: a refused peer has no connection to send on, and would
        # wait forever.
        with suppress(zmq.Again):
            for message in says:
                socket.send_multipart(message, zmq.NOBLOCK)
        return socket, monitor

    yield connect
    for socket, monitor in made:
        socket.disable_monitor()
        monitor.close(linger=0)
    context.destroy(linger=0)


def shows_nothing(socket: zmq.Socket[bytes]) -> None:
    """Show no key."""


def shows_a_password(socket: zmq.Socket[bytes]) -> None:
    """Show the password that opens links over paths."""
    socket.plain_username, socket.plain_password = b"control", own_key().secret.encode()


def shows_another_key(socket: zmq.Socket[bytes]) -> None:
    """Show a key that no server admits, and expect the right key of the server."""
    socket.curve_publickey, socket.curve_secretkey = new_key().pair
    socket.curve_serverkey = own_key().server("worker")


def shows_the_key(socket: zmq.Socket[bytes]) -> None:
    """Show the key that servers admit."""
    socket.curve_publickey, socket.curve_secretkey = own_key().pair
    socket.curve_serverkey = own_key().server("worker")


def mistakes_the_server(socket: zmq.Socket[bytes]) -> None:
    """Show the right key, and expect a wrong key of the server."""
    socket.curve_publickey, socket.curve_secretkey = own_key().pair
    socket.curve_serverkey = new_key().pair[0]


STRANGERS = [shows_nothing, shows_a_password, shows_another_key, mistakes_the_server]


@pytest.mark.parametrize("show", STRANGERS, ids=lambda one: one.__name__)
def test_strangers_say_nothing_and_hear_nothing(
    service: Service, connect: Callable[..., Any], show: Callable[[zmq.Socket[bytes]], None]
) -> None:
    """Dispatcher, worker and link send nothing to strangers, and decode none of their
    messages.
    """
    elements = Dataset.range(20_000).map(lambda x: x)
    # So few elements are in flight that the link exists until the end.
    it = iter(service.read(elements, data_transfer_protocol="tcp", max_outstanding_requests=1000))
    found = [int(next(it))]
    worker = servers(service)[1]
    wait_until(lambda: worker.links._links, "a link of this one of the workers")
    links = [link.endpoint for link in worker.links._links.values()]
    tried = [
        connect(one, show, says=(UNREADABLE, wire.pack(m.RequestStatus("r"))))
        for one in endpoints(service)
    ]
    tried += [connect(one, show, zmq.PULL) for one in links]
    assert all(monitor.poll(10_000) for _, monitor in tried), "nobody refused it"
    assert not any(socket.poll(NOTHING_COMES) for socket, _ in tried)
    found += [int(x) for x in it]
    assert sorted(found) == list(range(20_000))
    for shell in servers(service):
        assert kinds(shell) <= {
            "a control socket: its key is not admitted",
            "a data socket: its key is not admitted",
        }


def test_a_door_that_nobody_keeps_is_closed(connect: Callable[..., Any]) -> None:
    """A socket without a process that checks keys, as when a server ends, admits no
    key.
    """
    key = own_key()
    with sockets.new_context() as own:
        router, endpoint = sockets.control_router(own, "tcp://127.0.0.1:0", 10_000, key=key)
        peer, monitor = connect(endpoint, shows_the_key, until=zmq.Event.HANDSHAKE_SUCCEEDED)
        peer.send(b"hello")
        assert (
            parse_monitor_message(monitor.recv_multipart())["event"]
            == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
        )
        assert not router.poll(NOTHING_COMES)
        router.close(linger=0)


@pytest.mark.parametrize("which", [0, 1])
def test_what_was_recorded_says_nothing_again(service: Service, which: int) -> None:
    """A server drops a replayed connection of an admitted peer, as keys are new for
    each connection.
    """
    endpoint, shell = endpoints(service)[which], servers(service)[which]
    said = recorded(endpoint, own_key(), wire.pack(m.RequestStatus("r")))
    whole, marks = len(said), [64, 64 + 202, len(said)]
    assert whole > marks[1]
    before = kinds(shell)
    for at in marks:
        with plain.create_connection(place_of(endpoint), 10.0) as again:
            again.sendall(said[:at])
            again.shutdown(plain.SHUT_WR)
            heard = b""
            while part := again.recv(1 << 16):
                heard += part
        # The server sends a greeting, and a welcome after a hello. It never sends more,
        # as encrypted messages would be.
        assert len(heard) <= 64 + 170
    assert kinds(shell) == before
    check_serves(service)


def test_roles_are_kept_apart(
    divided: Service, roles: dict[str, Key], make_peer: Callable[..., Peer]
) -> None:
    """The dispatcher takes no message of a worker from a client, and none of a client
    from a worker. Both may request a piece of a pipeline.
    """
    both = {"client": set(m.FromClient.__args__), "worker": set(m.FromWorker.__args__)}
    assert both["client"] & both["worker"] == {m.RequestPiece}
    both = {role: said - {m.RequestPiece} for role, said in both.items()}
    shell, state = servers(divided)[0], str(servers(divided)[0].core.state)
    for role, other in (("client", "worker"), ("worker", "client")):
        peer = make_peer(divided.target, roles[role])
        for message in examples(both[other]):
            peer.say(message)
        wanted = {f"a {role}'s key may not be used for {one.__name__}" for one in both[other]}
        wait_until(
            lambda wanted=wanted: wanted <= {one.partition(": ")[2] for one in kinds(shell)},
            "all were refused",
        )
    assert str(shell.core.state) == state
    assert divided.dispatcher.num_workers() == 2
    check_serves(divided)


@pytest.mark.parametrize("role", ["worker", "dispatcher"])
def test_nobody_but_clients_opens_links(
    divided: Service, roles: dict[str, Key], make_peer: Callable[..., Peer], role: str
) -> None:
    """A worker takes nothing from another worker, and nothing from a peer that shows
    the dispatcher's key on a socket of its own.
    """
    key, shell = roles[role], servers(divided)[1]
    # A peer uses the first known key of a role, so the server's key comes first.
    known = (next(one for one in roles["client"].known if one.role == "worker"), *key.known)
    peer = make_peer(divided.workers[0].address, Key(key.cluster, key.public, key.secret, known))
    for message in examples(m.ToWorker.__args__):
        peer.say(message)
    if role == "dispatcher":
        wait_until(lambda: shell.rejects.total >= len(m.ToWorker.__args__), "all were refused")
    else:
        wait_until(lambda: shell.rejects.total, "it was refused")
    assert not shell.core.links.by_client
    assert not shell.core.tasks
    check_serves(divided)
