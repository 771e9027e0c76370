"""What users see of ``distributed_save`` and of loading what it wrote, on real
sockets.
"""

from __future__ import annotations

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
from zmqdata.cli.save_progress import progress_of
from zmqdata.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PipelineError,
    UnavailableError,
    UnimplementedError,
)
from zmqdata.storage.manifests import is_done, read_save_error

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
    """What keeps pipelines from going on until it is opened. It can be sent to
    workers.
    """

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
    """A closed gate, which is opened when the test is over at the latest."""
    gate = Gate(str(tmp_path / "gate"))
    yield gate
    gate.open()


def test_everything_is_saved_once(store: Store) -> None:
    """All elements of a dataset are in the folder, whatever they look like, and they
    are described.
    """
    store.save(Dataset.range(1000).map(lambda x: {"x": x, "text": str(x), "row": np.arange(x % 3)}))
    found = store.saved()
    assert Counter(int(one["x"]) for one in found) == Counter(range(1000))
    assert all(one["text"] == str(one["x"]) and len(one["row"]) == one["x"] % 3 for one in found)
    loaded = Dataset.load(store.path)
    assert len(loaded) == 1000
    assert loaded.element_spec["row"] == TensorSpec((None,), np.int64)


def test_the_settings_decide_how_large_chunks_are(make_service: Make, tmp_path: Path) -> None:
    """A worker closes a chunk when it has the bytes that its configuration allows:
    after each element, for one byte.
    """
    small = {"snapshot_max_chunk_size_bytes": 1, "buffer_bytes": 1 << 10}
    service = make_service(1, worker_options=small, work_dir=str(tmp_path / "work"))
    store = Store(service, str(tmp_path / "saved"))
    store.save(Dataset.range(20))
    assert sorted(map(int, store.saved())) == list(range(20))
    assert progress_of(store.path).chunks == 20


def test_the_settings_decide_how_many_streams_a_worker_writes(
    make_service: Make, tmp_path: Path, gate: Gate
) -> None:
    """With one stream for each worker a second save waits until the first has ended;
    then it goes on by itself.
    """
    service = make_service(1, work_dir=str(tmp_path / "work"), worker_max_concurrent_snapshots=1)
    first, second = (Store(service, str(tmp_path / name)) for name in ("first", "second"))
    first.save(Dataset.range(10).map(gate.pass_through))
    second.save(Dataset.range(10))
    assert len(service.dispatcher.snapshot_streams(first.path)) == 1
    assert service.dispatcher.snapshot_streams(second.path) == []
    gate.open()
    assert sorted(map(int, second.saved())) == list(range(10))
    assert sorted(map(int, first.saved())) == list(range(10))


def test_repetitions_are_saved_too(store: Store) -> None:
    """A finite repetition is part of the dataset."""
    store.save(Dataset.range(50).repeat(3))
    assert Counter(map(int, store.saved())) == Counter(dict.fromkeys(range(50), 3))


def test_an_empty_dataset_is_saved(store: Store) -> None:
    """Nothing is something that can be saved and loaded."""
    store.save(Dataset.range(0))
    assert store.saved() == []


def test_the_order_of_what_was_saved_stays(store: Store) -> None:
    """Two readings of a finished save give the same order, and a state of one goes on
    in the other.
    """
    store.save(Dataset.range(500))
    first = [int(x) for x in store.saved()]
    again = iter(Dataset.load(store.path))
    assert [int(next(again)) for _ in range(200)] == first[:200]
    other = iter(Dataset.load(store.path))
    other.load_state_dict(again.state_dict())
    assert [int(x) for x in other] == first[200:]


def test_a_saved_dataset_is_shared_by_chunk(store: Store, make_service: Make) -> None:
    """Under DYNAMIC each chunk of a saved dataset goes to one worker; with OFF each
    worker reads all of it.
    """
    store.save(Dataset.range(300))
    store.saved()
    for mode, copies in (("distributed_epoch", 1), ("parallel_epochs", 2)):
        loaded = Dataset.load(store.path).apply(distribute(mode, store.service.target))
        assert Counter(map(int, loaded)) == Counter(dict.fromkeys(range(300), copies))


