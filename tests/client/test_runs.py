"""Test how a process finds out to which run it belongs."""

from __future__ import annotations

import copy
import os
import pickle
import secrets
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata.client import runs
from zmqdata.client.runs import DatasetRun, run_of_process, this_process
from zmqdata.errors import FailedPreconditionError
from zmqdata.machine import runkeys
from zmqdata.machine.runkeys import RUN_ID

OF_LAUNCHERS = ("TORCHELASTIC_", "SLURM_", "OMPI_", "PMI", "MASTER_", "GROUP_", "LOCAL_")
NAMES = {*runkeys.RANKS, *runkeys.RANKS.values(), RUN_ID}
SHOW_KEY = "from zmqdata.client.runs import run_of_process as run; print(run(True).key)"
CHILDREN = """
import faulthandler
import multiprocessing
import threading

from zmqdata.client.runs import run_of_process, this_process


def tell(sender):
    faulthandler.dump_traceback_later(40, exit=True)
    sender.send((run_of_process(True).key, this_process()))


if __name__ == "__main__":
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=tell, args=(sender,))
        child.start()
        sender.close()  # so that the end of the child ends the wait for it
        key, process = receiver.recv()
        child.join()
        assert key == run_of_process(True).key, method
        assert process != this_process(), method
"""
"""A program without other threads: a child that is forked beside threads may wait for a
lock that one of them held.
"""


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what a launcher has set, and frameworks that are imported."""
    for name in [*os.environ]:
        if name in NAMES or name.startswith(OF_LAUNCHERS):
            monkeypatch.delenv(name)
    for name in ("torch.distributed", "torch.utils.data", "IPython", "ray"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def launched(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return run_of_process(True).key


# --- keys


def test_threads_that_ask_at_once_get_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that are the first to ask for the name of their process, at the same
    time, get the same name: otherwise each would read a job as a program of its own.
    """
    meeting = threading.Barrier(2, timeout=30)

    def node() -> str:
        meeting.wait()
        return "host"

    monkeypatch.setattr(runs, "_names", {})
    monkeypatch.setattr(runs.platform, "node", node)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: this_process(), range(2))
    assert first == second == this_process()


