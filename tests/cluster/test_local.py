"""Tests of a local cluster: its options, its handles, and its two equivalent modes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.forks import told_by_child
from zmqdata import Dataset, WorkerConfig, WorkerServer, audit, distribute, distributed_save
from zmqdata.client.calls import status
from zmqdata.cluster import LocalCluster
from zmqdata.cluster.starting import ServerStartError
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    PipelineError,
    UnavailableError,
)
from zmqdata.storage.progress import progress_of
from zmqdata.testing.cluster import await_condition, descendants, listens, no_leaks
from zmqdata.transport import keys

FAST = {"heartbeat_interval_ms": 100}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_workers": -1}, ValueError, "`num_workers` must be at least 0, got -1"),
        ({"num_workers": "2"}, TypeError, "`num_workers` must be int, got '2' of type str"),
        ({"num_workers": True}, TypeError, "`num_workers` must be int, got True of type bool"),
        ({"num_workers": None}, TypeError, "`num_workers` must be int"),
        ({"in_process": 1}, TypeError, "`in_process` must be bool, got 1 of type int"),
        ({"processes_per_worker": 1.0}, TypeError, "`processes_per_worker` must be int"),
        ({"host": ""}, ValueError, "`host` must not be empty"),
        (
            {"heartbeat_interval_ms": 500, "worker_timeout_ms": 500},
            ValueError,
            "must be shorter .* restarted dispatcher",
        ),
        (
            {"num_workers": 2, "worker_address": "gate:70"},
            ValueError,
            "2 workers cannot all .*'gate:70'",
        ),
        (
            {"num_workers": 3, "data_ports": (7000, 7001)},
            ValueError,
            "7000-7001 do not suffice for 3 workers",
        ),
        (
            {"num_workers": 2, "data_transfer_port": 7000},
            ValueError,
            "7000-7000 do not suffice for 2 workers",
        ),
        ({"num_workers": 1, "worker_address": "a:b:c"}, ValueError, "Malformed address 'a:b:c'"),
        (
            {"processes_per_worker": 0},
            ValueError,
            "`processes_per_worker` must be at least 1, got 0",
        ),
        (
            {"in_process": True, "processes_per_worker": 2},
            ValueError,
            "single thread; got processes_per_worker=2",
        ),
        (
            {"worker_timeout": 5},
            TypeError,
            "no argument 'worker_timeout'. Did you mean 'worker_timeout_ms'",
        ),
        ({"worker_timeout_ms": 0}, ValueError, "`worker_timeout_ms` must be at least 1"),
        ({"buffer_bytes": 0}, ValueError, "`buffer_bytes` must be at least 1"),
        ({"worker_tags": [""]}, FailedPreconditionError, "Worker tags cannot be empty"),
    ],
)
def test_bad_options_start_nothing(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """An invalid option is rejected before any server starts."""
    with no_leaks(), pytest.raises(error, match=text):
        LocalCluster(**arguments)


@pytest.mark.realprocess
def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments alone configure a cluster, whatever ZMQDATA_* variables are set."""
    for name, text in {
        "PORT": "1",
        "HOST": "nowhere.invalid",
        "WORKER_TAGS": "GPU",
        "PROCESSES": "many",
    }.items():
        monkeypatch.setenv(f"ZMQDATA_{name}", text)
    with LocalCluster(1, worker_tags=["LAB"], **FAST) as cluster:
        assert [worker["tags"] for worker in status(cluster.target)["workers"]] == [["LAB"]]


@pytest.mark.parametrize("variable", ["KEY_FILE", "INSECURE"])
def test_a_cluster_has_the_key_that_its_process_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A cluster uses the key of its process, so its script can read from it. The
    environment may name a key other than the user's, as on a network, or none.
    """
    keys.save(tmp_path / "k", keys.new_key())
    monkeypatch.setenv(
        f"ZMQDATA_{variable}", str(tmp_path / "k") if variable == "KEY_FILE" else "1"
    )
    with LocalCluster(1, in_process=True, **FAST) as cluster:
        config = status(cluster.target)["config"]
        assert len(status(cluster.target)["workers"]) == 1
    wanted = (str(tmp_path / "k"), False) if variable == "KEY_FILE" else (None, True)
    assert (config["key_file"], config["insecure"]) == wanted


def both_ways(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with threads and with processes."""
    ways = [
        pytest.param(True, id="threads"),
        pytest.param(False, id="processes", marks=pytest.mark.realprocess),
    ]
    parametrized: Callable[..., None] = pytest.mark.parametrize("in_process", ways)(test)
    return parametrized


