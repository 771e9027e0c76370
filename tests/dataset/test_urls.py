"""Tests of the sources that read files, over the URLs of a store of the tests' own."""

from __future__ import annotations

import gzip
import io
import pickle
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zmqdata
from tests.kit.forks import told_by_child
from tests.kit.objectstore import ObjectStore, object_store
from zmqdata.dataset import Dataset
from zmqdata.dataset.readers import CsvDataset, FixedLengthRecordDataset, TFRecordDataset
from zmqdata.dataset.surface import TextLineDataset
from zmqdata.errors import (
    DataLossError,
    InvalidArgumentError,
    NoFilesMatchedError,
    NotFoundError,
    PermissionDeniedError,
    PipelineError,
    UnimplementedError,
)
from zmqdata.pipelines import pack_pipeline
from zmqdata.storage import parquet as parquet_files
from zmqdata.storage import reading
from zmqdata.storage.records import as_record
from zmqdata.testing.cluster import await_condition

LINES = [f"line {number} ü" for number in range(1000)]
TEXT = "\n".join(LINES).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Return a store that holds a text, with blocks of 4 KiB."""
    server.objects, server.requests, server.sent = {"/a.txt": TEXT}, [], 0
    server.faults.clear()
    monkeypatch.setattr(reading, "BLOCK", 4096)
    return server


def test_lines_come_by_blocks(store: ObjectStore) -> None:
    """A text is read with a request for each block, and no byte twice."""
    assert list(TextLineDataset(store.url("/a.txt"))) == LINES
    assert len(store.requests) == -(-len(TEXT) // 4096)
    assert store.sent == len(TEXT)


def test_the_next_block_is_under_way(store: ObjectStore) -> None:
    """While the first block is read, the second is asked for, and no third."""
    iterator = iter(TextLineDataset(store.url("/a.txt")))
    assert next(iterator) == LINES[0]
    await_condition(lambda: len(store.requests) == 2, what="the second request")
    assert [next(iterator) for _ in range(100)] == LINES[1:101]
    assert len(store.requests) == 2


def test_records_come_from_stores(store: ObjectStore) -> None:
    """Records, packed or of fixed length, and rows are read from URLs."""
    records = [bytes([number]) * 3000 for number in range(9)]
    content = b"".join(map(as_record, records))
    fixed = b"HE" + b"".join(records) + b"FOOT"
    store.objects |= {
        "/r": content,
        "/r.gz": gzip.compress(content),
        "/r.z": zlib.compress(content),
        "/f": fixed,
        "/f.gz": gzip.compress(fixed),
        "/c": b"a,b\n" + b"1,x\n" * 3000,
    }
    assert list(TFRecordDataset(store.url("/r"))) == records
    assert list(TFRecordDataset(store.url("/r.gz"), "GZIP")) == records
    assert list(TFRecordDataset(store.url("/r.z"), "ZLIB")) == records
    for name, packing in (("/f", ""), ("/f.gz", "GZIP")):
        sizes: dict[str, Any] = {"header_bytes": 2, "footer_bytes": 4, "compression_type": packing}
        assert list(FixedLengthRecordDataset(store.url(name), 3000, **sizes)) == records
    rows = list(CsvDataset(store.url("/c"), [np.int64, str], header=True))
    assert rows == [(1, "x")] * 3000


def test_many_files_are_read_at_a_time(store: ObjectStore) -> None:
    """Names of a dataset, and files read in parallel, may be URLs."""
    store.objects["/b.txt"] = b"x\ny"
    urls = [store.url("/b.txt")] * 2
    assert list(TextLineDataset(urls, num_parallel_reads=2)) == ["x", "x", "y", "y"]
    assert list(TextLineDataset(Dataset.from_tensor_slices(urls))) == ["x", "y"] * 2


def test_reading_resumes_within_a_file(store: ObjectStore) -> None:
    """A state in the middle of a file reads on from there."""
    dataset = TextLineDataset(store.url("/a.txt"))
    iterator = iter(dataset)
    had = [next(iterator) for _ in range(700)]
    store.requests.clear()
    later = iter(dataset)
    later.load_state_dict(iterator.state_dict())
    assert had + list(later) == LINES
    assert "bytes=0-" not in str(store.requests)


def test_a_file_that_changes_is_a_loss(store: ObjectStore) -> None:
    """An object that is replaced while it is read ends in an error."""
    iterator = iter(TextLineDataset(store.url("/a.txt")))
    had = [next(iterator) for _ in range(10)]
    store.objects["/a.txt"] = TEXT.replace(b"line", b"LINE")
    with pytest.raises(PipelineError) as caught:
        had.extend(iterator)
    assert isinstance(caught.value.__cause__, DataLossError)
    assert had == LINES[: len(had)]


def test_failures_name_the_object(store: ObjectStore) -> None:
    """An absent object is a PipelineError caused by a NotFoundError, for records,
    too.
    """
    for kind in (TextLineDataset, TFRecordDataset):
        with pytest.raises(PipelineError, match=r"/none, bytes 0 to 4096,") as caught:
            list(kind(store.url("/none")))
        assert isinstance(caught.value.__cause__, NotFoundError)


def test_a_split_is_left_out(store: ObjectStore) -> None:
    """A file that cannot be read is left out on demand, and the quarantine names it; so
    is a line that is no text.
    """
    store.objects["/b.txt"] = b"x\n\xff\ny"
    urls = [store.url(name) for name in ("/none", "/b.txt", "/gone")]
    iterator = iter(TextLineDataset(urls, on_error="skip"))
    assert list(iterator) == ["x", "y"]
    told = [left_out.error for left_out in iterator.quarantine]
    assert [left_out.number for left_out in iterator.quarantine] == [0, 2, 4]
    assert "/none, bytes 0 to 4096, could not be read: 404" in told[0]
    assert told[1].startswith(f"{urls[1]}, byte 2: UnicodeDecodeError")
    assert "TextLineDataset" in iterator.quarantine[0].node
    with pytest.raises(ValueError, match='must be "raise" or "skip"'):
        TextLineDataset(urls, on_error="retry")  # type: ignore[arg-type]


def test_local_files_are_left_out(tmp_path: Path) -> None:
    """on_error="skip" leaves out local files, records and rows, too."""
    (tmp_path / "c").write_text("1\nx\n3\n")
    (tmp_path / "r").write_bytes(as_record(b"a") + b"damaged")
    rows = iter(CsvDataset(str(tmp_path / "c"), [np.int64], on_error="skip"))
    assert (list(rows), len(rows.quarantine)) == ([(1,), (3,)], 1)
    names = [str(tmp_path / name) for name in ("none", "r")]
    records = iter(TFRecordDataset(names, on_error="skip"))
    assert (list(records), len(records.quarantine)) == ([b"a"], 2)
    fixed = iter(FixedLengthRecordDataset(names, 1000, on_error="skip"))
    assert (list(fixed), len(fixed.quarantine)) == ([], 2)


def test_listed_urls_are_read(store: ObjectStore) -> None:
    """list_files yields URLs, which the sources open; a list without a file is an
    error.
    """
    store.objects |= {f"/part-{number:03}": f"{number}".encode() for number in range(3)}
    options = {"headers": {"X-Team": "seven"}}
    pattern = store.url("/part-{000..099}")
    names = Dataset.list_files(pattern, shuffle=False, storage_options=options)
    assert store.headers["X-Team"] == "seven"
    assert list(names.interleave(TextLineDataset)) == ["0", "1", "2"]
    assert "seven" in names.node.split_source.options  # type: ignore[union-attr]
    with pytest.raises(NoFilesMatchedError):
        Dataset.list_files(store.url("/none"))


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_an_object_is_that_of_the_saved_state(store: ObjectStore, compression: str) -> None:
    """An iterator that is restored within a file notices that the file was replaced
    meanwhile, and reads the file that it had.
    """
    packed = gzip.compress if compression else bytes
    store.objects["/a.txt"] = packed(TEXT)
    lines = TextLineDataset([store.url("/a.txt"), store.url("/b.txt")], compression)
    store.objects["/b.txt"] = packed(b"end")
    iterator = iter(lines)
    had = [next(iterator) for _ in range(5)]
    state = iterator.state_dict()
    restored = iter(lines)
    restored.load_state_dict(state)
    assert had + list(restored) == [*LINES, "end"]
    store.objects["/a.txt"] = packed(TEXT.replace(b"line 9", b"lime 9"))
    restored = iter(lines)
    with pytest.raises(PipelineError, match="the object changed"):
        restored.load_state_dict(state) or next(restored)  # type: ignore[func-returns-value]


def test_a_forked_process_reads(store: ObjectStore) -> None:
    """A process that was forked while a block was under way reads on."""
    iterator = iter(TextLineDataset(store.url("/a.txt")))
    had = [next(iterator) for _ in range(5)]
    assert told_by_child(lambda: had + list(iterator) == LINES) == "True"


def test_secrets_do_not_travel() -> None:
    """Options travel, but not those that hold secrets, however deep, and wherever the
    options are held.
    """
    anonymous = {"anon": True, "token": "anon", "client_kwargs": {"region_name": "x"}}
    pack_pipeline(TextLineDataset("memory://a", storage_options=anonymous).node)
    secret = {"client_kwargs": {"password": "planted"}}
    names = Dataset.from_tensor_slices(["memory://a"])
    for source in ("memory://a", names):
        dataset = TextLineDataset(source, storage_options=secret)
        with pytest.raises(TypeError, match=r"'client_kwargs\.password', and secrets do") as caught:
            pack_pipeline(dataset.node)
        assert "planted" not in str(caught.value)
        assert "planted" not in f"{dataset.describe()}{dataset!r}{dataset.node!r}"
    with pytest.raises(TypeError, match="must be a dict"):
        TextLineDataset("memory://a", storage_options=["anon"])  # type: ignore[arg-type]


def test_signatures_are_not_shown(store: ObjectStore) -> None:
    """A signed URL travels, and neither errors, descriptions nor states show it."""
    url = store.url("/none?signature=planted").replace("//", "//me:hidden@")
    dataset = TextLineDataset([url, url], on_error="skip")
    iterator = iter(dataset)
    assert list(iterator) == []
    with pytest.raises(PermissionDeniedError):
        reading.open_remote(forbidden(store, url)).read(1)
    shown = f"{dataset.describe()} {dataset!r} {iterator.quarantine} {iter(dataset).state_dict()}"
    assert f"{store.url('/none')}?..." in shown
    assert "planted" not in shown
    assert "hidden" not in shown


def forbidden(store: ObjectStore, url: str) -> str:
    """Return a URL after telling the store to refuse it."""
    store.faults.append(403)
    return url


WRITERS: list[Callable[[Dataset, str], Any]] = [
    lambda dataset, path: dataset.cache(path),
    lambda dataset, path: dataset.snapshot(path),
    lambda dataset, path: dataset.save(path),
    lambda dataset, path: iter(dataset).save(path),
]


@pytest.mark.parametrize("write", WRITERS, ids=["cache", "snapshot", "save", "state"])
def test_what_cannot_be_written_is_refused_at_the_call(write: Callable[..., Any]) -> None:
    """A web server, several file systems in one URL, and a protocol without its package
    are refused before an element is made, and no secret is shown.
    """
    never = Dataset.range(3).map(lambda x: pytest.fail("the pipeline ran"))
    web = r"cannot write to https://host/x\?\.\.\., because web servers .* URL of a store"
    with pytest.raises(UnimplementedError, match=web) as caught:
        write(never, "https://me:planted@host/x?signature=planted")
    assert "planted" not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="names several"):
        write(never, "zip://a::memory://b/x.zip")
    with pytest.raises(UnimplementedError, match=r"zmqdata\[fsspec\]"):
        write(never, "gs://bucket/x")


def test_passwords_of_stores_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptions and errors of what lies in a store name it without its password."""
    memory = fsspec.filesystem("memory")
    monkeypatch.setattr(type(memory), "protocol", "secured")
    fsspec.register_implementation("secured", type(memory), clobber=True)
    url, shown = "secured://me:planted@host/x", "secured://host/x"
    for dataset in (Dataset.range(9).cache(url), Dataset.range(9).snapshot(url)):
        iterator = iter(dataset)
        next(iterator)
        told = f"{dataset.describe()} {dataset!r} {iterator.state_dict()['pipeline']}"
        assert (shown in told, "planted" in told) == (True, False)
        list(iterator)
        for file in memory.store.values():
            file.truncate(file.size - 1)
        with pytest.raises(DataLossError, match=f"{shown}.* is damaged") as caught:
            list(dataset)
        assert "planted" not in str(caught.value)
        memory.store.clear()


