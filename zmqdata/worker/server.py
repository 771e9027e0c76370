"""The worker's shell: its sockets, its clock, and its task runners.
``core.worker.decider`` makes all decisions.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

import msgspec

from zmqdata import messages as m
from zmqdata.config.checks import check_type, check_wait
from zmqdata.config.endpoints import parse_service
from zmqdata.config.worker import DRAIN_SECONDS, WorkerConfig
from zmqdata.core.worker import events as e
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.errors import DataServiceError, named_error
from zmqdata.failures.codec import encode_failure
from zmqdata.metrics.declared import WORKER
from zmqdata.metrics.monitors import monitor_of
from zmqdata.pipelines.parcels import kept_parcels
from zmqdata.transport import sockets
from zmqdata.transport.access import Access, Keyring
from zmqdata.transport.addresses import (
    is_loopback,
    somebody_listens,
)
from zmqdata.transport.folders import user_folder
from zmqdata.transport.keychoice import key_for
from zmqdata.transport.lifecycle import Server, waitable
from zmqdata.transport.local import announce_worker, withdraw_worker
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects
from zmqdata.worker.answers import WorkerAnswers
from zmqdata.worker.chunks import ChunkThread
from zmqdata.worker.control import ControlSockets, address_of, profile_of
from zmqdata.worker.flushing import Flushes
from zmqdata.worker.links import LinkSockets, data_address
from zmqdata.worker.measuring import Measuring
from zmqdata.worker.metrics import WorkerMetrics
from zmqdata.worker.partcache import PartCache
from zmqdata.worker.processes.limits import is_starvation, read_memory
from zmqdata.worker.processes.options import start_warnings
from zmqdata.worker.processes.stillness import Stillness
from zmqdata.worker.processes.watch import HEARD, WatchFile, WatchNote, work_of
from zmqdata.worker.speeds import Speeds
from zmqdata.worker.status import SnapshotTaskProgress, snapshots_of
from zmqdata.worker.tasks.relay import Relays
from zmqdata.worker.tasks.runner import TaskRunner
from zmqdata.worker.tasks.tasklog import LineCollector, TaskTap

log = logging.getLogger(__name__)

DESCRIPTORS = 32
"""File descriptors without which a worker does not start: it takes 22 at most, and
about 7 for each reader.
"""
RUNNER_PATIENCE = 0.5
"""Seconds that a runner has to end."""
BUSY_AFTER = 0.5
"""Seconds at the same thing after which a runner is reported as busy."""
ANSWER_PATIENCE = 5.0
"""Seconds that ``start`` waits for a running dispatcher."""
READ_MEMORY_EVERY = 1.0
"""Seconds between two readings of the memory, if it is not limited."""
READ_AGAIN = 0.05
"""Seconds after which a reading that is over the limit is repeated."""
LOOK_AROUND = 0.5
"""Seconds added to the time-out of a drain, within which the loop notices its end."""


class WorkerShell:
    """Passes events to a worker core, and carries out its commands.

    Args:
        config: addresses and limits.
        watch_file: shared memory in which pipelines record what they are working on,
            and which contains earlier deaths.
        max_tasks: number of tasks after which the worker drains; 0 for no limit.
        hopeless: set when the dispatcher refuses this worker.
        is_tapped: True if the output of this process is tapped, so that clients may get
            what functions print.
        listening: socket for metrics; None to open one if the configuration has a port
            for them.
    """

    def __init__(
        self,
        config: WorkerConfig,
        watch_file: WatchFile,
        max_tasks: int,
        hopeless: threading.Event,
        is_tapped: bool = False,
        listening: socket.socket | None = None,
    ) -> None:
        self.watch_file = watch_file
        is_forwarded = is_tapped and config.forward_logs
        self.lines = LineCollector(self._tell_lines_soon) if is_forwarded else None
        self._max_tasks = max_tasks
        self._hopeless = hopeless
        with contextlib.ExitStack() as undo:
            self.context = sockets.new_context("a worker", DESCRIPTORS)
            # The collection of a context with an open socket would never return.
            undo.callback(self.context.destroy, linger=0)
            self.loop = Loop("zmqdata-worker", self._tick, fault=self._fault)
            undo.callback(self.loop.discard)
            # Probes are answered from now on.
            self.monitor = monitor_of(
                config, listening, "worker", WORKER, "The worker is starting."
            )
            if self.monitor is not None:
                undo.callback(self.monitor.close)
            self._open(config, parse_service(config.dispatcher_address))
            undo.pop_all()
        self.metrics = WorkerMetrics(self.core, self.rejects.counts)
        if self.monitor is not None:
            self.monitor.watch(self.loop, self.metrics, self.metrics.waits_for)

    def _open(self, config: WorkerConfig, endpoint: str) -> None:
        """Create everything. The sockets are bound when this returns."""
        # Fail now if the folder belongs to another user, which would fail every job.
        user_folder()
        # The access check must exist before the first data socket, and is cheap.
        self.rejects = Rejects()
        key = key_for(config, not is_loopback(config.host))
        self.links = LinkSockets(
            self.context,
            self.loop,
            config,
            data_address(config, endpoint),
            self._report_soon,
            self.rejects,
            key,
        )
        self.access = Access(
            self.context, self.loop, Keyring(key), self.rejects, self.links.visitor
        )
        self.control = ControlSockets(
            self.context,
            self.loop,
            config,
            endpoint,
            self.access,
            self.rejects,
            received=self._received,
            connected=lambda: self._handle(e.Connected()),
            disconnected=lambda: self._handle(e.Disconnected()),
            refused=self._refused,
        )
        self.address = address_of(config, endpoint, self.control.port)
        self.core = WorkerCore(
            profile_of(config, endpoint, self.address, self.watch_file, self._max_tasks)
        )
        self._reads_memory_at = 0.0
        self.watch_file.introduce(self.core.profile.worker)
        self.speeds = Speeds(self.core, self.links)
        self._stillness = Stillness()
        self._busy: set[tuple[int, int]] = set()
        self.config = config
        self.parts = PartCache(
            config.pipeline_cache_dir, config.pipeline_cache_bytes, self._report_soon
        )
        self.runners: dict[tuple[int, int], TaskRunner] = {}
        self.measuring = Measuring(self.runners, self.speeds.linked, config.otel)
        self.answers = WorkerAnswers(self.core, config, self.rejects.counts, self.measuring)
        self.relays = Relays()
        self.flushes = Flushes(self.loop.later)
        self.chunks = ChunkThread(self._report_soon)
        self.registered = threading.Event()
        self.ended_unregistered = False
        self.quiet = False
        self.emptied = threading.Event()
        self.drained = threading.Event()
        self.refusal: DataServiceError | None = None
        self._carriers = self._carrier_table()
        announce_worker(self.address)

    def _carrier_table(self) -> e.Carriers:
        table = e.Carriers()
        table.on(e.Send, self._send)
        table.on(
            e.LogLine,
            lambda command: log.log(
                logging.getLevelName(command.level.upper()), "%s", command.text
            ),
        )
        table.on(e.StartTask, self._start_task)
        table.on(e.StopTask, self._stop_task)
        table.on(e.CheckFiles, self.parts.check_files)
        table.on(e.ClaimPart, self.parts.claim)
        table.on(e.KeepPiece, self.parts.keep)
        table.on(e.ReleaseParts, self.parts.release)
        table.on(e.DropParcels, self.parts.drop_parcels)
        table.on(e.FeedSplits, self._feed_splits)
        table.on(
            e.ReturnSplits,
            lambda command: self._runner(command, lambda one: self._give_back(one, command.source)),
        )
        table.on(
            e.AllowProduction,
            lambda x: self._runner(x, lambda runner: runner.allow(x.size, x.elements, x.few_bytes)),
        )
        table.on(e.FallQuiet, lambda command: self.fall_quiet())
        table.on(e.FlushTask, lambda command: self._runner(command, self.flushes.ask))
        table.on(e.BindLink, self.links.bind)
        table.on(e.UnbindLink, self.links.unbind)
        table.on(e.ShareMemory, self.links.share)
        table.on(e.Push, self._push)
        table.on(e.WriteBlock, self.chunks.write)
        table.on(e.CloseChunk, self.chunks.close_chunk)
        table.on(e.Finish, lambda command: self._refused(named_error(command.error, command.text)))
        return table

    def close(self) -> None:
        """Release sockets and threads. The loop has ended."""
        if self.monitor is not None:
            self.monitor.close()
        withdraw_worker(self.address)
        self.measuring.close()
        if not self.registered.is_set():
            self.ended_unregistered = True
            self.registered.set()
        for runner in self.runners.values():
            runner.stop()
        for runner in self.runners.values():
            if not runner.join(RUNNER_PATIENCE):
                text = "task %s is still running user code; the worker ends without it"
                log.warning(text, runner.key[0])
        self.chunks.close(RUNNER_PATIENCE)
        self.parts.close()
        self.links.close()
        self.access.close()
        self.control.close()
        self.context.term()

    def fall_quiet(self) -> None:
        """Stop producing. Produced elements are still sent, and ``emptied`` is set when
        clients have them all.
        """
        self.quiet = True
        for runner in list(self.runners.values()):
            runner.hand_over()
            runner.stop()
            for source in range(len(runner.providers)):
                self._give_back(runner, source)

    def say_goodbye(self) -> None:
        """Tell the dispatcher that the tasks may move to other workers."""
        self._send(e.Send(e.DISPATCHER, m.WorkerStopped(self.core.profile.worker)))

    # --- events

    def _tick(self) -> None:
        if self.monitor is not None:
            self.monitor.turned()
        self.access.keyring.look()
        self.control.look(time.monotonic())
        self._tell_lines()
        self.measuring.end_trace()
        if self.runners:
            self._look_around()
            for event in self.speeds.look(time.monotonic(), self.runners):
                self._handle(event)
            for measured in self.measuring.reports(time.monotonic()):
                self._handle(measured)
        self._read_memory(time.monotonic())
        self._handle(e.Tick())

    def _read_memory(self, now: float) -> None:
        """Read the memory of this process: every second, and at each tick if it is
        limited, because a leak may fill what is left within a second.
        """
        if now < self._reads_memory_at:
            return
        self._reads_memory_at = now if self.core.profile.memory.size else now + READ_MEMORY_EVERY
        rss, counted = read_memory() or (0, 0)
        self._handle(e.MemoryRead(rss, counted, kept_parcels()))
        if self.core.memory.wants_another:
            self.loop.later(READ_AGAIN, lambda: self._read_memory(time.monotonic()))

    def _look_around(self) -> None:
        """Report runners that have become stuck, and runners that are no longer
        stuck.
        """
        for runner in list(self.runners.values()):
            runner.look()
            if runner.definition.suspects and not runner.watch.is_trying:
                self._handle(e.SuspectsTried(*runner.key))
        self.watch_file.cells[HEARD] = int(1000 * self.core.heartbeats.heard_at)
        notes = self.watch_file.notes()
        longest: dict[tuple[int, int], tuple[float, WatchNote]] = {}
        for note, seconds in self._stillness.look(time.monotonic(), notes):
            if seconds >= BUSY_AFTER and seconds > longest.get(note.key, (0.0, note))[0]:
                longest[note.key] = (seconds, note)
        for task, attempt in self._busy - longest.keys():
            self._handle(e.Busy(task, attempt, 0.0))
        for seconds, note in longest.values():
            work = msgspec.convert(work_of(note, notes), m.Work)
            self._handle(e.Busy(*note.key, seconds, work))
        self._busy = set(longest)

    def _fault(self, error: Exception) -> None:
        if is_starvation(error):
            self.watch_file.starve()

    def _handle(self, event: e.WorkerEvent) -> None:
        for command in self.core.handle(time.monotonic(), event):
            self._carriers[type(command)](command)
        if self.core.registered and not self.registered.is_set():
            self.registered.set()
        if self.quiet and not self.core.owes_elements:
            self.emptied.set()
        if self.core.draining.done:
            self.drained.set()

    def drain(self, patience: float) -> None:
        """Move the tasks to other workers. ``drained`` is set when they have moved, or
        the time is up.
        """
        self._handle(e.DrainRequested(patience))

    def _tell_lines_soon(self) -> None:
        self.loop.post(self._tell_lines)

    def _tell_lines(self) -> None:
        """Report what functions have printed."""
        for event in () if self.lines is None else self.lines.take():
            self._handle(event)

    def _report_soon(self, event: e.WorkerEvent) -> None:
        self.loop.post(lambda: self._handle(event))

    def _received(self, peer: e.Peer, message: m.Message) -> None:
        answer = self.answers.to(message)
        if answer is not None:
            self._send(e.Send(peer, answer))
        else:
            self._handle(e.Received(peer, message))

    # --- commands

    def _send(self, command: e.Send) -> None:
        self.control.send(command)

    def _start_task(self, command: e.StartTask) -> None:
        if self.quiet:
            return
        definition, profile = command.definition, self.core.profile
        window = profile.snapshot_chunk_bytes if definition.save_path else profile.cache_bytes
        # No client reads a task that is saved.
        lines = None if definition.save_path else self.lines
        key = e.TaskKey(definition.task, definition.attempt)
        try:
            runner = TaskRunner(
                command=command,
                post=self._report_soon,
                worker=self.address,
                find_part=self.parts.find,
                window=window,
                watch_file=self.watch_file,
                relays=self.relays,
                tap=None if lines is None else TaskTap(key, lines),
                observer=self.measuring.observer(definition),
            )
        except Exception as error:
            # The error is unexpected, but the task's readers must not wait forever.
            log.exception(
                "task %s cannot be started; its job ends with this error", definition.task
            )
            failure = encode_failure(error, 0, self.address)
            self._report_soon(e.TaskFailed(definition.task, definition.attempt, failure))
            return
        if definition.save_path:
            self.chunks.begin(runner.key, definition.save_path, definition.stream)
        self.runners[runner.key] = runner
        runner.start()

    def _push(self, command: e.Push) -> None:
        self.measuring.note_sent(command)
        self.links.push(command)

    def _stop_task(self, command: e.StopTask) -> None:
        runner = self.runners.pop((command.task, command.attempt), None)
        if runner is not None:
            if self.monitor is not None:
                self.metrics.end(runner.meter.report())
            runner.stop()
            self.flushes.forget(runner.key)
        self.chunks.stop((command.task, command.attempt))

    def _feed_splits(self, command: e.FeedSplits) -> None:
        self._runner(command, lambda runner: runner.providers[command.source].feed(command.splits))

    def _give_back(self, runner: TaskRunner, source: int) -> None:
        # This happens in one step: if splits were fed in between, runner and core would
        # count entries differently.
        entries, stop, changed = runner.providers[source].give_back()
        self._handle(e.LedgerCut(*runner.key, source, entries, stop, changed))

    def _runner(self, command: e.OfTask, act: Callable[[TaskRunner], None]) -> None:
        runner = self.runners.get((command.task, command.attempt))
        if runner is not None:
            act(runner)

    def _refused(self, error: DataServiceError) -> None:
        self.refusal = error
        self.registered.set()
        self._hopeless.set()


class WorkerServer(Server[WorkerShell]):
    """A worker in threads of this process (tf.data's ``WorkerServer``).

    Prefer ``python -m zmqdata.worker`` outside tests. It runs pipelines in child
    processes, which may crash or hold the interpreter without affecting anything else.

    Args:
        config: configuration, at least the dispatcher's address.
        start: True to start at once.

    Raises:
        TypeError: ``config`` is not a ``WorkerConfig``.
        ValueError, NotFoundError: an address in it is invalid.
        OSError: the address cannot be listened on; the text says why.
        DataServiceError: the dispatcher refuses this worker. If the dispatcher is not
            running yet, the worker waits for it in the background; see
            ``wait_registered``.

    Example:
        >>> from zmqdata.config.worker import DRAIN_SECONDS, WorkerConfig
        >>> from zmqdata.dispatcher.server import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     with WorkerServer(WorkerConfig(dispatcher.target)) as worker:
        ...         worker.wait_registered(10)
        True
    """

    def __init__(self, config: WorkerConfig, start: bool = True) -> None:
        check_type("config", config, WorkerConfig)
        self._config = config
        super().__init__(start)

    def _open(self) -> WorkerShell:
        shell = WorkerShell(self._config, WatchFile(), 0, self._over)
        for text in start_warnings(self._config):
            log.warning("%s", text)
        return shell

    def start(self) -> None:
        """Start the worker. If the dispatcher is already running, return when it knows
        this worker; otherwise return at once.

        Starting again changes nothing.

        Raises:
            RuntimeError: the worker was stopped before, or runs in the process from
                which this process was forked.
            OSError: the address cannot be listened on.
            DataServiceError: the dispatcher refuses this worker; the text says why.
        """
        fresh = self._shell is None
        super().start()
        if not fresh or not somebody_listens(parse_service(self._config.dispatcher_address)):
            return
        try:
            self.wait_registered(ANSWER_PATIENCE)
        except DataServiceError:
            self.stop()
            raise

    def _before_goodbye(self, shell: WorkerShell) -> None:
        if self._config.shutdown_quiet_period_ms:
            shell.loop.post(shell.fall_quiet)
            shell.emptied.wait(self._config.shutdown_quiet_period_ms / 1000)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the worker is stopped. Return False if it still runs after
        ``timeout`` seconds; None waits without limit.

        Raises:
            DataServiceError: the dispatcher refuses this worker, or has been silent for
                too long; the text says why.
        """
        over, shell = super().join(timeout), self._shell
        if over and not self._stopped.is_set() and shell is not None and shell.refusal is not None:
            raise shell.refusal
        return over

    @property
    def address(self) -> str:
        """The control address that clients are told, for example
        ``"tcp://192.168.1.7:40001"``; the last address if the worker is stopped. With a
        fixed port it is known before the start.

        Raises:
            RuntimeError: the worker was never started, and has no fixed port or was
                stopped.
        """
        if self._is_new and self._config.port:
            endpoint = parse_service(self._config.dispatcher_address)
            return address_of(self._config, endpoint, self._config.port)
        return self._started().address

    @property
    def metrics_address(self) -> str | None:
        """The address of the metrics, for example ``"http://127.0.0.1:9101/metrics"``;
        None if the configuration has no ``metrics_port``.

        Raises:
            RuntimeError: the worker was never started.
        """
        monitor = self._started().monitor
        return None if monitor is None else monitor.address

    def wait_registered(self, timeout: float | None = None) -> bool:
        """Wait until the dispatcher knows this worker.

        Returns:
            True if it does. False if it does not within ``timeout`` seconds, or if the
            worker was stopped before.

        Raises:
            TypeError, ValueError: ``timeout`` is not a valid time.
            DataServiceError: the dispatcher refuses this worker, or has been silent for
                too long; the text says why.
        """
        check_wait("timeout", timeout)
        shell = self._own_shell()
        if shell is None or not shell.registered.wait(waitable(timeout)):
            return False
        if shell.refusal is not None:
            raise shell.refusal
        return not shell.ended_unregistered

    def drain(self, timeout: float = DRAIN_SECONDS) -> None:
        """Accept no more tasks, and wait until other workers have the hosted tasks. The
        worker is not stopped.

        No element is lost or repeated, whether or not other workers take the tasks. No
        other worker can continue copies of the input (mode OFF); use
        ``shutdown_quiet_period_ms`` for them.

        Args:
            timeout: maximum number of seconds to wait for other workers.

        Raises:
            TypeError, ValueError: ``timeout`` is not a valid time.

        Not in tf.data, whose worker abandons its tasks.
        """
        check_wait("timeout", timeout, forever=False)
        shell = self._own_shell()
        if shell is not None and not self._stopped.is_set():
            shell.loop.post(lambda: shell.drain(timeout))
            shell.drained.wait(waitable(timeout + LOOK_AROUND))

    @property
    def drained(self) -> bool:
        """True if the worker was told to drain, here or by the dispatcher, and may be
        stopped.
        """
        shell = self._own_shell()
        return shell is not None and shell.drained.is_set()

    def num_tasks(self) -> int:
        """Return the number of hosted tasks."""
        shell = self._own_shell()
        return 0 if shell is None or self._stopped.is_set() else len(shell.core.tasks)

    def snapshot_task_progresses(self) -> list[SnapshotTaskProgress]:
        """Return the streams of distributed saves that the worker writes or has
        written, for tests and diagnosis.
        """
        shell = self._own_shell()
        return [] if shell is None else snapshots_of(shell.core)


class ConfinedWorker(WorkerServer):
    """A worker with a process of its own, which a supervisor replaces.

    Args:
        config: as for ``WorkerServer``. The output of this process is tapped if the
            configuration forwards logs.
        watch_file: shared memory in which pipelines record what they are working on, so
            that the supervisor finds it.
        max_tasks: number of tasks after which the worker drains; 0: never.
        listening: socket for metrics, which the supervisor keeps open for the next
            worker; None without one.
    """

    def __init__(
        self,
        config: WorkerConfig,
        watch_file: WatchFile,
        max_tasks: int = 0,
        listening: socket.socket | None = None,
    ) -> None:
        self._watch_file, self._max_tasks, self._listening = watch_file, max_tasks, listening
        super().__init__(config, start=False)

    def _open(self) -> WorkerShell:
        return WorkerShell(
            self._config,
            self._watch_file,
            self._max_tasks,
            self._over,
            self._config.forward_logs,
            self._listening,
        )

    @property
    def reason(self) -> str:
        """The word that tells the supervisor why this process ends."""
        core = self._started().core
        if core.draining.recycled:
            return "recycling early" if core.memory.is_early else "recycling"
        return "retiring" if core.draining.worn else "draining"
