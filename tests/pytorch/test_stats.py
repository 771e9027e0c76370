"""A ``Loader`` tells why the loop that reads it waits."""

from __future__ import annotations

import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import DataLoader

from tests.pytorch.loaders import Made, Stream
from zmqdata import Dataset, distribute
from zmqdata.client.calls import status
from zmqdata.errors import FailedPreconditionError
from zmqdata.torch import Loader, distribute_dataloader


def distributed(cluster: str) -> Dataset:
    return Dataset.range(40).batch(2).apply(distribute("distributed_epoch", cluster))


@pytest.mark.parametrize("kind", ["dataset", "device", "dataloader"])
def test_a_loader_has_the_numbers_of_its_pass(cluster: str, kind: str) -> None:
    """The numbers are those of the pass that is read, during it and after it."""
    if kind == "dataloader":
        loader = distribute_dataloader(DataLoader(list(range(40)), batch_size=2), cluster)
    else:
        loader = Loader(distributed(cluster), device="cpu" if kind == "device" else None)
    with loader:
        for _ in range(2):
            count = 0
            for _ in loader:
                count += 1
                if count == 10:
                    assert loader.stats()["data/elements"] >= 10.0
            found = loader.stats()
            assert found["data/elements"] == count
            assert found["data/first_element_seconds"] > 0
        assert {"data/verdict", "data/advice"} <= found.keys()
        assert all(isinstance(one, float) for one in loader.stats(scalars=True).values())


def test_a_loader_without_numbers_says_why(cluster: str) -> None:
    """A loader that is not read yet, or that reads in this process, has none."""
    loader = Loader(distributed(cluster))
    with pytest.raises(FailedPreconditionError, match="no pass of this loader has begun"):
        loader.stats()
    local = Loader(Dataset.range(4).batch(2))
    assert len(list(local)) == 2
    with pytest.raises(FailedPreconditionError, match="is not distributed"):
        local.stats()


@pytest.mark.parametrize("rows", [Made(8), Stream(0, 8)])
def test_a_status_names_the_line_and_the_dataset(cluster: str, rows: Any) -> None:
    """The job of a pass has an invented name, and beside it the line that has made the
    loader, not that of the loop, and the class of its dataset.
    """
    line = sys._getframe().f_lineno + 1
    loader = distribute_dataloader(DataLoader(rows, 2, num_workers=1), cluster)
    with loader:
        next(iter(loader))
        found = {job["job"]: job["origin"] for job in status(cluster, 10.0)["jobs"]}
    wanted = f"test_stats.py:{line}, {type(rows).__name__}"
    [name] = [name for name, origin in found.items() if origin == wanted]
    assert name.startswith("anonymous_")
