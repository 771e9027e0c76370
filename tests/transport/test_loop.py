"""Tests of the thread that owns a server's sockets."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest
import zmq

from zmqdata.transport import loop as module
from zmqdata.transport.loop import CROWD, FAIR_SHARE, TURN, Loop


class Moved:
    """The module ``time`` with a clock that only the test advances."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Moved:
    """Replace the loops' clock, so that a busy machine does not shorten a turn."""
    moved = Moved()
    monkeypatch.setattr(module, "time", moved)
    return moved


def test_a_fault_is_heard_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    """The loop reports a callback's exception, logs it, and makes the next call."""
    heard: list[tuple[str, int]] = []
    loop = Loop(
        "test", lambda: None, fault=lambda error: heard.append((str(error), len(caplog.records)))
    )
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
    assert "unexpected error in a callback; the loop continues" in caplog.text


def test_what_takes_long_to_hear_keeps_nobody_waiting(clock: Moved) -> None:
    """A slow socket's turn ends after a message; quick messages share a turn."""
    heard: list[str] = []
    done = threading.Event()
    with zmq.Context() as context:
        loop = Loop("test", lambda: None)
        ends = []
        for name in ("slow", "quick"):
            reader, writer = context.socket(zmq.PULL), context.socket(zmq.PUSH)
            reader.bind(f"inproc://{name}")
            writer.connect(f"inproc://{name}")
            for _ in range(5):
                writer.send(name.encode())

            def hear(reader: zmq.Socket[bytes] = reader) -> bool:
                try:
                    heard.append(reader.recv(zmq.NOBLOCK).decode())
                except zmq.Again:
                    return False
                if heard[-1] == "slow":
                    clock.now += 2 * TURN
                if len(heard) == 10:
                    done.set()
                return True

            loop.read(reader, hear)
            ends += [reader, writer]
        loop.start()
        assert done.wait(30)
        loop.stop()
        assert loop.join(10)
        for one in ends:
            one.close(linger=0)
    assert FAIR_SHARE >= 5
    assert heard == ["slow", *["quick"] * 5, *["slow"] * 4]


def test_calls_are_made_when_they_are_due() -> None:
    """Calls run in the order of their times, never early, nor after the loop ends."""
    made: list[tuple[str, float]] = []
    done = threading.Event()
    loop = Loop("test", lambda: None, period=60.0)
    begun = time.monotonic()
    for seconds, name in ((0.03, "third"), (0.01, "first"), (0.02, "second"), (600.0, "never")):
        loop.later(seconds, lambda name=name: made.append((name, time.monotonic() - begun)))  # type: ignore[misc]
    loop.later(0.04, done.set)
    loop.start()
    assert done.wait(30)
    loop.stop()
    assert loop.join(10)
    assert [name for name, _ in made] == ["first", "second", "third"]
    assert all(when >= due for (_, when), due in zip(made, (0.01, 0.02, 0.03), strict=True))


def test_a_socket_rests_and_the_others_do_not() -> None:
    """A resting socket's messages wait until it resumes; a forgotten socket stays
    unread.
    """
    heard: list[bytes] = []
    done = threading.Event()
    with zmq.Context() as context:
        loop = Loop("test", lambda: None)
        ends = []
        for name in ("rests", "forgotten", "other"):
            reader, writer = context.socket(zmq.PULL), context.socket(zmq.PUSH)
            reader.bind(f"inproc://{name}")
            writer.connect(f"inproc://{name}")
            ends += [reader, writer]

            def hear(reader: zmq.Socket[bytes] = reader) -> bool:
                try:
                    heard.append(reader.recv(zmq.NOBLOCK))
                except zmq.Again:
                    return False
                if heard[-1] == b"rests":
                    done.set()
                return True

            loop.read(reader, hear)
            writer.send(name.encode())
        loop.rest(ends[0], 0.02)
        loop.rest(ends[0], 0.0)
        loop.rest(ends[2], 0.0)
        loop.forget(ends[2])
        loop.start()
        assert done.wait(30)
        loop.stop()
        assert loop.join(10)
        for end in ends:
            end.close(linger=0)
    assert heard == [b"other", b"rests"]


@pytest.mark.parametrize("gather", [0.0, 2.0])
def test_many_messages_gather(clock: Moved, gather: float) -> None:
    """A loop under high load may wait after a full read for messages to accumulate."""
    count, drained, again = 3 * FAIR_SHARE + 1, threading.Event(), threading.Event()
    heard = 0
    with zmq.Context() as context:
        reader, writer = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        reader.bind("inproc://crowd")
        writer.connect("inproc://crowd")
        for _ in range(count):
            writer.send(b"")
        loop = Loop(
            "test", lambda: None, period=FAIR_SHARE / CROWD, ended=reader.close, gather=gather
        )

        def hear() -> bool:
            nonlocal heard
            try:
                reader.recv(zmq.NOBLOCK)
            except zmq.Again:
                drained.set()
                return False
            heard += 1
            if heard > count:
                again.set()
            return True

        loop.read(reader, hear)
        loop.start()
        try:
            assert drained.wait(10)
            assert heard == count
            writer.send(b"")
            if gather:
                assert not again.wait(0.05)
            assert again.wait(10)
        finally:
            writer.close()
            loop.stop()
            assert loop.join(10)
