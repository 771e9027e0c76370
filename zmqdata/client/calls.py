"""Short conversations with a dispatcher, in the caller's own thread: an ask, and its
answer.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import zmq

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.config.checks import check_timeout
from zmqdata.config.endpoints import Service, endpoint_host, parse_service
from zmqdata.errors import (
    BY_NAME,
    DataServiceError,
    InvalidArgumentError,
    NoStatusError,
    PermissionDeniedError,
    ProtocolError,
    ResourceExhaustedError,
    UnavailableError,
    VersionMismatchError,
)
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.transport import sockets
from zmqdata.transport.addresses import resolve_host
from zmqdata.transport.closed import why_closed
from zmqdata.transport.dispatcher_file import current_address
from zmqdata.transport.handshakes import Handshakes, is_foreign
from zmqdata.transport.keychoice import shown_key

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT", bound=m.Message)

FIRST_PATIENCE = 1.0
"""Seconds until an unanswered ask is sent again. Each repetition doubles them."""
MOST_PATIENCE = 60.0
"""Most seconds between two repetitions."""
REPEAT_AFTER = 5.0
"""Seconds without an answer to what was sent in between until the ask is sent again."""
SAY_SO_AFTER = 10.0
"""Seconds without an answer after which a warning is logged."""
SAY_SO_EVERY = 60.0
"""Seconds between two such warnings."""

PURPOSES: dict[str, str] = {
    "RegisterDataset": "to register a dataset",
    "DescribeDataset": "to describe a registered dataset",
    "StartSave": "to start a distributed save",
    "RequestStatus": "to report its state",
    "RequestAudit": "to audit a job",
    "RequestScale": "how many workers there should be",
    "DrainWorker": "to drain a worker",
}
"""Purpose of each request, by the name of its class."""
LOOKS = 0.5
"""Seconds between two looks at whether this process has closed the dispatcher."""

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}
"""Context of this process by its id; those of parents are never touched."""


def client_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return the ZeroMQ context of this process.

    A context made before a fork stays with the parent, which has its threads.
    """
    pid = os.getpid()
    if pid not in _contexts:
        made = sockets.new_context("a connection to a dispatcher")
        if _contexts.setdefault(pid, made) is not made:
            made.term()  # another thread came first
    return _contexts[pid]


def new_request() -> str:
    """Return a unique request id."""
    return secrets.token_hex(8)


def call(
    endpoint: str,
    ask: m.Message,
    answer: type[AnswerT],
    request: str,
    timeout: float,
    reply: Callable[[m.Message], Sequence[m.Message]] = lambda message: (),
    role: str = "dispatcher",
    stopped: threading.Event | None = None,
) -> AnswerT:
    """Send an ask until it is answered.

    Args:
        endpoint: address of the dispatcher, as ZeroMQ takes it.
        ask: an ask that may be repeated.
        answer: class of the expected answer.
        request: request id of the ask.
        timeout: seconds of silence after which to give up.
        reply: returns the messages to send after an answer of another class.
        role: kind of server that is asked.
        stopped: ends the wait within half a second once it is set.

    Raises:
        UnavailableError: no dispatcher has answered in time, or ``stopped`` is set.
        PermissionDeniedError: the dispatcher does not accept this client's key.
        VersionMismatchError: the dispatcher speaks another version of the protocol.
        DataServiceError: the dispatcher refuses. The class is the one that it names.
    """
    with shortage_explained(f"a connection to {endpoint}"):
        socket, handshakes = sockets.control_dealer(client_context(), endpoint, shown_key(), role)
    try:
        return converse(
            socket, handshakes, endpoint, ask, answer, request, timeout, reply, stopped, role
        )
    finally:
        handshakes.close()
        socket.close(linger=0)


def converse(
    socket: zmq.Socket[bytes],
    handshakes: Handshakes,
    endpoint: str,
    ask: m.Message,
    answer: type[AnswerT],
    request: str,
    timeout: float,
    reply: Callable[[m.Message], Sequence[m.Message]] = lambda message: (),
    stopped: threading.Event | None = None,
    role: str = "dispatcher",
) -> AnswerT:
    """Send an ask on an open socket until it is answered. See ``call``, which opens the
    socket.
    """
    began = repeat_at = time.monotonic()
    patience = FIRST_PATIENCE
    say_at = began + SAY_SO_AFTER
    poller = zmq.Poller()
    for one in (socket, handshakes.monitor):
        poller.register(one, zmq.POLLIN)
    while True:
        now = time.monotonic()
        sockets.follow(socket, endpoint)
        closed = why_closed(endpoint)
        if closed:
            raise UnavailableError(closed)
        if stopped is not None and stopped.is_set():
            raise UnavailableError("The request was stopped.")
        if now - began >= timeout:
            raise UnavailableError(
                f"No dispatcher has answered at {endpoint} for {timeout:g} s (dispatcher_timeout). "
                f"{likely_cause(endpoint)}"
            )
        if now >= say_at:
            say_at = now + SAY_SO_EVERY
            log.warning(
                "waiting for %.0f s for an answer from the %s at %s, %s; still trying "
                "(for %g s). %s",
                now - began,
                role,
                endpoint,
                PURPOSES.get(type(ask).__name__, "to answer a request"),
                timeout,
                likely_cause(endpoint),
            )
        if now >= repeat_at:
            # Less often each time, because the ask may contain a pipeline of hundreds
            # of megabytes. A file may not have named a dispatcher yet.
            if socket.poll(0, zmq.POLLOUT):
                socket.send_multipart(wire.pack(ask))
                repeat_at, patience = now + patience, min(patience * 2, MOST_PATIENCE)
            else:
                repeat_at = now + LOOKS
        ends = min(began + timeout, now + LOOKS)
        wait = min(repeat_at, ends, say_at) - now
        ready = dict(poller.poll(max(1, int(wait * 1000))))
        if handshakes.monitor in ready and (reason := handshakes.news()):
            raise PermissionDeniedError(reason)
        if socket in ready:
            found = _answer(socket.recv_multipart(), request, endpoint)
            if isinstance(found, answer):
                return found
            if found is not None:
                for message in reply(found):  # which may pickle a dataset first
                    socket.send_multipart(wire.pack(message))
                began, patience = time.monotonic(), FIRST_PATIENCE
                repeat_at, say_at = began + REPEAT_AFTER, began + SAY_SO_AFTER


