"""What an object with sockets, threads or processes says in a forked child: an error,
never silence.
"""

from __future__ import annotations

import os


def check_process(owner: int, what: str, remedy: str) -> None:
    """Refuses to go on in any process but the owner's.

    Args:
        owner: id of the process that made the object.
        what: the object's kind, as the user knows it.
        remedy: a sentence on what to do instead.

    Raises:
        RuntimeError: this is another process, so a child forked from the owner.

    Example:
        >>> check_process(os.getpid(), "iterator", "Make a new one here.")
    """
    if os.getpid() != owner:
        raise RuntimeError(
            f"This {what} belongs to process {owner} and cannot be used in process {os.getpid()}, "
            "which was forked "
            f"from it: sockets and threads do not survive a fork. {remedy}"
        )
