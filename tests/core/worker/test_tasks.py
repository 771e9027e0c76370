"""Test the worker's record of a single task."""

from __future__ import annotations

import pytest

from tests.definitions import changed, define
from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker.dealing import dealing_for
from zmqdata.core.worker.ledger import SplitFeed
from zmqdata.core.worker.streams import occupied
from zmqdata.core.worker.tasks import UNREAD_ELEMENTS, HostedTask
from zmqdata.splits import Split


def hosted(cache: bool = False, consumers: int | None = None) -> HostedTask:
    definition = define(
        1, 2, 7, "dataset", "digest", "OFF", 9, None, (), (), num_consumers=consumers, cache=cache
    )
    return HostedTask(definition, [], dealing_for(definition, 1000))


def made(first: int, count: int = 1, lane: int = 0) -> e.Produced:
    return e.Produced(1, 2, first, count, 10, b"meta", "frames", lane=lane)


def test_a_task_reports_what_it_made() -> None:
    """A task reports its highest element number and its idle time, and no idle time
    after its end.
    """
    task = hosted()
    task.hungry = True
    task.add(made(0, 3), now=5.0)
    assert (task.key, task.produced_bytes, task.hungry) == ((1, 2), occupied(10), False)
    assert task.report(7.0) == m.TaskReport(1, 2, 3, None, 2.0)
    task.total = 3
    assert task.report(9.0) == m.TaskReport(1, 2, 3, 3, 0.0)


def test_a_task_says_that_it_waits_for_its_readers() -> None:
    """A started task waits once it has produced all bytes, or all elements, that it
    may, until it may produce more or has ended.
    """
    task = hosted()
    task.allowed, task.unread = 2 * occupied(10), None
    assert not task.report(1.0).waits
    task.started = True
    task.add(made(0), now=1.0)
    assert not task.report(1.0).waits
    task.add(made(1), now=1.0)
    assert task.report(1.0).waits
    task.allowed, task.unread = 3 * occupied(10), 2
    assert task.report(1.0).waits
    task.unread = None
    assert not task.report(1.0).waits
    task.add(made(2), now=1.0)
    task.total = 3
    assert not task.report(1.0).waits


def test_a_task_owes_what_its_readers_were_not_given() -> None:
    """A task owes its readers the undelivered elements, and owes nothing without a
    reader.
    """
    task = hosted()
    task.add(made(0), now=0.0)
    assert not task.owes_elements
    task.dealing.join("k", m.Reader())
    assert task.owes_elements


def test_who_lacks_something_makes_the_task_incomplete() -> None:
    """A task is incomplete for a client that needs elements which no client waited for,
    as they were not kept.
    """
    task = hosted(consumers=2)
    task.skip((0, 4))
    for consumer in (0, 1):
        stream = task.dealing.join(f"k{consumer}", m.Reader(consumer))
        stream.grant(m.StreamGrant(1, 2, 9, 1000, 0), 0.0)
        assert task.report(0.0).incomplete == (consumer == 1)


def test_everything_is_kept_once_all_is_made() -> None:
    """Once all elements are made a coordinated task keeps them for a successor, as it
    blocks no consumer. Other tasks keep all anyway.
    """
    task = hosted(consumers=1)
    task.add(made(0, 2), now=0.0)
    task.total = 2
    task.skip((2,))
    assert task.dealing.ahead == occupied(10)
    other = hosted()
    other.add(made(0, 2), now=0.0)
    other.skip((2,))
    assert other.dealing.ahead == occupied(10)


def test_only_shared_caches_leave_readers_behind() -> None:
    """A shared cache counts what it drops for a slow trainer, and other tasks skip no
    reader.
    """
    assert hosted().skipped == {}
    task = hosted(cache=True)
    assert task.skipped == task.report(0.0).skipped == {}


def test_tasks_that_are_read_in_turn_share_the_room() -> None:
    """Tasks read in turn share the buffer equally within their iteration, and other
    tasks use all of it.
    """
    for task, room in ((hosted(consumers=1), 250), (hosted(), 1000)):
        task.started = True
        assert task.allow(1000, 0, lambda stream: True, neighbours=4)
        assert task.allowed == room


@pytest.mark.parametrize(("room", "cache_bytes"), [(3, 0), (1000, 1)])
def test_a_task_with_nothing_ahead_makes_its_next_element(room: int, cache_bytes: int) -> None:
    """A task may produce an element while its readers have all others, although its
    share of the buffer, or of a shared cache, is less than a byte.
    """
    task = hosted(cache=True) if cache_bytes else hosted(consumers=1)
    task.started = True
    assert task.allow(room, cache_bytes, lambda stream: True, neighbours=4)
    assert task.allowed == 1
    task.add(made(0), now=0.0)
    assert not task.allow(room, cache_bytes, lambda stream: True, neighbours=4)


def test_a_task_that_nobody_reads_makes_a_few_elements_more() -> None:
    """A task without readers makes a few elements more after its last reader left; with
    a reader or for a save only bytes limit it.
    """
    task = hosted()
    task.started = True
    task.add(made(0, 5), now=0.0)
    assert task.allow(1000, 0, lambda stream: True)
    assert (task.allowed, task.unread) == (1000, 5 + UNREAD_ELEMENTS)
    task.add(made(5, 5), now=0.0)
    assert not task.allow(1000, 0, lambda stream: True), "the bound stays where it was"
    task.dealing.join("k", m.Reader())
    assert task.allow(1000, 0, lambda stream: True)
    assert task.unread is None
    saving = hosted()
    saving.definition = changed(saving.definition, save_path="/save")
    saving.started = True
    assert saving.allow(1000, 0, lambda stream: True)
    assert saving.unread is None


def test_a_shared_cache_is_not_filled_before_its_fastest_reader_comes() -> None:
    """A shared cache makes at most half of its window ahead of its fastest reader."""
    task = hosted(cache=True)
    task.started = True
    assert task.allow(1000, 300, lambda stream: True)
    assert task.allowed == 150


def test_clients_are_told_what_a_message_depends_on_once() -> None:
    """The task tells a client once how far each source has started, which never
    shrinks, and the origin of the task.
    """
    task = hosted()
    task.feeds = [SplitFeed.of(0, [Split(0, 0, 4), Split(0, 4, 8)])]
    task.reach(((3, 1),))
    task.reach(((1, 0),))
    assert task.feeds[0].reached == (3, 1)
    stream = task.dealing.join("k", m.Reader())
    news = task.news_for(stream)
    assert news is not None
    assert news.ledger == ((Split(0, 0, 4), Split(0, 4, 8)),)
    assert news.origin is not None
    assert task.news_for(stream) is None


def test_clients_that_share_a_cache_are_told_nothing() -> None:
    """Clients of a shared cache get no lineage, as their missed elements are never made
    again.
    """
    task = hosted(cache=True)
    assert task.news_for(task.dealing.join("k", m.Reader())) is None


def test_who_comes_late_is_told_at_once() -> None:
    """A late client gets the lineage of other clients' elements at once; without any
    elements the task sends no lineage.
    """
    task = hosted()
    task.dealing.join("k", m.Reader())
    task.dealing.join("l", m.Reader())
    assert task.news_of_others(lambda stream: True) == []
    task.add(made(0), now=0.0)
    assert [client for client, _ in task.news_of_others(lambda stream: stream.client == "k")] == [
        "k"
    ]
    assert [client for client, _ in task.news_of_others(lambda stream: True)] == ["l"]
