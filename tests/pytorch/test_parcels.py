"""Test that a loader sends what it holds once, and anew when it has changed."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from tests.pytorch.test_ranks import Rank, pair
from zmqdata import LocalCluster
from zmqdata.client import registration
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.worker import WorkerConfig
from zmqdata.core.dispatcher import datasets
from zmqdata.dispatcher.server import DispatchServer
from zmqdata.pipelines.packing import ParcelContent
from zmqdata.pipelines.parcels import kept_parcels
from zmqdata.testing.cluster import await_condition
from zmqdata.torch import Loader, distribute_dataloader
from zmqdata.worker import server
from zmqdata.worker.server import WorkerServer

__all__ = ["pair"]
pytestmark = pytest.mark.realprocess


class Rows(Dataset[int]):
    """Rows of a list or another thing that gives an item for a number."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return int(self.rows[index])


class Odd(Rows):
    """Rows that are pickled in another way each time."""

    numbers = itertools.count()

    def __reduce__(self) -> Any:
        return Rows, (self.rows,), {"rows": self.rows, "number": next(Odd.numbers)}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list with the digest of each part of a loader that is sent."""
    found: list[str] = []
    taken = ParcelContent.__getitem__

    def noted(content: Any, place: slice) -> bytes:
        if not place.start:
            found.append(content._name)
        return taken(content, place)

    monkeypatch.setattr(ParcelContent, "__getitem__", noted)
    return found


def over(dataset: Any, cluster: str, **named: Any) -> Loader:
    return distribute_dataloader(DataLoader(dataset, 2, num_workers=2, **named), cluster)


def read(loader: Loader) -> list[Any]:
    """Return the items of a pass."""
    return [row for batch in loader for row in torch.as_tensor(batch).tolist()]


def test_an_unchanged_dataset_is_sent_once(cluster: str, made: list[str]) -> None:
    """Later passes, and other loaders over equal data, make and send no bytes of it."""
    rows = [one + 1000 for one in range(4)]
    loader = over(Rows(rows), cluster)
    assert [read(loader) for _ in range(3)] == [rows] * 3
    assert read(over(Rows([*rows]), cluster)) == rows
    assert len(made) <= 1


CHANGES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "list": (Rows([1, 2, 3, 4]), lambda x: x.rows.reverse()),
    "array": (Rows(np.arange(4)), lambda x: x.rows.put(0, 9)),
    "tensor": (Rows(torch.arange(4)), lambda x: x.rows.add_(1)),
    "view of a tensor": (Rows(torch.arange(8)[::2]), lambda x: x.rows.mul_(2)),
    "dict": (Rows(dict.fromkeys(range(4), 1)), lambda x: x.rows.update({2: 7})),
    "subset": (Subset(Rows([1, 2, 3, 4]), [0, 1, 2, 3]), lambda x: x.indices.reverse()),
    "concatenation": (
        ConcatDataset([Rows([1, 2, 3, 4]), Rows([5, 6, 7, 8])]),
        lambda x: x.datasets[1].rows.reverse(),
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_the_next_pass_has_a_change_in_place(cluster: str, case: str) -> None:
    """The second pass has what was changed in place before it."""
    dataset, change = CHANGES[case]
    loader = over(dataset, cluster)
    first = read(loader)
    assert first == read(DataLoader(dataset, 2))
    change(dataset)
    second = read(loader)
    assert second == read(DataLoader(dataset, 2))
    assert second != first


def test_a_running_pass_keeps_the_dataset_with_which_it_began(cluster: str) -> None:
    """A change during a pass is in the next one only."""
    dataset = TensorDataset(torch.arange(64))
    loader = distribute_dataloader(DataLoader(dataset, 1), cluster)
    iterator = iter(loader)
    found = [int(next(iterator)[0])]
    dataset.tensors[0].add_(100)
    found += [int(batch[0]) for batch in iterator]
    assert found == [*range(64)]
    assert [int(batch[0]) for batch in loader] == [*range(100, 164)]


def test_a_dataset_with_other_bytes_each_time_is_sent_in_each_pass(
    cluster: str, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Each pass works, and a single line names the class."""
    loader, sent = over(Odd([4, 3, 2, 1]), cluster), set()
    for _ in range(3):
        assert read(loader) == [4, 3, 2, 1]
        sent.add(loader._passes.supply()._parcel.parcel.packed.pickle)
    assert len(sent) == 3
    assert len(made) == 1 + len(sent)  # the first request for other bytes finds that they change
    said = [one.getMessage() for one in caplog.records if "other bytes each" in one.getMessage()]
    assert len(said) == 1
    assert "test_parcels.Odd does so" in said[0]


def turned(rows: dict[int, int]) -> dict[int, int]:
    """Return a dictionary with an equal content, and another order."""
    return dict(reversed(rows.items()))


