"""Tests of ``zmqdata.operations.parquet``."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.iterators.checks import check_restore, provided
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import UNKNOWN_CARDINALITY
from zmqdata.errors import DataLossError, InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.splits import IndexSplits
from zmqdata.testing import SimulatedService

ROWS = {"n": np.arange(30, dtype=np.int32), "s": [f"{number:03}" for number in range(30)]}
KINDS: dict[str, dict[str, Any]] = {
    "rows": {},
    "batches": {"batch_rows": 3},
    "files": {"split": "file"},
    "batches of files": {"split": "file", "batch_rows": 3},
    "rows with a condition": {"filters": [("n", ">=", 8)]},
    "batches with a condition": {"filters": [("n", ">=", 8)], "batch_rows": 3},
    "shuffled rows": {"shuffle": True, "open_splits": 2},
    "shuffled batches": {"shuffle": True, "batch_rows": 3},
    "shuffled files": {"split": "file", "shuffle": True, "filters": [("n", ">=", 8)]},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files with the rows 0 to 19 in groups of 8, and 20 to 29 in groups of 4."""
    table = pa.table(ROWS)
    pq.write_table(table.slice(0, 20), tmp_path / "a.parquet", row_group_size=8)
    pq.write_table(table.slice(20), tmp_path / "b.parquet", row_group_size=4)
    return tmp_path


def numbers(elements: Any) -> list[int]:
    return [int(n) for element in elements for n in np.atleast_1d(element["n"])]


def damage(path: Path, group: int) -> None:
    """Flip a bit of a page of a row group."""
    column = pq.read_metadata(path).row_group(group).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 1
    path.write_bytes(content)


def write_checked(path: Path, count: int = 400) -> None:
    """Write a file in groups of 100 rows, whose pages have checksums."""
    pq.write_table(
        pa.table({"n": np.arange(count)}),
        path,
        row_group_size=100,
        write_page_checksum=True,
        use_dictionary=False,
        compression="none",
    )


@pytest.mark.parametrize("name", KINDS)
def test_reading_resumes_at_every_element(folder: Path, name: str) -> None:
    """Each row comes once, equal to the row that was written, and an iterator restored
    at any place continues there.
    """
    node = Dataset.from_parquet(folder, **KINDS[name]).node
    outcomes = check_restore(node)
    first = 8 if "filters" in KINDS[name] else 0
    found = list(Dataset.from_parquet(folder, **KINDS[name]))
    assert sorted(numbers(found)) == list(range(first, 30))
    # How many batches there are depends on which row groups are drawn together.
    assert len(outcomes) == len(found) or name == "shuffled batches"
    assert ("shuffled" in name) != (numbers(found) == list(range(first, 30)))
    for element in found:
        texts = [f"{n:03}" for n in np.atleast_1d(element["n"])]
        assert np.atleast_1d(element["s"]).tolist() == texts


@pytest.mark.parametrize("name", KINDS)
def test_splits_are_read_as_they_are_assigned(folder: Path, name: str) -> None:
    """An iterator reads the splits that it gets, and can be restored at any place in
    them.
    """
    node = Dataset.from_parquet(folder, **KINDS[name]).node
    count = 2 if "split" in KINDS[name] else 5 if "filters" in KINDS[name] else 6
    assert node.split_source == IndexSplits(count)
    ranges = [[(0, 1)], [(1, count)]]
    parts = [check_restore(node, provided([part])) for part in ranges]
    assert sorted(map(str, parts[0] + parts[1])) == sorted(map(str, check_restore(node))) or (
        "shuffled" in name
    )
    both = [numbers(make_iterator(node, provided([part])())) for part in ranges]
    assert sorted(both[0] + both[1]) == list(range(8 if "filters" in KINDS[name] else 0, 30))
    assert min(map(len, both)) > 0


def test_cardinality_is_known_where_the_rows_are(folder: Path) -> None:
    """Rows and batches are counted without reading them; a condition, whole files,
    shuffled batches, and what may be left out are not.
    """
    known = {name: Dataset.from_parquet(folder, **KINDS[name]).cardinality() for name in KINDS}
    counts = {"rows": 30, "batches": 13, "shuffled rows": 30}
    assert known == {**dict.fromkeys(KINDS, UNKNOWN_CARDINALITY), **counts}
    assert Dataset.from_parquet(folder, on_error="skip").cardinality() == UNKNOWN_CARDINALITY


