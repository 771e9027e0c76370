"""The end of a process: signals, the death of its parent, and deadlines for the
shutdown.

The dispatcher's command, the supervisor and its children use this module. It imports
only the standard library, so that the supervisor starts fast.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import re
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Protocol

SIGNALLED = 128
"""Added to a signal's number, as shells do, to form the exit code of a process that a
second signal ends at once.
"""
PARENT_DIED = 3
PR_SET_PDEATHSIG = 1
ENGINES = ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST")
"""Environment variables of engines that start, signal and replace processes."""
HOST_EVERY = 0.5
"""Seconds between two checks whether the parent of this process lives."""


def _as_printed(path: str) -> str:
    """Return a path as Python prints it at a crash."""
    return path.encode("ascii", "backslashreplace").decode()


_CALL = re.compile(r'^  File "(.*)", line \S+ in (.*)$', re.MULTILINE)
_THREADING = _as_printed(threading.__file__)
_PACKAGE = _as_printed(os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep)
_BACKGROUND = f"{_PACKAGE}machine/threads.py"
_PIPELINES = tuple(
    f"{_PACKAGE}{folder}{os.sep}"
    for folder in ("iterators", "operations", os.path.join("worker", "tasks"))
)
"""Folders with the code of the threads that run pipelines."""


class StopRequest(Protocol):
    """Tells a server when to stop."""

    def wait(self, timeout: float | None) -> bool:
        """Wait ``timeout`` seconds at most. Return True if a stop is requested."""


class StopSignals:
    """Counts SIGTERM and SIGINT. The first signal requests a stop. The second signal
    ends the process at once, even if it is stuck.

    An engine sends SIGTERM several times, so only a second SIGINT ends a process that
    an engine has started.

    Create it in the main thread, as early as possible.

    Args:
        waking: other signals, which only end a wait.
        owned: True if an owner started this process and will kill it if the stop takes
            too long. A second signal is then ignored: a service manager signals every
            process of a service, and the owner forwards the signal that it received.

    Attributes:
        received: number of SIGTERM and SIGINT that have arrived.
        has_engine: True if an engine has started this process.
        hurried: True if the last signal was SIGINT, which a user at the terminal sends.

    Example:
        >>> before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        >>> stop = StopSignals()
        >>> signal.raise_signal(signal.SIGTERM)
        >>> stop.wait(0.0)
        True
        >>> stop.close()
        >>> before == tuple(map(signal.getsignal, (signal.SIGTERM, signal.SIGINT)))
        True
    """

    def __init__(self, waking: tuple[signal.Signals, ...] = (), owned: bool = False) -> None:
        self.received = self._interrupts = 0
        self.has_engine = any(name in os.environ for name in ENGINES)
        self._owned = owned
        self.hurried = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._second, self._second_write = os.pipe()
        os.set_blocking(self._second_write, False)
        self._woken_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {
            kind: signal.signal(kind, self._note) for kind in (signal.SIGTERM, signal.SIGINT)
        }
        self._before |= {kind: signal.signal(kind, lambda number, frame: None) for kind in waking}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received += 1
        self.hurried = number == signal.SIGINT
        self._interrupts += self.hurried
        if self._owned:
            signal.signal(
                number, signal.SIG_IGN
            )  # ignored until the end, when Python restores the default
            return
        if (self._interrupts if self.has_engine else self.received) > 1:
            os._exit(SIGNALLED + number)
        if self.received > 1:
            return
        # From now on a thread listens for signals too. A signal that comes just before
        # the main thread waits for a lock does not end that wait, and this handler runs
        # only in the main thread. The thread is not started by ``threading``, whose
        # locks the main thread may hold now.
        signal.set_wakeup_fd(self._second_write, warn_on_full_buffer=False)
        _thread.start_new_thread(_end_at_signal, (self._second, self))

    def follow_engine(self) -> None:
        """Treat the parent as an engine, which may send SIGTERM several times."""
        self.has_engine = True

    def fileno(self) -> int:
        """Return a descriptor for a selector. It is readable after any signal, until
        ``drain`` is called.
        """
        return self._read

    def drain(self) -> None:
        """Discard the wake-ups so far, but keep the count."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def wait(self, timeout: float | None) -> bool:
        """Wait for a signal or ``timeout`` seconds. Return True if a stop is
        requested.
        """
        if not self.received:
            select.select([self._read], [], [], timeout)
            self.drain()
        return self.received > 0

    def close(self) -> None:
        """Restore the previous signal handlers. Only a process that goes on needs this,
        for example a test.
        """
        signal.set_wakeup_fd(self._woken_before)
        for kind, handler in self._before.items():
            signal.signal(kind, handler)
        for descriptor in (self._read, self._write, self._second_write):
            os.close(descriptor)
        if not self.received or self._owned:
            os.close(self._second)


def _end_at_signal(descriptor: int, stop: StopSignals) -> None:
    """End the process as soon as a signal that ends it is written to the pipe. Return
    when the pipe is closed.
    """
    interrupts = int(stop.hurried)
    while numbers := os.read(descriptor, 64):
        for number in numbers:
            interrupts += number == signal.SIGINT
            is_last = interrupts > 1 if stop.has_engine else number in _STOPPING
            if is_last:
                os._exit(SIGNALLED + number)
    os.close(descriptor)


