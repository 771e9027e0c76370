"""Helpers for tests that start ``launched.py`` by a launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).with_name("launched.py"))
ROOT = str(Path(__file__).parents[2])
ALL = Counter(range(600))
ASKED_FOR = pytest.mark.skipif(
    "ZMQDATA_LAUNCHERS" not in os.environ, reason="only `make test-slurm` and `test-mpi` run it"
)
"""Marks tests of launchers, which take minutes where their programs are installed."""


def environment(**more: str) -> dict[str, str]:
    """Return the environment for a launcher: this package is found by its ranks."""
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def launch(*command: str, **more: str) -> str:
    """Run a launcher to its end, and return what it has printed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment(**more)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def program(service: str, folder: Path, *options: str) -> list[str]:
    """Return the command of a rank, for whose rows a folder is made."""
    folder.mkdir(exist_ok=True)
    return [sys.executable, PROGRAM, service, str(folder), *options]


def ranks(folder: Path) -> list[str]:
    """Return the key and the rank of each process that has read into a folder."""
    return sorted(path.read_text() for path in folder.glob("*.key"))


def passes(folder: Path) -> list[Counter[int]]:
    """Return how often each row was read in each epoch, by all processes together."""
    found: list[Counter[int]] = [Counter(), Counter()]
    for path in folder.glob("*.rows"):
        for line in path.read_text().splitlines():
            number, row = line.split()
            found[int(number)][int(row)] += 1
    return found


def all_wait(folder: Path, count: int) -> bool:
    """Return True if so many processes await their death."""
    return len([*folder.glob("*.held")]) == count
