"""The order of a pass is drawn as torch draws it, and can be drawn again."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from tests.pytorch.comparing import drawn, seed
from tests.pytorch.loaders import SAMPLED, Drawing, Made, Stream, seeded
from zmqdata.errors import InvalidArgumentError
from zmqdata.torch import orders
from zmqdata.torch.orders import (
    BatchIndices,
    Draw,
    Generators,
    draw,
    generators,
    restore,
    restore_global,
    samplers,
)


def whole(loader: DataLoader, batches: int | None = None) -> Draw:
    """Return the draws of a pass that a loop reads to its end."""
    found = draw(loader, batches)
    if found.rest is not None:
        next(found.rest, None)
    return found


def order(loader: DataLoader, batches: int | None = None) -> list[Any]:
    found = whole(loader, batches).order
    assert found is not None
    return list(found)


# ------------------------------------------------------------------------ indices


@pytest.mark.parametrize(
    "batches",
    [
        [],
        [[]],
        [[], [1], []],
        [[3, 1], [2]],
        [3, 1, 2],
        [[-1, 2**63 - 1], [-(2**63)]],
        [[2**63], [0]],
        [2**80, 1],
        [True, False],
        [[True], [0]],
        [[np.int64(3)], [1]],
        [np.int64(3), 1],
        ["a", "bc"],
        [["a"], ["bc", "d"]],
        [(1, 2), (3, 4)],
        [[(1, 2)], [(3, 4)]],
        [slice(0, 2), slice(2, 4)],
        [[1, 2], 3],
        [range(3), [1]],
        [None],
    ],
    ids=str,
)
def test_indices_stay_what_they_are(batches: list[Any]) -> None:
    """Indices of any kind are handed out as the sampler has yielded them, with their
    types.
    """
    indices = BatchIndices(batches)
    assert len(indices) == len(batches)
    found = [indices[number] for number in range(len(indices))]
    assert found == batches
    assert [*map(type, found)] == [*map(type, batches)]
    nested = [(one, other) for one, other in zip(found, batches, strict=True) if type(one) is list]
    for one, other in nested:
        assert [*map(type, one)] == [*map(type, other)]


def test_whole_numbers_are_compact() -> None:
    """A million indices of torch's samplers take eight bytes each."""
    indices = BatchIndices([[*range(first, first + 100)] for first in range(0, 100_000, 100)])
    assert vars(indices)["_numbers"].nbytes == 800_000
    assert vars(indices)["_others"] is None


# ------------------------------------------------------------------------ draws


@pytest.mark.parametrize("name", SAMPLED)
def test_order_and_draws_are_those_of_torch(name: str) -> None:
    """The indices of a pass are those that the DataLoader would fetch, and all
    generators are left as it leaves them.
    """
    seed(1)
    loader = SAMPLED[name](0)
    wanted = []
    for _ in range(2):
        iterator = iter(loader)
        wanted.append(["x" if batch is None else batch for batch in copied(iterator._sampler_iter)])
    left = drawn()
    seed(1)
    loader = SAMPLED[name](0)
    assert [order(loader), order(loader)] == wanted
    assert drawn() == left


def copied(batches: Iterator[Any]) -> list[Any]:
    return [batch.copy() if type(batch) is list else batch for batch in batches]


def test_the_seed_of_the_workers_is_that_of_torch() -> None:
    """The seed of a pass is the base seed that torch would give to its workers, with a
    generator and without, for both styles of dataset.
    """
    streamed = lambda _: DataLoader(Stream(0, 3))  # noqa: E731 - a loader like the others
    for make in (SAMPLED["shuffled"], SAMPLED["shuffled_by_generator"], streamed):
        seed(3)
        loader, wanted = make(0), []
        for _ in range(2):
            iterator = iter(loader)
            wanted.append(iterator._base_seed)
            assert [*iterator]
        seed(3)
        loader = make(0)
        assert [whole(loader).seed for _ in range(2)] == wanted
    assert draw(streamed(0), None).order is None


def test_a_pass_of_fewer_batches_draws_no_more() -> None:
    """The sampler is asked for no more than the ``batches=n`` of a pass, and a shorter
    one ends.
    """
    asked = []

    class Counting(Sampler):
        def __iter__(self) -> Iterator[int]:
            for index in range(100):
                asked.append(index)
                yield index

    loader = DataLoader(Made(100), 3, sampler=Counting())
    assert order(loader, 2) == [[0, 1, 2], [3, 4, 5]]
    assert asked == [*range(6)]
    assert len(order(loader, 50)) == 34
    assert order(loader, 0) == []


