"""Runs: which processes belong to one start of a training program.

All processes of a run have the same key, and another start of the program has another.
The dispatcher lets the processes of a run read a job together, and lets another run
begin it anew (``core.dispatcher.passes.runs``).

Frameworks are never imported here: a process belongs to them only if it has imported
them itself. Decision 0033.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import secrets
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from zmqdata import messages as m
from zmqdata.errors import FailedPreconditionError
from zmqdata.files.filenames import legible
from zmqdata.machine.runkeys import (
    RANKS,
    RUN_ID,
    family,
    family_key,
    given_key,
    is_of_family,
    launched_key,
    loader_worker,
    num_ranks,
    ranks_told,
)

IN_STORE = "zmqdata_run"
"""Name under which the ranks of a torch process group agree on a key."""
_names: dict[int, str] = {}
"""Name of this process by its id, which threads may ask for at the same time."""
_forks: list[tuple[str, float]] = []
"""The forked processes from the one that was started down to this one, and when they
were forked.
"""
_turns: defaultdict[tuple[str, str], Iterator[int]] = defaultdict(itertools.count)
_ships: ContextVar[bool] = ContextVar("ships", default=False)


@contextlib.contextmanager
def shipping() -> Iterator[None]:
    """Mark the datasets that are pickled within as parts of a pipeline for workers.

    All tasks of the pipeline read a named job for the run that ships it.
    """
    token = _ships.set(True)
    try:
        yield
    finally:
        _ships.reset(token)


def _note_fork() -> None:
    _names.clear()
    _forks.append((this_process(), time.monotonic()))
    _turns.clear()


os.register_at_fork(after_in_child=_note_fork)


def this_process() -> str:
    """Return the name of this process, which no other process has, not even a forked
    child.
    """
    pid = os.getpid()
    if pid not in _names:
        # Of two threads that come here at once, both return the name of the first.
        _names.setdefault(pid, f"{platform.node()}:{pid}:{secrets.token_hex(4)}")
    return _names[pid]


@dataclass(frozen=True)
class HeldCopy:
    """A copy of a dataset object in another process than the one that made it."""

    process: str
    """The process that holds the copy."""
    name: str
    """Name of the copy, which no other copy has."""
    made: float
    """When the object was pickled, or the process was forked, by ``time.monotonic``."""


@dataclass(frozen=True)
class DatasetRun:
    """The run to which a dataset object belongs, and where the object comes from."""

    key: str
    """Key of the run."""
    family: str
    """Family of the process that created the object."""
    maker: str
    """The process that created the object."""
    copies: tuple[HeldCopy, ...] = ()
    """The copies through which the object came here, the oldest first."""
    pickled_at: float = 0.0
    """When the object was pickled, by ``time.monotonic``; 0 once it is unpickled."""
    is_shipped: bool = False
    """True if the object is part of a pipeline that workers run."""
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells this object from others in the process."""

    @property
    def is_of_parent(self) -> bool:
        """True if another process of this family held the object, and pickled it."""
        return self.family == family() and self.holder != this_process() and not self.is_shipped

    def pickled(self) -> DatasetRun:
        """Return the run of a copy that is pickled now."""
        here = self._here()
        if _ships.get():
            # Equal in each run of the program, so that workers know the pipeline again.
            return DatasetRun(here.key, here.family, "", is_shipped=True, token="")
        return replace(here, pickled_at=time.monotonic())

    def unpickled(self) -> DatasetRun:
        """Return the run of a copy that was unpickled in this process."""
        if self.is_shipped:
            return replace(self, maker=this_process())
        here = replace(self, token=secrets.token_hex(4))
        return here._copied(this_process(), self.pickled_at)

    def _here(self) -> DatasetRun:
        """Return the run of this object in this process, which may be a forked child of
        the one that held it.
        """
        names = [process for process, _ in _forks]
        known = names.index(self.holder) + 1 if self.holder in names else 0
        here = self
        for process, made in _forks[known:]:
            here = here._copied(process, made)
        return here

    def _copied(self, process: str, made: float) -> DatasetRun:
        if process == self.maker:  # it has come back
            return replace(self, copies=(), pickled_at=0.0)
        before = itertools.takewhile(lambda one: one.process != process, self.copies)
        copy = HeldCopy(process, f"{process}:{self.token}", made)
        return replace(self, copies=(*before, copy), pickled_at=0.0)

    def affiliation(self, job: str, turn: int, on_existing: str) -> m.Affiliation:
        """Return what an iterator in this process tells the dispatcher.

        Args:
            job: name of the job.
            turn: number of iterators that this process has made of the object before.
            on_existing: what happens if the name of the job is in use.
        """
        process, copies, part = self.maker, self._here().copies, None
        loader = loader_worker()
        if loader is not None:
            if copies:  # the data loader belongs to the process that gave it the object
                copies = copies[:-1]
            else:
                process, turn = f"{platform.node()}:{os.getppid()}", next(_turns[self.key, job])
            part = m.ReadingPass(loader.seed, turn, loader.number, this_process())
        now = time.monotonic()
        return m.Affiliation(
            run=self.key,
            member=rank(),
            process=process,
            copies=tuple(m.DatasetCopy(one.name, max(0.0, now - one.made)) for one in copies),
            reading_pass=part,
            # A task of a worker that comes late reads what is left, and begins nothing.
            is_fresh=is_of_family(self.key) and not self.is_copy and not self.is_shipped,
            on_existing=on_existing,
            script=_script(),
        )

    @property
    def holder(self) -> str:
        """The process that holds the object, or a forked parent of it."""
        return self.copies[-1].process if self.copies else self.maker

    @property
    def is_copy(self) -> bool:
        """True if the object was created in another process, which may read it too."""
        return bool(self._here().copies)

    def check_loader(self) -> None:
        """Check that processes of a DataLoader do not each yield all of a job without a
        name.

        Raises:
            FailedPreconditionError: this is one of several such processes, and the
                dataset was made in it.
        """
        loader = loader_worker()
        if loader is None or not loader.is_of_stream or loader.count == 1:
            return  # an item of a map-style dataset may be made of all elements
        if not self.is_copy and not self.is_shipped:
            raise FailedPreconditionError(
                f"The dataset was made in worker {loader.number} of a DataLoader with "
                f"num_workers={loader.count}, and its job has no name, so each of these processes "
                "would read every element. Make the dataset before the DataLoader, or pass "
                "`job_name=` to distribute(): its processes then share the elements. Workers of "
                "the service do the work, so that `num_workers=0` or 1 is enough, too. For "
                "datasets that differ by `get_worker_info().id`, pass a `job_name` with that id"
            )


