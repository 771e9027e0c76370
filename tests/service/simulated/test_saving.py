"""Facts about the files that ``distributed_save`` writes and loading reads, in
simulated time and with real files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from zmqdata import Dataset, TensorSpec
from zmqdata.cli.save_progress import progress_of
from zmqdata.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PipelineError,
)
from zmqdata.storage.manifests import is_done, read_save_error
from zmqdata.testing.service import PlainWorker

Make = Callable[..., WatchedService]


@dataclass
class Store:
    """A service that can save, and a folder to save to."""

    service: WatchedService
    path: str

    def save(self, dataset: Dataset, **options: Any) -> None:
        self.service.save(dataset, self.path, **options)

    def end(self) -> None:
        assert self.service.run_until(
            lambda: is_done(self.path) or read_save_error(self.path), 600.0
        )

    def saved(self) -> list[Any]:
        self.end()
        return list(Dataset.load(self.path))


@pytest.fixture
def store(make_service: Make, tmp_path: Path) -> Store:
    """A dispatcher with a journal, and two workers."""
    return Store(make_service(journalled=True), str(tmp_path / "saved"))


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


def test_the_settings_decide_how_large_chunks_are(make_service: Make, tmp_path: Path) -> None:
    """A worker closes a chunk at the size that its configuration sets: after each
    element, for one byte.
    """
    small = {"snapshot_max_chunk_size_bytes": 1, "buffer_bytes": 1 << 16}
    service = make_service(1, worker_options=small, journalled=True)
    store = Store(service, str(tmp_path / "saved"))
    store.save(Dataset.range(20))
    assert sorted(map(int, store.saved())) == list(range(20))
    assert progress_of(store.path).chunks == 20


def test_repetitions_are_saved_too(store: Store) -> None:
    """A finite repetition is saved as part of the dataset."""
    store.save(Dataset.range(50).repeat(3))
    assert Counter(map(int, store.saved())) == Counter(dict.fromkeys(range(50), 3))


def test_an_empty_dataset_is_saved(store: Store) -> None:
    """An empty dataset can be saved and loaded."""
    store.save(Dataset.range(0))
    assert store.saved() == []


def test_the_order_of_what_was_saved_stays(store: Store) -> None:
    """Two readings of a finished save have the same order, and each resumes from a
    state of the other.
    """
    store.save(Dataset.range(500))
    first = [int(x) for x in store.saved()]
    again = iter(Dataset.load(store.path))
    assert [int(next(again)) for _ in range(200)] == first[:200]
    other = iter(Dataset.load(store.path))
    other.load_state_dict(again.state_dict())
    assert [int(x) for x in other] == first[200:]


def test_a_change_of_workers_loses_nothing(make_service: Make, tmp_path: Path) -> None:
    """Workers that leave, die and join during a save leave every element once."""
    service = make_service(journalled=True, pace=0.01)
    store = Store(service, str(tmp_path / "saved"))
    store.save(Dataset.range(2500))
    for count, go in ((100, PlainWorker.stop), (300, PlainWorker.kill), (900, PlainWorker.stop)):
        while progress_of(store.path).elements < count:
            service.run_until(lambda: False, 0.5)
        go(service.workers.pop(0))
        service.add_worker()
    assert not is_done(store.path)
    assert Counter(map(int, store.saved())) == Counter(range(2500))


def test_an_element_that_fails_ends_the_save(store: Store) -> None:
    """A reader of the save gets the error that the save failed, and the saver gets the
    user's exception with its place.
    """
    store.save(Dataset.range(20).map(lambda x: 1 // (int(x) - 7)))
    store.end()
    with pytest.raises(PipelineError, match=r"map\(<lambda>\) at test_saving.py") as caught:
        list(Dataset.load(store.path, wait=True))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(
        ValueError, match=r"The save job failed to write it. PipelineError: .*ZeroDivisionError"
    ):
        Dataset.load(store.path)
    assert store.service.run_until(
        lambda: all(worker.num_tasks() == 0 for worker in store.service.workers), 30.0
    )
    with pytest.raises(AlreadyExistsError, match="already started or completed"):
        store.save(Dataset.range(20))


def test_the_error_policy_decides_whether_an_element_fails(store: Store) -> None:
    """An element that map skips does not end the save."""
    store.save(Dataset.range(20).map(lambda x: 1 // (int(x) - 7) * 0 + x, on_error="skip"))
    assert sorted(map(int, store.saved())) == [*range(7), *range(8, 20)]


def test_what_can_not_be_stored_ends_the_save(store: Store) -> None:
    """Objects that need pickle are not saved, because a reader would run a stranger's
    bytes.
    """
    store.save(Dataset.range(3).map(lambda x: object()))
    store.end()
    with pytest.raises(ValueError, match="The save job failed to write it"):
        Dataset.load(store.path)


def test_what_is_loaded_is_held_against_what_was_saved(store: Store, tmp_path: Path) -> None:
    """Loading refuses a missing folder, another spec, another compression and an
    invalid wait.
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


@pytest.mark.parametrize("border", [1, 300])
def test_elements_of_two_structures_are_not_saved(store: Store, border: int) -> None:
    """The save fails with an error that shows both structures, whether they meet in the
    same chunk or not.
    """
    store.save(Dataset.range(600).map(lambda x: (x, x) if x >= border else {"x": x}))
    store.end()
    with pytest.raises(InvalidArgumentError, match="must have one structure") as caught:
        list(Dataset.load(store.path, wait=True))
    for structure in (
        "{'x': TensorSpec(shape=(), dtype=int64)}",
        "(TensorSpec(shape=(), dtype=int64), TensorSpec(",
    ):
        assert structure in str(caught.value)


def test_a_saved_dataset_is_shared_by_chunk(store: Store) -> None:
    """Each chunk of a saved dataset goes to one worker under DYNAMIC; each worker reads
    all of it under OFF.
    """
    store.save(Dataset.range(300))
    store.saved()
    for mode, copies in (("distributed_epoch", 1), ("parallel_epochs", 2)):
        loaded = store.service.read(Dataset.load(store.path), mode)
        assert Counter(map(int, loaded)) == Counter(dict.fromkeys(range(300), copies))


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
