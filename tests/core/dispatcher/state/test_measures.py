"""Test the totals of jobs, and the verdict on the loops that read them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.state.measures import (
    JOBS_KEPT,
    LOOPS_KEPT,
    NODES_KEPT,
    OTHERS,
    JobTotals,
    Measures,
    judged_loop,
)
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.ranges import RangeSet
from zmqdata.measures.verdict import COMPUTE_BOUND, INPUT_BOUND, STRAGGLER

NODE = m.NodeTime("0", "map(f) at train.py:1", 8.0, 8.0)


def iteration(number: int = 2000, job: str = "job", consumers: int | None = None) -> Iteration:
    parameters = m.JobParameters(job, "dataset", "DYNAMIC", num_consumers=consumers)
    made = Iteration(number, parameters, 0, 7, [], clients={"c0", "c1"})
    for task in (number + 1, number + 2):
        made.tasks[task] = Task(task, number, 1, [], attempt=1)
    return made


def report(task: int, attempt: int, elements: float, seconds: float = 1.0) -> m.TaskReport:
    sums = m.TaskSums(seconds, seconds, elements=elements, nbytes=10 * elements)
    counts = {"mix/web": elements}
    measures = m.TaskMeasures(task, attempt, sums, sums, (NODE,), counts=counts)
    return m.TaskReport(task, attempt, int(elements), None, measures=measures)


def loop(waiting: float, seconds: float = 10.0, elements: float = 100.0) -> m.LoopMeasures:
    sums = m.LoopSums(seconds, waiting, elements)
    return m.LoopMeasures(sums, sums, 0.5, moved={"tcp none": (100, 10)})


def test_each_attempt_counts_once() -> None:
    """The newest report about an attempt counts, however often it comes, and reports of
    unknown tasks do not.
    """
    one = iteration()
    measures = Measures({2000: one})
    for count in (5.0, 9.0, 9.0, 7.0):
        measures.record_tasks("tcp://a:1", [report(2001, 1, count, seconds=count)], one.tasks)
    measures.record_tasks("tcp://b:1", [report(2001, 2, 4.0), report(9999, 1, 50.0)], one.tasks)
    measures.record_tasks("tcp://b:1", [m.TaskReport(2002, 1, 3, None)], one.tasks)
    totals = measures.totals()["job"]
    assert (totals.sums.elements, totals.sums.nbytes) == (13.0, 130.0)
    assert totals.nodes == {("0", NODE.label): 16.0}
    assert totals.counts == {"mix/web": 13.0}
    assert {task: found[0] for task, found in measures.tasks_of(one).items()} == {2001: "tcp://b:1"}


def test_what_is_made_again_is_told() -> None:
    """Elements beyond those of the task were made again, once its number is known."""
    one = iteration()
    measures = Measures({2000: one})
    measures.record_tasks("tcp://a:1", [report(2001, 1, 30.0)], one.tasks)
    measures.record_tasks("tcp://b:1", [report(2001, 2, 25.0)], one.tasks)
    assert measures.totals()["job"].redone == 0
    one.tasks[2001].total, one.tasks[2001].attempt = 40, 2
    assert measures.totals()["job"].redone == 15


def test_totals_outlive_an_iteration() -> None:
    """The totals of a job include its collected iterations, together with later
    ones.
    """
    first, second = iteration(), iteration(3000)
    known = {2000: first, 3000: second}
    measures = Measures(known)
    first.tasks[2001].delivered = RangeSet([(0, 5)])
    second.tasks[3001].delivered = RangeSet([(0, 2)])
    measures.record_tasks("tcp://a:1", [report(2001, 1, 5.0)], first.tasks)
    measures.record_tasks("tcp://a:1", [report(3001, 1, 2.0)], second.tasks)
    measures.record_loop(2000, "c0", loop(1.0))
    before = measures.totals()["job"]
    measures.forget(known.pop(2000))
    after = measures.totals()["job"]
    assert before == after
    assert (after.delivered, after.sums.elements, after.loop.elements) == (7, 7.0, 100.0)
    assert after.moved == {"tcp none": (100, 10)}
    after.nodes.clear()
    assert measures.totals()["job"].nodes


def test_totals_of_many_jobs_are_bounded() -> None:
    """The totals of the oldest collected jobs are forgotten."""
    measures = Measures({})
    for number in range(JOBS_KEPT + 5):
        measures.forget(iteration(number, f"job{number}"))
    totals = measures.totals()
    assert len(totals) == JOBS_KEPT
    assert "job4" not in totals


def test_nodes_of_a_job_are_bounded() -> None:
    """Operations beyond those that are told apart count together."""
    totals = JobTotals()
    for number in range(NODES_KEPT + 5):
        totals.add_task(
            m.TaskMeasures(1, 1, m.TaskSums(), m.TaskSums(), (replace(NODE, label=str(number)),))
        )
    assert len(totals.nodes) == NODES_KEPT + 1
    assert totals.nodes[OTHERS] == 5 * NODE.total
    assert sum(totals.nodes.values()) == (NODES_KEPT + 5) * NODE.total


def test_loops_of_an_endless_pass_are_bounded() -> None:
    """Totals hold all loops, also those that have left, and of those no more are told
    apart than a limit.
    """
    one = iteration(consumers=2)
    measures = Measures({2000: one})
    for number in range(LOOPS_KEPT + 5):
        measures.record_loop(2000, f"gone{number}", loop(1.0))
    measures.record_loop(2000, "c0", loop(1.0))
    assert len(measures._of(2000).loops) < 10
    totals = measures.totals()["job"]
    assert totals.loop.elements == 100.0 * (LOOPS_KEPT + 6)
    assert totals.begun == LOOPS_KEPT + 6
    assert list(measures.situations(one)) == ["c0"]


def test_a_client_that_joins_again_counts_once() -> None:
    """The sums of a client go on under its new name, so those under the former name are
    forgotten.
    """
    one = iteration()
    measures = Measures({2000: one})
    measures.record_loop(2000, "c0", loop(1.0))
    measures.record_loop(2000, "c0", None)
    measures.replace_loop(2000, "c0")
    measures.record_loop(2000, "c1", loop(2.0))
    assert measures.totals()["job"].loop.waiting == 2.0
    assert measures.loop_of(one, "c0") is None


@pytest.mark.parametrize(("waits", "word"), [(6.0, INPUT_BOUND), (0.1, COMPUTE_BOUND)])
def test_the_loop_that_waits_most_is_judged(waits: float, word: str) -> None:
    """The verdict on a job is that on its loop with the longest waits; without loops
    there is none.
    """
    one = iteration()
    measures = Measures({2000: one})
    assert judged_loop(measures.situations(one)) is None
    measures.record_tasks("tcp://a:1", [report(2001, 1, 50.0, 10.0)], one.tasks)
    measures.record_loop(2000, "c0", loop(0.0))
    measures.record_loop(2000, "c1", loop(waits))
    found = judged_loop(measures.situations(one))
    assert found is not None
    assert (found[0].loop.waiting, found[1].word) == (waits, word)


def test_deaths_of_workers_are_told() -> None:
    """A loop that has got nothing is told how a worker of its tasks ended. The name of
    what it waits for is that of the job.
    """
    one = iteration()
    measures = Measures({2000: one})
    one.tasks[2002].deaths[1] = u.CountDeathUpdate(2002, 1, "ended with exit code 3")
    measures.record_loop(2000, "c0", m.LoopMeasures())
    found = judged_loop(measures.situations(one, "batches"))
    assert found is not None
    assert found[1].advice.startswith(
        "The loop waits for its first batch. Its workers have died 1 time; one ended with exit code 3."
    )


def test_a_slow_consumer_is_named() -> None:
    """If no loop waits, the consumer with much longer steps is the straggler."""
    one = iteration(consumers=3)
    one.clients = {"c0", "c1", "c2"}
    one.consumers = {0: "c0", 1: "c1", 2: "c2"}
    measures = Measures({2000: one})
    for client, seconds in (("c0", 10.0), ("c1", 30.0), ("c2", 11.0)):
        measures.record_loop(2000, client, loop(0.0, seconds))
    found = judged_loop(measures.situations(one))
    assert found is not None
    verdict = found[1]
    assert verdict.word == STRAGGLER
    assert verdict.advice.startswith("This consumer (1) takes 300 ms for a step")
