"""Test that what functions print and log on workers reaches the training process."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from zmqdata import Dataset, DispatchServer, LocalCluster, distribute
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import await_condition

pytestmark = pytest.mark.realprocess


@contextlib.contextmanager
def service(*options: str) -> Iterator[tuple[str, ServerProcess]]:
    """Run a dispatcher, and a worker whose output no process passes on."""
    with DispatchServer() as dispatcher:
        worker = ServerProcess("zmqdata.worker", ["--dispatcher", dispatcher.target, *options])
        with contextlib.closing(worker):
            worker.launch()
            worker.await_ready(60.0)
            yield dispatcher.target, worker


def talk(number: int) -> int:
    """Print and log, in a function of a pipeline.

    Other calls may print before the end of a line in the worker's own output, as in
    every process, but not within a text.
    """
    print(f"seen {number}")
    print(f"to stderr {number}", file=sys.stderr)
    logging.getLogger("decode").warning("odd %d", number)
    return number


def talking(target: str, calls: int = 2, **options: object) -> Dataset:
    return (
        Dataset.range(4)
        .map(talk, num_parallel_calls=calls)
        .apply(distribute("distributed_epoch", target, **options))  # type: ignore[arg-type]  # of a test
    )


def test_what_functions_print_reaches_the_training_process(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Each line is shown once, after the names of worker and task, when the iteration
    has ended, and is in the worker's own output, too. With ``forward_logs=False`` it is
    only there.
    """
    with service() as (target, worker):
        assert sorted(talking(target)) == [0, 1, 2, 3]
        shown = capsys.readouterr().err + "\n".join(
            record.getMessage() for record in caplog.records
        )
        where = rf"^\[worker {re.escape(worker.address.removeprefix('tcp://'))}, task \d+\] "
        for number in range(4):
            for text in (f"seen {number}", f"to stderr {number}", f"decode: odd {number}"):
                assert len(re.findall(where + text, shown, re.MULTILINE)) == 1, text
        assert {record.levelname for record in caplog.records if "odd" in record.getMessage()} == {
            "WARNING"
        }
        for text in ("seen 0", "to stderr 0", "decode: odd 0"):
            assert worker.log.count(text) == 1
        caplog.clear()
        assert sorted(talking(target, forward_logs=False)) == [0, 1, 2, 3]
        await_condition(lambda: worker.log.count("seen 0") == 2)
        assert "seen" not in capsys.readouterr().err
        assert "odd" not in caplog.text


def test_a_flood_slows_nothing_and_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A function that prints far too much gets its elements through, and a line says
    how many lines are not shown.
    """

    def flood(number: int) -> int:
        for line in range(2_000):
            print("line", number, line)
        return number

    with service() as (target, _):
        dataset = Dataset.range(20).map(flood).apply(distribute("distributed_epoch", target))
        assert sorted(dataset) == list(range(20))
        shown = capsys.readouterr().err
    missing = sum(map(int, re.findall(r"(\d+) more lines are not shown here", shown)))
    assert shown.count("] line ") + missing == 40_000
    assert shown.count("] line ") < 5_000


@pytest.mark.parametrize("in_process", [False, True])
def test_a_local_cluster_shows_each_line_once(
    in_process: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``LocalCluster`` shows the whole output of its workers, so that they forward no
    lines; functions that run in this process print here. Both show each line once,
    whatever form of logs the environment asks for.
    """
    monkeypatch.setenv("ZMQDATA_LOG_FORMAT", "json")
    with LocalCluster(1, in_process=in_process) as cluster:
        assert sorted(talking(cluster.target, calls=1)) == [0, 1, 2, 3]
    out, err = capsys.readouterr()
    shown = out if in_process else err
    where = "" if in_process else r"\[worker 0\] "
    assert len(re.findall(rf"^{where}seen 0$", shown, re.MULTILINE)) == 1
    assert (out + err).count("seen 0\n") == 1
    assert "task" not in err
    assert '"level"' not in err


def test_a_worker_may_forward_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker with ``--no-forward-logs`` keeps what functions print in its own
    output.
    """
    with service("--no-forward-logs", "--log-format=json") as (target, worker):
        assert sorted(talking(target)) == [0, 1, 2, 3]
        assert "seen" not in capsys.readouterr().err
        assert '"level":"warning","logger":"decode"' in worker.log
        assert '"logger":"zmqdata.worker.server"' in worker.log
