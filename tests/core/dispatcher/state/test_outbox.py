"""Test the decisions of a dispatcher in a turn."""

from __future__ import annotations

from msgspec import structs

from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.lineage import MARKS_KEPT
from zmqdata.errors import NotFoundError
from zmqdata.messages import JobParameters, JournalCounts, Probe, RequestRefused
from zmqdata.updates import BeginIncarnationUpdate, BeginLifeUpdate


def test_a_fact_is_true_at_once_and_written_first() -> None:
    """A committed update changes the state at once, and precedes later messages."""
    out = Outbox(1)
    update = BeginIncarnationUpdate(1, JobParameters("job", "dataset", "OFF"))
    out.commit(update)
    out.send("peer", Probe())
    out.note("info", "text")
    assert "job" in out.state.jobs
    assert out.drain() == [e.Commit(update), e.Send("peer", Probe()), e.LogLine("info", "text")]
    assert out.drain() == []


def test_nothing_is_sent_to_nobody() -> None:
    """The outbox drops a message to a peer that is not connected."""
    out = Outbox(1)
    out.send(None, Probe())
    assert out.drain() == []


def test_a_refusal_names_its_error() -> None:
    """A refusal carries the name of its error class."""
    out = Outbox(1)
    out.refuse("peer", "request", NotFoundError, "text")
    assert out.drain() == [e.Send("peer", RequestRefused("request", "NotFoundError", "text"))]


def test_seeds_depend_on_dispatcher_and_names_only() -> None:
    """Derived seeds are equal for equal names, differ otherwise, and fit 63 bits."""
    assert Outbox(1).derive_seed(2, 3) == Outbox(1).derive_seed(2, 3)
    assert len({Outbox(1).derive_seed(2), Outbox(1).derive_seed(3), Outbox(2).derive_seed(2)}) == 3
    assert 0 <= Outbox(1).derive_seed(2) < 2**63


def test_two_dispatchers_number_their_tasks_differently() -> None:
    """A worker does not mistake the tasks of a dispatcher without a journal for the
    tasks of its predecessor.
    """
    assert Outbox(1).state.next_task != Outbox(2).state.next_task


def test_counts_that_a_peer_has_made_up_prove_nothing() -> None:
    """A journal lacks facts only by counts that a dispatcher of it has told."""
    first, second = (start(number, told=0) for number in (1, 2))
    told = write(first, 3)
    second.begin_life()
    [lost] = second.losses([told])
    assert (lost.records, lost.is_firm) == (3, True)
    assert list(second.losses([structs.replace(told, records=4)])) == []


def start(number: int, told: int) -> Outbox:
    """Return a start of a dispatcher, with a journal of so many facts of an
    iteration.
    """
    out = Outbox(number)
    out.state.seed = out.state.life = 7
    out.state.iterations[2000] = Iteration(
        2000, JobParameters("job", "dataset", "DYNAMIC"), 0, 7, []
    )
    write(out, told)
    return out


def write(out: Outbox, facts: int, told_again: int = 0) -> JournalCounts:
    """Write facts of the iteration, and others that peers tell again. Return what a
    peer is told then.
    """
    tally = out.state.iterations[2000].tally
    tally.records, tally.firm = tally.records + facts + told_again, tally.firm + facts
    return out.counts_of(out.state.iterations[2000])


def test_a_loss_is_noticed_however_much_was_written_since() -> None:
    """A journal that has lost facts of a start, and has grown beyond them in the next
    start, is still known to lack them after one more. Nothing is missing of a start
    that the journal has kept.
    """
    first, second, third = start(1, 0), start(2, 0), Outbox(3)
    first.begin_life()
    told = write(first, 5)
    second.state.mark = first.mark
    write(second, 3)  # the journal has lost the rest
    second.begin_life()
    later = write(second, 10)
    third.state = second.state
    third.begin_life()
    assert [one.records for one in third.losses([told, later])] == [2]
    for number in range(4, 20):
        third.state.apply(structs.replace(BeginLifeUpdate(number, 7, 0, 0, 0, 0), mark=number))
    assert len(third.state.iterations[2000].tally.found) == MARKS_KEPT
    assert list(third.losses([later])) == []


def test_deliveries_do_not_hide_that_splits_are_lost() -> None:
    """A journal that has lost a whole start is known to lack a split, however many
    deliveries it has got since.
    """
    lost, second = start(1, 0), start(2, 0)
    lost.begin_life()
    told = write(lost, 5)
    second.begin_life()
    write(second, 3, told_again=20)
    third = Outbox(3)
    third.state = second.state
    third.begin_life()
    [found] = third.losses([told])
    assert (found.records, found.is_firm) == (2, True)


def test_a_start_numbers_its_objects_anew() -> None:
    """A journal may have lost what a start has numbered last. The next start gives none
    of these numbers to another dataset, iteration or task.
    """
    first, second = start(1, 0), start(2, 0)
    first.begin_life()
    second.begin_life()
    for name in ("next_dataset", "next_iteration", "next_task"):
        one, other = (getattr(out.state, name) for out in (first, second))
        assert abs(one - other) >= 10_000
