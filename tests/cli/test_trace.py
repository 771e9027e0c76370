"""Test the command that records a service, on real processes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata import messages as m
from zmqdata.cli.commands import main
from zmqdata.client.calls import status
from zmqdata.client.probing import measured
from zmqdata.testing.cluster import await_condition

PATIENCE = 60.0
SECONDS = 2.0
NEVER = threading.Event()


def slow(number: Any) -> Any:
    NEVER.wait(0.004)  # the work that the test looks for
    return number


@contextmanager
def reading(cluster: LocalCluster, step: float) -> Iterator[None]:
    """Read a job, in a loop that takes ``step`` seconds for a batch."""
    dataset = Dataset.range(10**9).map(slow).batch(5)
    iterator = iter(dataset.apply(distribute("distributed_epoch", cluster.target, "train")))
    over = threading.Event()
    next(iterator)

    def loop() -> None:
        for _ in iterator:
            if over.wait(step):
                return

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)
        iterator.close()


def totals(cluster: LocalCluster) -> dict[str, float]:
    """Return the seconds that the dispatcher knows of the job's tasks."""
    [found] = status(cluster.target)["totals"]
    return {name: found[f"{name}_seconds"] for name in ("making", "waiting_for_readers")}


def lengths(trace: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Return the seconds of all spans, by process and name."""
    processes = {
        one["pid"]: one["args"]["name"]
        for one in trace["traceEvents"]
        if one["name"] == "process_name"
    }
    found: dict[tuple[str, str], float] = defaultdict(float)
    for one in trace["traceEvents"]:
        if one["ph"] == "X":
            found[processes[one["pid"]], one["name"]] += one["dur"] / 1e6
    return found


@pytest.mark.full
def test_a_service_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has the spans of two workers and of the client on one clock; their
    lengths agree with the measures, and none lies after the end.
    """
    out = tmp_path / "out.json"
    with LocalCluster(2) as cluster, reading(cluster, step=0.005):
        await_condition(lambda: sum(totals(cluster).values()) > 0, what="measures")
        before, began = totals(cluster), time.time()
        arguments = ["trace", "--seconds", str(SECONDS), str(out), "--dispatcher", cluster.target]
        assert main(arguments) == 0
        after, ended = totals(cluster), time.time()
        # Outside of the trace, nothing is kept.
        assert (
            main([*arguments[:2], "0.2", *arguments[3:4], "--timeout", "30", *arguments[4:]]) == 0
        )
        short = json.loads(out.read_text())
        assert all(one["dur"] < 0.5e6 for one in short["traceEvents"] if one["ph"] == "X")
        assert main(arguments) == 0
    found = json.loads(out.read_text())
    assert "3 processes" in capsys.readouterr().out
    check_times(found)
    check_lengths(found)
    assert ended - began < SECONDS + 30
    spent = sum(after.values()) - sum(before.values())
    assert spent > SECONDS  # of two workers, whose reports may be a second old


def check_times(trace: dict[str, Any]) -> None:
    """Assert that all events lie within the trace, give or take the clocks."""
    times = [
        (one["ts"], one["ts"] + one.get("dur", 0)) for one in trace["traceEvents"] if "ts" in one
    ]
    first, last = min(one for one, _ in times), max(one for _, one in times)
    errors = [one["clock_error_us"] for one in trace["otherData"]["processes"]]
    assert last - first <= SECONDS * 1e6 + 2 * max(errors) + 1e6
    assert not trace["otherData"]["not_recorded"]


def check_lengths(trace: dict[str, Any]) -> None:
    """Assert that each worker's spans fill the trace, and that nodes and loop are
    there.
    """
    seconds = lengths(trace)
    workers = sorted({process for process, _ in seconds if process.startswith("worker ")})
    [client] = {process for process, _ in seconds if process.startswith("client ")}
    assert len(workers) == 2
    for worker in workers:
        states = {"making elements", "waiting for readers (credit)", "waiting for splits"}
        whole = sum(seconds[worker, name] for name in states)
        # A machine that is busy begins the trace of a worker late.
        assert SECONDS * 0.5 <= whole <= SECONDS * 1.01
        [node] = {
            name for process, name in seconds if process == worker and name.startswith("map(slow)")
        }
        assert "test_trace.py" in node
        assert 0 < seconds[worker, node] <= seconds[worker, "making elements"] * 1.1
    loop = seconds[client, "wait for an element"] + seconds[client, "step"]
    assert SECONDS * 0.5 <= loop <= SECONDS * 1.01
    blocks = [one for one in trace["traceEvents"] if one["name"] == "block"]
    assert blocks
    assert all(one["args"]["bytes"] > 0 for one in blocks)


def test_a_second_trace_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While a trace runs, another is refused with the seconds to wait, and begins
    after it.
    """
    ask, until = partial(m.RequestTrace, trace="other", seconds=2.0), time.monotonic() + PATIENCE
    out = tmp_path / "out.json.gz"
    with LocalCluster(1, in_process=True) as cluster:
        arguments = ["trace", "--seconds", "0.2", "--dispatcher", cluster.target, str(out)]
        with measured(cluster.target, "dispatcher") as connection:
            connection.ask(ask, m.TraceRecorded, until)
        assert main(arguments) == 2
        assert not out.exists()
        assert "Another trace is running" in capsys.readouterr().err
        await_condition(lambda: main(arguments) == 0, what="the end of the other trace")
    found = json.loads(gzip.decompress(out.read_bytes()))
    assert [one["name"][:7] for one in found["otherData"]["processes"]] == ["worker "]


def test_a_trace_of_torch_is_merged(tmp_path: Path) -> None:
    """The file has the events of another trace with --merge, and the times count from
    its base.
    """
    other = {"traceEvents": [{"ph": "i", "ts": 5.0, "name": "x"}], "baseTimeNanoseconds": 10**18}
    theirs, out = tmp_path / "torch.json", tmp_path / "out.json"
    theirs.write_text(json.dumps(other))
    with LocalCluster(1, in_process=True) as cluster:
        arguments = ["trace", "--seconds", "0.2", "--dispatcher", cluster.target]
        assert main([*arguments, "--merge", str(theirs), str(out)]) == 0
    found = json.loads(out.read_text())
    assert (found["traceEvents"][0], found["baseTimeNanoseconds"]) == (
        other["traceEvents"][0],
        10**18,
    )
    assert "zmqdata" in found["otherData"]


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--seconds", "0", "out.json"], 2, "`seconds` must be above 0 and at most 300"),
        (["--seconds", "1", "nowhere/out.json"], 2, "its folder is missing"),
        (["--seconds", "300", "folder"], 2, "folder cannot be written: it is a folder"),
        (["--seconds", "300", "out.json", "--merge", "bad.json"], 2, "bad.json is no trace"),
        (["--seconds", "300", "out.json", "--merge", "folder"], 2, "folder: Is a directory"),
        (
            ["--seconds", "300", "out.json", "--merge", "text.json"],
            2,
            "text.json is no trace, because it is no JSON",
        ),
        (
            ["--seconds", "300", "out.json", "--merge", "text.json.gz"],
            2,
            "text.json.gz is no trace, because it is no JSON",
        ),
        (["--seconds", "300", "out.json", "--merge", "nowhere/x.json"], 2, "nowhere/x.json cannot"),
        (["--seconds", "0.1", "out.json"], 1, "no worker is registered"),
    ],
)
def test_what_cannot_be_recorded_is_said(
    options: list[str],
    code: int,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wrong arguments are reported as a line before a trace begins; a service
    without workers is reported after it.
    """
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("[]")
    for name in ("text.json", "text.json.gz"):
        Path(name).write_text("no JSON")
    Path("folder").mkdir()
    with LocalCluster(0, in_process=True) as cluster:
        assert main(["trace", *options, "--dispatcher", cluster.target]) == code
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, r'{"traceEvents": ["\ud800"]}'])
def test_a_trace_outlives_a_merge_that_fails(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the trace of torch is still missing at the end, or has a value that
    cannot be written, the file has our spans alone. The command names the other
    file and ends with code 1.
    """
    theirs, out = tmp_path / "torch.json", tmp_path / "out.json"
    if content is not None:
        theirs.write_text(content)
    with LocalCluster(1, in_process=True) as cluster:
        arguments = ["trace", "--seconds", "0.1", "--dispatcher", cluster.target]
        assert main([*arguments, "--merge", str(theirs), str(out)]) == 1
    assert len(json.loads(out.read_text())["otherData"]["processes"]) == 1
    error = capsys.readouterr().err
    assert f"our spans only, without the events of {theirs}: " in error


def test_nothing_of_opentelemetry_is_imported() -> None:
    """Without the switch, no part of OpenTelemetry is imported, installed or not."""
    code = (
        "import sys\n"
        "from zmqdata import Dataset, LocalCluster, distribute\n"
        "with LocalCluster(1, in_process=True) as cluster:\n"
        "    assert len(list(Dataset.range(3).apply(distribute('parallel_epochs', cluster.target)))) == 3\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_the_switch_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the API of OpenTelemetry, worker and client say what to install."""
    from zmqdata import WorkerConfig
    from zmqdata.config import telemetry

    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'zmqdata\[otel\]'"):
        WorkerConfig("d:1", otel=True)
    with pytest.raises(ValueError, match="ZMQDATA_OTEL"):
        telemetry.TelemetrySettings(otel=True)
