"""Tests of the table that says what each operation means on several workers. Each row
is run on two workers.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zmqdata
from tests.kit.service import WatchedService
from tests.test_tfdata_compatibility_page import OPERATIONS
from zmqdata import Dataset, Reducer
from zmqdata.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "several-workers.md"
ROWS = re.findall(
    r"^\| (`.*?) \| (global|per task|once|refused) \|", PAGE.read_text(encoding="utf-8"), re.M
)
KINDS = [(name, kind) for names, kind in ROWS for name in re.findall(r"`(\w+)`", names)]
READERS = [
    "CsvDataset",
    "FixedLengthRecordDataset",
    "SqlDataset",
    "TextLineDataset",
    "TFRecordDataset",
]
COUNT = 40
TASKS = {"deterministic": True, "num_tasks": 2}
"""Two tasks, of which the first has the even numbers of splits."""
Change = Callable[[Any], Any]


def third(x: Any) -> int:
    return int(x) % 3


def lengths(dataset: Any) -> Any:
    return dataset.map(lambda x: np.arange(x % 5))


OPERATING: dict[str, Change] = {
    "batch": lambda ds: ds.batch(7),
    "bucket_by_sequence_length": lambda ds: lengths(ds).bucket_by_sequence_length(len, [3], [4, 4]),
    "cache": lambda ds: ds.cache(),
    "concatenate": lambda ds: ds.concatenate(ds),
    "enumerate": lambda ds: ds.enumerate(),
    "filter": lambda ds: ds.filter(lambda x: x % 2 == 0),
    "flat_map": lambda ds: ds.flat_map(lambda x: Dataset.range(third(x))),
    "group_by_reducer": lambda ds: ds.group_by_reducer(
        third, Reducer(lambda key: 0, lambda state, x: state + x, lambda state: state)
    ),
    "group_by_window": lambda ds: ds.group_by_window(third, lambda key, w: w.batch(7), 7),
    "ignore_errors": lambda ds: ds.map(lambda x: 1 // int(x % 5)).ignore_errors(),
    "interleave": lambda ds: ds.interleave(lambda x: Dataset.range(third(x)), cycle_length=2),
    "map": lambda ds: ds.map(lambda x: x * 2),
    "map_batches": lambda ds: ds.map_batches(lambda batch: batch * 2, 7),
    "mix": lambda ds: Dataset.mix({"one": ds, "two": ds}, stop="once", seed=1),
    "pack": lambda ds: lengths(ds).pack(7),
    "balance": lambda ds: ds.balance(1, cost=float, batch_size=3),
    "pad_to_cardinality": lambda ds: ds.map(lambda x: {"x": x}).pad_to_cardinality(50),
    "padded_batch": lambda ds: lengths(ds).padded_batch(7),
    "prefetch": lambda ds: ds.prefetch(2),
    "ragged_batch": lambda ds: lengths(ds).ragged_batch(7),
    "random_map": lambda ds: ds.random_map(lambda x, draws: x, seed=1),
    "rebatch": lambda ds: ds.batch(4).rebatch(7),
    "repeat": lambda ds: ds.repeat(2),
    "sample_from_datasets": lambda ds: Dataset.sample_from_datasets([ds, ds], seed=1),
    "scan": lambda ds: ds.scan(0, lambda state, x: (state + x, state + x)),
    "shard": lambda ds: ds.shard(2, 0),
    "shuffle": lambda ds: ds.shuffle(10, seed=1),
    "skip": lambda ds: ds.skip(5),
    "take": lambda ds: ds.take(5),
    "take_while": lambda ds: ds.take_while(lambda x: x % 10 < 9),
    "unbatch": lambda ds: ds.batch(4).unbatch(),
    "unique": lambda ds: ds.map(third).unique(),
    "window": lambda ds: ds.window(7).flat_map(lambda window: window.batch(7)),
    "with_options": lambda ds: ds.with_options(zmqdata.Options()),
}
"""Each operation, applied to the numbers below 40."""
ELSEWHERE = {
    *("assert_cardinality", "choose_from_datasets", "rejection_resample", "zip", "snapshot"),
    *("at", "apply", "cardinality", "describe", "fingerprint", "options", "profile"),
    *("reduce", "get_single_element", "as_numpy_iterator", "save"),
    "from_hf",  # in tests/formats
}
"""Operations with a test of their own."""


@pytest.fixture(scope="module")
def service() -> Iterator[WatchedService]:
    """A dispatcher with two workers."""
    made = WatchedService(2)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return each source with some elements, the endless ones cut off behind the
    service.
    """
    folder = tmp_path_factory.mktemp("sources")
    names = []
    for letter in "ab":
        (folder / f"{letter}.txt").write_text("".join(f"{letter}{n}\n" for n in range(4)))
        (folder / f"{letter}.csv").write_text("1\n2\n")
        (folder / f"{letter}.jsonl").write_text('{"n": 1}\n')
        with zmqdata.TFRecordWriter(str(folder / f"{letter}.tfrecord")) as writer:
            writer.write(letter.encode())
        names.append(str(folder / letter))
    with sqlite3.connect(folder / "rows.db") as base:
        base.execute("CREATE TABLE rows AS SELECT 1 AS x")
    Dataset.range(3).save(str(folder / "saved"))

    def files(suffix: str) -> list[str]:
        return [name + suffix for name in names]

    pq.write_table(pa.table({"n": np.arange(9)}), folder / "n.parquet", row_group_size=2)
    query = ("sqlite", str(folder / "rows.db"), "SELECT x FROM rows", np.int64)
    return {
        "range": Dataset.range(COUNT),
        "from_tensor_slices": Dataset.from_tensor_slices(np.arange(COUNT)),
        "from_list": Dataset.from_list([*range(COUNT)]),
        "from_source": Dataset.from_source([*range(COUNT)]),
        "counter": Dataset.counter(),
        "random": Dataset.random(seed=1),
        "list_files": Dataset.list_files(files(".txt")),
        "TextLineDataset": zmqdata.TextLineDataset(files(".txt")),
        "TFRecordDataset": zmqdata.TFRecordDataset(files(".tfrecord")),
        "FixedLengthRecordDataset": zmqdata.FixedLengthRecordDataset(files(".txt"), 3),
        "from_parquet": Dataset.from_parquet(folder / "n.parquet"),
        "from_jsonl": Dataset.from_jsonl(files(".jsonl")),
        "from_arrow": Dataset.from_arrow(pa.table({"n": np.arange(9)})),
        "from_tensors": Dataset.from_tensors(np.arange(3)),
        "from_generator": Dataset.from_generator(lambda: iter(range(COUNT))),
        "from_iterable": Dataset.from_iterable([*range(COUNT)]),
        "load": Dataset.load(str(folder / "saved")),
        "CsvDataset": zmqdata.CsvDataset(files(".csv"), [0]),
        "SqlDataset": zmqdata.SqlDataset(query[0], query[1], query[2], query[3]),
    }


