"""Tests of ``zmqdata.operations.arrow``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.iterators.checks import check_restore, provided
from zmqdata.dataset import Dataset
from zmqdata.errors import DataLossError, InvalidArgumentError, NotFoundError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.operations import arrow
from zmqdata.operations.arrow import ArrowFile
from zmqdata.pipelines import memorymaps
from zmqdata.pipelines.packing import open_pipeline, pack_pipeline
from zmqdata.testing import SimulatedService

ROWS = {"n": np.arange(30, dtype=np.int32), "s": [f"{number:03}" for number in range(30)]}
SOURCES = ("table", "file", "packed file", "stream", "two files")


def write(path: Path, table: Any, stream: bool = False, rows: int = 7, **options: Any) -> str:
    """Write a table in batches of some rows, and return the path."""
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, rows)
    return str(path)


def made(folder: Path, source: str, **options: Any) -> Dataset:
    """Return a dataset of ``ROWS`` from a kind of source."""
    table: Any = pa.table(ROWS)
    if source == "table":
        table = pa.Table.from_batches(table.to_batches(7))
    elif source == "two files":
        first, second = table.slice(0, 10), table.slice(10)
        table = [write(folder / "a", first), write(folder / "b", second, stream=True)]
    else:
        packed: dict[str, Any] = {"compression": "zstd"} if "packed" in source else {}
        table = write(folder / "a", table, stream=source == "stream", **packed)
    return Dataset.from_arrow(table, **options)


def numbers(elements: Any) -> list[int]:
    return [int(n) for element in elements for n in np.atleast_1d(element["n"])]


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("source", SOURCES)
def test_reading_resumes_at_every_element(tmp_path: Path, source: str, size: int | None) -> None:
    """Each row comes once, in order and equal to the row that was written, and an
    iterator restored at any place continues there.
    """
    dataset = made(tmp_path, source, batch_rows=size)
    assert len(check_restore(dataset.node)) == dataset.cardinality() == (30 if size is None else 8)
    found = list(dataset)
    assert numbers(found) == list(range(30))
    for element in found:
        texts = [f"{n:03}" for n in np.atleast_1d(element["n"])]
        assert np.atleast_1d(element["s"]).tolist() == texts
    assert str(dataset.at(5)) == str(found[5])


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("source", ["table", "two files"])
def test_splits_are_ranges(tmp_path: Path, source: str, size: int | None) -> None:
    """An iterator reads the ranges that it gets, with any stride, and can be restored
    at any place in them.
    """
    node = made(tmp_path, source, batch_rows=size).node
    count = node.cardinality
    ranges = [[(0, 3)], [(3, 5), (5, count)]]
    whole = check_restore(node)
    assert [one for part in ranges for one in check_restore(node, provided([part]))] == whole
    dataset = Dataset(node)
    shards = [numbers(dataset.shard(3, number)) for number in range(3)]
    assert sorted(n for shard in shards for n in shard) == list(range(30))
    assert check_restore(dataset.shard(3, 1).node) == whole[1::3]


def test_rows_are_read_in_any_order(tmp_path: Path) -> None:
    """A permutation of rows or batches has each of them once, and resumes."""
    for source in SOURCES:
        for size, count in (None, 30), (4, 8):
            dataset = made(tmp_path, source, batch_rows=size).shuffle(count, seed=4)
            assert len(check_restore(dataset.node)) == count
            assert sorted(numbers(dataset)) == list(range(30)) != numbers(dataset)
    table = pa.table(ROWS)
    drawn = Dataset.from_source(table, shuffle=True, seed=3)
    assert numbers(drawn) == numbers(Dataset.from_source(table, shuffle=True, seed=3))
    assert sorted(numbers(drawn)) == list(range(30))
    twice = numbers(drawn.repeat(2))
    assert sorted(twice[:30]) == sorted(twice[30:]) == list(range(30))
    assert twice[:30] != twice[30:]
    check_restore(Dataset.from_source(table, shuffle=True).node)


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("source", ["table", "packed file"])
def test_the_service_delivers_each_row_once(tmp_path: Path, source: str, size: int | None) -> None:
    """Each row comes once from two workers, also after one of them was killed."""
    dataset = made(tmp_path, source, batch_rows=size)
    with SimulatedService(workers=2, seed=5) as service:
        elements = iter(service.read(dataset))
        found = list(islice(elements, 3))
        service.workers[0].kill()
        service.add_worker()
        found += elements
    assert Counter(numbers(found)) == Counter(range(30))


def test_a_table_travels_as_its_buffers() -> None:
    """A packed pipeline has about the bytes of the table, outside of the pickle, and
    those of a slice for a slice. It yields the same elements after it is opened.
    """
    count = 400_000
    table = pa.table({"n": np.arange(count), "l": pa.array([[1, 2]] * count)})
    for part in table, table.slice(count // 4, count // 2):
        dataset = Dataset.from_arrow(part, batch_rows=100_000)
        packed = pack_pipeline(dataset.node)
        (content,) = packed.contents.values()
        assert 0 <= len(content) - len(part) * 28 < 10_000
        assert len(packed.payload) < 4000
        assert str(list(Dataset(open_pipeline(packed)))) == str(list(dataset))
    assert "carries: 5.6 MB, most of it ArrowTable.parts" in str(dataset.describe())


def test_a_file_travels_as_its_path(tmp_path: Path) -> None:
    """A packed pipeline does not have the content of a file."""
    table = pa.table({"n": np.arange(400_000)})
    dataset = Dataset.from_arrow(write(tmp_path / "a", table, rows=1000))
    packed = pack_pipeline(dataset.node)
    assert sum(map(len, packed.contents.values())) + len(packed.payload) < 8000
    assert "splits: by 400000 rows in 1 file of this machine" in str(dataset.describe())
    assert numbers(islice(Dataset(open_pipeline(packed)), 3)) == [0, 1, 2]


def test_a_large_table_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning of large arrays names what is sent, and files of Arrow."""
    monkeypatch.setattr(memorymaps, "MUCH", 1 << 20)
    pack_pipeline(Dataset.from_arrow(pa.table({"n": np.zeros(200_000)})).node)
    assert "from_arrow(200000 rows)" in caplog.text
    assert "from_arrow(path)" in caplog.text


