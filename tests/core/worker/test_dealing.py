"""Tests of ``zmqdata.core.worker.dealing``."""

from __future__ import annotations

import pytest

from tests.definitions import changed, define
from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.coordinated import KEPT_BYTES, RoundRobin
from zmqdata.core.worker.cross_trainer import Windowed
from zmqdata.core.worker.dealing import FirstCome, dealing_for, fair_shares
from zmqdata.core.worker.streams import ANSWER_TIME, Portion, Stream, occupied

DEFINITION = define(1, 1, 2000, "dataset", "digest", "OFF", 1, None, (), ())


def portion(first: int, count: int = 2, size: int = 10) -> Portion:
    return Portion(first, count, size, b"", (), b"")


def opened(dealing: FirstCome, client: str, elements: int = 100) -> Stream:
    stream = dealing.join(client, m.Reader())
    stream.grant(m.StreamGrant(1, 1, elements, 1 << 20, 0), 0.0)
    return stream


def dealt(dealing: FirstCome) -> list[tuple[str, int]]:
    return [(stream.client, one.first) for stream, one in dealing.deal(lambda stream: stream.open)]


def test_blocks_go_to_whoever_has_least_in_flight() -> None:
    """Two clients with equal credit get elements in turn, and each element goes to a
    single client.
    """
    dealing = FirstCome()
    opened(dealing, "a"), opened(dealing, "b")
    for first in (0, 2, 4, 6):
        dealing.add(portion(first, count=1))
    assert dealing.ahead == 4 * occupied(10)
    assert dealt(dealing) == [("a", 0), ("b", 2), ("a", 4), ("b", 6)]
    assert (dealing.ahead, dealt(dealing)) == (0, [])


def views(dealing: FirstCome) -> list[tuple[str, int, int]]:
    """Return client, first element and end of what is sent now."""
    return [
        (stream.client, one.first + one.skip, one.first + one.stop)
        for stream, one in dealing.deal(lambda stream: stream.open)
    ]


def test_clients_that_share_get_what_they_have_room_for() -> None:
    """A block is cut into views if several clients read. A client that reads alone gets
    all of it.
    """
    dealing = FirstCome()
    one = opened(dealing, "a", elements=2)
    opened(dealing, "b", elements=3)
    dealing.add(portion(0, count=10))
    assert views(dealing) == [("a", 0, 2), ("b", 2, 5)]
    assert (dealing.ahead, dealing.has_all(one)) == (occupied(10), False)
    one.grant(m.StreamGrant(1, 1, 99, 1 << 20, 2), 0.0)
    assert views(dealing) == [("a", 5, 10)]
    assert (dealing.ahead, dealing.has_all(one)) == (0, True)
    alone = FirstCome()
    opened(alone, "a", elements=2)
    alone.add(portion(0, count=10))
    assert views(alone) == [("a", 0, 10)]


def test_a_large_block_is_cut_into_few_views() -> None:
    """Each view has all bytes of its block, so the views of a large block have at least
    a quarter of its elements. Only a client with nothing in flight gets more than it
    has room for.
    """
    dealing = FirstCome()
    busy = opened(dealing, "a", elements=3)
    dealing.add(portion(0, count=1))
    opened(dealing, "b", elements=1)
    dealing.add(portion(1, count=100, size=2 << 20))
    assert views(dealing) == [("a", 0, 1), ("b", 1, 26)]
    busy.grant(m.StreamGrant(1, 1, 3, 8 << 20, 1), 0.0)
    assert views(dealing) == [("a", 26, 51)]


def test_views_of_a_released_client_go_to_others() -> None:
    """The others get exactly those elements of a block that a released client had."""
    dealing = FirstCome()
    for client in "ab":
        opened(dealing, client, elements=3)
    dealing.add(portion(0, count=6))
    assert views(dealing) == [("a", 0, 3), ("b", 3, 6)]
    assert dealing.release("a", RangeSet([(0, 1)]))
    dealing.streams["b"].grant(m.StreamGrant(1, 1, 9, 1 << 20, 3), 0.0)
    assert views(dealing) == [("b", 1, 3)]


