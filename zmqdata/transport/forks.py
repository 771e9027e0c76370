"""Check that rejects the use of sockets, threads and processes in a forked child."""

from __future__ import annotations

import os


def check_process(owner: int, what: str, remedy: str) -> None:
    """Raise an error in any process but the owner.

    Args:
        owner: id of the process that made the object.
        what: kind of the object, in the user's terms.
        remedy: a sentence on what to do instead.

    Raises:
        RuntimeError: this process was forked from the owner.

    Example:
        >>> check_process(os.getpid(), "iterator", "Make a new one here.")
    """
    if os.getpid() != owner:
        raise RuntimeError(
            f"This {what} belongs to process {owner} and cannot be used in process {os.getpid()}, "
            f"which was forked from it: sockets and threads do not survive a fork. {remedy}"
        )