def test_local_operations_say_so() -> None:
    """A protocol without its package is refused at the call; databases and work folders
    stay on this machine.
    """
    with pytest.raises(UnimplementedError, match=r"zmqdata\[fsspec\]"):
        TextLineDataset("gs://bucket/x")
    with pytest.raises(UnimplementedError, match=r"SqlDataset takes a path on this .* copy the d"):
        zmqdata.SqlDataset("sqlite", "s3://bucket/x.db", "SELECT 1", (int,))
    with pytest.raises(UnimplementedError, match=r"takes a path on this machine, and 's3://b"):
        zmqdata.DispatcherConfig(work_dir="s3://bucket/x")
    assert pickle.loads(pickle.dumps(TextLineDataset("memory://x", on_error="skip"))) is not None


ALL = list(range(500))
GROUPS = [ALL[first : first + 100] for first in range(0, 500, 100)]


def parquet(numbers: list[int], **options: Any) -> bytes:
    """Return a file of rows in groups of 100."""
    table = pa.table({"n": numbers, "m": numbers, "text": ["x" * 40] * len(numbers)})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=100, use_dictionary=False, **options)
    return file.getvalue()


def test_row_groups_are_read_by_a_request_each(store: ObjectStore) -> None:
    """The footer takes one request where the dataset is made, and another where it is
    read; a row group takes one, and no byte of other columns.
    """
    content = store.objects["/a b.parquet"] = parquet(ALL)
    dataset = Dataset.from_parquet(store.url("/a b.parquet"), columns=["n"])
    assert len(store.requests) == 1
    assert [int(row["n"]) for row in dataset] == ALL
    assert len(store.requests) == 1 + 1 + len(GROUPS)
    assert store.sent < 2 * min(1 << 16, len(content)) + 5 * 1500


