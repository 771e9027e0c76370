"""Test the shared memories of an iterator's links."""

from __future__ import annotations

import errno
import os
import re

import pytest
from msgspec import structs

from zmqdata.client.connections import Descriptors, Memories
from zmqdata.core.client.events import ConnectLink
from zmqdata.transport.memory import SharedMemory


def test_a_memory_is_there_until_its_link_is_closed() -> None:
    """The client maps a worker's offered memory under the link's name until the link
    closes, and nothing for other links.
    """
    shared, memories = SharedMemory(1 << 20), Memories(Descriptors())
    assert not memories.map(ConnectLink("me-1", "tcp://x", "secret"))
    assert memories.map(ConnectLink("me-2", "ipc://x", "secret", shared.told))
    assert memories.of("me-1") is None
    assert memories.of("me-2") is not None
    memories.forget("me-2")
    assert memories.of("me-2") is None
    shared.close()


def test_what_cannot_be_mapped_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    """The client does not map a lost or foreign memory, and warns of the first with the
    likely cause.
    """
    shared, memories = SharedMemory(1 << 20), Memories(Descriptors())
    for told in (
        structs.replace(shared.told, descriptor=10**6),
        structs.replace(shared.told, inode=1),
    ):
        assert not memories.map(ConnectLink("me-1", "ipc://x", "secret", told))
    assert memories.of("me-1") is None
    [record] = caplog.records
    assert "another container" in record.getMessage()
    shared.close()


def test_that_descriptors_are_missing_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client logs missing descriptors once with their limit, however many attempts
    fail in a row, and blames no worker.
    """
    shared, memories = SharedMemory(1 << 20), Memories(Descriptors())

    def fail(told: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("zmqdata.client.connections.MappedMemory", fail)
    for _ in range(3):
        assert not memories.map(ConnectLink("me-1", "ipc://x", "secret", shared.told))
    [record] = caplog.records
    assert re.search(
        r"worker ipc://x .* file descriptor, and too few are left: .*`ulimit -n`",
        record.getMessage(),
    )
    shared.close()
