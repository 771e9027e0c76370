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
    """Two clients with equal credit get blocks in turn, and nobody gets one twice."""
    dealing = FirstCome()
    opened(dealing, "a"), opened(dealing, "b")
    for first in (0, 2, 4, 6):
        dealing.add(portion(first))
    assert dealing.ahead == 40
    assert dealt(dealing) == [("a", 0), ("b", 2), ("a", 4), ("b", 6)]
    assert (dealing.ahead, dealt(dealing)) == (0, [])


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
    """Blocks that a client had and nobody delivered come first again, in their
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
    """Elements that were handed out and never reported are not here any more."""
    dealing = FirstCome()
    stream = opened(dealing, "a")
    dealing.add(portion(0))
    dealt(dealing)
    stream.grant(m.StreamGrant(1, 1, 100, 1 << 20, 2))
    assert not dealing.release("a", RangeSet())


def test_a_task_is_dealt_as_its_job_is_read() -> None:
    """Without more being asked for, the first to come is the first to get; with a
    cache, all get all.
    """
    assert isinstance(dealing_for(DEFINITION, 100), FirstCome)
    assert isinstance(dealing_for(structs.replace(DEFINITION, cache=True), 100), Windowed)


def test_many_tasks_of_one_reader_keep_little_each() -> None:
    """What is kept for a successor of the one who reads them in turn is for all of them
    together.
    """
    for consumers, kept in ((1, KEPT_BYTES // 16), (2, KEPT_BYTES // 2)):
        dealing = dealing_for(
            structs.replace(DEFINITION, num_consumers=consumers, num_shards=16), 0
        )
        assert isinstance(dealing, RoundRobin)
        assert [lane.most_kept for lane in dealing.lanes] == [kept] * consumers
