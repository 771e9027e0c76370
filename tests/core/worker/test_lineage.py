"""Facts about the lineage that a client is told before it is sent what depends on
it.
"""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.core.worker.ledger import SplitFeed
from zmqdata.core.worker.lineage import Agreement, KnownLineage, news_for
from zmqdata.decisions import Decision, Decisions
from zmqdata.splits import Split

DEFINITION = m.TaskDefinition(
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
    """Who the task is, what it has started, and all states; nothing of what it has not
    started.
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
    """The entry that was not used up comes again, longer; states that are known do
    not.
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
    """Where nothing has changed there is no message; a new state alone comes without
    entries.
    """
    told = KnownLineage(((1, 0),), 4)
    assert news_for(told, DEFINITION, [feed(1, 0)], [state(4)], UNDECIDED) is None
    found = news_for(told, DEFINITION, [feed(1, 0)], [state(5)], UNDECIDED)
    assert found is not None
    assert (found[0].ledger, found[0].states) == (((),), (state(5),))


def test_a_static_part_says_which_it_is() -> None:
    """Its number comes with the first message, as does how many parts there are."""
    definition = m.TaskDefinition(
        7, 1, 1, "d", "digest", "DATA", 9, None, (), (), num_shards=4, shard=2
    )
    found = news_for(None, definition, [], [], UNDECIDED)
    assert found is not None
    assert found[0].origin == m.Origin(0, 9, 2, 0, 4)
    assert news_for(found[1], definition, [], [], UNDECIDED) is None


def test_what_was_decided_is_told_once_it_is_durable() -> None:
    """A stream begins with all; a decision that has grown comes again, whole, and
    nothing that is still on its way.
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
    """Once, with how far the answer goes."""
    found = news_for(None, DEFINITION, [feed(1, 0)], [], UNDECIDED, asks=0, upto=3)
    assert found is not None
    assert news_for(found[1], DEFINITION, [feed(1, 0)], [], UNDECIDED, asks=0, upto=5) is None
    again = news_for(found[1], DEFINITION, [feed(1, 0)], [], UNDECIDED, asks=1, upto=7)
    assert again is not None
    assert (again[0].asks, again[0].upto, again[0].ledger) == (1, 7, ((),))
    assert news_for(again[1], DEFINITION, [feed(1, 0)], [], UNDECIDED, asks=1, upto=9) is None