def test_a_save_is_read_while_it_is_written(store: Store, gate: Gate, monkeypatch: Any) -> None:
    """With wait=True reading may begin before the save, and gives elements long before
    it has ended.
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


def test_a_growing_save_is_not_split(store: Store, gate: Gate) -> None:
    """As long as nobody knows how many chunks there will be they cannot be shared; the
    error says what to do.
    """
    store.save(Dataset.range(10).map(gate.pass_through))
    loaded = Dataset.load(store.path, wait=True)
    with pytest.raises(UnimplementedError, match="a save that is still being written"):
        next(iter(loaded.apply(distribute("distributed_epoch", store.service.target))))


def test_a_change_of_workers_loses_nothing(store: Store, gate: Gate, monkeypatch: Any) -> None:
    """Workers that leave and come while they save leave every element once."""
    monkeypatch.setattr("zmqdata.core.worker.saving.FIRST_CHUNK_SECONDS", 0.05)

    def slow(x: Any) -> Any:
        import os
        import threading

        if not os.path.exists(gate.path):
            threading.Event().wait(0.01)
        return x

    store.save(Dataset.range(5000).map(slow))
    service = store.service
    for count in (100, 300):
        wait_until(
            lambda: progress_of(store.path).elements >= count,  # noqa: B023
            "enough elements to lose some",
        )
        service.workers.pop(0).stop()
        service.add_worker()
    assert not is_done(store.path)
    gate.open()
    assert Counter(map(int, store.saved())) == Counter(range(5000))


def test_an_element_that_fails_ends_the_save(store: Store) -> None:
    """Who loads hears that the save failed; who waits gets the user's exception with
    its place.
    """
    store.save(Dataset.range(20).map(lambda x: 1 // (int(x) - 7)))
    with pytest.raises(PipelineError, match=r"map\(<lambda>\) at test_saving.py") as caught:
        list(Dataset.load(store.path, wait=True))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(
        ValueError, match=r"The save job failed to write it. PipelineError: .*ZeroDivisionError"
    ):
        Dataset.load(store.path)
    wait_until(
        lambda: all(worker.num_tasks() == 0 for worker in store.service.workers),
        "the end of all streams",
    )
    with pytest.raises(AlreadyExistsError, match="already started or completed"):
        store.save(Dataset.range(20))


def test_the_error_policy_decides_whether_an_element_fails(store: Store) -> None:
    """An element that map leaves out does not end the save."""
    store.save(Dataset.range(20).map(lambda x: 1 // (int(x) - 7) * 0 + x, on_error="skip"))
    assert sorted(map(int, store.saved())) == [*range(7), *range(8, 20)]


def test_what_can_not_be_stored_ends_the_save(store: Store) -> None:
    """Objects that would have to be pickled do not go to files: whoever read them would
    open a stranger's bytes.
    """
    store.save(Dataset.range(3).map(lambda x: object()))
    wait_until(lambda: read_save_error(store.path), "the end of the save")
    with pytest.raises(ValueError, match="The save job failed to write it"):
        Dataset.load(store.path)


def test_a_path_is_saved_to_once(store: Store, tmp_path: Path) -> None:
    """A second save is refused while the first runs, when it has ended, and where
    `save` has written.
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
    """A dispatcher without a work folder refuses, and says what to give it."""
    with pytest.raises(
        InvalidArgumentError, match=r"requires running tf.data service in the fault tolerant mode\."
    ):
        distributed_save(Dataset.range(5), str(tmp_path / "saved"), service.target)


def test_what_can_not_be_saved_is_refused(store: Store, tmp_path: Path) -> None:
    """Infinite datasets and such that cannot be split are refused at the call."""
    with pytest.raises(InvalidArgumentError, match="Saving an infinite dataset is not allowed"):
        store.save(Dataset.range(5).repeat())
    Dataset.range(5).save(tmp_path / "plain")
    with pytest.raises(UnimplementedError, match="LoadDataset"):
        store.save(Dataset.load(tmp_path / "plain"))


