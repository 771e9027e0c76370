"""tf.data service: a dispatcher and a worker in a separate process, the client in
another.

Pipelines consist of tf.data's own operations (no Python function). Each worker makes
all elements (``parallel_epochs``, so that no split is requested), and the client
prefetches: this is its fastest setting.

    python -m benchmarks.peers.tfdata_service [--host ADDR] [--work-dir DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

from benchmarks.peers.rows import rows
from benchmarks.reading import Peer, Turn
from benchmarks.workloads import ENDLESS, VARIANTS, variants

SETTINGS = {
    "AUTO": "compression by its own choice, its default",
    "uncompressed": "compression=None",
    "uncompressed, batches": (
        "compression=None, batches of 128 on the way, which the client takes apart"
    ),
    "fault tolerant": (
        "compression=None, splits handed out as needed, fault_tolerant_mode with its journal"
    ),
}
BATCH = 128
READY = "tf.data service at "


def pipeline(name: str) -> Any:
    """Return the elements of ``workloads.Make``, made by tf.data's operations."""
    numbers = tf.data.Dataset.range(ENDLESS)
    if name == "scalars":
        return numbers
    if name == "digits":
        images = tf.data.Dataset.from_tensor_slices(np.stack(variants(name))).repeat()
        return tf.data.Dataset.zip({"image": images, "label": numbers})
    kept = variants(name)
    assert len(kept) in (2, VARIANTS)
    return tf.data.Dataset.from_tensor_slices(np.stack(kept)).repeat()


class Service:
    """A dispatcher and a worker in another process, which end with this object."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "benchmarks.peers.tfdata_service", *options]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(READY):
            raise RuntimeError("The servers of tf.data did not start")
        self.target = line.removeprefix(READY).strip()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Measured(Peer):
    """tf.data service. Servers stay between turns; every turn opens a new job."""

    packages = ("tensorflow-cpu", "tensorflow", "numpy")

    def __init__(self, service: str = "") -> None:
        super().__init__(service)
        self._services: dict[bool, Service] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def prepare(self, turn: Turn) -> None:
        fault_tolerant = turn.setting == "fault tolerant"
        if self.service or fault_tolerant in self._services:
            return
        self.forget()
        self._folder = tempfile.TemporaryDirectory()
        self._services[fault_tolerant] = Service(
            *([f"--work-dir={self._folder.name}"] if fault_tolerant else [])
        )

    @contextlib.contextmanager
    def read(self, turn: Turn) -> Iterator[Iterator[Any]]:
        fault_tolerant = turn.setting == "fault tolerant"
        dataset = pipeline(turn.element)
        if batches := turn.setting.endswith("batches"):
            dataset = dataset.batch(BATCH)
        distributed = tf.data.experimental.service.distribute(
            "distributed_epoch" if fault_tolerant else "parallel_epochs",
            self.service or self._services[fault_tolerant].target,
            compression="AUTO" if turn.setting == "AUTO" else None,
        )
        dataset = dataset.apply(distributed).prefetch(tf.data.AUTOTUNE)
        elements = dataset.as_numpy_iterator()
        yield rows(elements) if batches else elements

    def forget(self) -> None:
        while self._services:
            self._services.popitem()[1].close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="localhost")
    parser.add_argument(
        "--port", type=int, default=0, help="port of the dispatcher; the worker has the next"
    )
    parser.add_argument("--work-dir")
    chosen = parser.parse_args()
    service = tf.data.experimental.service
    settings = service.DispatcherConfig(
        port=chosen.port, work_dir=chosen.work_dir, fault_tolerant_mode=chosen.work_dir is not None
    )
    dispatcher = service.DispatchServer(settings)
    address = f"{chosen.host}:{dispatcher.target.rpartition(':')[2]}"
    port = chosen.port + 1 if chosen.port else 0
    own = f"{chosen.host}:{port}" if port else None
    worker = service.WorkerServer(service.WorkerConfig(address, worker_address=own, port=port))
    print(f"{READY}grpc://{address}", flush=True)
    sys.stdin.read()
    del worker, dispatcher


if __name__ == "__main__":
    main()
