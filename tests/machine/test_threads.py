"""Tests of threads that survive interrupts of their callers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zmqdata.machine.threads import Background, available_cores


class Interrupt(BaseException):
    """The exception of a signal handler, like KeyboardInterrupt."""


def interrupted(call: Callable[[], object]) -> Iterator[None]:
    """Repeat a call, interrupting it a step later each time, until it completes."""
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
    """Let the thread of a test end."""
    event = threading.Event()
    yield event
    event.set()


def test_interrupts_do_not_make_a_thread_look_dead(release: threading.Event) -> None:
    """An interrupt while checking or joining a thread leaves it alive until it ends."""
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
    """Python's own threads look dead after an interrupt, which is why ``Background``
    exists. Remove it together with the last Python version that has this bug.
    """
    thread = threading.Thread(target=release.wait, daemon=True)
    thread.start()
    assert not all(thread.is_alive() for _ in interrupted(thread.is_alive))


def test_a_thread_lives_from_its_start_to_its_end() -> None:
    """A thread is alive only from its start until its target returns or raises."""
    thread = Background(target=lambda: None)
    assert not thread.is_alive()
    thread.start()
    thread.join()
    assert not thread.is_alive()


def test_a_thread_lives_in_its_process_only(release: threading.Event) -> None:
    """A forked child sees none of its parent's threads as alive."""
    thread = Background(target=release.wait, daemon=True)
    thread.start()
    child = os.fork()
    if not child:
        os._exit(thread.is_alive())
    assert os.waitpid(child, 0)[1] == 0
    assert thread.is_alive()


def test_there_is_a_core() -> None:
    """The number of usable cores is at least 1 and at most the machine's."""
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
