"""A shared helper of these tests, which reads a dataset of numbers."""

from __future__ import annotations

from zmqdata.dataset import Dataset


def ints(dataset: Dataset) -> list[int]:
    return [int(x) for x in dataset]
