"""Tests of the example that audits each element: its parts in this process, the whole
as in the README.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "audit.py"


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module
    spec.loader.exec_module(module)
    return module


def test_the_windows_of_a_file_hold_its_bytes_in_order(audit: ModuleType, tmp_path: Path) -> None:
    """A file's numbered windows contain the file, padded with newlines."""
    content = bytes(range(1, 256)) * 3
    (tmp_path / "module.py").write_bytes(content)
    windows = list(audit.cut(audit.read(str(tmp_path / "module.py"))))
    assert [int(window["number"]) for window in windows] == list(range(6))
    assert b"".join(window["bytes"].tobytes() for window in windows) == content.ljust(
        6 * audit.WINDOW, b"\n"
    )


def test_the_model_learns(audit: ModuleType) -> None:
    """The untrained model needs 8 bits per byte, and learns a repetitive text."""
    windows = np.frombuffer(b"the same sixteen" * 64, np.uint8).reshape(8, audit.WINDOW)
    model = audit.NextByteModel()
    losses = [model.train(windows) for _ in range(100)]
    assert losses[0] == pytest.approx(8, abs=0.1)
    assert losses[-1] < 0.5


def test_the_proof_sees_a_missing_and_a_repeated_window(audit: ModuleType) -> None:
    """The proof reports a missing, repeated or unknown window, and accepts equal
    counts.
    """
    expected = Counter({("a.py", 0): 1, ("a.py", 1): 1})
    assert audit.differences(expected, Counter(expected)) == []
    assert len(audit.differences(expected, Counter({("a.py", 0): 2, ("b.py", 0): 1}))) == 3


def test_it_runs_without_any_server(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """``--local`` runs the pipeline in this process and proves exactly once per epoch.
    It shows the table too.
    """
    assert audit.main(["--local", "--files", "3", "--epochs", "2"]) == 0
    assert "yes: 3 files" in capsys.readouterr().out


def test_it_runs_on_workers(
    audit: ModuleType, on_threads: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script trains on two workers, proves exactly once, and returns 0."""
    assert audit.main(["--files", "6", "--epochs", "1"]) == 0
    shown = capsys.readouterr().out
    assert "yes: 6 files" in shown
    assert re.search(r"splits finished +│ +6 ", shown)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.realprocess
def test_it_survives_a_worker() -> None:
    """``--kill-worker`` kills a worker within an epoch without changing the proof."""
    command = [sys.executable, str(SCRIPT), "--files", "60", "--epochs", "1", "--kill-worker"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=290, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "yes: 60 files" in ended.stdout
    assert re.search(r"splits finished +│ +60 ", ended.stdout)
    # None if the other worker was first to start, and had made everything.
    assert re.search(r"tasks that changed their host +│ +[012] ", ended.stdout)


def test_it_kills_only_workers_of_its_own(
    audit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit never kills a server that it did not start."""
    with pytest.raises(SystemExit):
        audit.main(["--kill-worker", "--service", "tcp://10.0.0.1:5050"])
    assert "needs two workers of its own" in capsys.readouterr().err
