"""Tools for tests with real processes: wait for a condition, freeze a server, find
leaks.

Users of the library test with them that their programs work on a ``LocalCluster``,
survive a server that hangs, and leave nothing behind.

``zmqdata.cluster`` starts the processes. Reading ``/proc`` makes this module Linux
only.
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
"""Default number of seconds to wait."""
POLL = 0.01
"""Seconds between two checks of a condition."""


def await_condition(
    predicate: Callable[[], object], deadline: float = DEADLINE, what: str = ""
) -> None:
    """Wait until ``predicate()`` is true.

    Args:
        predicate: called about a hundred times a second.
        deadline: longest time to wait, in seconds.
        what: what is awaited, for the error.

    Raises:
        TimeoutError: the condition has not become true in time.

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
    """Return the process ids of the children of ``pid``, their children, and so on,
    including zombies.

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
                # The second field is a name in parentheses, which may contain any
                # character.
                fields = (
                    (entry / "stat")
                    .read_text(encoding="utf-8", errors="replace")
                    .rpartition(")")[2]
                    .split()
                )
                yield int(entry.name), int(fields[1])


def is_running(pid: int) -> bool:
    """True if a process exists and is not a zombie.

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
    """True if a server accepts connections at ``"tcp://host:port"`` or
    ``"host:port"``.
    """
    host, port = split_address(address.rpartition("://")[2])
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False


@contextlib.contextmanager
def frozen(server: ServerProcess) -> Iterator[None]:
    """Stop a server and all of its processes (SIGSTOP) during the ``with`` block:
    silent, yet connected.
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
    """Fail if the ``with`` block leaves processes, threads or open files (hence also
    ports) of this process behind.

    Args:
        deadline: seconds to wait for them to go away.

    Raises:
        AssertionError: some are still present ``deadline`` seconds after the block. The
            text names them.

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
