"""Pipelines of every kind of node: sources, and steps that apply operations to any
pipeline. A number varies each.

All are small and finite, and yield the same elements in each run.
"""

from __future__ import annotations

import pkgutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zmqdata import operations
from zmqdata.client.distribute import DataServiceDataset
from zmqdata.dataset import (
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    Options,
    SqlDataset,
    TextLineDataset,
    TFRecordDataset,
)
from zmqdata.elements.specs import TensorSpec
from zmqdata.nodes.base import Node, every_node
from zmqdata.operations.cache import Cache
from zmqdata.operations.folds import Reducer
from zmqdata.operations.huggingface import HubRows, HubStream, HubTableRows
from zmqdata.operations.limits import AssertCardinality
from zmqdata.operations.loading import Load
from zmqdata.operations.mapping import MarkingMap
from zmqdata.operations.selections import StaticShard
from zmqdata.operations.sequences import Elements
from zmqdata.operations.stored import Snapshot
from zmqdata.storage.chunks import ChunkWriter
from zmqdata.storage.manifests import (
    Chunk,
    Manifest,
    SaveDescription,
    begin_save,
    chunk_path,
    finish_save,
)
from zmqdata.storage.records import TFRecordWriter
from zmqdata.testing.reading import SimulatedDataset

Make = Callable[[int], Dataset]
Step = Callable[[int], Callable[[Dataset], Dataset]]


def fail_at_three(x: Any) -> Any:
    if np.sum(x) == 3:
        raise ValueError("three")
    return x


def total(*x: Any) -> Any:
    return np.int64(sum(int(np.sum(part)) for part in x))


def column_total(columns: dict[str, Any]) -> Any:
    return total(columns["n"])


def steps_of(x: Any) -> Any:
    return np.arange(int(x) % 5)


def numbered_steps(x: Any) -> Any:
    return {"tokens": np.arange(int(x) % 7), "name": x}


def drawn(*parts: Any) -> Any:
    return total(*parts[:-1]) + parts[-1].integers(5)


def is_odd(*x: Any) -> bool:
    return int(total(*x)) % 2 == 1


def small_range(*x: Any) -> Dataset:
    return Dataset.range(int(total(*x)) % 4)


def small_number(*x: Any) -> int:
    return int(total(*x)) % 3


def group_size(key: Any) -> int:
    return int(key) + 1


def is_odd_number(x: Any) -> int:
    return int(x) % 2


def as_number(text: Any) -> Any:
    return np.int64(int(text))


def byte_total(record: bytes) -> Any:
    return np.int64(sum(record))


def running_total(state: Any, x: Any) -> Any:
    added = state + int(total(*x) if isinstance(x, tuple) else total(x))
    return added, np.int64(added)


def collated(elements: list[Any]) -> Any:
    return np.array([total(*x) if type(x) is tuple else total(x) for x in elements], np.int64)


def batched_total(elements: list[Any]) -> Any:
    return np.int64(sum(map(len, elements)))


COUNT = Reducer(lambda key: 0, lambda count, x: count + 1, np.int64)
SEQUENCE = [np.arange(place) for place in range(5)]


@cache
def _workspace() -> tuple[tempfile.TemporaryDirectory[str], Iterator[int]]:
    return tempfile.TemporaryDirectory(), count()


def fresh_path() -> Path:
    """Return a path that does not exist."""
    folder, numbers = _workspace()
    return Path(folder.name) / str(next(numbers))


@cache
def files() -> Path:
    """Return a folder with files of each format, of a few records each."""
    folder = fresh_path()
    folder.mkdir()
    for place in range(3):
        (folder / f"{place}.txt").write_text("".join(f"{line}\n" for line in range(place)))
        (folder / f"{place}.bin").write_bytes(bytes(range(2 * place)))
        (folder / f"{place}.csv").write_text("".join(f"{line},x\n" for line in (place, "wrong", 3)))
        with TFRecordWriter(str(folder / f"{place}.tfrecord")) as writer:
            for size in range(place):
                writer.write(b"\1" * size)
    with closing(sqlite3.connect(folder / "base")) as base, base:
        base.execute("CREATE TABLE numbers (x)")
        base.executemany("INSERT INTO numbers VALUES (?)", [(x,) for x in range(4)])
    pq.write_table(pa.table({"n": np.arange(7)}), folder / "n.parquet", row_group_size=2)
    (folder / "n.jsonl").write_text('{"n": 1}\n\n{"n": 2}\n{"n": 3}\n')
    (folder / "m.jsonl").write_text('{"n": 4}')
    Dataset.range(7).save(folder / "saved")
    Dataset.range(9).save(folder / "shards", shard_func=lambda x: x % 4)
    save_in_chunks(str(folder / "chunks"))
    return folder


