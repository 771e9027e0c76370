"""The client's shell: a thread that owns the sockets of one iterator.

The thread feeds a ``ClientCore`` and decodes blocks off the training thread; the
iterator takes elements from a queue. All counting of what was handed out happens in the
thread.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import zmq

from zmqdata import wire
from zmqdata.blocks import warn_of_missing_codec
from zmqdata.client import lifetime
from zmqdata.client.bookmarks import Bookmarks, ServiceBookmark, answer_of, check_has_places
from zmqdata.client.calls import client_context
from zmqdata.client.connections import Descriptors, Memories, Servers
from zmqdata.client.decoding import decode_message, hopeless, referred
from zmqdata.client.delivery import Delivery, DeliveryQueue, End, Strides
from zmqdata.config.endpoints import endpoint_host
from zmqdata.core.client import events as e
from zmqdata.core.client.decider import ClientCore, ClientProfile
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    PermissionDeniedError,
    ProtocolError,
    UnavailableError,
    VersionMismatchError,
)
from zmqdata.iterators.watching import LeftOut
from zmqdata.messages import LeftOutElement, encode_checkpoint, shown_name
from zmqdata.transport import sockets
from zmqdata.transport.addresses import is_loopback
from zmqdata.transport.clocks import boottime
from zmqdata.transport.keychoice import shown_key
from zmqdata.transport.loans import Pool
from zmqdata.transport.local import SCHEME, Handover, find_handover
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

log = logging.getLogger(__name__)

LACKING = 10.0
"""Seconds to wait for what workers have still to tell of tasks that others read before.
"""


class ReaderShell:
    """Everything of an iterator that its thread may touch. It does not keep the
    iterator alive.

    Args:
        profile: who reads what.
        quarantine: takes the elements that workers leave out because these bring them
            down.
    """

    def __init__(self, profile: ClientProfile, quarantine: deque[LeftOut] | None = None) -> None:
        self.core = ClientCore(profile)
        self._lacks_codec = profile.job.compression is not None and not profile.decompresses
        self.quarantine: deque[LeftOut] = deque(maxlen=0) if quarantine is None else quarantine
        self._answered: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._unanswered = True
        self.strides = Strides()
        self.queue = DeliveryQueue(lambda: self.core.lease.holds(self._now()))
        self.bookmarks = Bookmarks()
        self._put_in = 0  # elements into the queue
        self._behind = 0  # the place behind the last block that was taken
        self.rejects = Rejects()
        self._pool = Pool()
        self._taken: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._begun: dict[int, tuple[object, Iterator[Any]]] = {}
        self._corrupt = 0
        self._closing = False
        self._open(profile)
        self._carriers = self._carrier_table()

    def _carrier_table(self) -> e.Carriers:
        table = e.Carriers()
        table.on(e.Send, self._send)
        table.on(
            e.LogLine,
            lambda command: log.log(
                logging.getLevelName(command.level.upper()), "%s", command.text
            ),
        )
        table.on(e.NoteLeftOut, lambda command: self.quarantine.append(_left_out(command.element)))
        table.on(e.ConnectLink, self._connect)
        table.on(e.DisconnectLink, self._disconnect)
        table.on(e.Deliver, self._deliver)
        table.on(e.Weave, self._weave)
        table.on(e.DropQueued, lambda command: self._drop_queued())
        table.on(e.Finish, self._finish)
        table.on(e.Closed, lambda command: self.loop.stop())
        return table

    def _open(self, profile: ClientProfile) -> None:
        """Makes the thread and its sockets."""
        self._context = client_context()
        key = shown_key()
        self._server = None if key is None else key.server("worker")
        self._links: dict[str, tuple[zmq.Socket[bytes], zmq.Socket[bytes]]] = {}
        self._handovers: dict[str, Handover] = {}
        self._descriptors = Descriptors()
        self._memories = Memories(self._descriptors)
        self.loop = Loop(
            f"zmqdata-client-{profile.client[:6]}", self._tick, 0.2, self._release, self._fault
        )
        self.servers = Servers(
            self._context,
            self.loop,
            key,
            profile.service,
            self._receive,
            lambda reason: self._handle(e.ShutOut(PermissionDeniedError.__name__, reason)),
        )

    def _now(self) -> float:
        """The time by which leases run: it goes on while the machine is suspended."""
        return boottime()

    # --- from the training thread

    @property
    def is_decided(self) -> bool:
        """Whether it is known that there is something to read, or that there is not."""
        return self.core.opened or isinstance(self.queue.first(), End)

    def wait_for_answer(self, seconds: float) -> None:
        """Waits, but no longer, for a word of the dispatcher: what becomes of us, or
        for whom we wait.
        """
        with contextlib.suppress(queue.Empty):
            self._answered.get(timeout=seconds)

    def look_in(self) -> None:
        """The training loop begins to read."""
        self.loop.post(lambda: self._handle(e.Wanted()))

    def took_all(self, delivery: Delivery) -> None:
        """The training loop has taken the last element of the first block."""
        self._taken.put(delivery)
        self._behind = delivery.behind
        self.queue.remove(delivery)
        # A part of a block, as numbered consumers get them, returns no credit: it may
        # wait for others to be told with.
        if delivery.returns_credit or not self.queue:
            self.loop.post(self._report_taken)

    @property
    def place(self) -> int:
        """How many elements the training loop has taken."""
        first = self.queue.being_read()
        return self._behind if first is None else first.place

    def bookmark(self) -> ServiceBookmark:
        """The place that the training loop has reached, for as long as this client is
        not given up.
        """
        name = self.core.client
        return self.bookmarks.note(
            ServiceBookmark(self.place, lambda place: self._checkpoint(place, name))
        )

    def _checkpoint(self, place: int, name: str) -> bytes:
        """The checkpoint of a place, from any thread. The loop's thread puts it
        together, while there is one.
        """
        check_has_places(self.core.profile.job)
        deadline = time.monotonic() + LACKING
        while True:
            try:
                return answer_of(self.loop, lambda: self._encoded(place, name))
            except UnavailableError:  # something is to be told yet
                if not self.loop.thread.is_alive() or time.monotonic() >= deadline:
                    raise
            with contextlib.suppress(queue.Empty):
                queue.SimpleQueue[None]().get(timeout=0.02)

    def ask_to_close(self) -> None:
        """Says goodbye in the background; the thread ends by itself soon after."""
        self.loop.post(self._close)

    # --- in the thread

    def _handle(self, event: e.ClientEvent) -> None:
        for command in self.core.handle(self._now(), event):
            self._carriers[type(command)](command)
        self.queue.tell()

    def _fault(self, error: Exception) -> None:
        """With what was left undone there may be elements: to go on without a word
        could lose them.
        """
        text = f"The iterator's thread had an error that nobody has foreseen ({type(error).__name__}: {error})"
        self._finish(e.Finish(DataServiceError.__name__, text))

    def _tick(self) -> None:
        self.strides.end()
        self._report_partly()
        self._handle(e.Tick())
        self.servers.look(self.core.links.by_address)

    def look_after_lease(self) -> None:
        """The training loop waits for it."""
        self._handle(e.Tick())

    def _encoded(self, place: int, name: str) -> bytes:
        self._report_partly()
        if self.core.client != name:
            raise FailedPreconditionError(
                "the dispatcher had given up this client, which has joined its job again: elements "
                "that an operation "
                "behind distribute() holds back were given to others. Go on from an earlier state"
            )
        if not self.core.has_begun and self.core.profile.resume:
            return self.core.profile.resume
        if self.core.standing.is_behind:
            raise UnavailableError(
                "another reader of this job has left, and the dispatcher has not said yet what it "
                "had, which would "
                "come again after loading this state. Is the dispatcher running? Take the state "
                "again in a while"
            )
        if self.core.standing.lacking:
            raise UnavailableError(
                f"workers have not told yet how tasks {sorted(self.core.standing.lacking)} can be "
                "continued, of which "
                "other clients had elements before this one came, or before they left. Take the "
                "state again in a while"
            )
        return encode_checkpoint(self.core.standing.checkpoint(place))

    def _report_taken(self) -> None:
        while not self._closing:
            try:
                delivery = self._taken.get_nowait()
            except queue.Empty:
                return
            if not delivery.taken and not delivery.dropped:
                delivery.taken = True
                self._report(delivery.report_all(self.bookmarks.oldest))

    def _report_partly(self) -> None:
        if self._closing:
            return
        # In this order: what was taken of it, was taken after all of those that are
        # done.
        first = self.queue.being_read()
        self._report_taken()
        if first is None:
            return
        if not first.left:
            # All of it was taken; it leaves the queue when the training loop asks for
            # more.
            self._taken.put(first)
            self._report_taken()
        else:
            self._report(first.report_taken(self.bookmarks.oldest))

    def _report(self, parts: list[e.TakenElements]) -> None:
        if parts:
            self._handle(e.PartsHandedOut(tuple(parts)))

    def _close(self) -> None:
        self._report_partly()
        self._closing = True
        self._handle(e.CloseRequested())

    def _receive(self, socket: zmq.Socket[bytes], peer: e.Peer) -> bool:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        event = self._understood(frames, peer)
        if event is None:
            return True
        self._handle(event)
        if self._unanswered and (self.is_decided or self.core.telling.awaited):
            self._unanswered = False
            self._answered.put(None)
        return True

    def _understood(self, frames: list[bytes], peer: e.Peer) -> e.Received | e.ShutOut | None:
        """What a message tells; None: it is dropped, as all that whoever has the port
        of a lost worker may say.
        """
        try:
            return e.Received(peer, wire.to_client.control(frames))
        except ProtocolError as error:
            self.rejects.count(peer, "a control connection", str(error))
            if peer != e.DISPATCHER or not isinstance(error, VersionMismatchError):
                return None
            text = f"{error}. The peer is the dispatcher at {self.core.profile.service}."
            return e.ShutOut(type(error).__name__, text)

    def _send(self, command: e.Send) -> None:
        try:
            self.servers.socket(command.peer).send_multipart(
                wire.pack(command.message), zmq.NOBLOCK
            )
        except zmq.Again:
            log.debug("%s does not take its messages; one was left out", command.peer)
        except zmq.ZMQError as error:
            if not self._descriptors.explains(error, f"a connection to {command.peer}"):
                self.rejects.count(command.peer, "the task list", f"no address: {error}")

    # --- links

    def _connect(self, command: e.ConnectLink) -> None:
        name = command.link
        if command.address.startswith(SCHEME):
            self._attach(name, command.address)
            return
        try:
            server = self._server if command.address.startswith("tcp://") else None
            socket, monitor = sockets.link_pull(
                self._context, command.address, name, command.secret, server
            )
        except (zmq.ZMQError, ValueError) as error:
            self._descriptors.explains(error, f"a connection to {command.address}")
            text = f"cannot connect to {command.address}: {error}"
            self.loop.post(lambda: self._handle(e.LinkBroken(name, text)))
            return
        self._note_missing_codec(command.address)
        self._links[name] = (socket, monitor)
        self.loop.read(socket, lambda: self._receive_block(name, socket))
        self.loop.read(monitor, lambda: self._connection_ended(name, socket, monitor))
        if self._memories.map(command):
            self.loop.post(lambda: self._handle(e.MemoryMapped(name)))

    def _note_missing_codec(self, address: str) -> None:
        """Warn once if a worker on another host would compress what it sends here."""
        host = endpoint_host(address)
        if host is not None and self._lacks_codec:
            with contextlib.suppress(InvalidArgumentError):
                if not is_loopback(host):
                    warn_of_missing_codec()

    def _attach(self, name: str, address: str) -> None:
        """Connects within this process: blocks come by a call from the worker's
        thread.
        """
        handover = find_handover(address)
        broken = e.LinkBroken(name, "the worker has closed it")
        if handover is None:
            self.loop.post(lambda: self._handle(broken))
            return
        self._handovers[name] = handover
        handover.attach(
            lambda message: self.loop.post(lambda: self._handle(referred(name, *message))),
            lambda: self.loop.post(lambda: self._handle(broken)),
        )

    def _connection_ended(
        self, name: str, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes]
    ) -> bool:
        try:
            monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        # What had arrived before the connection ended is still worth having.
        while name in self._links and self._receive_block(name, socket):
            pass
        if name in self._links:
            self._handle(e.LinkBroken(name, "the connection ended"))
        return False

    def _disconnect(self, command: e.DisconnectLink) -> None:
        handover = self._handovers.pop(command.link, None)
        if handover is not None:
            handover.detach()
        self._memories.forget(command.link)
        link = self._links.pop(command.link, None)
        if link is not None:
            for socket in link:
                self.loop.forget(socket)
            sockets.close_pull(link[0])

    def _receive_block(self, name: str, socket: zmq.Socket[bytes]) -> bool:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        try:
            parts = [frame.buffer for frame in frames]
            memory, allow = self._memories.of(name), self.core.profile.allow_objects
            header, content = decode_message(
                parts, memory, allow_objects=allow, room=self._pool.take
            )
        except ProtocolError as error:
            self._cannot_decode(name, error)
            return True
        self._corrupt = 0
        self._handle(e.Arrived(name, header, content))
        return True

    def _cannot_decode(self, name: str, error: ProtocolError) -> None:
        """A message that cannot be read is asked for again; a peer that sends nothing
        else is given up.
        """
        self.rejects.count(shown_name(name), "a data connection", str(error))
        self._corrupt += 1
        finish = hopeless(error, self._corrupt)
        if finish is not None:
            self._finish(finish)
        self._handle(e.LinkBroken(name, str(error)))

    # --- elements

    def _deliver(self, command: e.Deliver) -> None:
        if isinstance(command.content, DataServiceError):
            self._put(Delivery((command,), [iter([None])], command.content))
        else:
            self._put(Delivery((command,), [self._part(command)]))

    def _weave(self, command: e.Weave) -> None:
        self._put(Delivery(command.parts, [self._part(part) for part in command.parts]))

    def _part(self, command: e.Deliver) -> Iterator[Any]:
        """The next elements of a block that may be delivered in parts: in order, and
        each of them decoded once.
        """
        header, stop = command.header, command.stop
        if stop == header.count and header.task not in self._begun:
            return command.content.elements(command.skip)  # type: ignore[no-any-return]  # of a block
        begun = self._begun.get(header.task)
        if begun is None or begun[0] is not command.content:
            begun = (command.content, command.content.elements(command.skip))
        self._begun[header.task] = begun
        if stop == header.count:
            del self._begun[header.task]
        return itertools.islice(begun[1], stop - command.skip)

    def _finish(self, command: e.Finish) -> None:
        self.queue.put(End.by(command))

    def _put(self, delivery: Delivery) -> None:
        delivery.before = self._put_in
        self._put_in = delivery.behind
        self.queue.put(delivery)

    def _drop_queued(self) -> None:
        """Others were given what is here; what was taken of it is not reported any
        more, and places begin anew.
        """
        self.queue.drop()
        self.strides.end()
        self.bookmarks.forget()
        self._put_in = self._behind = 0
        self._begun.clear()
        while not self._taken.empty():
            self._taken.get_nowait()

    def _release(self) -> None:
        for name in [*self._links, *self._handovers]:
            self._disconnect(e.DisconnectLink(name))
        self.servers.close()
        lifetime.abandoned.discard(self.loop)


def _left_out(element: LeftOutElement) -> LeftOut:
    return LeftOut(element.number, element.label, element.error, "", element.split)
