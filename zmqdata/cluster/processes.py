"""A server in its own process: start, wait until ready, kill, restart. No cluster is
defined here.

The process ends when this process does, however that happens: its standard input is a
pipe whose other end only this process holds. Its output goes to unnamed files, so it
never blocks on this process, and from there to the terminal (``cluster.output``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from dataclasses import fields
from typing import IO

from zmqdata.client import lifetime
from zmqdata.cluster.output import relay
from zmqdata.cluster.starting import NOT_HERE, START_SECONDS, ServerStartError
from zmqdata.config.checks import check_wait
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.settings import PREFIX, flag_of, opposite, text_of, variables
from zmqdata.config.worker import DRAIN_SECONDS, WorkerConfig
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.transport.forks import check_process
from zmqdata.worker.processes.interpreter import PYTHON
from zmqdata.worker.processes.lifetime import describe_exit
from zmqdata.worker.processes.options import ProcessSettings

log = logging.getLogger(__name__)

READY = re.compile(
    r"^zmqdata (?:dispatcher|worker) listening on ([^\s,]+)(?:, .*)?\n", re.MULTILINE
)
"""The line by which a server announces its address."""
POLL = 0.01
"""Seconds between two looks at the output."""
STOP_SECONDS = 12.0
"""Seconds for which a server may take to end before it is killed; for a worker with the
usual time to drain.
"""
GIVEN_UP = {
    "zmqdata.dispatcher": "What it has acknowledged is in its journal.",
    "zmqdata.worker": "Elements that it has produced and not sent are given up.",
}
"""Result of killing a server, by module."""
TAIL_BYTES = 16_384
"""Bytes of the log that errors quote."""

_running: weakref.WeakSet[ServerProcess] = weakref.WeakSet()


class ServerProcess:
    """A dispatcher or a worker started with ``python -m``.

    Args:
        module: ``"zmqdata.dispatcher"`` or ``"zmqdata.worker"``.
        options: command line of the server.
        ready_lines: number of announced addresses at which the server counts as ready.
        hold_port: True to listen on the first life's port again after a restart.
        stop_seconds: seconds that the server may take to end before it is killed.
        name: name before each line of its output in the terminal; ``""`` to show none.

    Example:
        >>> dispatcher = ServerProcess("zmqdata.dispatcher", ["--port", "0"])
        >>> with contextlib.closing(dispatcher):
        ...     dispatcher.launch()
        ...     dispatcher.await_ready(30.0)
        ...     dispatcher.address.startswith("tcp://127.0.0.1:")
        True
    """

    def __init__(
        self,
        module: str,
        options: Sequence[str],
        ready_lines: int = 1,
        hold_port: bool = False,
        stop_seconds: float = STOP_SECONDS,
        name: str = "",
    ) -> None:
        self.module = module
        self._name = name or module
        self.options = list(options)
        self.ready_lines = ready_lines
        self.hold_port = hold_port
        self.stop_seconds = stop_seconds
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._told = 0.0  # time at which it was first told to end
        with shortage_explained(f"the process of a {module}"), contextlib.ExitStack() as files:
            self._said: IO[bytes] = files.enter_context(tempfile.TemporaryFile())
            self._log: IO[bytes] = files.enter_context(tempfile.TemporaryFile())
            files.pop_all()  # close() closes them
        if name:
            relay.add(self._log, name)

    @property
    def pid(self) -> int:
        """Process id; of the supervisor for a worker.

        Raises:
            RuntimeError: the server was not launched yet.
        """
        if self._process is None:
            raise RuntimeError(f"{self.module} was not launched yet")
        return self._process.pid

    @property
    def addresses(self) -> list[str]:
        """Addresses on which it listens now: a single address, or an address for each
        process of a worker, the newest last.
        """
        return READY.findall(self.said)[-self.ready_lines :]

    @property
    def address(self) -> str:
        """The first of its addresses; ``""`` before it is ready."""
        return next(iter(self.addresses), "")

    @property
    def alive(self) -> bool:
        """True if the process exists, even stopped by SIGSTOP."""
        return self._process is not None and self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while it runs, negative for the signal that killed it."""
        # Only the parent of a process can query its end; any other process would learn
        # that it has ended.
        self._check_process()
        return None if self._process is None else self._process.poll()

    @property
    def said(self) -> str:
        """Standard output of this life."""
        return _read(self._said, 0).decode(errors="replace")

    @property
    def log(self) -> str:
        """The end of its standard error, over all its lives."""
        return _read(self._log, TAIL_BYTES).decode(errors="replace")

    @property
    def ending(self) -> str:
        """Description of its end, and the last line of its log."""
        how = "runs" if self.exit_code is None else describe_exit(self.exit_code)
        lines = self.log.strip().splitlines()
        return f"{how}, and wrote: {lines[-1]}" if lines else how

    def launch(self) -> None:
        """Start the process and return at once."""
        self._check_process()
        if self._log.closed:
            raise RuntimeError(
                f"This {self._name} is closed. If its LocalCluster adapts, another handle in "
                "`cluster.workers` has taken its place"
            )
        if self.alive:
            return
        if self.hold_port and self.address:
            self.options.append(f"--port={self.address.rpartition(':')[2]}")
            self.hold_port = False
        self._told = 0.0
        # Both files are shared with the process, offset included. A new life appends to
        # the log.
        self._said.truncate(0)
        self._said.seek(0)
        # The interpreter's options keep the script's folder first in the path, as here.
        with shortage_explained(f"the process of a {self.module}"):
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*PYTHON, "-m", self.module, *self.options, "--exit-with-parent"],
                stdin=subprocess.PIPE,
                stdout=self._said,
                stderr=self._log,
                env={
                    **_environment(),
                    "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
                },
                # Ctrl-C in a terminal is only for the training script, which closes its
                # cluster itself.
                start_new_session=True,
            )
        _running.add(self)

    def is_ready(self) -> bool:
        """Return True if the server has announced all its addresses.

        Raises:
            ServerStartError: the process has ended instead.
        """
        if len(self.addresses) >= self.ready_lines:
            return True
        if not self.alive and len(self.addresses) < self.ready_lines:
            how = "was not launched" if self.exit_code is None else describe_exit(self.exit_code)
            raise ServerStartError(f"{self.module} {how} before it was ready. {self._last_words()}")
        return False

    def await_ready(self, deadline: float) -> None:
        """Wait until the server is ready.

        Args:
            deadline: the longest time to wait, in seconds.

        Raises:
            ServerStartError: the process has ended, or is not ready in time; the text
                has the end of its log.
        """
        check_wait("deadline", deadline, forever=False)
        ends = time.monotonic() + deadline
        while not self.is_ready():
            if time.monotonic() >= ends:
                raise ServerStartError(
                    f"{self.module} is not ready after {deadline:g} s. {self._last_words()}"
                )
            time.sleep(POLL)

    def _last_words(self) -> str:
        return f"It wrote:\n{self.log.rstrip()}" if self.log.strip() else "It wrote nothing."

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would. A worker's processes end with
        their supervisor.
        """
        self.signal(signal.SIGKILL)
        self._await_end(None)

    def ask_to_stop(self) -> None:
        """Send SIGINT, as Ctrl-C does, and return; the process ends at once."""
        self._tell(signal.SIGINT)

    def _tell(self, number: int) -> None:
        """Send a signal at which the process ends, even if it is stopped now."""
        if not self._told:
            self._told = time.monotonic()
        self.signal(number)
        self.resume()

    def resume(self) -> None:
        """Let the process and its children go on if they were stopped by SIGSTOP."""
        if self._process is not None and self.alive:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGCONT)

    def stop(self, timeout: float | None = None) -> None:
        """End the process with SIGTERM, and with SIGKILL if it still runs after
        ``timeout`` (``stop_seconds``) seconds.

        A worker hands its tasks over to other workers first.
        """
        check_wait("timeout", timeout)
        self._end(signal.SIGTERM, self.stop_seconds if timeout is None else timeout)

    def _end(self, number: int, patience: float) -> None:
        self._tell(number)
        if not self._await_end(patience):
            log.warning(
                "%s (process %s) was told to end %.1f s ago, runs on, and is killed. %s",
                self._name,
                self.pid,
                time.monotonic() - self._told,
                GIVEN_UP.get(self.module, ""),
            )
            self.kill()

    def restart(self, deadline: float = START_SECONDS) -> None:
        """Start the process again, after ending it if it runs, and wait until it is
        ready.
        """
        check_wait("deadline", deadline, forever=False)
        self._end(signal.SIGINT, self.stop_seconds)
        self.launch()
        self.await_ready(deadline)

    def signal(self, number: int) -> None:
        """Send a signal if the process runs.

        Raises:
            RuntimeError: this process was forked from the process that owns the server.
        """
        self._check_process()
        if self._process is not None:
            self._process.send_signal(number)

    def _check_process(self) -> None:
        check_process(self._owner, "server of a LocalCluster", NOT_HERE)

    def _await_end(self, timeout: float | None) -> bool:
        if self._process is None:
            return True
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        self.cut_lifeline()
        _running.discard(self)
        return True

    def cut_lifeline(self) -> None:
        """Close this end of the process's standard input, at which it ends."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def disown(self) -> None:
        """Give up, in a child of a fork, what belongs to the parent.

        A child that kept the lifeline open would keep the server alive after the
        parent's death. Python would warn at the child's end of what it leaves open.
        """
        self.cut_lifeline()
        self._said.close()
        self._log.close()
        if self._process is not None and self._process.returncode is None:
            self._process.returncode = 0

    def close(self, patience: float | None = None) -> None:
        """Stop the process and delete its log; in a forked child only close the
        files.

        Args:
            patience: seconds that it may take to end before it is killed
                (``stop_seconds``).
        """
        if self._owner == os.getpid():
            self._end(signal.SIGINT, self.stop_seconds if patience is None else patience)
            relay.end(self._log)
        self._said.close()
        self._log.close()


