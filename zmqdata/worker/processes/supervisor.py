"""The parent process of a worker: starts children, restarts the dead, ends with them.
It never runs a pipeline.

What a child was at when it died is in memory that both share; the next one is told, who
tells the dispatcher.

It survives a pipeline that holds the interpreter, crashes or runs out of memory,
because it is another process. It imports next to nothing, so that it starts fast and
stays small. What a child says on its standard output (one ``ready`` or ``error`` line)
is for the supervisor; what pipelines print goes to standard error.
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
from typing import IO, Any

from zmqdata.config.endpoints import DATA_PORT_MARK, PORT_MARK
from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.processes.accounts import Account, environment_of, rights_of
from zmqdata.worker.processes.crumbs import CrumbFile, CrumbNote, make_file
from zmqdata.worker.processes.interpreter import PYTHON, folder_on_path, working_folder
from zmqdata.worker.processes.lifetime import StopSignals, describe_exit
from zmqdata.worker.processes.limits import NO_LIMITS, Limits, shown_bytes
from zmqdata.worker.processes.stillness import Stillness, overdue

log = logging.getLogger(__name__)

CONFIGURATION_ERROR = 2
"""Exit code of a child that can never start; its supervisor ends with the same."""
MOST_PROCESSES = 1000
GRACE = 5.0
DRAIN_GRACE = 10.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
HEALTHY_AFTER = 30.0
MOST_FAILED_STARTS = 5
MOST_UNTOLD = 20
LOOK_EVERY = 1.0
"""Seconds between two looks at what a child is at, where that may not take for ever."""


@dataclass
class Child:
    """A place for one child process and what is known of whoever is in it.

    ``untold``: deaths that no child has told yet. ``stuck``: what the present one is
    killed for. ``leaves``: it was told to, and nobody takes its place. ``retires``: it
    has had its tasks, and somebody does. ``outdated``: as all that would take its
    place, it does not speak the dispatcher's version of the protocol.
    """

    index: int
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    heard: bytes = b""
    error: str = ""
    started: float = 0.0
    was_ready: bool = False
    leaves: bool = False
    retires: bool = False
    outdated: bool = False
    deaths: int = 0
    restart_at: float = field(default=0.0)
    untold: list[dict[str, Any]] = field(default_factory=list)
    stillness: Stillness = field(default_factory=Stillness)
    stuck: list[CrumbNote] = field(default_factory=list)
    stuck_for: float = 0.0

    def __post_init__(self) -> None:
        self.descriptor = make_file()
        self.crumbs = CrumbFile(self.descriptor)

    @property
    def title(self) -> str:
        pid = "" if self.process is None else f" (process {self.process.pid})"
        return f"child {self.index}{pid}"


def check_processes(processes: int) -> None:
    """Refuses a number of processes that no worker can have.

    Raises:
        ValueError: it is below 1, or beyond what a machine can run.

    Example:
        >>> check_processes(MOST_PROCESSES)
    """
    if processes < 1:
        raise ValueError(f"a worker needs at least 1 process, got {processes}")
    if processes > MOST_PROCESSES:
        raise ValueError(
            f"a worker has at most {MOST_PROCESSES} processes, got {processes}: more than a "
            "machine has cores gain "
            "nothing. Say auto for one for each core, or start workers on other machines"
        )


def child_configs(config: WorkerConfig, processes: int) -> list[WorkerConfig]:
    """One configuration for each child; with a fixed port they take it and the ones
    that follow, data ports too.

    Raises:
        ValueError: there are none or too many, the ports do not suffice, or all
            children would announce one address.

    Example:
        >>> [child.port for child in child_configs(WorkerConfig("127.0.0.1:5050", port=7000), 3)]
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
    if (
        config.data_ports is not None
        and config.data_ports[1] - config.data_ports[0] + 1 < processes
    ):
        first, last = config.data_ports
        raise ValueError(
            f"data ports {first}-{last} do not suffice for {processes} processes: each needs one "
            "at least"
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
    return [_moved(config, index) for index in range(processes)]


def _moved(config: WorkerConfig, index: int) -> WorkerConfig:
    port = config.port + index if config.port else 0
    return replace(
        config,
        port=port,
        data_transfer_port=config.data_transfer_port + index if config.data_transfer_port else 0,
    )


def child_command(config: WorkerConfig, log_level: str, limits: Limits = NO_LIMITS) -> list[str]:
    """The command line that starts a child."""
    assignment = {
        "config": asdict(config),
        "log_level": log_level,
        "parent": os.getpid(),
        "limits": asdict(limits),
        "folder": folder_on_path(sys.path, working_folder()),
    }
    return [*PYTHON, "-m", "zmqdata.worker.child", json.dumps(assignment)]


def child_environment(account: Account | None = None) -> dict[str, str]:
    """One thread for each numeric library, as there is a process for each core, and
    sets in the same order anywhere.

    ``account``: the user whose rights the child has, if they are not ours.
    """
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {
        **environment_of(account, os.environ),
        **dict.fromkeys(threads, "1"),
        "PYTHONHASHSEED": "0",
    }


def restart_pause(deaths: int) -> float:
    """Seconds before the next start after so many deaths in a row.

    Example:
        >>> [restart_pause(deaths) for deaths in (1, 2, 3, 20)]
        [0.1, 0.2, 0.4, 10.0]
    """
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(deaths - 1, 30)))


