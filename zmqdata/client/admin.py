"""Administration of a service from any process: audit a job, and drain a worker.

An audit reports splits, deliveries, duplicates and skipped elements of a job. Draining
asks the dispatcher to let a worker leave, waits until it is gone, and reports where its
tasks continue.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from zmqdata import messages as m
from zmqdata.client.calls import ask_dispatcher, status
from zmqdata.config.checks import check_name, check_timeout, check_type
from zmqdata.config.endpoints import Service
from zmqdata.errors import NotFoundError
from zmqdata.measures.status import CONNECTED, SILENT
from zmqdata.recipes import names_arguments


@names_arguments
def audit(service: Service, job: str, timeout: float = 10.0) -> list[dict[str, Any]]:
    """Return what became of the splits and elements of a job, as plain data for each of
    its repetitions.

    Args:
        service: address of the dispatcher, ``"tcp://host:port"``.
        job: name of the job: the ``job_name`` of ``distribute``, or the name in
            ``zmqdata status``.
        timeout: seconds to wait for the answer.

    Returns:
        For each repetition a dict with ``job``, ``repetition``, ``iteration``,
        ``processing_mode``, ``finished`` and ``failure``, and

        * ``splits``: counts of splits ``handed_out`` to tasks, ``finished`` (all their
          elements are delivered), and ``rehosted`` (each time their task's worker was
          lost or left);
        * ``tasks``: their ``count``, how many are ``finished``, ``lost`` (copies, in
          mode OFF) or ``rehosted``, and the sum of their ``attempts``;
        * ``elements``: counts of elements ``made`` by ended tasks, ``delivered`` as
          clients reported, ``left_out`` by ``on_error`` or ``on_poison``, ``dropped``
          at the end of a coordinated read, and, by clients, ``duplicates_dropped`` and
          ``given_back`` for other clients;
        * ``clients``: per client what was ``delivered``, ``duplicates_dropped`` and
          ``given_back``, and whether it ``reads`` now; empty for a job with
          ``consumers``;
        * ``consumers``: number of elements that each numbered consumer of a coordinated
          job received. The only reader of a ``deterministic`` job is such a consumer.

        Clients report up to a second late. For a job that was resumed from a state,
        ``elements`` and ``consumers`` include what was read before the state; the other
        counts do not. A dispatcher remembers the newest thousand jobs that it has
        collected. After a restart it knows only jobs that were not collected.

    Raises:
        ValueError: an argument has an invalid value.
        NotFoundError: the dispatcher knows no such job.
        UnavailableError: the dispatcher has not answered within ``timeout``.

    Example:
        >>> from zmqdata import Dataset, LocalCluster, distribute
        >>> with LocalCluster(1, in_process=True) as cluster:
        ...     train = distribute("distributed_epoch", cluster.target, "train")
        ...     ds = Dataset.range(5).apply(train)
        ...     _ = list(ds)
        ...     audit(cluster.target, "train")[0]["elements"]["delivered"]
        5

    Has no counterpart in tf.data.
    """
    check_timeout("timeout", timeout)
    check_type("job", job, str)
    check_name("job", job)
    report = ask_dispatcher(
        service, lambda request: m.RequestAudit(request, job), m.AuditReported, timeout
    )
    found: list[dict[str, Any]] = msgspec.json.decode(report.audit)
    return found


def audit_of_iteration(service: str, job: str, iteration: int | None) -> dict[str, Any]:
    """Return the audit of an iteration of a job; None: the iterator has not begun."""
    found = [one for one in audit(service, job) if one["iteration"] == iteration]
    if not found:
        raise NotFoundError(
            f"The iterator of job {job!r} has not begun to read, or the dispatcher has forgotten "
            "what it read."
        )
    return found[-1]


def ask_scale(
    service: Service, scaler: str, interval: float, timeout: float = 10.0
) -> m.ScaleDecided:
    """Return how many worker processes the dispatcher wants, and take or keep the place
    of the only program that starts and stops workers.

    Args:
        service: address of the dispatcher.
        scaler: unique name of this program.
        interval: seconds until the next question, at most ``MOST_INTERVAL``; 0 to give
            up the place.
        timeout: seconds to wait for the answer.

    Raises:
        FailedPreconditionError: another program holds the place. The text names it.
        UnavailableError: the dispatcher has not answered within ``timeout``.
    """
    return ask_dispatcher(
        service,
        lambda request: m.RequestScale(request, scaler, interval),
        m.ScaleDecided,
        timeout,
    )


POLL = 0.2
"""Seconds between two looks at the list of workers."""


@dataclass(frozen=True)
class DrainedWorker:
    """The outcome of the drain of one worker."""

    address: str
    """Address of the worker."""
    has_left: bool
    """True if the worker has left in time."""
    continued: Mapping[str, int]
    """Number of its unfinished tasks that each other worker has taken, by address."""
    waiting: int
    """Number of its unfinished tasks that wait for a worker."""
    ended: int
    """Number of its unfinished tasks that ended with it: copies of the input (mode OFF)
    cannot continue elsewhere.
    """
    staying: int = 0
    """Number of its unfinished tasks that it still hosts."""
    others: int = 0
    """Number of other workers that are registered and not told to leave."""


@names_arguments
def drain(service: Service, worker: str, timeout: float = 15.0) -> list[DrainedWorker]:
    """Make a worker hand its tasks over to other workers and end, and wait until it is
    gone.

    Args:
        service: address of the dispatcher, ``"tcp://host:port"``.
        worker: address or name of the worker, as in ``status``, or a host, for all
            workers there.
        timeout: seconds to wait for the worker to leave.

    Returns:
        For each of the workers, whether it has left in time, and what became of its
        tasks.

    Raises:
        ValueError: an argument has an invalid value.
        NotFoundError: no such worker is registered. The text names the registered
            workers.
        UnavailableError: the dispatcher has not answered within ``timeout``.

    Example:
        >>> from zmqdata.dispatcher.server import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     drain(dispatcher.target, "10.0.0.1")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        zmqdata.errors.NotFoundError: No worker '10.0.0.1' is registered; ...

    Has no counterpart in tf.data.
    """
    check_timeout("timeout", timeout)
    check_type("worker", worker, str)
    check_name("worker", worker)
    ends = time.monotonic() + timeout
    hosts = _hosts_of_tasks(status(service, timeout))
    told = ask_dispatcher(
        service, lambda request: m.DrainWorker(request, worker), m.DrainStarted, timeout
    )
    staying = set(told.workers)
    found: dict[str, Any] = {}
    while staying and (rest := ends - time.monotonic()) > 0:
        found = status(service, rest)
        staying &= {one["address"] for one in found["workers"]}
        if staying:
            time.sleep(min(POLL, max(0.0, ends - time.monotonic())))
    now = _hosts_of_tasks(found) if found else hosts
    others = sum(
        one["address"] not in told.workers and one["state"] in (CONNECTED, SILENT)
        for one in found.get("workers", [])
    )
    return [
        _drained(address, address not in staying, hosts, now, others) for address in told.workers
    ]


def _hosts_of_tasks(found: Mapping[str, Any]) -> dict[int, str | None]:
    """Return the address of the worker of each unfinished task, "" for a task between
    hosts, None for a task that is lost.
    """
    return {
        task["task"]: None if task["removed"] else task["address"]
        for task in found["tasks"]
        if task["total"] is None or task["delivered"] < task["total"]
    }


def _drained(
    address: str,
    left: bool,
    before: Mapping[int, str | None],
    after: Mapping[int, str | None],
    others: int,
) -> DrainedWorker:
    # A task that the dispatcher no longer lists as unfinished has ended meanwhile, and
    # needs no other worker.
    now = [after[task] for task, host in before.items() if host == address and task in after]
    moved = Counter(host for host in now if host and host != address)
    return DrainedWorker(
        address, left, dict(moved), now.count(""), now.count(None), now.count(address), others
    )
