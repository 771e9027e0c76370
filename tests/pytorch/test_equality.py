"""``distribute_dataloader`` gives the batches of the DataLoader that it was given, in
its order and with its types, and again after a resume in the middle.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
    default_convert,
)

from tests.counts import how_many
from tests.pytorch.comparing import assert_same, drawn, seed, stored
from tests.pytorch.loaders import (
    LOADERS,
    MAPS,
    SAMPLED,
    STREAMS,
    Drawing,
    Eager,
    Made,
    Make,
    Stream,
    nest,
    noise,
    ragged,
    seeded,
    whole,
    words,
)
from zmqdata.torch import distribute_dataloader

pytestmark = pytest.mark.realprocess

SEVERAL = [pytest.param(1, marks=pytest.mark.full), 3]
"""Numbers of virtual workers."""


def loop(batches: Any) -> list[Any]:
    """Return each batch with the numbers that a training program draws for it, which
    are wrong if a loader draws more than torch's.
    """
    return [(batch, torch.rand(()).item(), np.random.rand(), random.random()) for batch in batches]


def reference(make: Make, workers: int = 0, passes: int = 2) -> tuple[list[Any], Any]:
    """Return what some passes over a DataLoader give, and the generators after them."""
    seed(1)
    loader = make(workers)
    if workers:
        loader.multiprocessing_context = "fork"
    return [loop(loader) for _ in range(passes)], drawn()


def assert_equal(make: Make, workers: int, cluster: str, wanted: list[Any], place: int) -> None:
    """Compare the passes over a distributed loader with those that are wanted. A state
    is taken in the first pass. A loader that is made anew continues after it, and then
    stands where the first loader stood after that pass.
    """
    seed(1)
    loader = distribute_dataloader(make(workers), cluster)
    iterator = iter(loader)
    first = loop(next(iterator) for _ in range(place))
    middle = stored(loader.state_dict())
    first += loop(iterator)
    end = loader.state_dict()
    assert_same([first, *(loop(loader) for _ in wanted[1:])], wanted)
    left = drawn()
    seed(2)
    resumed = distribute_dataloader(make(workers), cluster)
    resumed.load_state_dict(middle)
    assert_same(loop(resumed), wanted[0][place:])
    assert resumed.state_dict() == end
    seed(3)
    resumed.load_state_dict(end)
    assert_same([loop(resumed) for _ in wanted[1:]], wanted[1:])
    assert len(wanted) == 1 or drawn() == left


@pytest.mark.parametrize("name", SAMPLED)
def test_map_style_loaders_with_any_sampler(cluster: str, name: str) -> None:
    """Two passes give equal batches, and a resume in the middle of the first one gives
    the rest. The generators of the program are left as a DataLoader leaves them.
    """
    wanted, left = reference(SAMPLED[name])
    assert_equal(SAMPLED[name], 0, cluster, wanted, len(wanted[0]) // 2)
    assert drawn() == left


@pytest.mark.parametrize("name", MAPS)
def test_map_style_loaders_of_any_items(cluster: str, name: str) -> None:
    """Any dataset, item and collate function gives equal batches, also after a
    resume.
    """
    wanted, _ = reference(MAPS[name], passes=1)
    assert_equal(MAPS[name], 0, cluster, wanted, len(wanted[0]) // 2)


@pytest.mark.parametrize("workers", SEVERAL)
@pytest.mark.parametrize("name", ["texts", "buckets"])
def test_map_style_loaders_with_workers(cluster: str, name: str, workers: int) -> None:
    """The number of workers of the loader does not change the batches, as in torch."""
    make = LOADERS[name]
    wanted, _ = reference(make, passes=1)
    assert_equal(make, workers, cluster, wanted, 1)


@pytest.mark.parametrize("workers", [0, *SEVERAL])
@pytest.mark.parametrize("name", STREAMS)
def test_iterable_style_loaders(cluster: str, name: str, workers: int) -> None:
    """The batches of all virtual workers come in the order in which torch hands out
    those of its processes, also if workers end at different times.
    """
    wanted, _ = reference(STREAMS[name], workers, passes=1)
    assert_equal(STREAMS[name], workers, cluster, wanted, len(wanted[0]) // 2)


@pytest.mark.parametrize("place", ["start", "end", "between"])
@pytest.mark.parametrize("name", ["stream", "drawn_by_own_numpy"])
def test_resumes_at_the_ends_of_a_pass(cluster: str, name: str, place: str) -> None:
    """A state that is taken before the first batch, behind the last one, or between two
    passes resumes exactly.
    """
    make = LOADERS[name]
    wanted, _ = reference(make)
    if place != "between":
        assert_equal(make, 0, cluster, wanted, 0 if place == "start" else len(wanted[0]))
        return
    seed(1)
    loader = distribute_dataloader(make(0), cluster)
    for number in range(3):
        state = stored(loader.state_dict())
        seed(2)
        loader = distribute_dataloader(make(0), cluster)
        loader.load_state_dict(state)
        if number < 2:
            assert_same(loop(loader), wanted[number])


# ------------------------------------------------------------------------ at random


def batches_of(draw: Any, sampler: Any, count: int) -> dict[str, Any]:
    """Return arguments of a DataLoader that use a sampler in one of torch's ways."""
    size = draw(st.integers(1, 7))
    drop_last = draw(st.booleans())
    way = draw(st.sampled_from(["items", "batches", "none"]))
    if way == "items":
        return {"batch_size": size, "sampler": sampler, "drop_last": drop_last}
    if way == "none":
        return {"batch_size": None, "sampler": sampler}
    return {"batch_sampler": BatchSampler(sampler, size, drop_last)}


