"""What a dispatcher and a worker can be told when they start: two frozen descriptions, checked when they are made.

Names, order and meaning of the fields are tf.data's, ours come after them. No address is resolved and no file is
touched here; that is for the servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zmqdata.config.endpoints import DATA_PORT_MARK, PORT_MARK, advertised, parse_service
from zmqdata.config.keys import insecure_setting, key_file_setting
from zmqdata.config.settings import MOST_PORT, check_settings, described, from_environment, milliseconds, setting
from zmqdata.errors import FailedPreconditionError, NotFoundError

if TYPE_CHECKING:
    from typing_extensions import Self

SMALLEST_MESSAGE_LIMIT = 1 << 16
MOST_BYTES = 2**63 - 1
DEPLOYMENT_MODES = ("COLOCATED", "REMOTE", "HYBRID")
_PORT_RANGE = re.compile(r"(?P<host>.+):(?P<first>[0-9]{1,5})-(?P<last>[0-9]{1,5})")
DATA_TRANSPORTS = ("shm", "ipc", "tcp")
LEAST_SHARED_MEMORY, MOST_SHARED_MEMORY = 1 << 16, 1 << 40
"""Less would hold none of the frames that are large enough to be worth a slot."""
LEAST_CLIENT_TIMEOUT = 100
"""In milliseconds: what three reports of a client need, on a machine that has something else to do, too."""
SNAPSHOTS_PER_WORKER = 3
MOST_SNAPSHOTS = 10_000


@described
@dataclass(frozen=True)
class DispatcherConfig:
    """How a dispatcher runs.

    A field given as None takes its default.

    Args:
        {settings}

    Raises:
        TypeError: a field has another type.
        ValueError: a field is empty or out of its range, or fault tolerance is asked for without a work folder.
        NotFoundError: the protocol does not exist.

    Example:
        >>> DispatcherConfig(port=5050).worker_timeout_ms
        10000

    tf.data has the same fields, the last seven excepted, with slower defaults. What is at once with 0 and never with -1
    there is so here; a ``worker_timeout_ms`` of 0, the default there, is refused.
    """

    port: int = setting(0, "TCP port to listen on; 0: any free one", least=0, most=MOST_PORT)
    protocol: str = setting("tcp", "protocol of the control connections; 'tcp' is the only one", metavar="tcp")
    work_dir: str | None = setting(
        None,
        "folder of this dispatcher alone for registered pipelines and its journal; without one all is kept in memory",
        metavar="DIR",
    )
    fault_tolerant_mode: bool | None = setting(
        None,
        "let jobs survive a restart of the dispatcher, by a journal in work_dir; not said: if there is one",
        flag="--fault-tolerant",
    )
    worker_addresses: tuple[str, ...] = setting(
        (),
        "the hosts that workers may register from, by name or address; without a port, or with %port%, any port of it; "
        "HOST:A-B is an entry for each of these ports, as the processes of one worker have them; "
        "a name stands for its addresses too; empty: any host",
        flag="--worker-address",
        metavar="HOST[:PORT]",
    )
    job_gc_check_interval_ms: int = milliseconds(
        1_000, "how often to look for jobs to collect, in milliseconds; 0: all the time, -1: never", least=-1
    )
    job_gc_timeout_ms: int = milliseconds(
        300_000,
        "how long a job may be without clients before it is collected, in milliseconds; 0: it goes at once, -1: never",
        least=-1,
    )
    worker_timeout_ms: int = milliseconds(
        10_000,
        "after how long a worker is lost whose machine vanished without a word, in milliseconds; one that is "
        "connected is never lost, however silent, one whose connection ended is lost disconnect_grace_ms later; so "
        "long a static part waits for a worker that has not come, and a restarted dispatcher for the workers that it "
        "had",
    )
    worker_max_concurrent_snapshots: int = setting(
        SNAPSHOTS_PER_WORKER,
        "how many streams of distributed_save each worker writes at a time; 0: the default",
        least=0,
        most=MOST_SNAPSHOTS,
    )
    client_timeout_ms: int = milliseconds(
        15_000,
        "silence after which a client counts as gone when others read the same job, in milliseconds; clients report "
        "once a second, and three times within it if that is more often; at least 100",
    )
    gc_dynamic_sharding_jobs: bool = setting(
        True, "also collect jobs whose splits are handed out as needed, although a client may come back for the rest"
    )
    deployment_mode: str = setting(
        "REMOTE",
        "where the workers are: COLOCATED in the hosts of the clients, REMOTE elsewhere, HYBRID both; with COLOCATED, "
        "clients of a static sharding policy read from workers of their own host",
        choices=DEPLOYMENT_MODES,
        metavar="|".join(DEPLOYMENT_MODES),
    )
    host: str = setting(
        "127.0.0.1", "address or name of this machine to listen on; 0.0.0.0: every interface", metavar="ADDR"
    )
    disconnect_grace_ms: int = milliseconds(
        1_000,
        "how long a worker may be without a connection before it is lost, in milliseconds",
        least=0,
    )
    max_message_bytes: int = setting(
        64 << 20,
        "larger control messages are refused; large pipelines come in smaller pieces",
        least=SMALLEST_MESSAGE_LIMIT,
        most=MOST_BYTES,
    )
    key_file: str | None = key_file_setting()
    insecure: bool = insecure_setting()

    def __post_init__(self) -> None:
        if self.fault_tolerant_mode is True and not self.work_dir:
            raise ValueError(
                "Cannot enable fault tolerant mode without configuring a work dir. Set `work_dir` to a folder that "
                "outlives the dispatcher"
            )
        _check_order(self.worker_addresses)
        check_settings(self)
        _check_protocol(self.protocol)
        _check_host(self.host)
        if self.client_timeout_ms < LEAST_CLIENT_TIMEOUT:
            raise ValueError(
                f"`client_timeout_ms` must be at least {LEAST_CLIENT_TIMEOUT}, got {self.client_timeout_ms}: clients "
                "report three times within it, and one that is busy for a moment longer would count as gone"
            )
        object.__setattr__(self, "worker_addresses", tuple(_one_per_port(self.worker_addresses)))
        _check_places(self.worker_addresses)
        if self.worker_max_concurrent_snapshots == 0:
            object.__setattr__(self, "worker_max_concurrent_snapshots", SNAPSHOTS_PER_WORKER)
        if self.fault_tolerant_mode is None:
            object.__setattr__(self, "fault_tolerant_mode", self.work_dir is not None)

    @classmethod
    def from_environment(cls, **explicit: Any) -> Self:
        """A configuration in which what is not given is taken from ``ZMQDATA_*``, as the command line does.

        Args:
            explicit: fields by name; they win over the environment.

        Raises:
            TypeError, ValueError: as for the class; what the environment has wrong is named.

        Example:
            >>> DispatcherConfig.from_environment(port=5050).port
            5050
        """
        return from_environment(cls, explicit)


def dispatcher_setting() -> str:
    """Declares where the dispatcher is, which a worker and all commands that ask one have to know."""
    return setting(
        "",
        "where the dispatcher listens, as it says when it is ready: tcp://host:port, host:port or ipc://path",
        flag="--dispatcher",
        metavar="tcp://HOST:PORT",
        variable="ZMQDATA_DISPATCHER",
    )


@described
@dataclass(frozen=True)
class WorkerConfig:
    """How a worker runs.

    A field given as None takes its default.

    Args:
        {settings}

    Raises:
        TypeError: a field has another type.
        ValueError: a field is empty, malformed, out of its range or at odds with another one; no dispatcher is named.
        NotFoundError: a protocol does not exist.
        FailedPreconditionError: a tag is empty.

    Example:
        >>> WorkerConfig("tcp://10.0.0.1:5050", worker_tags=("GPU",)).heartbeat_interval_ms
        1000

    tf.data has the same fields, those from ``data_ports`` on excepted, with slower defaults.
    """

    dispatcher_address: str = dispatcher_setting()
    worker_address: str | None = setting(
        None,
        "what to tell others to connect to: HOST, HOST:%port% or HOST:PORT; without it what host says, or the local "
        "address of the route to the dispatcher when that means every interface",
        flag="--advertise",
        metavar="ADDR",
    )
    port: int = setting(0, "TCP port of the control socket; 0: any free one", least=0, most=MOST_PORT)
    protocol: str = setting("tcp", "protocol of the control connections; 'tcp' is the only one", metavar="tcp")
    heartbeat_interval_ms: int = milliseconds(1_000, "how often the dispatcher hears of the worker, in milliseconds")
    dispatcher_timeout_ms: int = milliseconds(
        3_600_000, "how long the worker does without its dispatcher, in milliseconds; longer than a heartbeat interval"
    )
    data_transfer_protocol: str | None = setting(
        None,
        "the only transport over which to send elements: 'tcp', or for clients of this host 'ipc' (paths) or 'shm' "
        "(shared memory); without it the best that the client can use",
        metavar="tcp|ipc|shm",
    )
    data_transfer_address: str | None = setting(
        None,
        "what to tell clients to connect to for elements: HOST, HOST:%dts_port% or, with a single data port, "
        "HOST:PORT; without it the host of worker_address",
        metavar="ADDR",
    )
    host: str = setting(
        "127.0.0.1", "address or name of this machine to listen on; 0.0.0.0: every interface", metavar="ADDR"
    )
    worker_tags: tuple[str, ...] = setting((), "free words by which jobs may choose workers", flag="--tag", metavar="T")
    data_transfer_port: int = setting(
        0,
        "the only TCP port for connections that carry elements, enough for one client at a time; 0: see data_ports, "
        "of which it takes the place",
        least=0,
        most=MOST_PORT,
    )
    cross_trainer_cache_size_bytes: int = setting(
        10 << 30, "how many bytes of elements each task keeps for a cross-trainer cache", least=1, most=MOST_BYTES
    )
    snapshot_max_chunk_size_bytes: int = setting(
        6 << 30, "about the largest chunk that distributed_save writes, in bytes", least=1, most=MOST_BYTES
    )
    shutdown_quiet_period_ms: int = milliseconds(
        0,
        "how long a worker that is told to stop goes on sending the elements that it has made, in milliseconds; it "
        "ends earlier when clients have them all",
        least=0,
    )
    data_ports: tuple[int, int] | None = setting(
        None,
        "first and last TCP port for connections that carry elements, one for each client; without it any free one",
        metavar="A-B",
    )
    buffer_bytes: int = setting(
        16 << 20, "how many bytes each task produces ahead of its clients", least=1, most=MOST_BYTES
    )
    shared_memory_bytes: int = setting(
        128 << 20,
        "how many bytes of memory each client of this host may share with the worker, taken as large elements need "
        f"them; at least {LEAST_SHARED_MEMORY}, or 0: none",
        least=0,
        most=MOST_SHARED_MEMORY,
    )
    pipeline_cache_dir: str | None = setting(
        None,
        "folder for large arrays and shipped code of pipelines, shared by all workers that name it; without it one of "
        "this user in the system's temporary folder",
        metavar="DIR",
    )
    pipeline_cache_bytes: int = setting(
        16 << 30, "how many bytes are kept there; those used longest ago make way for others", least=1, most=MOST_BYTES
    )
    key_file: str | None = key_file_setting()
    insecure: bool = insecure_setting()

    def __post_init__(self) -> None:
        if isinstance(self.dispatcher_address, (str, type(None))) and not self.dispatcher_address:
            raise ValueError(
                "Must specify a `dispatcher_address` in the `WorkerConfig`, for example 'tcp://127.0.0.1:5050', the "
                "address that the dispatcher prints when it starts"
            )
        check_settings(self)
        _check_protocol(self.protocol)
        _check_host(self.host)
        self._check_addresses()
        if not all(tag.strip() for tag in self.worker_tags):
            raise FailedPreconditionError(
                f"Worker tags cannot be empty. Got worker_tags={self.worker_tags!r}; leave the empty ones out"
            )
        if self.dispatcher_timeout_ms <= self.heartbeat_interval_ms:
            raise ValueError(
                f"`dispatcher_timeout_ms`={self.dispatcher_timeout_ms} must be longer than `heartbeat_interval_ms`="
                f"{self.heartbeat_interval_ms}: between two heartbeats the dispatcher has nothing to answer"
            )
        self._check_data_sockets()
        self._check_shared_memory()

    def _check_addresses(self) -> None:
        parse_service(self.dispatcher_address)
        if self.worker_address is not None:
            advertised(self.worker_address)
        if self.data_transfer_address is not None:
            advertised(self.data_transfer_address.replace(DATA_PORT_MARK, PORT_MARK))

    def _check_data_sockets(self) -> None:
        if self.data_transfer_protocol is not None:
            object.__setattr__(self, "data_transfer_protocol", _checked_transport(self.data_transfer_protocol))
        if self.data_transfer_port and self.data_ports is not None:
            raise ValueError(
                f"`data_transfer_port`={self.data_transfer_port} and `data_ports`={self.data_ports} say the same "
                "thing; give one of the two"
            )
        names = ("data_ports", "data_transfer_port", "data_transfer_address")
        useless = [name for name in names if getattr(self, name)]
        if self.data_transfer_protocol in ("ipc", "shm") and useless:
            chosen = self.data_transfer_protocol
            raise ValueError(f"`{useless[0]}` means nothing with `data_transfer_protocol`={chosen!r}, which uses paths")
        ports = self.usable_data_ports
        if self.announced_data_port and (ports is None or ports[0] != ports[1]):
            raise ValueError(
                f"`data_transfer_address`={self.data_transfer_address!r} names one port for all connections that carry "
                f"elements, and there may be several: write {DATA_PORT_MARK} for it, or set `data_transfer_port`"
            )

    def _check_shared_memory(self) -> None:
        if 0 < self.shared_memory_bytes < LEAST_SHARED_MEMORY:
            raise ValueError(
                f"`shared_memory_bytes` must be at least {LEAST_SHARED_MEMORY}, or 0 for none, got "
                f"{self.shared_memory_bytes}: no element that is worth sharing fits into less"
            )
        if self.data_transfer_protocol == "shm" and not self.shared_memory_bytes:
            raise ValueError(
                "`shared_memory_bytes`=0 leaves nothing for `data_transfer_protocol`='shm': give it memory, or say "
                "'ipc' to send elements through sockets"
            )

    @property
    def usable_data_ports(self) -> tuple[int, int] | None:
        """First and last port for connections that carry elements, whichever setting says so; None: any."""
        return (self.data_transfer_port, self.data_transfer_port) if self.data_transfer_port else self.data_ports

    @property
    def announced_port(self) -> str:
        """The port that ``worker_address`` names, ``""`` when it names none, or the one that is bound."""
        return _port_in(self.worker_address or "", PORT_MARK)

    @property
    def announced_data_port(self) -> str:
        """The port that ``data_transfer_address`` names, ``""`` when it names none, or the one that is bound."""
        return _port_in(self.data_transfer_address or "", DATA_PORT_MARK)

    @classmethod
    def from_environment(cls, **explicit: Any) -> Self:
        """A configuration in which what is not given is taken from ``ZMQDATA_*``, as the command line does.

        Args:
            explicit: fields by name; they win over the environment.

        Raises:
            TypeError, ValueError: as for the class; what the environment has wrong is named.

        Example:
            >>> WorkerConfig.from_environment(dispatcher_address="tcp://10.0.0.1:5050").port
            0
        """
        return from_environment(cls, explicit)


def _one_per_port(entries: Iterable[str]) -> Iterator[str]:
    """The entries, with one for each port where there is a range of them."""
    for entry in entries:
        match = _PORT_RANGE.fullmatch(entry)
        if match is None:
            yield entry
            continue
        first, last = int(match["first"]), int(match["last"])
        if not 0 < first <= last <= MOST_PORT:
            raise ValueError(
                f"`worker_addresses` has the ports {first}-{last} in {entry!r}: the first must not be above the last, "
                f"both between 1 and {MOST_PORT}"
            )
        yield from (f"{match['host']}:{port}" for port in range(first, last + 1))


def _port_in(address: str, mark: str) -> str:
    behind_host = address.rpartition("]")[2]
    # More than one colon without brackets: all of it is an IPv6 address.
    port = behind_host.partition(":")[2] if behind_host.count(":") == 1 else ""
    return "" if port == mark else port


def _check_order(entries: object) -> None:
    if isinstance(entries, Set):
        raise TypeError(
            "`worker_addresses` must be a list, as the place of an entry is the index of its worker, and a set has no "
            f"order: got {entries!r}"
        )


def _check_places(entries: tuple[str, ...]) -> None:
    """Refuses entries for which no worker can ever come: static jobs would wait for it."""
    fixed: set[str] = set()
    for entry in entries:
        if not entry.strip():
            raise ValueError(f"`worker_addresses` must not have empty entries, got {entries!r}")
        if entry.split() != [entry]:
            raise ValueError(f"`worker_addresses` must not have spaces in an entry, got {entry!r}")
        port = _port_in(entry.rpartition("://")[2], PORT_MARK)
        if not (port.isascii() and port.isdecimal()):
            continue
        if len(port) > len(str(MOST_PORT)) or not 1 <= int(port) <= MOST_PORT:
            raise ValueError(f"`worker_addresses` has the port {port} in {entry!r}; expected 1 to {MOST_PORT}")
        if entry.lower() in fixed:
            raise ValueError(
                f"`worker_addresses` has {entry!r} twice, and only one worker can have that port: leave one out, or "
                f"write {PORT_MARK} for the port"
            )
        fixed.add(entry.lower())


def _check_protocol(protocol: str) -> None:
    if protocol != "tcp":
        raise NotFoundError(
            f"No credentials factory has been registered for protocol {protocol}. A server's protocol is 'tcp'"
        )


def _check_host(host: str) -> None:
    if "/" in host:
        raise ValueError(
            f"`host` must be an address or a name of this machine, got {host!r}: a server listens on TCP, never on a "
            "path. For this machine alone leave it out, which is 127.0.0.1"
        )


def _checked_transport(name: str) -> str:
    if name.lower() not in DATA_TRANSPORTS:
        raise NotFoundError(
            f"No data transfer server factory has been registered for name {name}. A worker's `data_transfer_protocol` "
            f"is one of {', '.join(map(repr, DATA_TRANSPORTS))}, or None for the best of them"
        )
    return name.lower()
