"""A training loop as a process of its own, which writes down what it is handed: ``python training_loop.py``.

Killed at any point, it leaves whole records of 16 bytes: the number of an element, and when it was handed out.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
from typing import Any

import numpy as np

from zmqdata import Dataset, ShardingPolicy, distribute

RECORD = struct.Struct("<qq")
KINDS: dict[str, dict[str, Any]] = {
    "dynamic": {"processing_mode": "distributed_epoch"},
    "static": {"processing_mode": ShardingPolicy.DATA},
    "coordinated": {"processing_mode": "distributed_epoch", "num_consumers": 2, "finite": "drop"},
    "ordered": {"processing_mode": "distributed_epoch", "deterministic": True, "num_tasks": 5},
}


def pipeline(count: int) -> Dataset:
    """Every number below ``count`` once, after all kinds of operations that hold elements back."""
    return (
        Dataset.range(count)
        .shuffle(50)
        .map(lambda x: x, num_parallel_calls=2)
        .batch(8)
        .interleave(lambda row: Dataset.from_tensor_slices(row), cycle_length=2, block_length=3)
        .map(lambda x: np.full(50, x))
    )


def distributed(target: str, kind: str, count: int, consumer: int) -> Dataset:
    """The pipeline as a job of the service that all training loops of this kind share."""
    options = dict(KINDS[kind])
    if kind == "coordinated":
        options["consumer_index"] = consumer
    return pipeline(count).apply(
        distribute(service=target, job_name="storm", max_outstanding_requests=64, dispatcher_timeout=60.0, **options)
    )


def main(target: str, kind: str, count: str, consumer: str, path: str, pace: str = "0") -> None:
    """Writes down each element and then is busy for ``pace`` seconds, as one that trains."""
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    train = threading.Event()
    for element in distributed(target, kind, int(count), int(consumer)):
        os.write(out, RECORD.pack(int(element[0]), time.monotonic_ns()))
        if float(pace):
            train.wait(float(pace))


if __name__ == "__main__":
    main(*sys.argv[1:])
