"""Tests of steps of ``zmqdata auto``, whose tasks start here as by ``srun``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.frameworks.launches import ROOT
from tests.full import full
from zmqdata.testing.cluster import await_condition, descendants, is_running
from zmqdata.worker.processes.supervisor import NO_DISPATCHER

pytestmark = pytest.mark.realprocess

START = 20.0
END = 5.0
"""Seconds within which all ends."""
READER = """
import os, sys
from zmqdata import Dataset, distribute
read = distribute("distributed_epoch", os.environ["ZMQDATA_DISPATCHER"], "train")
with open(f"{os.environ['SLURM_PROCID']}.rows", "w") as out:
    for row in Dataset.range(300).apply(read):
        print(int(row), file=out)
"""
WAITING = (
    "trap 'kill $!; exit 0' TERM; trap : USR1; tail -f /dev/null & echo $$ > $SLURM_PROCID.pid; "
    "while :; do wait; done"
)
"""A trainer that ends at SIGTERM, as one does that has saved its state."""
DEAF = "trap '' TERM; echo $$ > $SLURM_PROCID.pid; exec tail -f /dev/null"


class Step:
    """The tasks of a step, each in a session of its own, as Slurm starts them.

    Args:
        folder: the folder that they share, and in which they run.
        count: number of tasks.
        options: options of the command.
        command: command of the trainers.
    """

    def __init__(
        self, folder: Path, count: int, options: Sequence[str], command: Sequence[str]
    ) -> None:
        self.folder = folder
        self._log = (folder / "log").open("w+")
        variables = {
            "SLURM_NTASKS": str(count),
            "SLURM_JOB_ID": "7",
            "SLURM_STEP_ID": "0",
            "SLURM_SUBMIT_DIR": str(folder),
            "PYTHONPATH": ROOT,
        }
        program = [sys.executable, "-m", "zmqdata", "auto", "--log-level=warning"]
        self.tasks = [
            subprocess.Popen(
                [*program, *options, "--", *command],
                env={**os.environ, **variables, "SLURM_PROCID": str(number)},
                cwd=folder,
                stderr=self._log,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            for number in range(count)
        ]
        self.known: set[int] = set()

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        self.remember()
        for task in self.tasks:
            task.kill()
            task.wait()
        for pid in filter(is_running, self.known):
            os.kill(pid, signal.SIGKILL)
        self._log.close()

    @property
    def codes(self) -> list[int | None]:
        """Exit codes of the tasks; None of one that runs."""
        return [task.poll() for task in self.tasks]

    @property
    def log(self) -> str:
        """Standard error of all tasks."""
        return (self.folder / "log").read_text()

    def remember(self) -> None:
        """Note which processes the step has now."""
        self.known |= {pid for task in self.tasks for pid in descendants(task.pid)}

    def await_ranks(self, count: int) -> None:
        """Wait until so many trainers run their command, and the last worker runs."""
        found = self.folder.glob
        await_condition(lambda: len([*found("*.pid")]) == count, START, "trainers")
        await_condition(lambda: descendants(self.tasks[-1].pid), START, "a worker")
        self.remember()

    def signal(self, number: int) -> None:
        """Send a signal to every process of every task, as Slurm does."""
        for pid in [*self.known, *(task.pid for task in self.tasks)]:
            if is_running(pid):
                os.kill(pid, number)

    def check_end(self, codes: list[int], patience: float = END) -> None:
        """Check that all ends in time, with these exit codes, and leaves nothing."""
        begun = time.monotonic()
        await_condition(lambda: None not in self.codes, START, "the end of the step")
        assert time.monotonic() - begun < patience, self.log
        assert self.codes == codes, self.log
        await_condition(lambda: not any(map(is_running, self.known)), END, "the end of all")


def test_two_ranks_read_each_row_once(tmp_path: Path) -> None:
    """Two trainers with the ranks 0 and 1 read all rows together, and the step ends
    with 0 and leaves no file.
    """
    with Step(tmp_path, 4, ["--trainers=2"], [sys.executable, "-c", READER]) as step:
        step.check_end([0, 0, 0, 0], START)
    rows = [(tmp_path / f"{rank}.rows").read_text().split() for rank in range(2)]
    assert sorted(map(int, rows[0] + rows[1])) == list(range(300))
    assert [path.name for path in tmp_path.iterdir() if "zmqdata" in path.name] == []


@pytest.mark.full
def test_the_first_code_of_a_rank_is_that_of_the_step(tmp_path: Path) -> None:
    """A trainer that fails ends at once, the others go on, and later codes are not
    those of the step.
    """
    script = "[ $SLURM_PROCID = 1 ] && exit 3; echo > 0.pid; while [ ! -e go ]; do :; done; exit 7"
    with Step(tmp_path, 4, ["--trainers=2"], ["sh", "-c", script]) as step:
        step.await_ranks(1)
        await_condition(lambda: step.codes == [None, None, 3, None], START, "the first end")
        (tmp_path / "go").touch()
        step.check_end([0, 3, 3, 0])


def kill_command(step: Step) -> None:
    os.kill(int((step.folder / "0.pid").read_text()), signal.SIGKILL)


def kill_rank(step: Step) -> None:
    step.tasks[1].kill()


def kill_dispatcher(step: Step) -> None:
    step.tasks[0].kill()


def stop_all(step: Step) -> None:
    step.signal(signal.SIGTERM)
    step.signal(signal.SIGUSR1)
    step.signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("script", "event", "codes"),
    [
        (DEAF, kill_command, [0, 137, 0]),
        full(DEAF, kill_rank, [0, -9, 0]),
        (DEAF, kill_dispatcher, [-9, NO_DISPATCHER, NO_DISPATCHER]),
        full(WAITING, stop_all, [0, 0, 0]),
    ],
    ids=["command killed", "trainer killed", "dispatcher killed", "SIGTERM to all"],
)
def test_all_ends_with_the_last_rank_or_the_dispatcher(
    tmp_path: Path, script: str, event: Callable[[Step], None], codes: list[int]
) -> None:
    """The step ends within seconds of the death of a trainer, of its task or of the
    dispatcher, and at SIGTERM as its trainer does.
    """
    with Step(tmp_path, 3, [], ["sh", "-c", script]) as step:
        step.await_ranks(1)
        event(step)
        step.check_end(codes)


@pytest.mark.full
def test_a_step_without_a_working_worker_ends(tmp_path: Path) -> None:
    """If every worker has failed, the trainers end, and the code of a worker is that of
    the step.
    """
    with Step(
        tmp_path, 3, ["--processes=2", "--data-ports=9000-9000"], ["sh", "-c", WAITING]
    ) as step:
        step.check_end([0, 2, 0], START)
        assert step.log.count("\n") < 10


@pytest.mark.full
def test_a_missing_command_is_a_line(tmp_path: Path) -> None:
    """A command that cannot be started ends the step with 2, and a line that names
    it.
    """
    with Step(tmp_path, 3, [], ["no-such-command"]) as step:
        step.check_end([0, 2, 0], START)
        assert "`no-such-command`: No such file or directory." in step.log
