"""Tests of the end of iterators that no code closes."""

from __future__ import annotations

import os
import threading
import time

import pytest

from zmqdata.client import lifetime
from zmqdata.transport.loop import Loop


class Silent:
    """An iterator whose dispatcher does not answer its goodbye."""

    def __init__(self) -> None:
        self.loop = Loop("silent", lambda: None)
        self.loop.start()
        self.asked = threading.Event()

    def ask_to_close(self) -> None:
        self.asked.set()

    def leave(self) -> bool:
        lifetime.abandon(self, os.getpid())
        return True

    def after_fork(self) -> None:
        """Nothing belongs to the parent."""


def test_iterators_say_goodbye_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a program asks all iterators to leave before it waits, and waits for
    all of them as long as for one.
    """
    monkeypatch.setattr(lifetime, "LAST_WORDS", 0.3)
    monkeypatch.setattr(lifetime, "alive", set())
    monkeypatch.setattr(lifetime, "abandoned", set())
    iterators = [Silent() for _ in range(20)]
    for iterator in iterators:
        lifetime.begin(iterator)
    began = time.monotonic()
    lifetime._close_all()
    assert time.monotonic() - began < 20 * 0.3 / 2
    assert all(iterator.asked.is_set() for iterator in iterators)
    for iterator in iterators:
        iterator.loop.stop()
    assert all(iterator.loop.join(10) for iterator in iterators)
