"""Deaths of training programs: each is killed in the middle of an epoch and started
again, and the samples that it has had are those of a run that was left alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import pytest

from tests.frameworks.launches import environment

PROGRAM = str(Path(__file__).with_name("interrupted.py"))
Command = tuple[str, ...]
ALONE: Command = (sys.executable,)
"""Starts a program of one process, or one whose library starts the others."""
Rows = list[tuple[int, list[int]]]
"""The rank that had a batch, and the numbers of its samples, batch by batch."""


def marks(*modules: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a module with tests of these libraries."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return [
        pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
        pytest.mark.realprocess,
        pytest.mark.timeout(600),  # three programs, of which each imports a library
    ]


class Run:
    """A training program.

    Args:
        service: address of the dispatcher.
        library: its library.
        kind: the kind of its loader.
        folder: folder of its checkpoints.
        save_at: number of batches after which it saves.
        stop_at: number of batches after which it waits for its death.
        launcher: command that starts its ranks.
        world: number of its ranks.
    """

    def __init__(
        self,
        service: str,
        library: str,
        kind: str,
        folder: Path,
        save_at: int = 0,
        stop_at: int = 0,
        launcher: Command = ALONE,
        world: int = 1,
    ) -> None:
        command = [*launcher, PROGRAM, library, kind, service, str(folder)]
        self._errors = TemporaryFile("w+")  # noqa: SIM115 - as long as the run
        self.process = subprocess.Popen(
            [*command, str(save_at), str(stop_at), str(world)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(),
        )
        self.world = world
        self.before: Rows = []
        self.after: Rows = []
        self.saved: set[int] = set()
        self._born: set[int] = set()

    def read(self, until: str) -> bool:
        """Read what the program prints until a line of each rank, or until its end.

        Returns:
            True if the lines were read.
        """
        assert self.process.stdout is not None
        found = set()
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "BORN":
                self._born.add(int(rest))
            elif word == "SAVED":
                self.saved.add(int(rest))
            elif word == "ROWS":
                rank, _, numbers = rest.partition(" ")
                rows = self.after if int(rank) in self.saved else self.before
                rows.append((int(rank), json.loads(numbers)))
            if word == until:
                found.add(rest)
                if len(found) == self.world:
                    return True
        return False

    def kill(self) -> None:
        """Kill the launcher and all ranks."""
        self.process.kill()
        for process in self._born - {self.process.pid}:
            os.kill(process, signal.SIGKILL)
        self.process.wait()

    def complaints(self) -> str:
        """Return what it has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read()


def by_rank(rows: Rows) -> Rows:
    """Return the batches of each rank, in its order, rank by rank."""
    return sorted(rows, key=lambda row: row[0])


@cache
def undisturbed(service: str, library: str, kind: str, launcher: Command, world: int) -> Rows:
    """Return the batches of a run that is left alone."""
    with TemporaryDirectory() as folder:
        return finished(Run(service, library, kind, Path(folder), 0, 0, launcher, world))


def finished(run: Run) -> Rows:
    """Return the batches that a program trains with until its end."""
    run.read("")
    assert run.process.wait() == 0, run.complaints()
    return by_rank(run.before)


def killed(run: Run, save_at: int) -> Rows:
    """Return the batches that a program has trained with until its checkpoint, and
    kill it two batches later.
    """
    has_stopped = run.read("STOPPED")
    run.kill()
    assert has_stopped, run.complaints()
    assert run.saved == {*range(run.world)}
    assert len(run.before) == save_at * run.world
    assert len(run.after) == 2 * run.world
    return run.before


def dies_and_resumes(
    service: str,
    library: str,
    kind: str,
    folder: Path,
    save_at: int,
    launcher: Command = ALONE,
    world: int = 1,
) -> tuple[Rows, Rows]:
    """Return the batches of a run that was killed and resumed, and those of one that
    was left alone.
    """
    whole = undisturbed(service, library, kind, launcher, world)
    ranks = (launcher, world)
    run = Run(service, library, kind, folder, save_at, save_at + 2, *ranks)
    before = killed(run, save_at)
    resumed = finished(Run(service, library, kind, folder, 0, 0, *ranks))
    return by_rank(before + resumed), whole
