"""Tests of a dispatcher with a journal that is killed and restarted, and of a
dispatcher that must not start.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.counts import how_many
from zmqdata import Dataset, LocalCluster, distribute, from_dataset_id, register_dataset
from zmqdata.client.calls import status
from zmqdata.cluster.processes import ServerProcess
from zmqdata.cluster.starting import ServerStartError
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from zmqdata.testing.cluster import await_condition, no_leaks

pytestmark = pytest.mark.realprocess

COUNT, DEATHS = 10_000, how_many(3, 6)
START = 30.0
OPTIONS: dict[str, Any] = {"heartbeat_interval_ms": 100, "buffer_bytes": 1 << 16}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A dispatcher with a journal, and two workers of one process each."""
    with LocalCluster(2, **OPTIONS) as made:
        yield made


def crash(cluster: LocalCluster) -> None:
    cluster.dispatcher.kill()
    cluster.dispatcher.restart()


def numbers(
    cluster: LocalCluster, job: str | None = "job", repeat: int = 1, count: int = COUNT
) -> Iterator[int]:
    """Read ``count`` elements of 800 bytes; yield the number in each."""
    dataset = Dataset.range(count).map(lambda x: np.full(100, x))
    dataset = dataset.apply(
        distribute("distributed_epoch", cluster.target, job, max_outstanding_requests=64)
    )
    for element in dataset.repeat(repeat):
        yield int(element[0])


def some(elements: Iterator[int], count: int = 1_000) -> list[int]:
    return [next(elements) for _ in range(count)]


def not_once(found: list[int], times: int = 1, count: int = COUNT) -> dict[int, int]:
    """Return the number of times that each element came, except elements that came
    ``times`` times.
    """
    seen = Counter(found)
    return {x: seen[x] for x in sorted(seen.keys() | set(range(count))) if seen[x] != times}


def attempts(cluster: LocalCluster) -> set[int]:
    return {task["attempt"] for task in status(cluster.target)["tasks"]}


