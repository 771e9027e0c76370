"""Everything that shows a status says the same: ``top``, ``status``, its JSON, the
dashboard, the report, ``/metrics`` and ``stats()``.
"""

from __future__ import annotations

import json
import os
import platform
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from tests.metrics.scraped import samples
from tests.statuses import answer, every_condition
from zmqdata import (
    Dataset,
    DatasetIterator,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    distribute,
)
from zmqdata.cli.commands import main
from zmqdata.cli.screen import screen
from zmqdata.client import calls
from zmqdata.dashboard.report import report_of
from zmqdata.dashboard.view import view_of
from zmqdata.dashboard.watching import StatusWatch
from zmqdata.errors import CancelledError, FailedPreconditionError
from zmqdata.measures.situation import Situation, doing_of
from zmqdata.measures.status import stats_of
from zmqdata.messages import JobStatus, LoopSums, ReaderStatus, ServiceStatus, known_status
from zmqdata.printable import shown_rate, shown_share
from zmqdata.testing.cluster import await_condition

WIDTH = 1_000
PATIENCE = 40.0
SLOW_THREAD = "ZMQDATA_TEST_SLOW_THREAD"
NEVER = threading.Event()

# --- a recorded status


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> ServiceStatus:
    """A status with a job in each condition, which the commands get as an answer."""
    made = every_condition()
    monkeypatch.setattr(calls, "status", lambda service, timeout, role: answer(made))
    return made


def drawn(found: ServiceStatus) -> str:
    """Return what ``top`` draws, if its window has room for everything."""
    console = Console(width=WIDTH)
    with console.capture() as captured:
        console.print(screen(found, WIDTH))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Return what ``zmqdata status`` prints into a pipe."""
    assert main(["status", "--dispatcher", "tcp://127.0.0.1:1", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    return "\n".join(line.rstrip() for line in lines)


def views_of(found: ServiceStatus) -> list[dict[str, Any]]:
    """Return the view of the dashboard, and the view that is in the saved report."""
    watch = StatusWatch(lambda: answer(found), threading.Event())
    watch.poll()
    content = re.search(r'id="report">(.*?)</script>', report_of(watch.whole()))
    assert content is not None
    reported: dict[str, Any] = json.loads(content[1])["view"]
    return [view_of(found, 0.0), reported]


def part(text: str, heading: str) -> str:
    """Return what follows the line that begins so, up to an empty line, on one line."""
    lines = text.split("\n")
    (at,) = [number for number, line in enumerate(lines) if line.startswith(heading)]
    end = next((n for n in range(at, len(lines)) if not lines[n]), len(lines))
    return " ".join(" ".join(lines[at:end]).split())


def shares_of(one: JobStatus) -> list[tuple[str, str]]:
    return [(row.node, shown_share(row.share)) for row in one.operations]


def test_pictures_say_what_the_status_says(
    recorded: ServiceStatus, capsys: pytest.CaptureFixture[str]
) -> None:
    """The picture of ``top`` and what ``status`` prints have the condition, sentence,
    trouble, rates and shares of each job, what its operations do, and the state and the
    process of each worker.
    """
    for text in (drawn(recorded), printed(capsys)):
        for one in recorded.jobs:
            told = part(text, f"{one.name}  {one.condition}")
            assert one.sentence in told
            assert one.trouble in told
            assert f"{shown_rate(one.elements_per_second)} {one.unit}/s" in told
            assert f"workers make {shown_rate(one.made_per_second)} {one.unit}/s" in told
            if one.condition != "FINISHED":
                tree = part(text, f"operations, lately: {one.name}  ")
                assert all(f"{node} {share}" in tree for node, share in shares_of(one))
                assert all(doing_of(row) in tree for row in one.operations)
        for host in recorded.workers:
            row = part(text, "worker ").partition(host.address.removeprefix("tcp://"))[2]
            state = "" if host.state == "connected" else host.state
            assert row.startswith(f" {host.process} {state}")


def test_views_say_what_the_status_says(recorded: ServiceStatus) -> None:
    """The dashboard and the report have the same of each job and worker, and the rate
    and the shares of each training loop.
    """
    waits = [doing_of(row) for row in recorded.jobs[0].operations]
    assert waits == ["", "waits (3 % processor)", "", ""]
    for view in views_of(recorded):
        assert len(view["jobs"]) == len(recorded.jobs)
        for shown, one in zip(view["jobs"], recorded.jobs, strict=True):
            assert (shown["job"], shown["condition"]) == (one.name, one.condition)
            assert (shown["sentence"], shown["trouble"]) == (one.sentence, one.trouble)
            facts = {fact["text"]: fact["figure"] for fact in shown["facts"]}
            assert facts[f"{one.unit}/s taken"] == shown_rate(one.elements_per_second)
            assert facts[f"{one.unit}/s made by workers"] == shown_rate(one.made_per_second)
            stages = [row for row in shown["stages"] if row["kind"] == "node"]
            assert [(row["label"], row["percent"]) for row in stages] == shares_of(one)
            assert [row["doing"] for row in stages] == [doing_of(row) for row in one.operations]
            loops = [(row["name"], row["percent"], row["rate"]) for row in shown["readers"]]
            assert loops == [
                (row.name, shown_share(row.wait_share), shown_rate(row.elements_per_second))
                for row in one.readers
            ]
        rows = {(row["address"], row["state"], row["process"]) for row in view["workers_rows"]}
        assert rows == {(host.address, host.state, host.process) for host in recorded.workers}


def test_json_is_the_status(recorded: ServiceStatus, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get the structures, from which everything else is made. They have the
    names of ``stats()``.
    """
    assert known_status(json.loads(printed(capsys, "--json"))) == recorded
    names = {name.removeprefix("data/") for name in stats_of(Situation(LoopSums()))}
    of_loops = {"wait_ms", "step_ms", "first_element_seconds", "elements", "waited_seconds"}
    assert of_loops <= set(ReaderStatus.__struct_fields__)
    assert names - of_loops <= set(JobStatus.__struct_fields__)