def counted(elements: Any) -> Counter[str]:
    return Counter(map(repr, elements))


def part(task: int) -> Any:
    """Return the numbers of one of two tasks."""
    return Dataset.from_tensor_slices(np.arange(COUNT)[task::2])


def test_the_table_has_each_operation_once(sources: dict[str, Any]) -> None:
    """Each operation of ``Dataset`` and each class of files is in one row, and each is
    run below.
    """
    assert sorted(name for name, _ in KINDS) == sorted({*OPERATIONS, *READERS})
    assert OPERATING.keys() | sources.keys() | ELSEWHERE == {*OPERATIONS, *READERS}


@pytest.mark.parametrize("name", OPERATING)
def test_an_operation_is_global_or_per_task(name: str, service: WatchedService) -> None:
    """The elements of two tasks are those of a single process, or those of the
    operation on each half of the input. The table says which.
    """
    operate = OPERATING[name]
    came = counted(service.read(operate(Dataset.range(COUNT)), "distributed_epoch", **TASKS))
    is_global = came == counted(operate(Dataset.range(COUNT)))
    if dict(KINDS)[name] == "global":
        assert is_global
    else:
        assert not is_global
        assert came == counted(operate(part(0))) + counted(operate(part(1)))


@pytest.mark.parametrize(
    "name", [name for name, kind in KINDS if kind == "global" and name != "from_hf"]
)
def test_what_is_global_is_so_without_an_order(
    name: str, service: WatchedService, sources: dict[str, Any]
) -> None:
    """Without a promised order, two workers yield the elements of a single process."""
    made = OPERATING[name](Dataset.range(COUNT)) if name in OPERATING else sources[name]
    if name == "random":
        few = [*service.read(made, "distributed_epoch", **TASKS).take(COUNT)]
        assert counted(few) == counted(made.take(COUNT))
    else:
        assert counted(service.read(made, "distributed_epoch")) == counted(made)


@pytest.mark.parametrize("name", ["from_tensors", "from_generator", "from_iterable"])
def test_a_source_without_parts_is_run_once(
    name: str, service: WatchedService, sources: dict[str, Any]
) -> None:
    """A single task yields all elements, in order."""
    assert dict(KINDS)[name] == "once"
    came = [*service.read(sources[name], "distributed_epoch")]
    assert [*map(repr, came)] == [*map(repr, sources[name])]