def run_of_process(is_named: bool) -> DatasetRun:
    """Return the run of this process.

    Args:
        is_named: True if the job has a name, so that other processes may share it.

    Raises:
        FailedPreconditionError: this process is one of several ranks, and nothing says
            which run they belong to.
    """
    return DatasetRun(given_key() or _agreed_key(is_named), family(), this_process())


def _script() -> str:
    """Return the path of the script of this process; "" if it runs none."""
    name = sys.argv[0] if sys.argv else ""
    return legible(os.path.abspath(name)) if name and not name.startswith("-") else ""


def rank() -> str:
    """Return the rank of this process among those of its run; "" if it has none."""
    group = _torch_group()
    if group is not None:
        return str(group.get_rank())
    return next((os.environ[name] for name in RANKS if os.environ.get(name)), "")


def _agreed_key(is_named: bool) -> str:
    own = launched_key() or _notebook_key() or family_key()
    group = _torch_group()
    if group is not None:
        with contextlib.suppress(Exception):  # a group without a store, such as MPI's
            store = group.distributed_c10d._get_default_store()
            agreed = store.compare_set(IN_STORE, "", own)
            return agreed.decode() if isinstance(agreed, bytes) else str(agreed)
    if is_named and is_of_family(own) and num_ranks() > 1:
        raise FailedPreconditionError(
            f"This process is one of {num_ranks()} ranks, and nothing says which run they "
            f"belong to: no {RUN_ID}, no torch process group, and no launcher that zmqdata "
            "knows (torchrun, Slurm, MPI, MASTER_ADDR). Ranks that share a job_name must agree "
            f"on a run. Set the environment variable {RUN_ID} to a text that is equal in all "
            f"ranks and different in each start of the program. {ranks_told()}"
        )
    return own


def _notebook_key() -> str:
    """Return the key of a cell of a notebook; "" outside of IPython.

    A cell that is run again is another run.
    """
    shell = sys.modules.get("IPython")
    notebook = None if shell is None else shell.get_ipython()
    count = getattr(notebook, "execution_count", None)
    return "" if count is None else f"{family_key()}#{count}"


def _torch_group() -> Any:
    """Return ``torch.distributed`` if this process belongs to a process group."""
    group = sys.modules.get("torch.distributed")
    with contextlib.suppress(Exception):  # torch without it, or half imported
        if group is not None and group.is_available() and group.is_initialized():
            return group
    return None
