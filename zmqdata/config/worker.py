"""The configuration of a worker, validated at creation.

Names, order and meaning of the fields are tf.data's; fields without a counterpart in
tf.data come after them. Resolving addresses and touching files belongs to the server,
not to this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from zmqdata.config.checks import MOST_PORT, WorkerTransport
from zmqdata.config.endpoints import (
    DATA_PORT_MARK,
    PORT_MARK,
    advertised,
    check_host,
    check_names,
    check_protocol,
    parse_service,
    port_in,
)
from zmqdata.config.keys import insecure_setting, key_file_setting
from zmqdata.config.metrics import (
    metrics_host_setting,
    metrics_names_setting,
    metrics_port_setting,
)
from zmqdata.config.settings import (
    MOST_BYTES,
    MOST_MILLISECONDS,
    check_settings,
    described,
    from_environment,
    milliseconds,
    setting,
)
from zmqdata.config.telemetry import check_otel, otel_setting
from zmqdata.errors import FailedPreconditionError, NotFoundError

if TYPE_CHECKING:
    from typing_extensions import Self

DATA_TRANSPORTS = get_args(WorkerTransport)
LEAST_SHARED_MEMORY, MOST_SHARED_MEMORY = 1 << 16, 1 << 40
"""Bounds of ``shared_memory_bytes``. Below the lower bound, no frame that is large
enough for a slot fits.
"""
MOST_NAME = 100
"""Maximum number of characters of the name of a worker."""
DRAIN_SECONDS = 6.0
"""Default of ``drain_seconds``."""


def dispatcher_setting() -> str:
    """Declare the address of the dispatcher, for a worker and for all commands that
    connect to a dispatcher.
    """
    return setting(
        "",
        "address of the dispatcher, as the dispatcher prints it when it is ready: tcp://host:port, "
        "host:port or ipc://path; or file:FILE, the file that it writes (--dispatcher-file)",
        flag="--dispatcher",
        metavar="tcp://HOST:PORT",
        variable="ZMQDATA_DISPATCHER",
    )


@described
@dataclass(frozen=True)
class WorkerConfig:
    """Configuration of a worker.

    A field given as None takes its default.

    Args:
        {settings}

    Raises:
        TypeError: a field has another type.
        ValueError: a field is empty, malformed, out of its range or contradicts another
            field, or no dispatcher is named.
        NotFoundError: a protocol does not exist.
        FailedPreconditionError: a tag is empty.

    Example:
        >>> config = WorkerConfig("tcp://10.0.0.1:5050", worker_tags=("GPU",))
        >>> config.heartbeat_interval_ms
        1000

    tf.data has the same fields except ``data_ports`` and the fields after it, with
    slower defaults.
    """

    dispatcher_address: str = dispatcher_setting()
    worker_address: str | None = setting(
        None,
        "address announced to other processes: HOST, HOST:%port% or HOST:PORT; without it, the "
        "value of host, or the local address of the route to the dispatcher if host means every "
        "interface",
        flag="--advertise",
        metavar="ADDR",
    )
    port: int = setting(
        0, "TCP port of the control socket; 0: any free port", least=0, most=MOST_PORT
    )
    protocol: str = setting(
        "tcp", "protocol of the control connections; 'tcp' is the only one", metavar="tcp"
    )
    heartbeat_interval_ms: int = milliseconds(
        1_000, "interval between heartbeats to the dispatcher, in milliseconds"
    )
    dispatcher_timeout_ms: int = setting(
        3_600_000,
        "time without its dispatcher, before or after the first registration, after which the "
        "worker ends; longer than a heartbeat interval; seconds on the command line, milliseconds "
        "here",
        least=1,
        most=MOST_MILLISECONDS,
        flag="--death-timeout",
        variable="ZMQDATA_DEATH_TIMEOUT",
        metavar="S",
        unit=1000,
    )
    data_transfer_protocol: WorkerTransport | None = setting(
        None,
        "the only transport for elements: 'tcp', or for clients on the same host 'ipc' (paths) or "
        "'shm' (shared memory); without it, the best transport that the client supports",
        metavar="tcp|ipc|shm",
    )
    data_transfer_address: str | None = setting(
        None,
        "address announced to clients for elements: HOST, HOST:%dts_port% or, with a single data "
        "port, HOST:PORT; without it, the host of worker_address",
        metavar="ADDR",
    )
    host: str = setting(
        "127.0.0.1",
        "address or name of this machine to listen on; 0.0.0.0: every interface",
        metavar="ADDR",
    )
    worker_tags: tuple[str, ...] = setting(
        (), "tags by which jobs select workers", flag="--tag", metavar="T"
    )
    data_transfer_port: int = setting(
        0,
        "the only TCP port for connections that carry elements, enough for one client at a time; "
        "replaces data_ports; 0: use data_ports",
        least=0,
        most=MOST_PORT,
    )
    cross_trainer_cache_size_bytes: int = setting(
        10 << 30,
        "number of bytes of elements that each task keeps for a cross-trainer cache",
        least=1,
        most=MOST_BYTES,
    )
    snapshot_max_chunk_size_bytes: int = setting(
        6 << 30,
        "approximate size of the largest chunk that distributed_save writes, in bytes",
        least=1,
        most=MOST_BYTES,
    )
    shutdown_quiet_period_ms: int = milliseconds(
        0,
        "time that a stopping worker continues to send the elements that it has produced, in "
        "milliseconds; it ends earlier when clients have all of them",
        least=0,
    )
    data_ports: tuple[int, int] | None = setting(
        None,
        "first and last TCP port for connections that carry elements, one port for each client; "
        "without it, any free port",
        metavar="A-B",
    )
    buffer_bytes: int = setting(
        16 << 20,
        "number of bytes that each task produces ahead of its clients; the tasks of a job on a "
        "worker share it if they are read in turn, and a task with nothing ahead always produces "
        "more",
        least=1,
        most=MOST_BYTES,
    )
    shared_memory_bytes: int = setting(
        128 << 20,
        "number of bytes of memory that each client on the same host may share with the worker, "
        f"allocated as large elements need them; at least {LEAST_SHARED_MEMORY}, or 0: none",
        least=0,
        most=MOST_SHARED_MEMORY,
    )
    pipeline_cache_dir: str | None = setting(
        None,
        "folder for large arrays and shipped code of pipelines, shared by all workers that name "
        "it; without it, a folder of this user in the system's temporary folder",
        metavar="DIR",
    )
    pipeline_cache_bytes: int = setting(
        16 << 30,
        "size limit of pipeline_cache_dir in bytes; the least recently used files are evicted "
        "first",
        least=1,
        most=MOST_BYTES,
    )
    otel: bool = otel_setting()
    key_file: str | None = key_file_setting()
    insecure: bool = insecure_setting()
    name: str | None = setting(
        None,
        f"name of this worker in the status, in logs and in metrics, at most {MOST_NAME} "
        "printable characters; several processes are NAME/0, NAME/1, ...; none: its address alone",
        metavar="TEXT",
        variable="ZMQDATA_WORKER_NAME",
    )
    drain_seconds: float = setting(
        DRAIN_SECONDS,
        "maximum number of seconds for which a worker that is told to end waits until other "
        "workers have its tasks; 0: it hands them over without waiting",
        least=0,
        metavar="S",
    )
    forward_logs: bool = setting(
        True,
        "send what functions of pipelines print and log to the training processes that show it; "
        "only processes of the worker command can, not a worker in a thread",
    )
    metrics_port: int | None = metrics_port_setting(
        "; several processes use consecutive ports from here on"
    )
    metrics_host: str = metrics_host_setting()
    metrics_names: tuple[str, ...] = metrics_names_setting()

    def __post_init__(self) -> None:
        if isinstance(self.dispatcher_address, (str, type(None))) and not self.dispatcher_address:
            raise ValueError(
                "Must specify a `dispatcher_address` in the `WorkerConfig`, for example "
                "'tcp://127.0.0.1:5050'. The dispatcher prints its address when it starts"
            )
        check_settings(self)
        check_protocol(self.protocol)
        check_host(self.host)
        check_host(self.metrics_host, "metrics_host")
        check_names(self.metrics_names, "metrics_names")
        self._check_addresses()
        if not all(tag.strip() for tag in self.worker_tags):
            raise FailedPreconditionError(
                f"Worker tags cannot be empty. Got worker_tags={self.worker_tags!r}; remove the "
                "empty tags"
            )
        if self.dispatcher_timeout_ms <= self.heartbeat_interval_ms:
            raise ValueError(
                f"`dispatcher_timeout_ms`={self.dispatcher_timeout_ms} (`--death-timeout`, in "
                "seconds) must be longer than "
                f"`heartbeat_interval_ms`={self.heartbeat_interval_ms}: the dispatcher answers "
                "only to heartbeats"
            )
        self._check_data_sockets()
        self._check_shared_memory()
        if self.name is not None:
            check_name(self.name)
        if self.otel:
            check_otel()

    def _check_addresses(self) -> None:
        parse_service(self.dispatcher_address)
        if self.worker_address is not None:
            advertised(self.worker_address)
        if self.data_transfer_address is not None:
            advertised(self.data_transfer_address.replace(DATA_PORT_MARK, PORT_MARK))

    def _check_data_sockets(self) -> None:
        if self.data_transfer_protocol is not None:
            object.__setattr__(
                self, "data_transfer_protocol", _checked_transport(self.data_transfer_protocol)
            )
        if self.data_transfer_port and self.data_ports is not None:
            raise ValueError(
                f"`data_transfer_port`={self.data_transfer_port} and "
                f"`data_ports`={self.data_ports} both set the ports for elements. Set only one of "
                "them"
            )
        names = ("data_ports", "data_transfer_port", "data_transfer_address")
        useless = [name for name in names if getattr(self, name)]
        if self.data_transfer_protocol in ("ipc", "shm") and useless:
            chosen = self.data_transfer_protocol
            raise ValueError(
                f"`{useless[0]}` has no effect with `data_transfer_protocol`={chosen!r}, which "
                "uses paths instead of ports. Leave it out"
            )
        ports = self.usable_data_ports
        if self.announced_data_port and (ports is None or ports[0] != ports[1]):
            raise ValueError(
                f"`data_transfer_address`={self.data_transfer_address!r} names a single port for "
                "all connections that carry elements, but several ports may be in use. Write "
                f"{DATA_PORT_MARK} instead of the port, or set `data_transfer_port`"
            )

    def _check_shared_memory(self) -> None:
        if 0 < self.shared_memory_bytes < LEAST_SHARED_MEMORY:
            raise ValueError(
                f"`shared_memory_bytes` must be at least {LEAST_SHARED_MEMORY}, or 0 for none, got "
                f"{self.shared_memory_bytes}. No element that is large enough to be shared fits "
                "into less"
            )
        if self.data_transfer_protocol == "shm" and not self.shared_memory_bytes:
            raise ValueError(
                "`shared_memory_bytes`=0 leaves no memory for `data_transfer_protocol`='shm'. Set "
                "it to a positive size, or choose 'ipc' to send elements through sockets"
            )

    @property
    def usable_data_ports(self) -> tuple[int, int] | None:
        """First and last port for connections that carry elements, from either setting;
        None means any port.
        """
        return (
            (self.data_transfer_port, self.data_transfer_port)
            if self.data_transfer_port
            else self.data_ports
        )

    @property
    def announced_port(self) -> str:
        """The port that ``worker_address`` names; ``""`` if it names no port or stands
        for the bound port.
        """
        return port_in(self.worker_address or "", PORT_MARK)

    @property
    def announced_data_port(self) -> str:
        """The port that ``data_transfer_address`` names; ``""`` if it names no port or
        stands for the bound port.
        """
        return port_in(self.data_transfer_address or "", DATA_PORT_MARK)

    @classmethod
    def from_environment(cls, **explicit: Any) -> Self:
        """Return a configuration whose missing fields are taken from ``ZMQDATA_*``, as
        the command line does.

        Args:
            explicit: fields by name; they take precedence over the environment.

        Raises:
            TypeError, ValueError: as for the class; the error names the environment
                variable with a wrong value.

        Example:
            >>> WorkerConfig.from_environment(dispatcher_address="tcp://10.0.0.1:5050").port
            0
        """
        return from_environment(cls, explicit)


def check_name(name: str) -> None:
    """Refuse a name of a worker that no table can show.

    Raises:
        ValueError: it is longer than ``MOST_NAME``, or not printable.

    Example:
        >>> check_name("node17")
    """
    if len(name) > MOST_NAME or not name.isprintable():
        raise ValueError(
            f"`name` must have at most {MOST_NAME} printable characters, got {name[:120]!r}"
        )


def _checked_transport(name: str) -> str:
    if name.lower() not in DATA_TRANSPORTS:
        raise NotFoundError(
            f"No data transfer server factory has been registered for name {name}. A worker's "
            f"`data_transfer_protocol` must be one of {', '.join(map(repr, DATA_TRANSPORTS))}, or "
            "None for the best transport"
        )
    return name.lower()
