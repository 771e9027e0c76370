"""Test the worker's record of the ledgers that it feeds to its runners."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.core.worker.ledger import SplitFeed
from zmqdata.splits import Split

ASK = m.RequestSplits("w", 1, 1, 0, 0, 0, waiting=False)


def test_one_ask_is_under_way() -> None:
    """A request is sent once, whatever the pace. A request for another repetition, or
    of a waiting source, replaces it.
    """
    feed = SplitFeed(0)
    assert feed.want(ASK, 0.0)
    assert not feed.want(m.RequestSplits("w", 1, 1, 0, 0, 0, waiting=False, pace=2.0), 0.0)
    assert feed.want(m.RequestSplits("w", 1, 1, 0, 0, 0), 0.0)
    assert feed.want(m.RequestSplits("w", 1, 1, 0, 1, 0), 0.0)


def test_an_ask_is_repeated_until_entries_come() -> None:
    """A request is repeated each second until new entries come, and an answer without
    new entries does not end it.
    """
    feed = SplitFeed(0)
    assert feed.overdue_request(9.0, 1.0) is None
    feed.want(ASK, 0.0)
    assert feed.overdue_request(0.5, 1.0) is None
    assert feed.overdue_request(1.0, 1.0) == ASK
    assert feed.overdue_request(1.5, 1.0) is None
    assert feed.append(m.SplitsAssigned(1, 1, 0, 0, ())) == ()
    assert feed.append(m.SplitsAssigned(1, 1, 0, 0, (Split(0, 0, 2),))) == (Split(0, 0, 2),)
    assert (feed.ask, feed.have) == (None, 1)


def test_what_came_with_a_task_counts_as_started() -> None:
    """Entries that came with a task count as started, as an earlier host may have
    started them. Later entries count as far as they were started.
    """
    feed = SplitFeed.of(5, [Split(0, 10, 20)])
    assert (feed.have, feed.reached, feed.started(0)) == (6, (6, 0), (Split(0, 10, 20),))
    feed.append(m.SplitsAssigned(1, 1, 0, 6, (Split(0, 40, 50), Split(0, 60, 70))))
    assert feed.started(6) == ()
    feed.reached = (6, 3)
    assert feed.started(5) == (Split(0, 10, 20), Split(0, 40, 43))
    feed.reached = (7, 1)
    assert feed.started(6) == (Split(0, 40, 50), Split(0, 60, 61))


def test_a_cut_shortens_what_clients_may_be_told() -> None:
    """Returned splits belong to another task, so the entry that contained them ends
    earlier for clients.
    """
    feed = SplitFeed(0)
    feed.append(m.SplitsAssigned(1, 1, 0, 0, (Split(0, 0, 10), Split(0, 40, 50))))
    feed.shorten(1, 4)
    feed.reached = (1, 0)
    assert (feed.started(0), feed.have) == ((Split(0, 0, 4),), 1)


def test_what_was_sent_before_a_cut_is_not_taken() -> None:
    """The worker takes only entries with the number of the last cut, as earlier entries
    were cut with the rest.
    """
    feed = SplitFeed(3)
    feed.want(ASK, 0.0)
    feed.shorten(2, 17)
    assert (feed.have, feed.kept, feed.stop) == (2, 2, 17)
    assert feed.ask is not None
    assert (feed.ask.have, feed.ask.cut) == (2, 1)
    entry = Split(0, 40, 50)
    assert feed.append(m.SplitsAssigned(1, 1, 0, 2, (entry,))) == ()
    assert feed.append(m.SplitsAssigned(1, 1, 0, 2, (entry,), 1)) == (entry,)
    feed.shorten(0, 0)
    assert (feed.cut, feed.ask) == (2, None)
