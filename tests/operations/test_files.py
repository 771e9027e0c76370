"""Tests of ``zmqdata.operations.files``."""

from __future__ import annotations

import bz2
import gc
import gzip
import lzma
import os
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from tests.iterators.checks import LedgerProvider, check_restore, plain, provided, run
from zmqdata.dataset import Dataset, TextLineDataset
from zmqdata.elements.specs import UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.errors import DataLossError, NoFilesMatchedError, PipelineError, UnimplementedError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.random_access import element_at
from zmqdata.nodes.base import Node
from zmqdata.operations.csvfiles import Csv, CsvColumn
from zmqdata.operations.files import (
    FixedLengthRecords,
    ListFiles,
    TextLines,
    TFRecords,
    open_binary,
)
from zmqdata.operations.sql import Sql
from zmqdata.splits import IndexSplits, Split
from zmqdata.storage.records import as_record

TEXTS = [b"a\nb\r\n\nlong line\n", b"", b"no newline at the end", b"x\ry\nz\n"]
STARTS = {
    "GZIP": gzip.compress(b"a"),
    "ZLIB": zlib.compress(b"a"),
    "ZSTD": zstandard.ZstdCompressor().compress(b"a"),
    "BZ2": bz2.compress(b"a"),
    "XZ": lzma.compress(b"a"),
}
LINES = [["a", "b", "", "long line"], [], ["no newline at the end"], ["x\ry", "z"]]


def written(folder: Path, texts: list[bytes], compression: str = "") -> tuple[str, ...]:
    packed = PACKERS[compression]
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_bytes(packed(text))
    return tuple(str(folder / f"{number}.txt") for number in range(len(texts)))


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB", "ZSTD"])
def test_lines_of_all_files_in_order(tmp_path: Path, compression: str) -> None:
    """Lines come without their line ends, from plain and compressed files, and can be
    restored inside a file.
    """
    node = TextLines(filenames=written(tmp_path, TEXTS, compression), compression_type=compression)
    assert check_restore(node) == [plain(line) for lines in LINES for line in lines]


def test_a_provider_hands_out_whole_files(tmp_path: Path) -> None:
    """Splits are indices of files. States hold the ledger's position and the place in
    the file.
    """
    node = TextLines(filenames=written(tmp_path, TEXTS))
    read = check_restore(node, provided([[(2, 4), (0, 1)]]))
    assert read == [plain(line) for number in (2, 3, 0) for line in LINES[number]]


def test_a_missing_file_fails_alone(tmp_path: Path) -> None:
    """A file that cannot be opened is a single failure that names it, and the others
    are read.
    """
    missing = str(tmp_path / "missing")
    node = TextLines(filenames=(missing, *written(tmp_path, [b"a\n"])))
    failure, line = check_restore(node)
    assert missing in failure[2]
    assert line == plain("a")