def test_a_process_is_a_run_with_its_children(tmp_path: Path) -> None:
    """Children by ``fork`` and ``spawn`` have the key of their parent and a name of
    their own.
    """
    program = tmp_path / "program.py"
    program.write_text(CHILDREN)
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_a_program_that_is_started_is_a_run_of_its_own() -> None:
    """A program that this process starts has another key, although it has the same
    environment.
    """
    shown = subprocess.run(
        [sys.executable, "-c", SHOW_KEY], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip().startswith("process:")
    assert shown.stdout.strip() != run_of_process(True).key


def test_a_user_may_name_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ZMQDATA_RUN_ID`` comes before everything else."""
    key = launched(monkeypatch, ZMQDATA_RUN_ID="mine", WORLD_SIZE="2", TORCHELASTIC_RUN_ID="id")
    assert key == "id:mine"


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({"TORCHELASTIC_RUN_ID": "id"}, "torchrun:id"),
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "master:a:1"),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, "master:a:1"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2", "SLURM_PROCID": "1"}, "slurm:7.2.0"),
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_RESTART_COUNT": "3"}, "slurm:7.batch.3"),
        ({"PMIX_NAMESPACE": "job@1"}, "mpi:job@1"),
        (
            {
                "PMIX_NAMESPACE": "job@1",
                "OMPI_COMM_WORLD_RANK": "1",
                "SLURM_JOB_ID": "7",
                "SLURM_PROCID": "0",
            },
            "mpi:job@1",
        ),
    ],
)
def test_a_launcher_names_the_run_of_its_ranks(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], key: str
) -> None:
    """The key of one of several ranks follows from its launcher; that of a single rank
    is its own.
    """
    assert launched(monkeypatch, RANK="0", WORLD_SIZE="2", **environment) == key
    assert launched(monkeypatch, WORLD_SIZE="1").startswith("process:")


def test_torchrun_on_one_node_is_told_by_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a run id, ranks on one node have the process of the launcher in common,
    and when that was started.
    """
    launcher = {"TORCHELASTIC_RUN_ID": "none", "GROUP_WORLD_SIZE": "1"}
    key = launched(monkeypatch, RANK="1", WORLD_SIZE="2", **launcher)
    assert f":{os.getppid()}:" in key
    assert key.rpartition(":")[2].isdigit()


def test_ranks_that_nothing_connects_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of several ranks without a known launcher is told to set the variable, if its
    job has a name that others may share.
    """
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert run_of_process(True).key.startswith("process:"), "the shell of an allocation has it"
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(sys, "argv", ["/home/a/train.py", "--epochs=3"])
    with pytest.raises(
        FailedPreconditionError, match=r"one of 8 ranks.*ZMQDATA_RUN_ID.*`WORLD_SIZE=8`.* unset"
    ):
        run_of_process(True)
    assert run_of_process(False).key.startswith("process:")


class Store:
    """A store of a torch process group, as far as it is used here."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def compare_set(self, name: str, expected: str, desired: str) -> bytes:
        return self.values.setdefault(name, desired.encode())


def group(store: Store | None, rank: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        distributed_c10d=SimpleNamespace(_get_default_store=lambda: store),
    )


def test_a_torch_group_agrees_on_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rank that asks the store of its process group decides on the key."""
    store = Store()
    monkeypatch.setitem(sys.modules, "torch.distributed", group(store))  # type: ignore[arg-type]
    first = run_of_process(True).key
    monkeypatch.setattr(runs, "family", lambda: "another machine")
    assert run_of_process(True).key == first
    assert runs.rank() == "0"


def test_a_torch_group_without_a_store_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process group whose store cannot be asked leaves the key to the launcher."""
    monkeypatch.setitem(sys.modules, "torch.distributed", group(None))  # type: ignore[arg-type]
    launcher = {"MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert launched(monkeypatch, RANK="0", WORLD_SIZE="2", **launcher) == "master:a:1"


def test_a_cell_of_a_notebook_is_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that is run again has another key."""
    shell = SimpleNamespace(execution_count=3)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    first = run_of_process(True).key
    shell.execution_count = 4
    assert [key[-2:] for key in (first, run_of_process(True).key)] == ["#3", "#4"]


# --- what an iterator says


def test_an_iterator_says_its_run_and_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """An iterator tells the run, the rank, the process, the script, and what it was
    asked for.
    """
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(sys, "argv", ["/home/a/train.py", "--epochs=3"])
    key = run_of_process(True).key
    told = run_of_process(True).affiliation("job", 0, "new")
    assert told == m.Affiliation(
        key, "3", this_process(), None, "new", is_fresh=True, script="/home/a/train.py"
    )


def test_a_copy_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy in another process tells the process that made the dataset, and each copy
    on its way with its age.
    """
    made = run_of_process(True)
    monkeypatch.setattr(runs, "_names", {os.getpid(): "parent"})
    monkeypatch.setattr(runs, "_forks", [("child", time.monotonic() - 10.0)])
    monkeypatch.setattr(runs, "this_process", lambda: "child")
    content = made.pickled()
    monkeypatch.setattr(runs, "_forks", [])
    monkeypatch.setattr(runs, "this_process", lambda: "grandchild")
    told = content.unpickled().affiliation("job", 0, "share")
    assert (told.process, told.is_fresh) == (made.maker, False)
    forked, pickled = told.copies
    assert (forked.name[:6], pickled.name[:11]) == ("child:", "grandchild:")
    assert 10.0 <= forked.age < 20.0 > pickled.age >= 0.0


def test_a_dataset_that_comes_back_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset that a child process sends back to the process that made it is read as
    if it had never left.
    """
    made = run_of_process(True)
    content = made.pickled()
    with monkeypatch.context() as patch:
        patch.setattr(runs, "this_process", lambda: "child")
        content = content.unpickled().pickled()
    assert not content.unpickled().is_copy
    assert content.unpickled().affiliation("job", 0, "share").copies == ()


def in_worker(monkeypatch: pytest.MonkeyPatch, number: int, count: int, seed: int) -> Any:
    """Return what torch says of this process, a worker of a DataLoader."""
    worker = SimpleNamespace(id=number, num_workers=count, seed=seed, dataset=())
    loading: Any = SimpleNamespace(get_worker_info=lambda: worker, IterableDataset=tuple)
    monkeypatch.setitem(sys.modules, "torch.utils.data", loading)
    return worker


def test_a_worker_of_a_data_loader_names_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of a data loader tells its pass, and the process that owns the data
    loader in the place of its own.
    """
    in_worker(monkeypatch, 2, 3, seed=702)
    part = m.ReadingPass(seed=700, turn=4, worker=2, process=this_process())
    monkeypatch.setattr(runs, "_forks", [(this_process(), 1.0)])
    forked = DatasetRun("key", "family", "the owner")
    monkeypatch.setattr(sys, "argv", ["-c"])
    told = m.Affiliation("key", "", "the owner", part)
    assert forked.affiliation("job", 4, "share") == told
    spawned = DatasetRun("key", "family", "the owner", pickled_at=1.0).unpickled()
    assert spawned.affiliation("job", 4, "share") == told


def test_a_worker_of_a_data_loader_counts_the_datasets_that_it_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker of a data loader that makes its dataset anew for each epoch begins
    another pass with each of the same job.
    """
    in_worker(monkeypatch, 0, 2, seed=7)
    key = secrets.token_hex(8)
    turns = [
        part.turn
        for job in ("a", "a", "b", "a")
        for part in [DatasetRun(key, "family", this_process()).affiliation(job, 0, "share")]
        for part in [part.reading_pass]
        if part is not None
    ]
    assert turns == [0, 1, 0, 2]


def test_a_job_without_a_name_is_refused_in_several_workers_of_a_data_loader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dataset that is made in one of several workers of a data loader is refused, as
    each of them would read all of it. A copy, a part of a shipped pipeline, a
    dataset in the only worker, and one that makes an item are read.
    """
    here = DatasetRun("key", "family", this_process())
    here.check_loader()
    worker = in_worker(monkeypatch, 1, 2, seed=7)
    with pytest.raises(FailedPreconditionError, match=r"made in worker 1 .*num_workers=2.*job_na"):
        here.check_loader()
    replace(here, is_shipped=True).check_loader()
    DatasetRun("key", "family", "the owner", pickled_at=1.0).unpickled().check_loader()
    worker.num_workers = 1
    here.check_loader()
    worker.num_workers, worker.dataset = 2, [0, 1]
    here.check_loader()


# --- copies of dataset objects


def test_a_copy_of_a_dataset_can_be_pickled(dataset: Any) -> None:
    """A dataset that was unpickled can be pickled again, as a task queue does it."""
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(dataset))))
    assert (again.options, again.server) == (dataset.options, None)


