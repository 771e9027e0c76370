"""Test sums in which the last seconds count most."""

from __future__ import annotations

import pytest

from zmqdata.measures.sums import HALVED, Recent, added, kept, values_of
from zmqdata.messages import LoopSums, TaskSums


def test_recent_sums_halve() -> None:
    """A sum counts half after ``HALVED`` seconds, and what came since in full."""
    recent = Recent(2)
    assert recent.look(0.0, (0.0, 0.0)) == (0.0, 0.0)
    assert recent.look(1.0, (4.0, 1.0)) == (4.0, 1.0)
    assert recent.look(1.0 + HALVED, (6.0, 1.0)) == (4.0, 0.5)


def test_recent_sums_never_shrink_below_zero() -> None:
    """A total that is smaller than before, as of two racing threads, adds nothing."""
    recent = Recent(1)
    recent.look(0.0, (5.0,))
    assert recent.look(0.0, (4.0,)) == (5.0,)


@pytest.mark.parametrize("seconds", [-1.0, 0.0])
def test_nothing_fades_without_time(seconds: float) -> None:
    """A clock that goes back, or stands still, lets nothing fade."""
    assert kept(seconds) == 1.0


def test_sums_are_added_by_field() -> None:
    """Sums of tasks are added by field, and no sums are nothing."""
    both = added([TaskSums(1.0, 2.0, elements=3.0), TaskSums(1.0, nbytes=7.0)], TaskSums())
    assert values_of(both) == (2.0, 2.0, 0.0, 0.0, 3.0, 7.0)
    assert added([], LoopSums()) == LoopSums()
