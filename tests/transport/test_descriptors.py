"""Tests of what is said when no file descriptor is left."""

from __future__ import annotations

import errno
import os

import pytest
import zmq

from zmqdata.client.calls import likely_cause
from zmqdata.errors import ResourceExhaustedError
from zmqdata.transport.descriptors import remedy, shortage_explained


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "none"), zmq.ZMQError(errno.ENFILE)])
def test_a_shortage_becomes_an_error_of_ours(error: Exception) -> None:
    """A lack of descriptors is an error that names the limit, whichever library met
    it.
    """
    told = pytest.raises(
        ResourceExhaustedError, match=r"^an iterator needs a file descriptor.*ulimit"
    )
    with told, shortage_explained("an iterator"):
        raise error


def test_other_errors_are_left_alone() -> None:
    """An error that is no lack of descriptors passes unchanged."""
    with pytest.raises(OSError, match="no such file"), shortage_explained("an iterator"):
        raise OSError(errno.ENOENT, "no such file")


def test_the_remedy_counts_what_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text has the number of open descriptors; it is the limit if they cannot be
    listed.
    """
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    many = remedy("it")
    for descriptor in opened:
        os.close(descriptor)
    used = [int(text.partition(" uses ")[2].split()[0]) for text in (many, remedy("it"))]
    assert used[0] == used[1] + 3

    def fail(path: str) -> list[str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "listdir", fail)
    text = remedy("it").partition(" uses ")[2].split()
    assert text[0] == text[2]


def test_a_shortage_is_no_fault_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that cannot be looked up for lack of descriptors is not called unknown."""

    def fail(*told: object, **more: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("socket.getaddrinfo", fail)
    cause = likely_cause("tcp://example.org:5050")
    assert "`ulimit -n`" in cause
    assert "Unknown host" not in cause
