"""Addresses as users write them, and the endpoints that they stand for. Nothing is
resolved, and no socket known, here.

An *endpoint* is what a socket connects to (``"tcp://10.0.0.1:5050"``); an *address* is
its part behind ``://``.
"""

from __future__ import annotations

import ipaddress
import os
import re

from zmqdata.errors import NotFoundError

PROTOCOLS = ("tcp", "ipc")
EVERY_INTERFACE = frozenset({"0.0.0.0", "::", "*"})  # noqa: S104 - recognised here, never a default
LONGEST_IPC_PATH = 107
PORT_MARK = "%port%"
DATA_PORT_MARK = "%dts_port%"


def parse_service(service: str | tuple[str, str]) -> str:
    """The endpoint that a service string or pair stands for.

    Args:
        service: ``"tcp://host:port"``, ``"ipc://path"``, ``"host:port"`` (which is
            tcp), or a pair ``(protocol, address)``. An IPv6 address stands in brackets.

    Returns:
        The endpoint to connect a socket to.

    Raises:
        ValueError: it is not a string, empty, malformed, or its port is missing or out
            of range.
        NotFoundError: there is no such protocol.

    Example:
        >>> parse_service("localhost:5050")
        'tcp://localhost:5050'
        >>> parse_service(("ipc", "/tmp/dispatcher"))
        'ipc:///tmp/dispatcher'

    The errors are tf.data's; its only protocol is "grpc", ours are "tcp" and "ipc".
    """
    protocol, address = _protocol_and_address(service)
    if protocol not in PROTOCOLS:
        allowed = " or ".join(f"'{name}://'" for name in PROTOCOLS)
        raise NotFoundError(
            f"No credentials factory has been registered for protocol {protocol}. A service begins "
            f"with {allowed}, "
            f"got {service!r}"
        )
    if protocol == "ipc":
        return f"ipc://{_checked_path(address)}"
    host, port = split_address(address)
    if host == "*":
        raise ValueError(
            f"Malformed `service` {service!r}: '*' is every host; name the one where the "
            "dispatcher runs"
        )
    return f"tcp://{join_address(host, port)}"


def _protocol_and_address(service: object) -> tuple[str, str]:
    if (
        isinstance(service, (tuple, list))
        and len(service) == 2
        and all(isinstance(part, str) for part in service)
    ):
        protocol, address = service
        if not protocol or not address:
            raise ValueError(f"`service` must not have an empty part, got {service!r}")
        return protocol, address
    if not isinstance(service, str):
        raise ValueError(
            "`service` must be a string such as 'tcp://host:port', or a pair (protocol, address), "
            f"got {service!r} of "
            f"type {type(service).__name__}"
        )
    if service == "":
        raise ValueError("`service` must not be empty")
    parts = service.split("://")
    if len(parts) > 2:
        raise ValueError(
            f"Malformed `service` string has multiple '://': {service}. Expected 'tcp://host:port'"
        )
    if parts[0] == "":
        raise ValueError(
            f"Malformed `service` string has no protocol: {service}. Expected 'tcp://host:port'"
        )
    return (parts[0], parts[1]) if len(parts) == 2 else ("tcp", service)


def _checked_path(path: str) -> str:
    size = len(os.fsencode(path))
    if not 0 < size <= LONGEST_IPC_PATH:
        raise ValueError(
            f"The path of an ipc:// service must have 1 to {LONGEST_IPC_PATH} bytes, the limit of "
            "Unix sockets; "
            f"got {size} bytes: {path!r}"
        )
    return path


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``"host:port"``, the host without brackets.

    Raises:
        ValueError: a part is missing, or the port is no number between 1 and 65535.

    Example:
        >>> split_address("[::1]:5050")
        ('::1', 5050)
    """
    match = re.fullmatch(r"\[([^\[\]]*)\](?::(.*))?|([^:]*)(?::([^:]*))?", address, re.DOTALL)
    if match is None:
        raise ValueError(
            f"Malformed address {address!r}: expected 'host:port', an IPv6 host in brackets: "
            "'[::1]:5050'"
        )
    bracketed, bracketed_port, plain, plain_port = match.groups()
    host, port = (bracketed, bracketed_port) if plain is None else (plain, plain_port)
    if not host or re.search(r"[\s/]", host):
        raise ValueError(
            f"Malformed address {address!r}: it has no valid host; expected 'host:port'"
        )
    if not port:
        raise ValueError(
            f"The address {address!r} has no port; expected 'host:port', for example '{host}:5050'"
        )
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError(
            f"The address {address!r} has the port {port!r}; expected a number between 1 and 65535"
        )
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """``"host:port"`` with brackets around an IPv6 address.

    Example:
        >>> join_address("::1", 5050)
        '[::1]:5050'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def endpoint_host(endpoint: str) -> str | None:
    """The host of a tcp endpoint, None for any other.

    Example:
        >>> endpoint_host("tcp://[::1]:5050")
        '::1'
    """
    protocol, _, address = endpoint.partition("://")
    return split_address(address)[0] if protocol == "tcp" else None


def advertised(advertise: str) -> tuple[str, int | None]:
    """Host and port of what a user wants announced; None where the port is the one that
    is bound.

    Raises:
        ValueError: it is malformed, or nobody could connect to it.

    Example:
        >>> advertised("gateway:%port%"), advertised("::1"), advertised("10.0.0.1:7000")
        (('gateway', None), ('::1', None), ('10.0.0.1', 7000))
    """
    host, port = _host_and_port(advertise)
    if host in EVERY_INTERFACE or host in (PORT_MARK, DATA_PORT_MARK):
        raise ValueError(
            f"The address {advertise!r} is announced to others, and nobody can connect to the host "
            f"{host!r}: name an "
            "address of this machine, or leave it out"
        )
    return host, port


def _host_and_port(advertise: str) -> tuple[str, int | None]:
    # A bare IPv6 address has colons and no port.
    try:
        return str(ipaddress.ip_address(advertise.strip("[]"))), None
    except ValueError:
        pass
    if ":" not in advertise:
        return split_address(f"{advertise}:1")[0], None
    if advertise.endswith(f":{PORT_MARK}"):
        return split_address(f"{advertise.removesuffix(PORT_MARK)}1")[0], None
    return split_address(advertise)


def port_in(address: str, mark: str) -> str:
    """The port that an address names, ``""`` when it names none, or the mark for the
    one that is bound.
    """
    behind_host = address.rpartition("]")[2]
    # More than one colon without brackets: all of it is an IPv6 address.
    port = behind_host.partition(":")[2] if behind_host.count(":") == 1 else ""
    return "" if port == mark else port


def check_protocol(protocol: str) -> None:
    """Refuses every protocol that no server speaks.

    Raises:
        NotFoundError: it is not ``tcp``.
    """
    if protocol != "tcp":
        raise NotFoundError(
            f"No credentials factory has been registered for protocol {protocol}. A server's "
            "protocol is 'tcp'"
        )


def check_host(host: str) -> None:
    """Refuses a host to listen on that is a path.

    Raises:
        ValueError: it is one.
    """
    if "/" in host:
        raise ValueError(
            f"`host` must be an address or a name of this machine, got {host!r}: a server listens "
            "on TCP, never on a "
            "path. For this machine alone leave it out, which is 127.0.0.1"
        )
