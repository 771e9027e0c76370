"""Tests of addresses in users' notation: their meaning, and their errors."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.config.endpoints import (
    DATA_PORT_MARK,
    PORT_MARK,
    advertised,
    check_host,
    check_protocol,
    endpoint_host,
    join_address,
    parse_service,
    port_in,
    split_address,
)
from zmqdata.errors import NotFoundError


@pytest.mark.parametrize(
    ("service", "endpoint"),
    [
        ("tcp://host:5050", "tcp://host:5050"),
        ("host:5050", "tcp://host:5050"),
        (("tcp", "host:5050"), "tcp://host:5050"),
        ("[::1]:5050", "tcp://[::1]:5050"),
        ("ipc:///run/dispatcher", "ipc:///run/dispatcher"),
        (("ipc", "relative"), "ipc://relative"),
        ("file:/shared/d.json", "file:/shared/d.json"),
        ("file:///shared/d.json", "file:/shared/d.json"),
        ("file:d.json", f"file:{os.getcwd()}/d.json"),
    ],
)
def test_a_service_is_written_in_several_ways(service: Any, endpoint: str) -> None:
    """A string with or without protocol and a pair stand for the same endpoint."""
    assert parse_service(service) == endpoint


@pytest.mark.parametrize(
    ("service", "text"),
    [
        (5050, "`service` must be a string"),
        (None, "`service` must be a string"),
        (b"tcp://a:1", "`service` must be a string"),
        (("tcp", 5), "`service` must be a string"),
        (("tcp", "a:1", "b"), "`service` must be a string"),
        ("", "^`service` must not be empty$"),
        (("", "a:1"), "`service` must not have an empty part"),
        ("tcp://tcp://a:1", "Malformed `service` string has multiple '://'"),
        ("://a:1", "Malformed `service` string has no protocol"),
        ("tcp://a", "has no port; expected 'host:port', for example 'a:5050'"),
        ("tcp://a:", "has no port"),
        ("tcp://:5050", "no valid host"),
        ("tcp://a b:1", "no valid host"),
        ("tcp://a/b:1", "no valid host"),
        ("tcp://a:0", "port '0'; expected a number between 1 and 65535"),
        ("tcp://a:65536", "65536"),
        ("tcp://a:http", "port 'http'"),
        ("tcp://a:-1", "port '-1'"),
        ("tcp://::1:5050", "IPv6 host in brackets"),
        ("tcp://[::1]", "has no port"),
        ("ipc://", "must have 1 to 107 bytes"),
        ("ipc://" + "x" * 108, "Got 108 bytes"),
        ("file:", "expected the path of the file that a dispatcher writes"),
        ("file://host/d.json", "expected the path of the file"),
        ("file:a\0b", "expected the path of the file"),
    ],
)
def test_a_service_that_cannot_be_is_refused(service: Any, text: str) -> None:
    """A malformed service raises a ValueError that explains the problem."""
    with pytest.raises(ValueError, match=text):
        parse_service(service)


def test_an_unknown_protocol_is_not_found() -> None:
    """An unknown protocol raises tf.data's message with the known protocols."""
    with pytest.raises(
        NotFoundError, match=r"No credentials factory .* for protocol grp\. .*tcp.*ipc"
    ):
        parse_service("grp://a:1")


@given(st.text() | st.tuples(st.text(), st.text()))
def test_any_text_is_parsed_or_refused(service: Any) -> None:
    """Any service parses to an endpoint or raises a documented error."""
    with contextlib.suppress(ValueError, NotFoundError):
        assert parse_service(service).startswith(("tcp://", "ipc://"))


@given(st.ip_addresses().map(str), st.integers(1, 65535))
def test_splitting_undoes_joining(host: str, port: int) -> None:
    """Splitting restores any IP address and port that were joined."""
    if "%" not in host:
        assert split_address(join_address(host, port)) == (host, port)


def test_only_tcp_endpoints_have_a_host() -> None:
    """The host of an ipc endpoint is None."""
    assert endpoint_host("ipc:///run/x") is None
    assert endpoint_host("tcp://a:1") == "a"


def test_a_dispatcher_is_not_everywhere() -> None:
    """A service at every host is rejected, as no peer could connect to it."""
    with pytest.raises(ValueError, match=r"'\*' means every host"):
        parse_service("tcp://*:5050")


@pytest.mark.parametrize(
    "address", ["0.0.0.0", "0.0.0.0:%port%", "*", "*:7000", "::", "[::]:7000", "%port%"]
)
def test_what_nobody_can_connect_to_is_not_announced(address: str) -> None:
    """An address for binding only is rejected as an announced address."""
    with pytest.raises(ValueError, match="which cannot connect to the host"):
        advertised(address)


@pytest.mark.parametrize(
    ("address", "host_and_port"),
    [
        ("gateway", ("gateway", None)),
        ("[::1]", ("::1", None)),
        (f"gateway:{PORT_MARK}", ("gateway", None)),
        ("10.0.0.1:7000", ("10.0.0.1", 7000)),
    ],
)
def test_an_announced_address_may_leave_the_port_open(address: str, host_and_port: Any) -> None:
    """An address without a port, or with the mark, stands for the bound port."""
    assert advertised(address) == host_and_port


def test_the_port_of_an_address_is_a_text() -> None:
    """A port is found behind brackets, and neither in a bare IPv6 address nor in a
    mark.
    """
    ports = [port_in(one, PORT_MARK) for one in ("a:7", "[::1]:7", "::1", "a", f"a:{PORT_MARK}")]
    assert ports == ["7", "7", "", "", ""]
    assert port_in(f"a:{PORT_MARK}", DATA_PORT_MARK) == PORT_MARK


def test_servers_listen_on_tcp() -> None:
    """Another protocol or a path as the host is refused, with what to give instead."""
    check_protocol("tcp")
    check_host("0.0.0.0")
    with pytest.raises(NotFoundError, match="registered for protocol grpc"):
        check_protocol("grpc")
    with pytest.raises(ValueError, match="never on a path"):
        check_host("/run/socket")


class Server:
    """A server object of this process, with the address that it announces."""

    def __init__(self, target: str) -> None:
        self.target_asked = target

    @property
    def target(self) -> str:
        if not self.target_asked:
            raise RuntimeError("DispatchServer was not started yet")
        return self.target_asked


def test_a_server_object_stands_for_its_address() -> None:
    """A service may be a server of this process, whose own error shows if it has no
    address yet.
    """
    assert parse_service(Server("tcp://127.0.0.1:5050")) == "tcp://127.0.0.1:5050"
    with pytest.raises(RuntimeError, match="not started yet"):
        parse_service(Server(""))


def test_errors_name_the_argument() -> None:
    """The error about a malformed service names the argument that it came in."""
    with pytest.raises(ValueError, match=r"^`data_service_address` must not be empty$"):
        parse_service("", "data_service_address")
