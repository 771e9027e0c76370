"""Loaders as iterable-style datasets: each batch comes once, or reading is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

import zmqdata
from zmqdata import Dataset
from zmqdata.errors import FailedPreconditionError
from zmqdata.torch import Loader, distribute_dataloader

pytestmark = pytest.mark.realprocess


def distributed(cluster: str, **options: Any) -> Loader:
    read = zmqdata.distribute("distributed_epoch", cluster, **options)
    return Loader(Dataset.range(40).batch(4).apply(read))


def around(loader: Loader, **options: Any) -> DataLoader:
    return DataLoader(loader.as_iterable_dataset(), batch_size=None, **options)


def rows(batches: Any) -> list[int]:
    return sorted(row for batch in batches for row in batch.tolist())


@pytest.mark.parametrize(
    ("method", "job_name", "is_kept"),
    [
        pytest.param("fork", None, False, id="fork-anonymous"),
        pytest.param("fork", "forked", False, id="fork-named"),
        pytest.param("spawn", None, True, id="spawn-kept"),
        pytest.param("spawn", None, False, id="spawn-anonymous", marks=pytest.mark.full),
        pytest.param("spawn", "spawned", False, id="spawn-named", marks=pytest.mark.full),
    ],
)
def test_processes_share_a_job(
    cluster: str, method: str, job_name: str | None, is_kept: bool
) -> None:
    """Two processes of a DataLoader read each row of a distributed dataset once, in
    each of two passes, by whichever method they are started, and if the first pass has
    left them to the second.
    """
    loader = around(
        distributed(cluster, job_name=job_name),
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=is_kept,
    )
    assert [rows(loader) for _ in range(2)] == [[*range(40)]] * 2


class Own(IterableDataset[int]):
    """A dataset of a user, which yields the elements of another."""

    def __init__(self, make: Callable[[], Dataset]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[int]:
        return map(int, self.make())


@pytest.mark.parametrize("name", ["named", None])
def test_a_dataset_that_each_process_makes_is_shared_or_refused(
    cluster: str, name: str | None
) -> None:
    """Processes of a DataLoader that make a dataset share its job if that has a name.
    Otherwise they are refused, unless there is one process.
    """

    def make() -> Dataset:
        return Dataset.range(40).apply(zmqdata.distribute("distributed_epoch", cluster, name))

    shared = DataLoader(Own(make), batch_size=4, num_workers=2)
    if name is None:
        with pytest.raises(FailedPreconditionError, match=r"each of these processes would read"):
            rows(shared)
        shared = DataLoader(Own(make), batch_size=4, num_workers=1)
    assert rows(shared) == [*range(40)]


def test_sharding_what_is_shared_already_is_refused(cluster: str) -> None:
    """The recipe of torch for processes of a DataLoader, ``shard(num_workers, id)``, is
    refused of a dataset whose elements the processes share. Other shards are not.
    """
    made = Dataset.range(40).apply(zmqdata.distribute("distributed_epoch", cluster))

    def of_worker() -> Dataset:
        info = get_worker_info()
        assert info is not None
        return made.shard(info.num_workers, info.id)

    with pytest.raises(FailedPreconditionError, match="share the elements of the service already"):
        rows(DataLoader(Own(of_worker), batch_size=4, num_workers=2))
    assert len(rows(DataLoader(Own(lambda: made.shard(4, 3)), batch_size=4, num_workers=2))) <= 10


def local(cluster: str) -> Loader:
    return Loader(Dataset.range(40).batch(4))


def promised(cluster: str) -> Loader:
    return distributed(cluster, deterministic=True, num_tasks=2)


def mixed(cluster: str) -> Loader:
    read = zmqdata.distribute("distributed_epoch", cluster)
    both = Dataset.range(40).batch(4).apply(read).concatenate(Dataset.range(4).batch(4))
    return Loader(both)


def taken(cluster: str) -> Loader:
    read = zmqdata.distribute("distributed_epoch", cluster)
    return Loader(Dataset.range(40).batch(4).apply(read).take(5))


def limited(cluster: str) -> Loader:
    read = zmqdata.distribute("distributed_epoch", cluster)
    return Loader(Dataset.range(40).batch(4).apply(read), batches=5)


def cached(cluster: str) -> Loader:
    cache = zmqdata.CrossTrainerCache(trainer_id="a")
    read = zmqdata.distribute(
        "parallel_epochs", cluster, job_name="cached", cross_trainer_cache=cache
    )
    return Loader(Dataset.range(40).repeat().batch(4).apply(read))


def of_dataloader(cluster: str) -> Loader:
    return distribute_dataloader(DataLoader(TensorDataset(torch.arange(40)), 4), cluster)


@pytest.mark.parametrize("make", [local, promised, mixed, taken, limited, cached, of_dataloader])
def test_processes_that_would_read_everything_are_refused(cluster: str, make: Any) -> None:
    """Two processes of a DataLoader that would each have all batches read none, and the
    error says what to pass.
    """
    loader = around(make(cluster), num_workers=2, multiprocessing_context="fork")
    with pytest.raises(FailedPreconditionError, match=r"would read all batches.*`num_workers=1`"):
        next(iter(loader))


@pytest.mark.parametrize("make", [local, promised, of_dataloader])
def test_one_process_reads_what_the_loader_reads(cluster: str, make: Any) -> None:
    """A DataLoader with one process has the batches of the loader, in its order."""
    wanted = [str(batch) for batch in make(cluster)]
    loader = around(make(cluster), num_workers=1, multiprocessing_context="fork")
    assert [str(batch) for batch in loader] == wanted


def test_the_dataset_and_the_loader_have_one_state(cluster: str) -> None:
    """Without processes, the states of the dataset, of its iterator and of the loader
    are one, also before the first batch, and each resumes the others.
    """
    loader = promised(cluster)
    dataset = loader.as_iterable_dataset()
    iterator = iter(dataset)
    assert iterator.state_dict() == dataset.state_dict() == loader.state_dict()
    before = [next(iterator).tolist() for _ in range(3)]
    states = [iterator.state_dict(), dataset.state_dict(), loader.state_dict()]
    assert [state["batches"] for state in states] == [3] * 3
    rest = [batch.tolist() for batch in iterator]
    assert sorted(row for batch in before + rest for row in batch) == [*range(40)]
    for load in (iterator.load_state_dict, dataset.load_state_dict, loader.load_state_dict):
        load(states[0])
        target = iterator if load == iterator.load_state_dict else dataset
        assert [batch.tolist() for batch in target] == rest


def test_a_state_of_the_process_that_forks_is_refused() -> None:
    """A state that was loaded before the processes of a DataLoader began would be read
    from again in each pass, so it is refused, and the error says where to load it.
    """
    loader = Loader(Dataset.range(40).batch(4))
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(FailedPreconditionError, match="StatefulDataLoader"):
        next(iter(around(loader, num_workers=1, multiprocessing_context="fork")))
    assert len(rows(around(loader))) == 36


def test_a_loader_that_is_being_read_may_be_forked() -> None:
    """The process of a DataLoader reads a whole pass, even if the loader was in the
    middle of one when it was forked, and the loader goes on.
    """
    loader = Loader(Dataset.range(40).batch(4))
    iterator = iter(loader)
    next(iterator)
    assert rows(around(loader, num_workers=1, multiprocessing_context="fork")) == [*range(40)]
    assert rows(iterator) == [*range(4, 40)]
