"""Tests of the training scripts for torch, and of the difference that the documentation
shows.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zmqdata import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ROOT / "examples" / "torch_images.py"
DISTRIBUTED = ROOT / "examples" / "torch_images_distributed.py"


def test_the_documentation_shows_the_whole_difference() -> None:
    """The page on PyTorch shows each line by which the two scripts differ."""
    page = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```diff\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [path.read_text(encoding="utf-8").splitlines() for path in (PLAIN, DISTRIBUTED)]
    changed = [line for line in difflib.ndiff(*lines) if line[0] in "+-" and line[1:].strip()]
    told = [line for line in shown.splitlines() if line[0] in "+-"]
    assert [line[2:].strip() for line in changed] == [line[1:].strip() for line in told]
    assert {line[0] for line in changed} == {"+"}


@pytest.mark.realprocess
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("is_named", [True, False])
def test_the_distributed_script_trains(is_named: bool) -> None:
    """The script learns from the batches of the service that the environment names, or
    of a cluster of its own: each image once an epoch, without a warning.
    """
    names = {name: value for name, value in os.environ.items() if name != "ZMQDATA_DISPATCHER"}
    with LocalCluster(num_workers=1) as cluster:
        done = subprocess.run(
            [sys.executable, str(DISTRIBUTED), "--images", "300", "--epochs", "2"],
            env={**names, **({"ZMQDATA_DISPATCHER": cluster.target} if is_named else {})},
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert (done.returncode, done.stderr) == (0, "")
    found = re.findall(r"epoch (\d): (\d+) images, accuracy ([\d.]+)", done.stdout)
    assert [(number, count) for number, count, _ in found] == [("0", "300"), ("1", "300")]
    assert float(found[-1][2]) > 0.7