def test_a_line_that_is_no_text_fails_alone(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 fail their line only. The error and the quarantine name
    file and byte.
    """
    names = written(tmp_path, [b"a\n", b"a\n\xff\nb\n"])
    outcomes = check_restore(TextLines(filenames=names))
    assert [outcome[0] for outcome in outcomes] == ["str", "str", "raised", "str"]
    assert f"failed for {names[1]}, byte 2: UnicodeDecodeError" in outcomes[2][2]
    skipping = iter(TextLineDataset([*names], on_error="skip"))
    assert [*skipping] == ["a", "a", "b"]
    (left_out,) = skipping.quarantine
    assert left_out.error.startswith(f"{names[1]}, byte 2: UnicodeDecodeError: ")


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB", "ZSTD"])
@pytest.mark.parametrize("damage", [lambda packed: packed[:-9], lambda packed: b"rubbish" + packed])
def test_a_damaged_file_fails_alone(tmp_path: Path, compression: str, damage: object) -> None:
    """A truncated or corrupted compressed file is a failure, never a silently shorter
    dataset.
    """
    names = written(tmp_path, [b"line\n" * 1000, b"good\n"], compression)
    Path(names[0]).write_bytes(damage(Path(names[0]).read_bytes()))  # type: ignore[operator]
    read = run(TextLines(filenames=names, compression_type=compression), limit=2000)
    assert [outcome[0] for outcome in read if outcome != plain("line")] == ["raised", "str"]


@pytest.mark.parametrize("name", STARTS)
def test_a_packed_file_read_as_text_says_how(tmp_path: Path, name: str) -> None:
    """A packed file that is read as plain text is a single error, which names the
    compression to pass, and the next file is read.
    """
    names = written(tmp_path, [STARTS[name] + bytes(99), b"good\n", b"\xef\xbb\xbfBOM\n\n"])
    failure, *lines = check_restore(TextLines(filenames=names))
    remedy = "Unpack it first" if name in ("BZ2", "XZ") else f"compression_type='{name}'"
    assert f"{names[0]} begins as a file that is packed with {name}" in failure[2]
    assert remedy in failure[2]
    # As in tf.data, a byte order mark is a part of its line, and a blank line is one.
    assert lines == [*map(plain, ["good", "\ufeffBOM", ""])]


def test_records_may_begin_as_packed_files_do(tmp_path: Path) -> None:
    """Records are read if their checksums say that they are plain; otherwise the error
    says what to pass. Records of fixed length may begin with any bytes.
    """
    content = bytes(int.from_bytes(STARTS["GZIP"][:3], "little"))
    plain_names = written(tmp_path, [as_record(content)])
    assert run(TFRecords(filenames=plain_names)) == [plain(content)]
    (name,) = written(tmp_path, [as_record(b"abc")], "GZIP")
    assert "Pass compression_type='GZIP'" in run(TFRecords(filenames=(name,)))[0][2]
    for start in STARTS.values():
        (name,) = written(tmp_path, [start])
        node = FixedLengthRecords(filenames=(name,), record_bytes=len(start))
        assert run(node) == [plain(start)]


@pytest.mark.parametrize("line", ["P*M\x18 is text", "BZh91AY&SY is bzip2: \u00e9"])
def test_text_may_begin_as_packed_files_do(tmp_path: Path, line: str) -> None:
    """A file that is UTF-8 is text, also if packed files may begin with its bytes. The
    bytes that are looked at may end within a character.
    """
    content = line.encode()
    whole, cut = run(TextLines(filenames=written(tmp_path, [content, content[:-1]])))
    assert whole == plain(line)
    assert "is packed with" not in str(cut)


def test_a_zlib_stream_is_read_forward_only(tmp_path: Path) -> None:
    """A stream seeks forward by reading, and refuses to seek backward."""
    (name,) = written(tmp_path, [b"0123456789" * 20_000], "ZLIB")
    with open_binary(name, "ZLIB") as file:
        assert file.seek(150_003) == 150_003
        assert file.read(3) == b"345"
        with pytest.raises(OSError, match="read forward"):
            file.seek(5)


def test_files_close_with_their_iterator(tmp_path: Path) -> None:
    """No file stays open after close()."""
    for compression in ("", "GZIP", "ZLIB", "ZSTD"):
        names = written(tmp_path, [b"a\nb\n"], compression)
        iterator = make_iterator(
            TextLines(filenames=names, compression_type=compression), Context()
        )
        next(iterator)
        file = iterator._file  # type: ignore[attr-defined]
        iterator.close()
        iterator.close()
        assert file.closed


def names_of(folder: Path, shuffle: bool, context: Context, seed: int | None = None) -> list[str]:
    node = ListFiles(patterns=(f"{folder}/*.txt",), shuffle=shuffle, seed=seed)
    return [Path(name).stem for name in make_iterator(node, context)]


def test_files_come_sorted_or_in_an_order_of_the_repetition(tmp_path: Path) -> None:
    """Shuffled names are a function of seed and repetition; unshuffled ones are
    sorted.
    """
    written(tmp_path, [b""] * 8)
    assert names_of(tmp_path, False, Context(seed=1)) == [str(n) for n in range(8)]
    first = names_of(tmp_path, True, Context(seed=1))
    assert sorted(first) == [str(n) for n in range(8)]
    assert first == names_of(tmp_path, True, Context(seed=1))
    assert first != names_of(tmp_path, True, Context(seed=2))
    assert first != names_of(tmp_path, True, Context(seed=1, repetition=1))
    assert first != names_of(tmp_path, True, Context(seed=1, iteration=1))


def test_a_fixed_seed_decides_alone(tmp_path: Path) -> None:
    """The order under a user's seed does not depend on the seed of the context."""
    written(tmp_path, [b""] * 8)
    orders = {tuple(names_of(tmp_path, True, Context(seed=seed), seed=5)) for seed in range(3)}
    assert len(orders) == 1


def test_list_files_restores_at_every_step(tmp_path: Path) -> None:
    """A restored iterator lists the files again and continues after the state."""
    written(tmp_path, [b""] * 5)
    assert len(check_restore(ListFiles(patterns=(f"{tmp_path}/*",), shuffle=True))) == 5


def test_a_provider_names_the_files() -> None:
    """A provider's splits name the files, and the worker lists none."""

    def context() -> Context:
        splits = [Split(0, 3, 5, ("/d", "/e")), Split(0, 0, 1, ("/a",))]
        return Context(providers=(LedgerProvider([splits]),))

    node = ListFiles(patterns=("/nowhere/*",), shuffle=True)
    assert check_restore(node, context) == [plain("/d"), plain("/e"), plain("/a")]


def test_files_that_are_gone_are_an_error(tmp_path: Path) -> None:
    """If no file matches any more, the iterator raises an error instead of ending
    quietly.
    """
    node = ListFiles(patterns=(f"{tmp_path}/*",), shuffle=False)
    with pytest.raises(NoFilesMatchedError, match="no file matches"):
        next(make_iterator(node, Context()))


def test_failures_name_the_node(tmp_path: Path) -> None:
    """The failure of a file is a PipelineError of the node that reads it."""
    node = TextLines(filenames=(str(tmp_path / "gone"),), site="a.py:1")
    with pytest.raises(
        PipelineError, match=r"TextLineDataset\(.*\) at a.py:1 failed: FileNotFoundError"
    ):
        next(make_iterator(node, Context()))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["read", "cached", "snapshot", "loaded"])
