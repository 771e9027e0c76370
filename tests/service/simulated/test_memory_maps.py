"""Facts about pipelines that map files which workers lack."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.kit.service import WatchedService
from zmqdata import Dataset
from zmqdata.errors import FailedPreconditionError
from zmqdata.pipelines import memorymaps
from zmqdata.pipelines.memorymaps import LARGE
from zmqdata.worker import partcache

STEP = 4096


class Rows:
    """Rows of a file that it maps."""

    def __init__(self, path: str) -> None:
        self.numbers = np.memmap(path, np.uint32, "r")

    def __len__(self) -> int:
        return len(self.numbers) // STEP

    def __getitem__(self, i: int) -> int:
        return int(self.numbers[i * STEP])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path of a file with 4 MiB of numbers, of which maps travel by path."""
    monkeypatch.setattr(memorymaps, "MUCH", LARGE)
    np.arange(LARGE, dtype=np.uint32).tofile(tmp_path / "rows.bin")
    return str(tmp_path / "rows.bin")


@pytest.fixture
def service() -> Iterator[WatchedService]:
    """Yield a service with two workers."""
    with WatchedService(workers=2) as service:
        yield service


def test_a_path_is_enough_for_workers_that_see_the_file(service: WatchedService, path: str) -> None:
    """Workers map the file, and nothing of it is sent."""
    dataset = service.read(Dataset.from_source(Rows(path)))
    assert sorted(dataset) == [i * STEP for i in range(LARGE // STEP)]
    assert all(len(content) < LARGE for content in service.packs.values())


@pytest.mark.parametrize("change", [os.remove, lambda path: np.zeros(LARGE).tofile(path)])
def test_a_file_that_a_worker_does_not_see_is_an_error(
    service: WatchedService, path: str, change: object
) -> None:
    """The reader hears at once which file is absent or has other content, how large it
    is, on which machine, and the ways out.
    """
    dataset = service.read(Dataset.from_source(Rows(path)))
    assert callable(change)
    change(path)
    with pytest.raises(FailedPreconditionError) as raised:
        next(iter(dataset))
    for part in (
        "maps 4 MB of the file",
        path,
        "at the worker at",
        os.uname().nodename,
        "`Dataset.save`",
        "np.array(",
    ):
        assert part in str(raised.value)


def test_a_save_of_a_file_that_a_worker_does_not_see_fails_at_the_call(
    service: WatchedService, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader would hear of it later, so the call asks the workers, and names one."""
    monkeypatch.setattr(partcache, "fault_of", lambda file: f"{file.path} is not here")
    with pytest.raises(FailedPreconditionError, match=r"worker at tcp://.*rows\.bin is not here"):
        service.save(Dataset.from_source(Rows(path)), str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()
