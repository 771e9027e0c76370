"""Tests of ``zmqdata.storage.parquet``."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from zmqdata.errors import DataLossError, InvalidArgumentError
from zmqdata.storage.parquet import (
    Footer,
    GroupTable,
    KeptFooters,
    TablePlan,
    check_schema,
    read_footer,
    read_group,
    shared_schema,
)
from zmqdata.storage.reading import Identity

NUMBERS = pa.table({"n": pa.array(range(100), pa.int32()), "s": [f"{i:09}" for i in range(100)]})


class Counting(io.BytesIO):
    """File that notes the ranges that are read."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.ranges: list[tuple[int, int]] = []

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        content = super().read(size)
        self.ranges.append((start, start + len(content)))
        return content


def written(table: Any = NUMBERS, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **{"row_group_size": 25, **options})
    return file.getvalue()


def footer_of(content: bytes) -> Footer:
    return read_footer(io.BytesIO(content), "f")


def batches(content: bytes, group: int, schema: Any, rows: int = 10) -> Iterator[Any]:
    return read_group(io.BytesIO(content), "f", footer_of(content), group, schema, rows)


def test_a_footer_takes_one_request_and_a_large_one_two() -> None:
    """The end of a file is read at once, and again if the footer is longer."""
    small = Counting(written())
    assert read_footer(small, "f").metadata.num_row_groups == 4
    assert len(small.ranges) == 1
    wide = Counting(written(pa.table({f"column {i:050}": [1, 2] for i in range(600)})))
    assert read_footer(wide, "f").metadata.num_columns == 600
    assert len(wide.ranges) == 2


def test_only_the_pages_of_the_columns_are_read() -> None:
    """A row group of one column is read with one request, of neighbours with one, and
    of columns that lie far apart with one each.
    """
    wide = pa.table(
        {
            "a": np.arange(10),
            "gap": [np.random.default_rng(i).bytes(1 << 18) for i in range(10)],
            "b": np.arange(10),
        }
    )
    content = written(wide)
    footer = footer_of(content)
    for names, requests in (["a"], 1), (["a", "b"], 2), (["a", "gap", "b"], 1):
        file = Counting(content)
        schema = shared_schema([("f", footer.schema)], names, False)
        (batch,) = read_group(file, "f", footer, 0, schema, 10)
        assert batch.schema.names == names
        assert len(file.ranges) == requests
        read = sum(stop - start for start, stop in file.ranges)
        assert read <= 1.1 * footer.packed_sizes(names)[0]


def test_rows_are_decoded_a_few_at_a_time() -> None:
    """A row group comes in batches of the wanted schema; absent columns are null."""
    content = written()
    schema = pa.schema([("s", pa.large_string()), ("n", pa.float64()), ("x", pa.int8())])
    found = list(batches(content, 1, schema))
    assert [len(batch) for batch in found] == [10, 10, 5]
    assert found[0].schema == schema
    assert found[2].to_pylist()[4] == {"s": "000000049", "n": 49.0, "x": None}
    assert [len(batch) for batch in batches(content, 1, pa.schema([("x", pa.int8())]))] == [
        10,
        10,
        5,
    ]


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        (b"", DataLossError, "f is empty"),
        (b"PAR1", DataLossError, "no footer at its end, byte 4"),
        (written()[:-20], DataLossError, "It was cut off, or is being written"),
        (b"n,s\n" * 100, InvalidArgumentError, "f is not a Parquet file"),
        (b"PAR1" + b"\xff" * 4 + b"PAR1", DataLossError, "states a footer of 4294967303 bytes"),
        (written()[:-4] + b"PARE", InvalidArgumentError, "encrypted"),
        (written()[:-300] + b"x" * 292 + written()[-8:], DataLossError, "damaged footer"),
    ],
)
def test_other_files_are_refused(content: bytes, error: type[Exception], text: str) -> None:
    """A file without a readable footer is an error that names it, and what it is."""
    with pytest.raises(error, match=text):
        footer_of(content)


def test_damaged_pages_are_noticed() -> None:
    """A flipped byte in a page with a checksum, and a file that ends early, are
    errors.
    """
    content = bytearray(written(write_page_checksum=True, compression="none", use_dictionary=False))
    schema = footer_of(bytes(content)).schema
    start, stop = footer_of(bytes(content)).spans(1, {"n"})[0]
    content[stop - 3] ^= 1
    with pytest.raises(OSError, match="CRC checksum"):
        list(batches(bytes(content), 1, schema))
    assert len(list(batches(bytes(content), 0, schema))) == 3
    footer = footer_of(bytes(content))
    with pytest.raises(DataLossError, match=f"f ends at byte {start + 5}"):
        list(read_group(io.BytesIO(content[: start + 5]), "f", footer, 1, schema, 10))