def test_a_folder_that_can_not_be_made_is_told(store: Store, tmp_path: Path) -> None:
    """What the dispatcher's file system says reaches the caller."""
    (tmp_path / "file").touch()
    store.path = str(tmp_path / "file" / "saved")
    with pytest.raises(NotFoundError, match="The dispatcher can not make the folder"):
        store.save(Dataset.range(5))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": 1}, ValueError, "`path` must be a string"),
        ({"path": ""}, ValueError, "`path` must not be empty"),
        ({"data_service_address": 1}, ValueError, "`data_service_address` must be a string"),
        ({"data_service_address": ""}, ValueError, "`data_service_address` must not be empty"),
        (
            {"data_service_address": "grp://x:1"},
            NotFoundError,
            "No credentials factory has been registered",
        ),
        ({"compression": "foo"}, ValueError, "Invalid `compression` argument"),
        ({"dataset": [1, 2]}, TypeError, "`dataset` must be a Dataset"),
        ({"dispatcher_timeout": 0}, ValueError, "`dispatcher_timeout` must be a positive number"),
        ({"on_poison": "ignore"}, ValueError, "`on_poison` must be 'fail' or 'skip', got 'ignore'"),
        ({"task_timeout": 0}, ValueError, "`task_timeout` must be a positive number of seconds"),
        ({"dispatcher_timeout": 0.3}, UnavailableError, "No dispatcher has answered"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Each argument that can never work is an error that says what was expected."""
    good = {"dataset": Dataset.range(3), "path": "/saved", "data_service_address": "127.0.0.1:1"}
    with pytest.raises(error, match=text):
        distributed_save(**{**good, **arguments})


def test_what_is_loaded_is_held_against_what_was_saved(store: Store, tmp_path: Path) -> None:
    """A missing folder, another spec, another compression and a strange wait are
    refused.
    """
    with pytest.raises(NotFoundError, match="holds no saved dataset"):
        Dataset.load(store.path)
    store.save(Dataset.range(5), compression="lz4")
    store.saved()
    Dataset.load(store.path, TensorSpec((), np.int64), "lz4")
    with pytest.raises(
        ValueError, match=r"User specified element_spec .* but the actual element_spec is"
    ):
        Dataset.load(store.path, TensorSpec((), np.int8))
    with pytest.raises(
        ValueError, match=r"User specified compression zstd, but the actual compression is lz4\."
    ):
        Dataset.load(store.path, compression="zstd")
    with pytest.raises(TypeError, match="`wait` must be True or False"):
        Dataset.load(store.path, wait=1)  # type: ignore[arg-type]


def test_servers_tell_what_they_save(store: Store, gate: Gate) -> None:
    """Dispatcher and workers name the streams of a save, and whether they are
    complete.
    """
    service, path = store.service, store.path
    with pytest.raises(
        NotFoundError,
        match=r"does not know of a distributed save to .*saved': none was begun there",
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
    """A URL does as well as a folder, for saving, loading and waiting."""
    store.path = f"file://{tmp_path}/bucket/saved"
    store.save(Dataset.range(100))
    assert sorted(map(int, Dataset.load(store.path, wait=True))) == list(range(100))
    assert sorted(map(int, store.saved())) == list(range(100))


def test_the_memory_of_a_process_is_no_place_for_a_save(store: Store) -> None:
    """What workers write to memory:// the dispatcher does not find, nor any other
    process: that is told at the call.
    """
    store.path = "memory://bucket/saved"
    with pytest.raises(
        InvalidArgumentError, match="memory://bucket/saved only the process finds that wrote it"
    ):
        store.save(Dataset.range(3))


def test_a_protocol_that_nobody_knows_is_told(store: Store) -> None:
    """What the dispatcher cannot reach is an error at the call."""
    store.path = "nonsense://bucket/saved"
    with pytest.raises(NotFoundError, match="nonsense"):
        store.save(Dataset.range(3))


@pytest.mark.parametrize("border", [1, 300])
def test_elements_of_two_structures_are_not_saved(store: Store, border: int) -> None:
    """The save fails with an error that shows both, whether they meet in one chunk or
    in none.
    """
    store.save(Dataset.range(600).map(lambda x: (x, x) if x >= border else {"x": x}))
    with pytest.raises(InvalidArgumentError, match="must have one structure") as caught:
        list(Dataset.load(store.path, wait=True))
    for structure in (
        "{'x': TensorSpec(shape=(), dtype=int64)}",
        "(TensorSpec(shape=(), dtype=int64), TensorSpec(",
    ):
        assert structure in str(caught.value)


@pytest.mark.parametrize("path", ["/saved/\udc80", "memory://\ud800/x"])
def test_a_path_that_no_message_can_hold_is_refused(store: Store, path: str) -> None:
    """Half of a surrogate pair, as in a file name of another encoding, is an error at
    the call that shows it.
    """
    with pytest.raises(
        InvalidArgumentError, match=r"`path` must be a text that UTF-8 can hold.*Rename the folder"
    ):
        distributed_save(Dataset.range(3), path, store.service.target)
