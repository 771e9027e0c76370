"""The file descriptors of this process: what takes them, and what to do if none is
left.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from zmqdata.errors import ResourceExhaustedError

PER_ITERATOR = 3
"""Descriptors that an open iterator takes: two of its connection to the dispatcher, and
one of its thread.
"""
PER_WORKER = 5
"""Descriptors that it takes besides for each worker that it reads from."""
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
    try:
        used = len(os.listdir(FOLDER)) - 1  # without the one that lists them
    except OSError:
        used = limit
    raised = f", which may be raised to {most}" if most > limit else ""
    return (
        f"{what} needs a file descriptor, and none is left: this process uses {used} of {limit} "
        f"(`ulimit -n`{raised}). An open iterator takes {PER_ITERATOR}, and {PER_WORKER} for each "
        "worker that it reads from. Close iterators and files that are not needed any longer, or "
        "raise the limit"
    )


@contextmanager
def shortage_explained(what: str) -> Iterator[None]:
    """Raise ``ResourceExhaustedError`` for an operation that fails because no file
    descriptor is left.

    Args:
        what: the thing that the operation makes.
    """
    try:
        yield
    except (OSError, zmq.ZMQError) as error:
        if not is_shortage(error):
            raise
        raise ResourceExhaustedError(f"{remedy(what)}.") from None
