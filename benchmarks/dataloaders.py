"""Measure ``distribute_dataloader`` beside the ``DataLoader`` of torch, with equally
many worker processes.

    python -m benchmarks.dataloaders [images] [jpeg] [starts] [index] [--workers N]

``images`` reads images of 150 KB that cost nothing to make, in batches of 32. ``jpeg``
decodes photographs and augments them. ``starts`` measures the time to the first batch
of the second pass, without ``persistent_workers``. Each case runs both loaders in turn,
several times, and prints the ratio of the medians. ``index`` measures the time to the
first batch of a dataset that holds ImageNet's list of 1.2 million files, in multiples
of ``pickle.dumps`` of this dataset.
"""

from __future__ import annotations

import argparse
import io
import pickle
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from zmqdata import LocalCluster
from zmqdata.torch import distribute_dataloader

BATCH = 32
TURNS = 5
"""Number of times that each loader is measured."""


class Images(Dataset[Any]):
    """Images of 150 KB, all from one array that a worker has already."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pixels = np.random.default_rng(0).integers(0, 256, (64, 224, 224, 3), np.uint8)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self._pixels[index % 64]), index % 10


class Photographs(Dataset[Any]):
    """Photographs as JPEG, decoded, cropped, resized and flipped at random."""

    def __init__(self, count: int) -> None:
        from PIL import Image
        from sklearn.datasets import load_sample_images

        self._count = count
        self._files = []
        for pixels in load_sample_images().images:
            file = io.BytesIO()
            Image.fromarray(pixels).resize((500, 333)).save(file, "JPEG", quality=90)
            self._files.append(file.getvalue())

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        image = Image.open(io.BytesIO(self._files[index % len(self._files)])).convert("RGB")
        left, top = (int(torch.randint(0, 100, ())) for _ in range(2))
        image = image.crop((left, top, left + 300, top + 230)).resize((224, 224))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return pixels.flip(2) if torch.rand(()) < 0.5 else pixels, index


class Index(Dataset[Any]):
    """The list of files and classes that ``ImageFolder`` keeps of ImageNet."""

    def __init__(self, count: int) -> None:
        self._samples = [
            (f"/data/train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG", i % 1000)
            for i in range(count)
        ]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        return self._samples[index]


def passes(loader: Any) -> Iterator[tuple[float, float]]:
    """Yield the seconds to the first batch and to the last one of each pass."""
    while True:
        begin = time.perf_counter()
        batches = iter(loader)
        next(batches)
        first = time.perf_counter()
        for _ in batches:
            pass
        yield first - begin, time.perf_counter() - begin


def compared(data: Dataset[Any], workers: int, **more: Any) -> dict[str, list[Any]]:
    """Return the seconds of each pass of both loaders, which take turns."""
    options: Any = {"batch_size": BATCH, "shuffle": True, "num_workers": workers, **more}
    found: dict[str, list[Any]] = {"torch": [], "zmqdata": []}
    with LocalCluster(num_workers=workers) as cluster:
        loaders = {
            "torch": DataLoader(data, **options),
            "zmqdata": distribute_dataloader(DataLoader(data, **options), cluster),
        }
        turns = {name: passes(loader) for name, loader in loaders.items()}
        for turn in turns.values():
            next(turn)  # the first pass starts what later passes have
        for _ in range(TURNS):
            for name, turn in turns.items():
                found[name].append(next(turn))
    return found


def throughput(name: str, data: Dataset[Any], workers: int) -> None:
    found = compared(data, workers, persistent_workers=True)
    pace = {
        who: len(data) / statistics.median(whole for _, whole in each)  # type: ignore[arg-type]
        for who, each in found.items()
    }
    print(
        f"{name}, {workers} workers: torch {pace['torch']:.0f} rows/s, zmqdata "
        f"{pace['zmqdata']:.0f} rows/s, ratio {pace['zmqdata'] / pace['torch']:.2f}",
        flush=True,
    )


def starts(workers: int) -> None:
    found = compared(Images(256), workers)
    first = {who: statistics.median(one for one, _ in each) for who, each in found.items()}
    print(
        f"first batch of a later pass, {workers} workers: torch {first['torch'] * 1e3:.1f} ms, "
        f"zmqdata {first['zmqdata'] * 1e3:.1f} ms, ratio {first['zmqdata'] / first['torch']:.2f}",
        flush=True,
    )


def index(workers: int) -> None:
    data = Index(1_200_000)
    dumps, firsts = [], []
    options: Any = {"batch_size": BATCH, "shuffle": True, "num_workers": workers}
    with LocalCluster(num_workers=workers) as cluster:
        begin = time.perf_counter()
        loader = distribute_dataloader(DataLoader(data, **options), cluster)
        built = time.perf_counter() - begin
        for _ in range(TURNS):
            begin = time.perf_counter()
            pickle.dumps(data, 5)
            dumps.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            batches = iter(loader)
            next(batches)
            firsts.append(time.perf_counter() - begin)
            del batches
    begin = time.perf_counter()
    list(loader.batch_sampler)
    listed = time.perf_counter() - begin
    once, later = statistics.median(dumps), statistics.median(firsts[1:])
    print(
        f"ImageNet's index, {workers} workers: pickle.dumps {once:.2f} s, the order of a pass "
        f"{listed:.2f} s; first batch of the first pass {built + firsts[0]:.2f} s, of a later one "
        f"{later:.2f} s, without the order {(later - listed) / once:.1f} times pickle.dumps",
        flush=True,
    )


CASES: dict[str, Callable[[int], None]] = {
    "images": lambda workers: throughput("images of 150 KB", Images(6_400), workers),
    "jpeg": lambda workers: throughput("photographs", Photographs(1_600), workers),
    "starts": starts,
    "index": index,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all if none is given")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    arguments = parser.parse_args()
    for case in arguments.cases or CASES:
        for number in arguments.workers:
            CASES[case](number)
