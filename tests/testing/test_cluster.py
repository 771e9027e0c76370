"""Facts about the tools for tests with real processes: they find what they look for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from zmqdata.testing.cluster import await_condition, descendants, is_running, listens, no_leaks

WAITING = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


def test_a_condition_is_awaited_until_its_deadline() -> None:
    """A condition that becomes true ends the wait, and the error names a condition that
    does not.
    """
    asked = iter([False, False, True])
    await_condition(lambda: next(asked))
    with pytest.raises(TimeoutError, match=r"waited 0\.02 s in vain for the end"):
        await_condition(lambda: False, deadline=0.02, what="the end")


@pytest.mark.realprocess
def test_a_process_that_is_left_is_found() -> None:
    """A child process is among the descendants while it runs, and is a leak if it
    outlives the block.
    """
    with pytest.raises(AssertionError, match=r"left behind: .*process "), no_leaks(deadline=0.05):
        process = subprocess.Popen(WAITING, stdin=subprocess.PIPE)
    assert process.pid in descendants(os.getpid())
    assert is_running(process.pid)
    process.communicate()
    assert not is_running(process.pid)


def test_a_thread_that_is_left_is_found() -> None:
    """A thread that outlives the block is a leak, and the error names it."""
    end = threading.Event()
    with pytest.raises(AssertionError, match="thread straggler"), no_leaks(deadline=0.05):
        threading.Thread(target=end.wait, name="straggler").start()
    end.set()


def test_a_socket_that_is_left_is_found() -> None:
    """A listening socket that outlives the block is a leak, and listens until it is
    closed.
    """
    with pytest.raises(AssertionError, match="socket:"), no_leaks(deadline=0.05):
        server = socket.create_server(("127.0.0.1", 0))
    address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    assert listens(address)
    server.close()
    assert not listens(address)