def test_ranks_name_the_parcel_of_rank_0(
    cluster: str, pair: Callable[[], list[Rank]], made: list[str]
) -> None:
    """The workers open the bytes of rank 0 for both ranks, although rank 1 would have
    others, also after a change on both.
    """
    first, second = pair()
    rows = {one: one + 500 for one in range(4)}
    held = [Rows(rows), Rows(turned(rows))]
    loaders = [
        rank(partial(over, one, cluster)) for rank, one in zip((first, second), held, strict=True)
    ]

    def passed() -> Iterator[list[Any]]:
        for rank, one in zip((first, second), loaders, strict=True):
            rank(one.start)
        yield from ([row for batch in one for row in batch.tolist()] for one in loaders)

    assert [*passed()] == [[500, 501], [502, 503]]
    assert (
        loaders[0]._passes.supply()._parcel.parcel.packed
        == loaders[1]._passes.supply()._parcel.parcel.packed
    )
    for one in held:
        one.rows[3] = 7
    assert [*passed()] == [[500, 501], [502, 7]]
    assert (
        loaders[0]._passes.supply()._parcel.parcel.packed
        == loaders[1]._passes.supply()._parcel.parcel.packed
    )
    assert len(made) == 2


class Remembering(Rows):
    """Rows that count how often they were read, by the copy that a worker has."""

    def __init__(self, rows: Any) -> None:
        super().__init__(rows)
        self.reads = 0

    def __getitem__(self, index: int) -> int:
        self.reads += 1
        return int(self.rows[index]) * 1000 + self.reads


def note_begin(number: int) -> None:
    """Count the calls of ``worker_init_fn`` in the dataset of the virtual worker."""
    info = torch.utils.data.get_worker_info()
    assert info is not None
    info.dataset.begins = getattr(info.dataset, "begins", 0) + 1


class Beginning(Rows):
    """Rows that tell how often ``worker_init_fn`` was called."""

    def __getitem__(self, index: int) -> int:
        return int(getattr(self, "begins", 0))


def kept(dataset: Any, cluster: str, **named: Any) -> Loader:
    return over(dataset, cluster, persistent_workers=True, **named)


def test_copies_stay_from_pass_to_pass(cluster: str) -> None:
    """A dataset of persistent workers keeps in the next pass what it has changed in
    itself. Without them, each pass begins anew.
    """
    counts = [[one % 1000 for one in read(kept(Remembering([0] * 4), cluster))]]
    loader = kept(Remembering([0] * 4), cluster)
    counts += [[one % 1000 for one in read(loader)] for _ in range(3)]
    assert counts == [[1, 2, 1, 2], [1, 2, 1, 2], [3, 4, 3, 4], [5, 6, 5, 6]]
    again = over(Remembering([0] * 4), cluster)
    assert [read(again) for _ in range(2)] == [[1, 2, 1, 2]] * 2


def test_a_state_continues_beside_kept_parcels(cluster: str) -> None:
    """A state that another loader has loaded leaves the rest of the pass, while the
    copies of both loaders stay.
    """
    loader, other = (kept(Rows([5, 6, 7, 8]), cluster) for _ in range(2))
    whole = read(loader)
    iterator = iter(loader)
    first = next(iterator).tolist()
    other.load_state_dict(loader.state_dict())
    assert first + read(other) == whole == first + [row for x in iterator for row in x.tolist()]
    assert read(other) == read(loader) == whole


def test_ranks_that_read_the_same_share_no_copies(
    cluster: str, pair: Callable[[], list[Rank]]
) -> None:
    """Each rank of a group has copies of its own, so all get the same batches."""
    named = {"consumer_index": 0, "num_consumers": 1}

    def made() -> Loader:
        loader = DataLoader(Remembering([0] * 4), 2, num_workers=2, persistent_workers=True)
        return distribute_dataloader(loader, cluster, **named)

    both = [(rank, rank(made)) for rank in pair()]
    found = [[rank(read, loader) for rank, loader in both] for _ in range(2)]
    assert found == [[[1, 2, 1, 2]] * 2, [[3, 4, 3, 4]] * 2]


def test_a_pass_that_a_state_continues_opens_its_own_copies(cluster: str) -> None:
    """Its batches are those that another process would get. The tasks of such a pass
    serve other virtual workers, which must not get each other's copies.
    """
    loader = kept(Beginning([0] * 4), cluster, worker_init_fn=note_begin)
    assert read(loader) == [1, 1, 1, 1]
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(loader.state_dict())
    assert read(loader) == [1, 1]
    assert read(loader) == [1, 1, 1, 1]


def test_a_virtual_worker_begins_once(cluster: str) -> None:
    """``worker_init_fn`` runs once for each virtual worker that stays, and in each pass
    otherwise, as in torch.
    """
    for make in (kept, over):
        loader = make(Beginning([0] * 4), cluster, worker_init_fn=note_begin)
        assert [read(loader) for _ in range(2)] == [[1, 1, 1, 1]] * 2


