"""Tests of the example that shows a cluster in a browser, ``make dashboard-demo``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from zmqdata.testing.cluster import await_condition

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "dashboard.py"


def test_the_example_uses_public_names_alone() -> None:
    """A reader may copy the example: it imports nothing from within the package."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert re.findall(r"^(?:import|from) zmqdata.*", text, re.MULTILINE) == ["import zmqdata"]


def verdicts(link: str) -> dict[str, str]:
    with urllib.request.urlopen(f"{link}history", timeout=20) as answer:
        return {one["job"]: one["verdict"] for one in json.load(answer)["view"]["jobs"]}


@pytest.mark.full
@pytest.mark.realprocess
def test_the_example_shows_both_verdicts_and_ends_at_ctrl_c() -> None:
    """The slow job is INPUT-BOUND and the other COMPUTE-BOUND. Ctrl-C, which reaches
    all processes of a terminal, ends all of them with exit code 0.
    """
    command = [sys.executable, str(EXAMPLE), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as ran:
        try:
            assert ran.stdout is not None
            found = re.search(r"http://\S+", ran.stdout.readline())
            assert found is not None
            link = found[0]
            expected = {"images": "INPUT-BOUND", "numbers": "COMPUTE-BOUND"}
            await_condition(lambda: verdicts(link) == expected, 60, "both verdicts")
            os.killpg(ran.pid, signal.SIGINT)
            _, told = ran.communicate(timeout=60)
            assert ran.returncode == 0, told
            assert "Traceback" not in told
            with pytest.raises(ProcessLookupError):
                os.killpg(ran.pid, 0)
        finally:
            if ran.poll() is None:
                os.killpg(ran.pid, signal.SIGKILL)
