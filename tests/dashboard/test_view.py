"""Tests of ``zmqdata.dashboard.view``."""

from __future__ import annotations

import json
import re
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
from zmqdata.dashboard.report import page_file
from zmqdata.dashboard.view import view_of, without_ids
from zmqdata.dashboard.watching import SHOWN
from zmqdata.messages import ServiceStatus, known_status
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
        assert (shown["trouble"], shown["rate"]) == (one.trouble, one.elements_per_second)
        assert shown["is_over"] == (one.condition == "FINISHED")
    assert view["title"] == "FAILED - broken - zmqdata"
    assert view["announcement"].startswith("broken: FAILED. ")


def test_facts_are_figures_and_what_they_count() -> None:
    """A job has its facts as pairs; that which is unknown is left out."""
    (shown,) = view_of(status(), 0.0)["jobs"]
    assert [(one["figure"], one["text"]) for one in shown["facts"]] == [
        ("4,321 batches", "delivered"),
        ("31", "batches/s taken"),
        ("19", "batches/s made by workers"),
        ("2 workers", "of 6 that would feed it"),
        ("1 training loop", ""),
        ("distributed_epoch", "sharding"),
        ("992", "rows/s"),
    ]
    fed = job(workers=6, unit="elements", origin="train.py:9, map(f)")
    (shown,) = view_of(status(2, [fed]), 0.0)["jobs"]
    assert [(one["figure"], one["text"]) for one in shown["facts"]][3:] == [
        ("6 workers", ""),
        ("1 training loop", ""),
        ("distributed_epoch", "sharding"),
        ("train.py:9, map(f)", "is read"),
    ]


def test_an_empty_view_says_what_is_missing() -> None:
    """Without jobs and workers the page says so, once a dispatcher has answered."""
    view = view_of(ServiceStatus(dispatcher="tcp://a:1", config={"insecure": True}), 0.0)
    assert (view["title"], view["dispatcher"]) == ("zmqdata", "tcp://a:1, without a key")
    assert view["no_job"].startswith("No job runs.")
    assert view["workers_summary"].startswith("No worker is registered.")
    assert view_of(ServiceStatus(), 0.0)["no_job"] == ""


def keys_of(found: Any) -> set[str]:
    """Return the names of all fields of a view."""
    if isinstance(found, list):
        return {key for one in found for key in keys_of(one)}
    if not isinstance(found, dict):
        return set()
    return found.keys() | {key for value in found.values() for key in keys_of(value)}


def test_the_page_shows_the_fields_of_the_view() -> None:
    """The page names no field that the view lacks, and the view has no field that
    neither the page, nor its script, nor the history uses.
    """
    page = page_file("index.html").decode()
    cells = set(re.findall(r'template id="cell-(\w+)"', page))
    ways = "text|clock|tone|depth|bar|job|items|field"
    named = set(re.findall(rf'data-(?:{ways})="(\w+)"', page))
    fields = keys_of(view_of(status(2, [job(poisoned=["element 7"])]), 0.0))
    assert named - cells - fields == set()
    in_script = set(re.findall(r"\w+", page_file("dashboard.js").decode()))
    assert fields - named - in_script - set(SHOWN) == set()


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
    assert (decode["share"], decode["percent"]) == (0.94, "94 %")
    assert (decode["seconds"], decode["threads"]) == ("9.4", "4")
    assert [(one["queue"], one["queued"]) for one in shown["stages"] if one["queue"]] == [
        ("2", "ready to be taken"),
        ("6", "made and not delivered"),
        ("19,000", "not handed out"),
    ]


