"""Functions that kill their process at an element, or never return.

Each process that dies has a successor, which imports the module of the function while
the element is on trial. So this module imports nothing that takes long.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from typing import Any

BAD = 123
"""The element."""


def leaving(x: Any) -> Any:
    if x == BAD:
        os._exit(0)
    return x


def faulting(x: Any) -> Any:
    if x == BAD:
        ctypes.string_at(0)
    return x


def slow(x: Any) -> Any:
    threading.Event().wait(0.005)
    return x


def signalled(x: Any) -> Any:
    """Raise a signal that writes a core. Other threads run on for a while. This one
    waits: an element that is made before the process dies cannot be left out.
    """
    if slow(x) == BAD:
        os.kill(os.getpid(), signal.SIGSEGV)
        threading.Event().wait(60)
    return x


def begetting(x: Any) -> Any:
    """Begin a thread that crashes, and wait for it."""
    if slow(x) == BAD:
        thread = threading.Thread(target=ctypes.string_at, args=(0,))
        thread.start()
        thread.join()
    return x


def starving(x: Any) -> Any:
    if x == BAD:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def sticking(x: Any) -> Any:
    if x == BAD:
        threading.Event().wait(10**6)
    return x


def holding(x: Any) -> Any:
    """Hold the interpreter, so that no other thread runs."""
    if x == BAD:
        ctypes.PyDLL(None).pause()
    return x