class Supervisor:
    """Keeps the children of one worker running until it is told to stop.

    Args:
        commands: the command line of each child.
        say: takes the line for each child that has become ready.
        signals: what tells to stop; it must wake on SIGCHLD too.
        quiet_period: seconds that children may take to send what they have made, before
            the usual grace.
        account: the user whose rights children have; None: ours.
        inherited: descriptors that children have, too.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        say: Callable[[str], None],
        signals: StopSignals,
        quiet_period: float = 0.0,
        account: Account | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        self.children = [Child(index, command) for index, command in enumerate(commands)]
        self._say = say
        self._signals = signals
        self._quiet_period = quiet_period
        self._account = account
        self._inherited = inherited
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.fileno(), selectors.EVENT_READ)
        self.error = ""

    def run(self) -> int:
        """Returns the exit code: 0 when told to stop, 2 for a configuration that cannot
        work, 1 when giving up.
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
        limits = [child.crumbs.shortest_limit for child in self.children]
        due += [min(LOOK_EVERY, limit / 4) for limit in limits if limit]
        # Who notes the first time-out does not say so.
        return max(0.0, min(due, default=LOOK_EVERY))

    def _look_at(self, child: Child) -> None:
        """Kills a child that is stuck in a pipeline for longer than the job allows."""
        if child.process is None or not child.crumbs.shortest_limit or child.stuck:
            return
        notes = child.crumbs.notes()
        still = child.stillness.look(time.monotonic(), notes)
        child.stuck = overdue(still, notes)
        if child.stuck:
            child.stuck_for = max(seconds for note, seconds in still if note in child.stuck)
            log.warning(
                "%s is stuck in %s; it is killed",
                child.title,
                child.stuck[0].label or "its pipeline",
            )
            child.process.kill()

    def _start(self, child: Child) -> None:
        child.crumbs.begin(child.untold)
        child.stillness, child.stuck, child.retires = Stillness(), [], False
        child.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [*child.command, str(child.descriptor)],
            pass_fds=[child.descriptor, *self._inherited],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(self._account),
            # Ctrl-C in a terminal reaches the supervisor only, which then asks its
            # children.
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
        elif kind in ("error", "outdated"):
            child.error, child.outdated = text, kind == "outdated"

    def _mourn(self, child: Child, returncode: int) -> int | None:
        """Takes note of a death; returns an exit code when the worker cannot go on."""
        self._listen(child)
        title, how = child.title, describe_exit(returncode)
        if child.stuck:
            how = f"was stuck for {child.stuck_for:.0f} s and was killed"
        elif child.crumbs.starved:
            how = f"needed more memory than its limit of {shown_bytes(child.crumbs.starved)}"
        self._remember(child, returncode, how)
        if returncode == CONFIGURATION_ERROR and (child.outdated or not child.was_ready):
            self.error = child.error or "a child could not start; see the lines above"
            return CONFIGURATION_ERROR
        if child.leaves:
            log.info("%s was told to leave and %s", title, how)
            self._discard(child)
            return None
        if child.retires and returncode == 0:
            log.info("%s has had its tasks (max_tasks); another one takes its place", title)
            child.deaths, child.restart_at = 0, 0.0
            self._discard(child)
            return None
        lived = time.monotonic() - child.started
        child.deaths = 1 if lived >= HEALTHY_AFTER else child.deaths + 1
        self._discard(child)
        if not child.was_ready and child.deaths >= MOST_FAILED_STARTS:
            self.error = (
                f"{title} {how}, {child.deaths} times without ever having been ready; giving up"
            )
            return 1
        pause = restart_pause(child.deaths)
        child.restart_at = time.monotonic() + pause
        reason = f": {child.error}" if child.error else ""
        log.warning(
            "%s %s after %.1f s%s; it is started again in %.1f s", title, how, lived, reason, pause
        )
        return None

    def _remember(self, child: Child, returncode: int, how: str) -> None:
        """Takes down what a child was at."""
        # As with a system that is out of memory, who has least of it left need not be
        # who has taken it.
        killed = (returncode == -signal.SIGKILL and not child.stuck) or bool(child.crumbs.starved)
        death = child.crumbs.death(how, killed, child.stuck)
        if death is None or not death["tasks"]:
            return
        # It had work, so it had come to be ready, whether or not it could say so.
        child.was_ready = True
        child.untold = [*child.untold, death][-MOST_UNTOLD:]

    def _discard(self, child: Child) -> None:
        process, child.process = child.process, None
        assert process is not None
        assert process.stdout is not None
        assert process.stdin is not None
        self._deafen(process.stdout)
        process.stdout.close()
        process.stdin.close()

    def _deafen(self, output: IO[bytes]) -> None:
        # Its end is heard once from the selector and perhaps once more when the child
        # is found dead.
        with contextlib.suppress(KeyError):
            self._selector.unregister(output)

    def _end_all(self) -> None:
        living = [child for child in self.children if child.process is not None]
        for child in living:
            assert child.process is not None
            # An interpreter that is only starting would tell at length that it was
            # interrupted.
            hurried = self._signals.hurried and child.was_ready
            child.process.send_signal(signal.SIGINT if hurried else signal.SIGTERM)
        grace = (GRACE if self._signals.hurried else DRAIN_GRACE) + self._quiet_period
        deadline = time.monotonic() + grace
        for child in living:
            assert child.process is not None
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning(
                    "%s does not end within %.0f s, its pipeline may be stuck; it is killed",
                    child.title,
                    grace,
                )
                child.process.kill()
                child.process.wait()
            self._discard(child)
