"""What becomes of threads when the program forks: the child does not have them, and may
find their locks held.

What is told of it lives with the threads, in ``crew`` and ``prefetch``.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Disownable(Protocol):
    """Has threads that a child of the process will not have."""

    def disown(self) -> None:
        """In the child: take new locks, as nobody will give the old ones back, and let
        nothing wait for a thread.
        """


_with_threads: WeakSet[Disownable] = WeakSet()


def lost_in_forks(owner: Disownable) -> None:
    """Have ``disown`` called in each child that is forked while the owner of some
    threads is there.

    >>> class Owner:
    ...     def disown(self) -> None:
    ...         print("these threads are gone")
    >>> owner = Owner()
    >>> lost_in_forks(owner)
    """
    _with_threads.add(owner)


def _disown_all() -> None:
    for owner in list(_with_threads):
        owner.disown()


os.register_at_fork(after_in_child=_disown_all)
