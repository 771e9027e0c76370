"""The number of usable cores, a rest of the garbage collector, and threads whose
liveness is reported correctly when a signal interrupts the caller.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

this_thread = threading.get_ident
"""Returns a number that identifies the current thread as long as it lives."""
work_of_thread: ContextVar[Any] = ContextVar("work_of_thread", default=None)
"""The work for which the current thread runs; None if it is not known. A ``Background``
thread works for what the thread worked for that has started it.
"""


def available_cores() -> int:
    """Return the number of cores that this process may use: its CPU affinity, limited
    by the quota of its control group.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


_rests = 0
"""Number of threads for which the collection of garbage rests."""
_lock = threading.Lock()


@contextlib.contextmanager
def collection_rests() -> Iterator[None]:
    """Collect no garbage in this process meanwhile, unless a program enables it. While
    objects are only created, a collection goes through all of them for nothing, again
    and again.
    """
    global _rests
    with _lock:
        is_on = gc.isenabled() or _rests > 0
        _rests += is_on
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _rests -= is_on
            if is_on and not _rests:
                gc.enable()


class Background(threading.Thread):
    """A thread whose ``is_alive`` and ``join`` stay correct when a signal handler
    raises within them.

    ``threading.Thread`` tests a lock that is released when the thread has ended. In
    Python 3.10 to 3.12, if a signal handler raises an exception within ``is_alive`` or
    ``join``, the thread is marked as ended while it still runs. A training loop that
    catches Ctrl-C and continues would then be told that the thread behind its iterator
    has ended.
    """

    _process = 0
    _is_over = False
    _work: Any = None

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: the system cannot start another thread, or this thread was
                started before.
        """
        self._process = os.getpid()
        self._work = work_of_thread.get()
        super().start()

    def run(self) -> None:
        """Run the target."""
        work_of_thread.set(self._work)
        try:
            super().run()
        finally:
            self._is_over, self._work = True, None

    def is_alive(self) -> bool:
        """Return True if the thread was started in this process and its target has not
        returned.
        """
        return self.ident is not None and not self._is_over and self._process == os.getpid()
