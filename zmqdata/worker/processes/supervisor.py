"""The parent process of a worker. It starts the children, restarts them when they die,
and ends them when it stops. It never runs a pipeline.

A child records its current work in memory that it shares with the supervisor. After its
death the supervisor passes the records to the next child, which reports them to the
dispatcher.

The supervisor survives a pipeline that holds the interpreter, crashes or runs out of
memory, because it is a process of its own. It imports almost nothing, so that it starts
fast and stays small. A child writes lines for the supervisor, such as ``ready`` or
``error``, to its standard output. The output of pipelines goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import IO, Any

from zmqdata.config.endpoints import DATA_PORT_MARK, PORT_MARK
from zmqdata.config.logs import LogSettings
from zmqdata.config.worker import DRAIN_SECONDS, WorkerConfig
from zmqdata.printable import shown_bytes
from zmqdata.transport.addresses import somebody_listens
from zmqdata.worker.processes.accounts import Account, environment_of, rights_of
from zmqdata.worker.processes.interpreter import PYTHON, folder_on_path, working_folder
from zmqdata.worker.processes.lifetime import StopSignals, describe_exit, own_thread
from zmqdata.worker.processes.limits import NO_LIMITS, Limits, check_processes
from zmqdata.worker.processes.stillness import Stillness, overdue
from zmqdata.worker.processes.watch import HEARD, QUIET, WatchFile, WatchNote, make_file

log = logging.getLogger(__name__)

CONFIGURATION_ERROR = 2
"""Exit code of a child that can never start. The supervisor exits with the same
code.
"""
NO_DISPATCHER = 4
"""Exit code of a supervisor whose worker had no dispatcher for too long."""
GRACE = 5.0
DRAIN_GRACE = 4.0
"""Seconds beyond its drain that a child has to end."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
LONGEST_PAUSE_AT_WORK = 1.0
"""Maximum pause after the death of a process that had tasks. The dispatcher limits such
deaths, and waits for the report of the next process.
"""
HEALTHY_AFTER = 30.0
MOST_FAILED_STARTS = 5
MOST_UNTOLD = 20
OWN_PATIENCE = 2.0
"""Seconds beyond its patience after which a supervisor finds out by itself that its
worker has no dispatcher.
"""
PROBE_SECONDS = 1.0
"""Seconds within which a dispatcher takes a connection."""
LOOK_EVERY = 1.0
"""Seconds between two checks for stuck tasks, if a task has a timeout."""


@dataclass
class Child:
    """A position for one child process, and the state of the process that fills it."""

    index: int
    """number of the position."""
    command: Sequence[str]
    """command line that starts the child."""
    inherited: Sequence[int] = ()
    """further descriptors that the child inherits."""
    process: subprocess.Popen[bytes] | None = None
    """the present process; None between two processes."""
    heard: bytes = b""
    """output of the process that does not yet form a line."""
    error: str = ""
    """error that the process reported; empty if it reported none."""
    started: float = 0.0
    """time at which the process started."""
    was_ready: bool = False
    """True if a process in this position has ever been ready."""
    leaves: bool = False
    """True if the process was told to leave; it is then not replaced."""
    retires: bool = False
    """True if the process has had its maximum number of tasks; it is then replaced."""
    is_recycled: bool = False
    """True if the process ends because of its memory; it is then replaced."""
    recycles: int = 0
    """number of processes in this position that were recycled."""
    early: int = 0
    """number of them in a row that reached their limit right after their start."""
    deserted: bool = False
    """True if the process ended because it had no dispatcher for too long."""
    outdated: bool = False
    """True if the process, and any replacement, lacks the dispatcher's version of the
    protocol.
    """
    deaths: int = 0
    """number of deaths in a row."""
    restart_at: float = field(default=0.0)
    """time from which the next process may start."""
    untold: list[dict[str, Any]] = field(default_factory=list)
    """deaths that no child has reported to the dispatcher yet."""
    stillness: Stillness = field(default_factory=Stillness)
    """since when each note of the process has not changed."""
    stuck: list[WatchNote] = field(default_factory=list)
    """notes because of which the supervisor kills the process."""
    stuck_for: float = 0.0
    """seconds for which these notes have not changed."""

    def __post_init__(self) -> None:
        self.descriptor = make_file()
        self.watch_file = WatchFile(self.descriptor)

    @property
    def title(self) -> str:
        pid = "" if self.process is None else f" (process {self.process.pid})"
        return f"child {self.index}{pid}"


