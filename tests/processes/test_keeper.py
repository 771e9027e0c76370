"""Tests of a dispatcher command with a journal, which restarts its process when it is
killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqdata import Dataset, distribute
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import await_condition, descendants, is_running, listens
from zmqdata.worker.processes.lifetime import SIGNALLED

pytestmark = pytest.mark.realprocess

START = 30.0
COUNT = 20_000


class Command:
    """``python -m zmqdata.dispatcher`` as a user starts it; files receive its
    output.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.output, self.errors = folder / "output", folder / "errors"
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "zmqdata.dispatcher", "--log-level=warning", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

    @property
    def addresses(self) -> list[str]:
        return [line.split()[-1] for line in self.output.read_text().splitlines()]

    @property
    def served_by(self) -> list[int]:
        return descendants(self.process.pid)

    def await_lives(self, count: int) -> None:
        await_condition(lambda: len(self.addresses) == count, START, f"life {count}")

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(START)


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[Command]:
    command = Command(folder, *options)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.wait()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Command]:
    """A dispatcher with a journal, which listens."""
    with running(tmp_path, f"--work-dir={tmp_path / 'journal'}") as command:
        command.await_lives(1)
        yield command


def test_a_dispatcher_that_is_killed_goes_on(kept: Command) -> None:
    """A dispatcher that a crash or a lack of memory kills is restarted; a loop reads
    each element once.
    """
    address = kept.addresses[0]
    options = ["--dispatcher", address, "--heartbeat-interval-ms=100", "--log-level=warning"]
    with contextlib.closing(ServerProcess("zmqdata.worker", options)) as worker:
        worker.launch()
        dataset = Dataset.range(COUNT).apply(
            distribute("distributed_epoch", address, max_outstanding_requests=64)
        )
        numbers = iter(dataset)
        found = []
        for life, death in enumerate([signal.SIGABRT, signal.SIGKILL], 2):
            found += [int(next(numbers)) for _ in range(1_000)]
            [child] = kept.served_by
            os.kill(child, death)
            kept.await_lives(life)
        found += map(int, numbers)
    assert sorted(found) == list(range(COUNT))
    assert set(kept.addresses) == {address}
    # A write that a death has cut off is on a line of its own.
    first, second = [
        line for line in kept.errors.read_text().splitlines() if " was cut off" not in line
    ]
    assert "was killed by SIGABRT" in first
    assert "was killed by SIGKILL" in second
    assert first.endswith("it is restarted")


def test_no_process_is_left_for_it_now() -> None:
    """The command retries, as after a death, if the system cannot start a process."""
    program = """
        import os, signal, sys
        from zmqdata.cli import keeper
        from zmqdata.worker.processes.lifetime import StopSignals

        left, fork = [1, 1], os.fork

        def few():
            if left:
                left.pop()
                raise BlockingIOError(11, "Resource temporarily unavailable")
            return fork()

        os.fork, keeper.FIRST_PAUSE = few, 0.001
        sys.exit(keeper.keep(lambda port, stop, ready: 7, StopSignals(waking=(signal.SIGCHLD,))))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START)
    assert (done.returncode, done.stderr.count("cannot be started now")) == (7, 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to(kept: Command, number: int) -> None:
    """A signal ends the command and its process with exit code 0, and does not cause a
    restart.
    """
    [child] = kept.served_by
    assert kept.end(number) == 0
    assert not is_running(child)
    assert (len(kept.addresses), kept.errors.read_text()) == (1, "")


@pytest.mark.parametrize("is_child_first", [True, False])
def test_it_ends_in_order_when_all_of_it_is_told_to(kept: Command, is_child_first: bool) -> None:
    """The serving process ends cleanly when it gets the signal twice, as a service
    manager signals all processes of a service.
    """
    [child] = kept.served_by
    both = [child, kept.process.pid]
    for one in both if is_child_first else reversed(both):
        os.kill(one, signal.SIGTERM)
    assert kept.process.wait(START) == 0
    assert not is_running(child)


def test_it_ends_with_its_keeper(kept: Command) -> None:
    """The serving process never outlives the command."""
    [child] = kept.served_by
    assert kept.end(signal.SIGKILL) == -signal.SIGKILL
    await_condition(lambda: not is_running(child), START, "the end of the process that serves")
    await_condition(lambda: not listens(kept.addresses[0]), START, "the end of its socket")


def test_an_error_of_the_user_ends_it(kept: Command, tmp_path: Path) -> None:
    """A dispatcher that cannot start says why in a single line and ends with exit code
    2, without a retry.
    """
    folder = tmp_path / "another"
    folder.mkdir()
    port = kept.addresses[0].rpartition(":")[2]
    with running(folder, f"--work-dir={folder / 'journal'}", f"--port={port}") as command:
        assert command.process.wait(START) == 2
        [line] = command.errors.read_text().splitlines()
        assert "the port is in use" in line


def test_without_a_journal_there_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    """A dispatcher without a journal is a single process, which is not restarted."""
    with running(tmp_path) as command:
        command.await_lives(1)
        assert command.served_by == []
        assert command.end(signal.SIGABRT) == -signal.SIGABRT


@pytest.mark.full
def test_one_that_does_not_react_is_killed(kept: Command) -> None:
    """A stopped process cannot keep the command from ending; the command kills it."""
    [child] = kept.served_by
    os.kill(child, signal.SIGSTOP)
    assert kept.end(signal.SIGTERM) == SIGNALLED + signal.SIGKILL
    assert not is_running(child)


def test_one_that_is_always_killed_before_it_is_ready_is_given_up() -> None:
    """After five failed starts in a row the command ends as if the last signal had been
    its own.
    """
    program = """
        import os, signal, sys
        from zmqdata.cli import keeper
        from zmqdata.worker.processes.lifetime import StopSignals

        def serve(port, stop, ready):
            print("a life", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        keeper.FIRST_PAUSE = 0.001
        sys.exit(keeper.keep(serve, StopSignals(waking=(signal.SIGCHLD,))))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START)
    assert (done.returncode, done.stdout) == (SIGNALLED + signal.SIGKILL, "a life\n" * 5)
