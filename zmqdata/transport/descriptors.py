"""The file descriptors of this process: what takes them, and what to do if none is
left.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from zmqdata.errors import ResourceExhaustedError

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
FOLDER = "/proc/self/fd"


def is_shortage(error: BaseException) -> bool:
    """Return True if an operation failed because no file descriptor is left.

    >>> is_shortage(OSError(errno.EMFILE, "Too many open files"))
    True
    """
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)


def remedy(what: str) -> str:
    """Return sentences about a lack of descriptors: how many are in use, how many an
    iterator takes, and what to do.

    Args:
        what: the thing that cannot be made, to begin the sentence.
    """
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = limit - left()
    raised = f", which may be raised to {most}" if most > limit else ""
    return (
        f"{what} needs a file descriptor, and too few are left: this process uses {used} of "
        f"{limit} (`ulimit -n`{raised}). An open iterator takes {PER_ITERATOR}, and {PER_WORKER} "
        "for each worker that it reads from. Close iterators and files that are not needed any "
        "longer, or raise the limit"
    )


def left() -> int:
    """Return the number of descriptors that this process may still open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return limit - len(os.listdir(FOLDER)) + 1  # without the one that lists them
    except FileNotFoundError:  # this system does not tell
        return limit
    except OSError:
        return 0


def check_room() -> None:
    """Raise an error if an iterator could not begin. ZeroMQ's threads would fail to
    connect without a word, as if the dispatcher did not answer.

    Raises:
        ResourceExhaustedError: too few descriptors are left.
    """
    if left() < LEAST:
        raise ResourceExhaustedError(f"{remedy('an iterator')}.")


@contextmanager
def shortage_explained(what: str) -> Iterator[None]:
    """Raise ``ResourceExhaustedError`` for an operation that fails because no file
    descriptor is left.

    Args:
        what: the thing that the operation makes.
    """
    try:
        yield
    except Exception as error:  # ZeroMQ's has an errno, and is not imported for it
        if not is_shortage(error):
            raise
        raise ResourceExhaustedError(f"{remedy(what)}.") from None
