"""Tests of ``zmqdata.measures.status``: what a status says of jobs, tasks, workers and
training loops.
"""

from __future__ import annotations

import random
from importlib import metadata
from statistics import median_low
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.statuses import answer, every_condition, job, reader, status, task, worker
from zmqdata.errors import VersionMismatchError
from zmqdata.measures.situation import TaskEvidence, doing_of, operations
from zmqdata.measures.status import (
    CONDITIONS,
    agrees,
    condition_of,
    job_time,
    judged,
    named_readers,
    reader_fields,
    task_operations,
    task_order,
    time_fields,
    worker_state,
)
from zmqdata.measures.verdict import EXPECTED, VERDICTS
from zmqdata.messages import (
    JobStatus,
    LoopMeasures,
    LoopSums,
    NodeTime,
    ServiceStatus,
    TaskMeasures,
    TaskStatus,
    TaskSums,
    TotalsStatus,
    known_status,
)

# --- shares and rates


def measured(number: int, nodes: dict[str, float], rate: float = 5.0) -> TaskMeasures:
    """Return measures of a task of ten seconds, with recent seconds of its nodes."""
    sums = TaskSums(seconds=10.0, making=8.0, elements=10 * rate, nbytes=100.0)
    times = tuple(NodeTime(place, f"f{place}", 3 * one, one) for place, one in nodes.items())
    return TaskMeasures(number, 1, sums, sums, times, linked=(0.5, 9.0))


def evidence(tasks: list[TaskMeasures], ended: int = 0) -> list[TaskEvidence]:
    return [
        TaskEvidence(f"tcp://{number}:1", one.recent, one.nodes, has_ended=number < ended)
        for number, one in enumerate(tasks)
    ]


def test_a_share_is_of_the_seconds_of_all_operations() -> None:
    """Seconds of a slow worker count more than those of an idle one, in each window."""
    slow, idle = measured(1, {"": 1.0, "0": 8.0}), measured(2, {"": 0.5, "0": 0.5})
    found = operations(evidence([slow, idle]))
    assert [(one.node, one.share, one.share_so_far) for one in found] == [
        ("f", 0.15, 0.15),
        ("f0", 0.85, 0.85),
    ]
    assert sum(one.share for one in found) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("cores", "lacks"), [(0, False), (2, True), (4, True), (5, False)])
def test_operations_wait_for_cores_that_others_use(cores: int, lacks: bool) -> None:
    """An operation waits for a core if all operations of a machine use half of its
    cores or more.
    """
    nodes = NodeTime("", "f", 20.0, 20.0, 4, waited_recent=15.0), NodeTime("0", "g", 5.0, 5.0)
    sums = TaskSums(seconds=10.0, making=10.0)
    tasks = [TaskEvidence(f"tcp://a:{port}", sums, nodes, cores=cores) for port in (1, 2)]
    found = operations(tasks)
    assert [one.lacks_cores for one in found] == [lacks, lacks]
    waits = "waits for a core (25 % processor)" if lacks else "waits (25 % processor)"
    assert [doing_of(one) for one in found] == [waits, ""]


def test_tasks_that_have_ended_count_so_far_only() -> None:
    """A task that has ended has no share of the last seconds, and keeps its seconds."""
    found = operations(evidence([measured(1, {"0": 8.0}), measured(2, {"1": 2.0})], ended=1))
    assert [(one.node, one.share, one.share_so_far, one.seconds) for one in found] == [
        ("f0", 0.0, 0.8, 24.0),
        ("f1", 1.0, 0.2, 6.0),
    ]


def test_inputs_are_ordered_by_number_not_by_letter() -> None:
    """The tenth input of a node comes after its second, and the worker's own work
    last.
    """
    found = operations(evidence([measured(1, dict.fromkeys(("+pack", "0.10", "0.2", ""), 1.0))]))
    assert [(one.place, one.depth) for one in found] == [
        ("", 0),
        ("0.2", 1),
        ("0.10", 1),
        ("+pack", 0),
    ]