@both_ways
def test_a_cluster_starts_and_leaves_nothing(in_process: bool) -> None:
    """A cluster returns with its workers registered, and leaves nothing behind. The
    test checks threads, files, ports and processes. Closing twice is allowed, and
    adding a worker to a closed cluster is an error.
    """
    with no_leaks(), LocalCluster(2, in_process=in_process, **FAST) as cluster:
        assert cluster.target.startswith("tcp://127.0.0.1:")
        assert listens(cluster.target)
        assert len({worker.address for worker in cluster.workers}) == 2
        assert all(worker.alive and listens(worker.address) for worker in cluster.workers)
        assert repr(cluster) == f"<LocalCluster {cluster.target} 2 workers>"
    assert repr(cluster) == f"<LocalCluster {cluster.target} closed>"
    assert not any(worker.alive for worker in cluster.workers)
    cluster.close()
    with pytest.raises(RuntimeError, match="This LocalCluster is closed"):
        cluster.add_worker()


@both_ways
def test_workers_come_and_go(in_process: bool) -> None:
    """A handle adds, kills, stops and restarts a worker."""
    with no_leaks(), LocalCluster(1, in_process=in_process, **FAST) as cluster:
        added = cluster.add_worker()
        assert cluster.workers[1] is added
        added.kill()
        cluster.workers[0].stop()
        assert not any(worker.alive or listens(worker.address) for worker in cluster.workers)
        added.restart()
        assert added.alive
        assert listens(added.address)


@both_ways
def test_a_dispatcher_comes_back_where_it_was(in_process: bool) -> None:
    """A restarted dispatcher listens at the same address, even after it was killed. A
    deadline that is not a number of seconds is rejected before anything stops.
    """
    with LocalCluster(0, in_process=in_process) as cluster:
        for use in (cluster.dispatcher.restart, cluster.dispatcher.await_ready):
            with pytest.raises(TypeError, match="`deadline` must be a number of seconds"):
                use("1")  # type: ignore[arg-type]
            with pytest.raises(
                ValueError, match="`deadline` must be a number of seconds from 0 up, got -1"
            ):
                use(-1)
        assert cluster.dispatcher.alive
        cluster.dispatcher.kill()
        assert not listens(cluster.target)
        cluster.dispatcher.restart()
        assert listens(cluster.target)
        cluster.dispatcher.restart()
        assert cluster.dispatcher.address == cluster.target


@pytest.mark.realprocess
def test_no_wait_lasts_for_a_closed_cluster() -> None:
    """Readers and calls of the process that closes a cluster end at once with an error
    that says so, however long they would wait for a dispatcher.
    """
    with LocalCluster(1, in_process=True) as cluster:
        an_hour = distribute("distributed_epoch", cluster, dispatcher_timeout=3600)
        endless = Dataset.range(10).repeat().apply(an_hour)
        elements = iter(endless)
        next(elements)
    for attempt in (lambda: list(elements), lambda: iter(endless), lambda: audit(cluster, "job")):
        with pytest.raises(UnavailableError, match="This process has closed the LocalCluster"):
            attempt()


