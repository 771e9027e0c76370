"""Section 6: distributed save and load, also during a save and through losses of
workers and dispatchers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zmqdata
from tests.acceptance.reading import DYNAMIC, OFF, command, numbers, read, together
from zmqdata import Dataset
from zmqdata.errors import (
    AlreadyExistsError,
    DataLossError,
    DataServiceError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from zmqdata.testing.cluster import await_condition

NOWHERE = "tcp://127.0.0.1:1"
PATIENCE = 45.0
FINITE = Dataset.range(1000)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path to save to."""
    return str(tmp_path / "saved")


@pytest.fixture
def durable(
    make_cluster: Callable[..., zmqdata.LocalCluster], tmp_path: Path
) -> Callable[..., zmqdata.LocalCluster]:
    """Return a factory of clusters that can save."""
    return lambda workers=2, **options: make_cluster(
        workers, work_dir=str(tmp_path / "work"), **options
    )


def save(dataset: Dataset, path: str, cluster: Any, **options: Any) -> None:
    zmqdata.distributed_save(dataset, path, cluster.target, **options)


def done(path: str) -> bool:
    return (Path(path) / "DONE").exists()


def loaded(path: str) -> list[int]:
    """Return the elements of a folder after its save has ended."""
    await_condition(lambda: done(path), PATIENCE, what="DONE")
    return sorted(numbers(Dataset.load(path)))


# --- saving


@pytest.mark.claim("6.1a", "6.6a")
def test_everything_is_saved_once(durable: Callable[..., zmqdata.LocalCluster], path: str) -> None:
    """A save runs in the background, and at DONE each element is written once."""
    cluster = durable()
    save(FINITE.map(lambda x: x * 2), path, cluster)
    assert loaded(path) == list(range(0, 2000, 2))


@pytest.mark.claim("6.1a")
@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Dataset.range(0), []),
        (Dataset.range(1), [0]),
        (Dataset.range(20).repeat(3), sorted([*range(20)] * 3)),
        (FINITE.filter(lambda x: x % 2 == 0), list(range(0, 1000, 2))),
        (Dataset.range(10).concatenate(Dataset.range(10, 30)), list(range(30))),
        (FINITE.batch(7).unbatch(), list(range(1000))),
    ],
)
def test_any_finite_dataset_can_be_saved(
    durable: Callable[..., zmqdata.LocalCluster], path: str, dataset: Dataset, expected: list[int]
) -> None:
    """Empty datasets, repeats, filters, batches and concatenations can be saved."""
    save(dataset, path, durable())
    assert loaded(path) == expected


@pytest.mark.claim("6.1b")
@pytest.mark.parametrize("compression", ["AUTO", None, "lz4"])
def test_structures_are_saved(
    durable: Callable[..., zmqdata.LocalCluster], path: str, compression: str | None
) -> None:
    """Loaded elements have their structure and types."""
    ds = Dataset.range(20).map(lambda x: {"x": np.full(int(x), x, np.float32), "name": f"n{x}"})
    save(ds, path, durable(), compression=compression)
    await_condition(lambda: done(path), PATIENCE, what="DONE")
    found = sorted(Dataset.load(path), key=lambda one: len(one["x"]))
    assert [(len(one["x"]), str(one["name"])) for one in found] == [(x, f"n{x}") for x in range(20)]
    assert found[3]["x"].dtype == np.float32


@pytest.mark.claim("6.3a")
def test_small_chunks(durable: Callable[..., zmqdata.LocalCluster], path: str) -> None:
    """Small chunks keep to the given size, and no element is lost between them."""
    save(
        FINITE.map(lambda x: np.full(100, x)),
        path,
        durable(2, snapshot_max_chunk_size_bytes=20_000),
    )
    await_condition(lambda: done(path), PATIENCE, what="DONE")
    assert sorted(int(x[0]) for x in Dataset.load(path)) == list(range(1000))
    sizes = [one.stat().st_size for one in (Path(path) / "chunks").iterdir()]
    assert len(sizes) > 10
    assert max(sizes) < 100_000


