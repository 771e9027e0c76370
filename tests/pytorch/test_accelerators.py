"""Tests of batches on an accelerator, where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.accelerator.is_available():
    pytest.skip("torch finds no accelerator here", allow_module_level=True)

from zmqdata import Dataset, LocalCluster
from zmqdata.torch import Loader, distribute_dataloader

DEVICE = torch.accelerator.current_accelerator()


def batches(count: int) -> Dataset:
    return Dataset.range(count).map(
        lambda x: {"x": np.full((64, 1024), x, np.float32), "n": (x, "text")}
    )


def test_batches_arrive_on_the_device() -> None:
    """Tensors of a batch are on the device, in order, and texts stay what they are."""
    for number, batch in enumerate(Loader(batches(20), device=DEVICE)):
        assert batch["x"].device.type == DEVICE.type
        assert batch["n"][0].device.type == DEVICE.type
        assert batch["n"][1] == "text"
        assert (batch["x"].cpu() == number).all()


def test_batches_are_not_overwritten_while_the_loop_computes() -> None:
    """Copies ahead of the loop neither come too early nor write over a batch that its
    stream still reads.
    """
    weights = torch.randn(2048, 2048, device=DEVICE)
    sums = []
    for batch in Loader(batches(300), device=DEVICE, prefetch=4):
        for _ in range(5):
            weights = weights @ weights / 2048
        sums.append(batch["x"].sum())
        del batch
    expected = [float(number) * 64 * 1024 for number in range(300)]
    assert [one.item() for one in sums] == pytest.approx(expected)


def test_pinned_batches_stay_in_main_memory() -> None:
    """``pin_memory=True`` without a device gives pinned tensors."""
    batch = next(iter(Loader(batches(2), pin_memory=True)))
    assert batch["x"].is_pinned()
    assert batch["x"].device.type == "cpu"


def test_a_state_does_not_count_what_was_copied_ahead() -> None:
    """A loader that resumes goes on behind the last batch that the loop received."""
    loader = Loader(batches(30), device=DEVICE, prefetch=4)
    iterator = iter(loader)
    for _ in range(7):
        next(iterator)
    state = loader.state_dict()
    iterator.close()
    loader.load_state_dict(state)
    assert [int(batch["n"][0]) for batch in loader] == list(range(7, 30))


def test_a_data_loader_that_pins_is_pinned() -> None:
    """A ``DataLoader`` with ``pin_memory=True`` yields pinned batches of the same
    values.
    """
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(32, 2), torch.arange(32))
    loader: Any = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    with LocalCluster(num_workers=1) as cluster:
        found = [*distribute_dataloader(loader, cluster)]
    for one, other in zip(loader, found, strict=True):
        assert all(part.is_pinned() for part in other)
        assert all(map(torch.equal, one, other))


def test_a_device_that_is_not_there_is_an_error() -> None:
    """The error tells how many devices there are."""
    with pytest.raises(Exception, match="is not there: torch finds"):
        Loader(batches(1), device=f"{DEVICE.type}:99")