def test_a_kept_dataset_is_not_looked_at_again(
    cluster: str, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A change after the first pass is in no batch, and ``set_epoch`` of the dataset is
    warned of once.
    """
    dataset = Rows([1, 2, 3, 4])
    epochs: list[int] = []
    dataset.set_epoch = epochs.append  # type: ignore[attr-defined]
    loader = kept(dataset, cluster)
    del dataset.set_epoch  # type: ignore[attr-defined]
    found = [read(loader)]
    dataset.rows.reverse()
    dataset.set_epoch = epochs.append  # type: ignore[attr-defined]
    for number in (1, 2):
        loader.set_epoch(number)
        found.append(read(loader))
    assert found == [[1, 2, 3, 4]] * 3
    assert epochs == [1, 2]
    assert len([one for one in caplog.records if "has no effect" in one.getMessage()]) == 1
    assert len(made) <= 1


@pytest.mark.parametrize("memory", [(0, 0), None], ids=["told", "unknown"])
def test_copies_go_with_their_loader(
    monkeypatch: pytest.MonkeyPatch, memory: tuple[int, int] | None
) -> None:
    """The copies of a loader stay while it lives, however long it does not read, and
    soon go when it is gone, also on a system that does not tell the memory.
    """
    monkeypatch.setattr(datasets, "UNASKED_FOR", 2.0)
    monkeypatch.setattr(registration, "KEEP_EVERY", 0.2)
    monkeypatch.setattr(server, "read_memory", lambda: memory)
    with LocalCluster(1, in_process=True) as cluster:
        living, dying = (kept(Rows([1, 2, 3, 4]), cluster.target) for _ in range(2))
        assert read(living) == read(dying) == [1, 2, 3, 4]
        stays, goes = (one._passes.supply()._parcel._anchor_id for one in (living, dying))
        assert kept_parcels() >= {stays, goes}
        del dying
        gc.collect()
        await_condition(lambda: goes not in kept_parcels(), 20.0)
        assert stays in kept_parcels()


class Noted(Rows):
    """Rows whose opened copies are noted."""

    copies: ClassVar[list[weakref.ref[Noted]]] = []

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Noted.copies.append(weakref.ref(self))


def test_a_copy_goes_with_its_task() -> None:
    """A task that has ended holds no copy, also while garbage is not collected: a copy
    may be large, and the collector counts objects.
    """
    gc.collect()
    gc.disable()
    try:
        with LocalCluster(1, in_process=True) as cluster:
            assert read(over(Noted([1, 2, 3, 4]), cluster.target)) == [1, 2, 3, 4]
            assert Noted.copies
            await_condition(lambda: all(one() is None for one in Noted.copies))
    finally:
        gc.enable()


def test_a_stream_is_new_in_each_pass(cluster: str) -> None:
    """The bytes of an iterable-style dataset stay, and each pass opens them."""
    loader = kept(Stream(4), cluster)
    assert [sorted(read(loader)) for _ in range(2)] == [[0, 0, 1, 1, 2, 2, 3, 3]] * 2


class Stream(torch.utils.data.IterableDataset[int]):
    """Numbers, which can be read once."""

    def __init__(self, count: int) -> None:
        self.left = list(range(count))

    def __iter__(self) -> Iterator[int]:
        while self.left:
            yield self.left.pop()


def test_what_a_cluster_loses_is_sent_and_opened_anew(caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is killed between two passes takes its copies along, a worker that
    joins opens the first bytes, and a dispatcher that comes back with its work folder
    keeps all.
    """
    with LocalCluster(2, in_process=True) as cluster:
        dataset = Remembering([0] * 4)
        loader = kept(dataset, cluster)
        found = [read(loader)]
        dataset.rows[:] = [7] * 4
        cluster.workers[0].kill()
        cluster.add_worker()
        found.append(read(loader))
        cluster.dispatcher.restart()
        found.append(read(loader))
    assert [{one // 1000 for one in each} for each in found] == [{0}] * 3
    assert "has lost" not in caplog.text


def test_a_dispatcher_without_its_folder_gets_all_anew(
    made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """If the dispatcher has lost what a loader has sent, the next pass sends the
    dataset as it is then, and says so.
    """
    dataset, loaders, port = Rows([1, 2, 3, 4]), [], 0
    for expected in ([1, 2, 3, 4], [4, 3, 2, 1]):
        with DispatchServer(DispatcherConfig(port=port)) as dispatcher:
            port = int(dispatcher.target.rpartition(":")[2])
            with WorkerServer(WorkerConfig(dispatcher.target)):
                loaders = loaders or [kept(dataset, dispatcher.target)]
                assert [read(loaders[0]) for _ in range(2)] == [expected] * 2
        dataset.rows.reverse()
    assert len(made) == 2
    assert caplog.text.count("has lost what the DataLoader at") == 1
