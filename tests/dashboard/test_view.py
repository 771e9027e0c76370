"""Tests of ``zmqdata.dashboard.view``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.statuses import CLIENT, WORKER, every_condition, job, reader, status, worker
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
from zmqdata.messages import known_status
from zmqdata.testing.cluster import await_condition


def test_the_condition_is_that_of_the_status() -> None:
    """A job has the condition, the sentence, the trouble, the rates and the number of
    workers of the status, in its order.
    """
    found = every_condition()
    view = view_of(found, 5.0)
    assert [one["job"] for one in view["jobs"]] == [one.name for one in found.jobs]
    for shown, one in zip(view["jobs"], found.jobs, strict=True):
        assert (shown["condition"], shown["sentence"]) == (one.condition, one.sentence)
        assert (shown["trouble"], shown["unit"]) == (one.trouble, one.unit)
        assert (shown["rate"], shown["made_rate"]) == (one.elements_per_second, one.made_per_second)
        assert (shown["workers_needed"], shown["workers"]) == (one.workers_needed, one.workers)
        assert shown["is_over"] == (one.condition == "FINISHED")


def test_stages_go_from_the_loop_to_the_source() -> None:
    """The pipeline is a tree: loop, links, workers, the operations of the status,
    splits.
    """
    (shown,) = view_of(status(), 0.0)["jobs"]
    found = [(one["kind"], one["label"], one["depth"]) for one in shown["stages"]]
    assert found == [
        ("loop", "training loop", 0),
        ("link", "links from the workers", 0),
        ("worker", "2 workers", 0),
        ("node", "batch(8) at train.py:32", 1),
        ("node", "map(decode) at train.py:31", 2),
        ("node", "shuffle(100)", 3),
        ("node", "packing elements", 1),
        ("source", "splits", 0),
    ]
    decode = shown["stages"][4]
    assert (decode["share"], decode["seconds"], decode["threads"]) == (0.94, 9.4, 4)
    assert [one["queue"] for one in shown["stages"] if one["queue"] is not None] == [2, 6, 19_000]


def test_of_many_loops_the_first_are_shown() -> None:
    """The slow one of thousands of consumers is in the table. The spread of waits is
    that of all of them.
    """
    readers = [reader(number, number / 10_000) for number in range(3_000)]
    readers[7] = reader(7, 0.0, 50.0)
    (shown,) = view_of(status(2, [job(readers=readers)]), 0.0)["jobs"]
    names = [one["name"] for one in shown["readers"][:3]]
    assert names == ["consumer 7 (node7:107)", "consumer 0 (node0:100)", "consumer 1 (node1:101)"]
    assert shown["readers"][0]["slower"] == 4.17
    assert shown["waits"] == [0.0, 0.1499, 0.2999]
    assert shown["more_readers"] == 3_000 - views.MOST_READERS


def test_states_of_workers() -> None:
    """A worker has the state of the status, and its place is that of its address."""
    hosts = [worker(0), worker(1, connected=False), worker(2, draining=True)]
    hosts.append(worker(3, silent_seconds=8.0))
    shown = view_of(status(hosts=hosts), 0.0)["workers"]
    assert shown["state"] == ["connected", "disconnected", "draining", "silent"]
    assert shown["states"] == dict.fromkeys(("connected", "disconnected", "draining", "silent"), 1)


def test_links_have_transport_and_codec() -> None:
    """Bytes that have arrived are told by transport and codec."""
    (shown,) = view_of(status(), 0.0)["jobs"]
    assert [(one["transport"], one["codec"]) for one in shown["links"]] == [
        ("shm", "none"),
        ("tcp", "zstd"),
    ]
    assert shown["bytes_rate"] == 2_000_000
    assert (shown["unit"], shown["rows_rate"]) == ("batches", 992.0)


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

        def seen() -> dict[str, Any]:
            return view_of(known_status(ask_status(dispatcher.target)), 0.0)

        found = seen()
        assert [one["job"] for one in found["jobs"]] == ["train"]
        assert found["workers"]["count"] == 1
        assert any("is registered" in one["text"] for one in found["events"])
        await_condition(
            lambda: seen()["jobs"][0]["readers"],
            what="a reader",
        )
        elements.close()
