"""Addresses in the form that sockets need, and in the form that other machines can
reach. Hosts are resolved here, without ZeroMQ.

``zmqdata.config.endpoints`` parses what users write.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator

from zmqdata.config.endpoints import (
    EVERY_INTERFACE,
    advertised,
    endpoint_host,
    join_address,
    split_address,
)
from zmqdata.errors import InvalidArgumentError, ResourceExhaustedError
from zmqdata.files.paths import boot_id, identity_of, token_of
from zmqdata.machine.descriptors import is_shortage, shortage
from zmqdata.transport.dispatcher_file import current_address

# Reserved for documentation: the route to it is the default route, and nothing is
# ever sent there.
SOMEWHERE_ELSE = "192.0.2.1"
LOOPBACK = "127.0.0.1"
SIOCGIFADDR = 0x8915
REACHABLE = "Start it with `--host 0.0.0.0`, or with the address of its machine."
"""Remedy for a server that only its own machine reaches."""


def resolve_host(host: str) -> str:
    """Return the numeric address of a host name.

    Raises:
        InvalidArgumentError: the host cannot be resolved.
    Example:
        >>> resolve_host("127.0.0.1")
        '127.0.0.1'
    """
    return host_addresses(host)[0]


def host_addresses(host: str) -> list[str]:
    """Return the numeric addresses of a host name, IPv4 first.

    Raises:
        InvalidArgumentError: the host cannot be resolved.
    Example:
        >>> host_addresses("127.0.0.1")
        ['127.0.0.1']
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        if is_shortage(error):
            raise shortage(f"a look at host {host!r}") from None
        raise InvalidArgumentError(
            f"Unknown host {host!r}: {getattr(error, 'strerror', None) or error}. Check its "
            "spelling"
        ) from None
    # IPv4 first, since most servers are bound to an IPv4 address.
    addresses = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return [str(entry[4][0]) for entry in addresses]


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a socket bound to a host name or
    address.

    Raises:
        InvalidArgumentError: the host cannot be resolved.
    Example:
        >>> is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, False)
    """
    if host in EVERY_INTERFACE:
        return False
    return all(
        ipaddress.ip_address(one.partition("%")[0]).is_loopback
        for one in host_addresses(host.strip("[]"))
    )


def bind_endpoint(host: str, port: int) -> str:
    """Return the endpoint to bind for a host name or address. Port 0 becomes ``*``,
    ZeroMQ's notation for any free port.

    Raises:
        InvalidArgumentError: the host is unknown, or is not this machine.
    Example:
        >>> bind_endpoint("0.0.0.0", 0)
        'tcp://0.0.0.0:*'
    """
    numeric = "0.0.0.0" if host == "*" else resolve_host(host)  # noqa: S104 - what the user asked for
    family = socket.AF_INET6 if ":" in numeric else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((numeric, 0))
    except OSError as error:
        if is_shortage(error):
            raise shortage(f"a socket at host {host!r}") from None
        raise InvalidArgumentError(
            f"Cannot bind to host {host!r}: {error.strerror}. It must be an address of this "
            "machine, or '0.0.0.0' for every interface"
        ) from None
    shown = f"[{numeric}]" if ":" in numeric else numeric
    return f"tcp://{shown}:{port or '*'}"


def free_port(host: str, first: int, last: int) -> int:
    """Return the first port from ``first`` to ``last`` that is free now. Another
    process may take it a moment later.

    Raises:
        InvalidArgumentError: the host is unknown.
        ResourceExhaustedError: every port is taken.
    Example:
        >>> 20000 <= free_port("127.0.0.1", 20000, 60000) <= 60000
        True
    """
    numeric = "0.0.0.0" if host == "*" else resolve_host(host)  # noqa: S104 - what the user asked for
    family = socket.AF_INET6 if ":" in numeric else socket.AF_INET
    for port in range(first, last + 1):
        with socket.socket(family, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            # As libzmq does; otherwise the remains of closed connections keep a port
            # busy.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((numeric, port))
            return port
    raise ResourceExhaustedError(
        f"Data ports exhausted: none of the ports {first} to {last} of {host} is free; give "
        "another range"
    )


def announced_host(
    host: str, advertise: str | None = None, dispatcher_endpoint: str | None = None
) -> str:
    """Return the host name or address by which other machines reach a socket bound to
    ``host``.

    Args:
        host: the host that the socket is bound to.
        advertise: what the user wants announced (``"host"``, ``"host:%port%"`` or
            ``"host:port"``); its host takes precedence.
        dispatcher_endpoint: the destination of the route lookup if ``host`` means every
            interface; None looks up the default route.

    Returns:
        A host without port and brackets.
    Example:
        >>> announced_host("0.0.0.0", dispatcher_endpoint="tcp://127.0.0.1:5050")
        '127.0.0.1'
    """
    if advertise:
        return advertised(advertise)[0]
    if host not in EVERY_INTERFACE:
        return host
    target = endpoint_host(current_address(dispatcher_endpoint)) if dispatcher_endpoint else None
    return local_address_towards(target or SOMEWHERE_ELSE)


def announced_address(
    host: str, advertise: str | None, dispatcher_endpoint: str | None, port: int
) -> str:
    """Return the ``"host:port"`` by which other machines reach a socket bound to
    ``host`` and ``port``.

    Arguments are as in :func:`announced_host`; a port in ``advertise`` takes precedence
    over ``port``.
    Example:
        >>> announced_address("0.0.0.0", "gateway:%port%", None, 7000)
        'gateway:7000'
    """
    forwarded = advertised(advertise)[1] if advertise else None
    return join_address(announced_host(host, advertise, dispatcher_endpoint), forwarded or port)


def local_address_towards(host: str) -> str:
    """Return the local source address of packets to ``host``.

    Nothing is sent: connecting a datagram socket only consults the routing table.
    Without a route, as on an isolated network, the result is the address of the first
    interface that has an IPv4 address. It is the loopback address if no interface has
    such an address, or ``host`` cannot be resolved.
    Example:
        >>> local_address_towards("127.0.0.1")
        '127.0.0.1'
    """
    try:
        numeric = resolve_host(host)
    except InvalidArgumentError:
        return LOOPBACK
    family = socket.AF_INET6 if ":" in numeric else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((numeric, 9))
        return str(probe.getsockname()[0])
    return next(interface_addresses(), LOOPBACK)


def is_this_machine(endpoint: str) -> bool:
    """Return True if an endpoint is an address of this machine, or a path. False for
    the file of a dispatcher that has not started yet.

    Example:
        >>> is_this_machine("tcp://127.0.0.1:5050"), is_this_machine("ipc:///tmp/dispatcher")
        (True, True)
    """
    address = current_address(endpoint)
    host = endpoint_host(address)
    try:
        numeric = None if host is None else resolve_host(host)
    except InvalidArgumentError:
        return False
    if not address:
        return False
    if numeric is None:
        return True
    family = socket.AF_INET6 if ":" in numeric else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((numeric, 0))
    except OSError:
        return False
    return True


def interface_addresses() -> Iterator[str]:
    """Yield the IPv4 address of each interface of this machine that has one, without
    loopback. Yield nothing on systems other than Linux.
    Example:
        >>> any(address.startswith("127.") for address in interface_addresses())
        False
    """
    if sys.platform != "linux":
        return
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                # An ``ifreq``: 16 bytes of name, then a ``sockaddr_in``, whose address
                # lies at its bytes 4 to 8.
                answer = fcntl.ioctl(probe, SIOCGIFADDR, name.encode().ljust(40, b"\0"))
                address = ipaddress.IPv4Address(answer[20:24])
                if not address.is_loopback:
                    yield str(address)


def host_token() -> str:
    """Return a token that is equal in two processes exactly if they share kernel,
    network, files and user.

    Such processes may use ``ipc://`` paths and shared memory with each other.
    Containers of a machine have different tokens.
    Example:
        >>> host_token() == host_token()
        True
    """
    with contextlib.suppress(OSError):
        spaces = [identity_of(f"/proc/self/ns/{name}") for name in ("net", "mnt")]
        # Another user cannot enter the folder of this user's sockets.
        return token_of(boot_id(), str(os.getuid()), *spaces)
    return token_of(*os.uname())


def somebody_listens(endpoint: str, timeout: float = 0.5) -> bool:
    """Return True if a server accepts connections at an endpoint now.

    Example:
        >>> somebody_listens("ipc:///nowhere/at-all")
        False
    """
    with contextlib.suppress(OSError):
        _connect(endpoint, timeout)
        return True
    return False


def is_refused(endpoint: str, timeout: float = 0.5) -> bool:
    """Return True if no server can be at an endpoint now. False if none answers in
    time, because the way may be slow.

    Example:
        >>> is_refused("ipc:///nowhere/at-all")
        True
    """
    try:
        _connect(endpoint, timeout)
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except OSError:
        return False
    return False


def _connect(endpoint: str, timeout: float) -> None:
    """Connect to an endpoint and hang up."""
    found = current_address(endpoint)
    if not found:
        raise FileNotFoundError(endpoint)
    address = found.partition("://")[2]
    if found.startswith("tcp://"):
        socket.create_connection(split_address(address), timeout).close()
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as near:
        near.settimeout(timeout)
        near.connect(address)
