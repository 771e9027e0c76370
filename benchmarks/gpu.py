"""Measure how much of a training step on an accelerator is a wait for its batch.

    python -m benchmarks.gpu [--workers N] [--steps N] [--step MS]

The step is a number of matrix products that take about ``--step`` milliseconds. Its
batches have 32 images of 600 KB as floats. Each line compares a source of batches with
one batch that lies on the device already.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from zmqdata import LocalCluster
from zmqdata.torch import distribute_dataloader

BATCH = 32


class Floats(Dataset[Any]):
    """Images of 600 KB."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pixels = np.random.default_rng(0).random((64, 3, 224, 224), np.float32)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self._pixels[index % 64])


def moved(batches: Iterable[Any], device: torch.device, in_background: bool) -> Iterator[Any]:
    for batch in batches:
        yield batch.to(device, non_blocking=in_background)


def step_seconds(batches: Iterable[Any], products: int, steps: int) -> list[float]:
    """Return the seconds of each step over these batches."""
    weights = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    found = []
    source = iter(batches)
    for number in range(steps + 20):
        begin = time.perf_counter()
        batch = next(source)
        x = weights + batch.view(-1)[0].to(torch.bfloat16)
        for _ in range(products):
            x = weights @ x
        torch.cuda.synchronize()
        if number >= 20:
            found.append(time.perf_counter() - begin)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step", type=float, default=20.0, help="milliseconds")
    arguments = parser.parse_args()
    device = torch.device("cuda")
    there = torch.zeros(BATCH, 3, 224, 224, device=device)
    one = statistics.median(step_seconds(repeat(there), 100, 20)) / 100
    products = max(1, int(arguments.step / 1000 / one))
    data: Any = Floats(BATCH * (arguments.steps + 40))
    options: Any = {"batch_size": BATCH, "shuffle": True, "num_workers": arguments.workers}
    with LocalCluster(num_workers=arguments.workers) as cluster:
        plain = DataLoader(data, **options)
        pinned = DataLoader(data, pin_memory=True, **options)
        sources: dict[str, Any] = {
            "batch on the device": repeat(there),
            "torch": moved(plain, device, in_background=False),
            "torch, pinned": moved(pinned, device, in_background=True),
            "zmqdata": moved(distribute_dataloader(plain, cluster), device, in_background=False),
            "zmqdata, device=": distribute_dataloader(plain, cluster, device=device),
        }
        ideal = 0.0
        for name, source in sources.items():
            seconds = step_seconds(source, products, arguments.steps)
            middle, mean = statistics.median(seconds), statistics.mean(seconds)
            ideal = ideal or mean
            print(
                f"{name}: median {middle * 1e3:.2f} ms, mean {mean * 1e3:.2f} ms, "
                f"{mean / ideal:.3f} of the ideal",
                flush=True,
            )


if __name__ == "__main__":
    main()