def test_a_reader_is_read_once_at_the_call() -> None:
    """A reader of batches, which can be read once, gives a dataset that is read again
    and again.
    """
    batches = pa.table(ROWS).to_batches(7)
    dataset = Dataset.from_arrow(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert numbers(dataset) == numbers(dataset) == list(range(30))


def test_dictionaries_are_unpacked_when_they_are_read(tmp_path: Path) -> None:
    """Columns of dictionaries, which may differ between batches, and of views have the
    values of plain ones, in any order.
    """
    texts = ["a", "b", "a", None, "c"]
    batches = [
        pa.record_batch({"d": pa.array(part).dictionary_encode()})
        for part in (texts[:3], texts[3:])
    ]
    table = pa.Table.from_batches(batches)
    views = table.append_column("v", pa.array(texts, pa.string_view()))
    for path in None, write(tmp_path / "a", views, stream=True):
        dataset = Dataset.from_arrow(path or views)
        assert [row["d"] for row in dataset] == [row["v"] for row in dataset] == texts
        assert [row["v"] for row in dataset.shard(2, 0)] == texts[::2]
    (batch,) = Dataset.from_arrow(table, batch_rows=9, nulls={"d": "-"})
    assert batch["d"].tolist() == ["a", "b", "a", "-", "c"]


class Frame:
    """Data frame with the interface that pandas has."""

    iloc = None
    index = SimpleNamespace(names=[None], dtype=np.dtype(int))

    def __init__(self, table: Any, *dtypes: Any) -> None:
        self._table, self.columns, self.dtypes = table, table.schema.names, dtypes

    def reset_index(self, drop: bool) -> Frame:
        return Frame(self._table.remove_column(2), *self.dtypes[:2]) if drop else self

    def __arrow_c_stream__(self, requested: object = None) -> object:
        return self._table.__arrow_c_stream__(requested)


def test_frames_of_pandas_keep_nan_and_lose_the_numbers_of_their_rows() -> None:
    """Null is NaN in columns of numpy's floats, and None in others. An index without a
    name is no column.
    """
    table = pa.table({"x": [1.5, None], "n": [1.5, None], "__index_level_0__": [3, 1]})
    frame = Frame(table, np.dtype(float), "Float64", np.dtype(int))
    rows = list(Dataset.from_arrow(frame))
    assert [str(row["x"]) for row in rows] == ["1.5", "nan"]
    assert [[*row] for row in rows] == [["x", "n"]] * 2
    assert rows[1]["n"] is None


def test_an_index_has_labels_if_it_has_a_name_or_no_numbers() -> None:
    """An index is a column if its name is not None, whatever else it is. The user is
    warned of labels that get lost.
    """
    frame = Frame(pa.table({"n": [1], "s": ["a"], "0": ["x"]}), *[np.dtype(object)] * 3)
    frame.index = SimpleNamespace(names=[None], dtype=np.dtype(object))
    with pytest.warns(UserWarning, match=r"labels of type object and no name.*rename_axis"):
        assert [*next(iter(Dataset.from_arrow(frame)))] == ["n", "s"]
    frame.index = SimpleNamespace(names=[0], dtype=np.dtype(object))
    assert [*next(iter(Dataset.from_arrow(frame)))] == ["n", "s", "0"]


def failing() -> Iterator[Any]:
    yield pa.record_batch({"n": [1]})
    raise RuntimeError("the disk is gone")


def unreadable_frame() -> Any:
    frame = Frame(pa.table({"n": [1], "s": ["a"], "i": [0]}), np.dtype(int), np.dtype(object))
    frame.reset_index = lambda drop: int("cannot insert n")  # type: ignore[method-assign]
    return frame


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (pa.RecordBatchReader.from_batches(pa.schema({"n": pa.int64()}), failing()), "disk is"),
        (pa.chunked_array([pa.array([{"n": 1}, None])]), "non-zero null count"),
        (unreadable_frame(), "cannot insert n"),
    ],
    ids=["reader", "nulls", "frame"],
)
def test_what_fails_when_it_is_read_is_named(table: Any, text: str) -> None:
    """A reader that fails, and a frame that cannot be a table, are errors of the call
    with its reason.
    """
    with pytest.raises(TypeError, match=rf"(?s)from_arrow\(\) got a .* as a table: .*{text}"):
        Dataset.from_arrow(table)


