"""Tests of ``zmqdata.operations.huggingface``, run by ``make test-formats``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.iterators.checks import check_restore, provided
from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.elements.specs import UNKNOWN_CARDINALITY
from zmqdata.errors import DataLossError, InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.operations import huggingface
from zmqdata.pipelines.packing import open_pipeline, pack_pipeline
from zmqdata.testing import SimulatedService

REASON = "it needs datasets; `make test-formats` brings it"
datasets = pytest.importorskip("datasets", reason=REASON)
distributed = pytest.importorskip("datasets.distributed", reason=REASON)

COUNT = 40
COLUMNS: dict[str, Any] = {
    "n": [*range(COUNT)],
    "s": [f"{number:03}" for number in range(COUNT)],
    "x": [number / 7 for number in range(COUNT)],
    "l": [[*range(number % 3)] for number in range(COUNT)],
}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    """A dataset on disk, in two files."""
    datasets.Dataset.from_dict(COLUMNS).save_to_disk(tmp_path / "saved", num_shards=2)
    return datasets.load_from_disk(str(tmp_path / "saved"))


def numbers(elements: Any) -> list[int]:
    return [int(n) for element in elements for n in np.atleast_1d(element["n"])]


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {"n": [2 * n for n in batch["n"]], "of": [len(batch["n"])] * len(batch["n"])}


VIEWS: dict[str, Any] = {
    "plain": lambda one: one,
    "a range": lambda one: one.select(range(5, 33)),
    "a selection": lambda one: one.select([7, 3, 3, 39]),
    "shuffled": lambda one: one.shuffle(seed=3),
    "a shard": lambda one: one.shard(3, 1),
    "joined": lambda one: datasets.concatenate_datasets([one, one.select(range(3))]),
    "columns": lambda one: one.with_format("arrow", columns=["n", "s"]),
    "numpy": lambda one: one.shuffle(seed=3).with_format("numpy"),
    "numpy columns": lambda one: one.remove_columns("l").with_format(
        "numpy", columns=["n"], output_all_columns=True
    ),
    "transform": lambda one: one.select([9, 4, 5, 6]).with_transform(doubled),
}


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("name", VIEWS)
def test_reading_resumes_at_every_element(saved: Any, name: str, size: int | None) -> None:
    """The elements are those of the dataset, in its order and format, and an iterator
    restored at any place continues there. They come from splits, too.
    """
    view = VIEWS[name](saved)
    dataset = Dataset.from_hf(view, batch_rows=size)
    found = check_restore(dataset.node)
    count = -(-len(view) // (size or 1))
    assert len(found) == dataset.cardinality() == count
    parts = [check_restore(dataset.node, provided([[part]])) for part in [(0, 1), (1, count)]]
    assert parts[0] + parts[1] == found
    assert str(dataset.at(count - 1)) == str(list(dataset)[-1])
    assert len(check_restore(dataset.shuffle(count, seed=2).node)) == count
    if "output" not in name and "transform" not in name:
        assert numbers(dataset) == list(view.with_format(None)["n"])


def test_rows_have_the_types_of_arrow(saved: Any) -> None:
    """Without a format, values are numpy's of the stored width, ``str`` and arrays, and
    nulls are None; batches have arrays and ragged tensors.
    """
    row = list(Dataset.from_hf(saved))[5]
    assert (type(row["n"]), type(row["x"]), type(row["s"])) == (np.int64, np.float64, str)
    assert row["l"].tolist() == [0, 1]
    batch = next(iter(Dataset.from_hf(saved, batch_rows=4)))
    assert batch["x"].dtype == np.float64
    assert batch["l"].to_list() == COLUMNS["l"][:4]
    holed = Dataset.from_hf(datasets.Dataset.from_dict({"n": [1, None]}))
    assert [row["n"] for row in holed] == [1, None]


TYPED: dict[str, Any] = {
    "n": pa.array([3, 4], pa.int16()),
    "u": pa.array([None, 2**64 - 1], pa.uint64()),
    "b": [True, None],
    "y": [b"a\0", b""],
    "w": pa.array(["a", None], pa.large_string()),
    "x": pa.array([0.5, None], pa.float32()),
    "t": pa.array([1, 2], pa.timestamp("us", "Europe/Berlin")),
    "ns": pa.array([1, 1_700_000_000_123_456_789], pa.timestamp("ns")),
    "l": pa.array([[1, 2], []], pa.list_(pa.int8())),
    "texts": [["a"], ["b", "c"]],
    "ragged": [[[1], [2, 3]], [[4]]],
    "s": [{"a": 1, "b": ["x"]}, {"a": 2, "b": []}],
    "d": pa.array([Decimal("1.5"), None]),
}


def test_rows_of_streams_are_those_of_their_dataset() -> None:
    """A stream without a format yields the values that its dataset yields, of the same
    types.
    """
    held = datasets.Dataset(pa.table(TYPED))
    rows, found = (list(Dataset.from_hf(one)) for one in (held, held.to_iterable_dataset()))
    assert [*map(typed, found)] == [*map(typed, rows)]
    assert typed(rows[0]["n"]) == (np.int16, "int16", "3")


def typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: typed(part) for name, part in value.items()}
    return type(value), str(getattr(value, "dtype", "")), str(value)


@pytest.mark.parametrize("column", [[1, None], [[1], [None]], [{"a": {"b": None}}] * 2])
def test_nulls_in_batches_name_what_to_call(column: Any) -> None:
    """The error names the column and what `datasets` can do about it."""
    held = datasets.Dataset(pa.table({"m": [1, 2], "n": column}))
    for one in held, held.to_iterable_dataset():
        read = iter(Dataset.from_hf(one, batch_rows=2))
        with pytest.raises(PipelineError, match=r"'n' has nulls.*map\(\).*remove_columns\('n'\)"):
            next(read)
    assert len(list(Dataset.from_hf(held))) == 2


def test_a_format_gives_what_the_dataset_gives(saved: Any) -> None:
    """A row with a format is ``dataset[i]`` and a batch is a slice, in values and
    types: numpy's format has float32 in a batch and not in a row. A transform sees one
    row for a row.
    """
    view = saved.with_format("numpy")
    for place, row in enumerate(Dataset.from_hf(view)):
        assert str(row) == str(view[place])
        assert {name: type(row[name]) for name in row} == {
            name: type(value) for name, value in view[place].items()
        }
    for place, batch in enumerate(
        Dataset.from_hf(view.select_columns(["n", "x", "s"]), batch_rows=8)
    ):
        part = view[8 * place : 8 * place + 8]
        assert all(batch[name].dtype == part[name].dtype for name in batch)
        assert all(batch[name].tolist() == part[name].tolist() for name in batch)
    rows = list(Dataset.from_hf(saved.with_transform(doubled)))
    assert [(row["n"], row["of"]) for row in rows] == [(2 * n, 1) for n in range(COUNT)]
    batches = list(Dataset.from_hf(saved.with_transform(doubled), batch_rows=16))
    assert [batch["of"].tolist()[0] for batch in batches] == [16, 16, 8]


def test_rows_in_another_order_are_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that follow each other are read several at a time. In the order of a global
    shuffle, few rows are read that are not yielded next.
    """
    read: list[int] = []

    def counted(table: Any, numbers: Any) -> Any:
        read.append(len(numbers))
        return original(table, numbers)

    original = huggingface.HubTable.table
    monkeypatch.setattr(huggingface.HubTable, "table", counted)
    held = datasets.Dataset.from_dict({"n": [*range(2000)]}).with_format("numpy")
    dataset = Dataset.from_hf(held)
    assert len(list(dataset)) == sum(read) == 2000 > 10 * len(read)
    read.clear()
    shuffled = make_iterator(dataset.shuffle(2000, seed=1).node, provided([[(0, 200)]])())
    assert len(list(shuffled)) == 200
    assert sum(read) < 1000


