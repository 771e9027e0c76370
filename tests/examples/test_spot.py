"""Tests of the example whose workers come and go."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "spot.py"


def test_the_example_uses_public_names_alone() -> None:
    """A reader may copy the example: it imports nothing from within the package."""
    text = SCRIPT.read_text(encoding="utf-8")
    found = re.findall(r"^(?:import|from) zmqdata.*", text, re.MULTILINE)
    assert found == ["import zmqdata", "from zmqdata import hosts"]


@pytest.mark.full
@pytest.mark.realprocess
def test_each_element_comes_once_while_workers_come_and_go(tmp_path: Path) -> None:
    """The script loses workers, reports each element once, and ends without an
    error.
    """
    command = [sys.executable, str(SCRIPT), "--elements", "1500"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"^1500 elements, each once$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^\S+ (gets SIG|is cancelled)", done.stdout, re.MULTILINE), done.stdout
