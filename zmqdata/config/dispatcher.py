"""The configuration of a dispatcher, validated at creation.

Names, order and meaning of the fields are tf.data's; fields without a counterpart in
tf.data come after them. Resolving addresses and touching files belongs to the server,
not to this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from zmqdata.config.checks import MOST_PORT, DeploymentMode
from zmqdata.config.endpoints import PORT_MARK, check_host, check_names, check_protocol, port_in
from zmqdata.config.keys import insecure_setting, key_file_setting
from zmqdata.config.metrics import (
    metrics_host_setting,
    metrics_names_setting,
    metrics_port_setting,
)
from zmqdata.config.settings import (
    MOST_BYTES,
    check_settings,
    described,
    from_environment,
    milliseconds,
    setting,
    warn_user,
)

if TYPE_CHECKING:
    from typing_extensions import Self

SMALLEST_MESSAGE_LIMIT = 1 << 16
DEPLOYMENT_MODES = get_args(DeploymentMode)
_PORT_RANGE = re.compile(r"(?P<host>.+):(?P<first>[0-9]{1,5})-(?P<last>[0-9]{1,5})")
LEAST_LEASE_MS = 1_000
"""Shortest lease of a client in milliseconds: enough for three reports of a client on a
busy machine.
"""
SNAPSHOTS_PER_WORKER = 3
MOST_SNAPSHOTS = 10_000


@described
@dataclass(frozen=True)
class DispatcherConfig:
    """Configuration of a dispatcher.

    A field given as None takes its default.

    Args:
        {settings}

    Raises:
        TypeError: a field has another type.
        ValueError: a field is empty or out of its range, or fault tolerance is
            requested without a work folder.
        NotFoundError: the protocol does not exist.

    Example:
        >>> DispatcherConfig(port=5050).worker_timeout_ms
        10000

    tf.data has the same fields except the last ten, with slower defaults. As in
    tf.data, 0 means immediately and -1 means never for the fields that say so. Unlike
    in tf.data, where it is the default, a ``worker_timeout_ms`` of 0 is refused.
    """

    port: int = setting(0, "TCP port to listen on; 0: any free port", least=0, most=MOST_PORT)
    protocol: str = setting(
        "tcp", "protocol of the control connections; 'tcp' is the only one", metavar="tcp"
    )
    work_dir: str | None = setting(
        None,
        "folder for registered pipelines and the journal, used by this dispatcher alone; without "
        "it, all state is kept in memory",
        metavar="DIR",
    )
    fault_tolerant_mode: bool | None = setting(
        None,
        "let jobs survive a restart of the dispatcher, by a journal in work_dir; default: true if "
        "work_dir is set",
        flag="--fault-tolerant",
    )
    worker_addresses: tuple[str, ...] = setting(
        (),
        "hosts from which workers may register, by name or address; without a port, or with "
        "%port%, any port of the host is accepted; HOST:A-B is an entry for each of these ports, "
        "for a worker with several processes; a name also stands for its addresses; empty: any "
        "host",
        flag="--worker-address",
        metavar="HOST[:PORT]",
    )
    job_gc_check_interval_ms: int = milliseconds(
        1_000,
        "interval between searches for jobs to collect, in milliseconds; 0: continuously, -1: "
        "never",
        least=-1,
    )
    job_gc_timeout_ms: int = milliseconds(
        300_000,
        "time that a job may be without clients before it is collected, in milliseconds; 0: "
        "collected at once, -1: never",
        least=-1,
    )
    worker_timeout_ms: int = milliseconds(
        10_000,
        "time after which a worker is lost whose machine vanished without closing its connection, "
        "in milliseconds; a connected worker is never lost, even if it is silent; a worker whose "
        "connection ended is lost after disconnect_grace_ms; a static shard waits this long for a "
        "missing worker, and a restarted dispatcher waits this long for the workers it had",
    )
    worker_max_concurrent_snapshots: int = setting(
        SNAPSHOTS_PER_WORKER,
        "number of streams of distributed_save that each worker writes concurrently; 0: the "
        "default",
        least=0,
        most=MOST_SNAPSHOTS,
    )
    client_timeout_ms: int = milliseconds(
        15_000,
        "silence after which a client counts as gone if other clients read the same job, in "
        "milliseconds; less than 1000 counts as 1000, with a warning; clients report once a "
        "second, or three times within this time if that is more often",
    )
    gc_dynamic_sharding_jobs: bool = setting(
        True,
        "also collect jobs with dynamic sharding, although a client might return for their "
        "remaining splits",
    )
    deployment_mode: DeploymentMode = setting(
        "REMOTE",
        "where the workers run: COLOCATED on the hosts of the clients, REMOTE elsewhere, HYBRID "
        "both; with COLOCATED, clients of a static sharding policy read from workers on their own "
        "host",
        choices=DEPLOYMENT_MODES,
        metavar="|".join(DEPLOYMENT_MODES),
    )
    host: str = setting(
        "127.0.0.1",
        "address or name of this machine to listen on; 0.0.0.0: every interface",
        metavar="ADDR",
    )
    disconnect_grace_ms: int = milliseconds(
        1_000,
        "time that a worker may be without a connection before it is lost, in milliseconds",
        least=0,
    )
    max_message_bytes: int = setting(
        64 << 20,
        "largest accepted control message, in bytes; larger pipelines are sent in pieces",
        least=SMALLEST_MESSAGE_LIMIT,
        most=MOST_BYTES,
    )
    dispatcher_file: str | None = setting(
        None,
        "file that the dispatcher writes once it listens, and removes when it ends, so that "
        "processes with the same disk find it by file:FILE; the user who starts them must own it",
        metavar="FILE",
    )
    key_file: str | None = key_file_setting()
    insecure: bool = insecure_setting()
    metrics_port: int | None = metrics_port_setting()
    metrics_host: str = metrics_host_setting()
    metrics_names: tuple[str, ...] = metrics_names_setting()

    def __post_init__(self) -> None:
        if self.fault_tolerant_mode is True and not self.work_dir:
            raise ValueError(
                "Cannot enable fault tolerant mode without configuring a work dir. Set `work_dir` "
                "to a folder that outlives the dispatcher"
            )
        _check_order(self.worker_addresses)
        check_settings(self)
        check_protocol(self.protocol)
        check_host(self.host)
        check_host(self.metrics_host, "metrics_host")
        check_names(self.metrics_names, "metrics_names")
        if self.client_timeout_ms < LEAST_LEASE_MS:
            warn_user(
                f"`client_timeout_ms` is {self.client_timeout_ms}, and counts as "
                f"{LEAST_LEASE_MS}. Clients report three times within it, and with a shorter "
                "lease a client that is busy for a moment would count as gone. Set it to at "
                f"least {LEAST_LEASE_MS}"
            )
        object.__setattr__(self, "worker_addresses", tuple(_one_per_port(self.worker_addresses)))
        _check_places(self.worker_addresses)
        if self.worker_max_concurrent_snapshots == 0:
            object.__setattr__(self, "worker_max_concurrent_snapshots", SNAPSHOTS_PER_WORKER)
        if self.fault_tolerant_mode is None:
            object.__setattr__(self, "fault_tolerant_mode", self.work_dir is not None)

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
            >>> DispatcherConfig.from_environment(port=5050).port
            5050
        """
        return from_environment(cls, explicit)


