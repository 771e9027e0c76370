"""Facts about randomness in a job: it is new in each iteration, shared by all tasks of
the job, and the same after a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.simulated.parts import moved_tasks
from zmqdata import Dataset
from zmqdata.testing import SimulatedService

MODES = ["distributed_epoch", "parallel_epochs"]


def texts(dataset: Any) -> list[str]:
    return [str(element) for element in dataset]


def files(folder: Path) -> str:
    for number in range(20):
        (folder / f"{number:02}.txt").touch()
    return f"{folder}/*.txt"


UNSEEDED: dict[str, Callable[[Path], Dataset]] = {
    "shuffle": lambda folder: Dataset.range(20).shuffle(20),
    "from_source": lambda folder: Dataset.from_source(range(20), shuffle=True),
    "list_files": lambda folder: Dataset.list_files(files(folder)),
    "random": lambda folder: Dataset.random().take(20),
    "sample": lambda folder: Dataset.sample_from_datasets(
        [Dataset.range(20), Dataset.range(20, 40)]
    ),
    "random_map": lambda folder: Dataset.range(20).random_map(lambda x, rng: rng.integers(10**6)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", UNSEEDED)
def test_unseeded_draws_are_new_in_each_iteration(
    make_service: Callable[..., SimulatedService], tmp_path: Path, name: str, mode: str
) -> None:
    """Operations without a seed draw anew for each iteration of a job, and for each
    job.
    """
    service = make_service(workers=1)
    dataset = UNSEEDED[name](tmp_path)
    one, other = service.read(dataset, mode), service.read(dataset, mode)
    assert len({tuple(texts(reading)) for reading in (one, one, other)}) == 3


SEEDED: dict[str, Callable[[Path, int], Dataset]] = {
    "shuffle": lambda folder, seed: Dataset.range(20).shuffle(20, seed=seed),
    "from_source": lambda folder, seed: Dataset.from_source(range(20), shuffle=True, seed=seed),
    "list_files": lambda folder, seed: Dataset.list_files(files(folder), seed=seed),
    "random": lambda folder, seed: Dataset.random(seed=seed, rerandomize_each_iteration=True).take(
        20
    ),
    "sample": lambda folder, seed: Dataset.sample_from_datasets(
        [Dataset.range(20), Dataset.range(20, 40)], seed=seed, rerandomize_each_iteration=True
    ),
    "random_map": lambda folder, seed: Dataset.range(20).random_map(
        lambda x, rng: rng.integers(10**6), seed=seed
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SEEDED)
def test_seeded_draws_follow_from_seed_and_repetition(
    make_service: Callable[..., SimulatedService], tmp_path: Path, name: str, mode: str
) -> None:
    """The n-th reading with the user's seed is the same in every job, and equal to a
    local reading; a shuffle of a whole source, which all workers share, has its own
    order.
    """
    service = make_service(workers=1)
    dataset = SEEDED[name](tmp_path, 3)
    one, other, local = (
        service.read(dataset, mode),
        service.read(dataset, mode),
        SEEDED[name](tmp_path, 3),
    )
    first, second = texts(one), texts(one)
    assert first != second
    assert [texts(other), texts(other)] == [first, second]
    is_global = (name, mode) == ("shuffle", "distributed_epoch")
    assert ([texts(local), texts(local)] == [first, second]) != is_global


def test_tasks_share_one_permutation(make_service: Callable[..., SimulatedService]) -> None:
    """A source in a random order that several workers share gives each element once, in
    every repetition.
    """
    service = make_service(workers=3)
    dataset = service.read(Dataset.from_source(range(2000), shuffle=True).repeat(2))
    for _ in range(2):
        assert sorted(map(int, dataset)) == sorted([*range(2000)] * 2)


def test_copies_draw_for_themselves(make_service: Callable[..., SimulatedService]) -> None:
    """Each worker's copy has an order of its own in mode OFF."""
    service = make_service(workers=2)
    orders = set()
    ds = Dataset.from_source(range(20), shuffle=True).batch(20)
    for batch in service.read(ds, "parallel_epochs"):
        orders.add(tuple(batch.tolist()))
        assert sorted(batch.tolist()) == list(range(20))
    assert len(orders) == 2


def test_tasks_shuffle_for_themselves(make_service: Callable[..., SimulatedService]) -> None:
    """The shuffle buffers of two tasks draw different positions."""
    service = make_service(workers=2)
    ds = Dataset.counter().map(lambda x: int(x)).take(20).shuffle(20).batch(20)
    orders = {tuple(batch.tolist()) for batch in service.read(ds)}
    assert len(orders) == 2


def test_random_numbers_are_drawn_once(make_service: Callable[..., SimulatedService]) -> None:
    """random() assigns two workers positions of a single stream of numbers, none of
    them twice.
    """
    service = make_service(workers=2)
    found = texts(service.read(Dataset.random(seed=1).take(500)))
    assert len(set(found)) == len(found) == 1000
    stream = Dataset.random(seed=1).take(100_000)
    assert set(found) <= set(texts(stream))


@pytest.mark.parametrize("name", ["shuffle", "from_source"])
def test_a_new_host_draws_the_same(
    make_service: Callable[..., SimulatedService], name: str
) -> None:
    """A task that continues elsewhere makes the same elements again: nothing is lost,
    and nothing comes twice.
    """
    service = make_service(workers=1)
    sources = {
        "shuffle": Dataset.range(50_000).shuffle(1000),
        "from_source": Dataset.from_source(range(50_000), shuffle=True),
    }
    it = iter(service.read(sources[name].map(lambda x: x), data_transfer_protocol="tcp"))
    found = [int(next(it)) for _ in range(100)]
    service.add_worker()
    service.workers[0].stop()
    assert len(moved_tasks(service)) == 1
    found += map(int, it)
    assert sorted(found) == list(range(50_000))
