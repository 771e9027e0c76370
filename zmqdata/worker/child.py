"""The child process of a worker: ``python -m zmqdata.worker.child``, started by a
supervisor and by nobody else.

It runs a ``WorkerServer``, says on its standard output when that is registered, and
ends with its supervisor.

How a worker's process gets its memory from the system: seldom, as a page that is new
costs more than what it holds.

Pipelines make arrays of a hundred kilobytes by the thousand and drop them together once
their block is sent. By default glibc gives that memory back to the system each time,
and takes it again for the next block: each page of it is cleared and mapped anew, which
can cost more than filling it.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from zmqdata.config.worker import WorkerConfig
from zmqdata.errors import DataServiceError, VersionMismatchError
from zmqdata.transport.addresses import free_port
from zmqdata.worker.processes.crumbs import CrumbFile
from zmqdata.worker.processes.interpreter import add_folder
from zmqdata.worker.processes.lifetime import (
    StopSignals,
    die_with_parent,
    exit_within,
    watch_lifeline,
)
from zmqdata.worker.processes.limits import Limits
from zmqdata.worker.processes.supervisor import CONFIGURATION_ERROR
from zmqdata.worker.server import WorkerServer

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
KEPT_BYTES = 64 << 20
"""What may lie unused at the end of a heap."""
MAPPED_BYTES = 32 << 20
"""Larger pieces come from the system and go back to it one by one. Larger than this
glibc does not take it.
"""
ARENAS = 2
"""Heaps, however many threads there are: each keeps what others could use. Threads
mostly allocate one at a time.
"""
LOOK_AROUND = 0.25
LAST_SECONDS = 3.0
SWITCH_SECONDS = 0.001
"""How long a pipeline's thread keeps the interpreter from the one that speaks to
clients, each time that this wants it: five to ten times for a message. Python's five
milliseconds are fifty for each, in which no client gets anything.
"""


def main(arguments: list[str]) -> int:
    """Runs one worker until told to stop; returns the exit code."""
    stop = StopSignals(owned=True)
    assignment = json.loads(arguments[0])
    report = take_over_standard_streams()
    die_with_parent(assignment["parent"])
    add_folder(assignment["folder"], sys.path)
    keep_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.basicConfig(
        level=assignment["log_level"].upper(),
        format=f"%(asctime)s %(levelname)s [{os.getpid()}] %(name)s: %(message)s",
    )
    crumbs = CrumbFile(int(arguments[1]))
    os.close(int(arguments[1]))
    limits = Limits(**assignment["limits"])
    code = 0
    try:
        limits.bind()
        crumbs.limit_memory(limits.memory)
        run_worker(WorkerConfig(**assignment["config"]), stop, report, crumbs, limits.tasks)
    except (DataServiceError, OSError, ValueError) as error:
        print(last_words(error), file=report, flush=True)
        code = CONFIGURATION_ERROR
    # Pipelines may have left threads that nobody can end.
    exit_within(LAST_SECONDS, code)
    return code


def take_over_standard_streams() -> TextIO:
    """Keeps input as lifeline and output for reports, out of reach of pipelines, whose
    prints go to standard error.
    """
    watch_lifeline(os.dup(0))
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return report


def run_worker(
    config: WorkerConfig, stop: StopSignals, report: TextIO, crumbs: CrumbFile, max_tasks: int = 0
) -> None:
    """Serves until told to stop, or until it has had its tasks. Raises what keeps it
    from starting or going on.
    """
    if config.usable_data_ports is not None:
        first, last = config.usable_data_ports
        free_port(config.host, first, last)
    server = WorkerServer(config, start=False)
    server.live_for(crumbs, max_tasks)
    server.start()
    try:
        while not server.wait_registered(LOOK_AROUND):
            if stop.wait(0.0):
                return
        print("ready", server.address, file=report, flush=True)
        while not stop.wait(LOOK_AROUND) and not server.drained:
            server.wait_registered(0)  # raises when there is no dispatcher any more
        if not stop.hurried:
            print("retiring" if server.has_had_its_tasks else "draining", file=report, flush=True)
            server.drain()
        exit_within(LAST_SECONDS + config.shutdown_quiet_period_ms / 1000, 0)
    finally:
        crumbs.end()
        server.stop()


def last_words(error: BaseException) -> str:
    """The report of what a child ends with, which says too whether another one could do
    better.

    Example:
        >>> last_words(ValueError("no")), last_words(VersionMismatchError("no"))
        ('error no', 'outdated no')
    """
    return f"{'outdated' if isinstance(error, VersionMismatchError) else 'error'} {one_line(error)}"


def one_line(error: BaseException) -> str:
    """An error's text without the number of an ``OSError`` and without line breaks."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return " ".join(text.split()) or type(error).__name__


def keep_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Has this process keep memory that it will need again; False where that is not
    known how, or told otherwise.

    Who sets one of glibc's own variables (``MALLOC_ARENA_MAX``, ``GLIBC_TUNABLES``,
    ...) has decided for all of them, and an allocator that is preloaded is not
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