def test_the_queues_of_all_tasks_are_added() -> None:
    """A node that runs ahead has the elements that wait behind it in all tasks."""
    node = NodeTime("0", "prefetch", 1.0, 1.0, queue=(3, 8))
    (found,) = operations([TaskEvidence(name, TaskSums(), (node,)) for name in ("a", "b")])
    assert found.queue == (6, 16)


def test_a_node_is_held_up_for_a_share_of_the_time() -> None:
    """The seconds in which results wait for one call are divided by those in which
    pipelines ran, over all tasks that have not ended.
    """
    node = NodeTime("0", "map(f)", 9.0, 9.0, held_up_recent=6.0)
    sums = TaskSums(seconds=20.0, making=8.0)
    tasks = [TaskEvidence(name, sums, (node,), has_ended=name == "c") for name in "abc"]
    assert [one.held_up_share for one in operations(tasks)] == [0.75]
    assert [one.held_up_share for one in operations([TaskEvidence("a", TaskSums(), (node,))])] == [
        0.0
    ]


@given(st.lists(st.lists(st.floats(0.1, 90.0), min_size=1, max_size=3), min_size=1, max_size=4))
def test_the_rates_of_workers_add_up_to_that_of_their_job(rates: list[list[float]]) -> None:
    """In the same window a job makes what all of its workers make."""
    by_worker = [[measured(1, {}, rate) for rate in own] for own in rates]
    together = sum(time_fields(one)["elements_per_second"] for one in by_worker)
    whole = job_time([one for own in by_worker for one in own])["made_per_second"]
    assert whole == pytest.approx(together, rel=1e-3)


def test_what_was_not_measured_is_nothing() -> None:
    """Without measures all rates and shares are 0, and no operation is known."""
    assert set(time_fields([]).values()) == {0}
    assert task_operations(None) == []
    (only,) = task_operations(measured(1, {"0": 1.0}))
    assert (only.node, only.share) == ("f0", 1.0)


def test_a_loop_behind_local_operations_is_shown_as_it_is() -> None:
    """Shares and steps are those of the loop, although its reader waits all the time,
    as with ``prefetch`` between them.
    """
    served, outer = LoopSums(10.0, 9.0, 400.0), LoopSums(10.0, 1.0, 50.0)
    found = reader_fields(LoopMeasures(served, served, 0.5, outer=outer, outer_total=outer))
    assert (found["wait_share"], found["step_ms"], found["waited_seconds"]) == (0.1, 180.0, 1.0)
    assert found["elements"] == 400


# --- training loops


@given(st.lists(st.integers(1, 5), min_size=2, max_size=9))
def test_the_median_of_the_others(values: list[int]) -> None:
    """The usual step is the lower median of the steps of all other loops."""
    found = named_readers([reader(None, step=float(value)) for value in values])
    by_name = {one.name.partition(" (")[0]: one.slower for one in found}
    for place, value in enumerate(values):
        usual = median_low(values[:place] + values[place + 1 :])
        expected = round(value / usual, 2) if value >= 1.5 * usual else 0.0
        assert by_name[f"loop {place + 1}"] == expected


def test_a_loop_without_measures_is_not_compared() -> None:
    """Only loops that have sent measures are compared with each other."""
    begun, fresh, slow = reader(), reader(elements=0, step=0.0), reader(step=24.0)
    assert [one.slower for one in named_readers([fresh, begun])] == [0.0, 0.0]
    assert [one.slower for one in named_readers([begun])] == [0.0]
    found = named_readers([begun, fresh, fresh, slow])
    assert [one.slower for one in found] == [2.0, 0.0, 0.0, 0.0]


def test_loops_without_a_number_are_ordered_by_wait() -> None:
    """The loop that waits most comes first, behind those with a slow step."""
    waits = [one.wait_share for one in named_readers([reader(None, 0.1), reader(None, 0.9)])]
    assert waits == [0.9, 0.1]


def test_consumers_keep_their_order() -> None:
    """Numbered consumers are ordered by their number, and an unequal one is first."""
    found = named_readers([reader(1, 0.4), reader(3, 0.0, 48.0), reader(0, 0.2), reader(2, 0.9)])
    assert [(one.consumer, one.slower) for one in found] == [(3, 4.0), (0, 0.0), (1, 0.0), (2, 0.0)]


