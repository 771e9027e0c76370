"""Tests of ``zmqdata top`` as a user runs it: in a terminal, and into a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator

import pytest

from tests.processes.test_commands import START, running
from zmqdata.testing.cluster import await_condition

pytestmark = pytest.mark.realprocess

QUESTIONS = ["--interval", "0.2", "--timeout", "1"]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """The address of a dispatcher that stays."""
    with running("dispatcher") as server:
        server.await_ready(START)
        yield server.address


class Output:
    """Collect what a process writes to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.text = ""
        self._descriptor = descriptor
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        # A terminal whose other side is closed raises an error.
        with contextlib.suppress(OSError):
            while content := os.read(self._descriptor, 65536):
                self.text += content.decode(errors="replace")

    def await_text(self, pattern: str) -> None:
        await_condition(lambda: bool(re.search(pattern, self.text)), START, pattern)

    def finish(self) -> None:
        self._thread.join(START)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def piped(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Output]]:
    """Run the command with a pipe for its output."""
    with subprocess.Popen(
        [sys.executable, "-m", "zmqdata", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        output = Output(process.stdout.fileno())
        try:
            yield process, output
        finally:
            process.kill()
            process.wait(START)
            output.finish()


@pytest.mark.parametrize("end", ["key", "signal"])
def test_in_a_terminal(target: str, end: str) -> None:
    """The picture has a screen of its own and fits it. The key ``q`` and Ctrl-C end the
    command with code 0, and leave the terminal as it was.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "zmqdata", "top", "--dispatcher", target]
    with subprocess.Popen(
        [*command, *QUESTIONS],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        output = Output(ours)
        try:
            output.await_text("(?s)No job yet.*No job yet")
            assert output.text.startswith("\x1b[?1049h")
            if end == "key":
                os.write(ours, b"q")
            else:
                process.send_signal(signal.SIGINT)
            assert process.wait(START) == 0
            assert termios.tcgetattr(theirs) == before
            output.await_text(re.escape("\x1b[?1049l"))
            assert "Traceback" not in output.text
        finally:
            process.kill()
            os.close(theirs)
            output.finish()
            os.close(ours)


def test_a_dispatcher_goes_away() -> None:
    """Into a pipe, the command prints each answer. It says that the dispatcher does not
    answer, and asks on until Ctrl-C, which ends it with code 0.
    """
    with running("dispatcher") as dispatcher:
        dispatcher.await_ready(START)
        arguments = ["status", "--watch", "--dispatcher", dispatcher.address, *QUESTIONS]
        with piped(*arguments) as (process, output):
            output.await_text("(?s)zmqdata top.*zmqdata top")
            assert "No answer" not in output.text
            assert "\x1b" not in output.text
            dispatcher.kill()
            output.await_text("(?s)No answer for [0-9]+ s.*No answer for [0-9]+ s")
            process.send_signal(signal.SIGINT)
            assert process.wait(START) == 0


def test_lines_of_json(target: str) -> None:
    """Each answer is a line with ``--json``."""
    arguments = ["top", "--json", "--dispatcher", target, *QUESTIONS]
    with piped(*arguments) as (process, output):
        output.await_text("\n.*\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(START) == 0
    found = [json.loads(line) for line in output.text.splitlines()]
    assert {one["dispatcher"] for one in found} == {target}


@pytest.mark.parametrize("options", [["--json"], []])
def test_a_reader_that_has_left_ends_the_command(target: str, options: list[str]) -> None:
    """Behind a closed pipe, as of ``head -1``, the command ends with code 1 and without
    an error, with ``--json`` and without.
    """
    command = [sys.executable, "-m", "zmqdata", "top", "--dispatcher", target, *QUESTIONS]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline()
            process.stdout.close()
            assert process.wait(START) == 1
        finally:
            process.kill()
        assert process.stderr.read() == b""


def test_without_a_dispatcher() -> None:
    """The first question must be answered: the command ends with code 1 and a line."""
    command = [sys.executable, "-m", "zmqdata", "top", "--dispatcher", "tcp://127.0.0.1:1"]
    ended = subprocess.run(
        [*command, "--timeout", "0.3"], capture_output=True, text=True, timeout=START, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "tcp://127.0.0.1:1" in ended.stderr
    ended = subprocess.run(
        [*command, "--interval", "0"], capture_output=True, text=True, timeout=START, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "`interval` must be a positive number of seconds" in ended.stderr
