"""The control sockets of a worker: the one to its dispatcher, and the one on which
clients open their links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import zmq

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.config.worker import WorkerConfig
from zmqdata.core.limits import MOST_CHARACTERS
from zmqdata.core.worker import events as e
from zmqdata.errors import (
    DataServiceError,
    PermissionDeniedError,
    ProtocolError,
    VersionMismatchError,
)
from zmqdata.transport import sockets
from zmqdata.transport.access import Access
from zmqdata.transport.addresses import bind_endpoint
from zmqdata.transport.entrance import Entrance
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

SILENCE_MS = 10_000


class ControlSockets:
    """Receives what may come on each of the two sockets, and sends on them.

    Args:
        context: where the sockets live.
        loop: polls them.
        config: where to listen.
        endpoint: the dispatcher's.
        access: knows who may say what.
        rejects: counts what may not come.
        received: takes a message and who has sent it.
        connected: called when there is a connection to the dispatcher, and when there
            is one again.
        refused: takes the reason for which the dispatcher does not let us in, or cannot
            be talked to.

    Attributes:
        bound: the endpoint on which clients are heard.
        look: to be called now and then with the time, to end connections on which
            nothing comes.

    Raises:
        OSError: the address can not be listened on; the text says why.
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
        refused: Callable[[DataServiceError], None],
    ) -> None:
        self._access = access
        self._loop = loop
        self._rejects = rejects
        self._received = received
        self._connected = connected
        self._refused = refused
        self._endpoint = endpoint
        key: Key | None = access.keyring.key
        bind_to = bind_endpoint(config.host, config.port)
        most = sockets.MAX_CLIENT_BYTES
        self._entrance = Entrance(
            context, loop, bind_to, SILENCE_MS, most, key, rejects, self._hear_client
        )
        self.bound, self.look = self._entrance.bound, self._entrance.look
        self._dispatcher, self._handshakes = sockets.control_dealer(
            context, endpoint, key, "dispatcher"
        )
        loop.read(self._dispatcher, self._hear_dispatcher)
        loop.read(self._handshakes.monitor, self._shake_hands)

    def send(self, command: e.Send) -> None:
        """Sends to the dispatcher, or to a client. What cannot be sent is left out:
        what matters is repeated.
        """
        try:
            if command.peer == e.DISPATCHER:
                self._dispatcher.send_multipart(wire.pack(command.message), zmq.NOBLOCK)
            else:
                self._entrance.send(cast(bytes, command.peer), wire.pack(command.message))
        except zmq.ZMQError as error:
            # A full queue or a client that is gone.
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
            self._drop(peer, frames, str(error))
            if isinstance(error, VersionMismatchError):
                self._tell_version(peer, frames, error)
            return
        is_client = peer != e.DISPATCHER
        objection = self._access.objection(frames, message) if is_client else ""
        if objection:
            self._refuse(peer, message, objection)
        elif isinstance(message, m.OpenLink | m.Grant | m.CloseLink | m.RequestStatus) != is_client:
            objection = f"{type(message).__name__} is not for this socket"
        if objection:
            self._drop(peer, frames, objection)
        else:
            self._received(peer, message)

    def _drop(self, peer: e.Peer, frames: Sequence[zmq.Frame], reason: str) -> None:
        if peer == e.DISPATCHER:
            where = "the dispatcher link"
            self._rejects.drop(self._loop, self._dispatcher, sockets.sender(frames), where, reason)
        else:
            self._entrance.drop(frames, "the worker's socket", reason)

    def _refuse(self, peer: e.Peer, message: m.Message, objection: str) -> None:
        """Tells a client that its key does not let it say this, or not any more: it
        would wait for elements.
        """
        error, text = (
            PermissionDeniedError.__name__,
            f"The worker at {self.bound} refuses: {objection}",
        )
        if isinstance(message, m.OpenLink | m.Grant):
            self.send(e.Send(peer, m.LinkRefused(message.link[:MOST_CHARACTERS], error, text)))
        elif isinstance(message, m.RequestStatus):
            self.send(
                e.Send(peer, m.RequestRefused(message.request[:MOST_CHARACTERS], error, text))
            )

    def _tell_version(
        self, peer: e.Peer, frames: Sequence[Any], error: VersionMismatchError
    ) -> None:
        """Says so to a client, who has connected; we have connected to the dispatcher,
        and say nothing more to it.
        """
        if peer == e.DISPATCHER:
            self._refused(
                VersionMismatchError(f"{error}. The peer is the dispatcher at {self._endpoint}.")
            )
        elif self._access.sender(frames) is not None:
            self.send(e.Send(peer, wire.NOTICE))

    def _shake_hands(self) -> bool:
        before, reason = self._handshakes.made, self._handshakes.news()
        if self._handshakes.made > before:
            self._connected()
        if reason:
            self._refused(PermissionDeniedError(reason))
        return reason is not None

    def close(self) -> None:
        """Closes both; the loop has ended."""
        self._handshakes.close()
        self._entrance.close()
        self._dispatcher.close()
