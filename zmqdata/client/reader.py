"""The client's shell: a thread that owns the sockets of one iterator, and the iterator that the training loop calls.

The thread feeds a ``ConsumerCore`` and decodes blocks off the training thread; the iterator takes elements from a
queue. All counting of what was handed out happens in the thread.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import zmq

from zmqdata import commands as c
from zmqdata import wire
from zmqdata.client.auditing import audit_of_repetition
from zmqdata.client.calls import client_context
from zmqdata.client.decoding import decode_message, hopeless, referred
from zmqdata.client.deliveries import DeliveryQueue, Strides
from zmqdata.client.delivery import Delivery, End
from zmqdata.core.consumer import ConsumerCore, ConsumerProfile
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    ProtocolError,
    UnimplementedError,
)
from zmqdata.iterators import NO_STATE, ElementIterator
from zmqdata.transport import sockets
from zmqdata.transport.clocks import boottime
from zmqdata.transport.forks import check_process
from zmqdata.transport.local import SCHEME, Handover, find_handover
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

log = logging.getLogger(__name__)

GOODBYE = 3.0
LAST_WORDS = 15.0  # seconds that the end of a program waits for a dispatcher that is away, to report what was read


class ReaderShell:
    """Everything of an iterator that its thread may touch. It does not keep the iterator alive.

    Args:
        profile: who reads what.
    """

    def __init__(self, profile: ConsumerProfile) -> None:
        self.core = ConsumerCore(profile)
        self.strides = Strides()
        self.queue = DeliveryQueue(lambda: self.core.lease.holds(boottime()))
        self.rejects = Rejects()
        self._context = client_context()
        self._dispatcher = sockets.control_dealer(self._context, profile.service)
        self._workers: dict[str, zmq.Socket[bytes]] = {}
        self._links: dict[str, tuple[zmq.Socket[bytes], zmq.Socket[bytes]]] = {}
        self._handovers: dict[str, Handover] = {}
        self._taken: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._begun: dict[int, tuple[object, Iterator[Any]]] = {}
        self._corrupt = 0
        self._closing = False
        self.loop = Loop(f"zmqdata-client-{profile.client[:6]}", self._tick, 0.2, self._release)
        self.loop.read(self._dispatcher, lambda: self._receive(self._dispatcher, c.DISPATCHER))
        self._carry_out: dict[type[Any], Callable[[Any], None]] = {
            c.Send: self._send,
            c.Note: lambda command: log.log(logging.getLevelName(command.level.upper()), "%s", command.text),
            c.ConnectLink: self._connect,
            c.DisconnectLink: self._disconnect,
            c.Deliver: self._deliver,
            c.Weave: self._weave,
            c.DropQueued: lambda command: self._drop_queued(),
            c.Finish: self._finish,
            c.Closed: lambda command: self.loop.stop(),
        }

    # --- from the training thread

    def took_all(self, delivery: Delivery) -> None:
        """The training loop has taken the last element of the first block."""
        self._taken.put(delivery)
        self.queue.remove(delivery)
        # A part of a block, as numbered consumers get them, returns no credit: it may wait for others to be told with.
        if delivery.returns_credit or not self.queue:
            self.loop.post(self._report_taken)

    def ask_to_close(self) -> None:
        """Says goodbye in the background; the thread ends by itself soon after."""
        self.loop.post(self._close)

    # --- in the thread

    def _handle(self, event: object) -> None:
        for command in self.core.handle(boottime(), event):
            self._carry_out[type(command)](command)
        self.queue.tell()

    def _tick(self) -> None:
        self.strides.end()
        self._report_partly()
        self._handle(c.Tick())

    def look_after_lease(self) -> None:
        """The training loop waits for it."""
        self._handle(c.Tick())

    def _report_taken(self) -> None:
        while not self._closing:
            try:
                delivery = self._taken.get_nowait()
            except queue.Empty:
                return
            if not delivery.taken and not delivery.dropped:
                delivery.taken = True
                self._report(delivery.report_all())

    def _report_partly(self) -> None:
        if self._closing:
            return
        self._report_taken()
        first = self.queue.being_read()
        if first is None:
            return
        if not first.left:
            # All of it was taken; it leaves the queue when the training loop asks for more.
            self._taken.put(first)
            self._report_taken()
        else:
            self._report(first.report_taken())

    def _report(self, events: list[c.HandedOut]) -> None:
        for event in events:
            self._handle(event)

    def _close(self) -> None:
        self._report_partly()
        self._closing = True
        self._handle(c.CloseRequested())

    def _receive(self, socket: zmq.Socket[bytes], peer: c.Peer) -> bool:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        try:
            message = wire.to_client.control(frames)
        except ProtocolError as error:
            self.rejects.count(peer, "a control connection", str(error))
            return True
        self._handle(c.Received(peer, message))
        return True

    def _send(self, command: c.Send) -> None:
        socket = self._dispatcher if command.peer == c.DISPATCHER else self._worker(str(command.peer))
        if socket is None:
            return
        try:
            socket.send_multipart(wire.pack(command.message), zmq.NOBLOCK)
        except zmq.Again:
            log.debug("%s does not take its messages; one was left out", command.peer)

    def _worker(self, address: str) -> zmq.Socket[bytes] | None:
        socket = self._workers.get(address)
        if socket is None:
            try:
                socket = sockets.control_dealer(self._context, address, max_bytes=sockets.MAX_CONTROL_BYTES)
            except zmq.ZMQError as error:
                self.rejects.count(address, "the task list", f"no address: {error}")
                return None
            self._workers[address] = opened = socket
            self.loop.read(opened, lambda: self._receive(opened, address))
        return socket

    # --- links

    def _connect(self, command: c.ConnectLink) -> None:
        name = command.link
        if command.address.startswith(SCHEME):
            self._attach(name, command.address)
            return
        try:
            socket, monitor = sockets.link_pull(self._context, command.address, name, command.secret)
        except zmq.ZMQError as error:
            text = f"cannot connect to {command.address}: {error}"
            self.loop.post(lambda: self._handle(c.LinkBroken(name, text)))
            return
        self._links[name] = (socket, monitor)
        self.loop.read(socket, lambda: self._receive_block(name, socket))
        self.loop.read(monitor, lambda: self._connection_ended(name, socket, monitor))

    def _attach(self, name: str, address: str) -> None:
        """Connects within this process: blocks come by a call from the worker's thread."""
        handover = find_handover(address)
        broken = c.LinkBroken(name, "the worker has closed it")
        if handover is None:
            self.loop.post(lambda: self._handle(broken))
            return
        self._handovers[name] = handover
        handover.attach(
            lambda message: self.loop.post(lambda: self._handle(referred(name, *message))),
            lambda: self.loop.post(lambda: self._handle(broken)),
        )

    def _connection_ended(self, name: str, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> bool:
        try:
            monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        # What had arrived before the connection ended is still worth having.
        while name in self._links and self._receive_block(name, socket):
            pass
        if name in self._links:
            self._handle(c.LinkBroken(name, "the connection ended"))
        return False

    def _disconnect(self, command: c.DisconnectLink) -> None:
        handover = self._handovers.pop(command.link, None)
        if handover is not None:
            handover.detach()
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
            header, content = decode_message([frame.buffer for frame in frames])
        except ProtocolError as error:
            self._cannot_decode(name, error)
            return True
        self._corrupt = 0
        self._handle(c.Arrived(name, header, content))
        return True

    def _cannot_decode(self, name: str, error: ProtocolError) -> None:
        """A message that cannot be read is asked for again; a peer that sends nothing else is given up."""
        self.rejects.count(name, "a data connection", str(error))
        self._corrupt += 1
        finish = hopeless(error, self._corrupt)
        if finish is not None:
            self._finish(finish)
        self._handle(c.LinkBroken(name, str(error)))

    # --- elements

    def _deliver(self, command: c.Deliver) -> None:
        if isinstance(command.content, DataServiceError):
            self.queue.put(Delivery((command,), [[None]], command.content))
        else:
            self.queue.put(Delivery((command,), [self._part(command)]))

    def _weave(self, command: c.Weave) -> None:
        self.queue.put(Delivery(command.parts, [self._part(part) for part in command.parts]))

    def _part(self, command: c.Deliver) -> list[Any]:
        """The next elements of a block that may be delivered in parts: in order, and each of them decoded once."""
        header, stop = command.header, command.stop
        if stop == header.count and header.task not in self._begun:
            return list(command.content.elements(command.skip))
        begun = self._begun.get(header.task)
        if begun is None or begun[0] is not command.content:
            begun = (command.content, command.content.elements(command.skip))
        self._begun[header.task] = begun
        if stop == header.count:
            del self._begun[header.task]
        return list(itertools.islice(begun[1], stop - command.skip))

    def _finish(self, command: c.Finish) -> None:
        self.queue.put(End.by(command))

    def _drop_queued(self) -> None:
        """Others were given what is here; what was taken of it is not reported any more."""
        self.queue.drop()
        self.strides.end()
        self._begun.clear()
        while not self._taken.empty():
            self._taken.get_nowait()

    def _release(self) -> None:
        for name in [*self._links, *self._handovers]:
            self._disconnect(c.DisconnectLink(name))
        for socket in self._workers.values():
            socket.close()
        self._dispatcher.close()
        _abandoned.discard(self.loop)


class ServiceIterator(ElementIterator):
    """Reads one repetition of a job (what ``iter`` of a distributed dataset gives).

    Args:
        profile: who reads what.

    Raises (from ``next``):
        PipelineError: a user's function failed at this element; the next call goes on behind it.
        UnavailableError: the dispatcher has been away for longer than ``dispatcher_timeout``.
        DataServiceError: the service cannot go on; the text says why.
    """

    def __init__(self, profile: ConsumerProfile) -> None:
        self._shell = ReaderShell(profile)
        self._strides = self._shell.strides
        self._ended = False
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._shell.loop.start()
        self._finalizer = weakref.finalize(self, _abandon, self._shell, self._pid)
        self._finalizer.atexit = False  # then close() waits for the goodbye
        _alive.add(self)

    def __next__(self) -> Any:
        for element in self._strides.elements:
            return element
        return self._next_block()

    def _next_block(self) -> Any:
        self._check_process()
        with self._lock:
            while not self._ended:
                first = self._first()
                if isinstance(first, End):
                    self._end(first)
                elif isinstance(first, Delivery):
                    self._end_if_final(first)
                    failure = first.take_failure()
                    if failure is not None:
                        raise failure
                    for element in self._strides.begin(first.elements):
                        return element
                    self._shell.took_all(first)
        raise StopIteration

    def _first(self) -> Delivery | End | None:
        """The block that is being read, or what has come to the front after it; None when it should be asked again."""
        shell, first = self._shell, self._shell.queue.first()
        if first is None:
            if shell.queue:
                shell.loop.post(shell.look_after_lease)
            shell.queue.wait(1.0)
            first = shell.queue.first()
        if first is None and not self._ended and not shell.loop.thread.is_alive():
            raise DataServiceError("the iterator's thread has ended; this is a fault in zmqdata")
        return first

    def _end_if_final(self, delivery: Delivery) -> None:
        """Ends a coordinated read whose input has ended where it may not: at the same step for every consumer.

        The failure does not count as taken, so whoever reads as one of them later gets it again.
        """
        if isinstance(delivery.failure, FailedPreconditionError) and self._shell.core.is_numbered:
            failure, delivery.failure = delivery.failure, None
            self.close()
            raise failure

    def _end(self, end: End) -> None:
        error = end.take_error()
        self._ended = True
        self.close()
        if error is not None:
            raise error

    def _check_process(self) -> None:
        remedy = "Make a new iterator with iter(dataset) here, or start processes with the 'spawn' method."
        check_process(self._pid, "iterator", remedy)

    def state(self) -> Any:
        """None in this version: ``NO_STATE``, which whoever saves a state refuses."""
        return NO_STATE

    def restore(self, state: Any) -> None:
        """Not supported in this version.

        Raises:
            UnimplementedError: always.
        """
        raise UnimplementedError("An iterator over a distributed dataset cannot be restored in this version")

    def close(self) -> None:
        """Stops reading: what was not handed out goes to other clients of the job. Idempotent; waits a few seconds."""
        if self._pid != os.getpid():
            return
        # In this order, so that an interrupt between any two lines leaves an iterator that has ended.
        self._ended = True
        self._strides.end()
        if self._finalizer.alive:
            self._shell.ask_to_close()
            self._shell.queue.wake()
            self._finalizer.detach()
            if not self._shell.loop.join(GOODBYE):
                _abandoned.add(self._shell.loop)  # its last report has not been taken yet

    def audit(self) -> dict[str, Any]:
        """What became of the splits and elements of this repetition of the job, as ``zmqdata.audit`` tells it.

        What this iterator has handed out is in it after a second, or as soon as it has ended or was closed.

        Raises:
            NotFoundError: the dispatcher does not know the job, or not any more.
            UnavailableError: the dispatcher has not answered.

        Ours: tf.data has nothing of the kind.
        """
        who = self._shell.core.profile
        return audit_of_repetition(who.service, who.job.name, who.repetition)

    def _after_fork(self) -> None:
        self._strides.end()
        self._lock = threading.RLock()
        self._finalizer.detach()


_alive: weakref.WeakSet[ServiceIterator] = weakref.WeakSet()
_abandoned: set[Loop] = set()


def _abandon(shell: ReaderShell, pid: int) -> None:
    """The iterator was dropped half-way. Not waited for: this runs wherever the garbage collector does."""
    if os.getpid() == pid and shell.loop.thread.is_alive():
        # The process may be about to end, as after Ctrl-C; the goodbye must have been said by then.
        _abandoned.add(shell.loop)
        shell.ask_to_close()


def _close_all() -> None:
    for iterator in list(_alive):
        iterator.close()
    for loop in _abandoned.copy():
        loop.join(LAST_WORDS)


def _disown_all() -> None:
    _abandoned.clear()
    for iterator in list(_alive):
        iterator._after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_disown_all)