@pytest.mark.parametrize("name", ["load", "CsvDataset", "SqlDataset", "snapshot"])
def test_what_is_read_as_a_whole_is_refused(
    name: str, service: WatchedService, sources: dict[str, Any], tmp_path: Path
) -> None:
    """DYNAMIC refuses what cannot be divided, and names OFF."""
    assert dict(KINDS)[name] == "refused"
    made = sources[name] if name in sources else Dataset.range(3).snapshot(str(tmp_path))
    with pytest.raises(UnimplementedError, match=r"ShardingPolicy\.OFF"):
        [*service.read(made, "distributed_epoch")]


def test_other_operations_per_task(service: WatchedService) -> None:
    """Pairs, choices, resampling and an asserted number concern the part of a task."""
    told = dict(KINDS)
    for name in ("zip", "choose_from_datasets", "rejection_resample", "assert_cardinality"):
        assert told[name] == "per task"
    ds = Dataset.range(COUNT)
    pairs = [*service.read(Dataset.zip(ds, ds), "distributed_epoch", **TASKS)]
    assert all(left == right for left, right in pairs)
    with pytest.raises(FailedPreconditionError, match="contained only 20 elements"):
        [*service.read(ds.assert_cardinality(COUNT), "distributed_epoch", **TASKS)]
    chosen = Dataset.choose_from_datasets([ds, ds], Dataset.range(COUNT).map(lambda x: x % 2))
    with pytest.raises(InvalidArgumentError, match="stop_on_empty_dataset"):
        service.read(chosen, "distributed_epoch", **TASKS)
    # Each task sees a single class, which is all that it knows of the distribution.
    one = Dataset.range(COUNT).map(lambda x: int(x) % 2)
    fair = one.rejection_resample(lambda x: x, [0.5, 0.5], seed=1)
    alone = [
        counted(
            part(task).map(lambda x: int(x) % 2).rejection_resample(lambda x: x, [0.5, 0.5], seed=1)
        )
        for task in (0, 1)
    ]
    assert len(counted(service.read(fair, "distributed_epoch", **TASKS))) == len(
        alone[0] + alone[1]
    )


def test_a_task_counts_from_the_start(service: WatchedService, sources: dict[str, Any]) -> None:
    """Two tasks of ``counter`` yield each number twice."""
    assert dict(KINDS)["counter"] == "per task"
    came = counted(service.read(sources["counter"], "distributed_epoch", **TASKS).take(COUNT))
    assert came == counted(2 * [*sources["counter"].take(COUNT // 2)])


@pytest.mark.parametrize("name", ["take", "skip"])
def test_counts_of_an_order_that_stays_are_global(name: str, service: WatchedService) -> None:
    """``take`` and ``skip`` of an order that stays select from all of it."""
    stays = Dataset.range(COUNT).shuffle(COUNT, seed=1, reshuffle_each_iteration=False)
    made = getattr(stays, name)(5)
    assert counted(service.read(made, "distributed_epoch")) == counted(made)


def test_methods_that_run_here(service: WatchedService, tmp_path: Path) -> None:
    """A method that yields a value runs in this process, on all that arrives."""
    told = dict(KINDS)
    read = service.read(Dataset.range(COUNT), "distributed_epoch")
    assert read.reduce(0, lambda total, x: total + x) == sum(range(COUNT))
    assert counted(read.as_numpy_iterator()) == counted(Dataset.range(COUNT))
    assert service.read(Dataset.from_tensors(7), "distributed_epoch").get_single_element() == 7
    read.save(str(tmp_path / "saved"))
    assert counted(Dataset.load(str(tmp_path / "saved"))) == counted(Dataset.range(COUNT))
    assert read.cardinality() == zmqdata.UNKNOWN_CARDINALITY
    assert {
        told[name]
        for name in ELSEWHERE
        if name
        in (
            "reduce",
            "get_single_element",
            "as_numpy_iterator",
            "save",
            "cardinality",
            "apply",
            "describe",
            "fingerprint",
            "options",
            "profile",
        )
    } == {"once"}
    assert told["at"] == "refused"
    with pytest.raises(UnimplementedError):
        read.at(0)


def test_batches_of_the_first_example(service: WatchedService) -> None:
    """Each task ends with a smaller batch, and all elements come."""
    sizes = [
        len(batch) for batch in service.read(Dataset.range(1000).batch(128), "distributed_epoch")
    ]
    assert sum(sizes) == 1000
    assert sum(size < 128 for size in sizes) == 2
