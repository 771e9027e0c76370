"""Tests of ``zmqdata.core.worker.dealing``."""

from __future__ import annotations

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.coordinated import KEPT_BYTES, RoundRobin
from zmqdata.core.worker.cross_trainer import Windowed
from zmqdata.core.worker.dealing import FirstCome, dealing_for
from zmqdata.core.worker.streams import Portion, Stream

DEFINITION = m.TaskDefinition(1, 1, 2000, "dataset", "digest", "OFF", 1, None, (), ())


def portion(first: int, count: int = 2, size: int = 10) -> Portion:
    return Portion(first, count, size, b"", (), b"")


def opened(dealing: FirstCome, client: str, elements: int = 100) -> Stream:
    stream = dealing.join(client, m.Reader())
    stream.grant(m.StreamGrant(1, 1, elements, 1 << 20, 0))
    return stream


def dealt(dealing: FirstCome) -> list[tuple[str, int]]:
    return [(stream.client, one.first) for stream, one in dealing.deal(lambda stream: stream.open)]


def test_blocks_go_to_whoever_has_least_in_flight() -> None:
    """Two clients with equal credit get blocks in turn, and each block goes to a single
    client.
    """
    dealing = FirstCome()
    opened(dealing, "a"), opened(dealing, "b")
    for first in (0, 2, 4, 6):
        dealing.add(portion(first))
    assert dealing.ahead == 40
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
    assert (dealing.ahead, dealing.has_all(one)) == (10, False)
    one.grant(m.StreamGrant(1, 1, 99, 1 << 20, 2))
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
    busy.grant(m.StreamGrant(1, 1, 3, 8 << 20, 1))
    assert views(dealing) == [("a", 26, 51)]


def test_views_of_a_released_client_go_to_others() -> None:
    """The others get exactly those elements of a block that a released client had."""
    dealing = FirstCome()
    for client in "ab":
        opened(dealing, client, elements=3)
    dealing.add(portion(0, count=6))
    assert views(dealing) == [("a", 0, 3), ("b", 3, 6)]
    assert dealing.release("a", RangeSet([(0, 1)]))
    dealing.streams["b"].grant(m.StreamGrant(1, 1, 9, 1 << 20, 3))
    assert views(dealing) == [("b", 1, 3)]


def test_nothing_goes_without_credit_or_to_a_closed_stream() -> None:
    """A block waits for a stream that is open and has credit."""
    dealing = FirstCome()
    closed, poor = opened(dealing, "a"), opened(dealing, "b", elements=0)
    closed.open = False
    dealing.add(portion(0))
    assert dealt(dealing) == []
    assert not dealing.has_all(poor)
    poor.grant(m.StreamGrant(1, 1, 2, 100, 0))
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
    assert dealing.ahead == 30
    assert dealt(dealing) == [("b", 0), ("b", 2), ("b", 4)]
    assert dealing.release("nobody", RangeSet())


def test_what_a_released_client_took_with_it_is_missed() -> None:
    """Elements that a released client handed out and did not report are missing."""
    dealing = FirstCome()
    stream = opened(dealing, "a")
    dealing.add(portion(0))
    dealt(dealing)
    stream.grant(m.StreamGrant(1, 1, 100, 1 << 20, 2))
    assert not dealing.release("a", RangeSet())


def test_a_task_is_dealt_as_its_job_is_read() -> None:
    """A task without further parameters gives elements to the first client that asks,
    and a task with a shared cache gives all to each.
    """
    assert isinstance(dealing_for(DEFINITION, 100), FirstCome)
    assert isinstance(dealing_for(structs.replace(DEFINITION, cache=True), 100), Windowed)


def test_many_tasks_of_one_reader_keep_little_each() -> None:
    """The blocks kept for the successor of a reader in turn share a limit over all of
    its tasks.
    """
    for consumers, kept in ((1, KEPT_BYTES // 16), (2, KEPT_BYTES // 2)):
        dealing = dealing_for(
            structs.replace(DEFINITION, num_consumers=consumers, num_shards=16), 0
        )
        assert isinstance(dealing, RoundRobin)
        assert [lane.most_kept for lane in dealing.lanes] == [kept] * consumers
