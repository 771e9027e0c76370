"""Facts about the audit of an iteration."""

from __future__ import annotations

from typing import Any

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.audit import audit_of
from zmqdata.core.snapshots import snapshot
from zmqdata.core.state import DispatcherState
from zmqdata.splits import IndexSplits, Split

DESCRIPTION = m.DatasetDescription("digest", "print", (IndexSplits(100),), "", None, 100, None, "3.11", "0")


def state_after(*updates: u.AnyUpdate, **job: Any) -> DispatcherState:
    """The state of a dispatcher with an iteration that two clients have read, and what else has happened."""
    state = DispatcherState(1)
    for update in (
        u.RegisterDatasetUpdate("dataset", DESCRIPTION),
        u.CreateJobUpdate(m.JobParameters("job", "dataset", "DYNAMIC", **job)),
        u.CreateIterationUpdate(2000, "job", 0, 7),
        u.OpenClientUpdate("k", 2000, (), 0 if job else None),
        u.OpenClientUpdate("l", 2000, (), 1 if job else None),
        *updates,
    ):
        state.apply(update)
    return state


STORY = (
    u.CreateTaskUpdate(1, 2000, 9),
    u.HostTaskUpdate(1, 1, "w"),
    u.AssignSplitsUpdate(1, 0, Split(0, 0, 40)),
    u.CreateTaskUpdate(2, 2000, 9),
    u.HostTaskUpdate(2, 1, "v"),
    u.AssignSplitsUpdate(2, 0, Split(0, 40, 100)),
    u.CutLedgerUpdate(2, 0, 1, 1, 90),
    u.HostTaskUpdate(2, 2, ""),
    u.HostTaskUpdate(2, 2, "w"),
    u.DeliverUpdate(1, ((0, 30),), "k"),
    u.DeliverUpdate(1, ((30, 38),), "l"),
    u.DeliverUpdate(2, ((0, 5),), "l"),
    u.CountRepeatsUpdate(2000, "l", 3),
    u.EndTaskUpdate(1, 38, left_out=2),
    u.CloseClientUpdate("k"),
)


def test_everything_is_accounted_for() -> None:
    """Splits, tasks and elements, and what each client had."""
    audit = audit_of(state_after(*STORY).iterations[2000])
    assert audit["splits"] == {"handed_out": 90, "finished": 40, "rehosted": 50}
    assert audit["tasks"] == {"count": 2, "finished": 1, "lost": 0, "rehosted": 1, "attempts": 3}
    assert audit["elements"] == {
        "made": 38,
        "delivered": 43,
        "left_out": 2,
        "dropped": 0,
        "duplicates_dropped": 3,
    }
    assert audit["clients"] == [
        {"client": m.shown_name("k"), "delivered": 30, "duplicates_dropped": 0, "reads": False},
        {"client": m.shown_name("l"), "delivered": 13, "duplicates_dropped": 3, "reads": True},
    ]
    assert not audit["finished"]
    assert audit["failure"] is None


def test_an_audit_survives_a_restart() -> None:
    """It is the same after a snapshot."""
    state, copy = state_after(*STORY), DispatcherState()
    for update in snapshot(state):
        copy.apply(update)
    assert audit_of(copy.iterations[2000]) == audit_of(state.iterations[2000])


def test_consumers_are_shown_by_their_steps() -> None:
    """A coordinated job counts steps; why it failed, if it did, is told."""
    state = state_after(u.FailIterationUpdate(2000, "UnavailableError", "nobody came"), num_consumers=2)
    audit = audit_of(state.iterations[2000])
    assert audit["consumers"] == [0, 0]
    assert audit["failure"] == "nobody came"