# --- a running cluster


def f(number: Any) -> Any:
    """Take long in the thread that calls first. All workers share the environment."""
    mine = str(threading.get_ident())
    NEVER.wait(0.03 if os.environ.setdefault(SLOW_THREAD, mine) == mine else 0.001)
    return number


def g(number: Any) -> Any:
    NEVER.wait(0.001)
    return number


@pytest.fixture
def dispatcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[DispatchServer]:
    """A dispatcher with two workers, one of which will be slow."""
    monkeypatch.setenv(SLOW_THREAD, "")
    monkeypatch.delenv(SLOW_THREAD)
    with (
        DispatchServer(DispatcherConfig(metrics_port=0)) as server,
        WorkerServer(WorkerConfig(server.target, heartbeat_interval_ms=200)),
        WorkerServer(WorkerConfig(server.target, heartbeat_interval_ms=200)),
    ):
        yield server


@pytest.fixture
def iterator(dispatcher: DispatchServer) -> Iterator[DatasetIterator]:
    """A training loop that waits for the workers."""
    read = distribute("distributed_epoch", dispatcher.target, "train")
    reader, over = iter(Dataset.range(10**9).map(g).map(f).apply(read)), threading.Event()

    def loop() -> None:
        for _ in reader:
            if over.is_set():
                return

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield reader
    finally:
        over.set()
        thread.join(PATIENCE)
        reader.close()


def test_all_say_that_no_worker_runs() -> None:
    """Without a worker, ``stats()`` and the status say the same of a job of batches."""
    with DispatchServer(DispatcherConfig()) as server:
        read = distribute("distributed_epoch", server.target, "train")
        reader, told = iter(Dataset.range(9).batch(3).apply(read)), set[str]()

        def wait() -> None:
            with pytest.raises(CancelledError):
                next(reader)

        thread = threading.Thread(target=wait)
        thread.start()

        def is_one_view() -> bool:
            jobs = known_status(calls.status(server.target)).jobs
            told.update(one.sentence for one in jobs if one.verdict)
            return bool(told)

        try:
            await_condition(is_one_view, PATIENCE, "measures of the loop")
            assert told == {reader.stats()["data/advice"]}
            assert told.pop().startswith(
                "The loop waits for its first batch. No worker hosts a task"
            )
        finally:
            reader.close()
            thread.join(PATIENCE)