def test_nothing_goes_without_credit_or_to_a_closed_stream() -> None:
    """A block waits for a stream that is open and has credit."""
    dealing = FirstCome()
    closed, poor = opened(dealing, "a"), opened(dealing, "b", elements=0)
    closed.open = False
    dealing.add(portion(0))
    assert dealt(dealing) == []
    assert not dealing.has_all(poor)
    poor.grant(m.StreamGrant(1, 1, 2, 100, 0), 0.0)
    assert dealt(dealing) == [("b", 0)]
    assert dealing.has_all(poor)


def test_what_a_released_client_had_goes_to_others() -> None:
    """The undelivered blocks of a released client are delivered first, in their
    order.
    """
    dealing = FirstCome()
    opened(dealing, "a")
    for first in (0, 2):
        dealing.add(portion(first))
    dealt(dealing)
    dealing.add(portion(4))
    assert dealing.release("a", RangeSet([(0, 1)]))
    opened(dealing, "b")
    assert dealing.ahead == 3 * occupied(10)
    assert dealt(dealing) == [("b", 0), ("b", 2), ("b", 4)]
    assert dealing.release("nobody", RangeSet())


def test_what_a_released_client_took_with_it_is_missed() -> None:
    """Elements that a released client handed out and did not report are missing."""
    dealing = FirstCome()
    stream = opened(dealing, "a")
    dealing.add(portion(0))
    dealt(dealing)
    stream.grant(m.StreamGrant(1, 1, 100, 1 << 20, 2), 0.0)
    assert not dealing.release("a", RangeSet())


def test_a_task_is_dealt_as_its_job_is_read() -> None:
    """A task without further parameters gives elements to the first client that asks,
    and a task with a shared cache gives all to each.
    """
    assert isinstance(dealing_for(DEFINITION, 100), FirstCome)
    assert isinstance(dealing_for(changed(DEFINITION, cache=True), 100), Windowed)


