"""Test what a client keeps of the reports of its workers."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.core.client.evidence import Evidence
from zmqdata.core.client.tasks import ReadTask
from zmqdata.core.credit import CreditWindow

LOOP = m.LoopMeasures(m.LoopSums(2.0, 1.0, 4.0), m.LoopSums(1.0, 0.5, 2.0), first=0.25)


def measures(task: int, attempt: int, elements: float) -> m.TaskMeasures:
    sums = m.TaskSums(1.0, 1.0, elements=elements)
    counts = {"mix/web": elements}
    return m.TaskMeasures(task, attempt, sums, sums, linked=(0.5, 7.0), counts=counts)


def read(number: int, ended: bool = False) -> ReadTask:
    return ReadTask(m.TaskPlace(number, 1, "", ""), CreditWindow(None, 1), ended=ended)


def test_the_newest_attempt_of_a_task_counts() -> None:
    """A late report about an attempt that another has replaced changes nothing."""
    evidence = Evidence(None)
    for worker, attempt, elements in (
        ("tcp://a:1", 1, 5.0),
        ("tcp://b:1", 2, 1.0),
        ("tcp://a:1", 1, 9.0),
    ):
        evidence.hear(m.LinkReported("link", 0, tasks=(measures(7, attempt, elements),)), worker)
    found = evidence.situation(LOOP, {7: read(7)}, 3)
    [task] = found.tasks
    assert (task.worker, task.recent.elements, task.linked) == ("tcp://b:1", 1.0, (0.5, 7.0))
    assert (found.loop, found.total, found.first) == (LOOP.recent, LOOP.total, 0.25)
    assert (found.limit, found.consumer) == (3, None)


def test_a_task_that_the_client_does_not_read_is_no_evidence() -> None:
    """Measures of tasks that the client does not know are left out, and ended tasks are
    marked.
    """
    evidence = Evidence(None)
    told = (measures(1, 1, 1.0), measures(2, 1, 2.0), measures(3, 1, 3.0))
    evidence.hear(m.LinkReported("link", 0, tasks=told), "tcp://a:1")
    found = evidence.situation(LOOP, {1: read(1), 3: read(3, ended=True)}, None)
    assert [(task.recent.elements, task.has_ended) for task in found.tasks] == [
        (1.0, False),
        (3.0, True),
    ]


def test_the_counts_of_all_attempts_are_added() -> None:
    """The newest counts of each attempt are added, as are those at its end."""
    evidence = Evidence(None)
    for attempt, count in ((1, 5.0), (2, 1.0), (2, 2.0)):
        report = m.LinkReported("link", 0, tasks=(measures(7, attempt, count),))
        evidence.hear(report, "tcp://a:1")
    assert evidence.situation(LOOP, {7: read(7)}, None).counts == {"mix/web": 7.0}
    evidence.end(m.EndOfTask(9, 7, 2, 4, counts={"mix/web": 4.0}))
    assert evidence.situation(LOOP, {7: read(7)}, None).counts == {"mix/web": 9.0}


def test_the_last_pace_of_each_consumer_counts() -> None:
    """Paces of other consumers come from any worker, and newer ones replace them."""
    evidence = Evidence(2)
    for step in (0.5, 0.1):
        paces = (m.ConsumerPace(0, step, False), m.ConsumerPace(1, step, True))
        evidence.hear(m.LinkReported("link", 0, paces=paces), "tcp://a:1")
    found = evidence.situation(LOOP, {}, None)
    assert found.consumer == 2
    assert [(pace.consumer, pace.step, pace.waits) for pace in found.others] == [
        (0, 0.1, False),
        (1, 0.1, True),
    ]
