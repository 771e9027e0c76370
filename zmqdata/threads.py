"""How many cores there are for threads, and threads of which it is known whether they
run, whoever is interrupted.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path


def available_cores() -> int:
    """How many cores this process may use: its affinity, cut by the quota of its
    control group.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


class Background(threading.Thread):
    """A thread that does not look dead because somebody was interrupted.

    ``threading.Thread`` looks at a lock that is free once the thread is gone. An
    exception from a signal handler in the midst of ``is_alive`` or ``join`` has it
    conclude, in Python 3.10 to 3.12, that the thread is gone while it runs on. A
    training loop that catches Ctrl-C and goes on would be told that the thread behind
    its iterator has ended.
    """

    _process = 0
    _is_over = False

    def start(self) -> None:
        """Begins to run.

        Raises:
            RuntimeError: the system has no thread left, or it was started before.
        """
        self._process = os.getpid()
        super().start()

    def run(self) -> None:
        """Runs the target."""
        try:
            super().run()
        finally:
            self._is_over = True

    def is_alive(self) -> bool:
        """Whether it was started, in this process, and has not come to the end of its
        target.
        """
        return self.ident is not None and not self._is_over and self._process == os.getpid()