def test_many_tasks_of_one_reader_keep_little_each() -> None:
    """The blocks kept for the successor of a reader in turn share a limit over all of
    its tasks.
    """
    for consumers, kept in ((1, KEPT_BYTES // 16), (2, KEPT_BYTES // 2)):
        dealing = dealing_for(changed(DEFINITION, num_consumers=consumers, num_shards=16), 0)
        assert isinstance(dealing, RoundRobin)
        assert [lane.most_kept for lane in dealing.lanes] == [kept] * consumers


# --- clients of unequal pace, and the end of a task


def reading(dealing: FirstCome, client: str, pace: float, *, waits: bool = False) -> Stream:
    stream = opened(dealing, client)
    stream.pace, stream.waits = pace, waits
    return stream


def asked(dealing: FirstCome, now: float = 10.0) -> list[tuple[str, int]]:
    return [(stream.client, keep) for stream, keep in dealing.ask_back(lambda one: one.open, now)]


def test_the_client_that_ends_first_gets_the_next_block() -> None:
    """A client that takes ten times as long for an element gets a tenth of the
    blocks.
    """
    dealing = FirstCome()
    reading(dealing, "fast", 0.1), reading(dealing, "slow", 1.0)
    for first in range(44):
        dealing.add(portion(first, count=1))
    names = [client for client, _ in dealt(dealing)]
    assert (names.count("fast"), names.count("slow")) == (40, 4)


def test_a_client_that_holds_more_than_its_share_is_asked() -> None:
    """At the end of a task, a client keeps as much as it can hand out until the waiting
    client has handed out the rest.
    """
    dealing = FirstCome()
    reading(dealing, "slow", 0.3)
    dealing.add(portion(0, count=41))
    dealt(dealing)
    assert asked(dealing) == [], "nobody waits"
    reading(dealing, "fast", 0.1, waits=True)
    assert asked(dealing) == [("slow", 9)]
    assert asked(dealing) == [], "one request at a time"


def test_no_client_is_asked_while_something_is_left_to_deal() -> None:
    """A client that waits gets what is there before others are asked."""
    dealing = FirstCome()
    reading(dealing, "slow", 0.3)
    dealing.add(portion(0, count=40))
    dealt(dealing)
    dealing.add(portion(40, count=10))
    reading(dealing, "fast", 0.1, waits=True)
    assert asked(dealing) == []


def test_what_comes_back_is_dealt_first() -> None:
    """Elements that were given back go to the client that waits, before all others."""
    dealing = FirstCome()
    slow = reading(dealing, "slow", 1.0)
    dealing.add(portion(0, count=4, size=40))
    dealt(dealing)
    reading(dealing, "fast", 0.1, waits=True)
    slow.ask_back(0.0)
    dealing.restore(slow.grant(m.StreamGrant(1, 1, 1, 1 << 20, 0, recall=1, kept=1), 0.0))
    assert dealing.ahead == occupied(40)
    assert views(dealing) == [("fast", 1, 4)]
    assert dealing.ahead == 0


def test_the_end_is_held_back_while_others_may_give_elements() -> None:
    """A client learns of the end when it waits and no other is asked, or when others
    have nothing to give. An answer is awaited for a second.
    """
    dealing = FirstCome()
    slow, fast = reading(dealing, "slow", 1.0), reading(dealing, "fast", 0.1)
    dealing.add(portion(0, count=4))
    usable = lambda one: one.open  # noqa: E731 - the same for all
    assert dealing.may_end(fast, usable, 0.0)
    slow.give(portion(0, count=4))
    assert not dealing.may_end(fast, usable, 0.0)
    fast.waits = True
    assert dealing.may_end(fast, usable, 0.0)
    slow.ask_back(0.0)
    assert not dealing.may_end(fast, usable, ANSWER_TIME - 0.1)
    assert dealing.may_end(fast, usable, ANSWER_TIME)
    assert not dealing.may_end(slow, usable, 9.0), "what it gives back may be for itself"


def test_a_limited_client_never_gets_more_than_it_granted() -> None:
    """The worker cuts a block of a limited job to what a client has room for, even if
    the client has nothing in flight.
    """
    dealing = dealing_for(changed(DEFINITION, max_outstanding_requests=9), 0)
    assert isinstance(dealing, FirstCome)
    opened(dealing, "a", elements=2)
    dealing.add(portion(0, count=9))
    assert views(dealing) == [("a", 0, 2)]


@pytest.mark.parametrize("count", [0, 1, 7, 100, 1001])
def test_shares_make_all_end_together(count: int) -> None:
    """No client ends later than another could have ended with one element more."""
    pace, busy = {"a": 0.1, "b": 0.25, "c": 1.0}, {"b", "c"}
    share = fair_shares(count, pace, busy)
    assert sum(share.values()) == count
    end = {name: (share[name] + (name in busy)) * pace[name] for name in pace if share[name]}
    best = min((share[name] + (name in busy) + 1) * pace[name] for name in pace)
    assert all(seconds <= best + 1e-9 for seconds in end.values())


def test_clients_that_all_wait_get_elements_in_turn() -> None:
    """A worker that is slower than all loops gives its elements to one after the
    other.
    """
    dealing = FirstCome()
    for client in "abc":
        reading(dealing, client, 0.001, waits=True)
    got = ""
    for first in range(9):
        dealing.add(portion(first, count=1))
        [(client, _)] = dealt(dealing)
        got += client
        stream = dealing.streams[client]
        stream.grant(m.StreamGrant(1, 1, 100, 1 << 20, stream.sent), 0.0)
    assert got == "abc" * 3
