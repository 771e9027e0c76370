"""Test the decisions of a dispatcher in a turn."""

from __future__ import annotations

from msgspec import structs

from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.errors import NotFoundError
from zmqdata.messages import JobParameters, Probe, RequestRefused
from zmqdata.updates import BeginIncarnationUpdate


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
    former, out = Outbox(1), Outbox(2)
    out.state.seed = former.state.seed
    for one in (former, out):
        one.state.iterations[2000] = Iteration(
            2000, JobParameters("job", "dataset", "DYNAMIC"), 0, 7, []
        )
    out.resume()
    former.state.iterations[2000].tally.records = former.state.iterations[2000].tally.firm = 3
    told = former.written(former.state.iterations[2000])
    [lost] = out.lost([told])
    assert (lost.records, lost.is_firm) == (3, True)
    assert list(out.lost([structs.replace(told, records=4)])) == []