class Desertion:
    """Finds out that a worker has no dispatcher, also while its children cannot: in a
    call that keeps the interpreter, or between two lives.

    Args:
        endpoint: address of the dispatcher.
        patience: seconds without a dispatcher after which the worker ends.
    """

    def __init__(self, endpoint: str, patience: float) -> None:
        self.error = (
            f"The dispatcher at {endpoint} has not answered for {patience:g} s "
            "(`--death-timeout`, in code `dispatcher_timeout_ms`), and takes no connection. Check "
            "that it is running, and that this machine can reach it."
        )
        self._endpoint = endpoint
        self._patience = patience + OWN_PATIENCE
        self._heard = time.monotonic()

    def has_begun(self, now: float, heard: float) -> bool:
        """Return True if the worker has no dispatcher.

        Args:
            now: the time.
            heard: when a child last heard the dispatcher.
        """
        self._heard = max(self._heard, heard)
        if now - self._heard < self._patience:
            return False
        if somebody_listens(self._endpoint, PROBE_SECONDS):
            self._heard = now  # a child that can speak gives up by itself
            return False
        return True


def child_configs(config: WorkerConfig, processes: int) -> list[WorkerConfig]:
    """Return a configuration for each child. A fixed port, also for data and metrics,
    is the first of consecutive ports.

    Raises:
        ValueError: the number of processes is out of range, the ports do not suffice,
            or all children would announce the same address.

    Example:
        >>> config = WorkerConfig("127.0.0.1:5050", port=7000)
        >>> [child.port for child in child_configs(config, 3)]
        [7000, 7001, 7002]
    """
    check_processes(processes)
    if config.port and config.port + processes - 1 > 65535:
        raise ValueError(f"{processes} processes do not fit between port {config.port} and 65535")
    if config.data_transfer_port and config.data_transfer_port + processes - 1 > 65535:
        raise ValueError(
            f"{processes} processes do not fit between data port {config.data_transfer_port} and "
            "65535"
        )
    if config.metrics_port and config.metrics_port + processes - 1 > 65535:
        raise ValueError(
            f"{processes} processes do not fit between metrics port {config.metrics_port} and 65535"
        )
    if (
        config.data_ports is not None
        and config.data_ports[1] - config.data_ports[0] + 1 < processes
    ):
        first, last = config.data_ports
        raise ValueError(
            f"data ports {first}-{last} do not suffice for {processes} processes: "
            "each needs at least one"
        )
    for address, port, mark in (
        (config.worker_address, config.announced_port, PORT_MARK),
        (config.data_transfer_address, config.announced_data_port, DATA_PORT_MARK),
    ):
        if processes > 1 and port:
            raise ValueError(
                f"{processes} processes cannot all be announced as {address!r}; write "
                f"'{str(address).removesuffix(port)}{mark}', which stands for the port of each"
            )
    return [_moved(config, index, processes) for index in range(processes)]


def _moved(config: WorkerConfig, index: int, processes: int) -> WorkerConfig:
    port = config.port + index if config.port else 0
    return replace(
        config,
        port=port,
        name=f"{config.name}/{index}" if config.name and processes > 1 else config.name,
        metrics_port=config.metrics_port + index if config.metrics_port else config.metrics_port,
        data_transfer_port=config.data_transfer_port + index if config.data_transfer_port else 0,
    )


def child_command(
    config: WorkerConfig, logs: LogSettings, limits: Limits = NO_LIMITS, metrics: int | None = None
) -> list[str]:
    """Return the command line that starts a child.

    Args:
        config: configuration of the child.
        logs: settings of its log.
        limits: limits of its process.
        metrics: descriptor of its socket for metrics, which it inherits; None if it has
            none.
    """
    assignment = {
        "config": asdict(config),
        **asdict(logs),
        "parent": os.getpid(),
        "limits": asdict(limits),
        "metrics": metrics,
        "folder": folder_on_path(sys.path, working_folder()),
    }
    return [*PYTHON, "-m", "zmqdata.worker.child", json.dumps(assignment)]


def child_environment(account: Account | None = None) -> dict[str, str]:
    """Return the environment of a child. Numeric libraries get one thread each, because
    each core has its own process. Sets have the same order in every process.

    Args:
        account: user whose rights the child has; None if it keeps the rights of this
            process.
    """
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {
        **environment_of(account, os.environ),
        **dict.fromkeys(threads, "1"),
        "PYTHONHASHSEED": "0",
    }


def restart_pause(deaths: int) -> float:
    """Return the seconds to wait before the next start after so many deaths in a row.

    Example:
        >>> [restart_pause(deaths) for deaths in (1, 2, 3, 20)]
        [0.1, 0.2, 0.4, 10.0]
    """
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(deaths - 1, 30)))