def _one_per_port(entries: Iterable[str]) -> Iterator[str]:
    """Expand each entry with a range of ports into an entry for each port."""
    for entry in entries:
        match = _PORT_RANGE.fullmatch(entry)
        if match is None:
            yield entry
            continue
        first, last = int(match["first"]), int(match["last"])
        if not 0 < first <= last <= MOST_PORT:
            raise ValueError(
                f"`worker_addresses` has the ports {first}-{last} in {entry!r}. The first must not "
                f"exceed the last, and both must be between 1 and {MOST_PORT}"
            )
        yield from (f"{match['host']}:{port}" for port in range(first, last + 1))


def _check_order(entries: object) -> None:
    if isinstance(entries, Set):
        raise TypeError(
            f"`worker_addresses` must be a list, got {entries!r}. The index of an entry is the "
            "index of its worker, and a set has no order"
        )


def _check_places(entries: tuple[str, ...]) -> None:
    """Raise if no worker can ever match an entry, because static jobs would wait for it
    forever.
    """
    fixed: set[str] = set()
    for entry in entries:
        if not entry.strip():
            raise ValueError(f"`worker_addresses` must not have empty entries, got {entries!r}")
        if entry.split() != [entry]:
            raise ValueError(f"`worker_addresses` must not have spaces in an entry, got {entry!r}")
        port = port_in(entry.rpartition("://")[2], PORT_MARK)
        if not (port.isascii() and port.isdecimal()):
            continue
        if len(port) > len(str(MOST_PORT)) or not 1 <= int(port) <= MOST_PORT:
            raise ValueError(
                f"`worker_addresses` has the port {port} in {entry!r}; expected 1 to {MOST_PORT}"
            )
        if entry.lower() in fixed:
            raise ValueError(
                f"`worker_addresses` has {entry!r} twice, and only one worker can use that port. "
                f"Remove one of the entries, or write {PORT_MARK} instead of the port"
            )
        fixed.add(entry.lower())
