"""Threads of other libraries that call this package, and must have left Python before
the interpreter ends.

A thread of TensorFlow that takes elements ahead while the interpreter ends makes the
program hang or abort.
"""

from __future__ import annotations

import atexit
import threading
import time
from typing import Protocol
from weakref import WeakSet

LEAVE_WITHIN = 2.0
"""Seconds for which the end of the program waits for the threads, at most."""
QUIET_AFTER = 0.5
"""Seconds without a call after which the threads are taken to wait outside of
Python.
"""


class Closeable(Protocol):
    """Object that ends the wait of the threads that call it."""

    def close(self) -> None:
        """Let no call wait any more."""


class ForeignCalls:
    """The calls that threads of another library make, as a context of each call.

    At the end of the program, all open objects are closed, later calls raise
    StopIteration, and the end waits for the calls under way.

    >>> calls = ForeignCalls()
    >>> with calls:
    ...     print("called")
    called
    """

    def __init__(self) -> None:
        self._open: WeakSet[Closeable] = WeakSet()
        self._lock = threading.Lock()
        self._inside = 0
        self._last = 0.0  # time of the last call that began or ended
        self._is_ending = False
        atexit.register(self._end)

    def add(self, called: Closeable) -> None:
        """Close an object at the end of the program, if it still lives."""
        self._open.add(called)

    def __enter__(self) -> None:
        with self._lock:
            self._last = time.monotonic()
            if self._is_ending:
                raise StopIteration
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._last = time.monotonic()
            self._inside -= 1

    def _end(self) -> None:
        with self._lock:
            self._is_ending = True
        for close in [called.close for called in list(self._open)]:
            close()
        deadline = time.monotonic() + LEAVE_WITHIN
        # An object that the library has dropped is not called any more. Another one may
        # be about to be called.
        while self._open and time.monotonic() < deadline and not self._is_quiet():
            time.sleep(0.01)

    def _is_quiet(self) -> bool:
        with self._lock:
            return not self._inside and time.monotonic() > self._last + QUIET_AFTER
