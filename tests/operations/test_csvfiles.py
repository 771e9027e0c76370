"""Tests of ``zmqdata.operations.csvfiles``."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, plain, run
from zmqdata.errors import InvalidArgumentError
from zmqdata.operations.csvfiles import Csv, CsvColumn, converter, split_fields

PACKERS: dict[str, Any] = {
    "": bytes,
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
    "ZSTD": zstandard.ZstdCompressor().compress,
}
INT = np.dtype("int64")
STR = np.dtype(str)
TEXT = CsvColumn(number=0, dtype=STR, default="none")
NUMBER = CsvColumn(number=1, dtype=INT, required=True)


def csv_node(folder: Path, contents: list[bytes], **parameters: Any) -> Csv:
    pack = PACKERS[parameters.get("compression_type", "")]
    for number, content in enumerate(contents):
        (folder / f"{number}.csv").write_bytes(pack(content))
    names = tuple(str(folder / f"{number}.csv") for number in range(len(contents)))
    return Csv(**{"filenames": names, "columns": (TEXT, NUMBER), "width": 2, **parameters})


@pytest.mark.parametrize("compression", PACKERS)
def test_rows_of_all_files_in_order(tmp_path: Path, compression: str) -> None:
    """Rows come from plain and compressed files without headers. Quoted fields may hold
    delimiters and line ends.
    """
    contents = [b'a,"b\nc"\nx,1\r\n"y, ""z""\nw",2\n', b"h,i\n,3", b"h,i\n"]
    node = csv_node(tmp_path, contents, compression_type=compression, header=True)
    rows = [("x", np.int64(1)), ('y, "z"\nw', np.int64(2)), ("none", np.int64(3))]
    assert check_restore(node) == list(map(plain, rows))


@pytest.mark.parametrize("compression", PACKERS)
def test_rows_end_with_any_line_end(tmp_path: Path, compression: str) -> None:
    """A lone CR ends a row as LF and CR LF do, also behind a header, and a quoted field
    keeps it.
    """
    content = b'a,b\rx,1\r"y\rz",2\n\xc3\xa4,3\r\n"",4\r,5'
    node = csv_node(tmp_path, [content, b"a,b\r"], compression_type=compression, header=True)
    texts = ["x", "y\rz", "ä", "none", "none"]
    rows = [plain((text, np.int64(place + 1))) for place, text in enumerate(texts)]
    assert check_restore(node) == rows


def test_a_file_of_long_rows_is_read_in_pieces(tmp_path: Path) -> None:
    """A CR at the end of a piece that is read belongs to the LF of the next piece."""
    lengths = [8189, 8190, 8191, 65534]
    content = b"".join(b"a" * length + b",1\r\n" for length in lengths)
    rows = run(csv_node(tmp_path, [content]))
    assert [len(row[1][1]) for row in rows] == lengths


def test_a_file_without_its_header_fails_alone(tmp_path: Path) -> None:
    """An empty file where a header is expected is a single failure, as in tf.data, and
    the next file follows.
    """
    outcomes = check_restore(csv_node(tmp_path, [b"", b"a,b\nx,1\n"], header=True))
    assert "Can't read header of file" in outcomes[0][2]
    assert outcomes[1:] == [plain(("x", np.int64(1)))]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (b"a", "Expect 2 fields but have 1 in record"),
        (b"", "Expect 2 fields but have 1 in record"),
        (b"a,1,2", "Expect 2 fields but have more in record, which has 3"),
        (b"a,", "Field 1 is required but missing in record!"),
        (b"a,one", "Field 1 in record is not a valid int64: one"),
        (b"a,1_0", "Field 1 in record is not a valid int64"),
        ("a,\u0663".encode(), "Field 1 in record is not a valid int64"),
        (b'a"b,1', "Unquoted fields cannot have quotes inside"),
        (b'"a"b",1', "Quote inside a string has to be escaped"),
        (b'"a",b",1', "Unquoted fields cannot have quotes inside"),
        (b"\xff,1", "UnicodeDecodeError"),
    ],
)
def test_a_bad_row_fails_alone(tmp_path: Path, row: bytes, text: str) -> None:
    """The error names the fault of the row and its place, and the next row follows."""
    first, *outcomes = check_restore(csv_node(tmp_path, [b"a,1\n", b"a,1\n" + row + b"\nb,2\n"]))
    assert outcomes[1][0] == "raised"
    assert text in outcomes[1][2]
    assert re.search(r"failed for \S*/1\.\w+, byte 4: ", outcomes[1][2])
    assert [first, outcomes[0], outcomes[2]] == [
        plain(("a", np.int64(1))),
        plain(("a", np.int64(1))),
        plain(("b", np.int64(2))),
    ]


def test_a_quoted_field_without_end_is_a_failure(tmp_path: Path) -> None:
    """An unclosed quote consumes the rest of the file, and the error says so."""
    (outcome,) = check_restore(csv_node(tmp_path, [b'"a,1\nb,2\n']))
    assert "without closing quoted field in record" in outcome[2]


def test_chosen_and_excluded_columns(tmp_path: Path) -> None:
    """select_cols reads columns by number, regardless of others; exclude_cols skips
    columns.
    """
    columns = (
        CsvColumn(number=1, dtype=STR, default=""),
        CsvColumn(number=3, dtype=STR, default=""),
    )
    selected = csv_node(tmp_path, [b"a,b,c,d,e\na,b,c\n"], columns=columns, width=None)
    first, second = check_restore(selected)
    assert first == plain(("b", "d"))
    assert "Expect 2 fields but have 1 in record, which has 3" in second[2]
    columns = (
        CsvColumn(number=0, dtype=STR, default=""),
        CsvColumn(number=1, dtype=STR, default=""),
    )
    excluded = csv_node(
        tmp_path, [b"a,b,c,d\n"], columns=columns, width=2, excluded=frozenset((0, 3))
    )
    assert check_restore(excluded) == [plain(("b", "c"))]


def test_other_delimiters_and_missing_values(tmp_path: Path) -> None:
    """Any character may separate fields, quotes may be ordinary characters, and a text
    may denote a missing value.
    """
    node = csv_node(
        tmp_path, [b'NA;1\n"x";2\n'], field_delim=";", use_quote_delim=False, na_value="NA"
    )
    assert check_restore(node) == [plain(("none", np.int64(1))), plain(('"x"', np.int64(2)))]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB", "ZSTD"])
@pytest.mark.parametrize("header", [False, True])
def test_a_damaged_file_fails_alone(tmp_path: Path, compression: str, header: bool) -> None:
    """A file that cannot be decompressed is a single failure, and the next file is
    read.
    """
    node = csv_node(tmp_path, [b"", b"a,0\nb,1\n"], compression_type=compression, header=header)
    Path(node.filenames[0]).write_bytes(b"rubbish")
    outcomes = check_restore(node)
    assert outcomes[0][0] == "raised"
    assert outcomes[-1] == plain(("b", np.int64(1)))


def test_a_missing_file_fails_alone(tmp_path: Path) -> None:
    """A missing file is a single failure."""
    node = csv_node(tmp_path, [b"a,1\n"])
    Path(node.filenames[0]).unlink()
    assert [outcome[0] for outcome in run(node)] == ["raised"]


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"])), min_size=1
    )
)
def test_fields_are_those_that_the_csv_module_wrote(fields: list[str]) -> None:
    """A row that the csv module wrote is split into the same fields."""
    row = io.StringIO()
    quoting = csv.QUOTE_ALL if len(fields) == 1 else csv.QUOTE_MINIMAL
    csv.writer(row, lineterminator="", quoting=quoting).writerow(fields)
    assert split_fields(row.getvalue()) == fields


@pytest.mark.parametrize(
    ("dtype", "field", "value"),
    [
        ("int8", "-128", np.int8(-128)),
        ("uint8", "255", np.uint8(255)),
        ("float32", " 1.5 ", np.float32(1.5)),
        ("float64", "nan", np.float64("nan")),
        ("float64", "-0x1.8p3", np.float64(-12)),
        ("S", "ä", "ä".encode()),
    ],
)
def test_fields_get_the_dtype_of_their_column(dtype: str, field: str, value: Any) -> None:
    """Numbers become numpy scalars of the dtype, bytes are UTF-8."""
    found = converter(CsvColumn(number=0, dtype=np.dtype(dtype)))(field)
    assert type(found) is type(value)
    assert found == value or found != found


def test_numbers_out_of_range_are_refused() -> None:
    """A number that the dtype cannot hold is not valid."""
    for field in ("-129", "128", "1.0"):
        with pytest.raises(InvalidArgumentError, match="not a valid int8"):
            converter(CsvColumn(number=0, dtype=np.dtype("int8")))(field)
