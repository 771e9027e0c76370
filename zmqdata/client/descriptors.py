"""Tells that a process has no file descriptor left, which is why it waits."""

from __future__ import annotations

import errno
import logging
import resource
import time

import zmq

log = logging.getLogger(__name__)

PAUSE = 10.0
"""Seconds between two of these warnings."""


class Descriptors:
    """Those that this process may have, as far as an iterator needs them."""

    def __init__(self) -> None:
        self._told = -PAUSE

    def explains(self, error: OSError | zmq.ZMQError | ValueError, what: str) -> bool:
        """Whether there were too few for something, which is tried again. Says so, now and then.

        Args:
            error: that it failed with.
            what: was to be had.
        """
        if getattr(error, "errno", None) not in (errno.EMFILE, errno.ENFILE):
            return False
        now = time.monotonic()
        if now - self._told >= PAUSE:
            self._told = now
            limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            log.warning(
                "%s takes a file descriptor, and there is none left (%s; this process may have %d, `ulimit -n`, and "
                "raise that to %d): close some, or raise the limit. It is tried again", what, error, limit, most,
            )  # fmt: skip
        return True
