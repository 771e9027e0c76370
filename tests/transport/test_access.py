"""Access control at a server's socket, and the errors that rejected peers see."""

from __future__ import annotations

import logging
import os
import socket as plain
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from benchmarks.attackers import GREETING
from zmqdata import messages as m
from zmqdata.testing.cluster import await_condition
from zmqdata.transport import keys, sockets
from zmqdata.transport.access import ANYBODY, Access, Keyring
from zmqdata.transport.handshakes import MOST_FAILURES, mechanism_of
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

ROLES = keys.new_roles()


class Door:
    """A ROUTER with an access check that records every message and its objection."""

    def __init__(self, key: Key | None) -> None:
        self.context = sockets.new_context()
        self.rejects = Rejects()
        self.loop = Loop("door", lambda: self.access.keyring.look(), 0.05)
        self.access = Access(self.context, self.loop, Keyring(key), self.rejects)
        self.router, self.endpoint = sockets.control_router(
            self.context, "tcp://127.0.0.1:0", 10_000, key=key
        )
        self.heard: list[tuple[bytes, str]] = []
        self.loop.read(self.router, self._hear)
        self.loop.start()

    def _hear(self) -> bool:
        try:
            _, frame = self.router.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        self.heard.append((frame.bytes, self.access.objection([frame], m.RequestStatus("r"))))
        return True

    def close(self) -> None:
        self.loop.stop()
        assert self.loop.join(10)
        self.router.close(linger=0)
        self.access.close()
        self.context.term()

    def knock(self, key: Key | None, role: str = "dispatcher", endpoint: str = "") -> str:
        """Connect with a key, and return the reason for a rejection or ""."""
        with sockets.new_context() as context:
            dealer, handshakes = sockets.control_dealer(
                context, endpoint or self.endpoint, key, role
            )
            with closing(handshakes):
                dealer.send(b"hello")
                before, reasons = len(self.heard), [""]

                def is_decided() -> bool:
                    while (reason := handshakes.news()) is not None:
                        reasons.append(reason)
                    return len(self.heard) > before or bool(reasons[-1])

                await_condition(is_decided, 10, "an answer")
            dealer.close(linger=0)
        return reasons[-1]


@pytest.fixture
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    made = Door(getattr(request, "param", ROLES["dispatcher"]))
    yield made
    made.close()


def test_who_has_a_key_that_is_known_is_let_in(door: Door) -> None:
    """The dispatcher accepts the keys of its clients and its workers."""
    assert [door.knock(ROLES[role]) for role in ("client", "worker")] == ["", ""]
    assert [heard for heard, _ in door.heard] == [b"hello"] * 2
    assert door.rejects.total == 0


def test_an_unknown_key_is_told_so(door: Door) -> None:
    """An unknown key is rejected with errors on both sides, and no message is read."""
    stranger = replace(keys.new_client(ROLES["dispatcher"], ROLES["worker"]), path="some.key")
    assert "does not admit the holder of key file some.key" in door.knock(stranger)
    assert door.heard == []
    assert door.rejects.counts == {"a control socket: its key is not admitted": 1}


def test_the_key_of_another_cluster_is_told_so(door: Door) -> None:
    """A client with another cluster's key learns that the keys do not match."""
    assert "has another key than key file" in door.knock(keys.new_roles()["client"])
    assert door.heard == []


