"""Tests of killed workers that read files of a store, run by ``make test-formats``."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.full import full
from tests.kit.objectstore import ObjectStore, object_store
from zmqdata import Dataset, LocalCluster, TextLineDataset, distribute
from zmqdata.testing.cluster import await_condition

LINES = [f"{number}-{line}" for number in range(8) for line in range(50)]
ROWS = 1600


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    """Return a slow store with texts and a table in row groups of 100 rows."""
    with object_store() as made:
        for number in range(8):
            lines = LINES[number * 50 : number * 50 + 50]
            made.objects[f"/{number}.txt"] = "\n".join(lines).encode()
        file = io.BytesIO()
        pq.write_table(pa.table({"n": np.arange(ROWS)}), file, row_group_size=100)
        made.objects["/a.parquet"] = file.getvalue()
        yield made


@pytest.mark.realprocess
@pytest.mark.parametrize(
    ("kind", "requests"), [("lines", 5), ("rows", 1), full("lines", 1), full("rows", 5)]
)
def test_a_killed_worker_loses_nothing(store: ObjectStore, kind: str, requests: int) -> None:
    """A worker that dies in its first request, or in the middle of an epoch, costs no
    element, and none comes twice.
    """
    files = [store.url(f"/{number}.txt") for number in range(8)]
    table = Dataset.from_parquet(store.url("/a.parquet"), batch_rows=10)
    dataset: Any = TextLineDataset(files) if kind == "lines" else table
    with LocalCluster(2, heartbeat_interval_ms=200, worker_timeout_ms=1000) as cluster:
        store.latency, before = 0.1, len(store.requests)
        iterator = iter(dataset.apply(distribute("distributed_epoch", cluster)))
        await_condition(lambda: len(store.requests) >= before + requests, what="requests")
        cluster.workers[0].kill()
        found = list(iterator)
    if kind == "lines":
        assert sorted(found) == sorted(LINES)
    else:
        assert sorted(np.concatenate([batch["n"] for batch in found]).tolist()) == [*range(ROWS)]
