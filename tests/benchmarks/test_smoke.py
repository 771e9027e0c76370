"""Tests of the whole benchmark with tiny budgets and our column, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import curves
from benchmarks.__main__ import main
from benchmarks.processes import MARK, PeerError, PeerProcess, marked
from benchmarks.reading import Turn
from benchmarks.running import Budget
from tests.full import full
from zmqdata.testing.cluster import await_condition

pytestmark = pytest.mark.realprocess
TINY = Budget(repetitions=1, seconds=0.02, warm=0.0, patience=30.0)
COPYING = Turn("rate", "images", "memcpy", 1, 0.02, 0.0, 0)


SOME_CASES = ["1 KB", "range.map", "splits", "limits"]
ALL_CASES = [*SOME_CASES, "int64 scalars", "images", "warm cluster"]


@pytest.mark.parametrize("cases", [SOME_CASES, full(ALL_CASES)], ids=["some", "all"])
def test_a_run_writes_its_table(tmp_path: Path, cases: list[str]) -> None:
    """A run of a single repetition has a value per way, and writes tables, JSON and
    verdicts.
    """
    budget = ["--repetitions=1", "--seconds=0.02", "--warm=0", f"--out={tmp_path}"]
    assert main(["run", *budget, "--peers", "zmqdata", "bare", "--cases", *cases]) == 0
    found = json.loads((tmp_path / "throughput.json").read_text(encoding="utf-8"))
    assert len(found["cases"]) == len(cases)
    ways = [way for case in found["cases"] for way in case["ways"]]
    assert [way for way in ways if way["error"] or len(way["values"]) != 1] == []
    assert found["versions"].keys() >= {"zmqdata", "numpy"}
    assert {goal["reached"] is None for case in found["cases"] for goal in case["goals"]} == {
        True,
        False,
    }
    assert "| limits, 4.8 MB |" in (tmp_path / "throughput.md").read_text(encoding="utf-8")


def test_curves_are_measured() -> None:
    """The curves without foreign processes have a point for each requested number."""
    told: list[str] = []
    found = [
        curves.splits(TINY, told.append, (10, 100)),
        curves.journal(TINY, told.append, (300, 500)),
    ]
    assert [[x for x, _ in points] for curve in found for points in curve["lines"].values()] == [
        [10, 100],
        [300, 500],
        [300, 500],
    ]
    assert len(told) == 4


def test_a_peer_that_takes_too_long_is_killed() -> None:
    """A peer that exceeds its deadline is killed with all its child processes."""
    process = PeerProcess("bare")
    mark = process._mark
    with pytest.raises(PeerError, match="more than 0 s"):
        process.measure(Turn("rate", "batches", "raw TCP", 1, 1000.0, 0.0, 0), 0.0)
    assert not process.alive
    assert list(marked(mark)) == []


def test_an_error_of_a_peer_is_no_end_of_it() -> None:
    """A failed turn gives its reason, and its peer continues in the same process."""
    process = PeerProcess("bare")
    try:
        with pytest.raises(PeerError, match="pebbles"):
            process.measure(Turn("rate", "pebbles", "memcpy", 1, 0.02, 0.0, 0), 30.0)
        assert process.measure(COPYING, 30.0) > 0
    finally:
        process.close()
    assert list(marked(process._mark)) == []


def test_a_library_that_is_missing_leaves_a_column_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer without its library has no figures, and the table says so."""
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError('torch', name='torch')", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PeerError, match="torch is not installed"):
        PeerProcess("torch")


def test_nothing_outlives_the_one_who_asks() -> None:
    """The peers of a killed benchmark end with all their child processes."""
    program = (
        "from benchmarks.processes import PeerProcess\n"
        "from benchmarks.reading import Turn\n"
        "peer = PeerProcess('bare')\n"
        "print(peer._mark, flush=True)\n"
        "peer.measure(Turn('rate', 'batches', 'raw TCP', 1, 1000.0, 0.0, 0), 1000.0)\n"
    )
    asking = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    mark = asking.stdout.readline().strip()
    assert list(marked(mark)) != []
    asking.kill()
    asking.communicate()
    await_condition(lambda: not list(marked(mark)), 30.0, "the end of the peer")
    assert MARK not in os.environ
