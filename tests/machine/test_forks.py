"""Tests of ``zmqdata.machine.forks``. The tests of the owners of threads cover how
these react.
"""

from __future__ import annotations

import gc
import os

from zmqdata.machine import forks


class Owner:
    """An owner that notes each notification."""

    told = 0

    def disown(self) -> None:
        self.told += 1


def test_owners_are_told_in_the_child() -> None:
    """Each existing owner is notified of the fork once, in the child only."""
    owner, other = Owner(), Owner()
    forks.lost_in_forks(owner)
    pid = os.fork()
    if pid == 0:
        os._exit(owner.told + 2 * other.told)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert owner.told == 0


def test_owners_are_not_kept() -> None:
    """An unused owner is forgotten."""
    owner = Owner()
    forks.lost_in_forks(owner)
    before = len(forks._with_threads)
    del owner
    gc.collect()
    assert len(forks._with_threads) < before


def test_an_owner_may_go_while_others_are_told() -> None:
    """A notified owner may release another owner."""
    first, second = Owner(), [Owner()]
    forks.lost_in_forks(first)
    forks.lost_in_forks(second[0])
    first.disown = second.clear  # type: ignore[method-assign]
    forks._disown_all()
    assert second == []
