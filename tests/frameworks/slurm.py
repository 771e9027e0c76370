"""A Slurm of three nodes in a folder, with daemons of its own and without systemd. Jobs
of the partition ``urgent`` preempt those of ``spot``.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.frameworks.launches import environment
from zmqdata.testing.cluster import await_condition

DAEMONS = ("munged", "slurmctld", "slurmd", "srun")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=15
MinJobAge=60
ReturnToService=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=spot Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP PriorityTier=1 \
PreemptMode=REQUEUE GraceTime=15
PartitionName=urgent Nodes=n[1-{count}] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""
NODE = """NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 Boards=1 \
SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN"""
NODES = 3
"""Number of nodes, each of which claims to have four processors."""


def is_installed() -> bool:
    """Return True if this process may start the daemons of Slurm, and they exist."""
    return os.getuid() == 0 and all(map(shutil.which, DAEMONS))


class Slurm:
    """A Slurm that runs while the context is open.

    Args:
        folder: an empty folder with a short path, as it holds a socket.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons = ExitStack()

    def __enter__(self) -> Slurm:
        try:
            self._start()
        except BaseException:
            self._daemons.close()
            raise
        return self

    def __exit__(self, *_: Exception | type | None) -> None:
        self._daemons.close()

    def call(self, *command: str) -> str:
        """Run a command of Slurm to its end, and return what it has printed."""
        done = self.attempt(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm to its end, whatever becomes of it."""
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, env=self.environment
        )

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script of two tasks, and return the number of its job."""
        path = self.folder / f"{secrets.token_hex(4)}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        output = f"--output={path.with_suffix('.log')}"
        return self.call("sbatch", "--parsable", "-n2", output, *options, str(path)).strip()

    def state(self, job: str) -> str:
        """Return the state of a job, such as PENDING or COMPLETED."""
        told = self.call("scontrol", "show", "job", job)
        return next(part[9:] for part in told.split() if part.startswith("JobState="))

    @property
    def environment(self) -> dict[str, str]:
        """The environment by which commands find this Slurm."""
        return environment(SLURM_CONF=str(self.folder / "slurm.conf"))

    def _start(self) -> None:
        folder = self.folder
        (folder / "state").mkdir()
        (folder / "spool").mkdir()
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        host, ports = socket.gethostname(), free_ports(1 + NODES)
        nodes = "\n".join(
            NODE.format(number=number, host=host, port=ports[number])
            for number in range(1, NODES + 1)
        )
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(host=host, folder=folder, ports=ports, nodes=nodes, count=NODES)
        )
        self._run(
            "munged",
            "--force",
            "--foreground",
            f"--key-file={key}",
            f"--socket={folder}/munge.sock",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munge.seed",
        )
        await_condition((folder / "munge.sock").exists, what="munged")
        self._run("slurmctld", "-D", "-i")
        for number in range(1, NODES + 1):
            self._run("slurmd", "-D", "-N", f"n{number}")
        await_condition(self._is_idle, 60.0, "idle nodes")

    def _is_idle(self) -> bool:
        done = subprocess.run(
            ["sinfo", "-h", "-o", "%D", "-t", "idle"],
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment,
        )
        return done.stdout.strip() == str(NODES)

    def _run(self, *command: str) -> None:
        log = self._daemons.enter_context((self.folder / f"{command[0]}.out").open("a"))
        daemon = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)
        self._daemons.callback(_end(daemon))


def _end(daemon: subprocess.Popen[bytes]) -> Callable[[], None]:
    def end() -> None:
        daemon.terminate()
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    return end


def free_ports(count: int) -> list[int]:
    """Return ports that no process uses."""
    with ExitStack() as open_sockets:
        found = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in found]
