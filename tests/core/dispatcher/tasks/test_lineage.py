"""Test the lineage that a task's next host gets, and the reports of hosts that
count.
"""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks import lineage
from zmqdata.core.dispatcher.tasks.lineage import (
    Replays,
    StateKeeping,
    contradiction,
    definition_of,
)
from zmqdata.core.ranges import RangeSet
from zmqdata.decisions import Decision
from zmqdata.splits import IndexSplits, Split


class Kept:
    """A task of a job on worker ``w``, with a ledger of nine entries of ten elements
    each.
    """

    def __init__(self, mode: str = "DYNAMIC", **job: Any) -> None:
        self.out = Outbox(1)
        self.keeping = StateKeeping(self.out)
        description = m.DatasetDescription(
            "digest", "print", (IndexSplits(9),), "", None, -2, None, "3.11", "0"
        )
        self.out.commit(u.RegisterDatasetUpdate("dataset", description))
        self.out.commit(u.BeginIncarnationUpdate(1, m.JobParameters("job", "dataset", mode, **job)))
        self.out.commit(u.CreateIterationUpdate(2000, 1, 0, 7))
        self.out.commit(u.CreateTaskUpdate(self.out.state.next_task, 2000, 8))
        self.out.commit(u.HostTaskUpdate(self.task.task, 1, "w"))
        for number in range(9 if self.task.ledger else 0):
            self.out.commit(u.AssignSplitsUpdate(self.task.task, 0, Split(0, number, number + 1)))
        self.out.drain()

    @property
    def task(self) -> Task:
        return next(iter(self.out.state.tasks.values()))

    @property
    def iteration(self) -> Iteration:
        return self.out.state.iterations[2000]

    def tell(self, number: int, worker: str = "w", attempt: int = 1) -> bool:
        """Report a state of the host that needs the following entries, and return
        whether it is committed.
        """
        needs = (number // 10,) if self.task.ledger else ()
        state = m.TaskState(number, b"state", needs)
        self.keeping.commit(worker, m.StateTaken(worker, self.task.task, attempt, state), 0.0)
        return e.Commit(u.TakeStateUpdate(self.task.task, state)) in self.out.drain()

    def deliver(self, *ranges: tuple[int, int]) -> None:
        self.out.commit(u.DeliverUpdate(self.task.task, ranges))

    def definition(self, *taken: tuple[int, int]) -> m.TaskDefinition:
        return definition_of(
            self.task, self.iteration, self.out.state.datasets["dataset"], RangeSet(taken)
        )

    def contradiction(self, total: int, *taken: tuple[int, int], rest: int = 0) -> str:
        return contradiction(self.task, self.iteration, RangeSet(taken), total, rest)


def test_states_of_the_present_host_are_committed() -> None:
    """The dispatcher commits only newer states of the present host, and none of another
    worker, an older attempt or an unknown task.
    """
    kept = Kept()
    assert kept.tell(30)
    assert not kept.tell(40, worker="v")
    assert not kept.tell(40, attempt=0)
    assert not kept.tell(20)
    assert kept.tell(40)
    kept.keeping.commit("w", m.StateTaken("w", 1, 1, m.TaskState(50, b"", (5,))), 0.0)
    assert kept.out.drain() == []


def test_decisions_of_the_present_host_are_kept_for_the_next() -> None:
    """The acknowledgement of decisions says from which decision on they are needed, and
    an older attempt gets no acknowledgement.
    """
    kept = Kept()
    decided = (Decision("/0", 0, 9, (4,)), Decision("/0", 9, 12))
    kept.keeping.decide("w", m.ElementsDecided("w", kept.task.task, 0, 4, 0, decided), 0.0)
    assert kept.out.drain() == []
    kept.keeping.decide("w", m.ElementsDecided("w", kept.task.task, 1, 5, 0, decided), 0.0)
    assert e.Send("w", m.DecisionsKept(kept.task.task, 1, 5, needed=0)) in kept.out.drain()
    assert kept.definition().decisions == decided
    kept.out.commit(u.TakeStateUpdate(kept.task.task, m.TaskState(10, b"", (1,), 1)))
    kept.deliver((0, 10))
    kept.out.drain()
    kept.keeping.decide("w", m.ElementsDecided("w", kept.task.task, 1, 6, 1, decided[1:]), 0.0)
    assert e.Send("w", m.DecisionsKept(kept.task.task, 1, 6, needed=1)) in kept.out.drain()


def test_copies_are_not_continued() -> None:
    """The dispatcher ignores the state of a copy, which ends with its host, and keeps
    the state of a coordinated copy.
    """
    assert not Kept("OFF").tell(30)
    assert Kept("OFF", num_consumers=2).tell(30)


def test_a_new_host_gets_the_last_state_and_the_entries_for_it() -> None:
    """The next host gets the last state with its entries, and the states from which
    clients resume that have yet to hand out elements. Entries keep their numbers.
    """
    kept = Kept()
    for number in (10, 30, 50):
        kept.tell(number)
    kept.deliver((0, 35))
    assert ([state.number for state in kept.task.states], kept.task.ledger[0].base) == ([30, 50], 3)
    definition = kept.definition((0, 35), (35, 55))
    assert [state.number for state in definition.states] == [30, 50]
    assert (definition.bases, definition.ledger[0][0], len(definition.ledger[0])) == (
        (3,),
        Split(0, 3, 4),
        6,
    )
    assert (definition.skip, definition.delivered) == (((0, 55),), 35)


def test_a_host_that_must_begin_at_the_beginning_gets_all_entries() -> None:
    """A host that begins at the beginning gets all entries, and uses a later state only
    for elements behind the hole.
    """
    kept = Kept()
    kept.tell(30)
    definition = kept.definition((3, 40))
    assert (definition.bases, len(definition.ledger[0])) == ((0,), 9)
    assert [state.number for state in definition.states] == [30]


def test_a_shared_cache_goes_on_from_the_newest_state() -> None:
    """A shared cache resumes from the newest state, as elements outside all windows are
    never made again.
    """
    kept = Kept(cache=True)
    kept.tell(30)
    definition = kept.definition((3, 4), (38, 40))
    assert (definition.skip, [state.number for state in definition.states]) == (((0, 40),), [30])


def test_what_is_settled_needs_nothing() -> None:
    """A settled task keeps neither states nor entries, and the numbers of its entries
    continue.
    """
    kept = Kept()
    kept.tell(30)
    kept.out.commit(u.EndTaskUpdate(kept.task.task, 60))
    kept.deliver((0, 60))
    assert (kept.task.states, kept.task.ledger[0].entries) == ([], [])
    assert kept.task.ledger[0].length == 9


def test_an_end_before_what_was_there_is_a_contradiction() -> None:
    """A task made again must produce the same elements, and the error names what may
    have changed them.
    """
    kept = Kept()
    assert kept.contradiction(60, (0, 60)) == ""
    assert (
        "ended after 50 elements when it was made again; clients already had 60"
        in kept.contradiction(50, (55, 60))
    )
    assert "random_map" in kept.contradiction(50, (55, 60))
    kept.out.commit(u.EndTaskUpdate(kept.task.task, 70))
    assert kept.contradiction(70) == ""
    assert "after 70 elements the first time, and after 71 elements when" in (
        kept.contradiction(71)
    )
    assert "and after 69 elements and 2 elements when" in kept.contradiction(70, rest=2)


def test_rounds_that_were_passed_were_there() -> None:
    """The furthest consumer of a coordinated job proves which rounds existed."""
    kept = Kept(num_consumers=2)
    for update in (
        u.CreateViewUpdate(2000, ((kept.task.task, 0),)),
        u.ExtendHorizonUpdate(2000, 10),
        u.PassStepsUpdate(2000, 1, 6),
    ):
        kept.out.commit(update)
    assert kept.contradiction(6) == ""
    assert (
        "ended after 5 rounds when it was made again; clients already had 6"
        in kept.contradiction(5)
    )


# --- tasks that a person runs again


def test_a_person_gets_every_state_of_a_task_without_its_ticket() -> None:
    """A living task is described with all of its states, its ledger and its job."""
    kept = Kept()
    assert kept.tell(20)
    assert kept.tell(40)
    found = Replays(kept.out).find(kept.task.task)
    assert found is not None
    assert found.job == "job"
    assert [state.number for state in found.definition.states] == [20, 40]
    assert found.definition.ticket == 0
    assert len(found.definition.ledger[0]) == 9
    assert Replays(kept.out).find(kept.task.task + 1) is None


def test_an_unfinished_task_is_remembered_after_its_job() -> None:
    """The task of a collected iteration is described as it was; one whose elements were
    all delivered is forgotten.
    """
    for delivered, is_kept in ((37, True), (90, False)):
        kept = Kept()
        number = kept.task.task
        kept.out.commit(u.EndTaskUpdate(number, 90))
        kept.deliver((0, delivered))
        replays = Replays(kept.out)
        before = replays.find(number)
        replays.keep(kept.iteration)
        kept.out.commit(u.CollectIncarnationUpdate(1))
        assert number not in kept.out.state.tasks
        assert replays.find(number) == (before if is_kept else None)


def test_a_copy_that_its_reader_has_left_is_remembered() -> None:
    """A removed copy, which needs no splits, can be run again."""
    kept = Kept("OFF")
    kept.out.commit(u.RemoveTaskUpdate(kept.task.task))
    replays, number = Replays(kept.out), kept.task.task
    replays.keep(kept.iteration)
    kept.out.commit(u.CollectIncarnationUpdate(1))
    assert replays.find(number) is not None


@pytest.mark.parametrize(("limit", "value"), [("MOST_REPLAYS", 1), ("MOST_REPLAY_BYTES", 1_500)])
def test_the_newest_tasks_are_remembered(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """A limit of tasks or bytes removes the oldest, and what is left counts on."""
    monkeypatch.setattr(lineage, limit, value)
    kept = Kept()
    replays, first = Replays(kept.out), kept.task.task
    replays.keep(kept.iteration)
    kept.out.commit(u.CollectIncarnationUpdate(1))
    kept.out.commit(u.BeginIncarnationUpdate(2, m.JobParameters("next", "dataset", "DYNAMIC")))
    kept.out.commit(u.CreateIterationUpdate(2001, 2, 0, 7))
    kept.out.commit(u.CreateTaskUpdate(kept.out.state.next_task, 2001, 8))
    second = kept.task.task
    for number in range(9):
        kept.out.commit(u.AssignSplitsUpdate(second, 0, Split(0, number, number + 1)))
    replays.keep(kept.out.state.iterations[2001])
    kept.out.commit(u.CollectIncarnationUpdate(2))
    assert replays.find(first) is None
    assert replays.find(second) is not None
