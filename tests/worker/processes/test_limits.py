"""Tests of the limits of a child process."""

from __future__ import annotations

import errno
import mmap
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.printable import shown_bytes
from zmqdata.worker.processes import limits as module
from zmqdata.worker.processes.limits import (
    LEAST_MEMORY,
    NO_LIMITS,
    bytes_of,
    is_starvation,
    read_memory,
    tasks_of,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("268435456", 1 << 28),
        ("256MiB", 1 << 28),
        (" 1 GiB ", 1 << 30),
        ("2G", 2 << 30),
        ("2Gi", 2 << 30),
        ("3GB", 3 << 30),
        ("1T", 1 << 40),
        ("300_000_000 B", 300_000_000),
    ],
)
def test_bytes_are_read_as_people_write_them(text: str, size: int) -> None:
    """A number of bytes is accepted with or without a unit. Units are powers of 1024,
    as is usual for memory.
    """
    assert bytes_of(text) == size


@pytest.mark.parametrize(
    "text", ["", "many", "-1", "1.5GiB", "2gib", "GiB", "0x10000000", "٣٠٠٠٠٠٠٠٠"]
)
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    """The error shows the refused value and what was expected."""
    with pytest.raises(
        ValueError, match=r"`memory_limit`: expected a number of bytes such as 2GiB.*, got '"
    ):
        bytes_of(text)


@pytest.mark.parametrize("text", ["0", "255MiB", "9999999T"])
def test_a_limit_leaves_room_for_the_process_itself(text: str) -> None:
    """A limit in which no child could start is refused, as is an absurdly large
    limit.
    """
    with pytest.raises(ValueError, match=f"needs 256 MiB at least.* got '{text}'"):
        bytes_of(text)


def test_other_systems_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit is refused on systems that do not enforce it."""
    monkeypatch.setattr(module.sys, "platform", "darwin")
    with pytest.raises(ValueError, match="only Linux holds a process to it, and this is darwin"):
        bytes_of("1GiB")


@given(st.integers(LEAST_MEMORY, 1 << 50))
def test_a_number_of_bytes_is_shown_briefly(size: int) -> None:
    """A number of bytes is shown with three digits and a unit, which is within a
    percent of the number.
    """
    number, unit = shown_bytes(size).split()
    assert float(number) * {"MiB": 1 << 20, "GiB": 1 << 30}[unit] == pytest.approx(size, rel=0.01)


def test_the_memory_of_this_process_is_read() -> None:
    """The resident size and the memory that a limit counts are those of the system's
    account in words. Memory that was allocated and not used counts for the limit only.
    """
    before = read_memory()
    held = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    after = read_memory()
    assert before is not None
    assert after is not None
    assert after[1] - before[1] == pytest.approx(64 << 20, rel=0.05)
    assert after[0] - before[0] < 32 << 20
    told = Path("/proc/self/status").read_text(encoding="ascii")
    rss = int(told.partition("VmRSS:")[2].split()[0]) << 10
    assert after[0] == pytest.approx(rss, rel=0.1)
    held.close()


@given(st.integers(1, 10**6), st.integers(1, 1000))
def test_children_take_turns(most: int, processes: int) -> None:
    """The first child may have the maximum of tasks. Each other child has at least half
    of it, rounded up.
    """
    shares = [tasks_of(most, index, processes) for index in range(processes)]
    assert shares[0] == most
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] >= -(-most // 2)


def test_without_a_limit_of_tasks_there_is_none() -> None:
    """Without a maximum of tasks, zero stays zero for every child."""
    assert {tasks_of(0, index, 9) for index in range(9)} == {0}


@pytest.mark.parametrize(
    ("error", "starves"),
    [
        (MemoryError("no room"), True),
        (OSError(errno.ENOMEM, "no room"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("can't start"), False),
        (OSError(errno.EACCES, "no"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_a_lack_of_memory_has_several_names(error: BaseException, starves: bool) -> None:
    """A lack of memory is recognized directly and as the cause of another exception."""
    around = ValueError("in map")
    around.__cause__ = error
    assert [is_starvation(one) for one in (error, around)] == [starves, starves]


def test_a_circle_of_causes_ends() -> None:
    """An exception that is its own cause does not count as a lack of memory."""
    error = ValueError()
    error.__cause__ = error
    assert not is_starvation(error)


def test_nothing_is_bound_without_limits() -> None:
    """Without limits the process stays unchanged."""
    NO_LIMITS.bind()
    assert bytearray(LEAST_MEMORY // 16)


BOUND = """
import resource, sys
from zmqdata.worker.processes.limits import Limits
if sys.argv[2] == "held":
    resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]) // 2,) * 2)
Limits(memory=int(sys.argv[1]), confined=True).bind()
print(*resource.getrlimit(resource.RLIMIT_DATA))
try:
    bytearray(2 * int(sys.argv[1]))
except MemoryError:
    print("no memory")
print(open("/proc/self/status").read().partition("NoNewPrivs:")[2].split()[0])
"""


@pytest.mark.realprocess
@pytest.mark.parametrize(("before", "kept"), [("free", LEAST_MEMORY), ("held", LEAST_MEMORY // 2)])
def test_a_process_is_bound(before: str, kept: int) -> None:
    """A limited process gets no more memory than its limit and any earlier limit, and
    gains no further rights.
    """
    command = [sys.executable, "-c", BOUND, str(LEAST_MEMORY), before]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split("\n") == [f"{kept} {kept}", "no memory", "1", ""]
