"""Files that chains read, write and cache, all in a folder removed at exit."""

from __future__ import annotations

import gzip
import itertools
import os
import sqlite3
import tempfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import zmqdata

_FOLDER = tempfile.TemporaryDirectory(prefix="zmqdata-tfdata-")
_numbers = itertools.count()
_PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
}
COMPRESSIONS = sorted(_PACK)


def fresh(suffix: str = "") -> str:
    """Return an unused path."""
    return os.path.join(_FOLDER.name, f"{next(_numbers)}{suffix}")


def written(content: bytes, compression: str = "") -> str:
    path = fresh()
    with open(path, "wb") as file:
        file.write(_PACK[compression](content))
    return path


def text_files(n: int, m: int) -> Any:
    """Write lines with each kind of line end to up to two files.

    The last line may lack its end. The lines contain no other carriage return, as
    TensorFlow would delete it.
    """
    packed = COMPRESSIONS[n % 3]
    ends = [[b"\n"], [b"\r\n"], [b"\n", b"\r\n", b"\n\n", b"\r\n\r\n"]][m % 3]
    lines = [[b"a", b"bc", b"", b"x y", b"q"][i % 5] for i in range(n)]
    content = b"".join(line + ends[i % len(ends)] for i, line in enumerate(lines)) + (
        b"last" if m % 2 else b""
    )
    names = [written(content, packed)] + [written(b"other\nfile", packed)] * (m > 5)
    return lambda side: side.TextLineDataset(names, compression_type=packed)


def line_files(n: int, m: int) -> Any:
    """List the names of several files."""
    folder = fresh()
    os.mkdir(folder)
    for number in range(m % 4 + 1):
        with open(os.path.join(folder, f"{number}.txt"), "w") as file:
            file.write("".join(f"{number}{i}\n" for i in range((n + number) % 4)))
    pattern = os.path.join(folder, "*.txt")
    if n % 3 == 0:
        return lambda side: side.TextLineDataset(side.Dataset.list_files(pattern, shuffle=False))
    if n % 3 == 1:
        return lambda side: side.Dataset.list_files(pattern, shuffle=False).flat_map(
            side.TextLineDataset
        )
    return lambda side: side.Dataset.list_files(pattern, shuffle=False).interleave(
        lambda name: side.TextLineDataset(name).enumerate(),
        cycle_length=m % 3 + 1,
        block_length=n % 2 + 1,
    )


def record_files(n: int, m: int, damaged: bool = False) -> Any:
    """Write TFRecord files with either library.

    Compressed files are not damaged, nor is a record cut in its first 12 bytes.
    TensorFlow takes both for the end of the file.
    """
    packed = "" if damaged else COMPRESSIONS[n % 3]
    records = [bytes(range(i, i * 7 % 90)) + b"\xff\0." for i in range(n)]
    records += [b""] * (m % 2)
    names = [
        _record_file(records, packed, ours) for ours in ([True, False] if m > 5 else [m % 2 == 0])
    ]
    if damaged:
        _damage(names[-1], m)
    return lambda side: side.TFRecordDataset(names, compression_type=packed)


def _damage(name: str, m: int) -> None:
    """Cut up to four bytes, the checksum of the last record, or change the record."""
    size = os.path.getsize(name)
    with open(name, "rb+") as file:
        if m % 2:
            file.truncate(max(0, size - 1 - m // 2))
        elif size:
            last = os.pread(file.fileno(), 1, size - 1)
            os.pwrite(file.fileno(), bytes([last[0] ^ 1]), size - 1)


def _record_file(records: list[bytes], packed: str, ours: bool) -> str:
    path = fresh()
    with (
        zmqdata.TFRecordWriter(path, packed)
        if ours
        else tf.io.TFRecordWriter(path, packed) as writer
    ):
        for record in records:
            writer.write(record)
    return path


def fixed_length_files(n: int, m: int) -> Any:
    """Write three-byte records between header and footer; the last of 8 is cut."""
    packed, header, footer = COMPRESSIONS[n % 3], m % 3, m % 2
    body = b"".join(b"%03d" % (i * 37) for i in range(n))
    content = b"H" * header + body + b"F" * footer + (b"?" if m == 8 else b"")
    names = [written(content, packed) for _ in range(m % 4 // 2 + 1)]
    return lambda side: side.FixedLengthRecordDataset(
        names, 3, header, footer, compression_type=packed
    )


_CSV = (
    "1,2.5,x,7\n",
    "-2,,,\n",
    '3,1e3,"a ""q"", b",8\r\n',
    ",0.125,NA,NA\n",
    '"5",-1,"two\nlines",9\n',
    "6,7,8,9\n",
    "1,2\n",
    "x,1,y,2\n",
)


def csv_files(n: int, m: int) -> Any:
    """Write rows with quotes, missing fields and, in some files, a bad field."""
    rows = [_CSV[(i * (m % 3 + 1)) % (8 if m == 7 else 6)] for i in range(n)]
    content = ("h,i,j,k\n" if m % 2 else "") + "".join(rows)
    delimiter = ";" if m % 4 == 3 else ","
    name, packed = (
        written(content.replace(",", delimiter).encode(), COMPRESSIONS[n % 3]),
        COMPRESSIONS[n % 3],
    )
    columns = [
        (0, 7, np.int64),
        (1, 0.5, np.float32 if m % 2 else np.float64),
        (2, "z", str),
        (3, 4, np.int32),
    ]
    chosen = columns if m % 5 else [columns[0], columns[2]]

    def make(side: Any) -> Any:
        defaults = [side.constant(value, dtype) for _, value, dtype in chosen]
        if n == 8:
            defaults[0] = side.dtype(np.int64)
        return side.CsvDataset(
            name,
            defaults,
            compression_type=packed,
            header=m % 2 == 1,
            field_delim=delimiter,
            na_value="NA" if m % 3 else "",
            select_cols=None if m % 5 else [0, 2],
        )

    return make


def data_base(n: int, m: int) -> Any:
    """Query a database whose rows include NULLs."""
    path = fresh(".db")
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE t (n INTEGER, x REAL, s TEXT)")
        rows = [(i, i / 4 if i % 3 else None, "ab"[: i % 3]) for i in range(n)]
        base.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    base.close()
    query = f"SELECT n, x, s FROM t WHERE n <> {m} ORDER BY n DESC"
    integer = [np.int64, np.int32, np.int16, np.uint8][m % 4]
    return lambda side: side.SqlDataset(
        "sqlite", path, query, tuple(map(side.dtype, (integer, np.float64, str)))
    )


def saved(side: Any, dataset: Any) -> Any:
    """Return a dataset saved to files and loaded again. The dataset runs first, as
    TensorFlow's save() waits forever if it fails.
    """
    if int(dataset.cardinality()) == zmqdata.INFINITE_CARDINALITY:
        raise ValueError("never ends")
    for _ in dataset:
        pass
    path = fresh()
    dataset.save(path)
    return side.Dataset.load(path)