def test_names_of_loops_have_no_ids() -> None:
    """A loop is named by its consumer, its rank or its place, with host and process."""
    ranked = reader(member="7", process="node3:99:c0ffee01")
    odd = reader(process="c0ffee0123456789")
    names = {one.name for one in named_readers([reader(4), ranked, odd])}
    assert names == {"consumer 4 (node4:104)", "rank 7 (node3:99)", "loop 3"}


# --- jobs


@pytest.mark.parametrize(
    ("one", "condition", "words"),
    [
        (job(failure="ValueError: x", finished=True), "FAILED", "ValueError: x"),
        (job(finished=True, unit="rows"), "FINISHED", "All of its rows were delivered."),
        (job(finished=True, save="/saved"), "FINISHED", "were written to /saved."),
        (job(save="/saved", clients=0), "SAVING", "/saved"),
        (job(clients=0), "NOT READ", "No training loop"),
        (job(), "INPUT-BOUND", "6 would feed it"),
        (job(verdict=""), "UNKNOWN", "has sent measures"),
    ],
)
def test_the_condition_of_a_job(one: JobStatus, condition: str, words: str) -> None:
    """A job that no loop reads, that is saved, or that has failed or ended says so in
    place of a verdict, and failed is worse than ended.
    """
    found, sentence = condition_of(one)
    assert found == condition
    assert words in sentence


def test_the_most_urgent_job_comes_first() -> None:
    """Jobs are ordered by their condition, then by their wait, whatever their order."""
    made = every_condition()
    assert [one.condition for one in made.jobs] == sorted(
        (one.condition for one in made.jobs), key=CONDITIONS.index
    )
    waits = [one.wait_share for one in made.jobs if one.condition == "INPUT-BOUND"]
    assert waits == sorted(waits, reverse=True)
    shuffled = random.Random(7).sample(made.jobs, len(made.jobs))
    assert judged(shuffled, made.tasks) == made.jobs
    assert {one.condition for one in made.jobs} == set(CONDITIONS)


def test_every_verdict_is_a_condition() -> None:
    """A verdict can stand for a job in every list of conditions."""
    assert set(VERDICTS) <= set(CONDITIONS)


def test_the_name_of_a_job() -> None:
    """A job with an invented name has what it reads, one that has begun anew since the
    number of newer incarnations, and a later repetition its number. Numbers that other
    jobs have a part in are not shown.
    """
    jobs = [
        job("train", 1),
        job("train", 2, incarnation=6),
        job("eval", 3, repetition=2),
        job("anonymous_1f", 4, origin="train.py:9, map(f)"),
        job("loader-1f", 5),
    ]
    found = {one.iteration: one.name for one in judged(jobs, [])}
    assert found == {
        1: "train (1 incarnation ago)",
        2: "train",
        3: "eval (repetition 2)",
        4: "anonymous_1f (train.py:9, map(f))",
        5: "loader-1f",
    }


def test_troubles() -> None:
    """A job has a line on what is wrong with it and its tasks."""
    tasks = [task(0, state="stalled"), task(1, state="unhosted"), task(2, deaths=3)]
    wrong = job(missing_consumers=[3], poisoned=["x"], measures=TotalsStatus(redone=7, left_out=2))
    (found,) = judged([wrong], tasks)
    assert found.trouble == (
        "workers died 3 times; 1 task without progress; 1 task without a host; missing consumers: "
        "3; 1 element left out as poison; 2 elements skipped; 7 batches made again"
    )
    (found,) = judged([job()], [task(0), task(1, 2, state="stalled")])
    assert found.trouble == ""


# --- workers and tasks


def test_the_state_of_a_worker() -> None:
    """A worker out of reach is disconnected, and one that leaves is draining, however
    silent it is.
    """
    assert worker_state(False, True, 9.0) == "disconnected"
    assert worker_state(True, True, 9.0) == "draining"
    assert worker_state(True, False, 9.0) == "silent"
    assert worker_state(True, False, 1.0) == "connected"


