"""Asking what became of a job's elements: splits handed out and finished, deliveries,
duplicates, what was left out.

Telling a worker to leave, from anywhere: ask its dispatcher, and wait until it is gone.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from zmqdata import messages as m
from zmqdata.client.calls import ask_dispatcher, check_name, check_timeout, status
from zmqdata.config.settings import check_type
from zmqdata.errors import NotFoundError


def audit(service: str, job: str, timeout: float = 10.0) -> list[dict[str, Any]]:
    """What became of the splits and elements of a job, for each of its repetitions, as
    plain data.

    Args:
        service: where the dispatcher is, ``"tcp://host:port"``.
        job: the job's name, as ``job_name`` of ``distribute``, or in
            ``zmqdata status``.
        timeout: seconds to wait for the answer.

    Returns:
        For each repetition a dict with ``job``, ``repetition``, ``iteration``,
        ``processing_mode``, ``finished`` and ``failure``, and

        * ``splits``: ``handed_out`` to tasks, ``finished`` (all that came of them has
          been delivered), ``rehosted`` (of tasks whose worker was lost or has left,
          each time);
        * ``tasks``: their ``count``, how many are ``finished``, were ``lost`` (copies,
          in mode OFF), or ``rehosted``, and the ``attempts`` of all of them;
        * ``elements``: ``made`` by tasks that have ended, ``delivered`` as clients
          reported, ``left_out`` by ``on_error`` or ``on_poison``, ``dropped`` at the
          end of a coordinated read, ``duplicates_dropped`` by clients;
        * ``clients``: what each has ``delivered``, its ``duplicates_dropped``, and
          whether it ``reads`` now; none for a job that has ``consumers``;
        * ``consumers``: how many elements each numbered consumer of a coordinated job
          has had. The only reader of a ``deterministic`` job is one, too.

        Reports of clients are up to a second old. Of a job that goes on from a state,
        ``elements`` and ``consumers`` count what was had before it, too, the others do
        not. Of jobs that were collected the newest thousand are remembered, by the
        dispatcher that collected them: one that was started again knows those that were
        not.

    Raises:
        ValueError: an argument has a wrong value; the text says what was expected.
        NotFoundError: there is no such job.
        UnavailableError: the dispatcher has not answered in time.

    Example:
        >>> from zmqdata import Dataset, LocalCluster, distribute
        >>> with LocalCluster(1, in_process=True) as cluster:
        ...     ds = Dataset.range(5).apply(distribute("distributed_epoch", cluster.target, "train"))
        ...     _ = list(ds)
        ...     audit(cluster.target, "train")[0]["elements"]["delivered"]
        5

    Ours: tf.data has nothing of the kind.
    """
    check_timeout("timeout", timeout)
    check_type("job", job, str)
    check_name("job", job)
    report = ask_dispatcher(
        service, lambda request: m.RequestAudit(request, job), m.AuditReported, timeout
    )
    found: list[dict[str, Any]] = msgspec.json.decode(report.audit)
    return found


def audit_of_repetition(service: str, job: str, repetition: int) -> dict[str, Any]:
    """The audit of the newest iteration of a repetition."""
    found = [one for one in audit(service, job) if one["repetition"] == repetition]
    if not found:
        raise NotFoundError(f"Repetition {repetition} of job {job!r} has not begun")
    return found[-1]


POLL = 0.2


def drain(service: str, worker: str, timeout: float = 15.0) -> tuple[list[str], list[str]]:
    """Has a worker hand its tasks over to other workers and end, and waits for that.

    Args:
        service: where the dispatcher is, ``"tcp://host:port"``.
        worker: the worker's address or name, as ``status`` gives them, or a host, for
            all workers there.
        timeout: seconds to wait for its end.

    Returns:
        The addresses of the workers that have left, and of those that have not in time.

    Raises:
        ValueError: an argument has a wrong value; the text says what was expected.
        NotFoundError: there is no such worker; the text names those that there are.
        UnavailableError: the dispatcher has not answered in time.

    Example:
        >>> from zmqdata.dispatcher.server import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     drain(dispatcher.target, "10.0.0.1")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        zmqdata.errors.NotFoundError: No worker '10.0.0.1' is registered; the dispatcher has no workers. ...

    Ours: tf.data has nothing of the kind.
    """
    check_timeout("timeout", timeout)
    check_type("worker", worker, str)
    check_name("worker", worker)
    ends = time.monotonic() + timeout
    told = ask_dispatcher(
        service, lambda request: m.DrainWorker(request, worker), m.DrainStarted, timeout
    )
    there = set(told.workers)
    while there and (rest := ends - time.monotonic()) > 0:
        there &= {one["address"] for one in status(service, rest)["workers"]}
        if there:
            time.sleep(min(POLL, max(0.0, ends - time.monotonic())))
    return [one for one in told.workers if one not in there], sorted(there)
