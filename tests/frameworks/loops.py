"""Training programs of torch that the tests start."""

from __future__ import annotations

import json
import sys
import tempfile
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


class OwnRows(IterableDataset[Any]):
    """Rows of a distributed dataset that each worker makes anew for each epoch."""

    def __init__(self, service: str) -> None:
        self.service = service

    def __iter__(self) -> Iterator[Any]:
        return iter(dataset(self.service, "own"))


def rows_of(loader: Any) -> list[int]:
    return [int(row) for batch in loader for row in batch]


def loader_of(rows: IterableDataset[Any], method: str, keep: str) -> DataLoader[Any]:
    return DataLoader(
        rows,
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=keep == "keep",
    )


def loader_passes(service: str, method: str, keep: str, job_name: str, passes: str) -> None:
    """Print the rows of each pass of a ``DataLoader`` with two workers."""
    name = None if job_name == "-" else job_name
    rows = OwnRows(service) if job_name == "own" else Rows(dataset(service, name))
    loader = loader_of(rows, method, keep)
    print(json.dumps([rows_of(loader) for _ in range(int(passes))]))


def rank_of_spawn(rank: int, rows: Dataset, address: str, found: Any) -> None:
    """Read a pass as one of two ranks, by a ``DataLoader`` of its own."""
    torch.distributed.init_process_group("gloo", address, rank=rank, world_size=2)
    found.put(rows_of(loader_of(Rows(rows), "fork", "renew")))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def spawned(service: str, passes: str) -> None:
    """Print the rows of each pass of two ranks that are spawned for it."""
    rows, context = dataset(service, "train"), torch.multiprocessing.get_context("spawn")
    found, each = context.SimpleQueue(), []
    for _ in range(int(passes)):
        with tempfile.TemporaryDirectory() as folder:
            group = torch.multiprocessing.spawn(
                rank_of_spawn, (rows, f"file://{folder}/group", found), nprocs=2, join=False
            )
            each.append(found.get() + found.get())
            while not group.join():
                pass
    print(json.dumps(each))


def ddp(service: str, passes: str, group: str) -> None:
    """Print the rows of each pass that this rank of torchrun reads."""
    if group == "group":
        torch.distributed.init_process_group("gloo")
    rows = dataset(service, "train")
    found = [[int(row) for batch in rows for row in batch] for _ in range(int(passes))]
    print("ROWS", json.dumps(found), flush=True)
    if group == "group":
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    {"loader": loader_passes, "ddp": ddp, "spawned": spawned}[sys.argv[1]](*sys.argv[2:])
