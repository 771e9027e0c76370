"""Parsing of the addresses that users write, and the endpoints that they mean. Name
resolution and sockets do not belong here.

An *endpoint* is what a socket connects to (``"tcp://10.0.0.1:5050"``), or the file that
names it (``"file:/path"``). An *address* is the part of an endpoint after ``://``.
"""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Protocol, TypeAlias

from zmqdata.errors import NotFoundError

PROTOCOLS = ("tcp", "ipc")
FILE_SCHEME = "file:"
"""Prefix of a service that names the file in which a dispatcher announces its address.
"""
EVERY_INTERFACE = frozenset({"0.0.0.0", "::", "*"})  # noqa: S104 - recognised here, never a default
LONGEST_IPC_PATH = 107
PORT_MARK = "%port%"
DATA_PORT_MARK = "%dts_port%"


class HasTarget(Protocol):
    """A dispatcher of this process: a ``DispatchServer`` or a ``LocalCluster``."""

    @property
    def target(self) -> str:
        """Address of the dispatcher."""


Service: TypeAlias = "str | tuple[str, str] | HasTarget"
"""The forms of a service that a user may give; see ``parse_service``."""


def parse_service(service: Service, name: str = "service") -> str:
    """Return the endpoint that a service string, pair or server means.

    Args:
        service: ``"tcp://host:port"``, ``"ipc://path"``, ``"host:port"`` (which means
            tcp), ``"file:PATH"`` (the file that a dispatcher writes), a pair
            ``(protocol, address)``, or a ``LocalCluster`` or ``DispatchServer`` of this
            process. An IPv6 address needs brackets.
        name: name of the argument, for errors.

    Returns:
        The endpoint to connect a socket to, or ``"file:"`` and an absolute path.

    Raises:
        ValueError: the service is not a string, is empty or malformed, or its port is
            missing or out of range.
        NotFoundError: the protocol does not exist.
        RuntimeError: the server is not started yet.

    Example:
        >>> parse_service("localhost:5050")
        'tcp://localhost:5050'
        >>> parse_service(("ipc", "/tmp/dispatcher"))
        'ipc:///tmp/dispatcher'

    The errors are tf.data's. Its only protocol is "grpc"; the protocols here are "tcp"
    and "ipc". The file is ours, as Dask's scheduler file.
    """
    if isinstance(service, str) and service.startswith(FILE_SCHEME):
        return FILE_SCHEME + _absolute_path(service, name)
    protocol, address = _protocol_and_address(service, name)
    if protocol not in PROTOCOLS:
        allowed = " or ".join(f"'{name}://'" for name in PROTOCOLS)
        raise NotFoundError(
            f"No credentials factory has been registered for protocol {protocol}. A service must "
            f"begin with {allowed}, got {service!r}"
        )
    if protocol == "ipc":
        return f"ipc://{_checked_path(address)}"
    host, port = split_address(address)
    if host == "*":
        raise ValueError(
            f"Malformed `{name}` {service!r}: '*' means every host. Name the host on which the "
            "dispatcher runs"
        )
    return f"tcp://{join_address(host, port)}"


def _protocol_and_address(service: object, name: str) -> tuple[str, str]:
    if (
        isinstance(service, (tuple, list))
        and len(service) == 2
        and all(isinstance(part, str) for part in service)
    ):
        protocol, address = service
        if not protocol or not address:
            raise ValueError(f"`{name}` must not have an empty part, got {service!r}")
        return protocol, address
    if hasattr(type(service), "target"):
        service = service.target  # type: ignore[attr-defined]  # just looked up
    if not isinstance(service, str):
        raise ValueError(
            f"`{name}` must be a string such as 'tcp://host:port', a pair (protocol, address), or "
            f"a LocalCluster, got {service!r} of type {type(service).__name__}"
        )
    if service == "":
        raise ValueError(f"`{name}` must not be empty")
    parts = service.split("://")
    if len(parts) > 2:
        raise ValueError(
            f"Malformed `{name}` string has multiple '://': {service}. Expected 'tcp://host:port'"
        )
    if parts[0] == "":
        raise ValueError(
            f"Malformed `{name}` string has no protocol: {service}. Expected 'tcp://host:port'"
        )
    return (parts[0], parts[1]) if len(parts) == 2 else ("tcp", service)


