"""The schedule of ``mix`` alone, and ``mix`` beside ``sample_from_datasets``, in this
process, in processor microseconds an element.

    python -m benchmarks.mixing [--elements N] [--rounds N]

The figures are medians of all rounds. The datasets are ranges.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from zmqdata import Dataset
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.operations.schedules import DueChoices

WEIGHTS = (31, 17, 13, 11, 7, 5, 3, 1)
WANTED = 1.5
"""Microseconds wanted for a choice among eight datasets."""


def choices(seed: int) -> Iterator[Any]:
    """Return the choices of the datasets that are due."""
    return make_iterator(DueChoices(weights=((0, WEIGHTS),), seed=seed), Context())


def mixed(seed: int) -> Iterator[Any]:
    """Return the elements of a mixture."""
    datasets = {name: Dataset.range(1 << 40) for name in "abcdefgh"}
    return iter(Dataset.mix(datasets, dict(zip(datasets, WEIGHTS, strict=True)), seed=seed))


def sampled(seed: int) -> Iterator[Any]:
    """Return the elements of independent draws."""
    datasets = [Dataset.range(1 << 40) for _ in WEIGHTS]
    return iter(Dataset.sample_from_datasets(datasets, list(WEIGHTS), seed=seed))


def microseconds(elements: Iterator[Any], count: int) -> float:
    """Return the processor time of an element."""
    next(elements)
    began = time.process_time()
    for _ in islice(elements, count):
        pass
    return (time.process_time() - began) / count * 1e6


def main() -> None:
    """Print a line for each side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    sides = {"choices": choices, "mix": mixed, "sample_from_datasets": sampled}
    found: dict[str, list[float]] = {name: [] for name in sides}
    for seed in range(given.rounds):
        for name, make in sides.items():
            found[name].append(microseconds(make(seed), given.elements))
    for name, values in found.items():
        wanted = f" (wanted {WANTED})" if name == "choices" else ""
        print(f"{name:>20}: {statistics.median(values):.2f} us an element{wanted}")


if __name__ == "__main__":
    main()
