"""Tools for tests with real processes: wait for a condition, freeze a server, look for
what was left behind.

The processes themselves are started by ``zmqdata.cluster``. What is read from ``/proc``
makes this Linux only.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from zmqdata.cluster.processes import ServerProcess
from zmqdata.config.endpoints import split_address

DEADLINE = 30.0
POLL = 0.01


def await_condition(
    predicate: Callable[[], object], deadline: float = DEADLINE, what: str = ""
) -> None:
    """Waits until ``predicate()`` is true.

    Args:
        predicate: asked about a hundred times a second.
        deadline: the longest time to wait, in seconds.
        what: what is waited for, for the error.

    Raises:
        TimeoutError: it has not become true in time.

    Example:
        >>> await_condition(lambda: True, what="the sun")
        >>> await_condition(lambda: False, deadline=0.0, what="rain")
        Traceback (most recent call last):
        TimeoutError: waited 0 s in vain for rain
    """
    ends = time.monotonic() + deadline
    while not predicate():
        if time.monotonic() >= ends:
            raise TimeoutError(f"waited {deadline:g} s in vain for {what or 'a condition'}")
        time.sleep(POLL)


def descendants(pid: int) -> list[int]:
    """The process ids of the children of ``pid``, their children, and so on; the dead
    that nobody waited for included.

    Example:
        >>> os.getpid() in descendants(os.getppid())
        True
    """
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found = list(children.get(pid, []))
    for child in found:
        found += children.get(child, [])
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The second field is a name in parentheses, in which anything may
                # stand.
                fields = (
                    (entry / "stat")
                    .read_text(encoding="utf-8", errors="replace")
                    .rpartition(")")[2]
                    .split()
                )
                yield int(entry.name), int(fields[1])


def is_running(pid: int) -> bool:
    """Whether a process exists and is not only waiting for its parent to notice its
    death.

    Example:
        >>> is_running(os.getpid())
        True
    """
    try:
        state = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except OSError:
        return False
    return state not in "ZX"


def listens(address: str) -> bool:
    """Whether somebody accepts connections at ``"tcp://host:port"`` or
    ``"host:port"``.
    """
    host, port = split_address(address.rpartition("://")[2])
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False


@contextlib.contextmanager
def frozen(server: ServerProcess) -> Iterator[None]:
    """Stops a server and all of its processes (SIGSTOP) for the time of the ``with``
    block: silent, yet connected.
    """
    pids = [server.pid, *descendants(server.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def no_leaks(deadline: float = DEADLINE) -> Iterator[None]:
    """Fails when the ``with`` block leaves processes, threads or open files (so also
    ports) of this process behind.

    Raises:
        AssertionError: naming what is still there ``deadline`` seconds after the block.

    Example:
        >>> with no_leaks():
        ...     pass
    """
    before = _belongings()
    yield
    left: set[str] = set()

    def is_clean() -> bool:
        nonlocal left
        left = _belongings() - before
        if left:
            gc.collect()
            left = _belongings() - before
        return not left

    try:
        await_condition(is_clean, deadline)
    except TimeoutError:
        raise AssertionError(f"left behind: {', '.join(sorted(left))}") from None


def _belongings() -> set[str]:
    processes = {f"process {pid}" for pid in descendants(os.getpid())}
    threads = {f"thread {thread.name}" for thread in threading.enumerate()}
    files = set()
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            files.add(f"file {entry.name} ({entry.readlink()})")
    return processes | threads | files
