"""Tests of the end of iterators that no code closes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from zmqdata.client import lifetime
from zmqdata.transport.loop import Loop


class Silent:
    """An iterator whose dispatcher does not answer its goodbye."""

    def __init__(self, hopeless: bool = False, lost: str = "", patient: bool = False) -> None:
        self._hopeless, self._lost, self._patient = hopeless, lost, patient
        self.loop = Loop("silent", lambda: None)
        self.loop.start()
        self.asked = threading.Event()

    def ask_to_close(self) -> None:
        self.asked.set()

    def is_hopeless(self) -> bool:
        return self._hopeless

    def lost(self) -> tuple[str, bool]:
        if self._patient:  # its goodbye is over a moment later
            self.loop.stop()
        return self._lost, self._patient

    def leave(self) -> bool:
        lifetime.abandon(self, os.getpid())
        return True

    def after_fork(self) -> None:
        """Nothing belongs to the parent."""


def test_no_goodbye_is_waited_for_in_vain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a program does not wait for the answer of a dispatcher that is gone,
    logs what is lost, and does what comes before and after the goodbyes in this order.
    """
    iterators = [Silent(hopeless=True, lost=lost) for lost in ("7 elements are lost", "")]
    done: list[str] = []

    def note(what: str) -> None:
        done.append(f"{what} {sum(iterator.asked.is_set() for iterator in iterators)}")

    monkeypatch.setattr(lifetime, "LAST_WORDS", 3600.0)
    monkeypatch.setattr(lifetime, "alive", set())
    monkeypatch.setattr(lifetime, "abandoned", {})
    monkeypatch.setattr(lifetime, "before_goodbyes", [lambda: note("before")])
    monkeypatch.setattr(lifetime, "after_goodbyes", [lambda: note("after")])
    for iterator in iterators:
        lifetime.begin(iterator)
    lifetime._close_all()
    assert done == ["before 0", "after 2"]
    assert [record.getMessage() for record in caplog.records] == ["7 elements are lost"]
    for iterator in iterators:
        iterator.loop.stop()
    assert all(iterator.loop.join(10) for iterator in iterators)


def test_a_consumer_at_its_end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a program waits for a goodbye that must be heard until it is over,
    although the dispatcher refuses connections, and for no other goodbye.
    """
    patient, other = Silent(hopeless=True, patient=True), Silent(hopeless=True)
    ended: list[bool] = []
    monkeypatch.setattr(lifetime, "alive", {patient, other})
    monkeypatch.setattr(lifetime, "abandoned", {})
    monkeypatch.setattr(lifetime, "before_goodbyes", [])
    monkeypatch.setattr(
        lifetime, "after_goodbyes", [lambda: ended.append(patient.loop.thread.is_alive())]
    )
    lifetime._close_all()
    assert ended == [False]
    assert other.loop.thread.is_alive()
    other.loop.stop()
    assert other.loop.join(10)


def test_a_hook_that_fails_keeps_no_other_from_running(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error at the end of a program is logged with its traceback, and what comes
    after it is done.
    """

    def fails() -> None:
        raise ValueError("no")

    iterator, done = Silent(hopeless=True), list[str]()
    monkeypatch.setattr(lifetime, "alive", {iterator})
    monkeypatch.setattr(lifetime, "abandoned", {})
    monkeypatch.setattr(lifetime, "before_goodbyes", [fails, lambda: done.append("before")])
    monkeypatch.setattr(lifetime, "after_goodbyes", [fails, lambda: done.append("after")])
    lifetime._close_all()
    assert done == ["before", "after"]
    assert iterator.asked.is_set()
    assert caplog.text.count("ValueError: no") == 2
    iterator.loop.stop()
    assert iterator.loop.join(10)


def test_iterators_say_goodbye_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a program asks all iterators to leave before it waits, and waits for
    all of them as long as for one.
    """
    looks: list[float] = []

    def look() -> float:
        looks.append(len(looks) * lifetime.LOOKS)
        return looks[-1]

    monkeypatch.setattr(lifetime, "time", SimpleNamespace(monotonic=look))
    monkeypatch.setattr(lifetime, "LAST_WORDS", 3 * lifetime.LOOKS)
    monkeypatch.setattr(lifetime, "alive", set())
    monkeypatch.setattr(lifetime, "abandoned", {})
    monkeypatch.setattr(lifetime, "before_goodbyes", [])
    monkeypatch.setattr(lifetime, "after_goodbyes", [])
    iterators = [Silent() for _ in range(20)]
    for iterator in iterators:
        lifetime.begin(iterator)
    lifetime._close_all()
    assert len(looks) == 4
    assert all(iterator.asked.is_set() for iterator in iterators)
    for iterator in iterators:
        iterator.loop.stop()
    assert all(iterator.loop.join(10) for iterator in iterators)


ORDER = """
import atexit
from zmqdata.client import lifetime
lifetime.after_goodbyes.append(lambda: print("closed"))
atexit.register(print, "library")
lifetime.end_before_others()
"""


def test_goodbyes_come_before_the_end_of_a_library() -> None:
    """Goodbyes come before exit handlers that were registered until then, and once."""
    done = subprocess.run([sys.executable, "-c", ORDER], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["closed", "library"]
