"""Facts about what a worker knows of one task."""

from __future__ import annotations

from zmqdata import commands as c
from zmqdata import messages as m
from zmqdata.core.dealing import dealing_for
from zmqdata.core.hosted import HostedTask


def hosted(cache: bool = False, consumers: int | None = None) -> HostedTask:
    definition = m.TaskDefinition(
        1, 2, 7, "dataset", "digest", "OFF", 9, None, (), (), num_consumers=consumers, cache=cache
    )
    return HostedTask(definition, [], dealing_for(definition, 1000))


def made(first: int, count: int = 1, lane: int = 0) -> c.Produced:
    return c.Produced(1, 2, first, count, 10, b"meta", "frames", lane=lane)


def test_a_task_reports_what_it_made() -> None:
    """The highest number, for how long nothing came, and once it has ended no idleness."""
    task = hosted()
    task.hungry = True
    task.add(made(0, 3), now=5.0)
    assert (task.key, task.produced_bytes, task.hungry) == ((1, 2), 10, False)
    assert task.report(7.0) == m.TaskReport(1, 2, 3, None, 2.0)
    task.total = 3
    assert task.report(9.0) == m.TaskReport(1, 2, 3, 3, 0.0)


def test_a_task_owes_what_its_readers_were_not_given() -> None:
    """Without a reader it owes nothing to anybody."""
    task = hosted()
    task.add(made(0), now=0.0)
    assert not task.owes_elements
    task.dealing.join("k", m.Reader())
    assert task.owes_elements


def test_who_lacks_something_makes_the_task_incomplete() -> None:
    """What nobody waited for is not here when somebody comes for it."""
    task = hosted(consumers=2)
    task.skip((0, 4))
    for consumer in (0, 1):
        task.dealing.join(f"k{consumer}", m.Reader(consumer)).grant(m.StreamGrant(1, 2, 9, 1000, 0))
        assert task.report(0.0).incomplete == (consumer == 1)


def test_everything_is_kept_once_all_is_made() -> None:
    """Then it holds up nobody, and a successor finds it here. Others than coordinated tasks keep all anyway."""
    task = hosted(consumers=1)
    task.add(made(0, 2), now=0.0)
    task.total = 2
    task.skip((2,))
    assert task.dealing.ahead == 10
    other = hosted()
    other.add(made(0, 2), now=0.0)
    other.skip((2,))
    assert other.dealing.ahead == 10


def test_only_shared_caches_leave_readers_behind() -> None:
    """A trainer that is too slow for the cache is counted there; elsewhere nobody is skipped."""
    assert hosted().skipped == {}
    task = hosted(cache=True)
    assert task.skipped == task.report(0.0).skipped == {}