def test_images_are_decoded_by_datasets(tmp_path: Path) -> None:
    """A row has the image that ``dataset[i]`` has."""
    pixels = [np.full((2, 3, 3), number, np.uint8) for number in range(5)]
    features = datasets.Features({"image": datasets.Image()})
    images = datasets.Dataset.from_dict({"image": pixels}, features=features)
    images.save_to_disk(tmp_path / "images")
    rows = list(Dataset.from_hf(datasets.load_from_disk(str(tmp_path / "images"))))
    assert [np.asarray(row["image"]).tolist() for row in rows] == [one.tolist() for one in pixels]


@pytest.mark.parametrize("name", ["plain", "shuffled", "numpy"])
def test_a_dataset_on_disk_travels_as_its_path(tmp_path: Path, name: str) -> None:
    """The pipeline has less than 4 KB and 4 bytes for each selected row, and yields the
    same elements where it is opened.
    """
    count = 100_000
    columns = {"n": [*range(count)], "s": ["some text"] * count}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    dataset = Dataset.from_hf(VIEWS[name](datasets.load_from_disk(str(tmp_path / "saved"))))
    packed = pack_pipeline(dataset.node)
    size = sum(map(len, packed.contents.values())) + len(packed.payload)
    assert size < 4096 + (0 if name == "plain" else 4 * count)
    if name != "numpy":
        assert "splits: by 100000 rows in 1 file of this machine" in str(dataset.describe())
    opened = Dataset(open_pipeline(packed))
    assert numbers(islice(opened, 70)) == numbers(islice(dataset, 70))


