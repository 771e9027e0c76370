"""When a process of ours ends: signals, the death of its parent, and deadlines on the
way out.

The dispatcher's command, the supervisor and its children share this. Standard library
only: the supervisor starts fast.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Mapping
from types import FrameType

SIGNALLED = 128
"""Added to a signal's number, as shells do, for the exit code of a process that a
second signal ended at once.
"""
PARENT_DIED = 3
PR_SET_PDEATHSIG = 1


class StopSignals:
    """Counts SIGTERM and SIGINT. The first asks to stop; the second ends the process at
    once, wherever it is stuck.

    ``hurried``: it was SIGINT, from somebody who sits there and waits.

    Made in the main thread, as early as possible. Other signals given as ``waking``
    only end a wait. ``owned``: whoever started us ends us when it will not wait. What
    comes twice then is one wish: a manager of services signals all of a service's
    processes, and our owner passes on what it got.

    Example:
        >>> before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        >>> stop = StopSignals()
        >>> signal.raise_signal(signal.SIGTERM)
        >>> stop.wait(0.0)
        True
        >>> stop.close(); before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        True
    """

    def __init__(self, waking: tuple[signal.Signals, ...] = (), owned: bool = False) -> None:
        self.received = 0
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
        if self._owned:
            signal.signal(
                number, signal.SIG_IGN
            )  # to the very end: Python puts the default back there
            return
        if self.received > 1:
            os._exit(SIGNALLED + number)
        # From here on, a thread hears of signals too: one that comes just before the
        # main thread begins to wait for a lock wakes nobody, and this handler runs in
        # the main thread only. Not by ``threading``, whose locks the main thread may
        # have just now.
        signal.set_wakeup_fd(self._second_write, warn_on_full_buffer=False)
        _thread.start_new_thread(_end_at_signal, (self._second,))

    def fileno(self) -> int:
        """Readable after any signal, for a selector; ``drain`` makes it quiet again."""
        return self._read

    def drain(self) -> None:
        """Forgets the wake-ups so far, not the count."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def wait(self, timeout: float | None) -> bool:
        """Waits for a signal or ``timeout`` seconds; True when asked to stop."""
        if not self.received:
            select.select([self._read], [], [], timeout)
            self.drain()
        return self.received > 0

    def close(self) -> None:
        """Puts back what was there before; needed where the process goes on, as in
        tests.
        """
        signal.set_wakeup_fd(self._woken_before)
        for kind, handler in self._before.items():
            signal.signal(kind, handler)
        for descriptor in (self._read, self._write, self._second_write):
            os.close(descriptor)
        if not self.received or self._owned:
            os.close(self._second)


def _end_at_signal(descriptor: int) -> None:
    """Ends the process as soon as SIGTERM or SIGINT is written to the pipe; returns
    when it is closed.
    """
    while numbers := os.read(descriptor, 64):
        for number in numbers:
            if number in (signal.SIGTERM, signal.SIGINT):
                os._exit(SIGNALLED + number)
    os.close(descriptor)


def watch_lifeline(descriptor: int) -> None:
    """Ends this process as soon as the other end of the pipe ``descriptor`` is closed,
    which its owner's death does.
    """

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(descriptor, 4096):
                pass
        os._exit(PARENT_DIED)

    threading.Thread(target=wait, name="zmqdata-lifeline", daemon=True).start()


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the thread that started it ends, even while
    user code holds the GIL.

    Linux only; elsewhere the lifeline is all there is.

    Args:
        parent: process id of the parent; it may be dead already.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(PARENT_DIED)


def exit_within(seconds: float, code: int) -> None:
    """Ends the process with ``code`` in so many seconds, whatever hangs until then."""
    timer = threading.Timer(seconds, os._exit, [code])
    timer.daemon = True
    timer.start()


def describe_exit(returncode: int) -> str:
    """How a process ended, in words, from ``Popen.returncode``.

    Example:
        >>> describe_exit(-9)
        'was killed by SIGKILL (nobody asked for it here: out of memory, or somebody else)'
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
        "SIGKILL": " (nobody asked for it here: out of memory, or somebody else)",
        "SIGSEGV": " (a fault in native code of a pipeline or a library)",
        "SIGABRT": " (native code gave up, see its last words above)",
    }
    return f"was killed by {name}{causes.get(name, '')}"
