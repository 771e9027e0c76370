"""Two ranks read sequences of very different lengths, in batches of equal work or not.

    python examples/balanced_ranks.py

The cost of a sequence is the square of its length, as in attention. A step lasts as
long as the costs of its batch say, and then waits for the other rank, as every
synchronous step does. The program prints how long the ranks wait in an epoch of batches
cut in order, and in an epoch of the batches of ``balance``.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from zmqdata import Dataset, LocalCluster, distribute

RANKS = 2
BATCH = 8


def sequence(number: Any) -> Any:
    """Return a sequence of tokens, whose length is lognormal."""
    generator = np.random.default_rng(int(number))
    length = int(np.clip(generator.lognormal(np.log(2000), 1.0), 1, 32_768))
    return generator.integers(0, 50_000, length, dtype=np.uint16)


def cost(tokens: Any) -> float:
    """Return the cost of a sequence: the square of its length."""
    return float(len(tokens)) ** 2


def keep(sequences: list[Any]) -> Any:
    """Return the lengths of the sequences of a batch. A training would pad or
    concatenate the sequences here, on a worker.
    """
    return np.array([len(tokens) for tokens in sequences])


def batches(count: int, is_balanced: bool) -> Dataset:
    """Return the batches, two of which in a row are a step."""
    sequences = Dataset.range(count).map(sequence)
    if is_balanced:
        return sequences.balance(RANKS, cost=cost, batch_size=BATCH, collate_fn=keep, seed=1)
    return sequences.batch(BATCH, collate_fn=keep)


def epoch(rank: int, target: str, count: int, is_balanced: bool, rate: float) -> None:
    """Read an epoch, and print how long this rank has waited for the other."""
    name = "balanced" if is_balanced else "in order"
    read = distribute(
        "distributed_epoch",
        target,
        name,
        consumer_index=rank,
        num_consumers=RANKS,
        finite="drop",
        # Equal parts for two tasks, so that no sequence is left without a full step.
        deterministic=True,
        num_tasks=2,
    )
    worked = waited = 0.0
    for lengths in batches(count, is_balanced).apply(read):
        seconds = float(np.sum(lengths.astype(float) ** 2)) / rate
        time.sleep(seconds)  # the step of an accelerator
        began = time.perf_counter()
        dist.all_reduce(torch.zeros(1))  # the gradients
        worked, waited = worked + seconds, waited + time.perf_counter() - began
    sums = torch.tensor([worked, waited])
    dist.all_reduce(sums)
    if rank == 0:
        worked, waited = sums.tolist()
        print(f"{name}: the ranks worked {worked:.2f} s and waited {waited:.2f} s", flush=True)


def run(rank: int, port: int, target: str, count: int, rate: float) -> None:
    """Run a rank."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    for is_balanced in (False, True):
        epoch(rank, target, count, is_balanced, rate)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=4e9, help="cost of a second of work")
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with LocalCluster(num_workers=2) as cluster:
        mp.spawn(run, (port, cluster.target, arguments.sequences, arguments.rate), RANKS)
