"""Tests of the training script that a reader sees first."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "quickstart.py"


@pytest.mark.timeout(180)
@pytest.mark.realprocess
def test_the_quickstart_trains_without_a_warning() -> None:
    """The script fits on a screen, has each image once an epoch, learns, and warns of
    nothing.
    """
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 40
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    found = re.findall(r"epoch (\d): 4000 images, (\d+)% guessed right", ended.stdout)
    assert [number for number, _ in found] == ["0", "1", "2"]
    assert int(found[-1][1]) > 60