def stop_seconds(config: WorkerConfig) -> float:
    """Return the seconds that a worker may take to drain and end before it is killed.

    Example:
        >>> stop_seconds(WorkerConfig("tcp://10.0.0.1:5050", drain_seconds=1.0))
        7.0
    """
    beyond = STOP_SECONDS - DRAIN_SECONDS
    return beyond + config.drain_seconds + config.shutdown_quiet_period_ms / 1000


def command_options(config: DispatcherConfig | WorkerConfig | ProcessSettings) -> list[str]:
    """Return the command line that is equivalent to a configuration; defaults are left
    out.

    Example:
        >>> config = WorkerConfig("tcp://10.0.0.1:5050", worker_tags=("GPU", "LAB"))
        >>> command_options(config)
        ['--dispatcher=tcp://10.0.0.1:5050', '--tag=GPU', '--tag=LAB']
    """
    options: list[str] = []
    for field in fields(config):
        value, flag = getattr(config, field.name), flag_of(field)
        if value == field.default:
            continue
        if isinstance(value, bool):
            options.append(flag if value else opposite(flag))
        else:
            values = value if field.type == "tuple[str, ...]" else (text_of(field, value),)
            # A single word, so that a value may begin with a dash.
            options.extend(f"{flag}={one}" for one in values)
    return options


def _environment() -> dict[str, str]:
    # Only its options configure a server: a cluster in a script must not take the port
    # of a service because of an environment variable. ``ShownLines`` reads texts.
    ours = variables(DispatcherConfig, WorkerConfig, ProcessSettings) | {f"{PREFIX}LOG_FORMAT"}
    return {name: value for name, value in os.environ.items() if name not in ours}


def _read(file: IO[bytes], tail: int) -> bytes:
    if file.closed:
        return b""
    size = os.fstat(file.fileno()).st_size
    start = max(0, size - tail) if tail else 0
    return os.pread(file.fileno(), size - start, start)


def _disown_all() -> None:
    for server in list(_running):
        server.disown()
    _running.clear()


def _resume_all() -> None:
    """Let all servers go on that were stopped by SIGSTOP: the iterators of this process
    are about to say goodbye to them.
    """
    for server in list(_running):
        server.resume()


lifetime.before_goodbyes.append(_resume_all)
os.register_at_fork(after_in_child=_disown_all)
