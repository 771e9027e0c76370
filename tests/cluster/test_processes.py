"""Test what a server in its own process owns."""

from __future__ import annotations

import errno
import tempfile
from typing import Any

import pytest

from zmqdata.cluster.processes import ServerProcess
from zmqdata.errors import DescriptorShortageError


def test_a_server_without_its_second_file_leaves_no_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no descriptor is left for the second file of a server, the first is closed."""
    make, made = tempfile.TemporaryFile, list[Any]()

    def make_one() -> Any:
        if made:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(make())
        return made[0]

    monkeypatch.setattr(tempfile, "TemporaryFile", make_one)
    with pytest.raises(DescriptorShortageError):
        ServerProcess("zmqdata.worker", [])
    assert made[0].closed