def likely_cause(endpoint: str) -> str:
    """Return why a dispatcher may not answer, as far as this machine can tell.

    May take as long as the name server does.

    Example:
        >>> likely_cause("tcp://127.0.0.1:5050")
        'Check that it is running and that this machine can reach it.'
    """
    address = current_address(endpoint)
    if not address:
        return (
            "No dispatcher has written that file yet. Start one with `--dispatcher-file`, on a "
            "machine that shares this disk."
        )
    host = endpoint_host(address)
    try:
        if host is not None:
            resolve_host(host)
    except (InvalidArgumentError, ResourceExhaustedError) as error:
        return f"{error}."
    if is_foreign(endpoint):
        return (
            "What listens there speaks another protocol. Is it the port of the metrics, of the "
            "dashboard or of another program? Name the address that the dispatcher prints."
        )
    return "Check that it is running and that this machine can reach it."


def _answer(frames: list[bytes], request: str, endpoint: str) -> m.Message | None:
    try:
        message: m.Message = wire.to_client.control(frames)
    except VersionMismatchError as error:
        raise VersionMismatchError(f"{error}. The peer is the server at {endpoint}.") from None
    except ProtocolError as error:
        log.warning("dropped an invalid message that claims to be from the dispatcher: %s", error)
        return None
    if getattr(message, "request", None) != request:
        return None
    if isinstance(message, m.RequestRefused):
        raise BY_NAME.get(message.error, DataServiceError)(message.text)
    return message


def ask_dispatcher(
    service: Service,
    make_ask: Callable[[str], m.Message],
    answer: type[AnswerT],
    timeout: float,
    role: str = "dispatcher",
    stopped: threading.Event | None = None,
) -> AnswerT:
    """Send an ask with a fresh request id to the dispatcher of a user's service string,
    and return the answer.

    See ``call``.
    """
    request, endpoint = new_request(), parse_service(service)
    ask = make_ask(request)
    return call(endpoint, ask, answer, request, timeout, role=role, stopped=stopped)


def status(
    service: Service,
    timeout: float = 10.0,
    role: str = "dispatcher",
    stopped: threading.Event | None = None,
) -> dict[str, Any]:
    """Return the state of a dispatcher or a worker, as plain data.

    The page on configuration describes its fields.

    Args:
        service: address of the dispatcher or the worker, ``"tcp://host:port"``.
        timeout: seconds to wait for the answer.
        role: ``"worker"`` to ask a worker. In a cluster with a key for each role,
            workers are known by another key.
        stopped: ends the wait within half a second once it is set.

    Raises:
        ValueError: an argument has an invalid value.
        UnavailableError: no server has answered within ``timeout``, or what answers
            sends no status.

    Example:
        >>> from zmqdata.dispatcher.server import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     status(dispatcher.target)["workers"]
        []
    """
    check_timeout("timeout", timeout)
    report = ask_dispatcher(service, m.RequestStatus, m.StatusReported, timeout, role, stopped)
    return read_status(report, parse_service(service))


def read_status(report: m.StatusReported, endpoint: str) -> dict[str, Any]:
    """Return the state that a server has sent, as plain data.

    Args:
        report: the answer of the server.
        endpoint: its address.

    Raises:
        NoStatusError: the answer is not the status of a dispatcher or a worker.

    Example:
        >>> read_status(m.StatusReported("request", b'{"dispatcher": "tcp://a:1"}'), "tcp://a:1")
        {'dispatcher': 'tcp://a:1'}
    """
    try:
        found: dict[str, Any] = msgspec.json.decode(report.status, type=dict[str, Any])
        if "dispatcher" in found or "worker" in found:
            return found
        told = "it has neither `dispatcher` nor `worker`"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        told = str(error)
    raise NoStatusError(
        f"What answers at {endpoint} has sent {report.status[:40]!r} as its status ({told}). "
        "The JSON object of a dispatcher or a worker was expected. Another program, or another "
        "release of zmqdata, probably has this address. Name the address that the server prints, "
        "and install the same release on both sides"
    )
