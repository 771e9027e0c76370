"""Tests of reports about rejected input. ``tests/service/test_hostile.py`` tests their
limits.
"""

from __future__ import annotations

import logging

import pytest

from zmqdata.transport.rejects import REST, WASTED, Rejects


def test_the_words_of_a_peer_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A peer's text is a single log line without control characters."""
    with caplog.at_level(logging.WARNING):
        Rejects().count(
            "peer", "a socket", "malformed message: Invalid value 'x\n2026 INFO all is well\x1b[2J'"
        )
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "malformed message: Invalid value 'x?2026 INFO all is well?[2J'"
    )


def test_a_socket_full_of_nonsense_rests() -> None:
    """A socket rests after each batch of dropped messages. The server then has time for
    its valid peers.
    """
    rested: list[tuple[str, float]] = []

    class Loop:
        def rest(self, socket: str, seconds: float) -> None:
            rested.append((socket, seconds))

    rejects, loop = Rejects(), Loop()
    for _ in range(2 * WASTED + WASTED - 1):
        rejects.drop(loop, "socket", "peer", "a socket", "nonsense")  # type: ignore[arg-type]
    assert rested == [("socket", REST)] * 2
    assert rejects.total == 3 * WASTED - 1
