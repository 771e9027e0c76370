"""Facts about training scripts that are started again, as real processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.client.calls import status
from zmqdata.testing.cluster import await_condition

pytestmark = pytest.mark.realprocess

COUNT = 600
SCRIPT = textwrap.dedent(
    """
    import os, sys, threading
    from zmqdata import Dataset, distribute

    service, stop, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    rule, job = sys.argv[4:6]
    made, awaited = sys.argv[6:] or ("", "")  # files that other scripts await and make
    read = distribute(
        "distributed_epoch", service, job, max_outstanding_requests=2, on_existing=rule
    )
    rows = Dataset.range(600).batch(5).apply(read)
    for number in range(2):
        for batch in rows:
            print(*batch, flush=True)
            if made:
                open(made, "w").close()
            for _ in range(6000):
                if not awaited or os.path.exists(awaited):
                    break
                threading.Event().wait(0.01)
            else:
                sys.exit("nothing has made " + awaited)
            threading.Event().wait(pause)  # a step of training
            stop -= 1
            if not stop:
                os._exit(3)
        print("end", flush=True)
    """
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of one worker process. Each test reads a job of its own."""
    with LocalCluster(num_workers=1) as made:
        yield made


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    """Return the name of the test's job."""
    return str(request.node.name)


def readers_of(cluster: LocalCluster, job: str) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return each incarnation of a job, and its readers."""
    jobs = status(cluster.target)["jobs"]
    return [(one["incarnation"], one["readers"]) for one in jobs if one["job"] == job]


class Program:
    """A training script that reads two epochs of a job."""

    def __init__(
        self,
        cluster: LocalCluster,
        job: str,
        stop: int = 0,
        pause: float = 0.0,
        rule: str = "share",
        gates: Sequence[str | Path] = (),
        **environment: str,
    ) -> None:
        options = [cluster.target, str(stop), str(pause), rule, job, *map(str, gates)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def first(self) -> str:
        """Wait for the first batch, and return it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def rows(self, before: str = "") -> list[list[int]]:
        """Wait for the end, and return the rows of each epoch."""
        told, self.errors = self.process.communicate(timeout=60)
        parts = (before + told).split("end")
        return [sorted(map(int, part.split())) for part in parts]


ALL = list(range(COUNT))


@pytest.mark.full
def test_a_finished_script_that_runs_again_reads_everything(
    cluster: LocalCluster, job: str
) -> None:
    """A script that has ended reads both epochs again when it is run again."""
    for _ in range(2):
        assert Program(cluster, job).rows() == [ALL, ALL, []]


def test_a_crashed_script_that_runs_again_reads_everything(job: str) -> None:
    """A script that follows one that died in the middle of an epoch reads everything,
    as soon as the connection of that one has ended.
    """
    with LocalCluster(num_workers=1, client_timeout_ms=3_600_000) as cluster:
        crashed = Program(cluster, job, stop=40)
        assert len(crashed.rows()[0]) == 200
        again = Program(cluster, job)
        assert again.rows() == [ALL, ALL, []]


@pytest.mark.full
def test_a_script_may_continue_what_another_has_left(job: str) -> None:
    """A script with ``on_existing="continue"`` reads the rest of the epoch of one that
    died, and then whole epochs.
    """
    with LocalCluster(num_workers=1, client_timeout_ms=4_000) as cluster:
        crashed = Program(cluster, job, stop=40, pause=0.05)  # long enough to report some rows
        had = crashed.rows()[0]
        first, second, _ = Program(cluster, job, rule="continue").rows()
    # What the dead script had not reported comes again.
    assert set(had) | set(first) == set(ALL)
    assert len(first) < COUNT
    assert second == ALL


def test_scripts_that_overlap_share_and_say_so(
    cluster: LocalCluster, job: str, tmp_path: Path
) -> None:
    """A script that starts while another reads shares its epoch, and warns; each row
    reaches one of them.
    """
    one = Program(cluster, job, pause=0.01, gates=("", tmp_path / "joined"))
    begun = one.first()
    other = Program(cluster, job, pause=0.01, gates=(tmp_path / "joined", ""))
    second = other.rows()
    first = one.rows(begun)
    for number in range(2):
        assert sorted(first[number] + second[number]) == ALL
    assert "reads with another run" in other.errors


@pytest.mark.full
def test_a_script_may_refuse_to_share(cluster: LocalCluster, job: str, tmp_path: Path) -> None:
    """A script with ``on_existing="error"`` ends with an error that names the remedy,
    and the other one reads on.
    """
    one = Program(cluster, job, gates=("", tmp_path / "refused"))
    begun = one.first()
    other = Program(cluster, job, rule="error")
    other.rows()
    (tmp_path / "refused").touch()
    assert other.process.returncode == 1
    assert f"AlreadyExistsError: Job {job} exists, and on_existing='error'" in other.errors
    assert one.rows(begun)[0] == ALL


