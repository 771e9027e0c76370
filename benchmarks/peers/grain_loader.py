"""Grain: a ``MapDataset`` read by worker processes (``mp_prefetch``), with large arrays
in its shared memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import grain
from absl import flags

from benchmarks.peers.rows import rows
from benchmarks.reading import Peer, Turn
from benchmarks.workloads import ENDLESS, Make

# Without a command line of absl, Grain's flags keep their defaults.
flags.FLAGS.mark_as_parsed()
SETTINGS = {
    "single": "elements one by one",
    "batches": "batches of 128, which the loop takes apart",
}
BATCH = 128
BUFFER = 16
"""Elements (or batches) that a worker buffers; Grain's default is 1."""


class Measured(Peer):
    """Grain, with new workers for every turn."""

    packages = ("grain", "numpy")

    @contextlib.contextmanager
    def read(self, turn: Turn) -> Iterator[Iterator[Any]]:
        batches = turn.setting == "batches"
        dataset = grain.MapDataset.range(ENDLESS)
        if turn.element != "scalars":
            dataset = dataset.map(Make(turn.element, turn.spins))
        if batches:
            dataset = dataset.batch(BATCH)
        options = grain.MultiprocessingOptions(
            num_workers=turn.workers, per_worker_buffer_size=BUFFER
        )
        elements = iter(dataset.to_iter_dataset().mp_prefetch(options))
        try:
            yield rows(elements) if batches else elements
        finally:
            if hasattr(elements, "close"):
                elements.close()
            del elements
