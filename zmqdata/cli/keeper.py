"""Restart of a dispatcher that was killed, which continues from its journal.

libzmq aborts a process on faults that a peer can cause, and a kernel without memory
kills the largest process. A process manager could restart the dispatcher; users should
not need to set up a process manager for that. The keeper is the process of the command
before it forks, so it costs almost no time and memory. It only waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from functools import partial

from zmqdata.worker.processes.lifetime import (
    SIGNALLED,
    StopSignals,
    describe_exit,
    die_with_parent,
    watch_lifeline,
)

log = logging.getLogger(__name__)

MOST_FAILED_STARTS = 5
"""Starts in a row that may fail before the keeper gives up."""
FIRST_PAUSE = 0.1
"""Seconds between the death of a child and the next start; doubled with each failed
start.
"""
LONGEST_PAUSE = 10.0
"""Limit of this pause."""
GRACE = 10.0
"""Seconds for which a child may take to end after it was asked to."""

Serve = Callable[[int | None, StopSignals, Callable[[int], None]], int]
"""Serves on a port (None: the configured port) until the signals say stop, and reports
the bound port to the callback.
"""


def keep(serve: Serve, signals: StopSignals) -> int:
    """Serve in a child process, and in another child whenever a signal kills the child
    but not the keeper.

    Call it before a second thread exists.

    Args:
        serve: returns the exit code. It runs in the child, which then returns from this
            function as the keeper does.
        signals: signals that ask the keeper to stop; they must wake it on SIGCHLD, too.
            The child has its own.

    Returns:
        The exit code of the last child, or 128 plus the number of the signal that
        killed it (SIGKILL if it could not be started).
    """
    keeper, port, failed = os.getpid(), None, 0
    while True:
        told, tell = socket.socketpair()
        # A signal that arrives before the child can handle it is meant for the child,
        # too.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        child = _fork()
        if child == 0:
            told.close()
            signals.close()
            signals = StopSignals(owned=True)
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.setsid()  # Ctrl-C in a terminal reaches only the keeper, which then asks its child.
            die_with_parent(keeper)
            watch_lifeline(tell.fileno())
            return serve(port, signals, partial(_tell, tell))
        tell.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        code = _await_end(child, signals) if child is not None else -signal.SIGKILL
        with contextlib.closing(told):
            ready = told.recv(16)
        port, failed = (int(ready), 0) if ready else (port, failed + 1)
        if code >= 0:
            return code
        if signals.received or failed == MOST_FAILED_STARTS:
            return SIGNALLED - code
        if child is not None:
            log.error("the dispatcher (process %d) %s; it is restarted", child, describe_exit(code))
        if signals.wait(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**failed)):
            return 0


def _fork() -> int | None:
    """Return the result of ``os.fork``; None if it fails for lack of memory or
    processes, when a restart is needed most.
    """
    try:
        return os.fork()
    except OSError as error:
        log.error(
            "the dispatcher cannot be started now (%s); it is tried again soon", error.strerror
        )
        return None


def _tell(keeper: socket.socket, port: int) -> None:
    keeper.sendall(str(port).encode())


def _await_end(child: int, signals: StopSignals) -> int:
    """Return the exit code of a child, negative for a signal. Pass a request to stop on
    to the child.
    """
    while not signals.received:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        select.select([signals.fileno()], [], [])
        signals.drain()
    os.kill(child, signal.SIGINT if signals.hurried else signal.SIGTERM)
    until = time.monotonic() + GRACE
    while not (gone := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() >= until:  # the child hangs: its own limit is shorter
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(gone[1])
