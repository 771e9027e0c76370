"""Two ranks of gloo whose steps take as long as their batches cost."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import distributed, multiprocessing

import zmqdata
from zmqdata import Dataset
from zmqdata.errors import InvalidArgumentError
from zmqdata.torch import Loader

pytestmark = pytest.mark.realprocess
Costs = list[float]
STEPS, SIZE = 32, 8
SECONDS = 3e-6
"""Seconds of a token."""


def sequences() -> Dataset:
    """Return sequences of lognormal length."""
    lengths = np.random.default_rng(0).lognormal(np.log(1000), 1, 2 * STEPS * SIZE)
    return Dataset.from_list([{"tokens": np.zeros(int(n), np.uint8)} for n in lengths])


def train(rank: int, way: str, service: str, folder: str, epochs: int, found: Any) -> None:
    """Train epochs as a rank, and tell how long each and its steps took."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "ZMQDATA_RUN_ID": folder}
    distributed.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=2)
    dataset = sequences()
    if way == "balanced":
        dataset = dataset.balance(2, cost="tokens", batch_size=SIZE, collate_fn=lengths_of)
    else:
        dataset = dataset.batch(SIZE, collate_fn=lengths_of)
    read = zmqdata.distribute("distributed_epoch", service, deterministic=True, num_tasks=1)
    loader, told = Loader(dataset.apply(read)), []
    for _ in range(epochs):
        costs, began = [], 0.0
        for batch in loader:
            if not costs:
                distributed.barrier()
                began = time.perf_counter()
            costs.append(SECONDS * float(batch.sum()))
            threading.Event().wait(costs[-1])  # in place of a model
            distributed.all_reduce(torch.zeros(1))
        told.append((time.perf_counter() - began, costs))
    found.put(told)
    distributed.destroy_process_group()


def lengths_of(elements: list[Any]) -> Any:
    return np.array([len(one["tokens"]) for one in elements])


def epochs(way: str, service: str, folder: Path, count: int) -> list[tuple[float, Costs, Costs]]:
    """Return the seconds of each epoch, and the costs of the steps of both ranks."""
    context = multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    multiprocessing.spawn(train, (way, service, str(folder), count, found), nprocs=2)
    pairs = zip(found.get(), found.get(), strict=True)
    return [(max(mine[0], other[0]), mine[1], other[1]) for mine, other in pairs]


def test_ranks_get_batches_of_equal_cost(cluster: str, tmp_path: Path) -> None:
    """The dearer batches of all steps cost at most 2 % more than the mean ones."""
    ((_, mine, theirs),) = epochs("balanced", cluster, tmp_path, 1)
    assert len(mine) == len(theirs) == STEPS
    assert np.maximum(mine, theirs).sum() <= 1.02 * np.mean([mine, theirs], 0).sum()


@pytest.mark.full
@pytest.mark.parametrize("way", ["balanced", "in order"])
def test_an_epoch_takes_as_long_as_its_mean(way: str, cluster: str, tmp_path: Path) -> None:
    """The fastest of three epochs of balanced batches takes at most 5 % and 0.2 s
    longer than the sum of the mean costs of its steps. In order each takes at least a
    fifth longer.
    """
    over = []
    for seconds, mine, theirs in epochs(way, cluster, tmp_path, 3):
        means = np.mean([mine, theirs], 0).sum()
        over.append(seconds - (1.05 if way == "balanced" else 1.2) * means)
    assert min(over) <= 0.2 if way == "balanced" else min(over) >= 0


def test_a_loader_of_other_ranks_is_refused(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that reads as one of three ranks refuses batches for two, and names
    both.
    """
    monkeypatch.setenv("ZMQDATA_RUN_ID", uuid4().hex)
    read = zmqdata.distribute("distributed_epoch", cluster)
    dataset = sequences().balance(2, cost="tokens", batch_size=SIZE).apply(read)
    with pytest.raises(InvalidArgumentError, match=r"to 2 consumers, and num_consumers=3"):
        Loader(dataset, consumer_index=0, num_consumers=3)
    with pytest.raises(InvalidArgumentError, match=r"to 2 consumers, and no `num_consumers`"):
        iter(Loader(dataset)).__next__()
