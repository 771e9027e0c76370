"""Test what the dispatcher counts for an iteration."""

from __future__ import annotations

from zmqdata.core.dispatcher.state.tasks import Tally


def test_splits_are_counted_by_task() -> None:
    """Returned splits do not count, and each lost host counts the splits that the task
    has then.
    """
    tally = Tally()
    tally.hand_out(1, 10)
    tally.hand_out(2, 5)
    tally.hand_out(1, -3)
    tally.lose_host(1)
    tally.lose_host(1)
    tally.lose_host(3)
    assert (tally.splits, tally.rehosted) == ({1: 7, 2: 5}, 14)


def test_deliveries_are_counted_by_client() -> None:
    """Deliveries restored from a snapshot have no client and are not counted again."""
    tally = Tally()
    for client, elements in (("k", 3), ("l", 1), ("k", 4), ("", 9)):
        tally.deliver(client, elements)
    assert tally.delivered == {"k": 7, "l": 1}