@pytest.mark.parametrize("lends", [True, False])
def test_a_folder_that_the_cluster_lends_is_never_synced(
    lends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts, pipelines, large parts and snapshots of a cluster wait for the disk only
    in a folder of the user.
    """
    syncs: list[int] = []
    monkeypatch.setattr(os, "fsync", syncs.append)
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    folder = {} if lends else {"work_dir": str(tmp_path)}
    with LocalCluster(1, in_process=True, **FAST, **folder) as cluster:
        for rows in (10, 1_000_000):
            dataset = Dataset.from_tensor_slices(np.arange(rows)).take(10)
            whole = dataset.apply(distribute("distributed_epoch", cluster, f"job {rows}"))
            assert len(list(whole)) == 10
        cluster.dispatcher.restart()
        assert {job["job"] for job in status(cluster)["jobs"]} == {"job 10", "job 1000000"}
    assert bool(syncs) is not lends


@pytest.mark.realprocess
def test_stopped_servers_end_with_their_cluster() -> None:
    """A worker and a dispatcher that SIGSTOP has stopped end as others do: they are let
    go on.
    """
    cluster = LocalCluster(1)
    servers = [cluster.dispatcher, *cluster.workers]
    for server in servers:
        server.stop_seconds = 3600.0  # before it is killed
        server.signal(signal.SIGSTOP)
    cluster.close()
    assert not {None, -signal.SIGKILL}.intersection(server.exit_code for server in servers)


@pytest.mark.realprocess
def test_what_does_not_end_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    """A server that does not end in time is killed, and the log says so, with what is
    given up.
    """
    cluster = LocalCluster(1)
    (worker,) = cluster.workers
    [child] = descendants(worker.pid)
    os.kill(child, signal.SIGSTOP)  # its supervisor waits for it
    worker.close(0.1)
    cluster.close()
    (record,) = [one for one in caplog.records if "was told to end" in one.getMessage()]
    assert f"worker 0 (process {worker.pid})" in record.getMessage()
    assert "not sent are given up" in record.getMessage()


def test_an_interrupted_close_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second ``close()`` ends the servers that an interrupted one left running."""
    cluster = LocalCluster(1, in_process=True)
    (worker,) = cluster.workers

    def interrupt(patience: float | None = None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(worker, "close", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cluster.close()
    assert cluster.dispatcher.alive
    cluster.close()
    assert not cluster.dispatcher.alive
    assert not worker.alive


def test_a_worker_of_several_processes_has_several_addresses() -> None:
    """Each process of a worker listens at an address of its own."""
    with LocalCluster(1, processes_per_worker=2) as cluster:
        worker = cluster.workers[0]
        assert len(set(worker.addresses)) == 2
        assert worker.address == worker.addresses[0]


@both_ways
def test_a_refused_worker_says_why(in_process: bool) -> None:
    """A worker rejected by the dispatcher ends the start with the reason and leaves
    nothing.
    """
    with (
        no_leaks(),
        pytest.raises(
            (UnavailableError, FailedPreconditionError), match="address is not configured"
        ),
    ):
        LocalCluster(1, in_process=in_process, worker_addresses=["10.255.255.1"])


@pytest.mark.realprocess
def test_the_address_of_a_worker_is_taken_for_that_of_no_dispatcher() -> None:
    """A worker, a reader and a question that are pointed at a worker end at once with
    what listens there.
    """
    with LocalCluster(1, in_process=True, **FAST) as cluster:
        there = cluster.workers[0].address
        told = rf"A worker listens on port {there.rpartition(':')[2]}, and no dispatcher"
        with pytest.raises(FailedPreconditionError, match=told):
            audit(there, "job")
        with pytest.raises(FailedPreconditionError, match=told):
            list(Dataset.range(3).apply(distribute("distributed_epoch", there)))
        with pytest.raises(FailedPreconditionError, match=told):
            WorkerServer(WorkerConfig(there))
        assert len(list(Dataset.range(3).apply(distribute("distributed_epoch", cluster)))) == 3


@pytest.mark.realprocess
def test_a_server_that_does_not_start_shows_its_log() -> None:
    """The error of a failed start has the process's output and exit status."""
    with (
        no_leaks(),
        pytest.raises(
            ServerStartError, match=r"ended with exit code 2 .*\n.*Unknown host 'nowhere.inv"
        ),
    ):
        LocalCluster(0, host="nowhere.invalid")


@both_ways
def test_a_forked_child_is_told_that_the_cluster_is_not_its_own(in_process: bool) -> None:
    """A forked child that uses the cluster or a handle gets an error, and can still
    read attributes and close.
    """
    with LocalCluster(1, in_process=in_process, **FAST) as cluster:
        worker = cluster.workers[0]
        uses = (
            worker.kill,
            worker.restart,
            worker.stop,
            worker.launch,
            lambda: worker.alive,
            cluster.add_worker,
        )
        for use in uses:
            told = told_by_child(use)
            assert told.startswith("RuntimeError: This ")
            assert "make a new LocalCluster here" in told
        assert told_by_child(cluster.close) == told_by_child(worker.close) == "None"
        assert told_by_child(lambda: cluster.target) == cluster.target
        assert told_by_child(lambda: cluster).endswith(f"of process {os.getpid()}>")
        assert worker.alive
        assert cluster.dispatcher.alive


# --- distributed saves in progress


def gated(gate: Path, last: int) -> Callable[[int], int]:
    """Return a function that waits for a file at the last element."""

    def wait(number: int) -> int:
        if number == last:
            await_condition(gate.exists, 20.0, "the gate")
        return number

    return wait


@pytest.mark.parametrize(
    ("in_process", "work_dir"),
    [
        pytest.param(True, None, id="threads"),
        pytest.param(True, "work", id="threads-folder"),
        pytest.param(False, "work", id="processes-folder", marks=pytest.mark.realprocess),
    ],
)
def test_closing_waits_for_saves(tmp_path: Path, in_process: bool, work_dir: str | None) -> None:
    """The end of a ``with`` block waits for a save, also on a cluster with a folder of
    the user. A second call of ``close`` has no effect.
    """
    path, gate = tmp_path / "save", tmp_path / "gate"
    folder = None if work_dir is None else str(tmp_path / work_dir)
    with LocalCluster(1, in_process=in_process, work_dir=folder, **FAST) as cluster:
        distributed_save(Dataset.range(20).map(gated(gate, 19)), str(path), cluster.target)
        assert progress_of(str(path)).state == "running"
        opening = threading.Timer(0.3, gate.touch)
        opening.start()
    cluster.close()
    assert progress_of(str(path)).state == "done"
    opening.join()


def test_threads_close_a_cluster_together(tmp_path: Path) -> None:
    """Several threads may wait for the same save. One of them closes the cluster."""
    path, gate = tmp_path / "save", tmp_path / "gate"
    cluster = LocalCluster(1, in_process=True, **FAST)
    distributed_save(Dataset.range(20).map(gated(gate, 19)), str(path), cluster.target)
    with ThreadPoolExecutor(3) as threads:
        closing = [threads.submit(cluster.close) for _ in range(3)]
        gate.touch()
        assert [one.result(30.0) for one in closing] == [None] * 3
    assert progress_of(str(path)).state == "done"


def test_a_save_that_fails_while_closing_waits_is_raised(tmp_path: Path) -> None:
    """``close`` raises the error of a save that fails while it waits, after it has
    closed the cluster.
    """
    gate = tmp_path / "gate"

    def fail(number: int) -> int:
        await_condition(gate.exists, 20.0, "the gate")
        raise ValueError("no such number")

    cluster = LocalCluster(1, in_process=True, **FAST)
    distributed_save(Dataset.range(20).map(fail), str(tmp_path / "save"), cluster.target)
    opening = threading.Timer(0.3, gate.touch)
    opening.start()
    with pytest.raises(PipelineError, match="no such number"):
        cluster.close()
    assert repr(cluster).endswith("closed>")
    opening.join()


def test_a_save_whose_folder_vanishes_is_an_error(tmp_path: Path) -> None:
    """``close`` raises an error if the folder of a save is removed while it waits."""
    path, gate = tmp_path / "save", tmp_path / "gate"
    cluster = LocalCluster(1, in_process=True, **FAST)
    distributed_save(Dataset.range(20).map(gated(gate, 19)), str(path), cluster.target)
    removing = threading.Timer(0.3, shutil.rmtree, (path,))
    removing.start()
    opening = threading.Timer(0.6, gate.touch)  # lets the worker's thread end
    opening.start()
    with pytest.raises(DataLossError, match=f"save to {path} was removed or changed"):
        cluster.close()
    opening.join()


def test_an_exit_without_a_code_is_no_exception(tmp_path: Path) -> None:
    """``sys.exit()`` in the ``with`` block waits for saves, as the end of the block."""
    path = str(tmp_path / "save")

    def leave() -> None:
        with LocalCluster(1, in_process=True, **FAST) as cluster:
            distributed_save(Dataset.range(20), path, cluster.target)
            sys.exit()

    with pytest.raises(SystemExit):
        leave()
    assert progress_of(path).state == "done"


@pytest.mark.parametrize("lacking", ["worker", "dispatcher"])
def test_a_save_that_cannot_proceed_is_an_error(tmp_path: Path, lacking: str) -> None:
    """``close`` does not wait for a save that has no worker or no dispatcher. It raises
    an error that names the save.
    """
    path = str(tmp_path / "save")
    cluster = LocalCluster(0, in_process=True, **FAST)
    distributed_save(Dataset.range(20), path, cluster.target)
    if lacking == "dispatcher":
        cluster.dispatcher.stop()
    with pytest.raises(UnavailableError, match=f"{lacking}.* save to {path} is unfinished, with 0"):
        cluster.close()
    assert repr(cluster).endswith("closed>")
    assert progress_of(path).state == "abandoned"


def test_an_exception_ends_the_cluster_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception that ends the ``with`` block does not wait for a save. A warning
    names the save.
    """
    path = str(tmp_path / "save")

    def fail() -> None:
        with LocalCluster(1, in_process=True, **FAST) as cluster:
            distributed_save(
                Dataset.range(20).map(gated(tmp_path / "gate", 19)), path, cluster.target
            )
            raise KeyError("of the user")

    threading.Timer(0.3, (tmp_path / "gate").touch).start()  # lets the worker's thread end
    with pytest.raises(KeyError, match="of the user"):
        fail()
    assert f"the save to {path} is unfinished. It is abandoned with this cluster" in caplog.text


def test_saves_of_other_clusters_are_not_awaited(tmp_path: Path) -> None:
    """A cluster in the folder of an earlier one does not wait for its unfinished save
    if it is closed already, has no journal, or cannot start.
    """
    path = str(tmp_path / "save")
    options: dict[str, Any] = {"work_dir": str(tmp_path / "work"), **FAST}
    earlier = LocalCluster(0, in_process=True, **options)
    distributed_save(Dataset.range(20), path, earlier.target)
    with pytest.raises(FailedPreconditionError, match="another dispatcher"):
        LocalCluster(0, in_process=True, **options)
    with pytest.raises(UnavailableError, match="unfinished"):
        earlier.close()
    earlier.close()
    LocalCluster(0, in_process=True, fault_tolerant_mode=False, **options).close()
    assert progress_of(path).state == "stopped"


def test_a_relative_folder_of_a_cluster_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster waits for its saves, and only for them, wherever its program goes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saves").mkdir()
    LocalCluster(0, in_process=True, fault_tolerant_mode=False, **FAST).close()
    cluster = LocalCluster(0, in_process=True, work_dir="work", **FAST)
    distributed_save(Dataset.range(20), "save", cluster.target)
    monkeypatch.chdir("saves")
    with pytest.raises(UnavailableError, match=f"save to {tmp_path}/save is unfinished"):
        cluster.close()


def program_that_saves(path: Path, end: str) -> list[str]:
    """Return the command of a program that never closes its cluster, and ends with a
    statement. Its save goes on when a file ``gate`` is beside the folder of the save.
    """
    program = (
        "import pathlib, threading, zmqdata\n"
        "def gated(number):\n"
        f"    while number == 19 and not pathlib.Path({str(path.with_name('gate'))!r}).exists():\n"
        "        threading.Event().wait(0.01)\n"
        "    return number\n"
        "cluster = zmqdata.LocalCluster(1)\n"
        "ds = zmqdata.Dataset.range(20).map(gated)\n"
        f"zmqdata.distributed_save(ds, {str(path)!r}, cluster.target)\n{end}\n"
    )
    return [sys.executable, "-c", program]


def test_the_end_of_a_program_waits_for_saves(tmp_path: Path) -> None:
    """A program that never closes its cluster waits for its saves at its end, and says
    so.
    """
    path = tmp_path / "save"
    program = program_that_saves(path, "")
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "the cluster ends after this save" in running.stderr.readline()
        (tmp_path / "gate").touch()
        said = running.communicate(timeout=60)[1]
    assert (running.returncode, progress_of(str(path)).state) == (0, "done"), said


def test_the_end_of_a_program_by_an_exception_waits_for_no_save(tmp_path: Path) -> None:
    """A program that an exception ends does not wait for its saves. A warning names the
    save.
    """
    path = tmp_path / "save"
    program = program_that_saves(path, "raise KeyError")
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, progress_of(str(path)).state) == (1, "abandoned"), done.stderr
    assert f"the save to {path} is unfinished" in done.stderr


def test_an_interrupt_ends_the_wait_at_the_end_of_a_program(tmp_path: Path) -> None:
    """Ctrl-C ends the wait for a save at the end of a program. A warning names the
    save.
    """
    path = tmp_path / "save"
    program = program_that_saves(path, "")
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "Ctrl-C ends the wait" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[1]
    assert f"the save to {path} is unfinished" in said
    assert progress_of(str(path)).state == "abandoned"
