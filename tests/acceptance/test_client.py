"""Section 4: a client reads, ends and releases; its dataset states cardinality and
spec.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zmqdata
from tests.acceptance.reading import DYNAMIC, OFF, numbers, read, some, status, together
from zmqdata import Dataset, ShardingPolicy
from zmqdata.errors import CancelledError, UnavailableError
from zmqdata.testing.cluster import await_condition

RANGE = Dataset.range(100)
UNKNOWN, INFINITE = zmqdata.UNKNOWN_CARDINALITY, zmqdata.INFINITE_CARDINALITY
FINITE, EMPTY, ENDLESS, OPEN = (
    RANGE,
    Dataset.range(0),
    Dataset.counter(),
    RANGE.filter(lambda x: True),
)


# --- properties of a distributed dataset


@pytest.mark.claim("4.7c")
@pytest.mark.parametrize(
    ("ds", "mode", "expected"),
    [
        *((FINITE, mode, UNKNOWN) for mode in ShardingPolicy),
        *((OPEN, mode, UNKNOWN) for mode in ShardingPolicy),
        (ENDLESS, OFF, INFINITE),
        (ENDLESS, DYNAMIC, INFINITE),
        (ENDLESS, ShardingPolicy.DATA, INFINITE),
        (ENDLESS, ShardingPolicy.FILE, UNKNOWN),
        (ENDLESS, ShardingPolicy.FILE_OR_DATA, UNKNOWN),
        (ENDLESS, ShardingPolicy.HINT, UNKNOWN),
        (EMPTY, OFF, 0),
        (EMPTY, DYNAMIC, 0),
        (EMPTY, ShardingPolicy.DATA, 0),
        (EMPTY, ShardingPolicy.FILE, 0),
        (EMPTY, ShardingPolicy.FILE_OR_DATA, 0),
        (EMPTY, ShardingPolicy.HINT, UNKNOWN),
    ],
)
def test_cardinality_of_a_distributed_dataset(
    ds: Dataset, mode: ShardingPolicy, expected: int
) -> None:
    """A distributed dataset has the cardinality of tf.data's table, which is unknown
    unless the input is empty or endless.
    """
    assert read(ds, "tcp://127.0.0.1:1", mode).cardinality() == expected


@pytest.mark.claim("4.7c")
def test_spec_of_a_distributed_dataset() -> None:
    """A distributed dataset has the ``element_spec`` of its input before the first
    read.
    """
    ds = RANGE.map(lambda x: {"a": (x, str(x))}).batch(4)
    assert read(ds, "tcp://127.0.0.1:1").element_spec == ds.element_spec


@pytest.mark.claim("4.7b")
def test_iterators_can_be_saved(cluster: zmqdata.LocalCluster) -> None:
    """A second iterator resumes from the state of a first, which tf.data refuses."""
    it = iter(read(RANGE, cluster))
    had = [int(next(it))]
    state = it.state_dict()
    it.close()
    again = iter(read(RANGE, cluster))
    again.load_state_dict(state)
    assert sorted(had + [int(element) for element in again]) == sorted(
        int(element) for element in RANGE
    )


# --- reading


@pytest.mark.claim("4.3a", "4.3d")
def test_one_workers_elements_come_in_order(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """The client delivers the elements of one worker in the order in which it produced
    them.
    """
    cluster = make_cluster(1)
    ds = Dataset.range(3000)
    assert numbers(read(ds, cluster)) == numbers(read(ds, cluster, OFF)) == list(range(3000))


@pytest.mark.claim("4.3b")
def test_a_slow_worker_holds_nobody_up(cluster: zmqdata.LocalCluster, tmp_path: Path) -> None:
    """While the function of one worker blocks, the client delivers the elements of the
    other worker.
    """
    release = tmp_path / "release"

    def stand_at_first(x: Any) -> Any:
        if int(x) == 0:
            await_condition(release.exists, 40, "the release")
        return x

    it = iter(read(Dataset.range(60).map(stand_at_first), cluster))
    found = some(it, 59)
    release.touch()
    assert sorted(found + numbers(it)) == list(range(60))


@pytest.mark.claim("4.3c")
def test_few_outstanding_requests_bound_what_is_made(
    make_dispatcher: Any, make_worker: Any
) -> None:
    """A limit of one outstanding request and a small buffer keep a worker from
    producing far ahead of its reader.
    """
    dispatcher = make_dispatcher()
    make_worker(dispatcher.target, buffer_bytes=100_000)
    it = iter(read(Dataset.counter().map(count_calls), dispatcher, max_outstanding_requests=1))
    CALLS.clear()
    assert len([next(it) for _ in range(5)]) == 5
    await_condition(lambda: is_still(CALLS), what="the worker to stop making elements")
    made = len(CALLS)
    assert made < 2000, f"{made} elements of 10 KB were made for 5 that were read"
    it.close()


CALLS: list[int] = []


def count_calls(x: Any) -> Any:
    CALLS.append(int(x))
    return b"x" * 10_000


def is_still(counted: list[int]) -> bool:
    before, ends = len(counted), time.monotonic() + 0.3
    while time.monotonic() < ends:
        if len(counted) != before:
            return False
    return True


@pytest.mark.claim("4.2a")
@pytest.mark.core
def test_reading_goes_on_without_a_dispatcher(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """While the dispatcher is down, the only reader of a job receives elements from the
    workers.
    """
    cluster = make_cluster(2)
    it = iter(read(Dataset.counter(), cluster, OFF, task_refresh_interval_hint_ms=50))
    some(it, 10)
    cluster.dispatcher.kill()
    assert len(some(it, 5000)) == 5000
    it.close()


@pytest.mark.claim("4.2b", "2.3c")
def test_a_dispatcher_without_a_journal_ends_its_jobs(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """A dispatcher without a work folder loses its jobs at a restart, and readers get
    an error within seconds.
    """
    cluster = make_cluster(1, fault_tolerant_mode=False)
    it = iter(read(Dataset.counter(), cluster, OFF, task_refresh_interval_hint_ms=50))
    some(it, 10)
    cluster.dispatcher.kill()
    cluster.dispatcher.restart()
    with pytest.raises(UnavailableError):
        together(lambda: [None for _ in it])


@pytest.mark.claim("4.1b")
def test_a_new_job_after_a_restart(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """After a restart of the dispatcher its workers register again, and old and new
    dataset objects can be read.
    """
    cluster = make_cluster(2)
    ds = read(RANGE, cluster)
    assert sorted(numbers(ds)) == list(range(100))
    cluster.dispatcher.kill()
    cluster.dispatcher.restart()
    assert sorted(numbers(ds)) == list(range(100))
    assert sorted(numbers(read(RANGE, cluster))) == list(range(100))


@pytest.mark.claim("4.1c")
def test_a_reader_may_come_before_everybody(silent_address: str, make_worker: Any) -> None:
    """An iterator waits until its dispatcher and a worker start."""
    ds = read(RANGE, silent_address, dispatcher_timeout=30)
    found: list[list[int]] = []
    reading = threading.Thread(target=lambda: found.append(numbers(ds)), daemon=True)
    reading.start()
    port = int(silent_address.rpartition(":")[2])
    with zmqdata.DispatchServer(zmqdata.DispatcherConfig(port=port)) as dispatcher:
        make_worker(dispatcher.target)
        reading.join(20)
    assert [sorted(one) for one in found] == [list(range(100))]


# --- the end


@pytest.mark.claim("4.5a")
@pytest.mark.core
def test_an_iterator_that_ended_stays_ended(cluster: zmqdata.LocalCluster) -> None:
    """An iterator at its end raises StopIteration at every further call."""
    it = iter(read(RANGE, cluster))
    assert len(numbers(it)) == 100
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(it)


@pytest.mark.claim("4.7a")
@pytest.mark.parametrize("way", ["close", "drop"])
def test_an_iterator_that_is_let_go_of_leaves_nothing(
    make_cluster: Callable[..., zmqdata.LocalCluster], way: str
) -> None:
    """Closing or dropping an iterator ends its job and tasks, and a closed iterator
    yields nothing.
    """
    cluster = make_cluster(1)
    it = iter(read(Dataset.counter(), cluster))
    next(it)
    if way == "close":
        it.close()
        assert list(it) == []
        it.close()
    del it
    gc.collect()
    await_condition(lambda: not status(cluster)["tasks"], what="the tasks to end")


def in_wait(thread: threading.Thread) -> bool:
    """Return True if a thread waits for something."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "wait"