def test_an_abandoned_iterator_closes_its_files(tmp_path: Path, kind: str) -> None:
    """An iterator that is dropped in the middle of its files closes them, so that
    Python does not warn about them.
    """
    name = str(tmp_path / "a")
    Path(name).write_text("1\n2\n")
    lines = TextLineDataset(name)
    if kind == "loaded":
        lines.save(tmp_path / "saved")
    dataset = {
        "read": lambda: lines,
        "cached": lambda: lines.cache(tmp_path / "cache"),
        "snapshot": lambda: lines.snapshot(tmp_path / "snapshot"),
        "loaded": lambda: Dataset.load(tmp_path / "saved"),
    }[kind]()
    for _ in dataset:
        break
    gc.collect()  # a warning of a finalizer would fail the test


def test_names_that_are_not_utf8_keep_their_order(tmp_path: Path) -> None:
    """Such names are listed as the file system has them, and ``at`` agrees with the
    order.
    """
    expected = {str(tmp_path / os.fsdecode(name)) for name in (b"\xff", b"a", b"\xe9", b"\xc3\xa4")}
    for name in expected:
        Path(name).touch()
    node = ListFiles(patterns=(f"{tmp_path}/*",), shuffle=False)
    listed = list(make_iterator(node, Context()))
    assert set(listed) == expected
    assert [element_at(node, index) for index in range(4)] == listed
    assert len(check_restore(node)) == 4