def _absolute_path(service: str, name: str) -> str:
    path = service.removeprefix(FILE_SCHEME)
    path = path.removeprefix("//") if path.startswith("///") else path
    if not path or path.startswith("//") or "\0" in path:
        raise ValueError(
            f"Malformed `{name}` {service!r}: expected the path of the file that a dispatcher "
            "writes (`--dispatcher-file`), such as 'file:/shared/dispatcher.json'"
        )
    return os.path.abspath(path)


def _checked_path(path: str) -> str:
    size = len(os.fsencode(path))
    if not 0 < size <= LONGEST_IPC_PATH:
        raise ValueError(
            f"The path of an ipc:// service must have 1 to {LONGEST_IPC_PATH} bytes, the limit of "
            f"Unix sockets. Got {size} bytes: {path!r}"
        )
    return path


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``"host:port"``, the host without brackets.

    Raises:
        ValueError: a part is missing, or the port is not a number between 1 and 65535.

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
    """Return ``"host:port"``, with brackets around an IPv6 address.

    Example:
        >>> join_address("::1", 5050)
        '[::1]:5050'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def endpoint_host(endpoint: str) -> str | None:
    """Return the host of a tcp endpoint, or None for a path.

    Example:
        >>> endpoint_host("tcp://[::1]:5050")
        '::1'
    """
    protocol, _, address = endpoint.partition("://")
    return split_address(address)[0] if protocol == "tcp" else None


def advertised(advertise: str) -> tuple[str, int | None]:
    """Return host and port of an address to announce. The port is None if it stands for
    the bound port.

    Raises:
        ValueError: the address is malformed, or other processes cannot connect to it.

    Example:
        >>> advertised("gateway:%port%"), advertised("::1"), advertised("10.0.0.1:7000")
        (('gateway', None), ('::1', None), ('10.0.0.1', 7000))
    """
    host, port = _host_and_port(advertise)
    if host in EVERY_INTERFACE or host in (PORT_MARK, DATA_PORT_MARK):
        raise ValueError(
            f"The address {advertise!r} is announced to other processes, which cannot connect to "
            f"the host {host!r}. Name an address of this machine, or leave it out"
        )
    return host, port


def _host_and_port(advertise: str) -> tuple[str, int | None]:
    # A bare IPv6 address contains colons but no port.
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
    """Return the port that an address names; ``""`` if it names no port, or names the
    mark for the bound port.
    """
    behind_host = address.rpartition("]")[2]
    # Several colons without brackets: the whole address is an IPv6 address.
    port = behind_host.partition(":")[2] if behind_host.count(":") == 1 else ""
    return "" if port == mark else port


def check_protocol(protocol: str) -> None:
    """Raise if no server supports the protocol.

    Raises:
        NotFoundError: the protocol is not ``tcp``.
    """
    if protocol != "tcp":
        raise NotFoundError(
            f"No credentials factory has been registered for protocol {protocol}. A server's "
            "protocol must be 'tcp'"
        )


def check_host(host: str, name: str = "host") -> None:
    """Raise if the host to listen on is a path.

    Args:
        host: the host.
        name: name of the setting, for the error.

    Raises:
        ValueError: the host is a path.
    """
    if "/" in host:
        raise ValueError(
            f"`{name}` must be an address or a name of this machine, got {host!r}. A server "
            "listens on TCP, never on a path. Leave it out to listen on 127.0.0.1, for this "
            "machine alone"
        )


def check_names(names: tuple[str, ...], name: str) -> None:
    """Raise if an entry of a list is no host name.

    Args:
        names: the entries.
        name: name of the setting, for the error.

    Raises:
        ValueError: an entry is empty, or has a port or a path.
    """
    for one in names:
        if not one or any(not (letter.isalnum() or letter in "-._") for letter in one):
            raise ValueError(
                f"`{name}` must have host names alone, without a scheme, port or path, and no "
                f"empty entry, got {one!r}. Addresses need not be named"
            )