class Reader(threading.Thread):
    """A training loop in a thread that reads everything."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.found: list[int] = []
        self.error: BaseException | None = None
        self._elements = numbers(cluster)
        self.start()

    def run(self) -> None:
        try:
            for x in self._elements:
                self.found.append(x)
        except BaseException as error:
            self.error = error


# --- it continues


@pytest.mark.timeout(120)
def test_killed_many_times_nothing_is_lost_and_nothing_comes_twice(cluster: LocalCluster) -> None:
    """Two clients share a job through several deaths of the dispatcher: each element
    comes once, and no task begins again.
    """
    readers = [Reader(cluster) for _ in range(2)]
    for death in range(1, DEATHS + 1):
        await_condition(
            lambda goal=death * 1_200: sum(len(one.found) for one in readers) > goal,
            what="elements",
        )
        crash(cluster)
    for reader in readers:
        reader.join(30)
        assert reader.error is None
        assert reader.found
    assert not_once([x for reader in readers for x in reader.found]) == {}
    assert attempts(cluster) == {1}


def test_killed_between_registration_and_first_read() -> None:
    """A registered dataset and its pipeline are still known after a restart."""
    with LocalCluster(1, **OPTIONS) as cluster:
        dataset_id = register_dataset(cluster.target, Dataset.range(100).map(lambda x: x * 2))
        crash(cluster)
        dataset = from_dataset_id("distributed_epoch", cluster.target, dataset_id)
        crash(cluster)
        assert sorted(map(int, dataset)) == list(range(0, 200, 2))


@pytest.mark.full
def test_killed_in_every_repetition(cluster: LocalCluster) -> None:
    """Each repetition of a ``repeat`` after ``distribute`` is complete, whenever the
    dispatcher dies.
    """
    elements = numbers(cluster, repeat=3, count=4_000)
    found: list[int] = []
    for _ in range(3):
        found += some(elements, 3_000)
        crash(cluster)
    found += elements
    assert not_once(found, times=3, count=4_000) == {}


@pytest.mark.full
def test_killed_with_a_worker_at_once(cluster: LocalCluster) -> None:
    """The tasks of a worker that died together with the dispatcher run again elsewhere,
    without loss or repeat.
    """
    elements = numbers(cluster)
    found = some(elements)
    cluster.workers[0].kill()
    crash(cluster)
    found += elements
    assert not_once(found) == {}
    assert attempts(cluster) == {1, 2}


@pytest.fixture
def on_threads() -> Iterator[LocalCluster]:
    """A dispatcher with a journal, and two workers, all in threads."""
    with LocalCluster(2, in_process=True, **OPTIONS) as made:
        yield made


def test_consumers_keep_their_steps(on_threads: LocalCluster) -> None:
    """Both consumers of a coordinated job have each step, and together each element
    once, through two restarts.
    """
    cluster = on_threads
    dataset = Dataset.range(3_000).map(lambda x: x)
    readers = [
        iter(
            dataset.apply(
                distribute(
                    "distributed_epoch",
                    cluster.target,
                    "steps",
                    consumer_index=consumer,
                    num_consumers=2,
                    finite="drop",
                )
            )
        )
        for consumer in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:

        def step() -> list[int | None]:
            return list(pool.map(lambda reader: next(reader, None), readers))

        found = [step() for _ in range(200)]
        crash(cluster)
        found += [step() for _ in range(400)]
        crash(cluster)
        while None not in found[-1]:
            found.append(step())
    assert found.pop() == [None, None]
    seen = Counter(int(x) for pair in found for x in pair if x is not None)
    assert set(seen.values()) == {1}
    assert len(seen) >= 2_998


@pytest.mark.full
def test_a_job_is_what_it_was(cluster: LocalCluster) -> None:
    """After a restart a job that was OFF is not read as DYNAMIC (tf.data's
    testChangeProcessingModeAfterRestart).
    """
    dataset = Dataset.range(10)
    first = iter(dataset.apply(distribute("parallel_epochs", cluster.target, "test")))
    next(first)
    crash(cluster)
    other = dataset.apply(distribute("distributed_epoch", cluster.target, "test"))
    with pytest.raises(
        InvalidArgumentError,
        match="Tried to create job with name test, but found an existing job wi",
    ):
        list(other)
    assert len(list(first)) == 19


@pytest.mark.full
def test_a_finished_job_stays_finished(cluster: LocalCluster) -> None:
    """A dataset that is made after the end of its job finds it finished, also after a
    restart of the dispatcher.
    """
    assert not_once(list(numbers(cluster, count=500)), count=500) == {}
    crash(cluster)
    with pytest.raises(FailedPreconditionError, match="was read to its end"):
        list(numbers(cluster, count=500))


def test_a_temporary_folder_goes_with_its_cluster() -> None:
    """A closed cluster removes the temporary folder of its dispatcher."""
    with no_leaks():
        with LocalCluster(1, **OPTIONS) as cluster:
            server = cluster.dispatcher
            assert isinstance(server, ServerProcess)
            [folder] = [
                Path(one.partition("=")[2])
                for one in server.options
                if one.startswith("--work-dir=")
            ]
            assert sorted(path.name for path in folder.iterdir()) == [
                "journal",
                "lock",
                "pipelines",
            ]
        assert not folder.parent.exists()


# --- it does not start


def dispatcher_on(folder: Path, *options: str) -> ServerProcess:
    return ServerProcess(
        "zmqdata.dispatcher", [f"--work-dir={folder}", "--log-level=info", *options]
    )


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ServerProcess]:
    with contextlib.closing(dispatcher_on(folder)) as server:
        server.launch()
        server.await_ready(START)
        yield server


def refusal(folder: Path) -> str:
    """Return the error of a dispatcher that does not start on a folder, with exit code
    2.
    """
    with contextlib.closing(dispatcher_on(folder)) as server:
        server.launch()
        with pytest.raises(
            ServerStartError, match="ended with exit code 2 before it was ready"
        ) as caught:
            server.await_ready(START)
        assert server.log.count("\n") == 1
        return str(caught.value)


def used(folder: Path, datasets: int = 5) -> Path:
    """Return the journal of a dispatcher that registered some datasets and was
    killed.
    """
    with running(folder) as server:
        for number in range(datasets):
            register_dataset(server.address, Dataset.range(number), dataset_id=f"dataset-{number}")
        server.kill()
    return folder / "journal"


def test_a_second_dispatcher_is_refused(tmp_path: Path) -> None:
    """A second dispatcher on a work folder is refused with process and host of the
    first, and may have it later.
    """
    with running(tmp_path) as first:
        text = refusal(tmp_path)
        assert (
            f"is in use by another dispatcher: process {first.pid} on host {os.uname().nodename}"
            in text
        )
        first.kill()
    with running(tmp_path):
        pass


def test_a_torn_tail_is_left_out(tmp_path: Path) -> None:
    """The dispatcher warns of a write that was cut off, and keeps everything before
    it.
    """
    journal = used(tmp_path)
    content = journal.read_bytes()
    journal.write_bytes(content[:-3])
    with running(tmp_path) as server:
        assert "was cut off" in server.log
        assert from_dataset_id("parallel_epochs", server.address, "dataset-3") is not None


@pytest.mark.full
@pytest.mark.parametrize("share", [0.5, 0.1, 0.8])
def test_a_flipped_byte_is_not_believed(tmp_path: Path, share: float) -> None:
    """A dispatcher does not start on a damaged journal: it names file and offset, and
    changes nothing.
    """
    journal = used(tmp_path)
    content = bytearray(journal.read_bytes())
    content[int(len(content) * share)] ^= 4
    journal.write_bytes(content)
    text = refusal(tmp_path)
    assert f"`{journal}` is damaged at offset" in text
    assert journal.read_bytes() == content


def test_a_lost_pipeline_is_named(tmp_path: Path) -> None:
    """A dispatcher does not start if a pipeline that its journal names is missing."""
    used(tmp_path)
    gone = sorted((tmp_path / "pipelines").iterdir())[0]
    gone.unlink()
    assert "names datasets whose pipelines are missing from the work folder: dataset-" in refusal(
        tmp_path
    )


# --- its disk is full


def register_until_it_ends(server: ServerProcess) -> int:
    """Register datasets until the dispatcher has ended; return their number.

    A request that is only late is sent again.
    """
    told = 0
    while server.alive:
        with contextlib.suppress(UnavailableError):
            register_dataset(
                server.address,
                Dataset.range(3),
                dataset_id=f"dataset-{told}",
                dispatcher_timeout=3.0,
            )
            told += 1
        assert told < 1_000, "the disk is large"
    return told


def test_a_full_disk_stops_the_dispatcher(tmp_path: Path) -> None:
    """A dispatcher that cannot write its journal says why and ends with code 1; all
    that it acknowledged is known again later.
    """
    with running(tmp_path) as server:
        # A write beyond this size fails, as on a full disk.
        limit = (tmp_path / "journal").stat().st_size + 8_000
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, limit))
        told = register_until_it_ends(server)
        assert server.exit_code == 1
        assert (
            f"{tmp_path}/journal cannot be written (File too large), so the dispatcher stops"
            in server.log
        )
    with running(tmp_path) as server:
        known = status(server.address)
        assert known["jobs"] == []
        for number in range(told):
            from_dataset_id("parallel_epochs", server.address, f"dataset-{number}")
    assert told
