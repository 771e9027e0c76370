"""Telling a worker to leave, from anywhere: ask its dispatcher, and wait until it is gone."""

from __future__ import annotations

import time

from zmqdata import messages as m
from zmqdata.client.calls import ask_dispatcher, check_name, check_timeout, status
from zmqdata.config.settings import check_type

POLL = 0.2


def drain(service: str, worker: str, timeout: float = 15.0) -> tuple[list[str], list[str]]:
    """Has a worker hand its tasks over to other workers and end, and waits for that.

    Args:
        service: where the dispatcher is, ``"tcp://host:port"``.
        worker: the worker's address or name, as ``status`` gives them, or a host, for all workers there.
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
        zmqdata.errors.NotFoundError: No worker '10.0.0.1' is registered; there is none. ...

    Ours: tf.data has nothing of the kind.
    """
    check_timeout("timeout", timeout)
    check_type("worker", worker, str)
    check_name("worker", worker)
    ends = time.monotonic() + timeout
    told = ask_dispatcher(service, lambda request: m.DrainWorker(request, worker), m.DrainStarted, timeout)
    there = set(told.workers)
    while there and (rest := ends - time.monotonic()) > 0:
        there &= {one["address"] for one in status(service, rest)["workers"]}
        if there:
            time.sleep(min(POLL, max(0.0, ends - time.monotonic())))
    return [one for one in told.workers if one not in there], sorted(there)
