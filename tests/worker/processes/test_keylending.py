"""Tests of how processes with another user's rights get the key."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from zmqdata import WorkerConfig
from zmqdata.errors import NotFoundError
from zmqdata.transport import keys
from zmqdata.worker.processes.accounts import account_of
from zmqdata.worker.processes.keylending import lend_key

STRANGER = account_of("54321")


def test_our_own_processes_find_the_file() -> None:
    """Processes with the worker's own rights get no copy, and no process gets a copy
    without a key.
    """
    config = WorkerConfig("127.0.0.1:1")
    assert lend_key(config, None) == (config, ())
    without = WorkerConfig("127.0.0.1:1", insecure=True)
    assert lend_key(without, STRANGER) == (without, ())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_another_user_reads_a_copy_of_the_key(tmp_path: Path) -> None:
    """Another user reads the key through an inherited descriptor, which no other user
    can open. The copy looks like a private file.
    """
    keys.save(tmp_path / "k", keys.new_key())
    config, lent = lend_key(WorkerConfig("127.0.0.1:1", key_file=str(tmp_path / "k")), STRANGER)
    (descriptor,) = lent
    assert config.key_file == f"/proc/self/fd/{descriptor}"
    status = os.fstat(descriptor)
    assert (status.st_uid, status.st_mode & 0o777) == (54321, 0o400)
    command = ["cat", config.key_file]
    read = subprocess.run(
        command, user=54321, group=54321, pass_fds=lent, capture_output=True, text=True, check=False
    )
    assert read.stdout == (tmp_path / "k").read_text()
    found = keys.load(tmp_path / "k")
    assert keys.parse(read.stdout).pair == found.pair
    other = subprocess.run(
        command, user=54322, group=54322, pass_fds=lent, capture_output=True, check=False
    )
    assert other.returncode != 0
    os.close(descriptor)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_who_has_the_copy_cannot_change_it(tmp_path: Path) -> None:
    """A pipeline that inherits the descriptor can neither add a key of its own nor
    remove a key.
    """
    keys.save(tmp_path / "k", keys.new_key())
    _, (descriptor,) = lend_key(WorkerConfig("127.0.0.1:1", key_file=str(tmp_path / "k")), STRANGER)
    size = os.fstat(descriptor).st_size
    for change in (
        lambda: os.pwrite(descriptor, b"known", 0),
        lambda: os.pwrite(descriptor, b"known", size),
        lambda: os.truncate(descriptor, 0),
        lambda: os.truncate(descriptor, size + 1),
    ):
        with pytest.raises(PermissionError):
            change()
    assert os.pread(descriptor, size + 1, 0) == (tmp_path / "k").read_bytes()
    os.close(descriptor)


def test_a_file_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    """The supervisor reports a missing key file before it starts any process."""
    with pytest.raises(NotFoundError, match="There is no key file"):
        lend_key(WorkerConfig("127.0.0.1:1", key_file=str(tmp_path / "k")), STRANGER)
