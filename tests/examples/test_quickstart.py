"""Tests of the training script that a reader sees first."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "quickstart.py"


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.realprocess
def test_the_quickstart_runs_on_worker_processes() -> None:
    """The script trains on worker processes, warns of nothing, and ends."""
    command = [sys.executable, "-W", "error", str(SCRIPT)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    check(ended.stdout)


def test_the_quickstart_trains_without_a_warning(
    on_threads: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """The script fits on a screen, has each image once an epoch, learns, and warns of
    nothing.
    """
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(SCRIPT), run_name="__main__")
    shown = capfd.readouterr()
    assert shown.err == ""
    check(shown.out)


def check(shown: str) -> None:
    """Check what the script prints."""
    found = re.findall(r"epoch (\d): 4000 images, (\d+)% guessed right", shown)
    assert [number for number, _ in found] == ["0", "1", "2"]
    assert int(found[-1][1]) > 60