PACKERS: dict[str, Any] = {
    "": bytes,
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
    "ZSTD": zstandard.ZstdCompressor().compress,
}
RECORDS = [[b"a", b"", b"long" * 50], [], [b"b"], [b"c", b"d"]]


def record_files(folder: Path, compression: str = "") -> tuple[str, ...]:
    return written_of_records(
        folder, [b"".join(map(as_record, records)) for records in RECORDS], compression
    )


def written_of_records(
    folder: Path, contents: list[bytes], compression: str = ""
) -> tuple[str, ...]:
    names = []
    for number, content in enumerate(contents):
        (folder / str(number)).write_bytes(PACKERS[compression](content))
        names.append(str(folder / str(number)))
    return tuple(names)


@pytest.mark.parametrize("compression", PACKERS)
def test_records_of_all_files_in_order(tmp_path: Path, compression: str) -> None:
    """Records come from plain and compressed files, and can be restored inside a
    file.
    """
    node = TFRecords(
        filenames=record_files(tmp_path, compression), compression_type=compression, buffer_size=9
    )
    assert check_restore(node) == [plain(record) for records in RECORDS for record in records]


def test_a_provider_hands_out_whole_files_of_records(tmp_path: Path) -> None:
    """Splits are indices of files."""
    node = TFRecords(filenames=record_files(tmp_path))
    assert check_restore(node, provided([[(3, 4), (0, 2)]])) == [
        plain(x) for i in (3, 0) for x in RECORDS[i]
    ]


@pytest.mark.parametrize("compression", PACKERS)
def test_damage_is_one_failure_and_the_next_file_follows(tmp_path: Path, compression: str) -> None:
    """A damaged file yields a single DataLossError with its name and place, and the
    next file follows.
    """
    content = b"".join(map(as_record, [b"abc", b"defg", b"h"]))
    damaged = content.replace(b"defg", b"deFg")
    names = written_of_records(tmp_path, [damaged, content[:-1], content], compression)
    outcomes = check_restore(TFRecords(filenames=names, compression_type=compression))
    assert [outcome[:2] if outcome[0] == "raised" else outcome[1] for outcome in outcomes] == [
        b"abc",
        ("raised", "DataLossError"),
        b"abc",
        b"defg",
        ("raised", "DataLossError"),
        b"abc",
        b"defg",
        b"h",
    ]
    assert f"{names[0]} is damaged at byte 19" in outcomes[1][2]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB", "ZSTD"])
def test_what_is_not_compressed_is_damage(tmp_path: Path, compression: str) -> None:
    """A plain file read as a compressed file is a failure, for records of each kind."""
    names = written_of_records(tmp_path, [as_record(b"abc")])
    records = TFRecords(filenames=names, compression_type=compression)
    pieces = FixedLengthRecords(filenames=names, record_bytes=1, compression_type=compression)
    headed = FixedLengthRecords(
        filenames=names, record_bytes=1, header_bytes=1, compression_type=compression
    )
    for node in (records, pieces, headed):
        assert [outcome[0] for outcome in run(node)] == ["raised"]


def test_a_missing_file_fails_alone_of_records(tmp_path: Path) -> None:
    """A missing file is a single failure."""
    names = (str(tmp_path / "missing"), *written_of_records(tmp_path, [as_record(b"a")]))
    assert [outcome[0] for outcome in check_restore(TFRecords(filenames=names))] == [
        "raised",
        "bytes",
    ]


@pytest.mark.parametrize("compression", PACKERS)
@pytest.mark.parametrize(("header", "footer"), [(0, 0), (2, 0), (0, 3), (2, 3)])
def test_pieces_between_header_and_footer(
    tmp_path: Path, compression: str, header: int, footer: int
) -> None:
    """Records of equal length lie between header and footer, and each can be
    restored.
    """
    contents = [b"H" * header + middle + b"F" * footer for middle in (b"aabbcc", b"", b"dd")]
    node = FixedLengthRecords(
        filenames=written_of_records(tmp_path, contents, compression),
        compression_type=compression,
        record_bytes=2,
        header_bytes=header,
        footer_bytes=footer,
    )
    assert check_restore(node) == [plain(piece) for piece in (b"aa", b"bb", b"cc", b"dd")]


