"""What a dispatcher and a worker can be told when they start: two frozen descriptions, checked when they are made.

Names, order and meaning of the fields are tf.data's, ours come after them. Only fields that have an effect exist. No
address is resolved and no file is touched here; that is for the servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields

from zmqdata.errors import FailedPreconditionError, NotFoundError, UnimplementedError

FOREVER = -1
SMALLEST_MESSAGE_LIMIT = 1 << 16


@dataclass(frozen=True)
class DispatcherConfig:
    """How a dispatcher runs.

    A field given as None takes its default.

    Args:
        port: TCP port to bind; 0: any free one.
        protocol: ``"tcp"``.
        work_dir: folder where registered pipelines are kept; None: in memory.
        fault_tolerant_mode: whether jobs survive a restart of the dispatcher. Not supported yet.
        worker_addresses: the hosts that workers may register from, ``host``, ``host:port`` or ``host:%port%`` (any);
            a name stands for its addresses too; empty: any.
        job_gc_check_interval_ms: how often the dispatcher looks for jobs to collect, in milliseconds.
        job_gc_timeout_ms: how long a job may be without clients before it is collected, in milliseconds; -1: for ever.
        worker_timeout_ms: how long a connection may be without ZeroMQ's heartbeats before it is given up, in
            milliseconds. A worker without a connection is lost 1.5 s later; a connected one never, however silent.
        host: address or host name to bind; ``"0.0.0.0"``: every interface.
        client_timeout_ms: silence after which a client counts as gone, in milliseconds.
        max_message_bytes: larger control messages, and so larger pipelines, are refused.

    Raises:
        TypeError: a field has another type.
        ValueError: a field is out of its range, or fault tolerance is asked for without a work folder.
        NotFoundError: the protocol does not exist.
        UnimplementedError: fault tolerance is asked for.

    Example:
        >>> DispatcherConfig(port=5050).worker_timeout_ms
        10000

    tf.data has the same fields with slower defaults; ``host`` and ``max_message_bytes`` are ours.
    """

    port: int = 0
    protocol: str = "tcp"
    work_dir: str | None = None
    fault_tolerant_mode: bool = False
    worker_addresses: tuple[str, ...] = ()
    job_gc_check_interval_ms: int = 1_000
    job_gc_timeout_ms: int = 300_000
    worker_timeout_ms: int = 10_000
    host: str = "127.0.0.1"
    client_timeout_ms: int = 15_000
    max_message_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        _fill_defaults(self)
        _check_socket(self.host, self.port, self.protocol)
        _check_type("fault_tolerant_mode", self.fault_tolerant_mode, bool)
        if self.work_dir is not None:
            _check_type("work_dir", self.work_dir, str)
        object.__setattr__(self, "worker_addresses", _texts("worker_addresses", self.worker_addresses))
        _check_at_least("job_gc_check_interval_ms", self.job_gc_check_interval_ms, 0)
        _check_at_least("job_gc_timeout_ms", self.job_gc_timeout_ms, FOREVER)
        _check_at_least("worker_timeout_ms", self.worker_timeout_ms, 1)
        _check_at_least("client_timeout_ms", self.client_timeout_ms, 1)
        _check_at_least("max_message_bytes", self.max_message_bytes, SMALLEST_MESSAGE_LIMIT)
        if self.fault_tolerant_mode:
            _refuse_fault_tolerance(self.work_dir)


@dataclass(frozen=True)
class WorkerConfig:
    """How a worker runs.

    A field given as None takes its default.

    Args:
        dispatcher_address: where the dispatcher is: ``"tcp://host:port"``, ``"host:port"`` or ``"ipc://path"``.
        worker_address: what to tell others to connect to: ``"host"``, ``"host:%port%"`` or ``"host:port"``;
            None: what ``host`` says, or the local address of the route to the dispatcher when it means every interface.
        port: TCP port of the control socket; 0: any free one.
        protocol: ``"tcp"``.
        heartbeat_interval_ms: how often the dispatcher hears of the worker, in milliseconds.
        dispatcher_timeout_ms: how long a worker that was registered does without its dispatcher, in milliseconds.
        host: address or host name to bind; ``"0.0.0.0"``: every interface.
        worker_tags: free words by which jobs may choose workers.
        data_ports: first and last TCP port for connections that carry elements; None: any free port.
        buffer_bytes: how much each task produces ahead of its clients.
        pipeline_cache_dir: folder where large parts of pipelines are kept, for all workers that name it; None: one of
            this user in the system's temporary folder.
        pipeline_cache_bytes: most bytes kept in it; those used longest ago make way for others.

    Raises:
        TypeError: a field has another type.
        ValueError: a field is out of its range, or no dispatcher is named.
        NotFoundError: the protocol does not exist.
        FailedPreconditionError: a tag is empty.

    Example:
        >>> WorkerConfig("tcp://10.0.0.1:5050", worker_tags=("GPU",)).heartbeat_interval_ms
        1000

    tf.data has the same fields with slower defaults; ``host``, ``data_ports``, ``buffer_bytes`` and the cache are ours.
    """

    dispatcher_address: str = ""
    worker_address: str | None = None
    port: int = 0
    protocol: str = "tcp"
    heartbeat_interval_ms: int = 1_000
    dispatcher_timeout_ms: int = 3_600_000
    host: str = "127.0.0.1"
    worker_tags: tuple[str, ...] = ()
    data_ports: tuple[int, int] | None = None
    buffer_bytes: int = 16 << 20
    pipeline_cache_dir: str | None = None
    pipeline_cache_bytes: int = 16 << 30

    def __post_init__(self) -> None:
        _fill_defaults(self)
        if self.dispatcher_address == "":
            raise ValueError(
                "Must specify a `dispatcher_address` in the `WorkerConfig`, for example 'tcp://127.0.0.1:5050', the "
                "address that the dispatcher prints when it starts"
            )
        _check_type("dispatcher_address", self.dispatcher_address, str)
        if self.worker_address is not None:
            _check_type("worker_address", self.worker_address, str)
        _check_socket(self.host, self.port, self.protocol)
        _check_at_least("heartbeat_interval_ms", self.heartbeat_interval_ms, 1)
        _check_at_least("dispatcher_timeout_ms", self.dispatcher_timeout_ms, 1)
        _check_at_least("buffer_bytes", self.buffer_bytes, 1)
        if self.pipeline_cache_dir is not None:
            _check_type("pipeline_cache_dir", self.pipeline_cache_dir, str)
        _check_at_least("pipeline_cache_bytes", self.pipeline_cache_bytes, 1)
        object.__setattr__(self, "worker_tags", _texts("worker_tags", self.worker_tags))
        if not all(tag.strip() for tag in self.worker_tags):
            raise FailedPreconditionError(
                f"Worker tags cannot be empty. Got worker_tags={self.worker_tags!r}; leave the empty ones out"
            )
        if self.data_ports is not None:
            object.__setattr__(self, "data_ports", _checked_range(self.data_ports))


def _fill_defaults(config: DispatcherConfig | WorkerConfig) -> None:
    for field in fields(config):
        if getattr(config, field.name) is None and field.default is not MISSING:
            object.__setattr__(config, field.name, field.default)


def _check_type(name: str, value: object, kind: type) -> None:
    # True is an int to isinstance, and nobody means a port by it.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"`{name}` must be {kind.__name__}, got {value!r} of type {type(value).__name__}")


def _check_at_least(name: str, value: int, least: int) -> None:
    _check_type(name, value, int)
    if value < least:
        meaning = " (-1 means never)" if least == FOREVER else ""
        raise ValueError(f"`{name}` must be at least {least}{meaning}, got {value}")


def _check_port(name: str, port: int, first: int) -> None:
    _check_type(name, port, int)
    if not first <= port <= 65535:
        zero = "; 0 means any free port" if first == 0 else ""
        raise ValueError(f"`{name}` must be between {first} and 65535, got {port}{zero}")


def _check_socket(host: str, port: int, protocol: str) -> None:
    _check_type("host", host, str)
    if not host:
        raise ValueError("`host` must not be empty; '0.0.0.0' means every interface")
    _check_port("port", port, 0)
    _check_type("protocol", protocol, str)
    if protocol != "tcp":
        raise NotFoundError(
            f"No credentials factory has been registered for protocol {protocol}. A server's protocol is 'tcp'"
        )


def _texts(name: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"`{name}` must be a list of strings, got {values!r}; for a single one write [{values!r}]")
    kept = tuple(values)
    for value in kept:
        _check_type(f"{name} entry", value, str)
    return kept


def _checked_range(ports: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(ports, (tuple, list)) or len(ports) != 2:
        raise TypeError(f"`data_ports` must be a pair (first, last), got {ports!r}")
    first, last = ports
    _check_port("data_ports", first, 1)
    _check_port("data_ports", last, 1)
    if last < first:
        raise ValueError(f"`data_ports` must be (first, last) with first <= last, got ({first}, {last})")
    return first, last


def _refuse_fault_tolerance(work_dir: str | None) -> None:
    if not work_dir:
        raise ValueError(
            "Cannot enable fault tolerant mode without configuring a work dir. Set `work_dir` to a folder that "
            "outlives the dispatcher"
        )
    raise UnimplementedError(
        "fault_tolerant_mode=True is not supported by this version: the dispatcher keeps no journal yet, so jobs end "
        "with an error when it is restarted. Leave it out; `work_dir` alone keeps registered pipelines"
    )
