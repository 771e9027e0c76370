"""The engines of ``make test-engines``, and a service for workers of their hosts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.engines.engines import Engine, LocalEngine, SlurmEngine
from tests.engines.ray_engine import RayEngine, made_cluster
from tests.frameworks.slurm import Slurm, is_installed
from zmqdata import DispatcherConfig, DispatchServer

if TYPE_CHECKING:
    from tests.engines.dask_engine import DaskEngine


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A Slurm of three nodes, to which this process belongs."""
    if "ZMQDATA_ENGINES" not in os.environ or not is_installed():
        pytest.skip("only `make test-engines` runs it, as root, with Slurm installed")
    # munged refuses a folder into which others may write; a socket has a short path.
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        Path(folder).chmod(0o755)
        with Slurm(Path(folder)) as made:
            patch.setenv("SLURM_CONF", made.environment["SLURM_CONF"])
            yield made


@pytest.fixture(params=["local", "queue", "ray_cluster", "dask_cluster"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine, by the name of its fixture."""
    found: Engine = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def local() -> LocalEngine:
    """This machine."""
    return LocalEngine()


@pytest.fixture
def queue(slurm: Slurm, tmp_path: Path) -> SlurmEngine:
    """The engine that has a queue."""
    return SlurmEngine(slurm, tmp_path)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayEngine]:
    """A Ray cluster of three nodes, to which this process is connected."""
    yield from made_cluster()


@pytest.fixture(scope="session")
def dask_cluster() -> Iterator[DaskEngine]:
    """A Dask cluster of two workers, to which hosts add others."""
    if "ZMQDATA_ENGINES" not in os.environ:
        pytest.skip("only `make test-engines` runs it")
    from tests.engines.dask_engine import DaskEngine, dask_processes

    with dask_processes(2) as cluster:
        yield DaskEngine(cluster)


@pytest.fixture
def service() -> Iterator[str]:
    """Address of a dispatcher in this process."""
    with DispatchServer(DispatcherConfig(worker_timeout_ms=4_000)) as server:
        yield server.target
