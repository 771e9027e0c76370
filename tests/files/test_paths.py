"""Tests of ``zmqdata.files.paths``, and of the paths that users pass anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata import (
    CsvDataset,
    Dataset,
    DispatcherConfig,
    FixedLengthRecordDataset,
    SqlDataset,
    TextLineDataset,
    TFRecordDataset,
    TFRecordWriter,
    WorkerConfig,
    distributed_save,
)
from zmqdata.cli import commands
from zmqdata.errors import InvalidArgumentError, UnimplementedError
from zmqdata.files.paths import is_url, local_path, shown_url, whole_path
from zmqdata.pipelines.shipping import pack_sources

URL = "s3://bucket/x"


@pytest.mark.parametrize(
    "path", ["s3://x", "S3://x/", "zip://a::memory://b", "simplecache::s3://x/y", "memory://"]
)
def test_a_path_with_a_scheme_is_a_url(path: str) -> None:
    """Any scheme makes a URL, also in upper case, chained, or without a name."""
    assert is_url(path)
    assert is_url(whole_path(path))


@pytest.mark.parametrize(
    "path",
    [
        "a/b",
        "/a://b",
        "./s3://x",
        "data:v2",
        "C:/x",
        "a:b/c",
        "./~/x",
        "~x",
        "a/~",
        "12:30",
        "./s3:x",
    ],
)
def test_a_path_without_a_scheme_is_local(path: str) -> None:
    """Colons elsewhere do not make a URL."""
    assert not is_url(path)
    assert whole_path(path) == os.path.abspath(path)


@pytest.mark.parametrize(
    "path", ["file:///a/x y", "file:///a/x%20y", "file://localhost/a/x y", "FILE:/a/./x y"]
)
def test_a_file_url_is_a_local_path(path: str) -> None:
    """Each form of a file URL names the local file."""
    assert local_path("this", path, "") == "/a/x y"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("file://host/a", "names a host"),
        ("file://a", "three slashes"),
        ("s3:/bucket/x", "has a single slash"),
        (str(Path("s3://bucket/x")), "pathlib.Path removes"),
        (str(Path("simplecache::s3://b/x")), "has a single slash"),
        ("://x", "Is a variable empty"),
        ("my_s3://x", "a scheme of letters"),
        ("a b://x", "a scheme of letters"),
        ("C://x", "a scheme of letters"),
        ("s3::://x", "a scheme of letters"),
        ("file:x", "lacks the slashes"),
        ("s3:bucket/x", "lacks the slashes"),
        ("GS:x", "lacks the slashes"),
        ("dir/s3://x", "behind the name of a folder"),
        (str(Path("dir") / "s3://x"), "the URL 's3:/x' behind"),
        ("/data/my-fs://x", "the URL 'my-fs://x' behind"),
        ("~nobody-has-this-name/x", "a user who is not known"),
    ],
)
def test_what_almost_is_a_url_is_refused(path: str, text: str) -> None:
    """A URL with something too many or too few never becomes a local folder."""
    with pytest.raises(InvalidArgumentError, match=text):
        whole_path(path)


OPERATIONS: list[Callable[[Any], Any]] = [
    lambda path: Dataset.list_files(path),
    lambda path: Dataset.list_files([path]),
    lambda path: TextLineDataset(path),
    lambda path: TFRecordDataset([path]),
    lambda path: CsvDataset(path, [0]),
    lambda path: FixedLengthRecordDataset(path, 3),
    lambda path: SqlDataset("sqlite", path, "select 1", (int,)),
    lambda path: TFRecordWriter(path),
    lambda path: DispatcherConfig(work_dir=path),
    lambda path: DispatcherConfig(key_file=path),
    lambda path: WorkerConfig(dispatcher_address="127.0.0.1:1", key_file=path),
    lambda path: pack_sources([path]),
]


@pytest.mark.parametrize("take", OPERATIONS)
@pytest.mark.parametrize("url", [URL, Path(URL), os.fsencode(URL), np.array(URL)], ids=repr)
def test_no_file_gets_the_name_of_a_url(
    take: Callable[[Any], Any], url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation on local files refuses a URL at the call, and creates nothing. Where
    bytes are no name, they are refused as such.
    """
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UnimplementedError, InvalidArgumentError, TypeError), match="s3:/"):
        take(url)
    assert os.listdir(tmp_path) == []


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of path may begin with ``~``, and no folder gets this name."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    Dataset.range(3).save("~/saved")
    assert list(map(int, Dataset.load(Path("~/saved")))) == [0, 1, 2]
    assert list(map(int, Dataset.range(3).cache(b"~/cached"))) == [0, 1, 2]
    assert list(map(int, Dataset.range(3).snapshot("~/snapshot"))) == [0, 1, 2]
    iter(Dataset.range(3)).save("~/state")
    with TFRecordWriter(b"~/records") as writer:
        writer.write(b"record")
    assert len(list(Dataset.list_files("~/cached/*.json"))) == 1
    assert DispatcherConfig(work_dir="~/jobs").work_dir == str(home / "jobs")
    assert commands.main(["keygen", "--key-file=~/key"]) == 0
    assert sorted(os.listdir(home)) == ["cached", "key", "records", "saved", "snapshot", "state"]
    assert os.listdir(here) == []


