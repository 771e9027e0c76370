"""The command that runs another command whenever the number of wanted workers changes,
for engines that have a command to scale.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from zmqdata.cli.asking import opened
from zmqdata.cli.options import chosen_settings, command_parser, guarded
from zmqdata.cluster.fleet import pause_after
from zmqdata.config.keys import KeySettings
from zmqdata.config.logs import LogSettings, log_to_stderr
from zmqdata.config.settings import Settings, setting
from zmqdata.config.worker import dispatcher_setting
from zmqdata.worker.processes.lifetime import StopSignals, describe_exit

log = logging.getLogger(__name__)

COMMAND_SECONDS = 60.0
"""Seconds after which a command that still runs is killed, and has failed."""
LOOK_EVERY = 0.1
"""Seconds between two looks at a command that runs."""
MOST_OUTPUT = 2_000
"""Maximum number of characters of a command's output in the log."""
PLACEHOLDER = "{n}"


@dataclass(frozen=True)
class AutoscaleSettings(Settings):
    """Settings of ``zmqdata autoscale``."""

    dispatcher_address: str = dispatcher_setting()
    """Address of the dispatcher."""
    minimum: int = setting(
        0, "least number of workers", least=0, flag="--min", variable="ZMQDATA_AUTOSCALE_MIN"
    )
    """Least number of workers."""
    maximum: int = setting(
        1_000,
        "maximum number of workers",
        least=0,
        flag="--max",
        variable="ZMQDATA_AUTOSCALE_MAX",
    )
    """Maximum number of workers."""
    interval: float = setting(
        5.0,
        "seconds between two questions to the dispatcher, at most 1 while it wants no worker",
        least=0,
        metavar="S",
    )
    """Seconds between two questions to the dispatcher; a second at most while it wants
    no worker.
    """
    processes_each: int = setting(
        0,
        "number of processes of each worker; 0: as many as most named workers have",
        least=0,
        metavar="K",
    )
    """Number of processes of each worker; 0 for the median of named workers."""


def autoscale_main(arguments: Sequence[str], program: str = "zmqdata autoscale") -> int:
    """Follow the number of wanted workers until SIGTERM or SIGINT; return the exit
    code.
    """
    parser = command_parser(
        program,
        f"Runs COMMAND with {PLACEHOLDER} replaced by the number of workers that the dispatcher "
        "wants: once it is known, and whenever it changes. A command that fails is logged and "
        "tried again.",
        AutoscaleSettings,
        KeySettings,
        LogSettings,
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help=f"such as: -- kubectl scale deployment/worker --replicas={PLACEHOLDER}",
    )
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: autoscale(chosen))


def autoscale(chosen: argparse.Namespace) -> int:
    """Ask the dispatcher again and again, and run the command; return the exit code."""
    logs = chosen_settings(LogSettings, chosen)
    log_to_stderr(logs.log_level, logs.log_format)
    settings = opened(AutoscaleSettings, chosen)
    from zmqdata.cluster.following import Bounds, Follower
    from zmqdata.errors import UnavailableError

    bounds = Bounds(settings.minimum, settings.maximum, settings.interval)
    address, each = settings.dispatcher_address, settings.processes_each or None
    runner = CommandRunner(command_of(chosen.command))
    follower = Follower(address, "autoscale", each)
    stop, told = StopSignals(), ""
    with closing(stop), closing(runner), closing(follower):
        while not stop.wait(LOOK_EVERY):
            now = time.monotonic()
            try:
                if follower.is_due(now):
                    runner.wanted = follower.ask(bounds)
                    told = ""
            except UnavailableError as error:
                if told != str(error):
                    told = str(error)
                    log.warning("%s", error)
            runner.look(now)
    return 0


def command_of(words: Sequence[str]) -> list[str]:
    """Return the command of a user.

    Raises:
        ValueError: the command does not name the number of workers.

    Example:
        >>> command_of(["--", "scale", "--replicas={n}"])
        ['scale', '--replicas={n}']
    """
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not any(PLACEHOLDER in word for word in command):
        raise ValueError(
            f"COMMAND must have {PLACEHOLDER}, which stands for the number of workers, got "
            f"{command!r}. Write it after `--`, for example: -- kubectl scale deployment/worker "
            f"--replicas={PLACEHOLDER}"
        )
    return command


class CommandRunner:
    """Runs a command until it has succeeded for the number that is wanted, one process
    at a time.

    Args:
        command: words of the command, with the placeholder.

    Attributes:
        wanted: the number that is wanted; None while it is not known.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.wanted: int | None = None
        self._command = list(command)
        self._done: int | None = None  # number for which it has succeeded last
        self._number = self._failures = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self._due = self._ends = 0.0

    def look(self, now: float) -> None:
        """Start the command if it is due, or see whether it has ended."""
        if self._process is not None:
            if self._process.poll() is None and now < self._ends:
                return
            self._end(now, self._process)
        if self._process is None and self.wanted not in (None, self._done) and now >= self._due:
            self._start(now, int(self.wanted or 0))

    def _start(self, now: float, number: int) -> None:
        self._number, self._ends = number, now + COMMAND_SECONDS
        command = [word.replace(PLACEHOLDER, str(number)) for word in self._command]
        self._output.seek(0)
        self._output.truncate()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command that the user gave
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._fail(now, f"cannot be started: {error.strerror}")

    def _end(self, now: float, process: subprocess.Popen[bytes]) -> None:
        is_late = process.poll() is None
        code = self._stop(process)
        self._process = None
        if code == 0 and not is_late:
            self._done, self._failures, self._due = self._number, 0, now
            log.info("the command has set %d workers", self._number)
            return
        self._output.seek(max(0, os.fstat(self._output.fileno()).st_size - 4 * MOST_OUTPUT))
        wrote = self._output.read().decode(errors="replace").strip()[-MOST_OUTPUT:]
        how = f"was killed after {COMMAND_SECONDS:g} s" if is_late else describe_exit(code)
        self._fail(now, f"{how}, and wrote: {wrote or 'nothing'}")

    def _fail(self, now: float, how: str) -> None:
        pause = pause_after(self._failures + 2)
        self._failures, self._due = self._failures + 1, now + pause
        self._done = None  # it may have done a part
        log.warning(
            "the command for %d workers %s. It is tried again in %g s", self._number, how, pause
        )

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> int:
        with suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait()

    def close(self) -> None:
        """Kill a command that still runs."""
        if self._process is not None:
            self._stop(self._process)
        self._output.close()