def test_a_server_that_is_held_is_waited_for(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handshakes that time out, as those with a server whose interpreter is held, are
    no sign of another key.
    """
    now = count(step=6.0)
    clock = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr("zmqdata.transport.handshakes.time", clock)
    monkeypatch.setattr("zmqdata.transport.handshakes.mechanism_of", lambda endpoint: "CURVE")
    stranger = keys.new_roles()["client"]
    with sockets.new_context() as context:
        dealer, handshakes = sockets.control_dealer(context, door.endpoint, stranger, "dispatcher")
        news: list[str] = []

        def has_tried() -> bool:
            news.extend(iter(handshakes.news, None))
            return len(news) > 2 * MOST_FAILURES

        with closing(handshakes):
            await_condition(has_tried, 20, "some connections")
        dealer.close(linger=0)
    assert set(news) == {""}


def test_who_has_no_key_is_told_so(door: Door) -> None:
    """A peer without a key learns that the server accepts only holders of its key."""
    assert "admits holders of its key only" in door.knock(None)
    assert door.heard == []


@pytest.mark.parametrize("door", [None], indirect=True)
def test_a_server_without_a_key_is_not_trusted(door: Door) -> None:
    """A peer with a key rejects a keyless server, and a keyless peer accepts it."""
    assert "does without a key" in door.knock(ROLES["client"])
    assert door.heard == []
    assert door.knock(None) == ""


def test_a_key_is_for_its_role() -> None:
    """Only a cluster's key can act both as a client and as a worker."""
    register = m.RegisterWorker("w", "tcp://h:1", (), "3.11", "0", ())
    objection = Access.objection
    says = {}
    for role, ask in (
        ("client", register),
        ("worker", m.RequestStatus("r")),
        ("all", register),
        ("client", None),
    ):
        known = keys.Known(role, "public")
        access = type("Named", (), {"sender": lambda self, frames, known=known: known})()
        said, _, remedy = objection(access, [], ask or m.RequestStatus("r")).partition(": ")
        assert ("--key-file" in remedy) == bool(said)
        says[role, type(ask).__name__] = said
    assert says == {
        ("client", "RegisterWorker"): "a client's key may not be used for RegisterWorker",
        ("worker", "RequestStatus"): "a worker's key may not be used for RequestStatus",
        ("all", "RegisterWorker"): "",
        ("client", "NoneType"): "",
    }


def test_a_line_that_is_deleted_revokes_its_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleting a line revokes its key for all connections; a damaged file does not."""
    path = tmp_path / "dispatcher.key"
    keys.save(path, ROLES["dispatcher"])
    door = Door(keys.load(path))
    try:
        with sockets.new_context() as context:
            dealer, handshakes = sockets.control_dealer(
                context, door.endpoint, ROLES["client"], "dispatcher"
            )
            dealer.send(b"before")
            await_condition(lambda: len(door.heard) == 1, 10, "the first word")
            with caplog.at_level(logging.ERROR):
                path.write_text("damaged")
                await_condition(
                    lambda: "the keys read before stay in force" in caplog.text, 10, "an error"
                )
            dealer.send(b"still")
            await_condition(lambda: len(door.heard) == 2, 10, "the second word")
            text = keys.render(ROLES["dispatcher"]).splitlines(keepends=True)
            keys.replace(
                path,
                keys.parse("".join(line for line in text if ROLES["client"].public not in line)),
            )
            await_condition(
                lambda: door.access.keyring.holder(ROLES["client"].public) is None, 10, "the change"
            )
            dealer.send(b"after")
            await_condition(lambda: len(door.heard) == 3, 10, "the third word")
            handshakes.close()
            dealer.close(linger=0)
        revoked = "the key of this connection is no longer admitted"
        assert door.heard == [(b"before", ""), (b"still", ""), (b"after", revoked)]
        assert "does not admit" in door.knock(ROLES["client"])
    finally:
        door.close()


def without_client(path: Path) -> str:
    """Return the text of a key file without the line of the client's key."""
    lines = path.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if ROLES["client"].public not in line)


def test_what_a_file_that_is_open_to_others_adds_does_not_count(tmp_path: Path) -> None:
    """Additions to a key file open to others count once the file is private again."""
    path = tmp_path / "k"
    keys.save(path, ROLES["dispatcher"])
    keyring = Keyring(keys.load(path))
    added, worker = keys.new_key().public, ROLES["worker"].public
    path.write_text(
        path.read_text().replace(
            f"known worker {worker}", f"known all {worker}\nknown client {added}"
        )
    )
    path.chmod(0o644)
    keyring.look()
    assert keyring.holder(added) is None
    assert keyring.holder(worker) is None, "in another role it is not what was let in"
    path.chmod(0o600)
    keyring.look()
    assert keyring.holder(added) == keys.Known("client", added)
    assert keyring.holder(worker) == keys.Known("all", worker)