@pytest.mark.full
@pytest.mark.parametrize(
    "launcher",
    [
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"},
        {"ZMQDATA_RUN_ID": "mine", "WORLD_SIZE": "2"},
    ],
    ids=["slurm", "named"],
)
def test_ranks_of_a_launch_share_each_pass(
    cluster: LocalCluster, job: str, launcher: dict[str, str]
) -> None:
    """Ranks of one launch read each row once in each epoch; a launch that is requeued
    reads everything again.
    """
    rank = "SLURM_PROCID" if "SLURM_JOB_ID" in launcher else "RANK"
    for restart in range(2):
        told = launcher | {"SLURM_RESTART_COUNT": str(restart)}
        if "ZMQDATA_RUN_ID" in told:
            told["ZMQDATA_RUN_ID"] += str(restart)
        ranks = [
            Program(cluster, job, pause=0.005, **told, **{rank: str(number)}) for number in range(2)
        ]
        first, second = (program.rows() for program in ranks)
        for number in range(2):
            assert sorted(first[number] + second[number]) == ALL


def read_rows(dataset: Dataset, rows: Any, go: Any = None) -> None:
    if go is not None:
        go.wait()
    rows.put([int(row) for batch in dataset for row in batch])


@pytest.mark.parametrize(
    ("is_named", "method"),
    [
        pytest.param(False, "fork", id="anonymous-fork", marks=pytest.mark.full),
        pytest.param(False, "spawn", id="anonymous-spawn", marks=pytest.mark.full),
        pytest.param(False, "forkserver", id="anonymous-forkserver", marks=pytest.mark.full),
        pytest.param(True, "fork", id="named-fork"),
        pytest.param(True, "spawn", id="named-spawn", marks=pytest.mark.full),
        pytest.param(True, "forkserver", id="named-forkserver", marks=pytest.mark.full),
    ],
)
def test_children_share_the_dataset_of_their_parent(
    cluster: LocalCluster, job: str, method: str, is_named: bool
) -> None:
    """Child processes that are given a dataset read each row once together, and so do
    the children that are made for the next epoch, and the parent afterwards.
    """
    context: Any = multiprocessing.get_context(method)
    name = job if is_named else None
    read = distribute("distributed_epoch", cluster.target, name, max_outstanding_requests=2)
    dataset = Dataset.range(COUNT).batch(5).apply(read)
    rows = context.SimpleQueue()
    for _ in range(2):
        # So few rows may be read before the second child is ready.
        go = context.Barrier(2)
        children = [context.Process(target=read_rows, args=(dataset, rows, go)) for _ in range(2)]
        for child in children:
            child.start()
        found = rows.get() + rows.get()
        for child in children:
            child.join()
        assert sorted(found) == ALL
    assert [int(row) for batch in dataset for row in batch] == ALL


def rows_of(dataset: Dataset) -> list[int]:
    return [int(row) for batch in dataset for row in batch]


def test_tasks_of_a_pool_share_the_dataset_of_their_parent(cluster: LocalCluster) -> None:
    """The tasks of a call of a pool read each row once together, also if a process runs
    several of them, and those of the next call read each row again.
    """
    read = distribute("distributed_epoch", cluster.target, max_outstanding_requests=2)
    dataset = Dataset.range(COUNT).batch(5).apply(read)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for _ in range(2):
            parts = pool.map(rows_of, [dataset] * 4, chunksize=1)
            assert sorted(row for part in parts for row in part) == ALL


def read_some(dataset: Dataset, rows: Any) -> None:
    rows.put([int(row) for batch in itertools.islice(dataset, 4) for row in batch])


def test_a_child_that_stops_early_says_goodbye(cluster: LocalCluster, job: str) -> None:
    """A child process that ends in the middle of an epoch closes its iterator, so that
    nobody waits for it, and its successor reads everything.
    """
    context: Any = multiprocessing.get_context("fork")
    read = distribute("distributed_epoch", cluster.target, job)
    dataset = Dataset.range(COUNT).batch(5).apply(read)
    rows = context.SimpleQueue()
    for target, expected in ((read_some, ALL[:20]), (read_rows, ALL)):
        child = context.Process(target=target, args=(dataset, rows))
        child.start()
        assert rows.get() == expected
        child.join()
        assert readers_of(cluster, job)[-1][1] == []


def test_the_status_shows_runs_and_how_readers_came(cluster: LocalCluster, job: str) -> None:
    """The status of a dispatcher shows the incarnation of a job, and the run, the
    process and the way of each reader.
    """
    incarnations: list[int] = []
    for _ in range(2):
        program = Program(cluster, job, pause=0.05)
        program.first()

        def came() -> list[tuple[int, dict[str, Any]]]:
            told = readers_of(cluster, job)
            return [(one, reader) for one, found in told for reader in found
                    if one not in incarnations]  # fmt: skip

        await_condition(lambda came=came: len(came()) == 1, what="the reader")
        [(incarnation, reader)] = came()
        assert reader["how"] == "begun"
        assert reader["run"].startswith("process:")
        assert f":{program.process.pid}:" in reader["process"]
        incarnations.append(incarnation)
        program.process.kill()
        program.process.communicate()
    assert incarnations[0] < incarnations[1]