def schema_of(**columns: Any) -> Any:
    return pa.schema([*columns.items()])


def test_files_share_a_schema_whatever_their_order() -> None:
    """Columns may stand in another order and be of other widths; null takes any
    type.
    """
    files = [
        ("1", schema_of(n=pa.int8(), s=pa.null())),
        ("2", schema_of(s=pa.string(), n=pa.int32())),
        ("3", schema_of(n=pa.int16(), s=pa.large_string())),
    ]
    assert shared_schema(files, None, False) == schema_of(n=pa.int32(), s=pa.large_string())
    turned = shared_schema(files[::-1], ["n", "s"], False)
    assert turned == schema_of(n=pa.int32(), s=pa.large_string())
    union = shared_schema([*files, ("4", schema_of(x=pa.bool_()))], None, True)
    assert union == schema_of(n=pa.int32(), s=pa.large_string(), x=pa.bool_())


@pytest.mark.parametrize(
    ("other", "columns", "text"),
    [
        (schema_of(n=pa.string()), None, "'n' has the type int64 in one and string in two"),
        (schema_of(m=pa.int64()), None, "two lacks the column 'n'"),
        (schema_of(n=pa.int64(), m=pa.int64()), None, "two has the column 'm' of type int64"),
        (pa.schema([("n", pa.int64())] * 2), None, "two has 2 columns of the name 'n'"),
        (schema_of(x=pa.int64()), ["x"], "one lacks the column 'x'"),
    ],
)
def test_files_that_differ_are_refused(other: Any, columns: Any, text: str) -> None:
    """Other columns and types are an error that names file, column and types."""
    with pytest.raises(InvalidArgumentError, match=text):
        shared_schema([("one", schema_of(n=pa.int64())), ("two", other)], columns, False)


def test_an_unknown_column_is_refused_in_a_union_too() -> None:
    """A column that no file has is an error, and one that some files have is not."""
    files = [("one", schema_of(n=pa.int64())), ("two", schema_of(m=pa.int64()))]
    assert shared_schema(files, ["m"], True) == schema_of(m=pa.int64())
    with pytest.raises(InvalidArgumentError, match="No file has a column 'x'"):
        shared_schema(files, ["x"], True)


def test_a_later_file_fits_a_schema_or_not() -> None:
    """A file may have narrower types than the schema, and no wider ones."""
    wanted = schema_of(n=pa.int32())
    check_schema("f", schema_of(x=pa.bool_(), n=pa.int8()), wanted, False)
    with pytest.raises(InvalidArgumentError, match="f has the column 'x' of type bool"):
        check_schema("f", schema_of(x=pa.bool_(), n=pa.int8()), wanted, True)
    with pytest.raises(InvalidArgumentError, match="'n' of f has the type int64, wider than int32"):
        check_schema("f", schema_of(n=pa.int64()), wanted, True)
    with pytest.raises(InvalidArgumentError, match="f lacks the column 'n'"):
        check_schema("f", schema_of(x=pa.int64()), wanted, False)


def plan(filters: Any = None, columns: Any = None, *more: bytes) -> TablePlan:
    contents = [written(), *more]
    names = [f"file {number}" for number in range(len(contents))]
    return TablePlan(names, list(map(footer_of, contents)), columns, filters, False)


def test_row_groups_are_left_out_by_their_statistics() -> None:
    """The table has the row groups that may have such rows, in whatever form the
    condition comes, and the schema has the columns that it needs.
    """
    for filters in [("n", ">=", 60)], [[("n", ">", 80)], [("n", "==", 60)]], pc.field("n") >= 60:
        made = plan(filters, ["s"])
        assert made.table().groups.tolist() == [2, 3]
        assert (made.columns, made.schema.names) == (("s",), ["s", "n"])
    assert len(plan([("n", "<", 0)]).table().groups) == 0
    assert plan(pc.field("s") == "000000003", ["n"]).schema.names == ["n", "s"]


@pytest.mark.parametrize("filters", [[("x", "==", 1)], [("s", ">", 3)], "n > 3", [("n", "~", 1)]])
def test_conditions_that_do_not_fit_are_refused(filters: Any) -> None:
    """A condition on an absent column, of another type or form is an error."""
    with pytest.raises(InvalidArgumentError, match="`filters`"):
        plan(filters)


def test_the_table_of_row_groups_is_small() -> None:
    """A row group takes at most 12 bytes, and a row group without rows is no split."""
    table = GroupTable.of([(1, [(0, 2**33), (70000, 5)]), (2, [])])
    assert table.groups.itemsize + table.rows.itemsize <= 12
    assert table.ends.tolist() == [2, 2]
    empty = written(NUMBERS.slice(0, 0))
    assert plan(None, None, empty).table().counts.tolist() == [4, 0]


