"""PyTorch's DataLoader: a forked worker process, a deeper prefetch than its default, no
shuffling.

Small elements are also read in batches, as the DataLoader is meant to be used. The loop
unbatches them, so that it handles the same elements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    default_collate,
    default_convert,
    get_worker_info,
)

from benchmarks.peers.rows import rows
from benchmarks.reading import Peer, Turn
from benchmarks.workloads import LARGE, Make, weight

SETTINGS = {
    "numpy": "elements as they are, pickled",
    "shared tensors": "elements as tensors, which travel in shared memory; .numpy() in the loop",
    "numpy, batches": "batches of 128, stacked to arrays by the worker, pickled",
    "shared tensors, batches": (
        "batches (of 128; of 32 images) as tensors in shared memory, its default"
    ),
}
PREFETCH = 4


class Numbers(IterableDataset):  # type: ignore[type-arg]
    """An endless dataset."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        known = get_worker_info()
        x, step = (known.id, known.num_workers) if known else (0, 1)
        while True:
            yield self._make(np.int64(x))
            x += step


def as_it_is(element: Any) -> Any:
    return element


def stacked(elements: list[Any]) -> Any:
    if isinstance(elements[0], dict):
        return {key: np.stack([element[key] for element in elements]) for key in elements[0]}
    return np.stack(elements)


def plain(element: Any) -> Any:
    """Convert tensors to arrays without a copy."""
    if isinstance(element, dict):
        return {key: plain(leaf) for key, leaf in element.items()}
    return element.numpy() if isinstance(element, torch.Tensor) else element


class Measured(Peer):
    """The DataLoader, with new workers for every turn: forked workers start at once."""

    packages = ("torch", "numpy")

    @contextlib.contextmanager
    def read(self, turn: Turn) -> Iterator[Iterator[Any]]:
        batches, tensors = (
            turn.setting.endswith("batches"),
            turn.setting.startswith("shared tensors"),
        )
        collate = (
            (default_collate if tensors else stacked)
            if batches
            else (default_convert if tensors else as_it_is)
        )
        loader = DataLoader(
            Numbers(Make(turn.element, turn.spins)),
            batch_size=(32 if weight(turn.element) >= LARGE else 128) if batches else None,
            num_workers=turn.workers,
            prefetch_factor=PREFETCH,
            collate_fn=collate,
        )
        loaded: Iterator[Any] = iter(loader)
        arrays = map(plain, loaded) if tensors else loaded
        try:
            yield rows(arrays) if batches else arrays
        finally:
            loaded._shutdown_workers()  # type: ignore[attr-defined]
