"""Deaths of training programs: each is killed in the middle of an epoch and started
again, and the samples that it has had are those of a run that was left alone.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import pytest

from tests.frameworks.launches import environment

PROGRAM = str(Path(__file__).with_name("interrupted.py"))
Rows = list[tuple[int, list[int]]]
"""The rank that had a batch, and the numbers of its samples, batch by batch."""


def marks(*modules: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a module with tests of these libraries."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return [
        pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
        pytest.mark.realprocess,
        pytest.mark.timeout(300),
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
    """

    def __init__(
        self,
        service: str,
        library: str,
        kind: str,
        folder: Path,
        save_at: int = 0,
        stop_at: int = 0,
        launcher: Sequence[str] = (sys.executable,),
    ) -> None:
        command = [*launcher, PROGRAM, library, kind, service, str(folder)]
        self._errors = TemporaryFile("w+")  # noqa: SIM115 - as long as the run
        self.process = subprocess.Popen(
            [*command, str(save_at), str(stop_at)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(),
        )
        self.before: Rows = []
        self.after: Rows = []
        self.has_saved = False

    def read(self, until: str) -> bool:
        """Read what the program prints until a line, or until its end.

        Returns:
            True if the line was read.
        """
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "ROWS":
                rank, numbers = json.loads(rest)
                (self.after if self.has_saved else self.before).append((rank, numbers))
            self.has_saved |= word == "SAVED"
            if word == until:
                return True
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def complaints(self) -> str:
        """Return what it has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read()


@cache
def undisturbed(service: str, library: str, kind: str) -> Rows:
    """Return the batches of a run that is left alone."""
    with TemporaryDirectory() as folder:
        run = Run(service, library, kind, Path(folder))
        run.read("")
        assert run.process.wait() == 0, run.complaints()
        return run.before


def killed(service: str, library: str, kind: str, folder: Path, save_at: int) -> Rows:
    """Return the batches that a program has trained with until its checkpoint, and
    kill it two batches later.
    """
    run = Run(service, library, kind, folder, save_at, save_at + 2)
    has_stopped = run.read("STOPPED")
    run.kill()
    assert has_stopped, run.complaints()
    assert run.has_saved
    assert len(run.before) == save_at
    assert len(run.after) == 2
    return run.before


def resumed(service: str, library: str, kind: str, folder: Path) -> Rows:
    """Return the batches that a program trains with after its checkpoint."""
    run = Run(service, library, kind, folder)
    run.read("")
    assert run.process.wait() == 0, run.complaints()
    return run.before


def dies_and_resumes(
    service: str, library: str, kind: str, folder: Path, save_at: int
) -> tuple[Rows, Rows]:
    """Return the batches of a run that was killed and resumed, and those of one that
    was left alone.
    """
    whole = undisturbed(service, library, kind)
    before = killed(service, library, kind, folder, save_at)
    return before + resumed(service, library, kind, folder), whole
