"""Limits of a worker: its number of processes, and the memory, the number of tasks and
the rights of each.

The supervisor passes the limits on the child's command line, and the child applies them
before it opens a pipeline. This module imports almost nothing, so that the supervisor
starts fast.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from zmqdata.printable import shown_bytes

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LEAST_MEMORY = 256 << 20
"""A child with its libraries and threads needs 120 to 140 MiB before its first
pipeline.
"""
MOST_PROCESSES = 1000
"""Maximum number of processes of a worker."""
PR_SET_NO_NEW_PRIVS = 38
STATM = Path("/proc/self/statm")
DEEPEST_CAUSE = 10


def check_processes(processes: int) -> None:
    """Refuse a number of processes that no worker can have.

    Raises:
        ValueError: the number is below 1, or above ``MOST_PROCESSES``.

    Example:
        >>> check_processes(MOST_PROCESSES)
    """
    if processes < 1:
        raise ValueError(f"a worker needs at least 1 process, got {processes}")
    if processes > MOST_PROCESSES:
        raise ValueError(
            f"a worker has at most {MOST_PROCESSES} processes, got {processes}: more "
            "processes than cores bring no speed. Say auto for one process for each "
            "core, or start workers on other machines"
        )


@dataclass(frozen=True)
class Limits:
    """Limits of one child."""

    memory: int = 0
    """maximum private memory in bytes, without shared memory and files; 0 means no
    limit.
    """
    tasks: int = 0
    """number of tasks after which the child is replaced; 0 means never."""
    confined: bool = False
    """True if the child is kept from gaining rights, for example by sudo."""

    def bind(self) -> None:
        """Apply the limits of memory and rights to this process and to the processes
        that it starts.

        Raises:
            OSError: the system does not support such a limit.
        """
        if self.memory:
            import resource

            allowed = resource.getrlimit(resource.RLIMIT_DATA)[1]
            most = self.memory if allowed == resource.RLIM_INFINITY else min(self.memory, allowed)
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        if self.confined and sys.platform == "linux":
            import ctypes

            if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
                raise OSError(
                    ctypes.get_errno(), "this system cannot keep a process from gaining rights"
                )


NO_LIMITS = Limits()


def bytes_of(text: str) -> int:
    """Return the number of bytes that a value of ``--memory-limit`` denotes.

    Raises:
        ValueError: the text is not a number of bytes, the number is too small for a
            process, or this system does not enforce such a limit.

    Example:
        >>> bytes_of("2GiB"), bytes_of("512 MiB"), bytes_of("1_000_000_000")
        (2147483648, 536870912, 1000000000)
    """
    match = re.fullmatch(r"\s*([0-9][0-9_]*)\s*(?:([KMGT])i?B?|B)?\s*", text)
    if match is None:
        raise ValueError(
            "`memory_limit`: expected a number of bytes such as 2GiB, 512MiB or 2147483648, got "
            f"{text!r}"
        )
    found = int(match[1].replace("_", "")) * UNITS[match[2] or ""]
    if not LEAST_MEMORY <= found < 1 << 60:
        raise ValueError(
            f"`memory_limit`: a process needs {shown_bytes(LEAST_MEMORY)} at least, "
            f"with its libraries and threads, got {text!r}"
        )
    if sys.platform != "linux":
        raise ValueError(
            "`memory_limit`: only Linux holds a process to it, and this is "
            f"{sys.platform}; leave it out"
        )
    return found


def tasks_of(most: int, index: int, processes: int) -> int:
    """Return the number of tasks after which a child is replaced, between half of
    ``most`` and ``most``.

    All children of a worker run tasks of the same jobs. The different numbers keep them
    from being replaced at the same moment.

    Example:
        >>> [tasks_of(100, index, 4) for index in range(4)]
        [100, 88, 75, 63]
        >>> tasks_of(1, 3, 4), tasks_of(0, 3, 4)
        (1, 0)
    """
    return most - index * most // (2 * processes)


def read_memory(path: Path = STATM) -> tuple[int, int] | None:
    """Return the memory of this process in bytes: its resident size, and the writable
    memory that a limit counts (``RLIMIT_DATA``), used or not. None if the system does
    not tell.

    Example:
        >>> read_memory(Path("/nowhere"))
    """
    try:
        pages = path.read_bytes().split()
    except OSError:
        return None
    size = os.sysconf("SC_PAGE_SIZE")
    return int(pages[1]) * size, int(pages[5]) * size


def is_starvation(error: BaseException) -> bool:
    """Return whether an exception or one of its causes says that memory ran out, also
    for the stack of a thread.

    Example:
        >>> is_starvation(MemoryError()), is_starvation(ValueError())
        (True, False)
    """
    found: BaseException | None = error
    for _ in range(DEEPEST_CAUSE):
        if isinstance(found, MemoryError) or (
            isinstance(found, OSError) and found.errno == errno.ENOMEM
        ):
            return True
        if isinstance(found, RuntimeError) and str(found) == "can't start new thread":
            return True
        found = None if found is None else found.__cause__
    return False