def test_empty_chunks_are_passed_over() -> None:
    """A chunk without rows is no batch, also where it was cut off from others."""
    part = pa.array([1, None, 3])
    table = pa.table({"n": pa.chunked_array([part.slice(1, 0), part, part.slice(2, 0)])})
    assert [row["n"] for row in Dataset.from_arrow(table)] == [1, None, 3]


def test_views_of_lists_are_read_from_tables_and_files(tmp_path: Path) -> None:
    """Each row has its own values after a cut, and an iterator resumes with them."""
    values = [[1, 2], None, [], [3], [4, 5]]
    array = pa.array([[9], *values, [9]], pa.list_view(pa.int32()))
    table = pa.table({"l": array}).slice(1, 5)
    for source in table, write(tmp_path / "a", table, rows=2):
        dataset = Dataset.from_arrow(source)
        check_restore(dataset.node)
        assert [one["l"] if one["l"] is None else one["l"].tolist() for one in dataset] == values


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.month_day_nano_interval(), r"for month_day_nano_interval"),
        (
            pa.list_(pa.sparse_union([pa.field("x", pa.int8())])),
            r"no values in numpy for sparse_union",
        ),
        (
            pa.list_(pa.struct([pa.field("x", pa.int8()), pa.field("x", pa.int8())])),
            r"two fields of one name",
        ),
    ],
    ids=["interval", "union", "fields"],
)
def test_types_without_values_are_refused(kind: Any, text: str) -> None:
    """The error of the call names the column and its type."""
    table = pa.Table.from_batches([], pa.schema({"c": kind}))
    with pytest.raises(
        InvalidArgumentError, match=rf"(?s)column 'c' of the table, of type .*{text}"
    ):
        Dataset.from_arrow(table)


