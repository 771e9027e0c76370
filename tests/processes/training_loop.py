"""A training loop as a process of its own, which records what it is handed:
``python training_loop.py``.

If it is killed at any point, it leaves whole records of 16 bytes: the number of an
element, and the time at which it was handed out. A file beside them has the name of its
client. At SIGTERM it ends after its current element.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import threading
import time
from pathlib import Path
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
    """Return every number below ``count`` once, after all kinds of operations that hold
    elements back.
    """
    return (
        Dataset.range(count)
        .shuffle(50)
        .map(lambda x: x, num_parallel_calls=2)
        .batch(8)
        .interleave(lambda row: Dataset.from_tensor_slices(row), cycle_length=2, block_length=3)
        .map(lambda x: np.full(50, x))
    )


def distributed(target: str, kind: str, count: int, consumer: int) -> Dataset:
    """Return the pipeline as a job of the service that all training loops of this kind
    share.
    """
    options = dict(KINDS[kind])
    if kind == "coordinated":
        options["consumer_index"] = consumer
    return pipeline(count).apply(
        distribute(
            service=target,
            job_name="storm",
            max_outstanding_requests=64,
            dispatcher_timeout=60.0,
            **options,
        )
    )


def main(target: str, kind: str, count: str, consumer: str, path: str, pace: str = "0") -> None:
    """Record each element, and then be busy for ``pace`` seconds, as a training step
    is.
    """
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    elements: Any = iter(distributed(target, kind, int(count), int(consumer)))
    # The dispatcher reports on clients by names that clients do not log.
    Path(path).with_suffix(".client").write_text(elements._profile.client)
    train = threading.Event()
    for element in elements:
        os.write(out, RECORD.pack(int(element[0]), time.monotonic_ns()))
        if asked_to_end.is_set():
            return
        if float(pace):
            train.wait(float(pace))


if __name__ == "__main__":
    main(*sys.argv[1:])
    # The interpreter drops handlers before it ends. A loop that has read to its end
    # must not be killed by a late SIGTERM.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
