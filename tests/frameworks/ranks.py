"""Training programs of several ranks that the tests start:
``torchrun ranks.py CASE SERVICE``. Each rank prints what it has read.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import distributed
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    get_worker_info,
)

import zmqdata
from zmqdata.errors import InvalidArgumentError
from zmqdata.torch import Loader, distribute_dataloader

COUNT = 103
BATCH = 5
PATIENCE = 20.0


class Numbers(Dataset):
    """The numbers below ``COUNT``."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        return index


class Streams(IterableDataset):
    """The same numbers, dealt to the workers."""

    def __iter__(self) -> Iterator[int]:
        known = get_worker_info()
        first, step = (known.id, known.num_workers) if known else (0, 1)
        yield from range(first, COUNT, step)


def rows(batches: Iterable[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def wrapped(service: str, finite: str = "drop", **more: Any) -> Loader:
    plain: Any = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
    return distribute_dataloader(plain, service, finite=finite, **more)


def read(service: str, **more: Any) -> zmqdata.Dataset:
    numbers = zmqdata.Dataset.range(COUNT).batch(BATCH)
    return numbers.apply(zmqdata.distribute("distributed_epoch", service, **more))


def dealt(service: str, finite: str) -> Any:
    """Return two passes of a loader that is dealt to the ranks, and its length."""
    loader = wrapped(service, finite)
    return [rows(loader), rows(loader), len(loader)]


def alone(service: str) -> Any:
    """Return what all ranks read after rank 0 has made two loaders alone: one that it
    reads, and one over other data.
    """
    if os.environ["RANK"] == "0":
        rows(wrapped(service, num_consumers=1))
        distribute_dataloader(DataLoader(Subset(Numbers(), range(12)), BATCH), service)
    return rows(wrapped(service))


def sharded(service: str) -> Any:
    """Return what a loader with a ``DistributedSampler`` yields, and the plain one."""
    sampler: Any = DistributedSampler(
        Numbers(), num_replicas=int(os.environ["WORLD_SIZE"]), rank=int(os.environ["RANK"])
    )
    plain: Any = DataLoader(Numbers(), batch_size=BATCH, sampler=sampler)
    loader = distribute_dataloader(plain, service)
    found = []
    for number in range(2):
        loader.set_epoch(number)
        found += [rows(loader), rows(plain)]
    return found


def streams(service: str) -> Any:
    """Return two passes of a loader over streams."""
    loader = distribute_dataloader(DataLoader(Streams(), BATCH, num_workers=3), service)
    return [rows(loader), rows(loader)]


def dataset(service: str, finite: str) -> Any:
    """Return two passes of a loader over a distributed dataset."""
    loader = Loader(read(service), finite=finite)
    return [rows(loader), rows(loader)]


def ordered(service: str) -> Any:
    """Return a pass in a promised order, and its length."""
    loader = Loader(read(service, deterministic=True, num_tasks=4))
    return [rows(loader), len(loader)]


def resumed(service: str) -> Any:
    """Return for two loaders the rest of a pass, and what the state of rank 0 makes of
    it.
    """
    found = []
    ordered = read(service, deterministic=True, num_tasks=4)
    for loader in (wrapped(service), Loader(ordered)):
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        states = [loader.state_dict()]
        rest = rows(iterator)
        distributed.broadcast_object_list(states, src=0)
        loader.load_state_dict(states[0])
        found.append([rest, rows(loader)])
    return found


def copies(service: str) -> Any:
    """Return what pairs of ranks read that are the same consumer."""
    place = {"consumer_index": int(os.environ["RANK"]) // 2, "num_consumers": 2}
    ordered = read(service, deterministic=True, num_tasks=2)
    return [rows(wrapped(service, **place)), rows(Loader(ordered, **place))]


def named(service: str, *more: str) -> Any:
    """Return for each kind of dataset and for options what the ranks read at one time,
    or the error of the call.
    """
    found: list[Any] = []
    for kind, given in map(json.loads, more):
        mine = int(os.environ["RANK"])
        options = {name: mine if value == "rank" else value for name, value in given.items()}
        make = partial(wrapped, service) if kind == "DataLoader" else partial(loader_of, service)
        try:
            loader = make(**options)
        except InvalidArgumentError as error:
            found.append(str(error))
        else:
            iterator = iter(loader)
            had = [next(iterator)]
            distributed.barrier()  # both have begun before one has ended
            found.append(rows([*had, *iterator]))
    return found


def loader_of(service: str, **options: Any) -> Loader:
    return Loader(read(service, **options))


def gathered(service: str, *more: str) -> Any:
    """Return what accelerate gathers for a metric from loaders of each number of items
    and with each rule for the end, and how much is skipped before.
    """
    from accelerate import Accelerator

    accelerator, found = Accelerator(cpu=True), []
    for count, size, finite, skipped in map(json.loads, more):
        plain: Any = DataLoader(range(count), size)  # type: ignore[arg-type]
        loader = distribute_dataloader(plain, service, finite=finite)
        loader = accelerator.skip_first_batches(accelerator.prepare(loader), skipped)
        had: list[int] = []
        for batch in loader:
            padded = accelerator.pad_across_processes(batch, pad_index=-1)
            had += accelerator.gather_for_metrics(padded).tolist()
        found.append(had)
    return found


def bereaved(service: str, kind: str) -> Any:
    """Return the error that ends this rank after rank 0 has died in the first pass, and
    the seconds since its last batch. The ranks wait so long for each other.
    """
    if kind == "map":
        loader = wrapped(service, consumer_timeout=PATIENCE)
    else:
        ordered = read(service, deterministic=True, num_tasks=2, consumer_timeout=PATIENCE)
        loader = Loader(ordered)
    port = int(os.environ["MASTER_PORT"])
    store = distributed.TCPStore(os.environ["MASTER_ADDR"], port, is_master=False)
    store.set(f"here/{os.environ['RANK']}", "")
    store.wait([f"here/{rank}" for rank in range(int(os.environ["WORLD_SIZE"]))])
    last = time.monotonic()
    try:
        for _ in range(2):
            for number, _ in enumerate(loader):
                last = time.monotonic()
                if os.environ["RANK"] == "0" and number == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - last]
    return ["no error", "", 0.0]


CASES: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        dealt,
        alone,
        sharded,
        streams,
        dataset,
        ordered,
        resumed,
        copies,
        named,
        gathered,
        bereaved,
    )
}


def main(case: str, service: str, group: str, *arguments: str) -> None:
    if group == "group":
        distributed.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]) + 7)
    found = CASES[case](service, *arguments)
    # At once, because all ranks write to the same pipe, without buffers.
    sys.stdout.write(f"ROWS {os.environ['RANK']} {json.dumps(found)}\n")
    sys.stdout.flush()
    if group == "group":
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
