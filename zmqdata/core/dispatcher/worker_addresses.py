"""Which worker has which place in the list of configured addresses. Its place is its
index under static sharding.

Pure: what host names stand for is told, not looked up. Addresses as sockets want them
are in ``transport.addresses``.
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
    """An address in its parts; ``scheme`` and ``port`` are "" where none is named."""

    scheme: str
    host: str
    port: str

    @property
    def takes_any_port(self) -> bool:
        """Whether the port is left open: none is named, or ``%port%``, or
        ``%port_name%``.
        """
        return not self.port or self.port.startswith(_ANY_PORT)


def located(address: str) -> Location:
    """An address or an entry of the list in its parts, in the one form in which they
    can be compared.

    The grammar is that of tf.data: what follows the last colon is the port if it has
    only letters, digits and underscores, or is ``%port%`` or ``%port_name%``; all
    before it is the host, which may have colons and slashes itself. Ours: a scheme is a
    part of its own, upper and lower case are the same, an IPv6 address is the same in
    its long and short form, and may stand without brackets where it has no port.

    >>> located("tcp://[0:0::1]:5050")
    Location(scheme='tcp', host='::1', port='5050')
    >>> located("Gpu-7:%port_worker%"), located("::1")
    (Location(scheme='', host='gpu-7', port='%port_worker%'), Location(scheme='', host='::1', port=''))
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
    """An IP address in its short form, without brackets; None for anything else."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return None


class WorkerAddresses:
    """The ordered list of configured addresses, and who has come for each of them.

    Args:
        entries: ``"host"``, ``"host:1234"``, ``"host:name"``, ``"host:%port%"`` or
            ``"host:%port_name%"``. Empty: any worker may come, and none has an index.
        aliases: for hosts of the entries, by the name that ``located`` gives them,
            other names of the same host.

    >>> places = WorkerAddresses(["a:%port%", "b"])
    >>> places.place("tcp://b:7000"), places.place("tcp://a:7000"), places.index("tcp://b:7000")
    (1, 0, 1)

    The rules are those of tf.data's ``worker_addresses``, with two differences: an
    entry that names exactly this address comes before one that would take it, too; and
    the place of a worker that is gone may be taken by another of its host, where
    tf.data wants the same port again.
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
        """The list as it is now: where a worker has come, its address."""
        return tuple(self._entries)

    def place(self, address: str) -> int | None:
        """Take the first free entry that fits; the same address gets the same one
        again.

        Returns:
            The index of the worker; None if the list is empty.

        Raises:
            FailedPreconditionError: no entry fits, or others have all that do. The text
                says what to do.
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
        """Gives places back as they were held; those whose address is not ``present``
        may be taken by others.

        A place that the list does not give to that address any more is left free.
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
        """Whether an entry is for such an address, though others may have it."""
        location = located(address)
        return any(self._may_have(entry, location) for entry in self._configured)

    def leave(self, address: str) -> None:
        """The worker is gone: its place waits for it, and goes to another that fits if
        no other is free.
        """
        self._gone.add(located(address))

    def index(self, address: str) -> int | None:
        """The index of the worker at an address; None if it has no place, as in every
        list that is empty.
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
                "Its host is configured, but other workers are already running at the configured "
                "host: the list of "
                f"worker addresses is now {', '.join(self._entries)}. Each that fits has its "
                "worker; for a further one "
                "the dispatcher needs a further --worker-address, for one with --processes N as "
                "many: HOST:7000-7003 "
                "stands for four, which --port 7000 --processes 4 takes."
            )
        return text + (
            "The worker's address is not configured: the dispatcher was started with "
            "--worker-address "
            f"{', '.join(self._entries)}. Start the worker on one of these hosts and ports, or add "
            "its address; "
            "each process of a worker with --processes N has a port of its own."
        )


def names_of(address: str) -> tuple[str, ...]:
    """What a worker at an address may be called: that, without its protocol, or its
    host.

    >>> names_of("tcp://10.0.0.1:7000")
    ('tcp://10.0.0.1:7000', '10.0.0.1:7000', '10.0.0.1')
    """
    place = address.partition("://")[2] or address
    return address, place, place.rpartition(":")[0].strip("[]")
