"""The dispatcher's shell: its ROUTER, its clock and its files.
``core.dispatcher.decider`` makes all decisions.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import zmq

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.config.checks import MOST_CHARACTERS, check_type
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.keys import WITHOUT_KEY
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.saving import job_of
from zmqdata.core.limits import repeats_too_long
from zmqdata.dispatcher.answers import Answers
from zmqdata.dispatcher.journalfile import JournalFile, WorkDirLock
from zmqdata.dispatcher.listings import Listings
from zmqdata.dispatcher.metrics import DispatcherMetrics
from zmqdata.dispatcher.parameters import host_aliases, policy_of, silence_of, target_of, times_of
from zmqdata.dispatcher.records import Records
from zmqdata.dispatcher.savefolders import SaveFolders
from zmqdata.dispatcher.store import PipelineStore
from zmqdata.errors import (
    NotFoundError,
    ProtocolError,
    UnavailableError,
    VersionMismatchError,
)
from zmqdata.files.paths import FileName, whole_path
from zmqdata.machine.descriptors import left, remedy
from zmqdata.metrics.declared import DISPATCHER
from zmqdata.metrics.monitors import monitor_of
from zmqdata.printable import printable
from zmqdata.transport import sockets
from zmqdata.transport.access import Access, Keyring
from zmqdata.transport.addresses import bind_endpoint, is_loopback
from zmqdata.transport.closed import LAST_LIFE, note_closed
from zmqdata.transport.dispatcher_file import DispatcherFile
from zmqdata.transport.entrance import Entrance
from zmqdata.transport.keychoice import key_for
from zmqdata.transport.lifecycle import Server
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

log = logging.getLogger(__name__)

DESCRIPTORS = 24
"""File descriptors without which a dispatcher does not start: it takes 17 at most, and
one for each peer.
"""
OF_PEER = 3
"""File descriptors that a peer takes while it connects."""
COUNT_EVERY = 10.0
"""Seconds between two counts of the open file descriptors."""
GATHER = 0.002
"""Seconds by which an answer may be delayed while thousands of peers speak. This saves
a fifth of a core.
"""


class DispatcherShell:
    """Carries events to a dispatcher core and its commands out.

    Args:
        config: addresses, limits and times.
        failed: called in another thread if the dispatcher cannot continue and must be
            stopped.
        listening: socket for metrics; None to open one if the configuration has a port
            for them.
        synced: False if the work folder does not outlive a crash of the machine.

    Raises:
        DataLossError, FailedPreconditionError: its work folder is damaged, or in use.
        PermissionDeniedError: its key file belongs to another role.
        OSError: an address cannot be bound, or a file cannot be read or written.
    """

    def __init__(
        self,
        config: DispatcherConfig,
        failed: Callable[[UnavailableError], None],
        listening: socket.socket | None = None,
        synced: bool = True,
    ) -> None:
        with ExitStack() as self._closing:
            # Probes are answered from now on, before the journal is read.
            self.monitor = monitor_of(
                config, listening, "dispatcher", DISPATCHER, "The journal is being read."
            )
            if self.monitor is not None:
                self._closing.callback(self.monitor.close)
            self._open(config, failed, synced)
            if config.dispatcher_file is not None:
                announcement = DispatcherFile(config.dispatcher_file)
                announcement.write(self.target)
                self._closing.callback(announcement.remove)
            self._closing = self._closing.pop_all()

    def _open(
        self, config: DispatcherConfig, failed: Callable[[UnavailableError], None], synced: bool
    ) -> None:
        """Create all resources. They are closed in the opposite order, also if the
        creation of one fails.
        """
        closing = self._closing.callback
        if config.work_dir is not None:
            closing(WorkDirLock(Path(config.work_dir)).close)
        aliases = host_aliases(config.worker_addresses)
        self.store = PipelineStore(config.work_dir, synced)
        closing(self.store.close)
        key = key_for(config, not is_loopback(config.host))
        if key is None:
            log.warning("%s", WITHOUT_KEY)
        else:
            key.check_dispatcher()
        self.context = sockets.new_context("a dispatcher", DESCRIPTORS)
        closing(self.context.term)
        self.rejects = Rejects()
        self._count_at = 0.0
        self.loop = Loop("zmqdata-dispatcher", self._tick, gather=GATHER)
        closing(self.loop.discard)
        self.access = Access(self.context, self.loop, Keyring(key), self.rejects)
        closing(self.access.close)
        endpoint = bind_endpoint(config.host, config.port)
        self._entrance = Entrance(
            self.context,
            self.loop,
            endpoint,
            silence_ms=silence_of(config),
            max_bytes=config.max_message_bytes,
            key=key,
            rejects=self.rejects,
            hear=self._receive,
        )
        closing(self._entrance.close)
        self.target = target_of(config, self._entrance.port)
        self.config = config
        self.core = DispatcherCore(
            secrets.randbits(62),
            times_of(config),
            config.worker_addresses,
            aliases,
            policy_of(config),
            durable=bool(config.fault_tolerant_mode),
        )
        self._answers = Answers(self.core, self.store, self.target, config, self.rejects.counts)
        stored, begun = self.store.found()
        self.core.datasets.parts.restore(stored, begun)
        self.core.datasets.parts.piece_bytes = min(m.PIECE_BYTES, config.max_message_bytes // 2)
        self._saves = SaveFolders(self._report_soon, str(Path(config.work_dir or "").absolute()))
        closing(self._saves.close)
        self._listings = Listings(
            self._report_soon, lambda iteration: iteration in self.core.state.iterations
        )
        closing(self._listings.close)
        # A single thread writes the pieces of parts in order, and the loop never waits
        # for a disk.
        self._parts = ThreadPoolExecutor(1, thread_name_prefix="zmqdata-parts")
        closing(self._parts.shutdown, wait=True, cancel_futures=True)
        self._carriers = self._carrier_table()
        self.records: Records | None = None
        if config.work_dir is not None and config.fault_tolerant_mode:
            self.records = Records(
                JournalFile(Path(config.work_dir), synced),
                self.core,
                self.store,
                self._obey,
                self.loop.post,
                partial(self._fail, failed),
            )
            closing(self.records.close)
            self.records.take_up(time.monotonic())
        if self.monitor is not None:
            self.monitor.watch(
                self.loop, DispatcherMetrics(self.core, self.rejects.counts), lambda: ""
            )

    def _carrier_table(self) -> e.Carriers:
        table = e.Carriers()
        table.on(e.Send, self._send)
        table.on(e.LogLine, self._log)
        table.on(e.Commit, lambda command: None)
        table.on(e.StorePipeline, lambda command: self.store.put(command.digest, command.pipeline))
        table.on(e.DropPipeline, lambda command: self.store.drop(command.digest))
        table.on(e.KeepPiece, self._keep_piece)
        table.on(e.SendPiece, self._send_piece)
        table.on(e.SendPipeline, self._send_pipeline)
        table.on(e.FindFiles, self._listings.begin)
        table.on(e.FindChunks, self._saves.find)
        table.on(e.PrepareSave, self._saves.prepare)
        table.on(e.PublishChunk, self._saves.publish)
        table.on(e.CheckSave, self._saves.check)
        table.on(e.FinishSave, self._saves.finish)
        return table

    def _log(self, command: e.LogLine) -> None:
        text = printable(command.text)
        log.log(logging.getLevelName(command.level.upper()), "%s", text)
        self._answers.events.add(time.time(), command.level, text, command.job, command.incarnation)

    def say_goodbye(self) -> None:
        """Tell the clients if no dispatcher continues their jobs. Otherwise they wait
        for the next one.
        """
        is_last = (Path(self.config.work_dir or "") / LAST_LIFE).exists()
        for path in self.core.saves.unfinished():
            log.warning(
                "the save to %s is unfinished. %s",
                path,
                "It is abandoned with this cluster: save again to another path"
                if is_last
                else f"A dispatcher with work_dir={self.config.work_dir!r} continues it",
            )
        if self.records is None or is_last:
            for command in self.core.close():
                self._obey(command)

    def close(self) -> None:
        """Release sockets and threads, once the loop has ended."""
        self._closing.close()
        if self.records is None:
            # Its successor would know no job: clients in this process need not wait.
            note_closed(self.target, DispatchServer.__name__)

    def _fail(self, failed: Callable[[UnavailableError], None], error: UnavailableError) -> None:
        """Stop at once. A dispatcher that cannot record facts must not reveal any."""
        self.loop.stop()
        failed(error)

    def _tick(self) -> None:
        if self.monitor is not None:
            self.monitor.turned()
        self.access.keyring.look()
        self._entrance.look(time.monotonic())
        self._count_descriptors(time.monotonic())
        self._handle(e.Tick())
        if self.records is not None:
            self.records.look_around()

    def _count_descriptors(self, now: float) -> None:
        """Warn if no peer can connect any more, which peers take for silence."""
        if now >= self._count_at:
            self._count_at = now + COUNT_EVERY
            if left() < OF_PEER:
                log.warning("%s. Further peers get no answer", remedy("the next peer", OF_PEER))

    def _handle(self, event: e.DispatcherEvent) -> None:
        commands = self.core.handle(time.monotonic(), event)
        if self.records is not None:
            self.records.obey(commands)
            return
        for command in commands:
            self._obey(command)

    def _obey(self, command: e.DispatcherCommand) -> None:
        self._carriers[type(command)](command)

    def _report_soon(self, event: e.DispatcherEvent) -> None:
        self.loop.post(lambda: self._handle(event))

    def _receive(self) -> bool:
        try:
            peer, frames = self._entrance.receive()
        except zmq.Again:
            return False
        try:
            message = wire.to_dispatcher.control([frame.buffer for frame in frames])
        except ProtocolError as error:
            self._drop(frames, str(error))
            if isinstance(error, VersionMismatchError) and self.access.sender(frames) is not None:
                self._send(e.Send(peer, wire.NOTICE))
            return True
        objection = self.access.objection(frames, message)
        if objection:
            self._refuse(peer, frames, message, objection)
            return True
        long = repeats_too_long(message)
        if long:
            self._drop(frames, long)
            name = m.request_of(message)[:MOST_CHARACTERS]
            self._send(e.Send(peer, m.RequestRefused(name, "InvalidArgumentError", long)))
        elif isinstance(message, m.RegisterDataset) and not _is_sound(message):
            text = (
                "The packed pipeline is missing, or its bytes do not match its digest. "
                "Was it altered in transit?"
            )
            self._send(
                e.Send(peer, m.RequestRefused(message.request, "InvalidArgumentError", text))
            )
        elif (answer := self._answers.to(message, time.monotonic())) is not None:
            self._send(e.Send(peer, answer))
        else:
            self._handle(e.Received(peer, message))
        return True

    def _drop(self, frames: Sequence[zmq.Frame], reason: str) -> None:
        self._entrance.drop(frames, "the dispatcher's socket", reason)

    def _refuse(
        self, peer: bytes, frames: Sequence[zmq.Frame], message: m.Message, objection: str
    ) -> None:
        """Tell a peer that its key does not permit a message, if it waits for an
        answer.
        """
        self._drop(frames, objection)
        request = m.request_of(message)[:MOST_CHARACTERS]
        if request:
            self._send(e.Send(peer, m.RequestRefused(request, "PermissionDeniedError", objection)))

    def _send(self, command: e.Send) -> None:
        peer, frames = cast(bytes, command.peer), wire.pack(command.message)
        try:
            self._entrance.send(peer, frames)
        except zmq.Again:
            log.debug("the queue of %r is full; a message was dropped", peer)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            # Not now, because a core handles a single event at a time.
            self.loop.post(lambda: self._handle(e.Unreachable(peer)))

    def _send_pipeline(self, command: e.SendPipeline) -> None:
        is_part = any(part.digest == command.digest for part in command.parts)
        pipeline = b"" if is_part else self.store.get(command.digest)
        reason = (
            ""
            if pipeline is not None
            else f"the dispatcher has lost the pipeline of dataset {command.dataset_id}"
        )
        answer = m.PipelineSent(
            command.dataset_id,
            command.digest,
            pipeline or b"",
            reason,
            command.parts,
        )
        self._send(e.Send(command.peer, answer))

    def _keep_piece(self, command: e.KeepPiece) -> None:
        def keep() -> None:
            event = self.store.keep_piece(command)
            self.loop.post(lambda: self._handle(event))

        self._parts.submit(keep)

    def _send_piece(self, command: e.SendPiece) -> None:
        def read() -> None:
            content = self.store.read_piece(command.digest, command.offset)
            if content is None:
                self.loop.post(lambda: self._handle(e.PartLost(command.digest)))
            reason = (
                ""
                if content is not None
                else "the dispatcher can no longer read a part of the pipeline"
            )
            answer = m.PieceSent(
                command.digest, command.offset, content or b"", reason, command.request
            )
            self.loop.post(lambda: self._send(e.Send(command.peer, answer)))

        self._parts.submit(read)


def _is_sound(ask: m.RegisterDataset) -> bool:
    """Return True if an attached pipeline matches its digest. A pipeline that is not
    attached must be one of the parts.
    """
    digest = ask.description.digest
    if not ask.pipeline:
        return any(part.digest == digest for part in ask.description.parts)
    return hashlib.sha256(ask.pipeline).hexdigest() == digest


@dataclass(frozen=True)
class SnapshotStream:
    """A stream of a distributed save."""

    index: int
    """Number of the stream."""
    completed: bool
    """True if every element of the stream is in a committed chunk."""


class DispatchServer(Server[DispatcherShell]):
    """A dispatcher in this process, in a thread of its own (tf.data's
    ``DispatchServer``).

    Args:
        config: addresses, limits and times; None: all defaults, on a free port of this
            machine only.
        start: True to start at once.

    Raises:
        TypeError: ``config`` is no ``DispatcherConfig``.
        OSError: the address cannot be bound, or the work folder cannot be written; the
            text says why.
        FailedPreconditionError: another dispatcher uses the work folder.
        DataLossError: the journal in the work folder is damaged.
        PermissionDeniedError: the key file belongs to another role.

    Example:
        >>> with DispatchServer() as dispatcher:
        ...     dispatcher.target.startswith("tcp://")
        True
    """

    _listening: socket.socket | None = None
    _synced = True

    def __init__(self, config: DispatcherConfig | None = None, start: bool = True) -> None:
        self._config = config if config is not None else DispatcherConfig()
        check_type("config", self._config, DispatcherConfig)
        self._failure: UnavailableError | None = None
        super().__init__(start)

    def _open(self) -> DispatcherShell:
        # The shell must not keep this object alive.
        fail = weakref.WeakMethod(self._fail)

        def failed(error: UnavailableError) -> None:
            method = fail()
            if method is not None:
                method(error)

        return DispatcherShell(self._config, failed, self._listening, self._synced)

    def _fail(self, error: UnavailableError) -> None:
        self._failure = error
        threading.Thread(target=self.stop, name="zmqdata-dispatcher-end", daemon=True).start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the dispatcher is stopped. Return False if it still runs after
        ``timeout`` seconds.

        Raises:
            UnavailableError: it has stopped because its journal cannot be written.
        """
        ended = super().join(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    @property
    def target(self) -> str:
        """The address for workers and clients, for example ``"tcp://127.0.0.1:5050"``.
        With a fixed port it is known before the start. It is kept after the dispatcher
        has stopped.

        Raises:
            RuntimeError: the dispatcher was never started, and has no fixed port or was
                stopped.
        """
        if self._is_new and self._config.port:
            return target_of(self._config, self._config.port)
        return self._started().target

    @property
    def address(self) -> str:
        """The value of ``target``, under the name that a worker uses for it."""
        return self.target

    @property
    def metrics_address(self) -> str | None:
        """The address of the metrics, for example ``"http://127.0.0.1:9100/metrics"``;
        None if the configuration has no ``metrics_port``.

        Raises:
            RuntimeError: the dispatcher was never started.
        """
        monitor = self._started().monitor
        return None if monitor is None else monitor.address

    def num_workers(self) -> int:
        """Return the number of living workers."""
        shell = self._own_shell()
        return 0 if shell is None else shell.core.workers.num_present

    def snapshot_streams(self, path: FileName) -> list[SnapshotStream]:
        """Return the streams of the distributed save to a path; none while no worker
        has begun.

        Raises:
            NotFoundError: the dispatcher knows no save there: none was started, or it
                has been collected.
            TypeError: ``path`` is no name of a folder.
        """
        shell = self._own_shell()
        folder = whole_path(path)
        incarnation = None if shell is None else shell.core.state.newest_of(job_of(folder))
        if incarnation is None:
            raise NotFoundError(
                f"This dispatcher does not know of a distributed save to {folder!r}: "
                "none was started there, or it ended and has been collected. Check "
                "the path; zmqdata save-status shows the content of a folder"
            )
        tasks = [
            task
            for iteration in incarnation.iterations.values()
            for task in list(iteration.tasks.values())
        ]
        return [SnapshotStream(task.index, task.settled and not task.removed) for task in tasks]


class OwnedDispatcher(DispatchServer):
    """A dispatcher of a command or of a cluster, which owns its socket for metrics or
    its work folder.

    Args:
        config: as for ``DispatchServer``.
        listening: socket for metrics, which the command keeps open for the next
            dispatcher; None if there are no metrics.
        synced: False if the work folder is deleted with the cluster. The dispatcher
            then writes each fact before it reveals the fact, but never waits for the
            disk. The death of its process loses nothing. A crash of the machine ends
            the cluster in any case.
        start: as for ``DispatchServer``.
    """

    def __init__(
        self,
        config: DispatcherConfig,
        listening: socket.socket | None = None,
        synced: bool = True,
        start: bool = True,
    ) -> None:
        self._listening = listening
        self._synced = synced
        super().__init__(config, start)