def sampler_of(draw: Any, count: int, number: int) -> Any:
    """Return a sampler over ``count`` items, with a generator or without."""
    generator = seeded(number) if draw(st.booleans()) else None
    samples = draw(st.integers(1, 2 * count + 1))
    kind = draw(st.integers(0, 8))
    if kind == 0:
        return SequentialSampler(range(count))
    if kind == 1:
        return RandomSampler(range(count), generator=generator)
    if kind == 2:
        return RandomSampler(range(count), True, samples, generator)
    if kind == 3:
        return RandomSampler(range(count), False, samples, generator)
    if kind == 4:
        return SubsetRandomSampler([*range(0, count, 2)], generator)
    if kind == 5:
        return WeightedRandomSampler([1.0 + i for i in range(count)], samples, True, generator)
    if kind == 6:
        return Drawing(count, draw(st.sampled_from(["numpy", "random"])))
    if kind == 7:
        return Drawing(count, np.random.default_rng(number))
    return Eager(count)


@st.composite
def any_loader(draw: Any) -> Make:
    """A function that makes equal loaders, of either style."""
    choices = draw(st.randoms(use_true_random=False))
    count = draw(st.integers(1, 25))
    item, collate = draw(
        st.sampled_from(
            [
                (float, None),
                (nest, None),
                (words, None),
                (noise, None),
                (ragged, whole),
                (nest, default_convert),
                (words, whole),
                (noise, default_collate),
            ]
        )
    )
    number = choices.randrange(2**31)
    is_stream = draw(st.integers(0, 3)) == 0
    size = draw(st.none() | st.integers(1, 7))
    is_shared, drop_last = draw(st.booleans()), draw(st.booleans())
    own = draw(st.booleans())
    if not is_stream:
        # Drawn once here, and again in the same way for each loader.
        replay: list[Any] = []

        def record(strategy: Any) -> Any:
            replay.append(draw(strategy))
            return replay[-1]

        batches_of(record, sampler_of(record, count, number), count)

    def make(workers: int) -> DataLoader:
        generator = seeded(number) if own else None
        if is_stream:
            items = Stream(0, count, is_shared)
            drop = {"drop_last": drop_last} if size is not None else {}
            return DataLoader(items, size, num_workers=workers, generator=generator, **drop)
        answers = iter(replay)
        again = lambda _: next(answers)  # noqa: E731 - the answers, in place of a strategy
        if size is None and collate is None:
            arguments = {"batch_size": None, "sampler": sampler_of(again, count, number)}
        else:
            arguments = batches_of(again, sampler_of(again, count, number), count)
        collating = {} if arguments.get("batch_size", 1) is None else {"collate_fn": collate}
        arguments |= {"num_workers": workers, "generator": generator} | collating
        return DataLoader(Made(count, item), **arguments)

    return make


@pytest.mark.timeout(how_many(120, 600))
@given(any_loader(), st.sampled_from([0, 1, 3]), st.randoms(use_true_random=False))
@settings(max_examples=how_many(5, 200))
def test_any_loader(cluster: str, make: Make, workers: int, place: Any) -> None:
    """Whatever the dataset, the sampler, the batches and the collate function: the
    batches are equal, and equal again after a resume at any place.
    """
    is_stream = isinstance(make(0).dataset, Stream)
    wanted, _ = reference(make, workers if is_stream else 0)
    assert_equal(make, workers, cluster, wanted, place.randint(0, len(wanted[0])))
