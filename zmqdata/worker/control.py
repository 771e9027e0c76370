"""The control sockets of a worker: the socket to its dispatcher, and the socket on
which clients open their links; and the facts with which a worker introduces itself.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import zmq

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.config.checks import MOST_CHARACTERS
from zmqdata.config.worker import WorkerConfig
from zmqdata.core.worker import events as e
from zmqdata.core.worker.memory import MemoryLimit
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    PermissionDeniedError,
    ProtocolError,
    VersionMismatchError,
)
from zmqdata.machine import installed_version
from zmqdata.transport import sockets
from zmqdata.transport.access import Access
from zmqdata.transport.addresses import announced_address, bind_endpoint
from zmqdata.transport.entrance import Entrance
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects
from zmqdata.worker.processes.watch import EARLY, MEMORY, QUIET, RECYCLES, WatchFile

SILENCE_MS = 10_000
"""Milliseconds of silence after which a connection is closed."""
OF_CLIENTS = (m.OpenLink, m.Grant, m.CloseLink, m.RequestStatus, m.RequestEcho, m.RequestTrace)
"""Messages that clients send; all others come from the dispatcher."""
ASKS_OF_NEWCOMERS = (
    m.RegisterWorker,
    m.RegisterDataset,
    m.DescribeDataset,
    m.StartSave,
    m.DrainWorker,
    m.RequestAudit,
)
"""First messages of a peer that a dispatcher does not know yet."""


class ControlSockets:
    """Receives the allowed messages on each of the two sockets, and sends on them.

    Args:
        context: creates the sockets.
        loop: polls them.
        config: address to listen on.
        endpoint: endpoint of the dispatcher.
        access: decides which peer may send what.
        rejects: counts what is rejected.
        received: called with the sender and the message.
        connected: called on each new connection to the dispatcher.
        disconnected: called at the end of each connection to the dispatcher.
        refused: called with the reason if the dispatcher does not let this worker in,
            or speaks another version.

    Attributes:
        bound: endpoint on which clients are heard.
        port: its port.
    Raises:
        OSError: the address cannot be listened on; the text says why.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        config: WorkerConfig,
        endpoint: str,
        access: Access,
        rejects: Rejects,
        received: Callable[[e.Peer, m.Message], None],
        connected: Callable[[], None],
        disconnected: Callable[[], None],
        refused: Callable[[DataServiceError], None],
    ) -> None:
        self._access = access
        self._loop = loop
        self._rejects = rejects
        self._received = received
        self._connected, self._disconnected = connected, disconnected
        self._refused = refused
        self._endpoint = endpoint
        key: Key | None = access.keyring.key
        bind_to = bind_endpoint(config.host, config.port)
        most = sockets.MAX_CLIENT_BYTES
        self._entrance = Entrance(
            context, loop, bind_to, SILENCE_MS, most, key, rejects, self._hear_client
        )
        self.bound, self.port = self._entrance.bound, self._entrance.port
        self._dispatcher, self._handshakes = sockets.control_dealer(
            context, endpoint, key, "dispatcher"
        )
        loop.read(self._dispatcher, self._hear_dispatcher)
        loop.read(self._handshakes.monitor, self._shake_hands)

    def look(self, now: float) -> None:
        """Close connections that stay silent, and go to the dispatcher that its file
        names now. Must be called each second.
        """
        self._entrance.look(now)
        try:
            sockets.follow(self._dispatcher, self._endpoint)
        except (OSError, DataServiceError) as error:
            self._refused(FailedPreconditionError(str(error)))

    def send(self, command: e.Send) -> None:
        """Send to the dispatcher, or to a client. A message that cannot be sent is
        dropped, because all important messages are resent.
        """
        try:
            if command.peer == e.DISPATCHER:
                self._dispatcher.send_multipart(wire.pack(command.message), zmq.NOBLOCK)
            else:
                self._entrance.send(cast(bytes, command.peer), wire.pack(command.message))
        except zmq.ZMQError as error:
            # The queue is full, or the client is gone.
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise

    def _hear_client(self) -> bool:
        try:
            peer, frames = self._entrance.receive()
        except zmq.Again:
            return False
        self._take(peer, frames)
        return True

    def _hear_dispatcher(self) -> bool:
        try:
            frames = self._dispatcher.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        self._take(e.DISPATCHER, frames)
        return True

    def _take(self, peer: e.Peer, frames: Sequence[zmq.Frame]) -> None:
        try:
            message = wire.to_worker.control([frame.buffer for frame in frames])
        except ProtocolError as error:
            self._drop(peer, frames, self._refuse_misdirected(peer, frames) or str(error))
            if isinstance(error, VersionMismatchError):
                self._tell_version(peer, frames, error)
            return
        is_client = peer != e.DISPATCHER
        objection = self._access.objection(frames, message) if is_client else ""
        if objection:
            self._refuse(peer, message, objection)
        elif isinstance(message, OF_CLIENTS) != is_client:
            objection = f"{type(message).__name__} is not for this socket"
        if objection:
            self._drop(peer, frames, objection)
        else:
            self._received(peer, message)

    def _refuse_misdirected(self, peer: e.Peer, frames: Sequence[zmq.Frame]) -> str:
        """Refuse a request that is meant for a dispatcher, because its sender has the
        wrong address. Return why it is dropped; "" for any other message.
        """
        try:
            message = wire.to_dispatcher.control([frame.buffer for frame in frames])
        except ProtocolError:
            return ""
        # A peer that the dispatcher knows waits until it is back.
        if peer != e.DISPATCHER and isinstance(message, ASKS_OF_NEWCOMERS):
            text = (
                f"A worker listens on port {self.bound.rpartition(':')[2]}, and no dispatcher. Was "
                "the address of a worker copied? Name the address that the dispatcher prints when "
                "it is ready."
            )
            request = m.request_of(message)[:MOST_CHARACTERS]
            self.send(e.Send(peer, m.RequestRefused(request, "FailedPreconditionError", text)))
        return f"{type(message).__name__} is for a dispatcher"

    def _drop(self, peer: e.Peer, frames: Sequence[zmq.Frame], reason: str) -> None:
        if peer == e.DISPATCHER:
            where = "the dispatcher link"
            self._rejects.drop(self._loop, self._dispatcher, sockets.sender(frames), where, reason)
        else:
            self._entrance.drop(frames, "the worker's socket", reason)

    def _refuse(self, peer: e.Peer, message: m.Message, objection: str) -> None:
        """Tell a client that its key does not allow this message, or no longer does.
        Otherwise it would wait for elements.
        """
        error, text = (
            PermissionDeniedError.__name__,
            f"The worker at {self.bound} refuses: {objection}",
        )
        if isinstance(message, m.OpenLink | m.Grant):
            self.send(e.Send(peer, m.LinkRefused(message.link[:MOST_CHARACTERS], error, text)))
        elif isinstance(message, m.RequestStatus | m.RequestEcho | m.RequestTrace):
            self.send(
                e.Send(peer, m.RequestRefused(message.request[:MOST_CHARACTERS], error, text))
            )

    def _tell_version(
        self, peer: e.Peer, frames: Sequence[Any], error: VersionMismatchError
    ) -> None:
        """Answer a message of another version. A client, which has connected to this
        worker, gets a notice. The dispatcher, to which this worker has connected, gets
        no answer.
        """
        if peer == e.DISPATCHER:
            self._refused(
                VersionMismatchError(f"{error}. The peer is the dispatcher at {self._endpoint}.")
            )
        elif self._access.sender(frames) is not None:
            self.send(e.Send(peer, wire.NOTICE))

    def _shake_hands(self) -> bool:
        made, ended, reason = self._handshakes.made, self._handshakes.ended, self._handshakes.news()
        if self._handshakes.made > made:
            self._connected()
        if self._handshakes.ended > ended:
            self._disconnected()
        if reason:
            self._refused(PermissionDeniedError(reason))
        return reason is not None

    def close(self) -> None:
        """Close both sockets. The loop has ended."""
        self._handshakes.close()
        self._entrance.close()
        self._dispatcher.close()