def test_splits_of_pieces_are_files(tmp_path: Path) -> None:
    """A provider assigns whole files of fixed-length records, too."""
    node = FixedLengthRecords(
        filenames=written_of_records(tmp_path, [b"aabb", b"cc"]), record_bytes=2
    )
    assert check_restore(node, provided([[(1, 2), (0, 1)]])) == [
        plain(piece) for piece in (b"cc", b"aa", b"bb")
    ]


@pytest.mark.parametrize("compression", PACKERS)
def test_excess_bytes_are_data_loss(tmp_path: Path, compression: str) -> None:
    """A file whose length is not a multiple of the record length is damaged, and the
    next file is read.
    """
    names = written_of_records(tmp_path, [b"HaabF", b"HccF"], compression)
    node = FixedLengthRecords(
        filenames=names,
        compression_type=compression,
        record_bytes=2,
        header_bytes=1,
        footer_bytes=1,
    )
    outcomes = check_restore(node)
    failed = [outcome for outcome in outcomes if outcome[0] == "raised"]
    assert len(failed) == 1
    assert failed[0][1] == "DataLossError"
    text = "Excess bytes" if compression else "a body length of 3 bytes"
    assert text in failed[0][2]
    assert outcomes[-1] == plain(b"cc")


@pytest.mark.parametrize("compression", PACKERS)
def test_a_file_shorter_than_its_header_is_data_loss(tmp_path: Path, compression: str) -> None:
    """A file shorter than header and footer is damaged, and the next file is read."""
    node = FixedLengthRecords(
        filenames=written_of_records(tmp_path, [b"ab", b"", b"HHHa"], compression),
        compression_type=compression,
        record_bytes=1,
        header_bytes=3,
    )
    outcomes = check_restore(node)
    assert [outcome[1] for outcome in outcomes[:2]] == ["DataLossError"] * 2
    assert outcomes[2:] == [plain(b"a")]


def test_a_file_that_shrinks_is_data_loss(tmp_path: Path) -> None:
    """A file that becomes shorter while it is read is damaged, not at its end."""
    names = written_of_records(tmp_path, [b"aabbccdd"])
    iterator = make_iterator(
        FixedLengthRecords(filenames=names, record_bytes=2, buffer_size=2), Context()
    )
    assert next(iterator) == b"aa"
    Path(names[0]).write_bytes(b"aa")
    with pytest.raises(Exception, match="became shorter"):
        list(iterator)
    iterator.close()


def with_state(tmp_path: Path, kind: str, compression: str) -> tuple[Node, Path, Any]:
    """Return a source of 100 elements, its file, and its state after 50 of them."""
    parts = [b"%07d" % number for number in range(100)]
    records = {TFRecords: b"".join(map(as_record, parts)), FixedLengthRecords: b"".join(parts)}
    node: Node = {
        "text": TextLines,
        "csv": partial(Csv, columns=(CsvColumn(number=0, dtype=np.dtype(int)),), width=1),
        "records": TFRecords,
        "pieces": partial(FixedLengthRecords, record_bytes=7),
    }[kind](filenames=(str(tmp_path / "0.txt"),), compression_type=compression)
    written(tmp_path, [records.get(type(node), b"\n".join(parts))], compression)
    iterator = make_iterator(node, Context())
    for _ in range(50):
        next(iterator)
    state = iterator.state()
    iterator.close()
    return node, tmp_path / "0.txt", state


