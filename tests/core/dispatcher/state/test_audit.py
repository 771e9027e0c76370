"""Test the audit of an iteration."""

from __future__ import annotations

from typing import Any

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.state.audit import audit_of
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.splits import IndexSplits, Split

DESCRIPTION = m.DatasetDescription(
    "digest", "print", (IndexSplits(100),), "", None, 100, None, "3.11", "0"
)


def state_after(*updates: u.AnyUpdate, **job: Any) -> DispatcherState:
    """Return the state of a dispatcher with an iteration that two clients have read,
    and with further updates.
    """
    state = DispatcherState(1)
    for update in (
        u.RegisterDatasetUpdate("dataset", DESCRIPTION),
        u.BeginIncarnationUpdate(1, m.JobParameters("job", "dataset", "DYNAMIC", **job)),
        u.CreateIterationUpdate(2000, 1, 0, 7),
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
    u.CountClientUpdate(2000, "l", 3, 4),
    u.EndTaskUpdate(1, 38, left_out=2),
    u.CloseClientUpdate("k"),
)


def test_everything_is_accounted_for() -> None:
    """The audit accounts for splits, tasks and elements, and for each client's
    deliveries.
    """
    audit = audit_of(state_after(*STORY).iterations[2000])
    assert audit["splits"] == {"handed_out": 90, "finished": 40, "rehosted": 50}
    assert audit["tasks"] == {"count": 2, "finished": 1, "lost": 0, "rehosted": 1, "attempts": 3}
    assert audit["elements"] == {
        "made": 38,
        "delivered": 43,
        "left_out": 2,
        "dropped": 0,
        "duplicates_dropped": 3,
        "given_back": 4,
    }
    names = ("delivered", "duplicates_dropped", "given_back", "reads")
    assert audit["clients"] == [
        {"client": m.shown_name("k"), **dict(zip(names, (30, 0, 0, False), strict=True))},
        {"client": m.shown_name("l"), **dict(zip(names, (13, 3, 4, True), strict=True))},
    ]
    assert not audit["finished"]
    assert audit["failure"] is None


def test_an_audit_survives_a_restart() -> None:
    """The audit is the same after a snapshot."""
    state, copy = state_after(*STORY), DispatcherState()
    for update in snapshot(state):
        copy.apply(update)
    assert audit_of(copy.iterations[2000]) == audit_of(state.iterations[2000])


ROUNDS = (
    *(u.CreateTaskUpdate(task, 2000, 9) for task in (1, 2, 3)),
    u.CreateViewUpdate(2000, ((1, 0), (2, 0))),
    u.ExtendHorizonUpdate(2000, 8),
    u.PassStepsUpdate(2000, 0, 5),
    u.PassStepsUpdate(2000, 1, 3),
)


def audit_of_consumers(*updates: u.AnyUpdate) -> dict[str, Any]:
    return audit_of(state_after(*ROUNDS, *updates, num_consumers=2).iterations[2000])


def test_consumers_are_shown_by_what_they_had() -> None:
    """The audit counts numbered consumers in elements of their steps, and names no
    clients beside them.
    """
    audit = audit_of_consumers()
    assert audit["consumers"] == [5, 3]
    assert audit["elements"]["delivered"] == 8
    assert audit["clients"] == []


def test_a_turn_of_a_task_that_had_nothing_left_is_no_element() -> None:
    """Steps beyond the end of a task count for no consumer, so the consumers' sum is
    the number of elements made in rounds.
    """
    # Task 1 has three rounds and task 2 has a single round, so steps 0, 1, 2 and 4 of
    # steps 0 to 7 gave an element.
    ends = u.EndTaskUpdate(1, 4, rest=1), u.EndTaskUpdate(2, 1)
    audit = audit_of_consumers(*ends, u.PassStepsUpdate(2000, 0, 8))
    assert audit["consumers"] == [4, 3]
    audit = audit_of_consumers(
        *ends, *(u.PassStepsUpdate(2000, consumer, 8) for consumer in (0, 1))
    )
    assert audit["consumers"] == [4, 4]
    assert audit["elements"]["delivered"] == 8
    assert audit["elements"]["dropped"] == 0


def test_what_fills_no_round_is_dropped_at_the_end() -> None:
    """The audit counts an element that fills no round as made, and as dropped once all
    tasks have ended. An element of the last rounds counts as delivered.
    """
    for rests, dropped in (((1, 0), 1), ((1, 1), 0)):
        ends = [
            u.EndTaskUpdate(task, 2 + rest, rest=rest)
            for task, rest in zip((1, 2), rests, strict=True)
        ]
        passed = [u.PassStepsUpdate(2000, consumer, 9) for consumer in (0, 1)]
        closed = (*ends, u.EndTaskUpdate(3, 0), u.CloseTaskListUpdate(2000))
        elements = audit_of_consumers(*closed, *passed)["elements"]
        assert elements["made"] == 8 + sum(rests)
        assert elements["delivered"] == elements["made"] - dropped
        assert elements["dropped"] == dropped


def test_what_was_had_before_a_view_counts_behind_it() -> None:
    """The audit keeps the elements of a forgotten view, and counts the elements of
    slower consumers in the next view.
    """
    view = (
        u.EndTaskUpdate(1, 4),
        u.CreateViewUpdate(2000, ((2, 4), (3, 0))),
        u.ExtendHorizonUpdate(2000, 20),
    )
    behind = u.PassStepsUpdate(2000, 0, 8), u.PassStepsUpdate(2000, 1, 11)
    assert audit_of_consumers(*view, *behind)["consumers"] == [8, 11]
    assert audit_of_consumers(*view, *behind, u.PassStepsUpdate(2000, 0, 20))["consumers"] == [
        20,
        11,
    ]


def test_the_failure_of_a_job_is_told() -> None:
    """The audit has the failure text that clients got."""
    audit = audit_of_consumers(u.FailIterationUpdate(2000, "UnavailableError", "nobody came"))
    assert audit["failure"] == "nobody came"
