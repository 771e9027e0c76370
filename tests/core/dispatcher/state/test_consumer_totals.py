"""Tests of what a dispatcher adds up for each job, out of the reports of clients."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.state.measures import JobTotals, Measures, elements_delivered
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.splits import IndexSplits


def begun(**job: int) -> tuple[Outbox, Iteration]:
    """Return a state with an iteration, number 1000, and that iteration."""
    out = Outbox(1)
    description = m.DatasetDescription(
        "digest", "print", (IndexSplits(10),), "", None, -2, None, "3.11", "0"
    )
    out.commit(u.RegisterDatasetUpdate("dataset", description))
    out.commit(
        u.BeginIncarnationUpdate(1, m.JobParameters("job", "dataset", "DYNAMIC", **job))  # type: ignore[arg-type]
    )
    out.commit(u.CreateIterationUpdate(1000, 1, 0, 7, 0))
    return out, out.state.iterations[1000]


def loop(elements: float, first: float | None = None) -> m.LoopMeasures:
    return m.LoopMeasures(m.LoopSums(elements=elements), first=first)


def totals(measures: Measures) -> JobTotals:
    return measures.totals()["job"]


def test_the_loops_of_a_consumer_stay_together() -> None:
    """The sums of a numbered consumer include those of its former clients, which have
    left.
    """
    out, iteration = begun(num_consumers=2)
    measures = Measures(out.state.iterations)
    for client, consumer, elements in (("a", 0, 3.0), ("b", 1, 4.0), ("c", 0, 5.0)):
        out.commit(u.OpenClientUpdate(client, 1000, consumer=consumer))
        measures.record_loop(1000, client, loop(elements, first=0.5))
        out.commit(u.CloseClientUpdate(client))
    measures.record_loop(1000, "c", loop(6.0, first=0.5))  # its goodbye comes again
    found = totals(measures)
    assert {number: sums.elements for number, sums in found.consumers.items()} == {0: 9.0, 1: 4.0}
    assert (found.begun, found.first_seconds) == (3, 1.5)
    measures.forget(iteration)
    del out.state.iterations[1000]
    assert totals(measures) == found


def test_loops_without_a_number_are_added_up() -> None:
    """The sums of all loops that are no numbered consumers are together; one that has
    no element yet does not count as begun.
    """
    out, _ = begun()
    measures = Measures(out.state.iterations)
    for client, first in (("a", 2.0), ("b", None)):
        out.commit(u.OpenClientUpdate(client, 1000))
        measures.record_loop(1000, client, loop(7.0, first))
    found = totals(measures)
    assert {number: sums.elements for number, sums in found.consumers.items()} == {None: 14.0}
    assert (found.begun, found.first_seconds) == (1, 2.0)


def test_a_round_has_an_element_for_each_consumer() -> None:
    """The elements of numbered consumers are counted one by one, also in the last
    rounds that the rests of all tasks fill together.
    """
    iteration = begun(num_consumers=2)[1]
    assert iteration.rounds is not None
    iteration.tasks = {number: Task(number, 1000, 0, []) for number in (1, 2)}
    iteration.rounds.begin(((1, 0), (2, 0)))
    for task in iteration.tasks.values():
        task.delivered.add(0, 3)
    assert elements_delivered(iteration) == 12
    # Three full rounds each, and a rest of one element each: a last round of both.
    for task in iteration.tasks.values():
        task.total, task.rest = 4, 1
        task.delivered.add(3, 4)
    iteration.closed = True
    assert elements_delivered(iteration) == 14