def refuse() -> None:
    raise RuntimeError("libjpeg is not installed")


class Unopened:
    """A function that no worker can open."""

    def __call__(self, number: Any) -> Any:
        return number

    def __reduce__(self) -> Any:
        return refuse, ()


def test_all_say_that_a_job_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """A loop's ``stats()``, ``top``, the dashboard and ``doctor`` say that a job has
    failed, with the error that its loop got. No loop waits for it any more.
    """
    with (
        DispatchServer(DispatcherConfig()) as server,
        WorkerServer(WorkerConfig(server.target, heartbeat_interval_ms=200)),
    ):
        read = distribute("distributed_epoch", server.target, "train")
        reader = iter(Dataset.range(9).map(Unopened()).apply(read))
        with pytest.raises(FailedPreconditionError, match="libjpeg") as raised:
            next(reader)
        sentence = str(raised.value)
        stats = reader.stats()
        assert (stats["data/verdict"], stats["data/advice"]) == ("FAILED", sentence)
        found = known_status(calls.status(server.target))
        (job,) = found.jobs
        assert (job.condition, job.sentence) == ("FAILED", sentence)
        assert " ".join(sentence.split()) in part(drawn(found), "train  FAILED")
        assert [(one["condition"], one["sentence"]) for one in view_of(found, 0.0)["jobs"]] == [
            ("FAILED", sentence[:400] + "..." * (len(sentence) > 400))
        ]
        assert main(["doctor", "--dispatcher", server.target, "--json"]) == 1
        told = json.loads(capsys.readouterr().out)
        warning = {"subject": "job train", "check": "condition", "state": "warning"}
        assert warning | {"found": "FAILED", "remedy": sentence} in told["findings"]
        reader.close()


def largest(shares: dict[str, float]) -> str:
    return max(shares, key=lambda name: shares[name]).partition(" ")[0] if shares else ""


def named(found: ServiceStatus, iterator: DatasetIterator, metrics: str) -> dict[str, str]:
    """Return the operation of the largest share, by what names it."""
    (job,) = found.jobs
    drawn_rows = re.findall(r"(map\(.\)) at .* (\d+) %  █", drawn(found))
    views = {
        f"view {number}": largest(
            {one["label"]: one["share"] for one in view["jobs"][0]["stages"] if one["threads"]}
        )
        for number, view in enumerate(views_of(found))
    }
    return views | {
        "stats": iterator.stats()["data/node"].partition(" ")[0],
        "status": job.node.partition(" ")[0],
        "operations": largest({one.node: one.share for one in job.operations}),
        "top": largest({name: float(share) for name, share in drawn_rows}),
        "so far": largest({one.node: one.seconds for one in job.measures.nodes}),
        "metrics": largest(
            {
                dict(labels)["node"]: value
                for (name, labels), value in samples(metrics).items()
                if name == "zmqdata_node_seconds_total"
            }
        ),
    }


def test_all_name_the_same_operation(dispatcher: DispatchServer, iterator: DatasetIterator) -> None:
    """Every answer names ``f``, in which one of two workers is slow. Those of the last
    seconds have the same share, and the rates of workers add up to that of the job.
    The workers name their process.
    """
    metrics = dispatcher.metrics_address
    assert metrics is not None
    told: dict[str, str] = {}

    def is_one_view() -> bool:
        found = known_status(calls.status(dispatcher.target))
        if not found.jobs:
            return False  # on a loaded machine the loop begins later
        told.update(named(found, iterator, metrics))
        (job,), mine = found.jobs, iterator.stats()["data/node_share"]
        rates = [one.elements_per_second for one in found.workers]
        assert job.made_per_second == pytest.approx(sum(rates), rel=1e-3)
        assert {one.process for one in found.workers} == {f"{platform.node()}:{os.getpid()}"}
        return set(told.values()) == {"map(f)"} and all(rates) and abs(mine - job.node_share) < 0.01

    try:
        await_condition(is_one_view, PATIENCE, "one view")
    except TimeoutError as error:
        raise AssertionError(told) from error