def test_a_mask_takes_the_place_of_no_field() -> None:
    """A mask whose name a column or field has is refused, at any depth."""
    for table in {"a": [1], "a_valid": [2]}, {"s": [[{"a": 1, "a_valid": 2}]]}:
        with pytest.raises(InvalidArgumentError, match=r"adds 'a_valid' beside 'a'"):
            Dataset.from_arrow(pa.table(table), batch_rows=1, nulls="mask")
    whole = pa.table({"a": [1], "s": [{"a_valid": 2}]})
    assert [*next(iter(Dataset.from_arrow(whole, batch_rows=1, nulls="mask")))["s"]]


def test_nulls_in_batches_are_refused_masked_or_replaced() -> None:
    """The error names the column and the row, and the next batch follows."""
    table = pa.table({"n": [1, 2, None, 4, 5]})
    assert [row["n"] for row in Dataset.from_arrow(table)] == [1, 2, None, 4, 5]
    iterator = iter(Dataset.from_arrow(table, batch_rows=2))
    assert numbers([next(iterator)]) == [1, 2]
    with pytest.raises(PipelineError, match=r"failed for row 2: .*'n' has 1 nulls"):
        next(iterator)
    assert numbers(iterator) == [5]
    masked = list(Dataset.from_arrow(table, batch_rows=5, nulls="mask"))
    assert masked[0]["n_valid"].tolist() == [True, True, False, True, True]
    assert numbers(Dataset.from_arrow(table, batch_rows=2, nulls={"n": -1})) == [1, 2, -1, 4, 5]


def test_tables_without_rows_are_empty(tmp_path: Path) -> None:
    """A table or file without rows or batches is an empty dataset."""
    empty = pa.table({"n": pa.array([], pa.int64())})
    paths = [write(tmp_path / "a", empty), write(tmp_path / "b", empty, stream=True)]
    for source in empty, paths, pa.Table.from_batches([], empty.schema):
        assert (
            Dataset.from_arrow(source).cardinality() == len(list(Dataset.from_arrow(source))) == 0
        )
    assert numbers(Dataset.from_arrow([*paths, write(tmp_path / "c", pa.table({"n": [1]}))])) == [1]


@pytest.mark.parametrize("stream", [False, True])
def test_files_that_are_cut_off_are_refused(tmp_path: Path, stream: bool) -> None:
    """A file that lacks bytes at its end, or all, is an error that names it, also if
    only the mark of the end is missing.
    """
    path = tmp_path / "ü #1"
    content = Path(write(path, pa.table(ROWS), stream)).read_bytes()
    for size in 8, 100, len(content) // 2, len(content) - 8, len(content) - 1:
        path.write_bytes(content[:size])
        with pytest.raises(DataLossError, match=r"ü #1 begins as Arrow does.*was cut off"):
            Dataset.from_arrow(path)
    path.write_bytes(b"")
    with pytest.raises(DataLossError, match=r"ü #1 is empty"):
        Dataset.from_arrow(path)
    if stream:
        path.write_bytes(2 * content)
        with pytest.raises(DataLossError, match=r"ends at byte .* or was joined with another"):
            Dataset.from_arrow(path)


def test_what_is_no_arrow_is_refused(tmp_path: Path) -> None:
    """Other files, folders, and paths without a file are errors that name them."""
    (tmp_path / "a").write_text("n,s\n1,x\n")
    with pytest.raises(InvalidArgumentError, match=r"a is no Arrow IPC file.*begins with b'n,s"):
        Dataset.from_arrow(tmp_path / "a")
    for path in tmp_path, tmp_path / "absent":
        with pytest.raises(NotFoundError, match=r"is no file\. Pass the path of an Arrow"):
            Dataset.from_arrow(str(path))
    with pytest.raises(InvalidArgumentError, match="no paths"):
        Dataset.from_arrow([])
    with pytest.raises(NotImplementedError, match="is a URL"):
        Dataset.from_arrow("s3://bucket/a.arrow")


