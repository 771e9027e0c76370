"""Tests of addresses: for users, for sockets, and for peers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from zmqdata.errors import InvalidArgumentError, ResourceExhaustedError
from zmqdata.files import paths
from zmqdata.transport.addresses import (
    SOMEWHERE_ELSE,
    announced_address,
    announced_host,
    bind_endpoint,
    free_port,
    host_token,
    interface_addresses,
    is_refused,
    is_this_machine,
    local_address_towards,
    resolve_host,
    somebody_listens,
)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 300])
def test_an_unknown_host_is_said_to_be_unknown(host: str) -> None:
    """The error for an unknown host says so, whatever the name service returns."""
    with pytest.raises(InvalidArgumentError, match="Unknown host"):
        resolve_host(host)


def test_names_are_resolved_for_binding() -> None:
    """A name becomes an IP address for binding, and port 0 ZeroMQ's wildcard. ZeroMQ
    binds to IP addresses only.
    """
    assert bind_endpoint("localhost", 0) == "tcp://127.0.0.1:*"
    assert bind_endpoint("*", 5050) == "tcp://0.0.0.0:5050"


def test_binding_to_another_machine_is_refused() -> None:
    """Binding to an address of another machine is an error."""
    with pytest.raises(
        InvalidArgumentError, match=r"Cannot bind to host '203\.0\.113\.7'.*address of this machine"
    ):
        bind_endpoint("203.0.113.7", 0)


@pytest.mark.parametrize(
    ("host", "advertise", "announced"),
    [
        ("10.0.0.1", None, "10.0.0.1:7000"),
        ("0.0.0.0", None, "127.0.0.1:7000"),
        ("*", None, "127.0.0.1:7000"),
        ("0.0.0.0", "gateway", "gateway:7000"),
        ("0.0.0.0", "gateway:%port%", "gateway:7000"),
        ("0.0.0.0", "gateway:9", "gateway:9"),
        ("0.0.0.0", "fe80::1", "[fe80::1]:7000"),
        ("0.0.0.0", "[fe80::1]", "[fe80::1]:7000"),
        ("0.0.0.0", "[fe80::1]:9", "[fe80::1]:9"),
        ("0.0.0.0", "[fe80::1]:%port%", "[fe80::1]:7000"),
    ],
)
def test_what_is_announced_can_be_reached(host: str, advertise: str | None, announced: str) -> None:
    """A server at every interface announces its local address on the route to the
    dispatcher. The user's address overrides it.
    """
    assert announced_address(host, advertise, "tcp://127.0.0.1:5050", 7000) == announced


def test_a_host_is_announced_without_port() -> None:
    """Other sockets of a server are announced with the same host."""
    assert announced_host("0.0.0.0", "gateway:9", None) == "gateway"
    assert announced_host("0.0.0.0", None, "ipc:///run/x") == local_address_towards(SOMEWHERE_ELSE)


def test_a_dispatcher_that_nobody_knows_leaves_loopback() -> None:
    """A machine that cannot resolve the dispatcher's host announces loopback."""
    assert local_address_towards("no-such-host.invalid") == "127.0.0.1"


def test_without_a_route_an_interface_is_announced() -> None:
    """Without a route a machine announces an interface's address, or loopback."""
    found = list(interface_addresses())
    # Broadcasting needs an option that is not set. The call therefore fails everywhere
    # as without a route.
    assert local_address_towards("255.255.255.255") == [*found, "127.0.0.1"][0]
    for address in found:
        with socket.create_server((address, 0)) as server:
            assert server.getsockname()[0] == address


def test_an_address_of_this_machine_is_known() -> None:
    """Loopback, the addresses of interfaces and paths are of this machine; others and
    unknown names are not.
    """
    own = ["tcp://127.0.0.1:1", "tcp://localhost:1", "ipc:///tmp/nowhere"]
    assert all(map(is_this_machine, [*own, *(f"tcp://{one}:1" for one in interface_addresses())]))
    assert not any(map(is_this_machine, ["tcp://192.0.2.7:1", "tcp://no-such-host.invalid:1"]))


def test_processes_of_one_machine_have_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's token is stable, and exists even without /proc."""
    assert host_token() == host_token()
    assert len(host_token()) == 32
    monkeypatch.setattr(paths, "Path", _Missing)
    assert len(host_token()) == 32


class _Missing:
    """A file that does not exist."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read_text(self, encoding: str) -> str:
        raise FileNotFoundError(self.path)


def test_who_listens_is_found_out(tmp_path: Path) -> None:
    """A used endpoint is distinguished from an unused endpoint over tcp and ipc."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert somebody_listens(endpoint)
        assert not is_refused(endpoint)
    assert not somebody_listens(endpoint)
    assert is_refused(endpoint)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "s"))
        assert not somebody_listens(f"ipc://{tmp_path}/s")
        assert is_refused(f"ipc://{tmp_path}/s")
        server.listen()
        assert somebody_listens(f"ipc://{tmp_path}/s")


def test_taken_ports_are_passed_over_until_none_is_left() -> None:
    """The first free port of a range is found, or the range is exhausted."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ResourceExhaustedError,
            match=f"Data ports exhausted: none of the ports {port} to {port}",
        ):
            free_port("127.0.0.1", port, port)
        last = min(port + 200, 65535)
        assert port == 65535 or port < free_port("127.0.0.1", port, last) <= last
