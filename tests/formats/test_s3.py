"""Tests of files of stores on an emulator of S3, run by ``make test-formats``."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.forks import told_by_child
from zmqdata import Dataset, LocalCluster, TextLineDataset, distribute
from zmqdata.errors import DataLossError, NotFoundError, PermissionDeniedError
from zmqdata.storage import reading
from zmqdata.storage.listing import matching_names
from zmqdata.storage.reading import Identity, open_remote

REASON = "it needs moto and s3fs; `make test-formats` brings them"
moto = pytest.importorskip("moto.server", reason=REASON)
botocore = pytest.importorskip("botocore.session", reason=REASON)
pytest.importorskip("s3fs", reason=REASON)

NAMES = ("part-001.txt", "part-002.txt", "sub/part-3.txt", "a b#%ü.txt", "folder/")
LINES = [f"{name}:{line}" for name in NAMES[:3] for line in range(40)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Yield the endpoint of an emulator."""
    made = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    yield f"http://{host}:{port}"
    made.stop()


@pytest.fixture
def client(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a client of a store with some texts in the bucket ``train``, which the
    environment names to this process and those that it starts.
    """
    for name, value in {
        "AWS_ENDPOINT_URL_S3": server,
        "AWS_ACCESS_KEY_ID": "planted",
        "AWS_SECRET_ACCESS_KEY": "planted",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "XDG_CACHE_HOME": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(reading, "_clients", {})
    made = botocore.Session().create_client("s3")
    made.create_bucket(Bucket="train")
    for name in names_in(made, ""):
        made.delete_object(Bucket="train", Key=name)
    for name in NAMES:
        lines = [line for line in LINES if line.startswith(f"{name}:")]
        made.put_object(Bucket="train", Key=name, Body="\n".join(lines).encode())
    return made


def test_two_workers_read_listed_objects(client: Any) -> None:
    """The dispatcher lists the objects, and each is read by one of two processes."""
    names = Dataset.list_files(["s3://train/part-0*.txt", "s3://train/sub/*"])
    with LocalCluster(num_workers=2) as cluster:
        lines = names.flat_map(TextLineDataset).apply(distribute("distributed_epoch", cluster))
        assert sorted(lines) == sorted(LINES)


def test_two_workers_read_row_groups(client: Any) -> None:
    """The client lists a folder and reads the footers, and two processes read the row
    groups, each once.
    """
    for number in range(3):
        file = io.BytesIO()
        table = pa.table({"n": range(number * 100, number * 100 + 100)})
        pq.write_table(table, file, row_group_size=30)
        client.put_object(Bucket="train", Key=f"rows/n={number}/a.parquet", Body=file.getvalue())
    client.put_object(Bucket="train", Key="rows/_SUCCESS", Body=b"")
    dataset = Dataset.from_parquet("s3://train/rows", shuffle=True, batch_rows=20)
    with LocalCluster(num_workers=2) as cluster:
        batches = dataset.apply(distribute("distributed_epoch", cluster))
        found = np.concatenate([batch["n"] for batch in batches])
    assert sorted(found.tolist()) == list(range(300))


def test_patterns_match(client: Any) -> None:
    """Patterns match names with strange characters, and no folder; an absent bucket has
    no objects.
    """
    assert matching_names(["s3://train/*"]) == [f"s3://train/{NAMES[at]}" for at in (3, 0, 1)]
    assert len(matching_names(["s3://train/**"])) == 4
    assert matching_names(["s3://train/part-{001..003}.txt", "s3://none/*"]) == [
        f"s3://train/{name}" for name in NAMES[:2]
    ]


def test_objects_are_read_by_ranges(client: Any) -> None:
    """An object tells size and ETag, in a forked process, too, and a change is
    noticed.
    """
    file = open_remote("s3://train/part-001.txt")
    assert file.read(14) == b"part-001.txt:0"
    size = len("\n".join(LINES[:40]))
    assert (file.size, len(file.identity.etag)) == (size, 32)
    assert told_by_child(lambda: file.read(15)) == str(b"\npart-001.txt:1")
    with pytest.raises(DataLossError):
        open_remote("s3://train/part-001.txt", expected=Identity(size, "another")).read(1)
    client.put_object(Bucket="train", Key="part-001.txt", Body=b"x" * size)
    with pytest.raises(DataLossError, match="the object changed"):
        file.read(1)


def test_refusals_have_the_words_of_the_store(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An absent object and absent credentials are told apart."""
    with pytest.raises(NotFoundError, match=r"s3://train/none, bytes 0 to 1, .*NoSuchKey"):
        open_remote("s3://train/none").read(1)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setattr(reading, "_clients", {})
    with pytest.raises(PermissionDeniedError, match="credentials"):
        open_remote("s3://train/part-001.txt").read(1)


def test_two_workers_fill_what_another_process_reads(client: Any) -> None:
    """A cache and a snapshot that two processes fill at a time have a single content,
    which another process reads and resumes in the middle.
    """
    numbers = Dataset.range(3000).map(lambda x: (x, time.monotonic_ns()))
    datasets = (numbers.cache("s3://train/c"), numbers.snapshot("s3://train/c"))
    with LocalCluster(num_workers=2) as cluster:
        read = distribute("parallel_epochs", cluster)
        filled = [[(int(x), int(when)) for x, when in one.apply(read)] for one in datasets]
    for dataset, pairs in zip(datasets, filled, strict=True):
        assert Counter(x for x, _ in pairs) == dict.fromkeys(range(3000), 2)
        iterator = iter(dataset)
        here = [next(iterator) for _ in range(1000)]
        again = iter(dataset)
        again.load_state_dict(iterator.state_dict())
        found = [(int(x), int(when)) for x, when in [*here, *again]]
        assert [x for x, _ in found] == list(range(3000))
        assert set(found) <= set(pairs)


KILLED = """
import os, signal
from zmqdata import Dataset
from zmqdata.storage import shards
shards.UPLOAD_BYTES = 1
def die(x):
    if x == 9000:
        os.kill(os.getpid(), signal.SIGKILL)
    return x
list(Dataset.range(10_000).map(die).cache("s3://train/killed"))
"""


def test_a_killed_process_leaves_no_cache(client: Any) -> None:
    """The objects that a process had put into the store before it was killed do not
    count, and the next process writes its own.
    """
    assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -9
    left = names_in(client, "killed/")
    assert len(left) == 2
    assert all(name.endswith(".chunk") for name in left)
    dataset = Dataset.range(10_000).cache("s3://train/killed")
    for _ in range(2):
        assert list(map(int, dataset)) == list(range(10_000))
    assert left < names_in(client, "killed/")
    assert "killed/manifest.json" in names_in(client, "killed/")


ENDED = """
from zmqdata import Dataset
from zmqdata.storage import shards
shards.UPLOAD_BYTES = 1
iterator = iter(Dataset.range(10_000).snapshot("s3://train/ended"))
for _ in range(9000):
    next(iterator)
"""


def test_a_process_that_ends_early_leaves_nothing(client: Any) -> None:
    """A process that ends in the middle of a pass removes its objects, and does not
    hang.
    """
    assert subprocess.run([sys.executable, "-c", ENDED], check=False, timeout=60).returncode == 0
    assert names_in(client, "ended/") == set()


def names_in(client: Any, prefix: str) -> set[str]:
    found = client.list_objects_v2(Bucket="train", Prefix=prefix)
    return {one["Key"] for one in found.get("Contents", ())}


def test_a_lost_part_is_a_data_loss(client: Any) -> None:
    """A part that was removed, and a part with another content, are errors."""
    dataset = Dataset.range(10).cache("s3://train/lost")
    list(dataset)
    (part,) = (name for name in names_in(client, "lost/") if name.endswith(".chunk"))
    content = client.get_object(Bucket="train", Key=part)["Body"].read()
    client.put_object(Bucket="train", Key=part, Body=b"?" * len(content))
    with pytest.raises(DataLossError, match="is damaged"):
        list(dataset)
    client.delete_object(Bucket="train", Key=part)
    with pytest.raises(DataLossError, match=rf"s3://train/{part} is damaged"):
        list(dataset)


def test_a_state_lies_in_a_store(client: Any) -> None:
    """An iterator is saved to an object, and another is restored from it."""
    iterator = iter(Dataset.range(9).shuffle(9, seed=3))
    next(iterator)
    for name in ("state", "deep/er/state"):
        iterator.save(f"s3://train/{name}")
        again = iter(Dataset.range(9).shuffle(9, seed=3))
        again.restore(f"s3://train/{name}")
    assert list(again) == list(iterator)
    with pytest.raises(NotFoundError, match="the file s3://train/none does not exist"):
        again.restore("s3://train/none")


def test_a_save_goes_to_a_store(client: Any) -> None:
    """A dataset is saved to several objects, and loaded in a forked process, too."""
    Dataset.range(20_000).save("s3://train/saved", shard_func=lambda x: int(x) % 3)
    assert len(names_in(client, "saved/")) == 4
    loaded = Dataset.load("s3://train/saved")
    assert sorted(map(int, loaded)) == list(range(20_000))
    assert told_by_child(lambda: len(list(loaded))) == "20000"