@pytest.mark.parametrize("compression", ["", "GZIP", "ZSTD"])
@pytest.mark.parametrize("kind", ["text", "csv", "records", "pieces"])
@pytest.mark.parametrize("is_other", [False, True])
def test_a_file_that_became_shorter_is_not_continued(
    tmp_path: Path, kind: str, compression: str, is_other: bool
) -> None:
    """A file that was cut off, or replaced by a shorter file, is data loss that names
    the file and the byte, not its end.
    """
    node, path, state = with_state(tmp_path, kind, compression)
    content = PACKERS[compression](b"1234567") if is_other else path.read_bytes()[:-7]
    path.write_bytes(content)
    iterator = make_iterator(node, Context())
    place = (
        rf"{path} is damaged at byte {state[1]}: it has {len(content)} bytes, expected \d+ or more"
    )
    with pytest.raises(DataLossError, match=place):
        iterator.restore(state)


@pytest.mark.parametrize("kind", ["text", "csv", "records", "pieces"])
def test_a_packed_file_that_ends_before_a_state_is_not_continued(tmp_path: Path, kind: str) -> None:
    """A packed file may be longer and have less content: that is data loss, too."""
    node, path, state = with_state(tmp_path, kind, "GZIP")
    path.write_bytes(gzip.compress(b"1234567") + bytes(path.stat().st_size))
    iterator = make_iterator(node, Context())
    with pytest.raises(
        DataLossError, match=rf"damaged at byte {state[1]}: its content ends at byte 7"
    ):
        iterator.restore(state)


def test_a_file_that_grew_while_it_was_read_is_continued(tmp_path: Path) -> None:
    """Lines that were added are read, also after a resume, and noticed if they are
    gone then.
    """
    (name,) = written(tmp_path, [b"a\n"])
    node = TextLines(filenames=(name,))
    iterator = make_iterator(node, Context())
    assert next(iterator) == "a"
    Path(name).write_bytes(b"a\nb\nc\n")
    assert next(iterator) == "b"
    state = iterator.state()
    resumed = make_iterator(node, Context())
    resumed.restore(state)
    assert next(resumed) == "c"
    Path(name).write_bytes(b"a\n\n")
    lost = make_iterator(node, Context())
    with pytest.raises(DataLossError, match="at byte 4: it has 3 bytes, expected 4 or"):
        lost.restore(state)
    for each in (iterator, resumed):
        each.close()


TWO = ("/a", "/b")


def infer(node: Node) -> object:
    return node.spec(infer)


def test_record_files_are_split_by_file() -> None:
    """Records are bytes, their number is not known, and each file is a split."""
    records, pieces = (
        TFRecords(filenames=TWO),
        FixedLengthRecords(filenames=TWO[:1], record_bytes=3),
    )
    assert (records.label, pieces.label) == (
        "TFRecordDataset('/a', ...)",
        "FixedLengthRecordDataset('/a')",
    )
    assert (records.split_source, pieces.split_source) == (IndexSplits(2), IndexSplits(1))
    assert infer(records) == infer(pieces) == TensorSpec((), np.bytes_)
    assert records.cardinality == UNKNOWN_CARDINALITY


def test_tables_are_read_as_a_whole() -> None:
    """Rows of CSV and SQL are tuples. Neither can be split, and the error uses the name
    in tf.data.
    """
    column = CsvColumn(number=0, dtype=np.dtype("int8"), default=1)
    csv = Csv(filenames=TWO, columns=(column,), width=1)
    sql = Sql(
        driver_name="sqlite",
        data_source_name="/a",
        query="SELECT 1",
        output_types=(np.dtype("int8"),),
    )
    assert (csv.label, sql.label) == ("CsvDataset('/a', ...)", "SqlDataset('SELECT 1')")
    assert infer(csv) == infer(sql) == (TensorSpec((), np.int8),)
    for node, name in ((csv, "CsvDataset"), (sql, "SqlDataset")):
        with pytest.raises(
            UnimplementedError, match=f"Cannot create split providers for dataset of type {name}"
        ):
            _ = node.split_source
