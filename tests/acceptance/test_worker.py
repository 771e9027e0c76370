"""Section 3: workers run tasks, and their elements travel to readers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zmqdata
from tests.acceptance.reading import (
    DYNAMIC,
    OFF,
    QUICK,
    joined,
    numbers,
    read,
    some,
    status,
    together,
)
from tests.full import full
from zmqdata import Dataset
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PipelineError,
)
from zmqdata.testing.cluster import await_condition

RANGE = Dataset.range(100)
BIG = Dataset.range(20_000)


# --- tags, targets and transports


@pytest.mark.claim("3.6a", "7.62")
@pytest.mark.parametrize("tags", [[""], ["GPU", ""], [" "]])
def test_tags_are_words(tags: list[str]) -> None:
    """An empty tag is a RuntimeError before the worker starts."""
    with pytest.raises(RuntimeError, match=r"Worker tags cannot be empty\."):
        zmqdata.WorkerServer(zmqdata.WorkerConfig("tcp://127.0.0.1:1", worker_tags=tags))


@pytest.mark.claim("3.6b")
@pytest.mark.parametrize(("tag", "copies"), [("COLOCATED", 1), ("colocated", 1), ("GPU", 2)])
@pytest.mark.realprocess
@pytest.mark.full
def test_colocated_workers_of_others_are_left_out(make_worker: Any, tag: str, copies: int) -> None:
    """The target AUTO skips workers of other processes with the tag COLOCATED, and
    other tags change nothing.
    """
    with zmqdata.LocalCluster(1, worker_tags=(tag,), **QUICK) as cluster:
        make_worker(cluster.target)
        assert Counter(numbers(read(RANGE, cluster, OFF))) == Counter(
            dict.fromkeys(range(100), copies)
        )
        assert len(numbers(read(RANGE, cluster, OFF, target_workers="ANY"))) == 200
        assert sorted(numbers(read(RANGE, cluster))) == list(range(100))


@pytest.mark.claim("4.6a", "4.6b")
@pytest.mark.parametrize(
    ("target", "copies"), [("AUTO", 2), ("any", 2), ("LOCAL", 1), ("local", 1)]
)
@pytest.mark.realprocess
@pytest.mark.full
def test_targets_choose_the_workers(make_worker: Any, target: str, copies: int) -> None:
    """ANY and AUTO read all workers, and LOCAL reads the workers of its own process, in
    upper and lower case.
    """
    with zmqdata.LocalCluster(1, **QUICK) as cluster:
        make_worker(cluster.target)
        found = numbers(read(RANGE, cluster, OFF, target_workers=target))
        assert Counter(found) == Counter(dict.fromkeys(range(100), copies))
        assert sorted(numbers(read(RANGE, cluster, target_workers=target))) == list(range(100))


@pytest.mark.claim("4.6b", "7.54")
@pytest.mark.realprocess
@pytest.mark.parametrize(
    "options", [{"target_workers": "LOCAL"}, full({"data_transfer_protocol": "local"})]
)
def test_local_reads_need_a_local_worker(options: dict[str, Any]) -> None:
    """LOCAL without a worker in the same process is an error that names the cause."""
    text = r"Local reads require local tf\.data workers, but no local worker is found\."
    with (
        zmqdata.LocalCluster(1, **QUICK) as cluster,
        pytest.raises(InvalidArgumentError, match=text),
    ):
        next(iter(read(RANGE, cluster, **options)))
    with zmqdata.DispatchServer() as dispatcher, pytest.raises(InvalidArgumentError, match=text):
        next(iter(read(RANGE, dispatcher, **options)))


@pytest.mark.claim("3.7a")
@pytest.mark.core
@pytest.mark.parametrize("protocol", [None, "tcp", "ipc", "shm"])
@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_every_transport_carries_everything(
    cluster: zmqdata.LocalCluster, protocol: str | None, mode: Any
) -> None:
    """TCP, IPC and shared memory deliver the same elements."""
    ds = RANGE.map(lambda x: (x, np.full((int(x), 2), x)))
    found = [
        (int(x), array.shape)
        for x, array in read(ds, cluster, mode, data_transfer_protocol=protocol)
    ]
    assert Counter(found) == Counter(
        dict.fromkeys([(x, (x, 2)) for x in range(100)], 2 if mode is OFF else 1)
    )


@pytest.mark.claim("3.7b", "7.66")
@pytest.mark.parametrize(
    ("offered", "wanted"), [("tcp", "ipc"), ("ipc", "tcp"), ("tcp", "shm"), ("shm", "tcp")]
)
def test_a_transport_that_no_worker_offers(
    make_cluster: Callable[..., zmqdata.LocalCluster], offered: str, wanted: str
) -> None:
    """A reader that asks for a transport that no worker offers gets an error instead of
    blocking.
    """
    cluster = make_cluster(1, data_transfer_protocol=offered)
    with pytest.raises(NotFoundError, match=f"Protocol '{wanted}' is not available for worker"):
        list(read(RANGE, cluster, data_transfer_protocol=wanted))
    assert sorted(numbers(read(RANGE, cluster, data_transfer_protocol=offered))) == list(range(100))


@pytest.mark.claim("3.7c")
def test_local_elements_are_not_copied(make_dispatcher: Any, make_worker: Any) -> None:
    """Within one process the reader gets the same objects, even if they cannot be
    serialized.
    """
    dispatcher = make_dispatcher()
    make_worker(dispatcher.target)
    ds = Dataset.range(3).map(lambda x: {"lock": threading.Lock(), "x": x})
    found = list(read(ds, dispatcher, target_workers="LOCAL"))
    assert all(element["lock"].acquire(blocking=False) for element in found)
    with pytest.raises(DataServiceError):
        list(read(ds, dispatcher, data_transfer_protocol="tcp"))


@pytest.mark.claim("3.2d")
def test_local_tasks_end_with_their_reader(make_dispatcher: Any, make_worker: Any) -> None:
    """Partial reads of an endless dataset leave no task behind."""
    dispatcher = make_dispatcher()
    worker = make_worker(dispatcher.target)
    ds = read(Dataset.counter(), dispatcher, OFF, target_workers="LOCAL")
    for _ in range(5):
        assert some(ds, 3) == [0, 1, 2]
    await_condition(lambda: worker.num_tasks() == 0, what="the tasks to end")


# --- elements and errors


@pytest.mark.claim("3.3a")
@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_an_error_stands_for_its_element(
    make_cluster: Callable[..., zmqdata.LocalCluster], mode: Any
) -> None:
    """A user's exception is raised in its element's place with type, text and
    traceback, and reading continues.
    """
    cluster = make_cluster(1)
    it = iter(read(Dataset.range(5).map(lambda x: 12 // (int(x) - 2)), cluster, mode))
    assert some(it, 2) == [-6, -12]
    with pytest.raises(PipelineError, match="ZeroDivisionError") as told:
        next(it)
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    assert "12 // (int(x) - 2)" in told.value.remote_traceback
    assert numbers(it) == [12, 6]


@pytest.mark.claim("3.3a")
def test_every_error_is_delivered_once(cluster: zmqdata.LocalCluster) -> None:
    """Two workers deliver each element and each error once."""

    def odd(x: Any) -> Any:
        if int(x) % 2:
            raise ValueError(f"odd {int(x)}.")
        return x

    it, found, errors = iter(read(RANGE.map(odd), cluster)), [], []
    while True:
        try:
            found.append(int(next(it)))
        except StopIteration:
            break
        except PipelineError as error:
            errors.append(int(str(error.__cause__).split()[1].rstrip(".")))
    assert (sorted(found), sorted(errors)) == (list(range(0, 100, 2)), list(range(1, 100, 2)))


@pytest.mark.claim("3.3b")
def test_an_error_with_any_exception(cluster: zmqdata.LocalCluster) -> None:
    """Exceptions of a local class, with odd arguments, or that end a program arrive as
    errors of elements.
    """

    class Mine(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(f"{a} and {b}")

    def fail(x: Any) -> Any:
        kind = int(x)
        if kind == 0:
            raise Mine(1, 2)
        if kind == 1:
            raise KeyError(("a", object()))
        if kind == 2:
            raise SystemExit(3)
        if kind == 3:
            raise StopIteration
        return x

    it, errors = iter(read(Dataset.range(5).map(fail), cluster)), []
    found = []
    while True:
        try:
            found.append(int(next(it)))
        except StopIteration:
            break
        except DataServiceError as error:
            errors.append(str(error))
    assert found == [4]
    assert len(errors) == 4
    assert any("Mine" in error and "1 and 2" in error for error in errors)


@pytest.mark.claim("3.3c")
def test_each_element_goes_to_one_reader(cluster: zmqdata.LocalCluster) -> None:
    """An element of an endless shared job goes to exactly one of four readers."""
    name = f"each {cluster.target}"
    its = [iter(read(Dataset.counter(), cluster, job_name=name)) for _ in range(4)]
    found = joined(together(*(lambda it=it: some(it, 500) for it in its)))
    for it in its:
        it.close()
    assert max(Counter(found).values()) <= 2  # two workers count, each for itself


@pytest.mark.claim("3.7e")
@pytest.mark.core
def test_large_elements_arrive(cluster: zmqdata.LocalCluster) -> None:
    """Elements of tens of megabytes, larger than any buffer of the worker, arrive."""
    ds = Dataset.range(4).map(lambda x: np.full(4_000_000, x))
    assert sorted(int(x[0]) for x in read(ds, cluster)) == [0, 1, 2, 3]


@pytest.mark.claim("3.7e")
def test_elements_of_no_size_arrive(cluster: zmqdata.LocalCluster) -> None:
    """Empty arrays, texts and structures arrive as elements."""
    ds = Dataset.range(30).map(lambda x: (np.zeros((0, 3)), "", b"", {}, ()))
    found = list(read(ds, cluster))
    assert len(found) == 30
    assert all(element[0].shape == (0, 3) and element[1:] == ("", b"", {}, ()) for element in found)


@pytest.mark.claim("3.7f")
def test_elements_belong_to_their_reader(cluster: zmqdata.LocalCluster) -> None:
    """A delivered array is writable, and writing to it changes no other element."""
    for array in read(RANGE.map(lambda x: np.zeros(5000)), cluster):
        array += 1
        assert float(array.sum()) == 5000


@pytest.mark.claim("3.2a")
@pytest.mark.core
def test_nothing_runs_before_it_is_read(cluster: zmqdata.LocalCluster, tmp_path: Path) -> None:
    """A function runs once for each element, and not before a reader iterates."""
    log = tmp_path / "log"

    def note(x: Any) -> Any:
        with log.open("a") as file:
            file.write("x")
        return x

    ds = read(Dataset.range(10).map(note, output_spec=zmqdata.TensorSpec((), np.int64)), cluster)
    assert not log.exists()
    assert len(numbers(ds)) == 10
    assert log.read_text() == "x" * 10


# --- losses of workers


@pytest.mark.claim("3.1b", "3.5a", "4.5b")
@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_lost_worker_loses_and_repeats_nothing(
    make_cluster: Callable[..., zmqdata.LocalCluster], way: str
) -> None:
    """A DYNAMIC job delivers each element once and ends, although a worker ends for
    good.
    """
    cluster = make_cluster(2)
    it = iter(read(BIG, cluster, max_outstanding_requests=200))
    found = some(it, 500)
    getattr(cluster.workers[0], way)()
    assert sorted(found + numbers(it)) == list(range(20_000))


@pytest.mark.claim("3.5a")
def test_all_workers_are_started_again(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """If all workers of a DYNAMIC job are lost, the reader waits and resumes with new
    workers.
    """
    cluster = make_cluster(1)
    it = iter(read(BIG, cluster, max_outstanding_requests=200))
    found = some(it, 500)
    cluster.workers[0].kill()
    cluster.add_worker()
    assert sorted(found + numbers(it)) == list(range(20_000))


@pytest.mark.claim("3.5b")
def test_off_starts_over_on_a_new_worker(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """Under OFF, a new worker reads from the beginning, and the iteration ends without
    the lost copy.
    """
    cluster = make_cluster(1)
    it = iter(read(BIG, cluster, OFF, max_outstanding_requests=200))
    found = some(it, 500)
    assert found == list(range(500))
    cluster.workers[0].kill()
    cluster.add_worker()
    rest = numbers(it)
    assert set(found + rest) == set(range(20_000))
    assert 0 in rest


@pytest.mark.claim("3.5b", "4.5b")
def test_off_ends_without_a_worker_that_is_lost(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """Under OFF, the iteration ends with the other worker's whole copy if a worker is
    lost for good.
    """
    cluster = make_cluster(2)
    it = iter(read(Dataset.range(5000), cluster, OFF, max_outstanding_requests=50))
    found = some(it, 100)
    cluster.workers[0].kill()
    found += numbers(it)
    seen = Counter(found)
    assert set(seen) == set(range(5000))
    assert max(seen.values()) <= 2


@pytest.mark.claim("3.1d")
def test_a_quiet_period_lets_elements_out(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """A worker with a quiet period delivers its buffered elements before it stops."""
    cluster = make_cluster(1, shutdown_quiet_period_ms=5000)
    it = iter(read(Dataset.range(10), cluster, OFF))
    found = some(it, 2)
    await_condition(lambda: status(cluster)["tasks"][0]["produced"] == 10, what="ten elements")
    stopping = threading.Thread(target=cluster.workers[0].stop)
    stopping.start()
    found += numbers(islice(it, 8))
    assert found == list(range(10))
    it.close()
    stopping.join(30)
    assert not stopping.is_alive()


@pytest.mark.claim("3.2b")
def test_a_worker_of_a_larger_dispatcher_reads_big_pipelines(
    make_cluster: Callable[..., zmqdata.LocalCluster], tmp_path: Path
) -> None:
    """Workers get large pipelines from a dispatcher with or without a work folder."""
    table = np.arange(1_000_000)
    ds = Dataset.range(4).map(lambda i: table[int(i)])
    for options in ({}, {"work_dir": str(tmp_path / "work")}):
        cluster = make_cluster(1, **options)
        assert numbers(read(ds, cluster, OFF)) == [0, 1, 2, 3]


@pytest.mark.claim("3.2c")
def test_code_that_a_worker_lacks_is_an_error(
    cluster: zmqdata.LocalCluster,
    host_kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A module that a worker process cannot import is an error that names the module
    and the remedy.
    """
    (tmp_path / "only_here_for_acceptance.py").write_text("def same(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)  # the workers were started without it
    import only_here_for_acceptance

    ds = Dataset.range(3).map(only_here_for_acceptance.same)
    if host_kind == "threads":  # they share the modules of this process
        assert sorted(numbers(read(ds, cluster))) == [0, 1, 2]
        return
    with pytest.raises(FailedPreconditionError, match="only_here_for_acceptance") as told:
        list(read(ds, cluster))
    assert "ship" in str(told.value)
