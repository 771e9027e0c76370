"""The configuration of a dispatcher, checked when it is made.

Names, order and meaning of the fields are tf.data's, ours come after them. No address
is resolved and no file is touched here; that is for the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zmqdata.config.endpoints import (
    PORT_MARK,
    check_host,
    check_protocol,
    port_in,
)
from zmqdata.config.keys import insecure_setting, key_file_setting
from zmqdata.config.settings import (
    MOST_BYTES,
    MOST_PORT,
    check_settings,
    described,
    from_environment,
    milliseconds,
    setting,
)

if TYPE_CHECKING:
    from typing_extensions import Self

SMALLEST_MESSAGE_LIMIT = 1 << 16
DEPLOYMENT_MODES = ("COLOCATED", "REMOTE", "HYBRID")
_PORT_RANGE = re.compile(r"(?P<host>.+):(?P<first>[0-9]{1,5})-(?P<last>[0-9]{1,5})")
LEAST_CLIENT_TIMEOUT = 100
"""In milliseconds: what three reports of a client need, on a machine that has something
else to do, too.
"""
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
        ValueError: a field is empty or out of its range, or fault tolerance is asked
            for without a work folder.
        NotFoundError: the protocol does not exist.

    Example:
        >>> DispatcherConfig(port=5050).worker_timeout_ms
        10000

    tf.data has the same fields, the last seven excepted, with slower defaults. What is
    at once with 0 and never with -1 there is so here; a ``worker_timeout_ms`` of 0, the
    default there, is refused.
    """

    port: int = setting(0, "TCP port to listen on; 0: any free one", least=0, most=MOST_PORT)
    protocol: str = setting(
        "tcp", "protocol of the control connections; 'tcp' is the only one", metavar="tcp"
    )
    work_dir: str | None = setting(
        None,
        "folder of this dispatcher alone for registered pipelines and its journal; without one all "
        "is kept in memory",
        metavar="DIR",
    )
    fault_tolerant_mode: bool | None = setting(
        None,
        "let jobs survive a restart of the dispatcher, by a journal in work_dir; not said: if "
        "there is one",
        flag="--fault-tolerant",
    )
    worker_addresses: tuple[str, ...] = setting(
        (),
        "the hosts that workers may register from, by name or address; without a port, or with "
        "%port%, any port of it; "
        "HOST:A-B is an entry for each of these ports, as the processes of one worker have them; "
        "a name stands for its addresses too; empty: any host",
        flag="--worker-address",
        metavar="HOST[:PORT]",
    )
    job_gc_check_interval_ms: int = milliseconds(
        1_000,
        "how often to look for jobs to collect, in milliseconds; 0: all the time, -1: never",
        least=-1,
    )
    job_gc_timeout_ms: int = milliseconds(
        300_000,
        "how long a job may be without clients before it is collected, in milliseconds; 0: it goes "
        "at once, -1: never",
        least=-1,
    )
    worker_timeout_ms: int = milliseconds(
        10_000,
        "after how long a worker is lost whose machine vanished without a word, in milliseconds; "
        "one that is "
        "connected is never lost, however silent, one whose connection ended is lost "
        "disconnect_grace_ms later; so "
        "long a static part waits for a worker that has not come, and a restarted dispatcher for "
        "the workers that it "
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
        "silence after which a client counts as gone when others read the same job, in "
        "milliseconds; clients report "
        "once a second, and three times within it if that is more often; at least 100",
    )
    gc_dynamic_sharding_jobs: bool = setting(
        True,
        "also collect jobs whose splits are handed out as needed, although a client may come back "
        "for the rest",
    )
    deployment_mode: str = setting(
        "REMOTE",
        "where the workers are: COLOCATED in the hosts of the clients, REMOTE elsewhere, HYBRID "
        "both; with COLOCATED, "
        "clients of a static sharding policy read from workers of their own host",
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
                "Cannot enable fault tolerant mode without configuring a work dir. Set `work_dir` "
                "to a folder that "
                "outlives the dispatcher"
            )
        _check_order(self.worker_addresses)
        check_settings(self)
        check_protocol(self.protocol)
        check_host(self.host)
        if self.client_timeout_ms < LEAST_CLIENT_TIMEOUT:
            raise ValueError(
                f"`client_timeout_ms` must be at least {LEAST_CLIENT_TIMEOUT}, got "
                f"{self.client_timeout_ms}: clients "
                "report three times within it, and one that is busy for a moment longer would "
                "count as gone"
            )
        object.__setattr__(self, "worker_addresses", tuple(_one_per_port(self.worker_addresses)))
        _check_places(self.worker_addresses)
        if self.worker_max_concurrent_snapshots == 0:
            object.__setattr__(self, "worker_max_concurrent_snapshots", SNAPSHOTS_PER_WORKER)
        if self.fault_tolerant_mode is None:
            object.__setattr__(self, "fault_tolerant_mode", self.work_dir is not None)

    @classmethod
    def from_environment(cls, **explicit: Any) -> Self:
        """A configuration in which what is not given is taken from ``ZMQDATA_*``, as
        the command line does.

        Args:
            explicit: fields by name; they win over the environment.

        Raises:
            TypeError, ValueError: as for the class; what the environment has wrong is
                named.

        Example:
            >>> DispatcherConfig.from_environment(port=5050).port
            5050
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
                f"`worker_addresses` has the ports {first}-{last} in {entry!r}: the first must not "
                "be above the last, "
                f"both between 1 and {MOST_PORT}"
            )
        yield from (f"{match['host']}:{port}" for port in range(first, last + 1))


def _check_order(entries: object) -> None:
    if isinstance(entries, Set):
        raise TypeError(
            "`worker_addresses` must be a list, as the place of an entry is the index of its "
            "worker, and a set has no "
            f"order: got {entries!r}"
        )


def _check_places(entries: tuple[str, ...]) -> None:
    """Refuses entries for which no worker can ever come: static jobs would wait for
    it.
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
                f"`worker_addresses` has {entry!r} twice, and only one worker can have that port: "
                "leave one out, or "
                f"write {PORT_MARK} for the port"
            )
        fixed.add(entry.lower())