CHUNK_NAMES = ("chunk_0_0_2", "chunk_1_0_4", "chunk_0_1_1")
"""Names of the chunks that ``save_in_chunks`` writes."""


def save_in_chunks(folder: str) -> None:
    """Write the files that ``distributed_save`` leaves of seven numbers in two
    streams.
    """
    begin_save(folder, SaveDescription("run", None, None, 7))
    made = []
    for name, numbers in zip(CHUNK_NAMES, ((0, 1), (2, 3, 4, 5), (6,)), strict=True):
        path = Path(chunk_path(folder, name))
        path.parent.mkdir(exist_ok=True)
        writer = ChunkWriter(str(path), None)
        for number in numbers:
            writer.add(np.int64(number))
        chunk = writer.finish()
        made.append(Chunk(f"chunks/{name}", chunk.elements, chunk.nbytes))
    finish_save(folder, Manifest("run", None, None, tuple(made), splittable=True))


def growing(folder: str) -> Dataset:
    """Make the dataset that ``load(wait=True)`` makes of a save still in progress."""
    return Dataset(
        Load(path=folder, save_id="run", elements_spec=TensorSpec((), np.int64), grows=True)
    )


def in_turn(datasets: Dataset) -> Dataset:
    """Read the chunks of a save in turn."""
    return datasets.interleave(lambda one: one)


def backwards(datasets: Dataset) -> Dataset:
    """Read the chunks of a save with a shuffle of their own."""
    return datasets.shuffle(2, seed=1).flat_map(lambda one: one.map(lambda x: -x))


def paths(kind: str) -> list[str]:
    return [str(files() / f"{place}.{kind}") for place in range(3)]


SOURCES: list[Make] = [
    lambda n: Dataset.range(2 * n),
    lambda n: Dataset.from_tensors(np.arange(n)),
    lambda n: Dataset.from_tensor_slices(np.arange(2 * n).reshape(n, 2)).map(total),
    lambda n: Dataset.from_generator(range, args=(n,)),
    lambda n: Dataset.from_list([(place, place + 1) for place in range(n + 1)]),
    lambda n: Dataset.from_source(SEQUENCE, shuffle=n > 2).map(total),
    lambda n: Dataset.from_iterable(range(n)),
    lambda n: Dataset.random(seed=n).take(n).map(small_number),
    lambda n: Dataset.counter(n).take(n),
    lambda n: Dataset.list_files(str(files() / "*.txt"), seed=n).take(n).map(len),
    lambda n: TextLineDataset(paths("txt")[:n]).map(as_number),
    lambda n: TextLineDataset([*paths("txt")[:n], "/absent"], on_error="skip").map(as_number),
    lambda n: TFRecordDataset(paths("tfrecord")[:n]).map(byte_total),
    lambda n: FixedLengthRecordDataset(paths("bin")[:n], 2).map(byte_total),
    lambda n: CsvDataset(paths("csv")[:n], [0], select_cols=[0]).map(total),
    lambda n: (
        SqlDataset("sqlite", files() / "base", "SELECT x FROM numbers ORDER BY x", (int,))
        .take(n)
        .map(total)
    ),
    lambda n: Dataset.load(files() / "saved").take(n),
    lambda n: Dataset.load(files() / "shards").take(2 * n),
    lambda n: Dataset.load(files() / "chunks").take(n),
    lambda n: growing(str(files() / "chunks")).take(n),
    lambda n: Dataset.load(files() / "chunks", reader_func=backwards).take(n),
    lambda n: Dataset.load(files() / "chunks", reader_func=in_turn, wait=True).take(n),
    lambda n: Dataset.from_parquet(
        files() / "n.parquet", shuffle=n > 2, batch_rows=n or None, open_splits=2
    ).map(column_total),
    lambda n: Dataset.from_jsonl(
        [files() / "n.jsonl", files() / "m.jsonl"], shuffle=n > 2, batch_rows=n or None
    ).map(column_total),
    lambda n: Dataset.from_arrow(
        pa.table({"n": np.arange(2 * n)}), batch_rows=n if n > 2 else None
    ).map(column_total),
]


def kept(keep: Callable[[Dataset], Dataset]) -> Callable[[Dataset], Dataset]:
    """Make a step for pipelines whose second run equals the first, as the stored
    elements hold no failures.
    """

    def step(dataset: Dataset) -> Dataset:
        fails_whole = any(isinstance(node, AssertCardinality) for node in every_node(dataset.node))
        return dataset if fails_whole else keep(dataset.ignore_errors())

    return step


