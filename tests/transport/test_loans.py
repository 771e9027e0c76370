"""Tests of memory on loan."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.kit.forks import told_by_child
from zmqdata.transport.loans import Pool, address_of, lend


@pytest.mark.parametrize(
    "view",
    [
        lambda lent: lent[10:20],
        lambda lent: lent.view(np.float64).reshape(2, -1)[1],
        lambda lent: memoryview(lent)[3:],
        lambda lent: np.frombuffer(memoryview(lent), np.int32).reshape(8, 2).T[0],
    ],
)
def test_it_is_given_back_with_the_last_view(view: object) -> None:
    """Memory is released once, after the last slice, cast, buffer or nested view."""
    room, back = np.arange(64, dtype=np.uint8), []
    lent = lend(address_of(room), 64, lambda: back.append(1))
    assert lent.flags.writeable
    last = view(lent)  # type: ignore[operator]
    del lent
    assert back == []
    del last
    assert back == [1]


def test_a_forked_child_gives_nothing_back() -> None:
    """A forked child releases none of its copied views; the parent still does."""
    room, back = np.zeros(8, np.uint8), []
    views = [lend(address_of(room), 8, lambda: back.append(1))]

    def drop() -> int:
        views.clear()
        return len(back)

    assert told_by_child(drop) == "0"
    views.clear()
    assert back == [1]


ENDING = """
import ctypes, sys, types

library = sys.modules["library"] = types.ModuleType("library")
from zmqdata.transport import loans

pool = loans.Pool()
library.kept = pool.take(1 << 17), memoryview(pool.take(1 << 17))
library.cycle = [pool.take(1 << 17)]
library.cycle.append(library.cycle)
for module in (library, loans):
    # Modules that live on, as for a library in C, lose their names at last, the newest first.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
"""


def test_the_end_of_the_interpreter_is_silent() -> None:
    """Views that outlive the names of our modules cause no message at the end of a
    program.
    """
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", ENDING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class Pooling(RuleBasedStateMachine):
    """A pool whose views never share bytes and whose kept memory is limited."""

    MOST = 1 << 20

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(self.MOST)
        self.held: list[tuple[int, Any]] = []
        self.marks = 0

    @rule(nbytes=st.integers(1, 400_000))
    def take(self, nbytes: int) -> None:
        """Take a view of the requested size, writable and at a multiple of 64."""
        taken = self.pool.take(nbytes)
        assert taken.size == nbytes
        assert taken.ctypes.data % 64 == 0
        self.marks = (self.marks + 1) % 251
        taken[:] = self.marks
        self.held.append((self.marks, taken))

    @rule(place=st.integers(0, 20))
    def drop(self, place: int) -> None:
        """Drop a view, so that the pool can reuse its memory."""
        if place < len(self.held):
            del self.held[place]

    @invariant()
    def nobody_writes_to_what_is_held(self) -> None:
        """Assert that every held view contains the bytes written to it."""
        assert all((taken == mark).all() for mark, taken in self.held)

    @invariant()
    def what_is_kept_is_bounded(self) -> None:
        """Assert that memory kept for reuse is limited and reported correctly."""
        free = [buffer for buffers in self.pool._free.values() for buffer in buffers]
        assert sum(buffer.size for buffer in free) == self.pool.kept <= self.MOST


TestPooling = Pooling.TestCase


def test_a_pool_keeps_the_sizes_that_are_used() -> None:
    """A full pool drops buffers of sizes that were not requested recently."""
    pool = Pool(700_000)
    addresses = {}
    for size in (100_000, 200_000, 300_000):
        buffer = pool.take(size)
        addresses[size] = address_of(buffer)
        del buffer
    buffer = pool.take(100_000)
    assert address_of(buffer) == addresses[100_000]
    del buffer
    wide = pool.take(400_000)
    del wide
    assert sorted(pool._free) == [114688, 458752]


def test_a_buffer_dropped_while_the_pool_is_busy_is_freed() -> None:
    """A view freed by the garbage collector inside the pool causes no deadlock."""
    pool = Pool()
    buffer = pool.take(100_000)
    with pool._lock:
        del buffer
    assert pool.kept == 0