# --- loading


@pytest.mark.claim("6.1c", "6.5b")
def test_loading_waits(durable: Callable[..., zmqdata.LocalCluster], path: str) -> None:
    """``load(wait=True)`` may begin before the save, and yields each element once."""
    cluster = durable()

    def load() -> list[int]:
        return numbers(Dataset.load(path, wait=True))

    found, _ = together(load, lambda: save(FINITE, path, cluster))
    assert sorted(found) == list(range(1000))


@pytest.mark.claim("6.5a")
def test_loading_is_deterministic(durable: Callable[..., zmqdata.LocalCluster], path: str) -> None:
    """A finished save loads in the same order each time."""
    save(FINITE, path, durable(2, snapshot_max_chunk_size_bytes=1000))
    loaded(path)
    assert numbers(Dataset.load(path)) == numbers(Dataset.load(path))


@pytest.mark.claim("6.5c")
@pytest.mark.parametrize(("mode", "copies"), [(DYNAMIC, 1), (OFF, 2)])
def test_what_was_saved_can_be_distributed(
    durable: Callable[..., zmqdata.LocalCluster], path: str, mode: Any, copies: int
) -> None:
    """DYNAMIC assigns each chunk to one worker, and OFF gives every worker a copy."""
    cluster = durable(2, snapshot_max_chunk_size_bytes=1000)
    save(FINITE, path, cluster)
    loaded(path)
    assert sorted(numbers(read(Dataset.load(path), cluster, mode))) == sorted(
        [*range(1000)] * copies
    )


@pytest.mark.claim("7.43")
def test_nothing_is_there(path: str) -> None:
    """Loading a path without a save is not found."""
    with pytest.raises(NotFoundError):
        list(Dataset.load(path))


@pytest.mark.claim("7.48", "7.49", "6.2c")
def test_what_is_asked_of_a_save(durable: Callable[..., zmqdata.LocalCluster], path: str) -> None:
    """Loading refuses a spec or compression that is not stored, and names both."""
    save(FINITE, path, durable(1), compression="zstd")
    loaded(path)
    with pytest.raises(
        ValueError, match=r"User specified element_spec .* but the actual element_spec is"
    ):
        Dataset.load(path, element_spec=zmqdata.TensorSpec((), np.float32))
    with pytest.raises(
        ValueError, match=r"User specified compression lz4, but the actual compression is zstd"
    ):
        Dataset.load(path, compression="lz4")


# --- refusals


@pytest.mark.claim("6.2a", "7.46")
@pytest.mark.parametrize("argument", ["path", "data_service_address"])
@pytest.mark.parametrize(
    ("bad", "text"),
    [(1, "must be a string"), (None, "must be a string"), ("", "must not be empty")],
)
def test_bad_paths_and_addresses(path: str, argument: str, bad: Any, text: str) -> None:
    """Path and address are texts that are not empty."""
    arguments: dict[str, Any] = {
        "dataset": FINITE,
        "path": path,
        "data_service_address": NOWHERE,
        argument: bad,
    }
    with pytest.raises(ValueError, match=text):
        zmqdata.distributed_save(**arguments)


@pytest.mark.claim("6.2a")
@pytest.mark.parametrize(
    "bad",
    [
        {"compression": "foo"},
        {"compression": 1},
        {"dataset": 5},
        {"dataset": None},
        {"dispatcher_timeout": 0},
        {"ship": [1]},
    ],
)
def test_other_bad_arguments(path: str, bad: dict[str, Any]) -> None:
    """``distributed_save`` refuses other arguments of a wrong type or value at the
    call.
    """
    arguments: dict[str, Any] = {
        "dataset": FINITE,
        "path": path,
        "data_service_address": NOWHERE,
        **bad,
    }
    with pytest.raises((TypeError, ValueError)):
        zmqdata.distributed_save(**arguments)