@pytest.mark.parametrize("path", ["jobs", "file:///jobs", "file:/jobs"])
def test_settings_name_local_files(path: str) -> None:
    """A relative path stays as it is, and a file URL becomes a path."""
    expected = "jobs" if path == "jobs" else "/jobs"
    assert DispatcherConfig(work_dir=path).work_dir == expected


@pytest.mark.parametrize("option", ["--key-file", "--roles"])
def test_keys_are_not_written_to_urls(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``zmqdata keygen`` refuses a URL, and creates nothing."""
    monkeypatch.chdir(tmp_path)
    assert commands.main(["keygen", option, URL]) != 0
    assert "is a URL" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_file_url_works_where_a_path_works(tmp_path: Path) -> None:
    """Saves, caches, states and files to read may be named by file URLs."""
    url = tmp_path.as_uri()
    Dataset.range(3).save(f"{url}/saved")
    Dataset.range(2).save(f"{url}/saved")
    assert list(map(int, Dataset.load(f"{url}/saved"))) == [0, 1]
    assert list(map(int, Dataset.range(3).cache(f"{url}/cached"))) == [0, 1, 2]
    assert list(map(int, Dataset.range(3).snapshot(f"{url}/snapshot"))) == [0, 1, 2]
    with TFRecordWriter(f"{url}/one.tfrecord") as writer:
        writer.write(b"record")
    assert list(TFRecordDataset(f"{url}/one.tfrecord")) == [b"record"]
    assert list(Dataset.list_files(f"{url}/*.tfrecord")) == [str(tmp_path / "one.tfrecord")]
    iterator = iter(Dataset.range(3))
    next(iterator)
    iterator.save(f"{url}/state")
    again = iter(Dataset.range(3))
    again.restore(f"{url}/state")
    assert list(map(int, again)) == [1, 2]
    assert DispatcherConfig(work_dir=f"{url}/work").work_dir == str(tmp_path / "work")
    assert sorted(os.listdir(tmp_path)) == ["cached", "one.tfrecord", "saved", "snapshot", "state"]


def test_a_distributed_save_checks_its_path_first() -> None:
    """An impossible URL is refused before the dispatcher is asked."""
    with pytest.raises(InvalidArgumentError, match="single slash"):
        distributed_save(Dataset.range(3), Path(URL), "127.0.0.1:1", dispatcher_timeout=0.1)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://token@host/x", "https://host/x"),
        ("https://user:pa/ss@host/x?sig=1", "https://host/x?..."),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("simplecache::https://host/a?sig=1", "simplecache::https://host/a?..."),
        ("zip://in.txt::http://u:p@h/a.zip?sig=1", "zip://in.txt::http://h/a.zip?..."),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("http://[::1]:80/a?b", "http://[::1]:80/a?..."),
        ("/data/a::b@c", "/data/a::b@c"),
    ],
)
def test_urls_are_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    """User, password and query are left out, in each part of a chain."""
    assert shown_url(url) == shown
