"""Test the lineage that a client gets before the elements that depend on it."""

from __future__ import annotations

from tests.definitions import define
from zmqdata import messages as m
from zmqdata.core.worker.ledger import SplitFeed
from zmqdata.core.worker.lineage import Agreement, KnownLineage, news_for
from zmqdata.decisions import Decision, Decisions
from zmqdata.splits import Split

DEFINITION = define(
    7000,
    2,
    1,
    "d",
    "digest",
    "DYNAMIC",
    9,
    None,
    ((Split(0, 0, 4), Split(0, 8, 12)),),
    (),
    iteration_seed=5,
    stream=3,
)

UNDECIDED = Agreement.of(DEFINITION)


def feed(*reached: int) -> SplitFeed:
    made = SplitFeed.of(0, DEFINITION.ledger[0])
    made.reached = (reached[0], reached[1])
    return made


def state(number: int) -> m.TaskState:
    return m.TaskState(number, b"here", (0,))


def test_a_stream_begins_with_everything() -> None:
    """The first lineage of a stream has the task's origin, all started entries and all
    states, and no unstarted entry.
    """
    found = news_for(None, DEFINITION, [feed(1, 2)], [state(4)], UNDECIDED)
    assert found is not None
    news, told = found
    assert news.origin == m.Origin(3, 9, None, 5, 0)
    assert (news.task, news.attempt, news.bases) == (7000, 2, (0,))
    assert news.ledger == ((Split(0, 0, 4), Split(0, 8, 10)),)
    assert news.states == (state(4),)
    assert told == KnownLineage(((1, 2),), 4)


def test_what_is_new_follows() -> None:
    """Later lineage repeats an entry that was partly started and has grown, but no
    known state.
    """
    found = news_for(
        KnownLineage(((0, 2),), 4), DEFINITION, [feed(1, 1)], [state(4), state(6)], UNDECIDED
    )
    assert found is not None
    news, told = found
    assert (news.origin, news.bases) == (None, (0,))
    assert news.ledger == ((Split(0, 0, 4), Split(0, 8, 9)),)
    assert news.states == (state(6),)
    assert told == KnownLineage(((1, 1),), 6)


def test_nothing_is_told_twice() -> None:
    """The worker sends no lineage without a change, and a new state without entries."""
    told = KnownLineage(((1, 0),), 4)
    assert news_for(told, DEFINITION, [feed(1, 0)], [state(4)], UNDECIDED) is None
    found = news_for(told, DEFINITION, [feed(1, 0)], [state(5)], UNDECIDED)
    assert found is not None
    assert (found[0].ledger, found[0].states) == (((),), (state(5),))


def test_a_static_part_says_which_it_is() -> None:
    """The first lineage of a static part has its number and the number of parts."""
    definition = define(7, 1, 1, "d", "digest", "DATA", 9, None, (), (), num_shards=4, shard=2)
    found = news_for(None, definition, [], [], UNDECIDED)
    assert found is not None
    assert found[0].origin == m.Origin(0, 9, 2, 0, 4)
    assert news_for(found[1], definition, [], [], UNDECIDED) is None


def test_what_was_decided_is_told_once_it_is_durable() -> None:
    """The first lineage has all durable decisions. A decision that has grown is
    repeated as a whole, without parts in flight.
    """
    agreement = Agreement(Decisions([Decision("/0", 0, 4)], 2), growing=2, version=1)
    found = news_for(None, DEFINITION, [feed(1, 0)], [], agreement)
    assert found is not None
    assert (found[0].first_decision, found[0].decisions) == (2, (Decision("/0", 0, 4),))
    agreement.ask = m.ElementsDecided("w", 7000, 2, 2, 2, (Decision("/0", 0, 9, (5,)),))
    assert news_for(found[1], DEFINITION, [feed(1, 0)], [], agreement) is None
    agreement.kept.take(2, agreement.ask.decisions)
    agreement.version, agreement.ask = 2, None
    again = news_for(found[1], DEFINITION, [feed(1, 0)], [], agreement)
    assert again is not None
    assert (again[0].first_decision, again[0].decisions) == (2, (Decision("/0", 0, 9, (5,)),))
    agreement.kept.take(3, (Decision("/0", 9, 10), Decision("/0", 10, 11)))
    agreement.kept.trim(4)
    agreement.version = 3
    late = news_for(again[1], DEFINITION, [feed(1, 0)], [], agreement)
    assert late is not None
    assert (late[0].first_decision, late[0].decisions) == (4, (Decision("/0", 10, 11),))


def test_who_asks_is_answered_though_nothing_is_new() -> None:
    """A client that asks is answered once even without changes, with the position up to
    which the answer holds.
    """
    found = news_for(None, DEFINITION, [feed(1, 0)], [], UNDECIDED, asks=0, upto=3)
    assert found is not None
    assert news_for(found[1], DEFINITION, [feed(1, 0)], [], UNDECIDED, asks=0, upto=5) is None
    again = news_for(found[1], DEFINITION, [feed(1, 0)], [], UNDECIDED, asks=1, upto=7)
    assert again is not None
    assert (again[0].asks, again[0].upto, again[0].ledger) == (1, 7, ((),))
    assert news_for(again[1], DEFINITION, [feed(1, 0)], [], UNDECIDED, asks=1, upto=9) is None
