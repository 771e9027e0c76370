"""A Slurm of four shell scripts. Each job is a file in a folder, with its state and its
name; a test changes the files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

COMMANDS = {
    "sbatch": """
        cat > "$at/script"; env > "$at/environment"
        if [ -f "$at/refusal" ]; then cat "$at/refusal" >&2; exit 1; fi
        number=$(($(ls "$at/scripts" | wc -l) + 1))
        name=$(sed -n 's/^#SBATCH --job-name=//p' "$at/script")
        echo "$(cat "$at/first") $name" > "$at/job"; mv "$at/job" "$at/jobs/$number"
        mv "$at/script" "$at/scripts/$number"
        if [ -f "$at/hangs" ]; then exec tail -f /dev/null; fi
        echo "$number;cluster"
    """,
    "squeue": """
        if [ -f "$at/gone" ]; then echo "Unable to contact slurm controller" >&2; exit 1; fi
        for job in "$at"/jobs/*; do
            if [ -f "$job" ]; then echo "${job##*/} $(cat "$job" 2> /dev/null)"; fi
        done
    """,
    "scancel": """
        for word in "$@"; do
            case $word in -*) ;; *) echo "$word" >> "$at/cancelled"; rm -f "$at/jobs/$word" ;; esac
        done
    """,
    "scontrol": """
        echo "$*" >> "$at/controls"
        echo "JobId=$4 JobState=FAILED Reason=NonZeroExitCode ExitCode=2:0"
    """,
}


class FakeSlurm:
    """Commands on the path, and the jobs that they know.

    Args:
        folder: an empty folder.
        monkeypatch: puts the commands first on the path.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        for name in ("bin", "jobs", "scripts"):
            (folder / name).mkdir()
        for name, text in COMMANDS.items():
            self.command(name, text)
        self.write("first", "RUNNING")
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def command(self, name: str, text: str) -> None:
        """Put a command on the path."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\nat={self.folder}\n{text}\n")
        path.chmod(0o755)

    def write(self, name: str, text: str = "") -> None:
        """Write a file that changes what the commands do."""
        (self.folder / name).write_text(text)

    def read(self, name: str) -> list[str]:
        """Return the lines of a file; none if it is missing."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def jobs(self) -> dict[str, tuple[str, str]]:
        """Return state and name of each job, by its number."""
        found = {}
        for path in sorted((self.folder / "jobs").iterdir()):
            state, name = path.read_text().split()
            found[path.name] = (state, name)
        return found

    def become(self, job: str, state: str) -> None:
        """Give a job another state."""
        # A reader sees the whole file.
        draft = self.folder / "draft"
        draft.write_text(f"{state} {self.jobs()[job][1]}")
        draft.replace(self.folder / "jobs" / job)

    def end(self, job: str) -> None:
        """End a job."""
        (self.folder / "jobs" / job).unlink()

    def count(self) -> int:
        """Return the number of jobs that were ever submitted."""
        return len(list((self.folder / "scripts").iterdir()))