def test_workers_that_are_not_connected_come_first() -> None:
    """Then come the busiest, and of equally busy ones the slowest."""
    hosts = [
        worker(0, making_share=0.2),
        worker(1, making_share=0.901),
        worker(2, making_share=0.899, elements_per_second=1.0),
        worker(3, making_share=0.1, connected=False),
    ]
    addresses = [one.address.rpartition(":")[2] for one in status(hosts=hosts).workers]
    assert addresses == ["40003", "40002", "40001", "40000"]


def test_tasks_that_are_not_well_come_first() -> None:
    """Then come the busiest, and last those that have ended."""
    states = {"ended": 0.9, "running": 0.5, "waiting_for_readers": 0.7, "lost": 0.0, "stalled": 0.1}
    tasks = [TaskStatus(state=state, making_share=share) for state, share in states.items()]
    found = [one.state for one in sorted(tasks, key=task_order)]
    assert found == ["stalled", "lost", "waiting_for_readers", "running", "ended"]


# --- an answer for programs


def conditions(**words: str) -> ServiceStatus:
    return ServiceStatus(jobs=[JobStatus(job=job, condition=one) for job, one in words.items()])


@pytest.mark.parametrize(
    ("found", "agreed"),
    [
        (conditions(a="COMPUTE-BOUND", b="COMPUTE-BOUND"), True),
        (conditions(a="COMPUTE-BOUND", b="FINISHED", c="NOT READ", d="SAVING"), True),
        (conditions(a="COMPUTE-BOUND", b="INPUT-BOUND"), False),
        (conditions(a="UNKNOWN", b="FAILED"), False),
        (conditions(a="COMPUTE-BOUND", b="UNKNOWN"), None),
        (conditions(a="FINISHED"), None),
        (conditions(), None),
    ],
)
def test_an_expectation(found: ServiceStatus, agreed: bool | None) -> None:
    """It holds if all jobs that are read have the verdict. Nothing is known without
    such a job, or if one of them has no verdict yet.
    """
    assert agrees(found, "COMPUTE-BOUND") is agreed


def test_an_expectation_of_a_job() -> None:
    """Other jobs do not count, and a job that is not there says nothing."""
    found = conditions(a="COMPUTE-BOUND", b="FAILED")
    assert agrees(found, "COMPUTE-BOUND", "a") is True
    assert agrees(found, "COMPUTE-BOUND", "b") is False
    assert agrees(found, "COMPUTE-BOUND", "c") is None


def test_a_former_incarnation_does_not_count() -> None:
    """A job that failed and began anew is judged by its present incarnation."""
    jobs = [job("train", 1, failure="OSError"), job("train", 2, incarnation=2)]
    found = status(jobs=jobs)
    assert all(agrees(found, word) is (word == "INPUT-BOUND") for word in EXPECTED)


# --- the form


def test_a_status_is_the_same_after_its_way_through_json() -> None:
    """A face gets the structures that a dispatcher sends."""
    made = every_condition()
    assert known_status(msgspec.json.decode(msgspec.json.encode(answer(made)))) == made


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({}, "is older than this release: no version, and this zmqdata reads version 1"),
        ({"version": 9}, "has version 9, and"),
        ({"version": "x"}, "has another form .*version"),
        ({"version": 1, "workers": [{"tasks": "many"}]}, r"another form .*\.workers\[0\]\.tasks"),
        ({"version": 1, "jobs": [{"job": "a"}]}, r"another form .*`condition` - at `\$\.jobs"),
        ([], "has another form"),
    ],
)
def test_a_status_of_another_form(found: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is wrong, the likely cause and the remedy, also without an
    installed zmqdata.
    """
    monkeypatch.setattr(metadata, "version", raise_not_installed)
    remedy = "is probably another release: install the same release on both sides"
    with pytest.raises(VersionMismatchError, match=f"{text}.*{remedy}"):
        known_status(found)


def raise_not_installed(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


def test_a_depth_without_its_parents() -> None:
    """A node is as deep as it has known nodes that read it."""
    made = operations(evidence([measured(1, {"0": 1.0, "0.1.0": 1.0})]))
    assert [one.depth for one in made] == [0, 1]
