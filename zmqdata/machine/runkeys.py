"""Keys of runs: what the processes of one start of a training program have in common.

Frameworks are never imported here: a process belongs to them only if it has imported
them itself. Decision 0033.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import platform
import secrets
import sys
from dataclasses import dataclass

RUN_ID = "ZMQDATA_RUN_ID"
"""Environment variable with the key of the run, set by the user."""
FAMILY = "process:"
"""Beginning of a key that follows from the family of a process."""
RANKS = {
    "RANK": "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID": "SLURM_NTASKS",
    "PMI_RANK": "PMI_SIZE",
}
"""Environment variables in which launchers number processes and, for each, the one with
their count. The count alone says nothing: it is set in the shell of ``salloc``, too.
``mpirun`` comes before Slurm, which may number the daemons that it starts.
"""

_PROGRAM = secrets.token_hex(8)
"""Random name of this program, which its forked children share."""


def program_key() -> str:
    """Return the key of the program that this process belongs to, as far as it is known
    from the beginning: that of its run, of its launcher, or of its family.
    """
    return given_key() or launched_key() or family_key()


def name_of_process() -> str:
    """Return a name of this process that no other process has, on any machine."""
    return f"{_PROGRAM}:{os.getpid()}"


def given_key() -> str:
    """Return the key that the user has set in the environment; "" if there is none."""
    key = os.environ.get(RUN_ID, "")
    return f"id:{key}" if key else ""


def family() -> str:
    """Return what this process shares with its children by ``fork`` and by
    ``multiprocessing``, and with no other process.
    """
    secret = bytes(multiprocessing.current_process().authkey)
    return hashlib.sha256(b"zmqdata run " + secret).hexdigest()[:24]


def family_key() -> str:
    """Return the key of a run of which nothing but the family is known."""
    return f"{FAMILY}{family()}"


def is_of_family(key: str) -> bool:
    """Return True if nothing but the family of a process says which run it is."""
    return key.startswith(FAMILY)


def num_ranks() -> int:
    """Return the number of ranks that a launcher has started; 1 without one."""
    sizes = [os.environ.get(size, "") for rank, size in RANKS.items() if rank in os.environ]
    return max([int(size) for size in sizes if size.isdigit()], default=1)


def ranks_told() -> str:
    """Return a sentence on the environment variables that make this process one of
    several ranks; "" if there are none. They may be left over from another program.
    """
    for rank, size in RANKS.items():
        count = os.environ.get(size, "")
        if rank in os.environ and count.isdigit() and int(count) > 1:
            return (
                f"`{rank}={os.environ[rank]}` and `{size}={count}` in the environment make this "
                f"process one of {int(count)} ranks: unset them if it is alone"
            )
    return ""


def is_first_rank() -> bool:
    """Return True unless a launcher says that this process is another rank than the
    first.

    ``LOCAL_RANK`` counts only if no launcher numbers the ranks of all machines.
    """
    ranks = [os.environ[name] for name in (*RANKS, "LOCAL_RANK") if os.environ.get(name)]
    return not ranks or ranks[0] == "0"


def launched_key() -> str:
    """Return the key that follows from the launcher, if this is one of several ranks;
    "" otherwise.
    """
    if num_ranks() <= 1:
        return ""
    known = os.environ.get
    if "TORCHELASTIC_RUN_ID" in os.environ:
        named = known("TORCHELASTIC_RUN_ID")
        if named and named != "none":
            return f"torchrun:{named}"
        if known("GROUP_WORLD_SIZE") == "1":
            return f"torchrun:{platform.node()}:{os.getppid()}:{_started(os.getppid())}"
    if "OMPI_COMM_WORLD_RANK" in os.environ and known("PMIX_NAMESPACE"):
        return f"mpi:{known('PMIX_NAMESPACE')}"
    if "SLURM_JOB_ID" in os.environ and "SLURM_PROCID" in os.environ:
        restarts = known("SLURM_RESTART_COUNT", "0")
        return f"slurm:{known('SLURM_JOB_ID')}.{known('SLURM_STEP_ID', 'batch')}.{restarts}"
    if known("PMIX_NAMESPACE"):
        return f"mpi:{known('PMIX_NAMESPACE')}"
    if _ray_key() or not known("MASTER_ADDR"):
        return _ray_key()
    return f"master:{known('MASTER_ADDR')}:{known('MASTER_PORT', '')}"


def _ray_key() -> str:
    """Return the key of a run of Ray Train; "" outside of it.

    Its second version has no trials. There only the internal context has an id that
    is new at each ``fit``.
    """
    ray = sys.modules.get("ray")
    if ray is None:
        return ""
    with contextlib.suppress(Exception):  # outside of a cluster, or in another version
        job = ray.get_runtime_context().get_job_id()
        contexts = sys.modules.get("ray.train.v2._internal.execution.context")
        if contexts is not None:
            with contextlib.suppress(Exception):  # not a process of the second version
                return f"ray:{job}.{contexts.get_train_context().train_run_context.run_id}"
        trial = ray.train.get_context().get_trial_id()
        return f"ray:{job}.{trial}" if trial else ""
    return ""


def _started(process: int) -> str:
    """Return when a process was started; "" where the system does not say."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


@dataclass(frozen=True)
class LoaderWorker:
    """A worker process of a torch ``DataLoader``."""

    number: int
    """Its number."""
    count: int
    """Number of the worker processes."""
    seed: int
    """Seed of the pass, which they have in common."""
    is_of_stream: bool
    """True if each of them reads a part of an iterable-style dataset."""


def loader_worker() -> LoaderWorker | None:
    """Return the worker of a torch ``DataLoader`` that this process is; None in any
    other process.
    """
    loading = sys.modules.get("torch.utils.data")
    worker = None if loading is None else loading.get_worker_info()
    if loading is None or worker is None:
        return None
    number, is_of_stream = int(worker.id), isinstance(worker.dataset, loading.IterableDataset)
    return LoaderWorker(number, int(worker.num_workers), int(worker.seed) - number, is_of_stream)