@pytest.mark.parametrize("answers", [["whole"], ["short"], [503, "cut"], ["reset", 429]])
def test_a_footer_comes_whatever_the_answer(store: ObjectStore, answers: list[Any]) -> None:
    """A store that answers the range of the footer otherwise is asked again, or its
    answer is cut.
    """
    store.objects["/a.parquet"] = parquet(GROUPS[0])
    store.faults.extend(answers)
    assert len(Dataset.from_parquet(store.url("/a.parquet"))) == 100


def test_an_object_is_that_of_the_footer(store: ObjectStore) -> None:
    """Another content of equal size and footer is an error when it is opened, and while
    it is read; so is a file that vanishes, and each is left out on request.
    """
    parts = {"compression": "none", "write_statistics": False}
    old, new = parquet(GROUPS[0] * 2, **parts), parquet(GROUPS[1] * 2, **parts)
    assert len(old) == len(new)
    store.objects["/a.parquet"] = old
    url = store.url("/a.parquet")
    dataset = Dataset.from_parquet(url, batch_rows=100)
    iterator = iter(dataset)
    assert next(iterator)["n"][0] == 0
    store.objects["/a.parquet"] = new
    with pytest.raises(DataLossError, match="the object changed"):
        next(iterator)
    with pytest.raises(DataLossError, match="was changed after this dataset was made"):
        next(iter(dataset))
    del store.objects["/a.parquet"]
    with pytest.raises(PipelineError, match=r"a\.parquet, the last 65536 bytes, could not be read"):
        next(iter(dataset))
    store.objects["/b.parquet"] = old
    skipping = Dataset.from_parquet([url, store.url("/b.parquet")], on_error="skip")
    rows = iter(skipping)
    assert (len(list(rows)), len(rows.quarantine)) == (200, 1)
    with pytest.raises(NotFoundError, match=r"a\.parquet"):
        Dataset.from_parquet(url)


