"""The file descriptors of this process: what takes them, and what to do if none is
left.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from zmqdata.errors import DescriptorShortageError

PER_ITERATOR = 3
"""Descriptors that an open iterator takes: two of its connection to the dispatcher, and
one of its thread.
"""
PER_WORKER = 5
"""Descriptors that it takes besides for each worker that it reads from."""
LEAST = PER_ITERATOR + PER_WORKER + 4
"""Descriptors without which an iterator cannot begin: it reads from a worker, and each
of two new connections takes two more until it is admitted.
"""
AN_ITERATOR = (
    f"an iterator ({PER_ITERATOR} descriptors, and {PER_WORKER} for each worker that it reads from)"
)
"""An open iterator, to begin a sentence about what it needs."""
FOLDER = "/proc/self/fd"


def is_shortage(error: BaseException) -> bool:
    """Return True if an operation failed because no file descriptor is left.

    >>> is_shortage(OSError(errno.EMFILE, "Too many open files"))
    True
    """
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)


def remedy(what: str, count: int = 1) -> str:
    """Return sentences about a lack of descriptors: how many are in use, and what to
    do.

    Args:
        what: the thing that cannot be made, to begin the sentence.
        count: number of descriptors that it needs.
    """
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = limit - left()
    needed = "a file descriptor" if count == 1 else f"{count} file descriptors"
    raised = f", which may be raised to {most}" if most > limit else ""
    return (
        f"{what} needs {needed}, and too few are left: this process uses {used} of "
        f"{limit} (`ulimit -n`{raised}). Close iterators and files that are not needed "
        "any longer, or raise the limit"
    )


def left() -> int:
    """Return the number of descriptors that this process may still open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return max(0, limit - len(os.listdir(FOLDER)) + 1)  # without the one that lists them
    except FileNotFoundError:  # this system does not tell
        return limit
    except OSError:
        return 0


def check_room(what: str, count: int) -> None:
    """Raise an error if too few descriptors are left for what is about to be made. From
    a lack of them, ZeroMQ's threads abort the process or fail to connect without a
    word.

    Args:
        what: the thing to make, to begin a sentence.
        count: number of descriptors that it needs.

    Raises:
        DescriptorShortageError: too few descriptors are left.
    """
    if left() < count:
        raise shortage(what, count)


def shortage(what: str, count: int = 1) -> DescriptorShortageError:
    """Return the error that no file descriptor is left for this thing."""
    error = DescriptorShortageError(f"{remedy(what, count)}.")
    error.errno = errno.EMFILE
    return error


@contextmanager
def shortage_explained(what: str) -> Iterator[None]:
    """Raise ``DescriptorShortageError`` for an operation that fails because no file
    descriptor is left.

    Args:
        what: the thing that the operation makes.
    """
    try:
        yield
    except DescriptorShortageError:
        raise
    except Exception as error:  # ZeroMQ's has an errno, and is not imported for it
        if not is_shortage(error):
            raise
        raise shortage(what) from None
