"""Facts about what is told of rejected input. That it is bounded is in ``tests/service/test_hostile.py``."""

from __future__ import annotations

import logging

import pytest

from zmqdata.transport.rejects import Rejects


def test_the_words_of_a_peer_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is in them: neither another line of the log, nor what a terminal obeys."""
    with caplog.at_level(logging.WARNING):
        Rejects().count("peer", "a socket", "malformed message: Invalid value 'x\n2026 INFO all is well\x1b[2J'")
    (record,) = caplog.records
    assert record.getMessage().endswith("malformed message: Invalid value 'x?2026 INFO all is well?[2J'")