def test_what_a_file_that_is_open_to_others_lacks_is_revoked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A line missing from a key file open to others is revoked, as after
    `grep -v NAME k >new; mv new k`. The log says how to repair the mode, and a restored
    line counts.
    """
    path = tmp_path / "k"
    keys.save(path, ROLES["dispatcher"])
    keyring = Keyring(keys.load(path))
    whole = path.read_text()
    path.write_text(without_client(path))
    path.chmod(0o644)
    keyring.look()
    assert keyring.holder(ROLES["client"].public) is None
    assert keyring.holder(ROLES["worker"].public) is not None
    assert "before stay in force, except for 1 that the file no longer lists" in caplog.text
    assert f"chmod 600 {path}" in caplog.text
    path.write_text(whole)
    keyring.look()
    assert keyring.holder(ROLES["client"].public) is not None


def test_a_file_that_is_gone_revokes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing key file revokes nothing and is logged once each time it disappears."""
    path = tmp_path / "k"
    keys.save(path, ROLES["dispatcher"])
    keyring = Keyring(keys.load(path))
    for times in (1, 2):
        path.rename(tmp_path / "away")
        keyring.look()
        keyring.look()
        assert keyring.holder(ROLES["client"].public) is not None
        assert caplog.text.count("the key file is gone") == times
        (tmp_path / "away").rename(path)
        keyring.look()
    path.write_text(without_client(path))
    keyring.look()
    assert keyring.holder(ROLES["client"].public) is None


def test_a_change_while_the_server_starts_is_seen(tmp_path: Path) -> None:
    """The server notices a change between loading the key file and the first check."""
    path = tmp_path / "k"
    keys.save(path, ROLES["dispatcher"])
    key = keys.load(path)
    path.write_text(without_client(path))
    keyring = Keyring(key)
    keyring.look()
    assert keyring.holder(ROLES["client"].public) is None


def test_the_file_is_found_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server finds a relative key file after the process changes its directory."""
    monkeypatch.chdir(tmp_path)
    keys.save("k", ROLES["dispatcher"])
    keyring = Keyring(keys.load("k"))
    keyring.look()
    monkeypatch.chdir("/")
    (tmp_path / "k").write_text(without_client(tmp_path / "k"))
    keyring.look()
    assert keyring.holder(ROLES["client"].public) is None


def test_without_a_key_everybody_is_let_in() -> None:
    """A server without a key accepts every peer and has no file to check."""
    keyring = Keyring(None)
    keyring.look()
    assert keyring.holder("whoever") == ANYBODY
    assert not keyring


class Proxy:
    """A proxy whose server is down: it accepts connections and closes them at once."""

    def __init__(self) -> None:
        self.socket = plain.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.socket.getsockname()[1]}"
        self.connections = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                self.socket.accept()[0].close()
                self.connections += 1
        except OSError:
            return


def test_a_proxy_without_a_server_is_waited_for() -> None:
    """A client keeps trying when connections end before any greeting arrives."""
    proxy = Proxy()
    with sockets.new_context() as context:
        dealer, handshakes = sockets.control_dealer(
            context, proxy.endpoint, ROLES["client"], "dispatcher"
        )
        reasons = set()

        def has_tried() -> bool:
            reasons.add(handshakes.news())
            return proxy.connections > 3 * MOST_FAILURES

        await_condition(has_tried, 20, "some connections")
        handshakes.close()
        dealer.close(linger=0)
    proxy.socket.close()
    assert reasons <= {None, ""}


def test_a_greeting_tells_the_mechanism(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's greeting names its mechanism; a closed port, a proxy and a path give
    None.
    """
    monkeypatch.setattr("zmqdata.transport.handshakes.LOOKS", 10.0)
    assert mechanism_of(door.endpoint) == "CURVE"
    proxy = Proxy()
    assert mechanism_of(proxy.endpoint) is None
    proxy.socket.close()
    assert mechanism_of("ipc:///nowhere") is None
    assert mechanism_of(f"tcp://127.0.0.1:{_free_port()}") is None


def test_a_greeting_that_comes_in_drops_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of a greeting has a single deadline for all bytes, as it blocks its
    caller.
    """
    monkeypatch.setattr("zmqdata.transport.handshakes.LOOKS", 0.2)
    ended = threading.Event()
    with plain.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with server.accept()[0] as connection, suppress(OSError):
                for one in GREETING:
                    connection.send(bytes([one]))
                    ended.wait(0.05)

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert mechanism_of(f"tcp://127.0.0.1:{server.getsockname()[1]}") is None
        ended.set()
        dripping.join()


def _free_port() -> int:
    with closing(plain.create_server(("127.0.0.1", 0))) as one:
        port: int = one.getsockname()[1]
    return port


def test_a_key_file_that_vanishes_changes_nothing(tmp_path: Path) -> None:
    """The last loaded keys remain valid while the key file is missing."""
    keys.save(tmp_path / "k", ROLES["dispatcher"])
    keyring = Keyring(keys.load(tmp_path / "k"))
    os.unlink(tmp_path / "k")
    keyring.look()
    assert keyring.holder(ROLES["client"].public) is not None