def again(dataset: Dataset) -> Dataset:
    """Return the dataset for a second, simultaneous reader; without elements if the
    first reader writes files.
    """
    writes = any(
        isinstance(node, (Cache, Snapshot)) and node.folder for node in every_node(dataset.node)
    )
    return dataset.take(0) if writes else dataset


def two_weights(*x: Any) -> Any:
    return np.array([1.0, float(is_odd(*x))])


def with_one(dataset: Dataset) -> Dataset:
    """Return the dataset with an element, because a mixture refuses empty datasets."""
    return dataset.concatenate(Dataset.range(7, 8))


def with_order(dataset: Dataset) -> Dataset:
    options = Options()
    options.deterministic = True
    return dataset.with_options(options)


STEPS: list[Step] = [
    lambda n: lambda ds: ds.map(total),
    lambda n: lambda ds: ds.map(total).map(fail_at_three),
    lambda n: lambda ds: ds.map(total).map(fail_at_three, on_error="skip"),
    lambda n: lambda ds: ds.map(total).map(fail_at_three, on_error="retry", retries=n),
    lambda n: (
        lambda ds: ds.map(total, num_parallel_calls=n + 1).map(
            fail_at_three, on_error="skip", max_errors=n
        )
    ),
    lambda n: lambda ds: ds.map(total).map(fail_at_three, num_parallel_calls=2, on_error="skip"),
    lambda n: lambda ds: ds.random_map(drawn),
    lambda n: lambda ds: ds.random_map(drawn, num_parallel_calls=n + 1),
    lambda n: (
        lambda ds: ds.map(total).random_map(
            lambda x, rng: drawn(fail_at_three(x), rng), on_error="skip"
        )
    ),
    lambda n: lambda ds: ds.interleave(small_range, n + 1, num_parallel_calls=2),
    lambda n: lambda ds: ds.filter(is_odd),
    lambda n: lambda ds: ds.batch(n + 1),
    lambda n: lambda ds: ds.batch(n + 1, drop_remainder=True),
    lambda n: lambda ds: ds.batch(n + 1, collate_fn=collated),
    lambda n: (
        lambda ds: ds.batch(
            n + 1,
            drop_remainder=n > 2,
            num_parallel_calls=2,
            collate_fn=lambda elements: fail_at_three(collated(elements)),
        )
    ),
    lambda n: lambda ds: ds.batch(n + 1).unbatch(),
    lambda n: lambda ds: ds.batch(2).rebatch([n + 1, 2]),
    lambda n: lambda ds: ds.map(total).map(steps_of).padded_batch(n + 1),
    lambda n: lambda ds: ds.map(total).map(steps_of).ragged_batch(n + 1).unbatch(),
    lambda n: (
        lambda ds: ds.map(total).map(steps_of).bucket_by_sequence_length(len, [1, 3], [2, n + 1, 1])
    ),
    lambda n: lambda ds: ds.map(total).map_batches(fail_at_three, n + 1),
    lambda n: (
        lambda ds: (
            ds.map(total)
            .map(numbered_steps)
            .pack(n + 3, bins=n + 1, overflow="split" if n % 2 else None, meta=("name",))
        )
    ),
    lambda n: (
        lambda ds: (
            ds.map(total)
            .map(steps_of)
            .pack(n + 1, policy="concat", eos=9, rest="drop" if n > 2 else "yield")
        )
    ),
    lambda n: (
        lambda ds: ds.map(total).balance(2, cost=fail_at_three, batch_size=n + 1, window=2, seed=n)
    ),
    lambda n: (
        lambda ds: (
            ds.map(total)
            .map(steps_of)
            .balance(n + 1, cost=len, max_cost=4, window=1, oversize=("alone", "drop")[n % 2])
            .map(total)
        )
    ),
    lambda n: (
        lambda ds: (
            ds.map(total)
            .map(steps_of)
            .balance(2, cost=len, batch_size=2, collate_fn=batched_total, drop_remainder=n > 2)
        )
    ),
    lambda n: (
        lambda ds: ds.balance(
            2, cost=total, batch_size=1, window=2, steps=True, collate_fn=collated
        )
    ),
    lambda n: lambda ds: ds.take(n),
    lambda n: lambda ds: ds.skip(n),
    lambda n: lambda ds: ds.repeat(n),
    lambda n: lambda ds: ds.enumerate(),
    lambda n: lambda ds: ds.shuffle(n + 1),
    lambda n: lambda ds: ds.shuffle(n + 1, seed=n, reshuffle_each_iteration=False),
    lambda n: lambda ds: ds.prefetch(n),
    lambda n: lambda ds: ds.flat_map(small_range),
    lambda n: lambda ds: ds.interleave(small_range, cycle_length=n + 1, block_length=2),
    lambda n: lambda ds: ds.concatenate(ds),
    lambda n: lambda ds: Dataset.zip(ds, Dataset.range(n)),
    lambda n: (
        lambda ds: Dataset.zip({"x": ds, "y": again(ds)}).map(lambda both: (both["x"], both["y"]))
    ),
    lambda n: lambda ds: ds.shard(n + 1, n // 2),
    lambda n: (
        lambda ds: Dataset(StaticShard(inputs=(ds.node,), num_shards=n + 1, index=n // 2, seed=n))
    ),
    lambda n: lambda ds: ds.take_while(lambda *x: total(*x) != n),
    lambda n: lambda ds: ds.map(total).unique(),
    lambda n: lambda ds: ds.scan(0, running_total),
    lambda n: lambda ds: ds.map(total).map(fail_at_three).ignore_errors(),
    lambda n: lambda ds: ds.assert_cardinality(n),
    lambda n: lambda ds: ds.map(total).rejection_resample(is_odd_number, [0.7, 0.3], seed=n),
    lambda n: (
        lambda ds: ds.map(total).rejection_resample(is_odd_number, [0.7, 0.3], [0.5, 0.5], seed=n)
    ),
    lambda n: (
        lambda ds: ds.map(total).window(n + 1, shift=2).flat_map(lambda window: window.batch(2))
    ),
    lambda n: lambda ds: ds.map(total).window(2, n + 1, stride=2, drop_remainder=True),
    lambda n: (
        lambda ds: ds.group_by_window(
            small_number, lambda key, group: group.take(n + 1), window_size=2
        )
    ),
    lambda n: (
        lambda ds: ds.group_by_window(
            small_number,
            lambda key, group: group.map(total).batch(n + 1),
            window_size_func=group_size,
        )
    ),
    lambda n: lambda ds: ds.group_by_reducer(small_number, COUNT),
    lambda n: lambda ds: Dataset.sample_from_datasets([ds.map(total), Dataset.range(n)], seed=n),
    lambda n: (
        lambda ds: Dataset.sample_from_datasets(
            [ds.map(total), Dataset.range(n)],
            Dataset.range(9).map(two_weights),
            n,
            stop_on_empty_dataset=n > 2,
        )
    ),
    lambda n: (
        lambda ds: Dataset.choose_from_datasets(
            [ds, again(ds)], Dataset.range(2).repeat(n), bool(n % 2)
        )
    ),
    lambda n: (
        lambda ds: Dataset.mix(
            {"a": with_one(ds.map(total)), "b": Dataset.range(n + 1)},
            [(0, {"a": 2, "b": 1}), (n + 1, {"a": 1, "b": n + 1})],
            seed=n,
            stop=("once", "all", "first")[n % 3],
            names=n == 2,
        ).map(total)
    ),
    lambda n: kept(lambda ds: ds.cache()),
    lambda n: kept(lambda ds: ds.cache(fresh_path())),
    lambda n: kept(lambda ds: ds.snapshot(fresh_path())),
    lambda n: (
        lambda ds: kept(
            lambda one: one.snapshot(fresh_path(), reader_func=in_turn, shard_func=lambda x: 0)
        )(ds.map(total))
    ),
    lambda n: with_order,
]


def kinds(kind: type[Node] = Node) -> set[type[Node]]:
    """Return all operations of the package: the classes of nodes that a method of
    ``Dataset`` makes.
    """
    is_public = (
        kind.operation
        and kind.__module__.startswith("zmqdata.")
        and not kind.__name__.startswith("_")
    )
    found = {kind} if is_public else set()
    return found.union(*map(kinds, kind.__subclasses__()))


for family in pkgutil.iter_modules(operations.__path__):
    import_module(f"{operations.__name__}.{family.name}")


NOT_SAMPLED: dict[type[Node], str] = {
    MarkingMap: "it is made by pad_to_cardinality, which takes dicts of a known number",
    Elements: "it is made by window and group_by_window while they run",
    DataServiceDataset: "it reads from a service, and has no state in this version",
    SimulatedDataset: "it reads from a simulated service",
    **dict.fromkeys((HubRows, HubTableRows, HubStream), "it needs datasets: tests/formats"),
}


@cache
def sample_pipelines() -> list[Dataset]:
    """Make each source and each step once, with a few elements."""
    return made_pipelines()


def made_pipelines() -> list[Dataset]:
    """Make each source and each step anew, with a few elements."""
    return [make(3) for make in SOURCES] + [step(3)(Dataset.range(12)) for step in STEPS]