def address_of(config: WorkerConfig, dispatcher: str, port: int) -> str:
    """Return the control address that a worker on a port announces to clients.

    Example:
        >>> address_of(WorkerConfig("localhost:5050"), "tcp://localhost:5050", 7000)
        'tcp://127.0.0.1:7000'
    """
    return f"tcp://{announced_address(config.host, config.worker_address, dispatcher, port)}"


def profile_of(
    config: WorkerConfig, dispatcher: str, address: str, watch_file: WatchFile, max_tasks: int
) -> WorkerProfile:
    """Return the profile with which a new worker introduces itself.

    Args:
        config: its configuration.
        dispatcher: endpoint of its dispatcher.
        address: its control address.
        watch_file: shared memory with the facts that its supervisor passes on.
        max_tasks: number of tasks after which it drains; 0 for no limit.
    """
    cells = watch_file.cells
    return WorkerProfile(
        worker=secrets.token_hex(8),
        address=address,
        dispatcher=dispatcher,
        tags=config.worker_tags,
        python=platform.python_version(),
        version=installed_version(),
        buffer_bytes=config.buffer_bytes,
        heartbeat=config.heartbeat_interval_ms / 1000,
        dispatcher_timeout=config.dispatcher_timeout_ms / 1000,
        drain_seconds=config.drain_seconds,
        name=config.name or "",
        cache_bytes=config.cross_trainer_cache_size_bytes,
        snapshot_chunk_bytes=config.snapshot_max_chunk_size_bytes,
        deaths=msgspec.convert(watch_file.told(), tuple[m.Death, ...]),
        max_tasks=max_tasks,
        process=f"{platform.node()}:{os.getpid()}",
        is_quiet=bool(cells[QUIET]),
        memory=MemoryLimit(cells[MEMORY], cells[RECYCLES], cells[EARLY]),
    )
