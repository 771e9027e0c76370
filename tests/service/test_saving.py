"""Facts about ``distributed_save`` and about loading its files, as users see them on
real sockets. ``simulated/test_saving.py`` states what is written.
"""

from __future__ import annotations

import io
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.conftest import Service, wait_until
from zmqdata import Dataset, TensorSpec, distribute, distributed_save
from zmqdata.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnimplementedError,
)
from zmqdata.storage.manifests import is_done

Make = Callable[..., Service]


@dataclass
class Store:
    """A service that can save, and a folder to save to."""

    service: Service
    path: str

    def save(self, dataset: Dataset, **options: Any) -> None:
        distributed_save(dataset, self.path, self.service.target, **options)

    def saved(self) -> list[Any]:
        wait_until(lambda: is_done(self.path), "the end of the save")
        return list(Dataset.load(self.path))


@pytest.fixture
def store(make_service: Make, tmp_path: Path) -> Store:
    """A dispatcher with a work folder, and two workers."""
    return Store(make_service(work_dir=str(tmp_path / "work")), str(tmp_path / "saved"))


class Gate:
    """Holds pipelines until it is opened. It can be sent to workers."""

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self) -> None:
        Path(self.path).touch()

    def pass_through(self, x: Any) -> Any:
        import os
        import threading

        while not os.path.exists(self.path):
            threading.Event().wait(0.01)
        return x


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A closed gate, which opens at the end of the test at the latest."""
    gate = Gate(str(tmp_path / "gate"))
    yield gate
    gate.open()


def test_everything_is_saved_once(store: Store) -> None:
    """The save writes every element of a dataset once, of any kind, with its
    description.
    """
    store.save(Dataset.range(1000).map(lambda x: {"x": x, "text": str(x), "row": np.arange(x % 3)}))
    found = store.saved()
    assert Counter(int(one["x"]) for one in found) == Counter(range(1000))
    assert all(one["text"] == str(one["x"]) and len(one["row"]) == one["x"] % 3 for one in found)
    loaded = Dataset.load(store.path)
    assert len(loaded) == 1000
    assert loaded.element_spec["row"] == TensorSpec((None,), np.int64)


def test_the_settings_decide_how_many_streams_a_worker_writes(
    make_service: Make, tmp_path: Path, gate: Gate
) -> None:
    """A worker that writes a single stream starts a second save only when the first has
    ended.
    """
    service = make_service(
        1,
        worker_options={"heartbeat_interval_ms": 100},
        work_dir=str(tmp_path / "work"),
        worker_max_concurrent_snapshots=1,
    )
    first, second = (Store(service, str(tmp_path / name)) for name in ("first", "second"))
    first.save(Dataset.range(10).map(gate.pass_through))
    second.save(Dataset.range(10))
    assert len(service.dispatcher.snapshot_streams(first.path)) == 1
    assert service.dispatcher.snapshot_streams(Path(second.path)) == []
    gate.open()
    assert sorted(map(int, second.saved())) == list(range(10))
    assert sorted(map(int, first.saved())) == list(range(10))


def test_a_save_is_read_while_it_is_written(store: Store, gate: Gate, monkeypatch: Any) -> None:
    """A reader with wait=True may start before the save, and gets elements long before
    the save ends.
    """
    monkeypatch.setattr("zmqdata.core.worker.saving.FIRST_CHUNK_SECONDS", 0.1)
    found: list[int] = []

    def read() -> None:
        found.extend(int(x) for x in Dataset.load(store.path, wait=True))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    store.save(Dataset.range(100).map(lambda x: x if x < 50 else gate.pass_through(x)))
    early = iter(Dataset.load(store.path, wait=True))
    assert int(next(early)) < 50
    assert not is_done(store.path)
    with pytest.raises(NotFoundError, match=r"not saved to its end yet. load\(path, wait=True\)"):
        Dataset.load(store.path)
    gate.open()
    reader.join(50)
    assert sorted(found) == list(range(100))
    assert len(list(early)) == 99


def test_workers_read_a_save_in_progress(store: Store, gate: Gate) -> None:
    """Workers share the chunks of a save that others still write, and end with it."""
    store.save(Dataset.range(10).map(gate.pass_through))
    loaded = Dataset.load(store.path, wait=True)
    elements = iter(loaded.apply(distribute("distributed_epoch", store.service.target)))
    gate.open()
    assert sorted(map(int, elements)) == list(range(10))


def test_a_path_is_saved_to_once(store: Store, tmp_path: Path) -> None:
    """The dispatcher refuses a second save to a path while the first runs, after it has
    ended, and at a path of `save`.
    """
    store.save(Dataset.range(5))
    for _ in range(2):
        with pytest.raises(AlreadyExistsError, match="already started or completed"):
            store.save(Dataset.range(5))
        store.saved()
    with pytest.raises(AlreadyExistsError, match="already started or completed"):
        Dataset.range(5).save(store.path)
    Dataset.range(5).save(tmp_path / "plain")
    store.path = str(tmp_path / "plain")
    with pytest.raises(AlreadyExistsError, match="already started or completed"):
        store.save(Dataset.range(5))


def test_saving_needs_a_dispatcher_that_keeps_a_journal(service: Service, tmp_path: Path) -> None:
    """A dispatcher without a work folder refuses to save, and says which setting it
    needs.
    """
    with pytest.raises(
        InvalidArgumentError, match=r"requires running tf.data service in the fault tolerant mode\."
    ):
        distributed_save(Dataset.range(5), str(tmp_path / "saved"), service.target)


def test_what_can_not_be_saved_is_refused(store: Store, tmp_path: Path) -> None:
    """The call refuses infinite datasets and datasets that cannot be split."""
    with pytest.raises(InvalidArgumentError, match="Saving an infinite dataset is not allowed"):
        store.save(Dataset.range(5).repeat())
    Dataset.range(5).save(tmp_path / "plain")
    with pytest.raises(UnimplementedError, match="LoadDataset"):
        store.save(Dataset.load(tmp_path / "plain"))


def test_a_folder_that_can_not_be_made_is_told(store: Store, tmp_path: Path) -> None:
    """The caller gets the error of the dispatcher's file system."""
    (tmp_path / "file").touch()
    store.path = str(tmp_path / "file" / "saved")
    with pytest.raises(NotFoundError, match="The dispatcher cannot create the folder"):
        store.save(Dataset.range(5))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": 1}, ValueError, "`path` must be a string"),
        ({"path": ""}, ValueError, "`path` must not be empty"),
        ({"path": b"/caf\xe9"}, InvalidArgumentError, "a text that UTF-8 can hold"),
        ({"data_service_address": 1}, ValueError, "`data_service_address` must be a string"),
        ({"data_service_address": ""}, ValueError, "`data_service_address` must not be empty"),
        (
            {"data_service_address": 1, "path": ""},
            ValueError,
            "`data_service_address` must be a string",
        ),
        (
            {"data_service_address": "grp://x:1"},
            NotFoundError,
            "No credentials factory has been registered",
        ),
        ({"compression": "foo"}, ValueError, "Invalid `compression` argument"),
        ({"dataset": [1, 2]}, TypeError, "`dataset` must be a Dataset"),
        ({"dataset": [1, 2], "path": 1}, TypeError, "`dataset` must be a Dataset"),
        ({"dataset": object.__new__(Dataset)}, TypeError, "`dataset` must be a Dataset with a"),
        ({"dispatcher_timeout": 0}, ValueError, "`dispatcher_timeout` must be a positive number"),
        ({"on_poison": "ignore"}, ValueError, "`on_poison` must be 'fail' or 'skip', got 'ignore'"),
        ({"task_timeout": 0}, ValueError, "`task_timeout` must be a positive number of seconds"),
        ({"dispatcher_timeout": 0.3}, UnavailableError, "No dispatcher has answered"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """An argument that can never work raises an error that says what was expected."""
    good = {"dataset": Dataset.range(3), "path": "/saved", "data_service_address": "127.0.0.1:1"}
    with pytest.raises(error, match=text):
        distributed_save(**{**good, **arguments})


def test_servers_tell_what_they_save(store: Store, gate: Gate) -> None:
    """The status of dispatcher and workers lists the streams of a save, and whether
    they are complete.
    """
    service, path = store.service, store.path
    with pytest.raises(
        NotFoundError,
        match=r"does not know of a distributed save to .*saved': none was started there",
    ):
        service.dispatcher.snapshot_streams(path)
    store.save(Dataset.range(40).map(lambda x: x if x < 20 else gate.pass_through(x)))
    assert [one.index for one in service.dispatcher.snapshot_streams(path)] == [0, 1]

    def told() -> list[tuple[str, int, bool]]:
        found = [one for worker in service.workers for one in worker.snapshot_task_progresses()]
        return sorted((one.path, one.stream_index, one.completed) for one in found)

    wait_until(lambda: told() == [(path, 0, False), (path, 1, False)], "both workers write")
    gate.open()
    store.saved()
    assert [(one.index, one.completed) for one in service.dispatcher.snapshot_streams(path)] == [
        (0, True),
        (1, True),
    ]
    wait_until(lambda: told() == [(path, 0, True), (path, 1, True)], "both streams are complete")


def test_saves_go_wherever_fsspec_reaches(store: Store, tmp_path: Path) -> None:
    """A URL works like a folder for saving, loading and waiting."""
    store.path = f"file://{tmp_path}/bucket/saved"
    store.save(Dataset.range(100))
    assert sorted(map(int, Dataset.load(store.path, wait=True))) == list(range(100))
    assert sorted(map(int, store.saved())) == list(range(100))


def test_the_memory_of_a_process_is_no_place_for_a_save(store: Store) -> None:
    """The call refuses memory://, because no other process finds what a worker writes
    there.
    """
    store.path = "memory://bucket/saved"
    with pytest.raises(
        InvalidArgumentError, match="that writes to memory://bucket/saved can read it"
    ):
        store.save(Dataset.range(3))


def test_a_save_shows_its_progress(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """``progress=True`` shows a bar from the call to the end of the save, with the
    cardinality as its total. The call does not wait for it.
    """
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    gate = Gate(store.path + ".gate")
    store.save(Dataset.range(20).map(gate.pass_through), progress=True)
    wait_until(lambda: "0/20" in shown.getvalue(), "the bar with its total")
    gate.open()
    assert len(store.saved()) == 20
    wait_until(lambda: "20/20" in shown.getvalue(), "the bar at its end")


def test_a_protocol_that_nobody_knows_is_told(store: Store) -> None:
    """The call refuses a path that the dispatcher cannot reach."""
    store.path = "nonsense://bucket/saved"
    with pytest.raises(InvalidArgumentError, match="Protocol not known: nonsense"):
        store.save(Dataset.range(3))


@pytest.mark.parametrize("path", ["/saved/\udc80", "memory://\ud800/x"])
def test_a_path_that_no_message_can_hold_is_refused(store: Store, path: str) -> None:
    """The call refuses a path with half of a surrogate pair, as in a file name of
    another encoding, and shows it.
    """
    with pytest.raises(
        InvalidArgumentError, match=r"`path` must be a text that UTF-8 can hold.*Rename the folder"
    ):
        distributed_save(Dataset.range(3), path, store.service.target)
