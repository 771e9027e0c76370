"""Treatment of threads when the program forks: the child lacks the threads, and may
find their locks held.

The owners of the threads, in ``crew`` and ``prefetch``, report the loss to their
consumers. So does an iterator of a dataset that another thread was reading.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Disownable(Protocol):
    """Owner of threads that a forked child does not have."""

    def disown(self) -> None:
        """Replace all locks in the child, since their holders are gone, and let no call
        wait for a thread.
        """


_with_threads: WeakSet[Disownable] = WeakSet()


def lost_in_forks(owner: Disownable) -> None:
    """Register the owner of some threads: its ``disown`` runs in each child that is
    forked while the owner is alive.

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