def test_the_fingerprint_is_that_of_another_run(saved: Any) -> None:
    """Another process that opens the same files makes the same pipeline."""
    text = (
        "import datasets, sys; from zmqdata import Dataset; from zmqdata.pipelines.packing import "
        "pack_pipeline; one = datasets.load_from_disk(sys.argv[1]).shuffle(seed=3); "
        "print(pack_pipeline(Dataset.from_hf(one).node).fingerprint)"
    )
    folder = str(Path(saved.cache_files[0]["filename"]).parent)
    command = [sys.executable, "-c", text, folder]
    runs = {
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in "ab"
    }
    assert len(runs) == 1


def test_a_dataset_in_memory_travels_if_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the limit the remedy is to save it; below it, its rows travel."""
    held = datasets.Dataset.from_dict({"n": [*range(10_000)]})
    assert len(list(Dataset(open_pipeline(pack_pipeline(Dataset.from_hf(held).node))))) == 10_000
    monkeypatch.setattr(huggingface, "MUCH", 50_000)
    for large in held, held.to_iterable_dataset():
        with pytest.raises(InvalidArgumentError, match=r"in memory.*save_to_disk\(path\)"):
            Dataset.from_hf(large)


def test_a_file_that_was_replaced_is_noticed(saved: Any, tmp_path: Path) -> None:
    """Other files under the same names are an error."""
    dataset, view = Dataset.from_hf(saved), Dataset.from_hf(saved.with_format("numpy"))
    streams = [Dataset.from_hf(STREAMS[name](saved)) for name in ("mapped", "taken")]
    other = datasets.Dataset.from_dict({**COLUMNS, "n": [*range(1, COUNT + 1)]})
    for path in (tmp_path / "saved").glob("*.arrow"):
        path.unlink()  # the files that are mapped stay what they are
    other.save_to_disk(tmp_path / "saved", num_shards=2)
    with pytest.raises(DataLossError, match="changed after this dataset was made"):
        list(dataset)
    for one in view, *streams:
        with pytest.raises(PipelineError, match="changed after this dataset was made"):
            list(one)
        assert list(one.ignore_errors()) == []


STREAMS: dict[str, Any] = {
    "map-style": lambda one: one.to_iterable_dataset(num_shards=4),
    "mapped": lambda one: one.to_iterable_dataset(num_shards=4).map(
        lambda row: {"n": row["n"] + 1}
    ),
    "filtered": lambda one: one.to_iterable_dataset(num_shards=4).filter(lambda row: row["n"] % 3),
    "taken": lambda one: one.to_iterable_dataset(num_shards=4).skip(2).take(20),
    "numbered": lambda one: one.to_iterable_dataset(num_shards=4).map(
        lambda row, place: {"n": row["n"] + place}, with_indices=True
    ),
    "joined": lambda one: datasets.concatenate_datasets(
        [one.to_iterable_dataset(num_shards=4).skip(3), one.to_iterable_dataset(num_shards=4)]
    ),
    "whole batches": lambda one: one.to_iterable_dataset(num_shards=4).map(
        dict, batched=True, batch_size=4, drop_last_batch=True
    ),
    "numpy": lambda one: one.to_iterable_dataset(num_shards=4).with_format("numpy"),
    "a generator": lambda one: datasets.IterableDataset.from_generator(
        generated, gen_kwargs={"parts": [1, 2, 3]}
    ),
}


def generated(parts: list[int]) -> Any:
    for part in parts:
        yield from ({"n": 10 * part + number} for number in range(6))


@pytest.mark.parametrize("name", STREAMS)
def test_streams_resume_at_every_element(saved: Any, name: str) -> None:
    """The elements are those of the stream, in its order, and an iterator restored at
    any place continues there. A split is a shard, unless the stream counts its rows.
    """
    stream = STREAMS[name](saved)
    dataset = Dataset.from_hf(stream)
    assert dataset.cardinality() == UNKNOWN_CARDINALITY
    expected = [int(row["n"]) for row in STREAMS[name](saved)]
    found = check_restore(dataset.node)
    assert numbers(dataset) == expected
    is_whole = name in ("taken", "numbered", "joined", "whole batches")
    shards = 1 if is_whole else stream.num_shards
    assert dataset.node.split_source.count == shards
    splits = [check_restore(dataset.node, provided([[(at, at + 1)]])) for at in range(shards)]
    assert [one for split in splits for one in split] == found


@pytest.mark.parametrize("name", ["map-style", "filtered", "numpy"])
def test_batches_of_streams_end_with_their_shard(saved: Any, name: str) -> None:
    """Each row is in one batch, and an iterator restored at any batch continues there.
    Without a format, lists are ragged, and texts stay what they are.
    """
    stream = STREAMS[name](saved)
    if name == "numpy":
        stream = stream.remove_columns("l")  # lists of different lengths are no array
    dataset = Dataset.from_hf(stream, batch_rows=4)
    check_restore(dataset.node)
    assert numbers(dataset) == [int(row["n"]) for row in stream]
    assert [len(batch["n"]) for batch in dataset][:3] == (
        [4, 2, 4] if name == "filtered" else [4, 4, 2]
    )
    if name == "map-style":
        batch = next(iter(dataset))
        assert batch["l"].to_list() == COLUMNS["l"][:4]
        assert batch["s"].tolist() == COLUMNS["s"][:4]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda one: one.shuffle(seed=1), "loses its buffer"),
        (lambda one: one.shuffle(seed=1).map(lambda row: row).take(3), "loses its buffer"),
        (lambda one: datasets.interleave_datasets([one, one]), "shuffles or interleaves"),
        (
            lambda one: datasets.interleave_datasets([one, one], probabilities=[0.5, 0.5], seed=1),
            "shuffles or interleaves",
        ),
        (
            lambda one: distributed.split_dataset_by_node(one, rank=0, world_size=2),
            "would divide it again",
        ),
        (lambda one: one.with_format("arrow"), "whose examples are tables"),
    ],
)
def test_streams_that_cannot_resume_are_refused(saved: Any, make: Any, text: str) -> None:
    """The error says what the stream does, and what to do instead."""
    with pytest.raises(InvalidArgumentError, match=text):
        Dataset.from_hf(make(saved.to_iterable_dataset(num_shards=2)))


def test_other_arguments_are_refused(saved: Any) -> None:
    """A dictionary of datasets is an error that names the splits, and what is none of
    them, too.
    """
    both = datasets.DatasetDict(train=saved, test=saved)
    with pytest.raises(TypeError, match=r"splits \['train', 'test'\].*dataset\['train'\]"):
        Dataset.from_hf(both)
    with pytest.raises((TypeError, ValueError), match=r"datasets\.IterableDataset"):
        Dataset.from_hf([1, 2])
    with pytest.raises(ValueError, match="batch_rows"):
        Dataset.from_hf(saved, batch_rows=0)


def test_datasets_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call says which extra brings the package."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'zmqdata\[hf\]'"):
        Dataset.from_hf(None)


def test_states_are_small(saved: Any) -> None:
    """The state of a stream has about the size that the node states."""
    dataset = Dataset.from_hf(STREAMS["mapped"](saved))
    iterator = iter(dataset)
    next(iterator)
    assert len(json.dumps(iterator.state_dict(), default=str)) < 2 * dataset.node.own_state


@pytest.mark.parametrize("name", ["shuffled", "numpy"])
def test_the_service_delivers_each_row_once(saved: Any, name: str) -> None:
    """Each row comes once, also after a worker was killed."""
    dataset = Dataset.from_hf(VIEWS[name](saved))
    check_service(dataset)


def test_the_service_delivers_each_example_once(saved: Any) -> None:
    """Each example of a stream comes once, also after a worker was killed."""
    check_service(Dataset.from_hf(STREAMS["mapped"](saved)))


def check_service(dataset: Any) -> None:
    with SimulatedService(workers=2, seed=5) as service:
        elements = iter(service.read(dataset))
        found = list(islice(elements, 3))
        service.workers[0].kill()
        service.add_worker()
        found += elements
    assert Counter(numbers(found)) == Counter(numbers(dataset))


def test_two_worker_processes_read_a_dataset_and_a_stream(saved: Any) -> None:
    """Workers in other processes open the files by their path, and share rows and
    shards.
    """
    with LocalCluster(2) as cluster:
        for dataset in (
            Dataset.from_hf(saved.shuffle(seed=3), batch_rows=4),
            Dataset.from_hf(STREAMS["map-style"](saved)),
        ):
            found = dataset.apply(distribute("distributed_epoch", cluster.target))
            assert sorted(numbers(found)) == list(range(COUNT))
