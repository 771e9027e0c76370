"""Workers of one ``fit`` of Ray Train are a run: ``make test-frameworks``."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.launches import ALL, environment, passes, ranks
from zmqdata import LocalCluster

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("ray", "torch", "pydantic")),
        reason="ray[train] or torch is not installed",
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(300),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "ray.md"
FITS = str(Path(__file__).with_name("fits.py"))


def fit(cluster: LocalCluster, *folders: Path) -> None:
    """Run ``fit`` of a trainer for each folder, one after the other."""
    done = subprocess.run(
        [sys.executable, FITS, cluster.target, *map(os.fspath, folders)],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment(RAY_AUTH_MODE="disabled", RAY_TRAIN_V2_ENABLED="1"),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_fit_is_a_run(tmp_path: Path) -> None:
    """Two workers of a ``TorchTrainer`` read each row once in each epoch; another
    ``fit`` reads everything again.
    """
    starts = [tmp_path / "first", tmp_path / "second"]
    with LocalCluster(num_workers=1) as cluster:
        fit(cluster, *starts)
    keys: set[str] = set()
    for start in starts:
        assert passes(start) == [ALL, ALL]
        told = [line.split() for line in ranks(start)]
        assert sorted(rank for _, rank in told) == ["0", "1"]
        assert len({key for key, _ in told}) == 1
        keys.add(told[0][0])
    assert len(keys) == 2
    assert all(key.startswith("ray:") for key in keys)


def test_a_fit_that_is_retried_reads_everything(tmp_path: Path) -> None:
    """Workers that Ray starts again, after one of them has failed in its first epoch,
    read everything.
    """
    failing = tmp_path / "failing"
    failing.mkdir()
    (failing / "fail").touch()
    with LocalCluster(num_workers=1) as cluster:
        fit(cluster, failing)
    assert not (failing / "fail").exists()
    assert passes(failing / "again") == [ALL, ALL]


def test_the_program_of_the_page_trains(tmp_path: Path) -> None:
    """The program with Ray Train on the page on Ray trains with workers of a host, for
    a user without a Ray and without a key. Both ranks end with the same model.
    """
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    (tmp_path / "train.py").write_text(next(text for text in programs if "TorchTrainer" in text))
    done = subprocess.run(
        [sys.executable, "train.py"],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        env=environment(
            RAY_AUTH_MODE="disabled",
            RAY_ADDRESS="local",
            RAY_TRAIN_V2_ENABLED="1",
            XDG_CONFIG_HOME=str(tmp_path / "config"),
        ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(loss) for loss in re.findall(r"loss (\d\.\d+)", done.stdout + done.stderr)]
    assert len(losses) >= 2
    assert max(losses) < 0.1
