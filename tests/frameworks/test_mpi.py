"""Ranks of one ``mpirun`` are a run: ``make test-mpi``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.launches import ALL, ASKED_FOR, environment, launch, passes, program, ranks
from zmqdata import LocalCluster

pytestmark = [
    ASKED_FOR,
    pytest.mark.skipif(
        shutil.which("mpirun.openmpi") is None, reason="Open MPI (openmpi-bin) is not installed"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(200),
]
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of one worker process."""
    with LocalCluster(num_workers=1) as made:
        yield made


def test_each_mpirun_is_a_run(cluster: LocalCluster, tmp_path: Path) -> None:
    """Two ranks with one job name read each row once in each epoch; a second launch
    reads everything again.
    """
    for start in ("first", "second"):
        launch(*MPIRUN, *program(cluster.target, tmp_path / start))
        assert passes(tmp_path / start) == [ALL, ALL]
        keys = [told.split()[0] for told in ranks(tmp_path / start)]
        assert keys[0].startswith("mpi:")
        assert keys[0] == keys[1]


def test_mpirun_within_a_job_of_slurm_is_a_run(cluster: LocalCluster, tmp_path: Path) -> None:
    """Ranks that inherit the variables of a job of Slurm have the rank and the run of
    ``mpirun``.
    """
    inherited = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    launch(*MPIRUN, *program(cluster.target, tmp_path / "start"), **inherited)
    told = [line.split() for line in ranks(tmp_path / "start")]
    assert [rank for _, rank in told] == ["0", "1"]
    assert all(key.startswith("mpi:") for key, _ in told)
    assert passes(tmp_path / "start") == [ALL, ALL]


@pytest.mark.skipif(shutil.which("mpirun.mpich") is None, reason="MPICH is not installed")
def test_ranks_of_mpich_need_the_name_of_their_run(cluster: LocalCluster, tmp_path: Path) -> None:
    """Ranks of MPICH share their epochs if ``ZMQDATA_RUN_ID`` names the run."""
    command = ["mpirun.mpich", "-n", "2", *program(cluster.target, tmp_path / "start")]
    assert "ZMQDATA_RUN_ID" not in environment()
    launch(*command, ZMQDATA_RUN_ID="mine")
    assert passes(tmp_path / "start") == [ALL, ALL]
