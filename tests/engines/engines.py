"""Engines, and what each can do to the workers of a host by its own means."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.frameworks.slurm import Slurm
from zmqdata import hosts
from zmqdata.cluster.localhost import LocalHost
from zmqdata.cluster.processes import ServerProcess

HURRY_EVERY = 5.0
"""Seconds between two attempts to let a job start now."""

Deed = Callable[[hosts.Host, str], None]


class Engine(Protocol):
    """An engine, whose workers are processes of this machine, too."""

    def make(self, service: str, **options: Any) -> hosts.Host:
        """Return a host."""

    def kill(self, host: hosts.Host, name: str) -> None:
        """End a worker without a drain."""

    def end(self, host: hosts.Host, name: str) -> None:
        """End a worker that drains."""

    @property
    def deeds(self) -> Mapping[str, Deed]:
        """Everything that the engine does to workers, by name."""

    def hurry(self) -> None:
        """Let workers that wait in a queue start now."""

    def left(self, prefix: str) -> list[str]:
        """Return what is left of workers whose names have a prefix."""


class LocalEngine:
    """This machine, whose means are signals."""

    def make(self, service: str, **options: Any) -> hosts.Host:
        return hosts.Local(service, **options)

    def kill(self, host: hosts.Host, name: str) -> None:
        self._signal(host, name, signal.SIGKILL)

    def end(self, host: hosts.Host, name: str) -> None:
        self._signal(host, name, signal.SIGTERM)

    @property
    def deeds(self) -> Mapping[str, Deed]:
        return {"SIGKILL": self.kill, "SIGTERM": self.end}

    def hurry(self) -> None:
        """Nothing waits."""

    def left(self, prefix: str) -> list[str]:
        return processes(prefix)

    def _signal(self, host: hosts.Host, name: str, number: int) -> None:
        assert isinstance(host, LocalHost)
        server = host._servers.get(name)
        if isinstance(server, ServerProcess):
            os.kill(server.pid, number)


class SlurmEngine:
    """A Slurm of three nodes, each of which has a single worker.

    Args:
        slurm: the Slurm.
        folder: folder for the output of jobs.
    """

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self._hurried: dict[str, float] = {}

    def make(self, service: str, **options: Any) -> hosts.Host:
        sbatch = ["--exclusive", *options.pop("sbatch", [])]
        return hosts.Slurm(service, "spot", "30", sbatch, logs=self.folder, **options)

    def jobs(self, name: str = "") -> dict[str, str]:
        """Return the states of the jobs that Slurm has, of all names or of one."""
        told = self.slurm.call("squeue", "-h", "-o", "%i %T %j").splitlines()
        found = [line.split() for line in told]
        return {job: state for job, state, job_name in found if name in ("", job_name)}

    def job(self, name: str) -> str:
        """Return the job of a worker; ``""`` if it has none."""
        return next(iter(self.jobs(name)), "")

    def kill(self, host: hosts.Host, name: str) -> None:
        self._tell("scancel", "--signal=KILL", "--full", self.job(name))

    def end(self, host: hosts.Host, name: str) -> None:
        self._tell("scancel", self.job(name))

    def requeue(self, host: hosts.Host, name: str) -> None:
        """Put a worker into the queue."""
        self._tell("scontrol", "requeue", self.job(name))

    def limit(self, host: hosts.Host, name: str) -> None:
        """Let the time of a worker run out within a minute."""
        self._tell("scontrol", "update", f"jobid={self.job(name)}", "timelimit=1")

    def preempt(self, host: hosts.Host, name: str) -> None:
        """Give the node of some worker to another job."""
        self._tell(
            "sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=true"
        )

    @property
    def deeds(self) -> Mapping[str, Deed]:
        return {
            "scancel": self.end,
            "scancel --signal=KILL": self.kill,
            "requeue": self.requeue,
            "time limit": self.limit,
            "preemption": self.preempt,
        }

    def hurry(self) -> None:
        """Let workers that wait in a queue start now, not after Slurm's two minutes."""
        now = time.monotonic()
        for job, state in self.jobs().items():
            # Each time postpones the start by a second: twice in a second for ever.
            if state == "PENDING" and now - self._hurried.get(job, -HURRY_EVERY) >= HURRY_EVERY:
                self._hurried[job] = now
                self._tell("scontrol", "update", f"jobid={job}", "starttime=now+1")

    def left(self, prefix: str) -> list[str]:
        """Return the processes and jobs of workers whose names have a prefix."""
        told = self.slurm.call("squeue", "-h", "-o", "%j %i %T").splitlines()
        return processes(prefix) + [line for line in told if line.startswith(prefix)]

    def _tell(self, *command: str) -> None:
        # The job may have ended a moment ago.
        self.slurm.attempt(*command)


def processes(prefix: str) -> list[str]:
    """Return the command lines of processes that name a worker of a host."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"--name={prefix}" in line:
            found.append(line)
    return found


def victim(host: hosts.Host, chosen: random.Random) -> str:
    """Return a worker that runs while another does; ``""`` if there is none."""
    running = [name for name, state in host.running().items() if state == "running"]
    return chosen.choice(running) if len(running) > 1 else ""
