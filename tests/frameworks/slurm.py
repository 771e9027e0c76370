"""A Slurm of one node in a folder, with daemons of its own and without systemd."""

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
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobRequeue=1
KillWait=10
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 Boards=1 \
SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=n1 Default=YES MaxTime=INFINITE State=UP
"""


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
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env=self.environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

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
        place = {"host": socket.gethostname(), "folder": folder, "ports": free_ports(2)}
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**place))
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
        self._run("slurmd", "-D", "-N", "n1")
        await_condition(self._is_idle, 60.0, "an idle node")

    def _is_idle(self) -> bool:
        done = subprocess.run(
            ["sinfo", "-h", "-o", "%D", "-t", "idle"],
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment,
        )
        return done.stdout.strip() == "1"

    def _run(self, *command: str) -> None:
        log = self._daemons.enter_context((self.folder / f"{command[0]}.out").open("w"))
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
