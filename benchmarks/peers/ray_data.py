"""Ray Data: a single process at a time (``num_cpus=1``), rows or batches of numpy
arrays.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
import ray
import ray.data

from benchmarks.peers.rows import rows
from benchmarks.reading import Peer, Turn
from benchmarks.workloads import LARGE, Make, weight

SETTINGS = {
    "iter_rows": "rows, as dicts of one column or more",
    "iter_batches": (
        "batches of 1024 rows as numpy arrays (32 of images), which the loop takes apart"
    ),
}
ROWS = 10**9


class Row:
    """Makes elements as rows, which are dicts."""

    def __init__(self, turn: Turn) -> None:
        self._make = Make(turn.element, turn.spins)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        element = self._make(row["id"])
        return element if isinstance(element, dict) else {"element": element}


class Measured(Peer):
    """Ray Data. Ray keeps running between turns; every turn executes a new dataset."""

    packages = ("ray", "pyarrow", "numpy")

    def prepare(self, turn: Turn) -> None:
        if not ray.is_initialized():
            ray.init(
                num_cpus=1,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = False
            context.print_on_execution_start = False

    @contextlib.contextmanager
    def read(self, turn: Turn) -> Iterator[Iterator[Any]]:
        dataset = ray.data.range(ROWS)
        if turn.element != "scalars":
            dataset = dataset.map(Row(turn))
        if turn.setting == "iter_rows":
            found = iter(dataset.iter_rows())
        else:
            size = 32 if weight(turn.element) >= LARGE else 1024
            found = rows(iter(dataset.iter_batches(batch_size=size, batch_format="numpy")))
        column = {"scalars": "id", "digits": ""}.get(turn.element, "element")
        elements = (row[column] for row in found) if column else found
        try:
            yield elements
        finally:
            del elements, found, dataset
            gc.collect()

    def forget(self) -> None:
        if ray.is_initialized():
            ray.shutdown()
