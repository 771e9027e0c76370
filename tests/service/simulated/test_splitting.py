"""Facts about sources of a pipeline: how the dispatcher splits them among workers, and
which cannot be split.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from tests.service.simulated.parts import MOST_BACK, by_task, steps_back, together
from zmqdata import (
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    ShardingPolicy,
    SqlDataset,
    TextLineDataset,
    TFRecordDataset,
    TFRecordWriter,
)
from zmqdata.errors import UnimplementedError

FILES, RECORDS = 7, 20


def read(service: WatchedService, dataset: Dataset, mode: Any = "distributed_epoch") -> list[Any]:
    return list(service.read(dataset, mode))


# --- split by index

INDEXED: dict[str, Callable[[], Dataset]] = {
    "range": lambda: Dataset.range(100),
    "range with a step": lambda: Dataset.range(297, -1, -3).map(lambda x: x // 3),
    "from_tensor_slices": lambda: Dataset.from_tensor_slices(np.arange(100)),
    "from_list": lambda: Dataset.from_list(list(range(100))),
    "from_source": lambda: Dataset.from_source(range(100)),
    "from_source, shuffled": lambda: Dataset.from_source(range(100), shuffle=True),
    "from_source, shuffled with a seed": lambda: Dataset.from_source(
        range(100), shuffle=True, seed=1
    ),
}


@pytest.mark.parametrize("name", INDEXED)
def test_what_has_indices_is_split_by_them(service: WatchedService, name: str) -> None:
    """Each element goes to one worker, and every worker gets some."""
    parts = by_task(service, INDEXED[name]())
    assert together(parts) == list(range(100))


@pytest.mark.parametrize("name", INDEXED)
def test_each_repetition_is_split_anew(service: WatchedService, name: str) -> None:
    """repeat(n) in the pipeline delivers each element n times."""
    assert Counter(map(int, read(service, INDEXED[name]().repeat(3)))) == dict.fromkeys(
        range(100), 3
    )


def test_parts_of_a_structure_stay_together(service: WatchedService) -> None:
    """A split of slices has the same rows of all arrays."""
    rows = {"x": np.arange(50), "y": (np.arange(50) * 2, np.arange(100).reshape(50, 2))}
    found = read(service, Dataset.from_tensor_slices(rows))
    assert sorted(row["x"] for row in found) == list(range(50))
    for row in found:
        twice = 2 * row["x"]
        assert row["y"][0] == twice
        assert row["y"][1].tolist() == [twice, twice + 1]


def test_workers_share_one_order(service: WatchedService) -> None:
    """A task's part of a sequence in a random order is in that order, except for splits
    that another task has returned.
    """
    order = list(map(int, Dataset.from_source(range(100), shuffle=True, seed=5)))
    for part in by_task(service, Dataset.from_source(range(100), shuffle=True, seed=5)):
        assert steps_back([order.index(element) for element in part]) <= MOST_BACK


# --- single splits


@pytest.mark.parametrize("repetitions", [1, 3])
def test_from_tensors_is_one_split(service: WatchedService, repetitions: int) -> None:
    """Exactly one worker gets the element in each repetition."""
    found = read(service, Dataset.from_tensors(np.arange(3)).repeat(repetitions))
    assert [element.tolist() for element in found] == [[0, 1, 2]] * repetitions


SINGLE: dict[str, Callable[[], Dataset]] = {
    "from_generator": lambda: Dataset.from_generator(lambda: iter(range(500))),
    "from_iterable": lambda: Dataset.from_iterable(list(range(500))),
}


@pytest.mark.parametrize("name", SINGLE)
def test_generators_are_one_split(service: WatchedService, name: str) -> None:
    """A single worker runs all of the generator, in order; the other worker has
    nothing.
    """
    assert by_task(service, SINGLE[name](), tasks=1) == [list(range(500))]


@pytest.mark.parametrize("name", SINGLE)
def test_generators_run_once_in_each_repetition(service: WatchedService, name: str) -> None:
    """The worker that gets the generator in a repetition runs it from its beginning."""
    assert Counter(map(int, read(service, SINGLE[name]().repeat(3)))) == dict.fromkeys(
        range(500), 3
    )


# --- endless sources


def test_workers_count_for_themselves(service: WatchedService) -> None:
    """counter() starts anew on each worker."""
    assert by_task(service, Dataset.counter(start=5, step=2).take(4)) == [[5, 7, 9, 11]] * 2


def test_workers_draw_different_numbers(service: WatchedService) -> None:
    """random() gives no number to two workers."""
    parts = by_task(service, Dataset.random(seed=4).take(50))
    assert [len(set(part)) for part in parts] == [50, 50]
    assert not set(parts[0]) & set(parts[1])


# --- files


def _text(path: str, number: int) -> None:
    Path(path).write_text("".join(f"{number}:{record}\n" for record in range(RECORDS)))


def _fixed(path: str, number: int) -> None:
    Path(path).write_bytes(b"".join(b"%02d:%02d" % (number, record) for record in range(RECORDS)))


def _records(path: str, number: int) -> None:
    with TFRecordWriter(path) as writer:
        for record in range(RECORDS):
            writer.write(b"%d:%d" % (number, record))


READERS: dict[str, tuple[Callable[[str, int], None], Callable[[Any], Dataset]]] = {
    "text": (_text, TextLineDataset),
    "tfrecord": (_records, TFRecordDataset),
    "fixed": (_fixed, lambda names: FixedLengthRecordDataset(names, 5)),
}
BY_NAMES: dict[str, Callable[[Path, list[str], Any], Dataset]] = {
    "list_files": lambda folder, names, reader: Dataset.list_files(f"{folder}/*").flat_map(reader),
    "list_files in order, interleaved": lambda folder, names, reader: Dataset.list_files(
        f"{folder}/*", shuffle=False
    ).interleave(reader, cycle_length=2),
    "slices": lambda folder, names, reader: Dataset.from_tensor_slices(names).flat_map(reader),
    "the reader's own list": lambda folder, names, reader: reader(names),
}


@pytest.fixture
def numbered(tmp_path: Path) -> Callable[[Callable[[str, int], None]], tuple[Path, list[str]]]:
    """Return a function that writes files whose records each have the numbers of file
    and record.
    """

    def write(writer: Callable[[str, int], None]) -> tuple[Path, list[str]]:
        names = [str(tmp_path / f"{number}") for number in range(FILES)]
        for number, name in enumerate(names):
            writer(name, number)
        return tmp_path, names

    return write


def _places(part: list[Any]) -> dict[int, list[int]]:
    """Return the numbers of the records of each file, in their order."""
    found: dict[int, list[int]] = {}
    for record in part:
        text = record.decode() if isinstance(record, bytes) else str(record)
        number, place = map(int, text.split(":"))
        found.setdefault(number, []).append(place)
    return found


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("way", BY_NAMES)
def test_files_are_splits(service: WatchedService, numbered: Any, kind: str, way: str) -> None:
    """A file goes whole and in order to one worker, and every worker gets some, for
    each way to name the files.
    """
    writer, reader = READERS[kind]
    first, second = map(_places, by_task(service, BY_NAMES[way](*numbered(writer), reader)))
    assert not first.keys() & second.keys()
    assert first | second == {number: list(range(RECORDS)) for number in range(FILES)}


def test_files_are_listed_anew(service: WatchedService, numbered: Any) -> None:
    """The dispatcher lists the files for each iteration, so a reader gets files that
    were added since.
    """
    folder, _ = numbered(_text)
    dataset = service.read(Dataset.list_files(f"{folder}/*").flat_map(TextLineDataset))
    assert len(list(dataset)) == FILES * RECORDS
    _text(f"{folder}/more", 99)
    assert len(list(dataset)) == (FILES + 1) * RECORDS


# --- sources that cannot be split


def _csv(folder: Path) -> Dataset:
    (folder / "rows.csv").write_text("".join(f"{number},x\n" for number in range(20)))
    return CsvDataset(str(folder / "rows.csv"), [np.int64, np.str_]).map(
        lambda number, text: number
    )


def _sql(folder: Path) -> Dataset:
    name = str(folder / "rows.sqlite")
    with sqlite3.connect(name) as base:
        base.execute("CREATE TABLE rows (number INTEGER)")
        base.executemany("INSERT INTO rows VALUES (?)", [(number,) for number in range(20)])
    base.close()
    return SqlDataset("sqlite", name, "SELECT number FROM rows ORDER BY number", (np.int64,)).map(
        lambda number: number
    )


def _load(folder: Path) -> Dataset:
    Dataset.range(20).save(str(folder / "saved"))
    return Dataset.load(str(folder / "saved"))


def _snapshot(folder: Path) -> Dataset:
    return Dataset.range(20).snapshot(str(folder / "snapshot"))


WHOLE: dict[str, tuple[Callable[[Path], Dataset], str]] = {
    "csv": (_csv, r"Cannot create split providers for dataset of type CsvDataset: CsvDataset\("),
    "sql": (_sql, r"Cannot create split providers for dataset of type SqlDataset: SqlDataset\("),
    "load": (_load, r"Cannot create split providers for dataset of type LoadDataset: load\("),
    "snapshot": (_snapshot, r"Splitting is not implemented for snapshot datasets: snapshot\("),
}
MODES = ["parallel_epochs", ShardingPolicy.DATA, ShardingPolicy.FILE_OR_DATA]


@pytest.mark.parametrize("name", WHOLE)
def test_some_sources_cannot_be_split(service: WatchedService, tmp_path: Path, name: str) -> None:
    """The refusal names the source, the line of the user's code and the remedy, also
    for sources below or beside others.
    """
    make, text = WHOLE[name]
    whole = make(tmp_path)
    told = text + r".*at .*test_splitting\.py:\d+ .*Distribute it with Shard"
    for dataset in (whole, whole.cache().shuffle(3).repeat(), Dataset.zip(Dataset.range(3), whole)):
        with pytest.raises(UnimplementedError, match=told):
            read(service, dataset)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WHOLE)
def test_whole_sources_work_in_other_modes(
    make_service: Callable[..., WatchedService], tmp_path: Path, name: str, mode: Any
) -> None:
    """Each worker reads all of the source under OFF, and reads its part of the elements
    under static policies.
    """
    service = make_service(workers=2, worker_addresses=["localhost"] * 2)
    times = 2 if mode == "parallel_epochs" else 1
    assert Counter(map(int, read(service, WHOLE[name][0](tmp_path), mode))) == dict.fromkeys(
        range(20), times
    )


@pytest.mark.parametrize("name", WHOLE)
def test_whole_sources_may_be_nested(service: WatchedService, tmp_path: Path, name: str) -> None:
    """A function may open any source, because the dispatcher does not split what it
    opens.
    """
    whole = WHOLE[name][0](tmp_path)
    found = read(service, Dataset.range(5).flat_map(lambda x: whole.map(lambda y: 100 * x + y)))
    assert sorted(map(int, found)) == [100 * x + y for x in range(5) for y in range(20)]


def test_whole_sources_may_choose(service: WatchedService, tmp_path: Path) -> None:
    """A source that cannot be split may choose among inputs, because choices are not
    split either.
    """
    choices = _load(tmp_path).map(lambda x: x % 2)
    found = read(
        service,
        Dataset.choose_from_datasets([Dataset.range(50), Dataset.range(50, 100)], choices, False),
    )
    assert 20 <= len(found) == len(set(map(int, found))) <= 40


def test_endless_ones_are_read_as_long_as_somebody_reads(service: WatchedService) -> None:
    """Endless sources give splits as long as clients read."""
    assert len(list(islice(service.read(Dataset.counter()), 10_000))) == 10_000
    assert len(list(islice(service.read(Dataset.random()), 10_000))) == 10_000