def test_signatures_of_tables_show_nowhere(store: ObjectStore) -> None:
    """Errors about files at signed URLs name them without what may be secret."""
    store.objects |= {"/a.parquet": b"a,b,c", "/b.parquet": parquet(GROUPS[0])}
    url = store.url("/a.parquet?sig=planted")
    with pytest.raises(
        InvalidArgumentError, match=r"a\.parquet\?\.\.\. is not a Parquet"
    ) as caught:
        Dataset.from_parquet(url)
    assert "planted" not in str(caught.value)
    dataset = Dataset.from_parquet(url.replace("/a.", "/b."))
    store.faults.append(403)
    with pytest.raises(PipelineError) as failed:
        next(iter(dataset))
    assert "planted" not in f"{failed.value} {dataset.describe()} {dataset!r}"


def test_folders_and_patterns_of_stores_are_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder stands for the finished files below it, with or without a slash, whose
    footers are read once; web servers have neither.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/tables/{name}": parquet(GROUPS[0]) for name in ("a.parquet", "b/c d#.parquet")})
    memory.pipe(
        {f"/tables/{name}": b"x" for name in ("_SUCCESS", ".a.parquet.crc", "_t/d.parquet")}
    )
    paths = ["memory://tables", "memory://tables/", "memory://tables/**/*[a#].parquet"]
    assert len(Dataset.from_parquet(paths[0])) == 200
    monkeypatch.setattr(parquet_files, "read_footer", None)
    assert [len(Dataset.from_parquet(path)) for path in paths] == [200, 200, 200]
    monkeypatch.undo()
    assert len(Dataset.from_parquet(["memory://tables/?.parquet"] * 2)) == 200
    for absent in ("memory://tables/*.csv", "memory://none"):
        with pytest.raises(NoFilesMatchedError, match="matches no file"):
            Dataset.from_parquet(absent)
    with pytest.raises(UnimplementedError, match="web servers have no listings"):
        Dataset.from_parquet("http://host/*.parquet")