_STOPPING = (signal.SIGTERM, signal.SIGINT)


def _end_with_parent() -> None:
    os._exit(PARENT_DIED)


def watch_lifeline(descriptor: int, at_end: Callable[[], None] = _end_with_parent) -> None:
    """End this process as soon as the other end of the pipe ``descriptor`` is closed.
    The death of the pipe's owner closes it.

    Args:
        descriptor: this end of the pipe.
        at_end: called instead, in a thread, when the pipe is closed, or this process
            has another parent: a fork of the owner may hold the pipe open.
    """
    parent = os.getppid()

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.getppid() == parent:
                is_ready = select.select([descriptor], [], [], HOST_EVERY)[0]
                if is_ready and not os.read(descriptor, 4096):
                    break
        at_end()

    threading.Thread(target=wait, name="zmqdata-lifeline", daemon=True).start()


def stop_with_parent(signals: StopSignals, patience: float) -> None:
    """Ask this process to stop, as SIGTERM does, when standard input ends or its parent
    has died.

    Args:
        signals: the signals of this process, which the parent owns.
        patience: seconds after which the process ends in any case.

    Raises:
        ValueError: standard input is no pipe and no socket, so that its end says
            nothing of the parent.
    """
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        mode = 0
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        raise ValueError(
            "`--exit-with-parent` ends this process when its standard input ends, so the program "
            "that starts it must give it a pipe or a socket there, and keep the other end open. "
            "Here standard input is neither. Start it with `stdin=subprocess.PIPE`, or leave out "
            "`--exit-with-parent`"
        )

    def stop() -> None:
        exit_within(patience, PARENT_DIED)
        os.kill(os.getpid(), signal.SIGTERM)

    signals.follow_engine()
    watch_lifeline(0, stop)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, even
    while user code holds the GIL.

    Only Linux can do this; elsewhere the process depends on its lifeline.

    Args:
        parent: process id of the parent, which may already be dead.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(PARENT_DIED)


def serve_beside_orphans(serve: Callable[[StopSignals], int], signals: StopSignals) -> int:
    """Serve, as process 1 of a container in a child, beside which this process reaps
    the orphans that the kernel gives to process 1.

    The serving process cannot reap them: it would take the exit codes of processes that
    ``subprocess`` waits for. Call this before a second thread exists.

    Args:
        serve: returns the exit code. It runs in the child, which then returns from this
            function as process 1 does.
        signals: signals that ask process 1 to stop; they must wake it on SIGCHLD, too.
            The child has its own.

    Returns:
        The exit code of the serving process, or 128 plus the number of the signal that
        killed it.
    """
    if os.getpid() != 1:
        return serve(signals)
    # A signal that arrives before the child can handle it is meant for the child, too.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    child = os.fork()
    if child == 0:
        signals.close()
        signals = StopSignals(waking=(signal.SIGCHLD,), owned=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        os.setsid()  # Ctrl-C in a terminal reaches only process 1, which then asks its child.
        return serve(signals)
    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    is_told, ended, status = False, 0, 0
    while ended != child:
        if signals.received and not is_told:
            os.kill(child, signal.SIGINT if signals.hurried else signal.SIGTERM)
            is_told = True
        ended, status = os.waitpid(-1, 0 if is_told else os.WNOHANG)
        if not ended:
            select.select([signals.fileno()], [], [])
            signals.drain()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else SIGNALLED - code


def exit_within(seconds: float, code: int) -> None:
    """End the process with ``code`` after so many seconds, even if it hangs."""
    timer = threading.Timer(seconds, os._exit, [code])
    timer.daemon = True
    timer.start()


def own_thread(stack: str) -> str:
    """Return where the thread of a crash began, if it is one of zmqdata's own and runs
    no pipeline; else an empty text.

    The main thread does not count: it only waits, and the kernel gives it the signals
    that a function sends to its process.

    Args:
        stack: the stack as Python prints it at a crash, the newest call first.

    Example:
        >>> own_thread('  File "train.py", line 3 in decode')
        ''
    """
    calls = _CALL.findall(stack)[::-1]
    if "\n  ..." in stack or not calls or calls[0][0] != _THREADING:
        return ""  # Python prints the newest hundred calls only
    for file, name in calls:
        if file.startswith(_PACKAGE) and file != _BACKGROUND:
            return "" if file.startswith(_PIPELINES) else f"`{name}` of {file[len(_PACKAGE) :]}"
        if file not in (_THREADING, _BACKGROUND):
            break
    return ""


def describe_exit(returncode: int, own: str = "") -> str:
    """Describe in words how a process ended.

    Args:
        returncode: as in ``Popen.returncode``.
        own: what ``own_thread`` returns.

    Example:
        >>> describe_exit(-9)
        'was killed by SIGKILL (for want of memory, or by another process)'
        >>> describe_exit(1)
        'ended with exit code 1'
    """
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    causes: Mapping[str, str] = {
        "SIGKILL": " (for want of memory, or by another process)",
        "SIGSEGV": " (a fault in native code of a pipeline or a library)",
        "SIGABRT": " (native code aborted, see its last lines above)",
    }
    if own:
        return (
            f"was killed by {name} in a thread of zmqdata itself, which runs {own}: no element of "
            "a pipeline is to blame"
        )
    return f"was killed by {name}{causes.get(name, '')}"