def test_shuffled_rows_are_drawn_from_several_row_groups(tmp_path: Path) -> None:
    """A seed repeats the order, each iteration has another, and rows of as many row
    groups as are open come mixed.
    """
    pq.write_table(pa.table({"n": np.arange(400)}), tmp_path / "f", row_group_size=50)
    made = [Dataset.from_parquet(tmp_path / "f", shuffle=True, seed=3) for _ in range(2)]
    first, again = numbers(made[0]), numbers(made[1])
    assert first == again != numbers(made[0])
    assert len({n // 50 for n in first[:200]}) == 4
    assert len({n // 50 for n in first[:20]}) >= 3
    kept = Dataset.from_parquet(tmp_path / "f", shuffle=True, reshuffle_each_iteration=False)
    assert numbers(kept) == numbers(kept) != first
    alone = Dataset.from_parquet(tmp_path / "f", shuffle=True, open_splits=1, seed=3)
    assert len({n // 50 for n in numbers(alone)[:50]}) == 1


@pytest.mark.parametrize("name", ["rows", "batches", "shuffled rows", "shuffled files"])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_service_delivers_each_row_once(folder: Path, name: str, workers: int) -> None:
    """Each row comes once from any number of workers, also after one of them was
    killed.
    """
    dataset = Dataset.from_parquet(folder, **KINDS[name])
    with SimulatedService(workers=workers, seed=5) as service:
        elements = iter(service.read(dataset))
        found = list(islice(elements, 3))
        service.workers[0].kill()
        service.add_worker()
        found += elements
    assert Counter(numbers(found)) == Counter(numbers(dataset))


def test_names_of_elements_do_not_depend_on_the_reading(folder: Path) -> None:
    """An element has the same name in a whole reading and in one of its split, and no
    two have the same.
    """
    node = Dataset.from_parquet(folder).node

    def named(context: Context) -> dict[int, Any]:
        iterator, found = make_iterator(node, context), {}
        for element in iterator:
            namer = iterator.namer()
            assert namer is not None
            found[int(element["n"])] = namer()
        return found

    whole, part = named(Context()), named(provided([[(2, 4)]])())
    assert len(set(whole.values())) == 30
    assert part.items() <= whole.items()


def test_damaged_row_groups_are_one_error_each(tmp_path: Path) -> None:
    """The error names file and row group; the next row group follows."""
    path = tmp_path / "f.parquet"
    write_checked(path)
    damage(path, 1)
    iterator = iter(Dataset.from_parquet(path))
    assert numbers(islice(iterator, 100)) == list(range(100))
    with pytest.raises(DataLossError, match=r"f\.parquet, row group 1 cannot be read: .*CRC"):
        next(iterator)
    assert numbers(iterator) == list(range(200, 400))


@pytest.mark.parametrize(
    "options", [{}, {"batch_rows": 7}, {"shuffle": True}, {"split": "file"}], ids=str
)
def test_what_is_damaged_is_left_out_on_request(tmp_path: Path, options: dict[str, Any]) -> None:
    """Row groups and files that cannot be read are left out, each listed once in the
    quarantine with its place.
    """
    write_checked(tmp_path / "a.parquet")
    damage(tmp_path / "a.parquet", 1)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 cut off")
    dataset = Dataset.from_parquet(tmp_path, on_error="skip", **options)
    check_restore(dataset.node, limit=40)
    iterator = iter(dataset)
    assert sorted(numbers(iterator)) == [*range(100), *range(200, 400)]
    errors = sorted(one.error for one in iterator.quarantine)
    assert len(errors) == 2
    assert "a.parquet, row group 1" in errors[0]
    assert "b.parquet" in errors[1]
    assert "no footer at its end" in errors[1]


def test_failures_among_drawn_rows_come_first(tmp_path: Path) -> None:
    """A row group that cannot be read is an error before the rows that are drawn, and
    again after a restart.
    """
    path = tmp_path / "f.parquet"
    write_checked(path, 300)
    damage(path, 1)
    node = Dataset.from_parquet(path, shuffle=True, batch_rows=90).node
    outcomes = check_restore(node)
    assert [outcome[0] for outcome in map(tuple, outcomes)].count("raised") == 1
    assert outcomes[0][0] == "raised"


def write_four(folder: Path, ending: str) -> list[Path]:
    """Write four files of twenty rows, the numbers 0 to 79."""
    paths = [folder / f"{number}.{ending}" for number in range(4)]
    for number, path in enumerate(paths):
        values = range(number * 20, number * 20 + 20)
        if ending == "parquet":
            pq.write_table(pa.table({"n": list(values)}), path, row_group_size=10)
        else:
            path.write_text("".join(f'{{"n": {n}}}\n' for n in values))
    return paths


def outcomes_of(iterator: Any, found: list[int]) -> int:
    """Add the numbers of the next elements, and return the number of errors."""
    errors = 0
    while True:
        try:
            found += numbers([next(iterator)])
        except StopIteration:
            return errors
        except (DataLossError, PipelineError):
            errors += 1


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_rows": 3},
        {"split": "file", "open_splits": 3},
        {"ending": "jsonl"},
        {"ending": "jsonl", "batch_rows": 3},
    ],
    ids=str,
)
def test_drawn_rows_keep_their_numbers_if_a_file_is_lost(
    tmp_path: Path, options: dict[str, Any], on_error: str
) -> None:
    """A file that is lost, or returns, before a resume alters no other row: what is
    lost is an error or in the quarantine, and no row comes twice.
    """
    options = {"seed": 1, "shuffle": True, "on_error": on_error, "open_splits": 8, **options}
    ending = options.pop("ending", "parquet")
    paths = write_four(tmp_path, ending)
    kind = Dataset.from_jsonl if ending == "jsonl" else Dataset.from_parquet
    dataset = kind(paths, **options)
    content, others = paths[2].read_bytes(), {*range(40), *range(60, 80)}
    for is_lost_first in (False, True):
        paths[2].write_bytes(content)
        if is_lost_first:
            paths[2].unlink()
        iterator, found, errors = iter(dataset), list[int](), 0
        while len(found) < 9:
            try:
                found += numbers([next(iterator)])
            except PipelineError:
                errors += 1
        state = iterator.state_dict()
        paths[2].write_bytes(content)
        if not is_lost_first:
            paths[2].unlink()
        iterator = iter(dataset)
        iterator.load_state_dict(state)
        if on_error == "raise" and not is_lost_first:
            with pytest.raises(PipelineError, match=rf"2\.{ending}"):
                next(iterator)
            errors += 1
            again = iter(dataset)
            again.load_state_dict(iterator.state_dict())
            iterator = again
        errors += outcomes_of(iterator, found)
        assert max(Counter(found).values()) == 1
        assert others <= {*found}
        if on_error == "skip":
            assert errors == 0
            assert len(iterator.quarantine) or {*range(40, 60)} <= {*found}
        else:
            assert errors or {*range(40, 60)} <= {*found}


def test_drawn_lines_that_change_before_a_resume_are_data_loss(tmp_path: Path) -> None:
    """A file with other lines and the same beginning and size is noticed."""
    path = tmp_path / "f.jsonl"
    path.write_text("1\n" * 4000)
    iterator = iter(Dataset.from_jsonl(path, shuffle=True))
    next(iterator)
    path.write_text("1\n" * 3000 + "111\n" * 500)
    again = iter(Dataset.from_jsonl(path, shuffle=True))
    again.load_state_dict(iterator.state_dict())
    with pytest.raises(DataLossError, match="it has 3500 rows, and had 4000"):
        next(again)


def test_a_file_that_was_changed_is_noticed(folder: Path) -> None:
    """A file with another footer than when the dataset was made, and one that is gone,
    are errors, never a mixture.
    """
    dataset = Dataset.from_parquet(folder)
    pq.write_table(pa.table(ROWS).slice(1, 20), folder / "a.parquet", row_group_size=8)
    with pytest.raises(DataLossError, match="was changed after this dataset was made"):
        list(dataset)
    (folder / "a.parquet").unlink()
    with pytest.raises(PipelineError, match=r"a\.parquet"):
        list(dataset)


def test_a_batch_with_nulls_is_an_error_with_its_place(tmp_path: Path) -> None:
    """The error of a batch names column, file and row group, and the next batch
    follows.
    """
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"n": [1, 2, None, 4, 5]}), path, row_group_size=4)
    iterator = iter(Dataset.from_parquet(path, batch_rows=2))
    assert numbers([next(iterator)]) == [1, 2]
    with pytest.raises(PipelineError, match=r"f\.parquet, row group 0: .*'n' has 1 nulls"):
        next(iterator)
    assert numbers(iterator) == [5]
    masked = list(Dataset.from_parquet(path, batch_rows=4, nulls="mask"))
    assert [batch["n_valid"].tolist() for batch in masked] == [[True, True, False, True], [True]]
    assert numbers(Dataset.from_parquet(path, batch_rows=4, nulls={"n": -1})) == [1, 2, -1, 4, 5]


def test_a_later_file_of_another_schema_is_an_error_when_it_is_read(folder: Path) -> None:
    """A split that is a file is compared with the first file when it is read."""
    pq.write_table(pa.table({"n": ["x"], "s": ["x"]}), folder / "c.parquet")
    dataset = Dataset.from_parquet(folder, split="file")
    with pytest.raises(
        PipelineError, match=r"'n' has the type int32 in the first file and string in .*c\.parquet"
    ):
        list(dataset)


@pytest.mark.parametrize("split", ["file", "row_group"])
def test_a_later_file_with_another_column_is_an_error(folder: Path, split: Any) -> None:
    """A column that the first file lacks is not dropped unless `columns` says so."""
    more = {**ROWS, "more": range(30)}
    pq.write_table(pa.table(more), folder / "c.parquet")
    with pytest.raises((PipelineError, InvalidArgumentError), match="column 'more' of type int64"):
        list(Dataset.from_parquet(folder, split=split))
    assert len(list(Dataset.from_parquet(folder, split=split, columns=["s"]))) == 60


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("split", ["file", "row_group"])
@pytest.mark.parametrize("options", [{}, {"columns": ["n"]}, {"schema": "union"}], ids=str)
def test_a_file_of_another_schema_is_left_out_on_request(
    tmp_path: Path, options: dict[str, Any], split: Any, shuffle: bool
) -> None:
    """In both kinds of splits, the first file that can be read is the reference, and
    what does not fit it is in the quarantine.
    """
    if options.get("schema") == "union" and split == "file":
        options = {}
    (tmp_path / "a.parquet").write_bytes(b"no table")
    pq.write_table(pa.table(ROWS), tmp_path / "b.parquet")
    pq.write_table(pa.table({"n": ["x"]}), tmp_path / "c.parquet")
    pq.write_table(pa.table(ROWS), tmp_path / "d.parquet")
    iterator = iter(
        Dataset.from_parquet(tmp_path, split=split, shuffle=shuffle, on_error="skip", **options)
    )
    assert sorted(numbers(iterator)) == sorted([*range(30)] * 2)
    errors = sorted(one.error for one in iterator.quarantine)
    assert len(errors) == 2
    assert "a.parquet is not a Parquet file" in errors[0]
    assert "string in" in errors[1] or "c.parquet lacks the column 's'" in errors[1]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("groups", [2, 3])
def test_a_file_that_is_replaced_before_a_resume_is_data_loss(
    folder: Path, groups: int, shuffle: bool
) -> None:
    """A split that is a file does not continue in another file."""
    dataset = Dataset.from_parquet(folder / "a.parquet", split="file", shuffle=shuffle)
    iterator = iter(dataset)
    for _ in range(18):
        next(iterator)
    table = pa.table(ROWS).slice(1, 8 * groups - 4)
    pq.write_table(table, folder / "a.parquet", row_group_size=8)
    again = iter(dataset)
    again.load_state_dict(iterator.state_dict())
    with pytest.raises(DataLossError, match=r"a\.parquet was changed after"):
        next(again)


@pytest.mark.parametrize("batch_rows", [None, 4])
def test_a_file_that_is_written_while_it_is_read_is_data_loss(
    tmp_path: Path, batch_rows: int | None
) -> None:
    """Row groups of an older and a newer content of a file are never mixed."""
    path = tmp_path / "f.parquet"
    options = {"row_group_size": 8, "use_dictionary": False, "compression": "none"}
    pq.write_table(pa.table(ROWS).slice(0, 20), path, **options)
    os.utime(path, ns=(10**9, 10**9))
    iterator = iter(Dataset.from_parquet(path, batch_rows=batch_rows))
    found = numbers([next(iterator)])
    pq.write_table(pa.table(ROWS).slice(10, 20), tmp_path / "c", **options)
    path.write_bytes((tmp_path / "c").read_bytes())
    assert outcomes_of(iterator, found) >= 1
    assert found == list(range(len(found)))


def test_large_rows_are_decoded_few_at_a_time(tmp_path: Path) -> None:
    """Rows of 100 kB are not decoded by the thousand."""
    rows = [np.random.default_rng(number).bytes(100_000) for number in range(200)]
    # Pages are unpacked whole, and are as large as this lets them be.
    options = {"row_group_size": 200, "write_batch_size": 8, "use_dictionary": False}
    pq.write_table(pa.table({"b": rows}), tmp_path / "f", **options)
    before = pa.total_allocated_bytes()
    iterator = iter(Dataset.from_parquet(tmp_path / "f"))
    assert next(iterator)["b"] == rows[0]
    assert pa.total_allocated_bytes() - before < 0.5 * 20_000_000


def test_the_pipeline_carries_no_more_than_its_table(tmp_path: Path) -> None:
    """A thousand row groups add at most 12 bytes each to the node."""
    pq.write_table(pa.table({"n": np.arange(1000)}), tmp_path / "f", row_group_size=1)
    table = Dataset.from_parquet(tmp_path / "f").node.table
    fields = [getattr(table, field.name).nbytes for field in dataclasses.fields(table)]
    assert sum(fields) <= 12 * 1000
