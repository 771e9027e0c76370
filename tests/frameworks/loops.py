"""Training programs of torch that the tests start."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from zmqdata import Dataset, distribute

COUNT = 600


class Rows(IterableDataset[Any]):
    """Rows of a distributed dataset, in the form that torch wants."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)


def dataset(service: str, job_name: str | None) -> Dataset:
    read = distribute("distributed_epoch", service, job_name=job_name, max_outstanding_requests=4)
    return Dataset.range(COUNT).batch(5).apply(read)


def rows_of(loader: Any) -> list[int]:
    return [int(row) for batch in loader for row in batch]


def loader_passes(service: str, method: str, keep: str, job_name: str, passes: str) -> None:
    """Print the rows of each each of a ``DataLoader`` with two workers."""
    name = job_name if job_name != "-" else None
    loader = DataLoader(
        Rows(dataset(service, name)),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=keep == "keep",
    )
    print(json.dumps([rows_of(loader) for _ in range(int(passes))]))


def ddp(service: str, passes: str, group: str) -> None:
    """Print the rows of each each that this rank of torchrun reads."""
    if group == "group":
        torch.distributed.init_process_group("gloo")
    rows = dataset(service, "train")
    found = [[int(row) for batch in rows for row in batch] for _ in range(int(passes))]
    print("ROWS", json.dumps(found), flush=True)
    if group == "group":
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    {"loader": loader_passes, "ddp": ddp}[sys.argv[1]](*sys.argv[2:])