@pytest.mark.claim("4.7a")
def test_closing_wakes_who_waits(make_dispatcher: Any) -> None:
    """A thread that waits for an element when another thread closes the iterator is
    told so: it has not had all elements.
    """
    it = iter(read(RANGE, make_dispatcher()))
    told: list[BaseException] = []

    def wait() -> None:
        try:
            list(it)
        except CancelledError as error:
            told.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    await_condition(lambda: in_wait(waiting), what="a thread that waits")
    it.close()
    waiting.join(30)
    assert len(told) == 1
    assert list(it) == []


@pytest.mark.claim("4.7d")
def test_forever_repeats_of_nothing(cluster: zmqdata.LocalCluster) -> None:
    """``repeat(2)`` of an empty distributed dataset ends."""
    assert numbers(read(EMPTY, cluster).repeat(2)) == []


@pytest.mark.claim("4.7e")
@pytest.mark.core
def test_two_stages(cluster: zmqdata.LocalCluster) -> None:
    """A distributed dataset feeds a second pipeline that the same service runs."""
    inner = read(Dataset.range(30), cluster)
    assert Counter(numbers(read(inner.map(lambda x: x + 1), cluster, OFF))) == Counter(
        dict.fromkeys(range(1, 31), 2)
    )


@pytest.mark.claim("4.7e")
def test_two_stages_on_two_services(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """A second stage may run on another service."""
    first, second = make_cluster(2), make_cluster(1)
    ds = read(read(RANGE, first).map(lambda x: x * 2), second, OFF)
    assert sorted(numbers(ds)) == list(range(0, 200, 2))


@pytest.mark.claim("4.7e")
def test_two_stages_share_a_named_job(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """Workers of a second stage that name the job of the first stage share its
    elements.
    """
    cluster = make_cluster(2)
    inner = read(RANGE, cluster, job_name="first stage")
    assert sorted(numbers(read(inner, cluster, OFF))) == list(range(100))


@pytest.mark.claim("4.7f")
def test_distribute_within_a_function(cluster: zmqdata.LocalCluster) -> None:
    """Functions of ``interleave`` and ``flat_map`` may open distributed datasets."""
    target = cluster.target

    def opened(x: Any) -> Dataset:
        return Dataset.range(10).apply(zmqdata.distribute("distributed_epoch", target))

    ds = Dataset.range(3)
    assert sorted(numbers(ds.interleave(opened, cycle_length=3))) == sorted([*range(10)] * 3)
    assert sorted(numbers(ds.flat_map(opened))) == sorted([*range(10)] * 3)


@pytest.mark.claim("4.7g")
def test_operations_behind_distribute_run_here(cluster: zmqdata.LocalCluster) -> None:
    """Operations after ``distribute`` run in the process of the client."""
    seen = []
    ds = read(RANGE, cluster).map(lambda x: seen.append(int(x)) or x)
    assert sorted(rows_of(ds.batch(10).prefetch(2).shuffle(3))) == list(range(100))
    assert sorted(set(seen)) == list(range(100))


def rows_of(batches: Any) -> list[int]:
    return [int(x) for batch in batches for x in batch]


@pytest.mark.claim("4.6c", "7.55")
def test_readers_of_a_job_agree_on_targets(cluster: zmqdata.LocalCluster) -> None:
    """A reader that asks for ANY is refused by a job with AUTO, and upper and lower
    case are equal.
    """
    name = f"targets of {cluster.target}"
    it = iter(read(Dataset.counter(), cluster, job_name=name))
    next(it)
    again = iter(read(Dataset.counter(), cluster, job_name=name, target_workers="auto"))
    next(again)
    with pytest.raises(
        zmqdata.errors.InvalidArgumentError, match="Existing target workers: <AUTO>"
    ):
        next(iter(read(Dataset.counter(), cluster, job_name=name, target_workers="ANY")))
    it.close()
    again.close()


# --- clients that vanish


@pytest.mark.claim("2.9a", "2.9c")
def test_a_job_without_readers_is_collected(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """The dispatcher collects a job ``job_gc_timeout_ms`` after its last reader left,
    and the next reader starts it anew.
    """
    cluster = make_cluster(1, job_gc_timeout_ms=0, job_gc_check_interval_ms=20)
    for _ in range(2):
        it = iter(read(RANGE, cluster, job_name="left"))
        assert some(it, 10) == list(range(10))
        it.close()
        await_condition(lambda: not status(cluster)["tasks"], what="the job to be collected")


@pytest.mark.claim("2.9a")
def test_a_job_is_kept_for_a_while(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """Within ``job_gc_timeout_ms``, and without limit at -1, a new reader gets the
    remaining elements of the job.
    """
    for timeout in (60_000, -1):
        cluster = make_cluster(1, job_gc_timeout_ms=timeout, job_gc_check_interval_ms=20)
        it = iter(read(Dataset.range(3000), cluster, job_name="kept"))
        found = some(it, 10)
        it.close()
        assert sorted(found + numbers(read(Dataset.range(3000), cluster, job_name="kept"))) == list(
            range(3000)
        )


@pytest.mark.claim("2.9b")
def test_dynamic_jobs_are_kept_where_that_is_wanted(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """A dispatcher without ``gc_dynamic_sharding_jobs`` collects an OFF job and keeps a
    DYNAMIC job.
    """
    options = {
        "job_gc_timeout_ms": 0,
        "job_gc_check_interval_ms": 20,
        "gc_dynamic_sharding_jobs": False,
    }
    cluster = make_cluster(1, **options)
    for name, mode in (("off", OFF), ("dynamic", DYNAMIC)):
        it = iter(read(Dataset.range(3000), cluster, mode, job_name=name))
        next(it)
        it.close()
    await_condition(
        lambda: [one["job"] for one in status(cluster)["jobs"]] == ["dynamic"],
        what="off to be collected",
    )
    assert len(numbers(read(Dataset.range(3000), cluster, job_name="dynamic"))) == 2999


STOPPED = """
import sys
import zmqdata
ds = zmqdata.Dataset.range(800)
ds = ds.apply(zmqdata.distribute("distributed_epoch", sys.argv[1], "stopped", max_outstanding_requests=20))
for x in ds:
    print(int(x), flush=True)
    if x >= 0 and sys.stdin.readline() == "":
        break
"""


@pytest.mark.claim("2.9d", "7.24")
def test_a_silent_client_is_given_up(
    make_cluster: Callable[..., zmqdata.LocalCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher gives up a stopped client of a job that another client of its run
    reads, and that client rejoins and reads the rest.
    """
    monkeypatch.setenv("ZMQDATA_RUN_ID", "one run")
    cluster = make_cluster(1, client_timeout_ms=4_000, job_gc_check_interval_ms=20)
    command = [sys.executable, "-c", STOPPED, cluster.target]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    with subprocess.Popen(command, text=True, **pipes) as silent, contextlib.ExitStack() as at_end:
        at_end.callback(silent.kill)  # Popen waits for it, and a stopped process never ends
        assert silent.stdin is not None
        assert silent.stdout is not None
        found = [int(silent.stdout.readline())]
        await_condition(
            lambda: status(cluster)["jobs"][0]["delivered"] == 1,
            what="the first element to be reported",
        )
        silent.send_signal(signal.SIGSTOP)
        other = iter(
            read(Dataset.range(800), cluster, job_name="stopped", max_outstanding_requests=20)
        )
        found.append(int(next(other)))
        await_condition(
            lambda: status(cluster)["jobs"][0]["clients"] == 1,
            30,
            "the silent client to be given up",
        )
        found += [int(x) for x in itertools.islice(other, 20)]
        silent.send_signal(signal.SIGCONT)
        silent.stdin.write("\n" * 800)
        silent.stdin.close()
        together(
            lambda: found.extend(int(x) for x in other),
            lambda: found.extend(map(int, silent.stdout)),
        )
        assert "given up this client of job 'stopped', which now rejoins" in silent.stderr.read()
    assert sorted(found) == list(range(800))
