"""Tests of ``zmqdata.dashboard.view``."""

from __future__ import annotations

import json

import pytest

from tests.dashboard.statuses import CLIENT, WORKER, job, reader, status, task, worker
from zmqdata import (
    Dataset,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    distribute,
)
from zmqdata.client.calls import status as ask_status
from zmqdata.dashboard import view as views
from zmqdata.dashboard.view import view_of, without_ids
from zmqdata.testing.cluster import await_condition


def test_the_verdict_is_that_of_the_status() -> None:
    """A job has the word, the advice and the number of workers of the status."""
    (shown,) = view_of(status(), 5.0)["jobs"]
    assert (shown["verdict"], shown["advice"]) == (job()["verdict"], job()["advice"])
    assert (shown["workers_needed"], shown["workers"]) == (6, 2)


def test_the_worst_job_comes_first() -> None:
    """Jobs are ordered by their verdict, and finished jobs come last."""
    jobs = [
        job("done", 1, finished=True),
        job("calm", 2, verdict="COMPUTE-BOUND"),
        job("new", 3, verdict=""),
        job("bad", 4),
        job("uneven", 5, verdict="STRAGGLER"),
    ]
    shown = view_of(status(0, jobs), 0.0)["jobs"]
    assert [one["job"] for one in shown] == ["bad", "uneven", "calm", "new", "done"]


def test_stages_go_from_the_loop_to_the_source() -> None:
    """The pipeline is a tree: loop, links, workers, the worker's own work, the nodes by
    place, splits.
    """
    (shown,) = view_of(status(), 0.0)["jobs"]
    found = [(one["kind"], one["label"], one["depth"]) for one in shown["stages"]]
    assert found == [
        ("loop", "training loop", 0),
        ("link", "links from the workers", 0),
        ("worker", "2 workers", 0),
        ("node", "packing elements", 1),
        ("node", "batch(8) at train.py:32", 2),
        ("node", "map(decode) at train.py:31", 3),
        ("source", "splits", 0),
    ]
    decode = shown["stages"][5]
    assert (decode["share"], decode["seconds"], decode["threads"]) == (0.94, 9.0, 2)
    assert [one["queue"] for one in shown["stages"] if one["queue"] is not None] == [2, 6, 99_086]


def test_inputs_are_ordered_by_number_not_by_letter() -> None:
    """The tenth input of a node comes after its second."""
    nodes = [
        {"place": f"0.{number}", "node": f"n{number}", "seconds": 1.0, "share": 0.1, "threads": 1}
        for number in (10, 2, 0)
    ]
    found = status(1) | {"tasks": [task(0, WORKER(0), nodes=nodes)]}
    stages = view_of(found, 0.0)["jobs"][0]["stages"]
    assert [one["label"] for one in stages if one["kind"] == "node"] == ["n0", "n2", "n10"]


def test_an_unequal_rank_is_marked() -> None:
    """A consumer whose step takes far longer than those of the others has a mark."""
    readers = [reader(1, 0.4), reader(0, 0.4), reader(2, 0.0, step=40.0)]
    (shown,) = view_of(status(2, [job(readers=readers)]), 0.0)["jobs"]
    assert [(one["consumer"], one["slower"]) for one in shown["readers"]] == [
        (0, 0.0),
        (1, 0.0),
        (2, 4.0),
    ]
    assert shown["wait_share"] == 0.4


def test_loops_without_a_number_are_ordered_by_wait() -> None:
    """The loop that waits most comes first."""
    readers = [reader(None, 0.1), reader(None, 0.9)]
    (shown,) = view_of(status(2, [job(readers=readers)]), 0.0)["jobs"]
    assert [one["wait_share"] for one in shown["readers"]] == [0.9, 0.1]


def test_of_many_loops_the_unequal_ones_are_shown() -> None:
    """The slow one of thousands of consumers is in the table. The spread of waits is
    that of all of them.
    """
    readers = [reader(number, number / 10_000) for number in range(3_000)]
    readers[7] = reader(7, 0.0, step=50.0)
    (shown,) = view_of(status(2, [job(readers=readers)]), 0.0)["jobs"]
    assert [one["consumer"] for one in shown["readers"][:3]] == [7, 2_999, 2_998]
    assert shown["waits"] == [0.0, 0.1499, 0.2999]
    assert shown["more_readers"] == 3_000 - views.MOST_READERS


def test_states_of_workers() -> None:
    """A worker that is lost, leaves, or makes no progress is told apart."""
    found = status(0) | {
        "workers": [
            worker(0),
            worker(1, connected=False),
            worker(2, draining=True),
            worker(3),
            worker(4, tasks=0),
        ],
        "tasks": [task(3, WORKER(3), stalled=True)],
    }
    shown = view_of(found, 0.0)["workers"]
    assert shown["state"] == ["at work", "not connected", "draining", "stalled", "without a task"]
    assert shown["states"]["at work"] == 1


def test_links_have_transport_and_codec() -> None:
    """Bytes that have arrived are told by transport and codec."""
    (shown,) = view_of(status(), 0.0)["jobs"]
    assert [(one["transport"], one["codec"]) for one in shown["links"]] == [
        ("tcp", "zstd"),
        ("shm", "none"),
    ]
    assert shown["bytes_rate"] == 2_000_000
    assert (shown["unit"], shown["rows_rate"]) == ("elements", None)


def test_a_view_is_bounded() -> None:
    """Thousands of workers, readers and jobs, and long texts, leave a view that travels
    each second.
    """
    readers = [reader(number) for number in range(3_000)]
    jobs = [
        job("x" * 100_000, number, readers=readers, poisoned=["p"] * 1_000) for number in range(40)
    ]
    shown = view_of(status(5_000, jobs), 0.0)
    assert len(shown["jobs"]) == views.MOST_JOBS
    assert shown["more_jobs"] == 40 - views.MOST_JOBS
    assert shown["jobs"][0]["more_readers"] == 3_000 - views.MOST_READERS
    assert (shown["workers"]["count"], len(shown["workers"]["address"])) == (5_000, 2_000)
    assert len(json.dumps(shown)) < 2_000_000


def test_a_thousand_workers_take_little_room() -> None:
    """A view of a thousand workers has less than 100 bytes for each."""
    assert len(json.dumps(view_of(status(1_000), 0.0)["workers"])) < 100_000


def test_a_view_has_no_ids_and_no_configuration() -> None:
    """Neither the view nor the report has ids of clients, runs and workers, or keys."""
    text = json.dumps(without_ids(view_of(status(), 0.0)))
    assert CLIENT not in text
    assert CLIENT[:8] not in text
    assert WORKER(1) not in text
    assert "secret-key" not in text
    assert "client (id) was silent" in text


@pytest.mark.realprocess
def test_a_real_status_is_shown() -> None:
    """The view of a running cluster has its job, its worker and its events."""
    with (
        DispatchServer(DispatcherConfig()) as dispatcher,
        WorkerServer(WorkerConfig(dispatcher.target)),
    ):
        dataset = Dataset.range(10_000).map(lambda x: x + 1).batch(10)
        elements = iter(dataset.apply(distribute("distributed_epoch", dispatcher.target, "train")))
        next(elements)
        found = view_of(ask_status(dispatcher.target), 0.0)
        assert [one["job"] for one in found["jobs"]] == ["train"]
        assert found["workers"]["count"] == 1
        assert any("is registered" in one["text"] for one in found["events"])
        await_condition(
            lambda: view_of(ask_status(dispatcher.target), 0.0)["jobs"][0]["readers"],
            what="a reader",
        )
        elements.close()
