"""The child process of a worker: ``python -m zmqdata.worker.child``, started only by a
supervisor.

It runs a ``WorkerServer``, reports on its standard output when that is registered, and
ends with its supervisor.

It also configures glibc to return memory to the system less often. Pipelines allocate
thousands of arrays of a hundred kilobytes, and free them together once their block is
sent. By default glibc returns that memory each time and requests it again for the next
block. The system then clears and maps every page anew, which can cost more than filling
it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import TextIO

from zmqdata.config.logs import log_to_stderr
from zmqdata.config.worker import WorkerConfig
from zmqdata.errors import DataServiceError, UnavailableError, VersionMismatchError
from zmqdata.metrics.listening import announcement
from zmqdata.transport.addresses import free_port
from zmqdata.worker.processes.interpreter import add_folder, loading
from zmqdata.worker.processes.lifetime import (
    StopSignals,
    die_with_parent,
    exit_within,
    watch_lifeline,
)
from zmqdata.worker.processes.limits import Limits
from zmqdata.worker.processes.supervisor import CONFIGURATION_ERROR
from zmqdata.worker.processes.watch import WatchFile

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # from malloc.h
KEPT_BYTES = 64 << 20
"""Number of bytes that may stay unused at the end of a heap."""
MAPPED_BYTES = 32 << 20
"""Size above which each allocation is mapped and returned separately. This is the
maximum that glibc accepts.
"""
ARENAS = 2
"""Number of heaps, for any number of threads. Each heap keeps memory that the others
could use, and threads seldom allocate at the same time.
"""
LOOK_AROUND = 0.25
"""Seconds between two checks whether to stop."""
LAST_SECONDS = 3.0
"""Seconds that the process has to end."""
SWITCH_SECONDS = 0.001
"""Seconds for which a pipeline's thread keeps the interpreter from the thread that
speaks to clients, which needs it five to ten times for a message. With Python's default
of five milliseconds, each message would take up to fifty, in which no client gets
anything.
"""


def main(arguments: list[str]) -> int:
    """Run a worker until told to stop, and return the exit code."""
    load()
    stop = StopSignals(owned=True)
    assignment = json.loads(arguments[0])
    report = take_over_standard_streams()
    die_with_parent(assignment["parent"])
    add_folder(assignment["folder"], sys.path)
    keep_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    log_to_stderr(assignment["log_level"], assignment["log_format"])
    from zmqdata.worker.tasks.pipeline import own_process
    from zmqdata.worker.tasks.tasklog import tap_output

    own_process()
    config = WorkerConfig(**assignment["config"])
    if config.forward_logs:
        tap_output()
    watch_file = WatchFile(int(arguments[1]))
    watch_file.catch_crashes(int(arguments[1]))
    limits = Limits(**assignment["limits"])
    metrics = None if assignment["metrics"] is None else socket.socket(fileno=assignment["metrics"])
    code = 0
    try:
        limits.bind()
        watch_file.limit_memory(limits.memory)
        run_worker(config, stop, report, watch_file, limits.tasks, metrics)
    except (DataServiceError, OSError, ValueError) as error:
        print(last_words(error), file=report, flush=True)
        code = CONFIGURATION_ERROR
    # Pipelines may have left threads that cannot be ended.
    exit_within(LAST_SECONDS, code)
    return code


def load() -> None:
    """Load the modules of a worker, before the module search path has a folder of the
    user.
    """
    with loading():
        for name in ("zmqdata.worker.server", "zmqdata.worker.tasks.pipeline"):
            importlib.import_module(name)


def take_over_standard_streams() -> TextIO:
    """Keep standard input as the lifeline and standard output for reports, and return
    the stream for reports. Pipelines cannot reach them; what they print goes to
    standard error.
    """
    watch_lifeline(os.dup(0))
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # Into a file, Python would keep what a pipeline prints until it is a lot.
    # A character that its encoding lacks is no fault of the pipeline that prints it.
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]  # the interpreter's own
    return report


def run_worker(
    config: WorkerConfig,
    stop: StopSignals,
    report: TextIO,
    watch_file: WatchFile,
    max_tasks: int = 0,
    metrics: socket.socket | None = None,
) -> None:
    """Serve until told to stop, or until the maximum number of tasks is reached. Raise
    whatever prevents the worker from starting or continuing.
    """
    if config.usable_data_ports is not None:
        first, last = config.usable_data_ports
        free_port(config.host, first, last)
    from zmqdata.worker.server import ConfinedWorker

    if metrics is not None:
        metrics.set_inheritable(False)
    server = ConfinedWorker(config, watch_file, max_tasks, metrics)
    server.start()
    try:
        while not server.wait_registered(LOOK_AROUND):
            if stop.wait(0.0):
                return
        print(
            "ready", announcement(server.address, server.metrics_address), file=report, flush=True
        )
        while not stop.wait(LOOK_AROUND) and not server.drained:
            server.wait_registered(0)  # raises when the dispatcher is gone
        if not stop.hurried:
            print(server.reason, file=report, flush=True)
            server.drain(config.drain_seconds)
        exit_within(LAST_SECONDS + config.shutdown_quiet_period_ms / 1000, 0)
    finally:
        watch_file.end()
        server.stop()


def last_words(error: BaseException) -> str:
    """Return the line with which a child reports its error. It also tells whether
    another child could do better, or the dispatcher is gone.

    Example:
        >>> last_words(ValueError("no")), last_words(VersionMismatchError("no"))
        ('error no', 'outdated no')
    """
    if isinstance(error, UnavailableError):
        return f"deserted {one_line(error)}"
    return f"{'outdated' if isinstance(error, VersionMismatchError) else 'error'} {one_line(error)}"


def one_line(error: BaseException) -> str:
    """Return an error's text without the number of an ``OSError`` and without line
    breaks.
    """
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return " ".join(text.split()) or type(error).__name__


def keep_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Configure glibc to keep memory that this process will need again. Return False if
    that is impossible, or the environment says otherwise.

    A user who sets any of glibc's own variables (``MALLOC_ARENA_MAX``,
    ``GLIBC_TUNABLES``, ...) has decided about all of them. A preloaded allocator is not
    affected.
    """
    if "GLIBC_TUNABLES" in environment or any(name.startswith("MALLOC_") for name in environment):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    settings = {_TRIM_THRESHOLD: KEPT_BYTES, _MMAP_THRESHOLD: MAPPED_BYTES, _ARENA_MAX: ARENAS}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