def test_the_largest_row_group_is_known() -> None:
    """The packed size of the chosen columns in the largest row group comes with its
    place.
    """
    large = written(
        pa.table({"n": np.arange(1000, dtype=np.int32), "s": ["x"] * 1000}), row_group_size=600
    )
    size, name, group = plan(None, ["n"], large).largest()
    assert (name, group) == ("file 1", 0)
    assert 600 < size < len(large)


def test_footers_are_kept_by_url_size_and_etag(tmp_path: Path) -> None:
    """A footer is found again for the same object alone, and not once its file is torn;
    a folder that cannot be written keeps none.
    """
    kept, identity = KeptFooters(str(tmp_path / "kept")), Identity(7, "x")
    assert kept.get("s3://b/a", identity) is None
    kept.put("s3://b/a", identity, footer_of(written()))
    found = kept.get("s3://b/a", identity)
    assert found is not None
    assert found.metadata.num_row_groups == 4
    assert found.checksum != footer_of(written()).checksum
    for url, other in (("s3://b/b", identity), ("s3://b/a", Identity(7, "y"))):
        assert kept.get(url, other) is None
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    assert kept.get("s3://b/a", identity) is None
    KeptFooters(f"{file}/x").put("s3://b/a", identity, footer_of(written()))


def test_footers_that_are_not_used_are_forgotten(tmp_path: Path) -> None:
    """A footer stays a month after its last use."""
    kept, identity = KeptFooters(str(tmp_path)), Identity(7, "x")
    kept.put("s3://b/a", identity, footer_of(written()))
    (file,) = tmp_path.iterdir()
    kept.forget_old(file.stat().st_mtime + 29 * 86400)
    assert file.exists()
    kept.forget_old(file.stat().st_mtime + 31 * 86400)
    assert not file.exists()


@pytest.mark.parametrize(
    "filters",
    [
        [("x", "!=", 5.0)],
        [("x", "not in", [5.0])],
        [("x", "in", [np.nan])],
        [("y", ">", 0), ("x", "!=", 5.0)],
        [[("x", "<", 1.0)], [("x", "!=", 5.0)]],
        ~(pc.field("x") > 4),
        ~((pc.field("x") > 4) & (pc.field("y") > 0)),
        (pc.field("y") > 9) | (pc.field("x") != 5.0),
        pc.field("x").is_nan(),
        pc.field("x").is_null(nan_is_null=True),
        ~pc.field("x").isin([5.0]),
        pc.field(0) != 5.0,
        pc.field("s", "x") != 5.0,
        [[(("s", "x"), "!=", 5.0)]],
    ],
    ids=str,
)
def test_conditions_on_floats_keep_row_groups_with_nan(filters: Any) -> None:
    """A row group is not left out for statistics that do not tell of its NaN."""
    x = [5.0, np.nan]
    table = pa.table({"x": x, "y": [1, 2], "s": [{"x": value} for value in x]})
    footer = footer_of(written(table))
    plan = TablePlan(["f"], [footer], None, filters, False)
    assert table.filter(plan.condition)["y"].to_pylist()
    assert plan.table().groups.tolist() == [0]


def test_conditions_leave_out_row_groups_where_nan_does_not_matter() -> None:
    """Comparisons that NaN does not meet, and those of other columns, leave out row
    groups.
    """
    table = pa.table({"x": np.arange(100.0), "y": np.arange(100)})
    footer = footer_of(written(table))
    for filters, groups in (
        ([("x", ">", 80.0)], [3]),
        ([("y", ">", 60), ("x", "!=", 5.0)], [2, 3]),
        ([[("y", "<", 10), ("x", "!=", 5.0)], [("x", "=", 80.0)]], [0, 3]),
        (~(pc.field("y") > 30), [0, 1]),
        ([("y", "!=", np.nan)], [0, 1, 2, 3]),
    ):
        assert TablePlan(["f"], [footer], None, filters, False).table().groups.tolist() == groups


def test_errors_advise_what_was_not_passed() -> None:
    """The texts for a column that no file has, for a file of another format, and for
    values of nulls that cannot be, name the cause.
    """
    with pytest.raises(InvalidArgumentError, match="No file has a column 'nope'"):
        plan(None, ["nope"])
    with pytest.raises(InvalidArgumentError, match=r"begins with b'HEAD' and ends with b'TAIL'"):
        footer_of(b"HEAD" + bytes(200_000) + b"TAIL")
    footer = footer_of(written(pa.table({"s": [{"a": 1}, None], "t": ["x", None]})))
    chosen = TablePlan(["f"], [footer], None, None, False)
    for given in ({"s": -1}, {"t": None}):
        with pytest.raises(InvalidArgumentError, match='Pass nulls="mask", or read rows'):
            chosen.nulls(given)
