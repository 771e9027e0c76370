"""Test the client's record of the lineage that its workers send."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.core.client.lineage import LineageKept
from zmqdata.core.ranges import RangeSet
from zmqdata.splits import Split

ORIGIN = m.Origin(0, 9, None, 5, 0)
NOTHING = RangeSet()


def entries(*places: int) -> tuple[Split, ...]:
    return tuple(Split(0, 10 * at, 10 * at + 10) for at in places)


def state(number: int, need: int) -> m.TaskState:
    return m.TaskState(number, b"here", (need,))


class Client:
    """The record of a single task."""

    def __init__(self) -> None:
        self.kept = LineageKept()

    def hear(
        self,
        base: int,
        ledger: tuple[Split, ...],
        *states: m.TaskState,
        whole: bool = False,
        had: RangeSet = NOTHING,
    ) -> None:
        news = m.Lineage(1, 7000, 1, (base,), (ledger,), states, ORIGIN if whole else None)
        self.kept.receive(news, had)

    def part(self, had: RangeSet = NOTHING) -> m.TaskPart:
        return self.kept.parts({7000: had}, {})[1][0]


def test_news_follow_what_is_known() -> None:
    """Later lineage adds entries, and extends an entry that was told in part."""
    client = Client()
    client.hear(0, (*entries(0), Split(0, 10, 13)), whole=True)
    client.hear(1, entries(1, 2))
    assert client.part().ledger == (entries(0, 1, 2),)
    assert client.part().bases == (0,)


def test_what_an_earlier_host_had_started_stays() -> None:
    """A new host begins earlier and has started less, and the client keeps the union of
    both lineages.
    """
    client = Client()
    client.hear(2, entries(2, 3, 4), whole=True)
    client.hear(1, entries(1, 2), whole=True)
    assert (client.part().bases, client.part().ledger) == ((1,), (entries(1, 2, 3, 4),))
    client.hear(3, (Split(0, 30, 32),))
    assert client.part().ledger == (entries(1, 2, 3, 4),)


def test_a_gap_means_that_nobody_needs_what_is_before() -> None:
    """A gap in the lineage means that no client needs the entries before it, so they
    count as used up.
    """
    client = Client()
    client.hear(0, entries(0), whole=True)
    client.hear(3, entries(3), whole=True)
    assert (client.part().bases, client.part().ledger) == ((3,), (entries(3),))
    assert client.kept.parts({}, {})[0] == (m.SourcePart(0, ((0, 10),), 0),)


def test_what_is_delivered_leaves_the_ledger() -> None:
    """The client drops states that no replay needs, with the entries that no other
    state needs.
    """
    client = Client()
    client.hear(0, entries(0, 1), whole=True)
    client.hear(2, entries(2), state(5, 1), state(9, 2), had=RangeSet([(0, 9)]))
    part = client.part(RangeSet([(0, 9)]))
    assert (part.bases, part.ledger, part.states) == ((2,), (entries(2),), (state(9, 2),))
    assert client.kept.parts({}, {})[0] == (m.SourcePart(0, ((0, 20),), 0),)


def test_states_come_once_and_in_order() -> None:
    """The client keeps a state once, also if another host sends it again."""
    client = Client()
    client.hear(0, entries(0, 1, 2), state(5, 1), whole=True)
    client.hear(0, entries(0, 1), state(3, 0), state(5, 1), whole=True)
    assert [one.number for one in client.part().states] == [3, 5]


def test_only_useful_states_are_told() -> None:
    """The client sends no state inside a gap before which it has everything, as such a
    state is useless.
    """
    client = Client()
    client.hear(0, entries(0, 1), state(2, 0), state(4, 0), state(6, 1), whole=True)
    assert [one.number for one in client.part(RangeSet([(0, 5)])).states] == [4]


def test_what_others_used_up_is_gone() -> None:
    """The dispatcher tells a late client which splits are used up."""
    kept = LineageKept()
    kept.begin((m.SourcePart(1, ((0, 7),), 0),))
    assert kept.parts({}, {})[0] == (m.SourcePart(1, ((0, 7),), 0),)


def test_news_without_a_beginning_are_not_believed() -> None:
    """The client ignores further lineage of a task without its origin."""
    client = Client()
    client.hear(3, entries(3))
    assert client.kept.tasks == {}


def test_a_task_without_states_keeps_everything() -> None:
    """A task without states keeps all entries, and lineage without entries changes
    nothing.
    """
    client = Client()
    client.hear(0, entries(0), whole=True, had=RangeSet([(0, 100)]))
    client.hear(1, ())
    assert client.part().ledger == (entries(0),)


def test_totals_are_told() -> None:
    """The record of a task includes its total."""
    client = Client()
    client.hear(0, entries(0), whole=True)
    assert client.kept.parts({}, {7000: 12})[1][0].total == 12