def test_a_copy_in_this_process_has_its_own_job(dataset: Any) -> None:
    """A dataset that is copied or pickled within a process has a job of its own."""
    dataset.repetitions.begin()
    for other in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        assert other.anonymous != dataset.anonymous
        assert other.repetitions.begun == 0
        assert not other.run.is_copy


def test_a_copy_in_a_child_reads_the_same_job(
    dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset that a child unpickles has the job of its parent, and counts on."""
    dataset.repetitions.begin()
    content, parent = pickle.dumps(dataset), this_process()
    monkeypatch.setattr(runs, "_names", {os.getpid(): "child"})
    other = pickle.loads(content)
    assert (other.anonymous, other.repetitions.begun) == (dataset.anonymous, 1)
    assert (other.run.is_copy, other.run.maker, other.run.holder) == (True, parent, "child")


def test_a_copy_in_another_program_has_its_own_job(
    dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset that another program unpickles has a job and a run of its own."""
    content = pickle.dumps(dataset)
    monkeypatch.setattr(runs, "family", lambda: "another program")
    monkeypatch.setattr(runs, "_names", {os.getpid(): "another"})
    other = pickle.loads(content)
    assert other.anonymous != dataset.anonymous
    assert not other.run.is_copy


@pytest.mark.parametrize("job_name", [None, "inner"])
def test_a_dataset_in_a_pipeline_reads_for_the_run_that_ships_it(
    monkeypatch: pytest.MonkeyPatch, job_name: str | None
) -> None:
    """A worker that opens a pipeline reads its named jobs for the run that shipped it,
    and its anonymous jobs for itself. The pipeline is the same bytes each time.
    """
    import zmqdata

    read = zmqdata.distribute("distributed_epoch", "tcp://localhost:1", job_name)
    node: Any = zmqdata.Dataset.range(3).apply(read).node
    with runs.shipping():
        content = pickle.dumps(node)
        node.repetitions.begin()
        assert pickle.dumps(node) == content
    monkeypatch.setattr(runs, "family", lambda: "a worker")
    monkeypatch.setattr(runkeys, "family", lambda: "a worker")
    monkeypatch.setattr(runs, "_names", {os.getpid(): "a worker"})
    found = pickle.loads(content)
    assert (found.run.key == node.run.key) == (job_name is not None)
    assert found.anonymous != node.anonymous
    assert not found.run.is_copy


@pytest.fixture
def dataset() -> Any:
    """Return the node of a distributed dataset."""
    import zmqdata

    read = zmqdata.distribute("distributed_epoch", "tcp://localhost:1")
    return zmqdata.Dataset.range(3).apply(read).node