def test_of_many_loops_the_first_are_shown() -> None:
    """The slow one of thousands of consumers is in the table. The spread of waits is
    that of all of them.
    """
    readers = [reader(number, number / 10_000) for number in range(3_000)]
    readers[7] = reader(7, 0.0, 50.0)
    (shown,) = view_of(status(2, [job(readers=readers)]), 0.0)["jobs"]
    names = [one["name"] for one in shown["readers"][:3]]
    assert names == ["consumer 7 (node7:107)", "consumer 0 (node0:100)", "consumer 1 (node1:101)"]
    assert [one["mark"] for one in shown["readers"][:2]] == ["4.2 x the others' step", ""]
    assert shown["slower"].endswith(": consumer 7 (node7:107).")
    assert shown["spread"] == (
        "The loops wait 0 % (least), 15 % (median) and 30 % (most) of their time. 2,936 more are "
        "not in the table."
    )


def test_the_slower_loops_are_named_up_to_a_limit() -> None:
    """A sentence names five of them and counts the others; without any it is empty."""
    readers = [reader(number, 0.1, 50.0 if number < 8 else 12.0) for number in range(40)]
    (shown,) = view_of(status(2, [job(readers=readers)]), 0.0)["jobs"]
    assert shown["slower"].endswith("consumer 4 (node4:104); and 3 more.")
    (shown,) = view_of(status(), 0.0)["jobs"]
    assert (shown["slower"], shown["spread"]) == ("", "")


def test_states_of_workers() -> None:
    """A worker has the state of the status, and its place is that of its address."""
    hosts = [worker(0), worker(1, connected=False), worker(2, draining=True)]
    hosts.append(worker(3, silent_seconds=8.0))
    view = view_of(status(hosts=hosts), 0.0)
    assert view["workers"]["state"] == ["connected", "disconnected", "draining", "silent"]
    assert [one["state"] for one in view["workers_rows"]] == view["workers"]["state"]
    assert view["workers_summary"] == (
        "4 workers: 1 connected, 1 disconnected, 1 draining, 1 silent. On average they make "
        "elements 90 % of the time."
    )


def test_the_table_of_workers_begins_with_those_in_trouble() -> None:
    """If there are more workers than rows, the rows are the first of the status."""
    found = status(hosts=[worker(number, silent_seconds=0.1 * number) for number in range(150)])
    view = view_of(found, 0.0)
    rows = [one["address"] for one in view["workers_rows"]]
    assert rows == [one.address for one in found.workers[: views.MOST_ROWS]]
    assert view["workers_rows"][0]["state"] == "silent"
    assert view["workers_caption"].startswith("100 of 150 workers")


def test_links_have_transport_and_codec() -> None:
    """Bytes that have arrived are told by transport and codec."""
    (shown,) = view_of(status(), 0.0)["jobs"]
    assert [tuple(one.values()) for one in shown["links"]] == [
        ("shm", "none", "9 MB", "34", "265 kB"),
        ("tcp", "zstd", "5 MB", "60", "83.3 kB"),
    ]
    assert shown["sent"].startswith(
        "Workers send 2 MB/s; the busiest link has bytes in flight 40 %"
    )


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
    assert shown["more_jobs"].startswith("28 more jobs: ")
    assert len(shown["jobs"][0]["readers"]) == views.MOST_READERS
    assert shown["jobs"][0]["poison"].startswith("1,000 elements left out ")
    assert len(shown["jobs"][0]["poisoned"]) == views.MOST_POISONED
    assert len(shown["workers"]["address"]) == views.MOST_WORKERS_SHOWN
    assert shown["workers_summary"].endswith(" 2,000 are shown.")
    assert len(json.dumps(shown)) < 2_000_000


def test_a_thousand_workers_take_little_room() -> None:
    """A view of a thousand workers has less than 100 bytes for each, with the rows of
    its table.
    """
    view = view_of(status(1_000), 0.0)
    assert len(json.dumps([view["workers"], view["workers_rows"]])) < 100_000


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
        assert len(found["workers"]["address"]) == 1
        assert any("is registered" in one["text"] for one in found["events"])
        await_condition(
            lambda: seen()["jobs"][0]["readers"],
            what="a reader",
        )
        elements.close()