def test_files_must_have_the_same_columns(tmp_path: Path) -> None:
    """Integers of different widths are read as the widest; other differences are errors
    that name file and column.
    """
    paths = [
        write(tmp_path / "a", pa.table({"n": pa.array([1], pa.int32())})),
        write(tmp_path / "b", pa.table({"n": [2]})),
    ]
    rows = list(Dataset.from_arrow(paths))
    assert [(int(row["n"]), row["n"].dtype) for row in rows] == [(1, np.int64), (2, np.int64)]
    with pytest.raises(InvalidArgumentError, match=r"'n' has the type int32 in .*a and string in"):
        Dataset.from_arrow([paths[0], write(tmp_path / "c", pa.table({"n": ["x"]}))])
    with pytest.raises(InvalidArgumentError, match=r"/d lacks the column 'n'"):
        Dataset.from_arrow([paths[0], write(tmp_path / "d", pa.table({"m": [1]}))])


@pytest.mark.parametrize(
    "table", [pa.table([[1], [2]], ["n", "n"]), pa.table({}), pa.table({"n": [1]}).schema], ids=str
)
def test_tables_that_have_no_dicts_are_refused(table: Any) -> None:
    """Two columns of one name, a table without columns, and what is no table are
    errors.
    """
    text = "2 columns of the name 'n'|has no columns|object with `__arrow_c_stream__`"
    with pytest.raises((InvalidArgumentError, TypeError, ValueError), match=text):
        Dataset.from_arrow(table)


def test_a_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    """Another content, and a file that is gone, are errors, never a mixture."""
    path = tmp_path / "a"
    dataset = Dataset.from_arrow(write(path, pa.table({"n": [1, 2, 3]})))
    write(path, pa.table({"n": [1, 5, 3]}))
    with pytest.raises(DataLossError, match=r"a was changed after this dataset was made"):
        list(dataset)
    with pytest.raises(DataLossError, match=r"was changed"):
        dataset.at(2)
    assert len(list(dataset.ignore_errors())) == 0
    path.unlink()
    with pytest.raises(PipelineError, match=r"No such file.*a'"):
        list(dataset)


@pytest.mark.parametrize("shuffled", [False, True])
def test_damaged_offsets_are_an_error(tmp_path: Path, shuffled: bool) -> None:
    """An offset beyond the texts of a batch is an error of its rows. Other batches
    follow.
    """
    path = tmp_path / "a"
    table = pa.table({"s": ["aaaa", "bbbb", "cccc", "dddd"]})
    content = Path(write(path, table, rows=2)).read_bytes()
    damaged = content.replace(
        np.array([0, 4, 8], np.int32).tobytes(), np.array([0, 4, 1 << 30], np.int32).tobytes(), 1
    )
    path.write_bytes(damaged)
    dataset = Dataset.from_arrow(path)
    if shuffled:
        dataset = dataset.shuffle(4, seed=1)
    with pytest.raises(DataLossError, match="The table is damaged"):
        list(dataset)
    kept = [row["s"] for row in dataset.ignore_errors()]
    assert sorted(kept) in (["cccc", "dddd"], ["aaaa", "cccc", "dddd"])


def damaged(path: Path, table: Any, old: list[int], new: list[int], kind: str = "i4") -> Dataset:
    """Return a dataset of a file in which numbers stand in the place of others."""
    content = Path(write(path, table)).read_bytes()
    assert np.array(old, kind).tobytes() in content
    path.write_bytes(content.replace(np.array(old, kind).tobytes(), np.array(new, kind).tobytes()))
    return Dataset.from_arrow(path)


@pytest.mark.parametrize("last", [8 << 27, -(1 << 29), 0])
def test_damaged_dictionaries_and_views_are_errors(tmp_path: Path, last: int) -> None:
    """Values of a dictionary, its indices and views that reach beyond the file are
    errors, before they are followed.
    """
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), ["aa", "bb"])
    views = pa.array(["a text that is longer than twelve"], pa.string_view())
    start = [33, *np.frombuffer(b"a te", "i4"), 0]
    for found in (
        damaged(tmp_path / "a", pa.table({"d": words}), [0, 2, 4], [0, 2, last or 1]),
        damaged(tmp_path / "b", pa.table({"d": words}), [0, 1, 0], [0, last or 2, 0]),
        damaged(tmp_path / "c", pa.table({"v": views}), [*start, 0], [*start, last or 34]),
    ):
        with pytest.raises(DataLossError, match="The table is damaged"):
            list(found)


