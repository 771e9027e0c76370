"""Tests of ``zmqdata.iterators.records``."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.iterators.checks import check_restore, plain, provided, run
from zmqdata.iterators import Context, make_iterator
from zmqdata.nodes.records import FixedLengthRecords, TFRecords
from zmqdata.storage.records import as_record

PACKERS: dict[str, Any] = {"": bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}
RECORDS = [[b"a", b"", b"long" * 50], [], [b"b"], [b"c", b"d"]]


def record_files(folder: Path, compression: str = "") -> tuple[str, ...]:
    return written(folder, [b"".join(map(as_record, records)) for records in RECORDS], compression)


def written(folder: Path, contents: list[bytes], compression: str = "") -> tuple[str, ...]:
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


def test_a_provider_hands_out_whole_files(tmp_path: Path) -> None:
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
    names = written(tmp_path, [damaged, content[:-1], content], compression)
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


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_what_is_not_compressed_is_damage(tmp_path: Path, compression: str) -> None:
    """A plain file read as a compressed file is a failure, for records of each kind."""
    names = written(tmp_path, [as_record(b"abc")])
    records = TFRecords(filenames=names, compression_type=compression)
    pieces = FixedLengthRecords(filenames=names, record_bytes=1, compression_type=compression)
    headed = FixedLengthRecords(
        filenames=names, record_bytes=1, header_bytes=1, compression_type=compression
    )
    for node in (records, pieces, headed):
        assert [outcome[0] for outcome in run(node)] == ["raised"]


def test_a_missing_file_fails_alone(tmp_path: Path) -> None:
    """A missing file is a single failure."""
    names = (str(tmp_path / "missing"), *written(tmp_path, [as_record(b"a")]))
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
        filenames=written(tmp_path, contents, compression),
        compression_type=compression,
        record_bytes=2,
        header_bytes=header,
        footer_bytes=footer,
    )
    assert check_restore(node) == [plain(piece) for piece in (b"aa", b"bb", b"cc", b"dd")]


def test_splits_of_pieces_are_files(tmp_path: Path) -> None:
    """A provider assigns whole files of fixed-length records, too."""
    node = FixedLengthRecords(filenames=written(tmp_path, [b"aabb", b"cc"]), record_bytes=2)
    assert check_restore(node, provided([[(1, 2), (0, 1)]])) == [
        plain(piece) for piece in (b"cc", b"aa", b"bb")
    ]


@pytest.mark.parametrize("compression", PACKERS)
def test_excess_bytes_are_data_loss(tmp_path: Path, compression: str) -> None:
    """A file whose length is not a multiple of the record length is damaged, and the
    next file is read.
    """
    names = written(tmp_path, [b"HaabF", b"HccF"], compression)
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
        filenames=written(tmp_path, [b"ab", b"", b"HHHa"], compression),
        compression_type=compression,
        record_bytes=1,
        header_bytes=3,
    )
    outcomes = check_restore(node)
    assert [outcome[1] for outcome in outcomes[:2]] == ["DataLossError"] * 2
    assert outcomes[2:] == [plain(b"a")]


def test_a_file_that_shrinks_is_data_loss(tmp_path: Path) -> None:
    """A file that becomes shorter while it is read is damaged, not at its end."""
    names = written(tmp_path, [b"aabbccdd"])
    iterator = make_iterator(
        FixedLengthRecords(filenames=names, record_bytes=2, buffer_size=2), Context()
    )
    assert next(iterator) == b"aa"
    Path(names[0]).write_bytes(b"aa")
    with pytest.raises(Exception, match="became shorter"):
        list(iterator)
    iterator.close()
