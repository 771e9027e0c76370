"""Threads that do not look dead because somebody was interrupted."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zmqdata.threads import Background, available_cores


class Interrupt(BaseException):
    """What a signal handler raises, as KeyboardInterrupt."""


def interrupted(call: Callable[[], object]) -> Iterator[None]:
    """Makes a call again and again, each time interrupted a step later, until it is not
    any more.
    """
    for place in range(10_000):
        steps = 0

        def step(_frame: Any, _event: str, _what: Any, place: int = place) -> None:
            nonlocal steps
            steps += 1
            if steps > place:
                sys.setprofile(None)
                raise Interrupt

        sys.setprofile(step)
        try:
            call()
            sys.setprofile(None)
        except Interrupt:
            yield
            continue
        return
    pytest.fail("the call does not end")


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets the thread of a test end."""
    event = threading.Event()
    yield event
    event.set()


def test_interrupts_do_not_make_a_thread_look_dead(release: threading.Event) -> None:
    """Wherever in looking or waiting for it somebody is interrupted, it is alive until
    it has ended.
    """
    thread = Background(target=release.wait, daemon=True)
    thread.start()
    for call in (thread.is_alive, lambda: thread.join(0)):
        for _ in interrupted(call):
            assert thread.is_alive()
    release.set()
    while thread.is_alive():
        thread.join(0.1)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="these do so no more")
def test_threads_of_python_look_dead_then(release: threading.Event) -> None:
    """This is what ours are for: remove them with the last Python that does this."""
    thread = threading.Thread(target=release.wait, daemon=True)
    thread.start()
    assert not all(thread.is_alive() for _ in interrupted(thread.is_alive))


def test_a_thread_lives_from_its_start_to_its_end() -> None:
    """Neither before it is started nor after its target has returned or failed."""
    thread = Background(target=lambda: None)
    assert not thread.is_alive()
    thread.start()
    thread.join()
    assert not thread.is_alive()


def test_a_thread_lives_in_its_process_only(release: threading.Event) -> None:
    """A child of fork has none of its parent's threads."""
    thread = Background(target=release.wait, daemon=True)
    thread.start()
    child = os.fork()
    if not child:
        os._exit(thread.is_alive())
    assert os.waitpid(child, 0)[1] == 0
    assert thread.is_alive()


def test_there_is_a_core() -> None:
    """The number of usable cores is at least one and at most what the machine has."""
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