class Supervisor:
    """Keeps the children of one worker running until a signal requests a stop.

    Args:
        commands: command line of each child.
        say: called with the line of each child that becomes ready.
        signals: signals that request a stop; they must wake on SIGCHLD too.
        grace: seconds that children have to end: for their drain, and to send finished
            elements.
        account: user whose rights children have; None if they keep the rights of this
            process.
        inherited: further descriptors that all children inherit.
        own: for each child the descriptors that it alone inherits.
        lifetime: seconds after which the worker drains and ends; infinite for none.
        desertion: finds out that the worker has no dispatcher.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        say: Callable[[str], None],
        signals: StopSignals,
        grace: float = DRAIN_SECONDS + DRAIN_GRACE,
        account: Account | None = None,
        inherited: Sequence[int] = (),
        own: Sequence[Sequence[int]] = (),
        lifetime: float = inf,
        desertion: Desertion | None = None,
    ) -> None:
        self.children = [
            Child(index, command, (*inherited, *(own[index] if own else ())))
            for index, command in enumerate(commands)
        ]
        self._say = say
        self._signals = signals
        self._grace = grace
        self._desertion = desertion
        self._ends_at = time.monotonic() + lifetime
        self._account = account
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.fileno(), selectors.EVENT_READ)
        self.error = ""

    def run(self) -> int:
        """Run until the worker ends. Return the exit code: 0 after a request to stop or
        at the end of its lifetime, 2 for a configuration that cannot work, 1 after too
        many failed starts, 4 without a dispatcher for too long.
        """
        try:
            for child in self.children:
                self._start(child)
            code: int | None = None
            while code is None:
                code = self._turn()
            return code
        finally:
            self._end_all()
            self._selector.close()
            for child in self.children:
                os.close(child.descriptor)

    def _turn(self) -> int | None:
        for key, _ in self._selector.select(self._patience()):
            if isinstance(key.data, Child):
                self._listen(key.data)
        self._signals.drain()
        if self._signals.received:
            return 0
        if time.monotonic() >= self._ends_at:
            log.info("the lifetime of this worker is over (`--lifetime`); it drains and ends")
            return 0
        heard = max(child.watch_file.cells[HEARD] / 1000 for child in self.children)
        if self._desertion is not None and self._desertion.has_begun(time.monotonic(), heard):
            self.error = self._desertion.error
            return NO_DISPATCHER
        for child in self.children:
            if child.process is not None and child.process.poll() is not None:
                code = self._mourn(child, child.process.returncode)
                if code is not None:
                    return code
            self._look_at(child)
            if child.process is None and not child.leaves and time.monotonic() >= child.restart_at:
                self._start(child)
        return 0 if all(child.leaves and child.process is None for child in self.children) else None

    def _patience(self) -> float | None:
        now = time.monotonic()
        due = [
            child.restart_at - now
            for child in self.children
            if child.process is None and not child.leaves
        ]
        limits = [child.watch_file.shortest_limit for child in self.children]
        due += [min(LOOK_EVERY, limit / 4) for limit in limits if limit]
        # A child does not announce its first timeout, so the supervisor looks
        # regularly.
        return max(0.0, min([*due, self._ends_at - now, LOOK_EVERY]))

    def _look_at(self, child: Child) -> None:
        """Kill a child that is stuck in a pipeline for longer than the job allows."""
        if child.process is None or not child.watch_file.shortest_limit or child.stuck:
            return
        notes = child.watch_file.notes()
        still = child.stillness.look(time.monotonic(), notes)
        child.stuck = overdue(still, notes)
        if child.stuck:
            child.stuck_for = max(seconds for note, seconds in still if note in child.stuck)
            log.warning(
                "%s is stuck in %s for longer than the job's `task_timeout`; it is killed, and "
                "another process replaces it",
                child.title,
                child.stuck[0].label or "its pipeline",
            )
            child.process.kill()

    def _start(self, child: Child) -> None:
        child.watch_file.begin(child.untold, child.recycles, child.early)
        child.watch_file.cells[QUIET] = child.index > 0
        child.stillness, child.stuck = Stillness(), []
        child.retires = child.is_recycled = False
        child.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [*child.command, str(child.descriptor)],
            pass_fds=[child.descriptor, *child.inherited],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(self._account),
            # In a session of its own the child does not receive Ctrl-C from the
            # terminal. The supervisor receives it, and signals its children.
            start_new_session=True,
            **rights_of(self._account),
        )
        assert child.process.stdout is not None
        os.set_blocking(child.process.stdout.fileno(), False)
        child.heard, child.error, child.started = b"", "", time.monotonic()
        self._selector.register(child.process.stdout, selectors.EVENT_READ, child)

    def _listen(self, child: Child) -> None:
        assert child.process is not None
        assert child.process.stdout is not None
        try:
            heard = os.read(child.process.stdout.fileno(), 65536)
        except BlockingIOError:
            return
        if not heard:
            self._deafen(child.process.stdout)
        *lines, child.heard = (child.heard + heard).split(b"\n")
        for line in lines:
            self._understand(child, line.decode(errors="replace"))

    def _understand(self, child: Child, line: str) -> None:
        kind, _, text = line.partition(" ")
        if kind == "ready":
            child.was_ready = True
            child.untold.clear()
            self._say(text)
        elif kind == "draining":
            child.leaves = True
        elif kind == "retiring":
            child.retires = True
        elif kind == "recycling":
            child.is_recycled = True
            child.early = child.early + 1 if text else 0
        elif kind in ("error", "outdated", "deserted"):
            child.error, child.outdated = text, kind == "outdated"
            child.deserted = kind == "deserted"

    def _mourn(self, child: Child, returncode: int) -> int | None:
        """Record the death of a child. Return an exit code if the worker cannot
        continue.
        """
        self._listen(child)
        crash = "" if returncode in (0, -signal.SIGKILL) else child.watch_file.crash
        title, own = child.title, own_thread(crash)
        how = describe_exit(returncode, own)
        if crash:
            log.warning("%s: stack of the thread that crashed, newest call first\n%s", title, crash)
        if child.stuck:
            how = f"was stuck for {child.stuck_for:.0f} s and was killed"
        elif child.watch_file.starved:
            # A process that has come from nine tenths to its limit is not one that
            # needs nine tenths from its start.
            child.early = 0
            how = f"needed more memory than its limit of {shown_bytes(child.watch_file.starved)}"
        is_told = not own and self._remember(child, returncode, how)
        if child.deserted:
            self.error = child.error
            return NO_DISPATCHER
        if returncode == CONFIGURATION_ERROR and (child.outdated or not child.was_ready):
            self.error = child.error or "a child process could not start; the lines above say why"
            return CONFIGURATION_ERROR
        if child.leaves:
            log.info("%s was told to leave and %s; it is not replaced", title, how)
            self._discard(child)
            return None
        if (child.retires or child.is_recycled) and returncode == 0:
            child.recycles += child.is_recycled
            log.info(
                "%s %s; another process replaces it",
                title,
                f"is recycled because of its memory (memory_limit), {child.recycles} times so far"
                if child.is_recycled
                else "has had its maximum of tasks (max_tasks)",
            )
            child.deaths, child.restart_at = 0, 0.0
            self._discard(child)
            return None
        lived = time.monotonic() - child.started
        child.deaths = 1 if lived >= HEALTHY_AFTER else child.deaths + 1
        self._discard(child)
        if not child.was_ready and child.deaths >= MOST_FAILED_STARTS:
            self.error = (
                f"{title} {how}, {child.deaths} times, and was never ready; the worker gives up"
            )
            return 1
        pause = restart_pause(child.deaths)
        if is_told:
            pause = min(pause, LONGEST_PAUSE_AT_WORK)
        child.restart_at = time.monotonic() + pause
        reason = f": {child.error}" if child.error else ""
        log.warning(
            "%s %s after %.1f s%s; it is started again in %.1f s", title, how, lived, reason, pause
        )
        return None

    def _remember(self, child: Child, returncode: int, how: str) -> bool:
        """Record what a child was working on when it died. Return True if it had
        tasks.
        """
        # At the memory limit, as on a system without free memory, the process or call
        # that fails is not necessarily the cause.
        has_starved = bool(child.watch_file.starved)
        killed = (returncode == -signal.SIGKILL and not child.stuck) or has_starved
        death = child.watch_file.death(how, killed, child.stuck)
        if death is None or not death["tasks"]:
            return False
        # A child that had tasks must have been ready, even if it died before it could
        # say so.
        child.was_ready = True
        child.untold = [*child.untold, death][-MOST_UNTOLD:]
        return True

    def _discard(self, child: Child) -> None:
        process, child.process = child.process, None
        assert process is not None
        assert process.stdout is not None
        assert process.stdin is not None
        self._deafen(process.stdout)
        process.stdout.close()
        process.stdin.close()

    def _deafen(self, output: IO[bytes]) -> None:
        # The selector reports the end of the output once. The supervisor may find it
        # again when it reads the rest after the child's death.
        with contextlib.suppress(KeyError):
            self._selector.unregister(output)

    def _end_all(self) -> None:
        living = [child for child in self.children if child.process is not None]
        for child in living:
            assert child.process is not None
            # At SIGINT an interpreter that is still starting would print a long
            # traceback.
            hurried = self._signals.hurried and child.was_ready
            child.process.send_signal(signal.SIGINT if hurried else signal.SIGTERM)
        grace = GRACE if self._signals.hurried else self._grace
        deadline = time.monotonic() + grace
        for child in living:
            assert child.process is not None
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning(
                    "%s did not end within %.0f s, and its pipeline may be stuck; it is killed",
                    child.title,
                    grace,
                )
                child.process.kill()
                child.process.wait()
            self._discard(child)
