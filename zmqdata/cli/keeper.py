"""Starts a dispatcher again that was killed: its journal knows all that it has told
anybody.

libzmq ends a process on faults that a peer can bring about, and a system that is out of
memory ends the largest one. A process manager would start it again; nobody should have
to set one up for that. The keeper is what the command was before it forked, so it costs
next to no time and memory, and it does nothing but wait.
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
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
GRACE = 10.0
"""Seconds that a child has to end after it was asked to."""

Serve = Callable[[int | None, StopSignals, Callable[[int], None]], int]
"""Takes the port to listen on (None: the configured one), what asks it to stop, and
whom to tell its port.
"""


def keep(serve: Serve, signals: StopSignals) -> int:
    """Serves in a child process, and in another one whenever that is killed by a signal
    that was not sent to us.

    Call it before there is a second thread.

    Args:
        serve: returns the exit code. It runs in the child, which returns from here as
            the keeper does.
        signals: what asks the keeper to stop; it must wake on SIGCHLD too. The child
            has one of its own.

    Returns:
        The exit code of the child, or 128 and the number of the signal that killed it
        (SIGKILL's if it could not even be started), where none takes its place.
    """
    keeper, port, failed = os.getpid(), None, 0
    while True:
        told, tell = socket.socketpair()
        # A signal that comes before the child can take it is for the child, too.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        child = _fork()
        if child == 0:
            told.close()
            signals.close()
            signals = StopSignals(owned=True)
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.setsid()  # Ctrl-C in a terminal reaches the keeper only, which then asks its child.
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
            log.error(
                "the dispatcher (process %d) %s; it is started again", child, describe_exit(code)
            )
        if signals.wait(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**failed)):
            return 0


def _fork() -> int | None:
    """As ``os.fork``; None where that fails: no memory, or too many processes, which is
    when we are needed most.
    """
    try:
        return os.fork()
    except OSError as error:
        log.error("the dispatcher cannot be started now (%s)", error.strerror)
        return None


def _tell(keeper: socket.socket, port: int) -> None:
    keeper.sendall(str(port).encode())


def _await_end(child: int, signals: StopSignals) -> int:
    """The exit code of a child, below zero for a signal; it is asked to stop when we
    are.
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
        if time.monotonic() >= until:  # it is stopped, as it gives itself less
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(gone[1])
