"""The list of configured worker addresses, and which worker has which place in it. The
place is the worker's index under static sharding.

Pure: the caller supplies the addresses of host names. ``transport.addresses`` handles
addresses for sockets.

Protocol 4.1.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from zmqdata.errors import FailedPreconditionError

_WITH_PORT = re.compile(r"(?P<host>.*):(?P<port>[a-zA-Z0-9_]+|%port(_[a-zA-Z0-9_]+)?%)")
_ANY_PORT = "%"


class Location(NamedTuple):
    """The parts of an address."""

    scheme: str
    """The scheme; "" if the address names none."""
    host: str
    """The host."""
    port: str
    """The port; "" if the address names none."""

    @property
    def takes_any_port(self) -> bool:
        """True if the port is left open: it is missing, ``%port%`` or
        ``%port_name%``.
        """
        return not self.port or self.port.startswith(_ANY_PORT)


def located(address: str) -> Location:
    """Split an address, or an entry of the list, into its parts. Equal addresses give
    equal parts.

    The grammar is that of tf.data. The text after the last colon is the port if it has
    only letters, digits and underscores, or is ``%port%`` or ``%port_name%``. The text
    before it is the host, which may contain colons and slashes. zmqdata adds these
    rules: the scheme is a part of its own; case does not matter; an IPv6 address equals
    its short form, and needs no brackets without a port.

    >>> located("tcp://[0:0::1]:5050")
    Location(scheme='tcp', host='::1', port='5050')
    >>> located("Gpu-7:%port_worker%")
    Location(scheme='', host='gpu-7', port='%port_worker%')
    >>> located("::1")
    Location(scheme='', host='::1', port='')
    """
    before, separator, behind = address.rpartition("://")
    scheme, rest = (before.lower(), behind) if separator else ("", address)
    numeric = _numeric(rest)
    if numeric is not None:
        return Location(scheme, numeric, "")
    match = _WITH_PORT.fullmatch(rest)
    host, port = (match["host"], match["port"]) if match else (rest, "")
    return Location(scheme, _numeric(host) or host.lower(), port)


def _numeric(host: str) -> str | None:
    """Return an IP address in its short form, without brackets; None for anything
    else.
    """
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return None


class WorkerAddresses:
    """The ordered list of configured addresses, and the workers that have taken its
    entries.

    Args:
        entries: ``"host"``, ``"host:1234"``, ``"host:name"``, ``"host:%port%"`` or
            ``"host:%port_name%"``. Empty: any worker may register, and none has an
            index.
        aliases: other names of the hosts of entries, by the name that ``located`` gives
            the host.

    >>> places = WorkerAddresses(["a:%port%", "b"])
    >>> places.place("tcp://b:7000"), places.place("tcp://a:7000")
    (1, 0)
    >>> places.index("tcp://b:7000")
    1

    The rules are those of tf.data's ``worker_addresses``, with two differences. An
    entry that names exactly this address takes precedence over an entry with an open
    port. The place of a worker that is gone may be taken by another worker of its host,
    whereas tf.data requires the same port again.
    """

    def __init__(
        self, entries: Sequence[str] = (), aliases: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self._configured = [located(entry) for entry in entries]
        self._entries = list(entries)
        self._aliases = {
            host: {located(name).host for name in names} for host, names in (aliases or {}).items()
        }
        self._taken: dict[Location, int] = {}
        self._gone: set[Location] = set()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[str, ...]:
        """The current list, with the addresses of the workers that have taken
        entries.
        """
        return tuple(self._entries)

    def place(self, address: str) -> int | None:
        """Assign the first free entry that fits. The same address gets the same entry
        again.

        Returns:
            The index of the worker; None if the list is empty.

        Raises:
            FailedPreconditionError: no entry fits, or other workers have all that do.
                The text says what to do.
        """
        if not self._configured:
            return None
        location = located(address)
        if location not in self._taken:
            index = self._free_entry(location)
            if index is None:
                raise FailedPreconditionError(self._reason(address, location))
            self._taken = {
                former: number for former, number in self._taken.items() if number != index
            }
            self._taken[location] = index
            self._entries[index] = address
        self._gone.discard(location)
        return self._taken[location]

    def restore(self, held: Mapping[int, str], present: Collection[str]) -> None:
        """Restore the places as they were held. Places whose address is not ``present``
        may be taken by other workers.

        A place that the list no longer allows for its address is left free.
        """
        for index, address in held.items():
            location = located(address)
            if index >= len(self._configured) or not self._may_have(
                self._configured[index], location
            ):
                continue
            self._taken[location] = index
            self._entries[index] = address
            if address not in present:
                self._gone.add(location)

    def _may_have(self, entry: Location, location: Location) -> bool:
        return self._names(entry, location) or self._admits(entry, location)

    def fits(self, address: str) -> bool:
        """Return True if an entry allows an address, even if other workers have taken
        it.
        """
        location = located(address)
        return any(self._may_have(entry, location) for entry in self._configured)

    def leave(self, address: str) -> None:
        """Mark a worker as gone. Its place waits for it, and goes to another worker
        that fits if no other place is free.
        """
        self._gone.add(located(address))

    def index(self, address: str) -> int | None:
        """Return the index of the worker at an address; None if it has no place, as
        always with an empty list.
        """
        return self._taken.get(located(address))

    def _free_entry(self, location: Location) -> int | None:
        held = {number: former in self._gone for former, number in self._taken.items()}
        free = [number for number in range(len(self._configured)) if number not in held]
        left = [number for number in range(len(self._configured)) if held.get(number, False)]
        exact = [number for number in free if self._names(self._configured[number], location)]
        fitting = [
            number for number in free + left if self._admits(self._configured[number], location)
        ]
        return next(iter(exact + fitting), None)

    def _names(self, entry: Location, location: Location) -> bool:
        return entry.port == location.port and self._same_host(entry, location)

    def _admits(self, entry: Location, location: Location) -> bool:
        return entry.takes_any_port and bool(location.port) and self._same_host(entry, location)

    def _same_host(self, entry: Location, location: Location) -> bool:
        if entry.scheme not in ("", location.scheme):
            return False
        return entry.host == location.host or location.host in self._aliases.get(entry.host, ())

    def _reason(self, address: str, location: Location) -> str:
        text = f"Worker {address} may not register. "
        if any(self._admits(self._configured[index], location) for index in self._taken.values()):
            return text + (
                "Its host is configured, but other workers are already running at "
                "the configured host: the list of worker addresses is now "
                f"{', '.join(self._entries)}. Each entry that fits has its worker. "
                "For another worker, add a --worker-address to the dispatcher; for a "
                "worker with --processes N, add N of them: HOST:7000-7003 stands for "
                "four, which --port 7000 --processes 4 takes."
            )
        return text + (
            "The worker's address is not configured: the dispatcher was started with "
            f"--worker-address {', '.join(self._entries)}. Start the worker on one of "
            "these hosts and ports, or add its address. Each process of a worker "
            "with --processes N has a port of its own."
        )


def names_of(address: str) -> tuple[str, ...]:
    """Return the names of a worker at an address: the address, the address without its
    protocol, and the host.

    >>> names_of("tcp://10.0.0.1:7000")
    ('tcp://10.0.0.1:7000', '10.0.0.1:7000', '10.0.0.1')
    """
    place = address.partition("://")[2] or address
    return address, place, place.rpartition(":")[0].strip("[]")