@pytest.mark.claim("6.2a", "4.1a")
def test_nobody_to_save(path: str) -> None:
    """``distributed_save`` without a dispatcher fails after ``dispatcher_timeout``."""
    with pytest.raises(UnavailableError):
        zmqdata.distributed_save(FINITE, path, NOWHERE, dispatcher_timeout=0.2)


@pytest.mark.claim("6.2b", "7.47")
def test_endless_data_is_not_saved(durable: Callable[..., zmqdata.LocalCluster], path: str) -> None:
    """An endless dataset is refused in tf.data's words."""
    with pytest.raises(InvalidArgumentError, match="Saving an infinite dataset is not allowed"):
        save(Dataset.counter(), path, durable(1))


@pytest.mark.claim("6.2b", "7.50")
def test_saving_needs_a_journal(
    make_cluster: Callable[..., zmqdata.LocalCluster], path: str
) -> None:
    """A dispatcher without fault tolerance refuses to save."""
    cluster = make_cluster(1, fault_tolerant_mode=False)
    with pytest.raises(
        InvalidArgumentError, match=r"requires running tf.data service in the fault tolerant mode"
    ):
        save(FINITE, path, cluster)


@pytest.mark.claim("6.2b", "7.44")
def test_nothing_is_overwritten(durable: Callable[..., zmqdata.LocalCluster], path: str) -> None:
    """The dispatcher refuses a path with a running or finished save."""
    cluster = durable()
    save(FINITE, path, cluster)
    with pytest.raises(AlreadyExistsError, match="already started or completed"):
        save(FINITE, path, cluster)
    loaded(path)
    with pytest.raises(AlreadyExistsError, match="already started or completed"):
        save(FINITE, path, cluster)


@pytest.mark.claim("6.4b", "7.34")
def test_nothing_is_overwritten_behind_a_restart(
    durable: Callable[..., zmqdata.LocalCluster], path: str
) -> None:
    """A restarted dispatcher remembers the save and refuses its path."""
    cluster = durable()
    save(FINITE, path, cluster)
    cluster.dispatcher.kill()
    cluster.dispatcher.restart()
    with pytest.raises(AlreadyExistsError, match="already started or completed"):
        save(FINITE, path, cluster)
    assert loaded(path) == list(range(1000))


@pytest.mark.claim("6.4c", "7.45")
def test_a_failing_element_fails_the_save(
    durable: Callable[..., zmqdata.LocalCluster], path: str
) -> None:
    """A failing element writes ERROR into the folder, and loading with ``wait`` raises
    the pipeline's own error.
    """

    def fail(x: Any) -> Any:
        if int(x) == 500:
            raise ValueError("not a number")
        return x

    save(FINITE.map(fail, output_spec=zmqdata.TensorSpec((), np.int64)), path, durable())
    await_condition(lambda: (Path(path) / "ERROR").exists(), PATIENCE, what="ERROR")
    with pytest.raises(ValueError, match=r"The save job failed to write it\."):
        list(Dataset.load(path))
    with pytest.raises(DataServiceError, match="not a number"):
        list(Dataset.load(path, wait=True))


# --- losses of workers and dispatchers


@pytest.mark.claim("6.4a", "6.6a")
@pytest.mark.parametrize(
    "who", ["worker", "dispatcher", pytest.param("both", marks=pytest.mark.full)]
)
def test_deaths_cost_no_element(
    durable: Callable[..., zmqdata.LocalCluster], path: str, who: str
) -> None:
    """A save writes each element once, although a worker, the dispatcher or both are
    killed.
    """
    cluster = durable(2, snapshot_max_chunk_size_bytes=4000)
    save(Dataset.range(5000).map(lambda x: x), path, cluster)
    if who != "dispatcher":
        cluster.workers[0].kill()
    if who != "worker":
        cluster.dispatcher.kill()
        cluster.dispatcher.restart()
    assert loaded(path) == list(range(5000))