def test_dictionaries_of_structs_are_read(tmp_path: Path) -> None:
    """Values that Arrow cannot unpack are no damage."""
    values = pa.array([{"x": 1}, {"x": 2}])
    table = pa.table({"d": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), values)})
    for source in table, write(tmp_path / "a", table, stream=True):
        assert [row["d"]["x"] for row in Dataset.from_arrow(source)] == [2, 1, 2]


def test_a_packed_batch_that_is_damaged_is_a_loss(tmp_path: Path) -> None:
    """An error of reading that Arrow reports without a number is damage."""
    path, table = tmp_path / "a", pa.table({"n": range(7), "s": ["a" * 500] * 7})
    content = Path(write(path, table, compression="zstd")).read_bytes()
    at = content.rindex(b"\x28\xb5\x2f\xfd")
    path.write_bytes(content[:at] + bytes(4) + content[at + 4 :])
    with pytest.raises(DataLossError, match="The table is damaged"):
        list(Dataset.from_arrow(path))


@pytest.mark.parametrize("size", [None, 2])
def test_a_file_that_is_written_while_it_is_read_is_noticed(
    tmp_path: Path, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another content in its place, nor a shorter one, is read after the rows
    before.
    """
    monkeypatch.setattr(arrow, "suitable_rows", lambda *_: 2)
    for path, cut in (tmp_path / "a", False), (tmp_path / "b", True):
        write(path, pa.table({"n": np.arange(5000)}))
        os.utime(path, (1, 1))
        iterator = iter(Dataset.from_arrow(path, batch_rows=size))
        next(iterator)
        if cut:
            os.truncate(path, 1000)
        else:
            other = Path(write(tmp_path / "other", pa.table({"n": np.arange(5000) + 7})))
            path.write_bytes(other.read_bytes())
        with pytest.raises(DataLossError, match="was changed after this dataset was made"):
            list(iterator)


def test_files_stay_mapped_while_descriptors_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in any order open each file once, unless descriptors are scarce or streams
    take memory.
    """
    opened: list[str] = []
    at = ArrowFile.at
    monkeypatch.setattr(arrow, "_FEW_OPEN", 2)
    for spare, stream, most in (0, False, 8), (1 << 60, False, 2), (0, True, 2):
        monkeypatch.setattr(arrow, "_SPARE", spare)
        paths = [write(tmp_path / f"{n}", pa.table({"n": [n] * 9}), stream) for n in range(8)]
        reader = Dataset.from_arrow(paths).node.sequence.open()  # type: ignore[attr-defined]
        opened.clear()
        monkeypatch.setattr(ArrowFile, "at", lambda path: opened.append(path) or at(path))
        for number in np.random.default_rng(1).permutation(72):
            assert int(reader.read(np.array([number]))["n"][0].as_py()) == number // 9
        assert len(reader._open) == most
        assert (len(opened) == 8) == (most == 8)
        monkeypatch.setattr(ArrowFile, "at", at)


def test_only_some_files_are_open_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of many files closes those that it has read."""
    monkeypatch.setattr(arrow, "_MOST_OPEN", 2)
    monkeypatch.setattr(arrow, "_FEW_OPEN", 1)
    paths = [write(tmp_path / f"{n}", pa.table({"n": [n]})) for n in range(5)]
    node = Dataset.from_arrow(paths).node
    iterator = make_iterator(node, provided([[(0, 5)]])())
    assert numbers(iterator) == [0, 1, 2, 3, 4]
    assert len(iterator._reader._open) <= 2  # type: ignore[attr-defined]  # of TableRowsIterator


def test_rows_that_fail_are_tried_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure, the rows that were read together are read one by one. No row is
    read a third time.
    """
    path = tmp_path / "one.arrow"
    with pa.ipc.new_file(path, pa.schema([("n", pa.int64())])) as writer:
        writer.write_table(pa.table({"n": [*range(2500)]}))
    dataset = Dataset.from_arrow(str(path))
    path.unlink()
    read: Counter[int] = Counter()
    original = arrow.TableReader.read

    def counted(reader: Any, numbers: Any) -> Any:
        read.update(numbers)
        return original(reader, numbers)

    monkeypatch.setattr(arrow.TableReader, "read", counted)
    assert list(dataset.ignore_errors()) == []
    assert set(read.values()) <= {1, 2}
    assert len(read) == 2500
