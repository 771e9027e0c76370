"""Tests of the examples of data for language models, with small sizes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = pytest.mark.realprocess


def output_of(script: str, *options: str) -> str:
    """Return what an example prints."""
    command = [sys.executable, str(EXAMPLES / script), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_model_learns_from_packed_and_mixed_rows() -> None:
    """The loss falls, rows have little padding, and the packages have their shares."""
    found = output_of("language_model.py", "--steps", "12", "--batch", "8")
    (loss,) = re.findall(r"step 12: loss ([\d.]+) ", found)
    assert float(loss) < 5.0
    counts = {
        name: float(value)
        for name, value in re.findall(r"^data/(\S+): (\S+)$", found, re.MULTILINE)
    }
    assert counts["pack/fill"] > 0.97
    assert counts["mix/email"] == pytest.approx(2 * counts["mix/json"], abs=8)
    assert counts["mix/asyncio"] == pytest.approx(counts["mix/json"], abs=8)


def test_balanced_ranks_wait_less() -> None:
    """Both epochs are the same work for the ranks together, and those of batches of
    equal work wait less for each other.
    """
    found = output_of("balanced_ranks.py", "--sequences", "128")
    (before, waited), (after, rest) = re.findall(
        r"^[a-z ]+: the ranks worked ([\d.]+) s and waited ([\d.]+) s$", found, re.MULTILINE
    )
    assert float(after) == pytest.approx(float(before), abs=0.011)
    assert float(rest) < float(waited)
