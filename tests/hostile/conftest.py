"""A service and its attackers, on real sockets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from benchmarks.attackers import TAKES, with_key
from tests.service.conftest import Service, make_service, service, wait_until
from zmqdata import Dataset, use_key_file, wire
from zmqdata import messages as m
from zmqdata.transport import keys
from zmqdata.transport.keychoice import own_key
from zmqdata.transport.keys import Key

__all__ = ["Peer", "Service", "make_service", "service", "wait_until"]

PATIENCE = 30_000
SENDING = 200
"""Milliseconds that a peer waits until a message of its own is taken."""
NOTHING_COMES = 50
"""Milliseconds in which a forbidden message would have come, on a single machine."""


class Peer:
    """A peer with a key that sends arbitrary messages.

    Args:
        endpoint: endpoint of a server.
        key: key that the peer shows.
        takes: number of answers that it receives before the test reads the first.
    """

    def __init__(self, endpoint: str, key: Key | None = None, takes: int = TAKES) -> None:
        self._context = zmq.Context()
        self._socket = with_key(self._context, endpoint, key or own_key(), takes)
        self._socket.sndtimeo = SENDING
        self._pulls: list[zmq.Socket[bytes]] = []

    def say(self, message: m.Message) -> None:
        """Send a message if the connection is admitted; a refused connection would wait
        forever.
        """
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart(wire.pack(message))

    def send(self, *frames: bytes) -> None:
        """Send arbitrary frames."""
        self._socket.send_multipart(frames)

    def answer(self) -> m.Message:
        """Return the next answer."""
        assert self._socket.poll(PATIENCE), "no answer"
        return wire.to_client.control(self._socket.recv_multipart())

    def hears(self, seconds: float) -> bool:
        """True if an answer comes within ``seconds`` seconds."""
        return bool(self._socket.poll(seconds * 1000))

    def answers(self) -> list[m.Message]:
        """Return all answers to earlier messages; a new request marks their end."""
        self.say(m.RequestStatus("the last"))
        found: list[m.Message] = []
        while not isinstance(answer := self.answer(), m.StatusReported):
            found.append(answer)
        return found

    def ask(self, message: m.Message) -> m.Message:
        """Send a message; return its answer."""
        self.say(message)
        return self.answer()

    def link(self, name: str, client: str, ticket: int = 0, **options: Any) -> zmq.Socket[bytes]:
        """Open a data connection and connect it as a client does; it lasts as long as
        this peer.
        """
        opened = self.ask(m.OpenLink(client, name, "", 0, "", ("tcp",), ticket=ticket, **options))
        assert isinstance(opened, m.LinkOpened), opened
        pull = self._context.socket(zmq.PULL)
        self._pulls.append(pull)
        pull.linger = 0
        secret, key = opened.secret.encode(), own_key()
        pull.curve_publickey, pull.curve_secretkey = zmq.curve_public(secret), secret
        pull.curve_serverkey = key.server("worker")
        pull.connect(opened.address)
        return pull

    def close(self) -> None:
        """Close all connections."""
        self._context.destroy(linger=0)


@pytest.fixture(autouse=True)
def no_faults(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no message of a peer causes an unexpected error in a server."""
    yield
    assert not [
        record for record in caplog.get_records("call") if "unexpected error" in record.getMessage()
    ]


@pytest.fixture
def make_peer() -> Iterator[Callable[..., Peer]]:
    """Make peers that are closed at the end of the test."""
    made: list[Peer] = []

    def make(endpoint: str, key: Key | None = None, takes: int = TAKES) -> Peer:
        made.append(Peer(endpoint, key, takes))
        return made[-1]

    yield make
    for peer in made:
        peer.close()


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[dict[str, Key]]:
    """A key for each role; this process shows the key of a client."""
    for role, key in keys.new_roles().items():
        keys.save(tmp_path / f"{role}.key", key)
    use_key_file(tmp_path / "client.key")
    yield {role: keys.load(tmp_path / f"{role}.key") for role in keys.ROLES}
    use_key_file()


@pytest.fixture
def divided(make_service: Callable[..., Service], roles: dict[str, Key]) -> Service:
    """A service whose processes have the keys of their roles."""
    return make_service(
        key_file=roles["dispatcher"].path, worker_options={"key_file": roles["worker"].path}
    )


def servers(service: Service) -> list[Any]:
    """Return the dispatcher and a worker."""
    return [service.dispatcher._shell, service.workers[0]._shell]


def endpoints(service: Service) -> list[str]:
    """Return the endpoints of the dispatcher and the worker."""
    return [service.target, service.workers[0].address]


def check_serves(service: Service, count: int = 200) -> None:
    """Check that another client reads undisturbed."""
    ds = service.read(Dataset.range(count).map(lambda x: x), data_transfer_protocol="tcp")
    assert sorted(int(x) for x in ds) == list(range(count))


def kinds(shell: Any) -> set[str]:
    """Return the kinds of messages that were dropped, without connections that failed
    to authenticate.
    """
    return {kind for kind in shell.rejects.counts if not kind.startswith("a new connection: ")}


def examples(messages: Sequence[type[m.Message]]) -> Iterator[m.Message]:
    """Yield a message of each kind, with meaningless fields."""
    for kind in messages:
        yield kind(
            **{one.name: _example(one.type) for one in msgspec.structs.fields(kind) if one.required}
        )


def _example(kind: Any) -> Any:
    kind = getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(
            **{one.name: _example(one.type) for one in msgspec.structs.fields(kind) if one.required}
        )
    plain = {str: "x", int: 0, float: 0.0, bytes: b"", bool: False}
    if kind in plain:
        return plain[kind]
    if getattr(kind, "__origin__", None) in (tuple, dict):
        return kind.__origin__()
    return None
