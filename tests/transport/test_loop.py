"""Facts about the thread that owns the sockets of a server."""

from __future__ import annotations

import logging
import threading

import pytest

from zmqdata.transport.loop import Loop


def test_a_fault_is_heard_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    """What a callback raises is told to whoever wants to hear it, before it is logged; the next call is made."""
    heard: list[tuple[str, int]] = []
    loop = Loop("test", lambda: None, fault=lambda error: heard.append((str(error), len(caplog.records))))
    reached = threading.Event()

    def fail() -> None:
        raise MemoryError("no room")

    with caplog.at_level(logging.ERROR):
        loop.post(fail)
        loop.post(reached.set)
        loop.start()
        assert reached.wait(10)
        loop.stop()
        assert loop.join(10)
    assert heard == [("no room", 0)]
    assert "unexpected error; going on" in caplog.text
