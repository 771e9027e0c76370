"""The cluster that all tests of this folder share. Its workers import torch once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from zmqdata import LocalCluster
from zmqdata.testing.cluster import await_condition


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the dispatcher of two worker processes, which all processes of a run
    of tests share.
    """
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place, readers = folder / "cluster", folder / "readers"
    readers.mkdir(exist_ok=True)
    mine = readers / str(os.getpid())
    started = None
    with locked(folder):
        if not place.exists():
            started = LocalCluster(num_workers=2)
            place.write_text(started.target)
        mine.touch()
    try:
        yield place.read_text()
    finally:
        mine.unlink()
        if started is not None:
            with started:
                await_condition(lambda: left(folder, place, readers), 100.0, "other readers")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from starting or ending the shared cluster."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def left(folder: Path, place: Path, readers: Path) -> bool:
    """Return True, and let the next process start a cluster of its own, if no process
    reads from this one.
    """
    with locked(folder):
        if any(readers.iterdir()):
            return False
        place.unlink()
        return True
