"""Tests of the file in which a dispatcher announces its address."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from zmqdata import Dataset, distribute
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.endpoints import parse_service
from zmqdata.config.worker import WorkerConfig
from zmqdata.dispatcher.server import DispatchServer
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    VersionMismatchError,
)
from zmqdata.messages import PROTOCOL_VERSION
from zmqdata.transport import dispatcher_file
from zmqdata.transport.dispatcher_file import DispatcherFile, address_in, current_address
from zmqdata.worker.server import WorkerServer

ADDRESS = "tcp://10.0.0.1:5050"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Path of a file that is read anew at every look."""
    monkeypatch.setattr(dispatcher_file, "READ_EVERY", 0.0)
    return tmp_path / "dispatcher.json"


def test_a_reader_finds_the_address_that_was_written(path: Path) -> None:
    """A file has the address, the protocol and an id. Only its owner may write it."""
    DispatcherFile(str(path)).write(ADDRESS)
    assert address_in(str(path)) == ADDRESS
    facts = json.loads(path.read_text())
    assert facts.keys() == {"address", "protocol", "id"}
    assert facts["protocol"] == PROTOCOL_VERSION
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_file_is_removed_by_its_own_dispatcher_only(path: Path) -> None:
    """The end of an older dispatcher leaves the file of a newer one as it is."""
    older, newer = DispatcherFile(str(path)), DispatcherFile(str(path))
    older.write(ADDRESS)
    newer.write("tcp://10.0.0.2:5050")
    older.remove()
    assert address_in(str(path)) == "tcp://10.0.0.2:5050"
    newer.remove()
    newer.remove()
    assert not list(path.parent.iterdir())


def test_a_file_that_is_replaced_during_its_removal_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer file that appears between check and removal is put back."""
    older, newer = DispatcherFile(str(path)), DispatcherFile(str(path))
    older.write(ADDRESS)
    replace = os.replace

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        newer.write("tcp://10.0.0.2:5050")
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    older.remove()
    assert address_in(str(path)) == "tcp://10.0.0.2:5050"
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_is_refused(path: Path, mode: int) -> None:
    """A group or a world that may write the file could send readers elsewhere."""
    DispatcherFile(str(path)).write(ADDRESS)
    path.chmod(mode)
    with pytest.raises(FailedPreconditionError, match="chmod go-w"):
        address_in(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(path: Path) -> None:
    """A file that another user owns is refused, and the error names its owner."""
    DispatcherFile(str(path)).write(ADDRESS)
    os.chown(path, 1234, -1)
    with pytest.raises(FailedPreconditionError, match="owner 1234"):
        address_in(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(path: Path, make: Callable[[Path], None]) -> None:
    """A named pipe, at which a reader would wait forever, and a folder are refused."""
    make(path)
    with pytest.raises(FailedPreconditionError, match="no regular file"):
        address_in(str(path))


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[1]", "[" * 60_000),
        '{"address": 5, "protocol": 6}',
        '{"address": "tcp://h", "protocol": 6}',
        '{"address": "http://h:1", "protocol": 6}',
        '{"address": "tcp://h:1", "protocol": Infinity}',
        '{"address": "file:/etc/passwd", "protocol": 6}',
    ],
)
def test_a_file_that_no_dispatcher_wrote_is_refused(path: Path, content: str) -> None:
    """A file without an address and a version is named in the error."""
    path.write_text(content)
    with pytest.raises(InvalidArgumentError, match=re.escape(str(path))):
        address_in(str(path))


def test_another_version_is_refused_by_the_file_already(path: Path) -> None:
    """The error names both versions of the protocol."""
    path.write_text(json.dumps({"address": ADDRESS, "protocol": PROTOCOL_VERSION + 1}))
    text = f"version {PROTOCOL_VERSION + 1} of the protocol, and this process version"
    with pytest.raises(VersionMismatchError, match=text):
        address_in(str(path))


def test_the_last_address_is_kept_while_the_file_is_unusable(path: Path) -> None:
    """A reader keeps the last address until a usable file names another one."""
    endpoint = parse_service(f"file:{path}")
    assert current_address(endpoint) == ""
    file = DispatcherFile(str(path))
    file.write(ADDRESS)
    assert current_address(endpoint) == ADDRESS
    path.chmod(0o666)
    assert current_address(endpoint) == ADDRESS
    path.unlink()
    assert current_address(endpoint) == ADDRESS
    file.write("tcp://10.0.0.2:5050")
    assert current_address(endpoint) == "tcp://10.0.0.2:5050"


def test_a_file_is_read_once_a_second(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look within a second of the last one does not open the file."""
    file, endpoint = DispatcherFile(str(path)), parse_service(f"file:{path}")
    file.write(ADDRESS)
    assert current_address(endpoint) == ADDRESS
    monkeypatch.setattr(dispatcher_file, "READ_EVERY", 1e6)
    file.write("tcp://10.0.0.2:5050")
    assert current_address(endpoint) == ADDRESS


def test_an_unusable_file_is_an_error_before_any_address_was_found(path: Path) -> None:
    """An unusable file ends a client at its first look."""
    path.write_text("{}")
    ds = Dataset.range(3).apply(distribute("parallel_epochs", f"file:{path}"))
    with pytest.raises(DataServiceError, match=re.escape(str(path))):
        list(ds)


def test_a_loop_follows_its_dispatcher_to_another_port(path: Path, tmp_path: Path) -> None:
    """Worker and client wait for the file, and follow it to another port."""
    (tmp_path / "work").mkdir()
    config = DispatcherConfig(work_dir=str(tmp_path / "work"), dispatcher_file=str(path))
    worker = WorkerServer(WorkerConfig(f"file:{path}", heartbeat_interval_ms=100))
    with worker, DispatchServer(config) as first:
        ds = Dataset.range(2_000).apply(distribute("parallel_epochs", f"file:{path}"))
        reader = iter(ds)
        seen = [int(next(reader)) for _ in range(5)]
        first.stop()
        assert not path.exists()
        with DispatchServer(config) as second:
            assert second.target != first.target
            seen += [int(element) for element in reader]
    assert sorted(seen) == list(range(2_000))
    assert not path.exists()


def test_a_file_in_no_folder_ends_the_dispatcher(tmp_path: Path) -> None:
    """A dispatcher that cannot write its file does not start, and names the path."""
    config = DispatcherConfig(dispatcher_file=str(tmp_path / "none" / "file"))
    with pytest.raises(OSError, match="dispatcher file cannot be written"):
        DispatchServer(config)