class Restarting(Sampler):
    """Begins anew in ``__iter__``, and returns itself."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.at = 0

    def __iter__(self) -> Restarting:
        self.at = 0
        return self

    def __next__(self) -> list[int]:
        self.at += 1
        if self.at > self.count:
            raise StopIteration
        return [self.at - 1]


@pytest.mark.parametrize("batches", [None, 5])
def test_a_sampler_may_be_its_own_iterator(batches: int | None) -> None:
    """A sampler whose ``__iter__`` begins anew and returns the sampler is asked once
    for an iterator.
    """
    loader = DataLoader(Made(9), batch_sampler=Restarting(5))
    assert order(loader, batches) == order(loader, batches) == [[0], [1], [2], [3], [4]]


class Endless(Sampler):
    def __init__(self, *batch: int) -> None:
        self.batch = batch

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield [*self.batch]


@pytest.mark.parametrize("batch", [(), (1,), (1, 2, 3)], ids=str)
def test_a_sampler_without_an_end_is_refused(
    monkeypatch: pytest.MonkeyPatch, batch: tuple[int, ...]
) -> None:
    """A sampler that yields more than fits into memory is an error that names
    ``batches=``, with which the same sampler works.
    """
    monkeypatch.setattr(orders, "MOST_INDICES", 1000)
    loader = DataLoader(Made(9), batch_sampler=Endless(*batch))
    with pytest.raises(InvalidArgumentError, match=r"`Endless` yielded more .*Pass `batches="):
        draw(loader, None)
    assert order(loader, 3) == [[*batch]] * 3
    endless = DataLoader(Made(9), batch_size=None, sampler=Endless(*batch))
    with pytest.raises(InvalidArgumentError, match="a sampler has to end"):
        draw(endless, None)


# ------------------------------------------------------------------------ generators


class Holding(Sampler):
    def __init__(self, *generators: Any) -> None:
        self.first, self.others = (*generators, None)[:2]
        self.third = generators[2] if len(generators) > 2 else None

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def torch_draws(generator: Any) -> list[float]:
    return torch.randn(3, generator=generator).tolist()


def numpy_draws(generator: Any) -> list[float]:
    integers = getattr(generator, "integers", None) or generator.randint
    return [*generator.normal(size=3), *integers(0, 99, 5)]


def python_draws(generator: Any) -> list[float]:
    return [generator.random(), generator.gauss(0, 1), generator.getrandbits(70)]


GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], list[float]]]] = {
    "torch": (lambda: seeded(3), torch_draws),
    "numpy": (lambda: np.random.default_rng(3), numpy_draws),
    "numpy twister": (lambda: np.random.Generator(np.random.MT19937(3)), numpy_draws),
    "numpy philox": (lambda: np.random.Generator(np.random.Philox(3)), numpy_draws),
    "numpy sfc": (lambda: np.random.Generator(np.random.SFC64(3)), numpy_draws),
    "legacy numpy": (lambda: np.random.RandomState(3), numpy_draws),
    "legacy numpy on pcg": (lambda: np.random.RandomState(np.random.PCG64(3)), numpy_draws),
    "random": (lambda: random.Random(3), python_draws),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_of_samplers_are_kept(name: str) -> None:
    """A generator that a sampler holds draws the same again after its state has been
    stored as bytes and restored, also in another loader.
    """
    make, draws = GENERATORS[name]
    one, other = make(), make()
    draws(one)
    loader = DataLoader(Made(3), sampler=Holding(one))
    stored = msgspec.msgpack.encode(generators(loader))
    wanted = draws(one)
    again = DataLoader(Made(3), sampler=Holding(other))
    for generator, holder in ((one, loader), (other, again)):
        restore(holder, msgspec.msgpack.decode(stored, type=Generators))
        assert draws(generator) == wanted


def test_global_generators_are_kept() -> None:
    """The generators behind the functions of torch, numpy and ``random`` draw the same
    after they are restored.
    """
    loader = DataLoader(Made(3))
    seed(5)
    random.gauss(0, 1)  # keeps a second number for later
    np.random.normal()
    stored = msgspec.msgpack.encode(generators(loader))
    wanted = [torch_draws(None), numpy_draws(np.random), random.gauss(0, 1), random.random()]
    seed(6)
    restore_global(msgspec.msgpack.decode(stored, type=Generators))
    found = [torch_draws(None), numpy_draws(np.random), random.gauss(0, 1), random.random()]
    assert found == wanted


def test_another_sampler_is_refused() -> None:
    """The state of a loader with other generators or epochs is an error, and changes no
    generator.
    """
    state = generators(DataLoader(Made(3), sampler=Holding(seeded(1))))
    others = [
        DataLoader(Made(3)),
        DataLoader(Made(3), sampler=Holding(seeded(1), seeded(2))),
        DataLoader(Made(3), sampler=Holding(random.Random(1))),
        DataLoader(Made(3), sampler=Holding(np.random.default_rng(1))),
        DataLoader(Made(3), sampler=DistributedSampler(Made(3), 1, 0)),
    ]
    for other in others:
        left = drawn()
        with pytest.raises(InvalidArgumentError, match="with another sampler or generator"):
            restore(other, state)
        assert drawn() == left


def test_a_generator_without_a_state_is_refused() -> None:
    """A sampler that draws from the system cannot be resumed, and the error says
    so.
    """
    loader = DataLoader(Made(3), sampler=Holding(random.SystemRandom()))
    with pytest.raises(InvalidArgumentError, match=r"Give it a `random.Random` with a seed"):
        generators(loader)


def test_epochs_of_samplers_are_kept() -> None:
    """The epoch of a DistributedSampler belongs to the state."""
    sampler = DistributedSampler(Made(20), 2, 0)
    loader = DataLoader(Made(20), 2, sampler=sampler)
    sampler.set_epoch(3)
    state = generators(loader)
    wanted = order(loader)
    sampler.set_epoch(0)
    assert order(loader) != wanted
    restore(loader, state)
    assert order(loader) == wanted


class Wrapping:
    """A batch sampler that is no Sampler, as some libraries have them."""

    def __init__(self, sampler: Any) -> None:
        self.batch_sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batch_sampler)


def test_samplers_within_samplers_are_found() -> None:
    """Samplers that other samplers wrap are found once each, whether they derive from
    torch's class or not, and so are their generators.
    """
    inner = RandomSampler(range(9), generator=seeded(1))
    batches = BatchSampler(inner, 2, False)
    own = Drawing(9, np.random.default_rng(1))
    plain = Wrapping(Wrapping(Holding(seeded(2))))
    for loader, wanted in (
        (DataLoader(Made(9), batch_sampler=batches), [batches, inner]),
        (DataLoader(Made(9), batch_sampler=Wrapping(batches)), [batches, inner]),
        (DataLoader(Made(9), 2, sampler=own), [own]),
        (DataLoader(Made(9), batch_sampler=plain), [plain, plain.batch_sampler.batch_sampler]),
    ):
        found = samplers(loader)
        assert all(any(one is other for other in found) for one in wanted)
        assert len({*map(id, found)}) == len(found)
        assert generators(loader).own


def test_one_generator_for_all_is_kept_once() -> None:
    """A generator that the loader and its sampler share is stored once."""
    both = seeded(1)
    sampler = SubsetRandomSampler([1, 2], generator=both)
    loader = DataLoader(Made(3), sampler=sampler, generator=both)
    assert len(generators(loader).own) == 1
    assert not generators(DataLoader(Made(3), sampler=SequentialSampler(range(3)))).own


# ------------------------------------------------------------- workers that live on


def persistent() -> DataLoader:
    return DataLoader(Made(9), 2, shuffle=True, num_workers=1, persistent_workers=True)


def test_workers_that_live_on_get_one_seed() -> None:
    """Orders and draws are those of torch with ``persistent_workers``, for which torch
    draws a seed in the first pass only. Each pass has a seed of its own.
    """
    seed(1)
    loader = persistent()
    loader.multiprocessing_context = "fork"
    wanted = [torch.cat(list(loader)).tolist() for _ in range(3)]
    left = drawn()
    seed(1)
    loader = persistent()
    passes = [draw(loader, None) for _ in range(3)]
    assert [[float(i) for batch in one.order for i in batch] for one in passes] == wanted
    assert drawn() == left
    assert len({one.seed for one in passes}) == 3


def test_the_first_pass_is_known_after_a_resume() -> None:
    """A state knows whether the seed of persistent workers has been drawn."""
    seed(1)
    loader = persistent()
    first = generators(loader)
    draw(loader, None)
    second = generators(loader)
    wanted = draw(loader, None)
    for make, state, passes in ((persistent, second, 1), (persistent, first, 2)):
        again = make()
        restore(again, state)
        found = [draw(again, None) for _ in range(passes)][-1]
        assert found.seed == wanted.seed
        assert list(found.order) == list(wanted.order)
    restore(loader, first)
    draw(loader, None)
    assert draw(loader, None).seed == wanted.seed


def test_loaders_are_not_kept_alive() -> None:
    """Nothing is remembered of a loader that is gone."""
    gc.collect()
    before = len(orders._begun)
    loader = persistent()
    draw(loader, None)
    assert len(orders._begun) == before + 1
    del loader
    gc.collect()
    assert len(orders._begun) == before
