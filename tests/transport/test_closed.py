"""Test how the closing of a dispatcher by this process is recorded and forgotten."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqdata import Dataset, distribute
from zmqdata.client.calls import status
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.dispatcher.server import DispatchServer
from zmqdata.errors import UnavailableError
from zmqdata.transport import closed, handshakes
from zmqdata.transport.addresses import interface_addresses
from zmqdata.transport.closed import note_closed, why_closed


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    closed._ports.clear()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_every_name_of_this_machine_is_closed() -> None:
    """A closed address is known under each name of this machine, and no other port is
    closed.
    """
    port = free_port()
    note_closed(f"tcp://127.0.0.1:{port}")
    for host in ("localhost", "[::1]", "127.0.0.2", *interface_addresses()):
        assert f"closed the LocalCluster at tcp://{host}:{port}" in why_closed(
            f"tcp://{host}:{port}"
        )
    assert "read once it listens" in why_closed(f"tcp://localhost:{port}")
    assert why_closed(f"tcp://localhost:{port + 1}") == why_closed("ipc:///tmp/dispatcher") == ""


def test_another_machine_is_never_closed() -> None:
    """A closing says nothing about the same port of another machine."""
    port = free_port()
    note_closed(f"tcp://127.0.0.1:{port}")
    assert why_closed(f"tcp://192.0.2.77:{port}") == ""


def test_a_dispatcher_that_is_quiet_opens_the_address_again() -> None:
    """A dispatcher that listens at a closed address ends the closing for good, although
    it has sent no message.
    """
    with DispatchServer() as dispatcher:
        note_closed(dispatcher.target)
        assert why_closed(dispatcher.target) == ""
        assert int(dispatcher.target.rpartition(":")[2]) not in closed._ports


def test_a_closed_address_may_be_opened_and_closed_again() -> None:
    """Each closing counts, whatever was at the address before."""
    port = free_port()
    for _ in range(2):
        with DispatchServer(DispatcherConfig(port=port)) as dispatcher:
            assert why_closed(dispatcher.target) == ""
        note_closed(dispatcher.target)
        assert why_closed(dispatcher.target)


def test_a_listener_without_a_greeting_is_no_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that accepts connections and never greets, such as a copy of the socket in
    a forked child, stays closed.
    """
    monkeypatch.setattr(handshakes, "LOOKS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        note_closed(target)
        assert why_closed(target)


def test_a_stopped_dispatcher_without_a_journal_is_closed() -> None:
    """A ``DispatchServer`` that this process has stopped is closed for good, unless it
    keeps a journal: then another may continue in its place.
    """
    with DispatchServer() as dispatcher:
        assert why_closed(dispatcher.target) == ""
    text = why_closed(dispatcher.target)
    assert f"has stopped the DispatchServer at {dispatcher.target}" in text
    assert "before `stop()`" in text


def test_a_stopped_dispatcher_with_a_journal_is_not_closed(tmp_path: Path) -> None:
    """Clients wait for a dispatcher that may be started again from its journal."""
    with DispatchServer(DispatcherConfig(work_dir=str(tmp_path))) as dispatcher:
        pass
    assert why_closed(dispatcher.target) == ""


def test_an_iterator_ends_at_once_when_this_process_stops_its_dispatcher() -> None:
    """A loop that waits for an element of a dispatcher, or for its answer, ends with
    the reason when this process stops it.
    """
    with DispatchServer() as dispatcher:
        dataset = Dataset.range(3).apply(distribute("distributed_epoch", dispatcher.target))
        elements = iter(dataset)
        dispatcher.stop()
        with pytest.raises(UnavailableError, match="This process has stopped the DispatchServer"):
            next(elements)
        with pytest.raises(UnavailableError, match="This process has stopped the DispatchServer"):
            status(dispatcher.target)
