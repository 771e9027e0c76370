"""Sources of files and tables beside the readers of their own libraries, iterated in
this process, in processor seconds.

    python -m benchmarks.formats [--rows N] [--rounds N]

Both sides of a pair are run in turn in each round. A ratio above 1 means that zmqdata
took less time; it is the median of the ratios of all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zmqdata import Dataset

BATCH = 1024
Pair = tuple[str, float, Callable[[], Iterable[Any]], Callable[[], Iterable[Any]]]
"""Name, ratio wanted, reading of zmqdata, and reading of the library."""


def made_table(rows: int) -> pa.Table:
    """Return a table of numbers and texts."""
    random = np.random.default_rng(0)
    return pa.table(
        {
            "x": random.random(rows),
            "y": random.random(rows).astype(np.float32),
            "n": np.arange(rows),
            "text": [f"text of row {number}" for number in range(rows)],
        }
    )


def as_arrays(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches of Arrow as dicts of arrays of their own."""
    for batch in batches:
        yield {
            name: np.array(column.to_numpy(zero_copy_only=False))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }


def as_rows(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        yield from batch.to_pylist()


def loaded(path: Path) -> Iterator[Any]:
    with path.open() as file:
        yield from map(json.loads, file)


def pairs(folder: Path, rows: int) -> Iterator[Pair]:
    """Write a table in each format, and yield what is read beside each other."""
    table = made_table(rows)
    parquet, lines = folder / "a.parquet", folder / "a.jsonl"
    pq.write_table(table, parquet, row_group_size=50_000)

    def batches() -> Any:
        file = pq.ParquetFile(parquet, pre_buffer=False)
        return file.iter_batches(BATCH, use_threads=False)

    read = Dataset.from_parquet
    yield (
        "Parquet, batches",
        0.9,
        lambda: read(parquet, batch_rows=BATCH),
        lambda: as_arrays(batches()),
    )
    yield "Parquet, rows", 3.0, lambda: read(parquet), lambda: as_rows(batches())
    of_table = Dataset.from_arrow(table, batch_rows=BATCH)
    in_batches = table.to_batches(BATCH)
    yield "Arrow, batches", 0.9, lambda: of_table, lambda: as_arrays(in_batches)
    of_rows = Dataset.from_arrow(table)
    yield "Arrow, rows", 3.0, lambda: of_rows, lambda: as_rows(in_batches)
    with lines.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
    yield "JSON Lines, rows", 0.7, lambda: Dataset.from_jsonl(lines), lambda: loaded(lines)
    try:
        import datasets
    except ImportError:
        return
    datasets.disable_progress_bars()
    datasets.Dataset(table).save_to_disk(str(folder / "hf"))
    saved = datasets.load_from_disk(str(folder / "hf"))
    of_hf = Dataset.from_hf(saved, batch_rows=BATCH)
    numpy = saved.with_format("numpy")
    yield "Hugging Face, batches", 0.9, lambda: of_hf, lambda: numpy.iter(BATCH)
    yield "Hugging Face, rows", 3.0, lambda: Dataset.from_hf(saved), lambda: saved


def seconds(reading: Callable[[], Iterable[Any]]) -> float:
    """Return the processor seconds that it takes to read everything."""
    began = time.process_time()
    for _ in reading():
        pass
    return time.process_time() - began


def main() -> None:
    """Print a line for each pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, wanted, ours, theirs in pairs(Path(folder), given.rows):
            rounds = [(seconds(ours), seconds(theirs)) for _ in range(given.rounds)]
            ratio = statistics.median(theirs / ours for ours, theirs in rounds)
            mine, its = (statistics.median(side) for side in zip(*rounds, strict=True))
            print(f"{name:22} {mine:.3f} s beside {its:.3f} s: {ratio:.2f} (wanted {wanted})")


if __name__ == "__main__":
    main()
