"""The processes of a Slurm step that is a whole service: the role of each, the ranks of
the trainers, and the exit code.

Nothing here knows a process, a socket or a clock, and the environment is an argument.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zmqdata.worker.processes.lifetime import SIGNALLED

DISPATCHER = 0
"""Number of the process that is the dispatcher."""
KILLED = SIGNALLED + 9
"""Exit code of a process of which only its end is known: nothing but SIGKILL, or the
death of its machine, keeps a process from reporting another code.
"""
EXAMPLE = "srun --ntasks=8 zmqdata auto -- python train.py"
NUMBERS = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID")
COUNTS = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS")
NODE_COUNTS = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES")
NODE_LISTS = ("SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST")
TASKS_OF_NODES = ("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE")


@dataclass(frozen=True)
class StepProcess:
    """A process of a step of Slurm.

    Example:
        >>> place = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}
        >>> place |= {"SLURM_STEP_ID": "0", "SLURM_SUBMIT_DIR": "/shared"}
        >>> found = step_process(place, ranks=2)
        >>> found.role, found.name
        ('worker', 'zmqdata-7.0')
    """

    number: int
    """Number of the process in the step, from 0."""
    ranks: int
    """Number of trainers."""
    workers: int
    """Number of workers."""
    folder: str
    """Folder that all processes of the step share."""
    name: str
    """Name of the step, which no other step of the cluster has."""
    node: str
    """Name of the machine."""

    @property
    def role(self) -> Literal["dispatcher", "trainer", "worker"]:
        """Role of the process."""
        if self.number == DISPATCHER:
            return "dispatcher"
        return "trainer" if self.number <= self.ranks else "worker"

    @property
    def dispatcher_file(self) -> str:
        """Path of the file in which the dispatcher announces its address."""
        return os.path.join(self.folder, f"{self.name}.json")

    @property
    def step_file(self) -> str:
        """Path of the file in which the process of the dispatcher announces where the
        other processes report their ends.
        """
        return os.path.join(self.folder, f".{self.name}.step")


def step_process(environment: Mapping[str, str], ranks: int) -> StepProcess:
    """Return the process that an environment of Slurm describes.

    Args:
        environment: the variables that ``srun`` sets.
        ranks: number of trainers, which are its ranks.

    Raises:
        ValueError: there is no step of Slurm, a variable of it is malformed, or it has
            too few processes.
    """
    # The shell of a batch job has the number 0, too, and no step.
    for variable in (*NUMBERS, "SLURM_SUBMIT_DIR"):
        value = environment.get(variable)
        fault = "not set" if not value else f"{value!r}, and no number from 0"
        if not value or (variable in NUMBERS and not re.fullmatch("[0-9]{1,18}", value)):
            raise ValueError(
                f"`{variable}` is {fault}, so this process is no task of a Slurm step. Start it by "
                f"`srun`, in a batch script or an allocation: {EXAMPLE}"
            )
    number, count, job, step = (int(environment[variable]) for variable in NUMBERS)
    if number >= count:
        raise ValueError(
            f"`SLURM_PROCID` is {number}, and must be less than `SLURM_NTASKS`, which is {count}. "
            f"A script may have set one of them. Leave both as `srun` sets them: {EXAMPLE}"
        )
    workers = count - ranks - 1
    if workers < 1:
        raise ValueError(
            f"The step has {count} tasks (SLURM_NTASKS), and needs at least {ranks + 2}: one "
            f"dispatcher, {ranks} for `--trainers {ranks}`, and one worker or more. Pass "
            f"`--ntasks={ranks + 2}` or more to `srun`, or fewer `--trainers`"
        )
    # A job that is requeued keeps its number, and files of its first life may be left.
    restarts = environment.get("SLURM_RESTART_COUNT", "0")
    return StepProcess(
        number,
        ranks,
        workers,
        environment["SLURM_SUBMIT_DIR"],
        f"zmqdata-{job}.{step}" + (f".{restarts}" if restarts != "0" else ""),
        environment.get("SLURMD_NODENAME", ""),
    )


def rank_variables(rank: int, nodes: Sequence[str]) -> dict[str, str]:
    """Return the variables of Slurm by which frameworks see the trainers alone, as if
    ``srun`` had started nothing else.

    Args:
        rank: number of the trainer.
        nodes: name of the machine of each trainer.

    Example:
        >>> seen = rank_variables(2, ["n1", "n2", "n1"])
        >>> seen["SLURM_LOCALID"], seen["SLURM_NODEID"], seen["SLURM_TASKS_PER_NODE"]
        ('1', '0', '2,1')
    """
    # The first is the machine of rank 0, to which frameworks connect.
    names = list(dict.fromkeys(nodes))
    here = [number for number, node in enumerate(nodes) if node == nodes[rank]]
    counts = [nodes.count(name) for name in names]
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(here.index(rank)),
        "SLURM_NODEID": str(names.index(nodes[rank])),
        "SLURM_GTIDS": ",".join(map(str, here)),
        "SLURM_NTASKS_PER_NODE": str(max(counts)),
        **dict.fromkeys(COUNTS, str(len(nodes))),
        **dict.fromkeys(NODE_COUNTS, str(len(names))),
        **dict.fromkeys(NODE_LISTS, ",".join(names)),
        **dict.fromkeys(TASKS_OF_NODES, ",".join(map(str, counts))),
    }


class StepEnds:
    """Decides when a step ends, and with which exit code.

    Args:
        ranks: number of trainers, which are its ranks.
        workers: number of workers.

    Example:
        >>> ends = StepEnds(ranks=2, workers=1)
        >>> ends.add(2, 3)
        >>> ends.add(1, 7)
        >>> ends.verdict
        3
    """

    def __init__(self, ranks: int, workers: int) -> None:
        self._ranks = range(1, ranks + 1)
        self._workers = range(ranks + 1, ranks + 1 + workers)
        self._codes: dict[int, int] = {}

    def add(self, number: int, code: int) -> None:
        """Record the end of a process. Only the first report of a process counts.

        Args:
            number: number of the process.
            code: its exit code.
        """
        self._codes.setdefault(number, code)

    @property
    def first(self) -> int:
        """The first exit code of a trainer that is not 0; 0 if there is none."""
        codes = (code for number, code in self._codes.items() if number in self._ranks)
        return next((code for code in codes if code), 0)

    @property
    def verdict(self) -> int | None:
        """The exit code of the step; None while it goes on.

        It ends with its last trainer. It ends, too, when every worker has failed, as
        the trainers would wait in vain.
        """
        if self._codes.keys() >= set(self._ranks):
            return self.first
        failures = [self._codes.get(number, 0) for number in self._workers]
        return self.first or failures[0] if all(failures) else None
