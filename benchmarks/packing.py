"""``pack`` beside Grain's first-fit packing, in this process, in processor seconds.

    python -m benchmarks.packing [--documents N] [--rounds N]

Both pack the same documents of lognormal length into the same number of bins, in turn.
A ratio above 1 means that zmqdata took less time; it is the median of all rounds.
Grain's bins are not shuffled, which is its faster way.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from zmqdata import Dataset

LENGTH = 2048
BINS = (8, 64, 256)
WANTED = 10.0
"""Ratio wanted."""


class Documents:
    """Documents in memory.

    Args:
        count: number of documents.
    """

    def __init__(self, count: int) -> None:
        drawn = np.random.default_rng(0).lognormal(5.5, 1.0, count).astype(int) + 1
        self.documents = [np.arange(size, dtype=np.int32) for size in np.minimum(drawn, LENGTH)]

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"tokens": self.documents[number]}


def of_grain(documents: Documents, bins: int) -> Iterable[Any]:
    """Return the rows that Grain packs."""
    import grain
    from grain.experimental import FirstFitPackIterDataset

    return FirstFitPackIterDataset(
        grain.MapDataset.source(documents).to_iter_dataset(),
        length_struct={"tokens": LENGTH},
        num_packing_bins=bins,
        shuffle_bins=False,
    )


def measured(packing: Callable[[], Iterable[Any]]) -> tuple[float, int, int]:
    """Return the processor seconds that a packing takes, its rows and their tokens."""
    began, rows, tokens, seconds = time.process_time(), 0, 0, 0.0
    for row in packing():
        seconds += time.process_time() - began
        rows += 1
        tokens += int(np.count_nonzero(row["tokens_segment_ids"]))
        began = time.process_time()
    return seconds + time.process_time() - began, rows, tokens


def main() -> None:
    """Print a line for each number of bins."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    documents = Documents(given.documents)
    everything = sum(map(len, documents.documents))
    for bins in BINS:
        packed = Dataset.from_source(documents).pack(LENGTH, bins=bins)
        ratios, rates, padding = [], [], (0.0, 0.0)
        for _ in range(given.rounds):
            ours = measured(lambda packed=packed: packed)
            theirs = measured(lambda bins=bins: of_grain(documents, bins))
            assert ours[2] == theirs[2] == everything
            ratios.append(theirs[0] / ours[0])
            rates.append([given.documents / side[0] for side in (ours, theirs)])
            padding = tuple(1 - side[2] / (side[1] * LENGTH) for side in (ours, theirs))
        mine, its = (statistics.median(side) for side in zip(*rates, strict=True))
        print(
            f"{bins:4} bins: {mine:7.0f} documents/s beside {its:6.0f}: "
            f"{statistics.median(ratios):5.1f} (wanted {WANTED:.0f}); "
            f"padding {padding[0]:.2%} beside {padding[1]:.2%}"
        )


if __name__ == "__main__":
    main()
