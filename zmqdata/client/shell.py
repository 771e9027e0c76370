"""The client's shell: a thread that owns the sockets of an iterator.

The thread feeds a ``ClientCore`` and decodes blocks, so the training thread does not
have to. The iterator takes elements from a queue. All counting of handed-out elements
happens in the thread.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import zmq
from msgspec import structs

from zmqdata import wire
from zmqdata.client import lifetime
from zmqdata.client.bookmarks import Bookmarks, ServiceBookmark, answer_of, check_has_places
from zmqdata.client.calls import client_context
from zmqdata.client.connections import Descriptors, Memories, Servers, note_missing_codec
from zmqdata.client.decoding import MovedBytes, decode_message, hopeless, referred
from zmqdata.client.delivery import Delivery, DeliveryQueue, End, Strides
from zmqdata.client.quarantine import ListLeftOut, list_nowhere
from zmqdata.client.tasklog import task_log
from zmqdata.client.trace import ClientTrace
from zmqdata.core.client import events as e
from zmqdata.core.client.decider import ClientCore, ClientProfile
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    PermissionDeniedError,
    ProtocolError,
    UnavailableError,
    VersionMismatchError,
)
from zmqdata.machine.descriptors import AN_ITERATOR, LEAST, check_room
from zmqdata.machine.runkeys import ranks_told
from zmqdata.measures.meter import LoopMeter
from zmqdata.measures.sums import RecentLoop
from zmqdata.messages import (
    LoopMeasures,
    TakeBackElements,
    encode_checkpoint,
    shown_name,
)
from zmqdata.transport import sockets
from zmqdata.transport.addresses import is_refused
from zmqdata.transport.clocks import boottime
from zmqdata.transport.closed import why_closed
from zmqdata.transport.keychoice import shown_key
from zmqdata.transport.loans import Pool
from zmqdata.transport.local import SCHEME, Handover, find_handover
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

log = logging.getLogger(__name__)

LACKING = 10.0
"""Seconds to wait for the lineage of tasks that other clients read earlier."""


class ReaderShell:
    """Everything of an iterator that its thread may use. It does not keep the iterator
    alive.

    Args:
        profile: what to read, and in which role.
        list_left_out: takes the elements that workers skip.
        meter: measures the waits of the loop.
    """

    def __init__(
        self,
        profile: ClientProfile,
        list_left_out: ListLeftOut = list_nowhere,
        meter: LoopMeter | None = None,
    ) -> None:
        self.core = ClientCore(profile)
        self.core.notices.ranks = ranks_told()
        self._meter, self._recent = meter or LoopMeter(time.perf_counter), RecentLoop()
        self.trace = ClientTrace(self._meter, self.core, self._send)
        self._lacks_codec = profile.job.compression is not None and not profile.decompresses
        self._list_left_out = list_left_out
        self._answered: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._unanswered = True
        self.strides = Strides()
        self.queue = DeliveryQueue(lambda: self.core.lease.holds(self._now()))
        self.bookmarks, self.rejects = Bookmarks(), Rejects()
        self._behind = 0  # the place after the last block taken
        self._pool, self._moved = Pool(), MovedBytes()
        self._taken: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._begun: dict[int, tuple[object, Iterator[Any]]] = {}
        self._corrupt, self._closing = 0, False
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
        table.on(e.NoteLeftOut, lambda command: self._list_left_out(command.element))
        table.on(e.ShowTaskLog, task_log.show)
        table.on(e.ConnectLink, self._connect)
        table.on(e.DisconnectLink, self._disconnect)
        table.on(e.Deliver, self._deliver)
        table.on(e.Weave, self._weave)
        table.on(e.DropQueued, lambda command: self._drop_queued())
        table.on(e.DropUnbegun, self._drop_unbegun)
        table.on(e.Finish, self._finish)
        table.on(e.Closed, lambda command: self.loop.stop())
        return table

    def _open(self, profile: ClientProfile) -> None:
        """Make the thread and its sockets."""
        self._context = client_context()
        check_room(AN_ITERATOR, LEAST)
        key = shown_key()
        self._server = None if key is None else key.server("worker")
        self._links: dict[str, zmq.Socket[bytes]] = {}
        self._handovers: dict[str, Handover] = {}
        self._descriptors = Descriptors()
        self._memories = Memories(self._descriptors)
        self.loop = Loop(
            f"zmqdata-client-{profile.client[:6]}", self._tick, 0.2, self._release, self._fault
        )
        try:
            self.servers = Servers(
                self._context,
                self.loop,
                key,
                profile.service,
                self._receive,
                lambda reason: self._handle(e.ShutOut(PermissionDeniedError.__name__, reason)),
            )
        except BaseException:
            self.loop.discard()
            raise

    def _now(self) -> float:
        """Return the time by which leases run, which continues while the machine is
        suspended.
        """
        return boottime()

    # --- from the training thread

    @property
    def is_decided(self) -> bool:
        """True if it is known whether the iteration has anything to read."""
        return self.core.opened or isinstance(self.queue.first(), End)

    def wait_for_answer(self, seconds: float) -> None:
        """Wait for the first answer of the dispatcher, for a number of seconds at most.

        The answer says whether the client is admitted, or which readers are awaited.
        """
        with contextlib.suppress(queue.Empty):
            self._answered.get(timeout=seconds)

    def start_reading(self) -> None:
        """Tell the core that the training loop begins to read."""
        self.loop.post(lambda: self._handle(e.Wanted()))

    def finish_delivery(self, delivery: Delivery) -> None:
        """Record that the training loop has taken the last element of the first
        block.
        """
        self._taken.put(delivery)
        self._behind = delivery.behind
        self.queue.remove(delivery)
        # A part of a block, as numbered consumers get, returns no credit. Its report
        # can wait for that of other parts.
        if delivery.returns_credit or not self.queue:
            self.loop.post(partial(self._report_taken, time.monotonic()))

    @property
    def place(self) -> int:
        """Number of elements that the training loop has taken."""
        first = self.queue.being_read()
        return self._behind if first is None or first.before is None else first.place

    def measures(self, recent: RecentLoop) -> LoopMeasures:
        """Return the measures of the loop.

        Args:
            recent: turns the sums of the loop into recent ones.
        """
        found = self._meter.measures(recent, self.place, self.queue.late)
        return structs.replace(
            found,
            waiting=self.core.reading.waiting,
            moved=self._moved.sums(),
            # A person asks too rarely to see single steps.
            pace=self._recent.pace if found.outer is None else found.pace,
        )

    def begin_delivery(self, delivery: Delivery) -> bool:
        """Begin to read the first block. Return False if it was dropped meanwhile."""
        return self.queue.begin(delivery, self._behind)

    def bookmark(self) -> ServiceBookmark:
        """Return the place that the training loop has reached. It is valid until this
        client is given up.
        """
        name = self.core.client
        return self.bookmarks.note(
            ServiceBookmark(self.place, lambda place: self._checkpoint(place, name))
        )

    def _checkpoint(self, place: int, name: str) -> bytes:
        """Return the encoded checkpoint of a place, from any thread.

        The loop's thread makes it while it runs.
        """
        check_has_places(self.core.profile.job)
        deadline = time.monotonic() + LACKING
        while True:
            try:
                return answer_of(self.loop, lambda: self._encoded(place, name))
            except UnavailableError:  # a message is still missing
                if not self.loop.thread.is_alive() or time.monotonic() >= deadline:
                    raise
            with contextlib.suppress(queue.Empty):
                queue.SimpleQueue[None]().get(timeout=0.02)

    def ask_to_close(self) -> None:
        """Say goodbye in the background. The thread ends soon afterwards."""
        self.loop.post(self._close)

    def is_hopeless(self) -> bool:
        """Return True if the address of the dispatcher refuses connections."""
        return is_refused(self.core.profile.service)

    def lost(self) -> tuple[str, bool]:
        """Return what is lost if the dispatcher does not hear of the end, and whether
        the end of the program waits until the goodbye is over.
        """
        with contextlib.suppress(RuntimeError):  # the loop's thread changes it
            goodbye = self.core.goodbye
            return goodbye.describe_losses("at the end of this program"), goodbye.must_be_heard
        return "", False

    # --- in the thread

    def _handle(self, event: e.ClientEvent) -> None:
        for command in self.core.handle(self._now(), event):
            self._carriers[type(command)](command)
        self.queue.tell()

    def _fault(self, error: Exception) -> None:
        """End the iterator after an unforeseen error in its thread.

        The interrupted work may have concerned elements, and continuing silently could
        lose them.
        """
        text = (
            f"The iterator's thread had an unforeseen error ({type(error).__name__}: "
            f"{error}). This is a fault in zmqdata; please report it."
        )
        self._finish(e.Finish(DataServiceError.__name__, text))

    def _tick(self) -> None:
        self.strides.end()
        self._report_partly()
        self.trace.look()
        self._handle(e.LoopMeasured(self.measures(self._recent)))
        self._handle(e.Tick())
        closed = why_closed(self.core.profile.service)
        if closed:
            self._handle(e.ShutOut(UnavailableError.__name__, closed))
        self.servers.look(self.core.links.by_address)

    def look_after_lease(self) -> None:
        """Let the core act on the lease, because the training loop waits for it."""
        self._handle(e.Tick())

    def _encoded(self, place: int, name: str) -> bytes:
        self._report_partly()
        if self.core.client != name:
            raise FailedPreconditionError(
                "The dispatcher has given up this client, which has rejoined its "
                "job: elements held by an operation after `distribute` were given to "
                "other clients. Continue from an earlier state."
            )
        if self.core.iteration is None and self.core.profile.resume:
            return self.core.profile.resume
        if self.core.standing.is_behind:
            raise UnavailableError(
                "Another reader of this job has left, and the dispatcher has not yet "
                "said what it received. Without that, its elements would be repeated "
                "after loading this state. Check that the dispatcher is running, and "
                "take the state again in a second."
            )
        if self.core.standing.tasks_without_lineage:
            raise UnavailableError(
                "The workers have not yet sent the lineage of tasks "
                f"{sorted(self.core.standing.tasks_without_lineage)}, which other clients read "
                "earlier. Take the state again in a second."
            )
        return encode_checkpoint(self.core.standing.checkpoint(place))

    def _report_taken(self, asked: float | None = None) -> None:
        """Report the deliveries that the training loop has finished.

        Args:
            asked: time at which the loop asked for it, from when on this thread had
                something to do; None if it did not ask.
        """
        if asked is not None:
            self.queue.late += time.monotonic() - asked
        parts: list[e.TakenElements] = []
        came_back = False
        while not self._closing:
            try:
                delivery = self._taken.get_nowait()
            except queue.Empty:
                break
            came_back |= not delivery.dropped
            if not delivery.taken and not delivery.dropped:
                delivery.taken = True
                parts += delivery.report_all(self.bookmarks.oldest)
        # All at once: the core measures how long the loop takes for an element.
        if self.queue.being_read() is None:  # the core may say goodbye now
            self._handle(e.LoopMeasured(self.measures(self._recent)))
        if parts or (came_back and self.core.reading.pace.at_work):
            self._handle(e.PartsHandedOut(tuple(parts)))

    def _report_partly(self) -> None:
        if self._closing:
            return
        # In this order: the elements of the first block are taken after those of all
        # finished blocks.
        first = self.queue.being_read()
        self._report_taken()
        if first is None or first.taken:
            return
        if first.left:
            parts = first.report_taken(self.bookmarks.oldest)
        else:
            # All of it was taken. It leaves the queue when the training loop asks for
            # more.
            first.taken = True
            parts = first.report_all(self.bookmarks.oldest)
        if parts:
            self._handle(e.PartsHandedOut(tuple(parts), at_work=True))

    def _close(self) -> None:
        self._report_partly()
        self._handle(e.LoopMeasured(self.measures(self._recent)))
        self._closing = True
        self.trace.close()
        self._handle(e.CloseRequested())

    def _receive(self, socket: zmq.Socket[bytes], peer: e.Peer) -> bool:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        event = self._understood(frames, peer)
        if event is None or self.trace.takes(event):
            return True
        self._handle(event)
        if self._unanswered and (self.is_decided or self.core.notices.awaited):
            self._unanswered = False
            self._answered.put(None)
        return True

    def _understood(self, frames: list[bytes], peer: e.Peer) -> e.Received | e.ShutOut | None:
        """Return the event of a message, or None if the message is dropped.

        Dropping is right for a peer that has the port of a lost worker.
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
            log.debug("%s does not take its messages; a message was dropped", command.peer)
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
            socket = sockets.link_pull(self._context, command.address, name, command.secret, server)
        except (zmq.ZMQError, ValueError) as error:
            self._descriptors.explains(error, f"a connection to {command.address}")
            text = f"cannot connect to {command.address}: {error}"
            self.loop.post(lambda: self._handle(e.LinkBroken(name, text)))
            return
        if self._lacks_codec:
            note_missing_codec(command.address)
        self._links[name] = socket
        self._moved.open(name, command.address)
        self.loop.read(socket, lambda: self._receive_block(name, socket))
        if self._memories.map(command):
            self.loop.post(lambda: self._handle(e.MemoryMapped(name)))

    def _attach(self, name: str, address: str) -> None:
        """Connect within this process: blocks arrive by a call from the worker's
        thread.
        """
        handover = find_handover(address)
        broken = e.LinkBroken(name, "the worker has closed it")
        if handover is None:
            self.loop.post(lambda: self._handle(broken))
            return
        self._handovers[name] = handover
        handover.attach(
            lambda message: self.loop.post(
                lambda: self._arrived(referred(name, message[0], message[1]))
            ),
            lambda: self.loop.post(lambda: self._handle(broken)),
        )

    def _connection_ended(self, name: str, socket: zmq.Socket[bytes]) -> None:
        # Messages that had arrived before the connection ended are still valid.
        while name in self._links and self._receive_block(name, socket):
            pass
        if name in self._links:
            self._handle(e.LinkBroken(name, "the connection ended"))

    def _disconnect(self, command: e.DisconnectLink) -> None:
        handover = self._handovers.pop(command.link, None)
        if handover is not None:
            handover.detach()
        self._memories.forget(command.link)
        socket = self._links.pop(command.link, None)
        if socket is not None:
            self.loop.forget(socket)
            sockets.close_pull(socket)

    def _receive_block(self, name: str, socket: zmq.Socket[bytes]) -> bool:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        if sockets.is_end(frames):
            self._connection_ended(name, socket)
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
        self._arrived(e.Arrived(name, header, content))
        return True

    def _arrived(self, event: e.Arrived) -> None:
        self._moved.count(event.link, event.header, event.content)
        self.trace.arrived(event)
        if isinstance(event.header, TakeBackElements):
            self._report_partly()  # so that the worker learns how fast the loop is
        self._handle(event)

    def _cannot_decode(self, name: str, error: ProtocolError) -> None:
        """Ask again for an undecodable message, and give up a peer that repeatedly
        sends such messages.
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
            self.queue.put(Delivery((command,), [iter([None])], command.content))
        else:
            self.queue.put(Delivery((command,), [self._part(command)]))

    def _weave(self, command: e.Weave) -> None:
        self.queue.put(Delivery(command.parts, [self._part(part) for part in command.parts]))

    def _part(self, command: e.Deliver) -> Iterator[Any]:
        """Return the next elements of a block that may be delivered in parts: in order,
        and each decoded once.
        """
        header, stop = command.header, command.stop
        if stop == header.count and header.task not in self._begun:
            return command.content.elements(command.skip)  # type: ignore[no-any-return]  # of a block
        if stop == header.stop and header.task not in self._begun:
            return itertools.islice(command.content.elements(command.skip), stop - command.skip)
        begun = self._begun.get(header.task)
        if begun is None or begun[0] is not command.content:
            begun = (command.content, command.content.elements(command.skip))
        self._begun[header.task] = begun
        if stop == header.stop:
            del self._begun[header.task]
        return itertools.islice(begun[1], stop - command.skip)

    def _finish(self, command: e.Finish) -> None:
        self.queue.put(End(command))

    def _drop_unbegun(self, command: e.DropUnbegun) -> None:
        """Drop elements that other clients could hand out earlier."""
        task, attempt = command.task, command.attempt
        ranges = self.queue.drop_unbegun(task, attempt, command.count)
        self._handle(e.UnbegunDropped(task, attempt, command.recall, tuple(ranges)))

    def _drop_queued(self) -> None:
        """Forget the queue, because other clients were given its elements.

        What was taken of it is no longer reported, and places begin anew.
        """
        self.queue.drop()
        self.strides.end()
        self.bookmarks.forget()
        self._behind = 0
        self._begun.clear()
        while not self._taken.empty():
            self._taken.get_nowait()

    def _release(self) -> None:
        for name in [*self._links, *self._handovers]:
            self._disconnect(e.DisconnectLink(name))
        self.servers.close()
        lifetime.abandoned.pop(self.loop, None)