DAMAGES = {
    "streams/stream_x": "Can't parse",
    "streams/stream_-1": "Can't parse",
    "streams/stream_7": "Found conflict",
    "chunks/chunk_0_x_1": "Expected chunk_<stream>_<chunk>_<num_elements>",
    "chunks/chunk_0_0_5": "Found conflict",
}


def check_failed(path: str, why: str) -> None:
    """Check that every load of a failed save states the cause and the remedy."""
    await_condition(lambda: (Path(path) / "ERROR").exists(), PATIENCE, what="ERROR")
    with pytest.raises(DataLossError, match=rf"{why}.* Save again to another path"):
        list(Dataset.load(path, wait=True))
    with pytest.raises(
        ValueError, match=rf"The save job failed to write it\. DataLossError: .*{why}"
    ):
        Dataset.load(path)


@pytest.mark.claim("6.4e")
@pytest.mark.parametrize("name", DAMAGES)
def test_a_strange_file_ends_a_save(
    make_dispatcher: Any, make_worker: Any, tmp_path: Path, path: str, name: str
) -> None:
    """A restarted dispatcher ends a save whose folder has a file of another writer, and
    names the file.
    """
    work = str(tmp_path / "work")
    dispatcher = make_dispatcher(work_dir=work)
    save(FINITE, path, dispatcher)
    dispatcher.stop()
    strange = Path(path) / name
    strange.parent.mkdir(exist_ok=True)
    strange.touch()
    dispatcher = make_dispatcher(work_dir=work)
    check_failed(path, DAMAGES[name])
    make_worker(dispatcher.target)
    save(FINITE, f"{path} again", dispatcher)
    assert loaded(f"{path} again") == list(range(1000))


@pytest.mark.claim("6.4e")
def test_a_folder_that_is_gone_ends_its_save_only(
    make_dispatcher: Any, make_worker: Any, tmp_path: Path, path: str
) -> None:
    """A save fails for good if its folder was removed, and other saves continue."""
    work = str(tmp_path / "work")
    dispatcher = make_dispatcher(work_dir=work)
    for one in (path, f"{path} too"):
        save(FINITE, one, dispatcher)
    dispatcher.stop()
    Path(path).rename(tmp_path / "away")
    dispatcher = make_dispatcher(work_dir=work)
    check_failed(path, "Found conflict: there is nothing in")
    dispatcher.stop()
    make_worker(make_dispatcher(work_dir=work).target)
    assert loaded(f"{path} too") == list(range(1000))
    check_failed(path, "Found conflict: there is nothing in")


@pytest.mark.claim("6.4a")
def test_a_save_may_begin_without_workers(
    durable: Callable[..., zmqdata.LocalCluster], path: str
) -> None:
    """A save without workers begins with the first worker that joins."""
    cluster = durable(0)
    save(FINITE, path, cluster)
    cluster.add_worker()
    cluster.add_worker()
    assert loaded(path) == list(range(1000))


@pytest.mark.claim("6.4d")
def test_many_saves_at_once(durable: Callable[..., zmqdata.LocalCluster], path: str) -> None:
    """All saves end, although a worker writes fewer streams at a time."""
    cluster = durable(1, worker_max_concurrent_snapshots=1)
    for number in range(3):
        save(Dataset.range(50), f"{path}{number}", cluster)
    assert [loaded(f"{path}{number}") for number in range(3)] == [list(range(50))] * 3


@pytest.mark.claim("6.1d")
@pytest.mark.realprocess
def test_save_status(tmp_path: Path, path: str) -> None:
    """``zmqdata save-status`` prints the progress of a save, and fails if the path has
    no save.
    """
    with zmqdata.LocalCluster(1, in_process=True, work_dir=str(tmp_path / "work")) as cluster:
        save(FINITE, path, cluster)
        loaded(path)
    answer = command("save-status", path)
    assert answer.returncode == 0, answer.stderr
    assert "1000" in answer.stdout.replace(",", "").replace(" ", "")
    missing = command("save-status", f"{path}-missing")
    assert missing.returncode != 0
    assert "Traceback" not in missing.stderr
