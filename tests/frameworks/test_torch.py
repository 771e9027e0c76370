"""Runs of torch programs read each row once, epoch after epoch:
``make test-torch``.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqdata import LocalCluster

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.realprocess,
    pytest.mark.timeout(300),
]
LOOPS = str(Path(__file__).with_name("loops.py"))
ALL = list(range(600))


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of two worker processes."""
    with LocalCluster(num_workers=2) as made:
        yield made


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("job_name", ["-", "train", "own"], ids=["anonymous", "named", "own"])
@pytest.mark.parametrize("keep", ["keep", "renew"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_data_loader_share_each_pass(
    cluster: LocalCluster, method: str, keep: str, job_name: str
) -> None:
    """The workers of a ``DataLoader`` read each row once in each epoch, by whichever
    method they are started, whether they live on or not, and also if each worker makes
    its own dataset for each epoch.
    """
    passes = json.loads(run(LOOPS, "loader", cluster.target, method, keep, job_name, "3"))
    assert [sorted(one) for one in passes] == [ALL] * 3


def torchrun(cluster: LocalCluster, *command: str) -> list[list[list[int]]]:
    """Return what each of two ranks had in each epoch."""
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    told = run(*launch, LOOPS, "ddp", cluster.target, *command)
    return [json.loads(line[5:]) for line in told.splitlines() if line.startswith("ROWS ")]


@pytest.mark.parametrize("group", ["group", "alone"])
def test_ranks_of_torchrun_share_each_pass(cluster: LocalCluster, group: str) -> None:
    """Two ranks with one job name read each row once in each epoch, with and without a
    process group; a second launch reads everything again.
    """
    for _ in range(2):
        ranks = torchrun(cluster, "2", group)
        assert len(ranks) == 2
        for number in range(2):
            assert sorted(ranks[0][number] + ranks[1][number]) == ALL


def test_ranks_that_are_spawned_for_each_pass_share_it(cluster: LocalCluster) -> None:
    """Two ranks that a program spawns for each epoch read each row once, by data
    loaders of their own.
    """
    passes = json.loads(run(LOOPS, "spawned", cluster.target, "2"))
    assert [sorted(one) for one in passes] == [ALL] * 2
