"""Loaders of two ranks, which a test plays one after the other in its own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import distributed
from torch.utils.data import DataLoader

from zmqdata import Dataset
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.torch import Loader, distribute_dataloader, ranks

pytestmark = pytest.mark.realprocess
COUNT, BATCH = 24, 2


class Rank:
    """A rank, with a generator of torch of its own.

    Args:
        number: its number.
        play: makes this process the rank of a number.
    """

    def __init__(self, number: int, play: Callable[[int], None]) -> None:
        self._number = number
        self._play = play
        self._drawn = torch.Generator().manual_seed(number).get_state()

    def __call__(self, act: Callable[..., Any], *of: Any) -> Any:
        """Act as this rank."""
        self._play(self._number)
        mine, self._drawn = self._drawn, torch.get_rng_state()
        torch.set_rng_state(mine)
        try:
            return act(*of)
        finally:
            mine, self._drawn = self._drawn, torch.get_rng_state()
            torch.set_rng_state(mine)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Rank]]:
    """Return two new ranks with a store of their own."""

    def begin() -> list[Rank]:
        store, made = distributed.HashStore(), [ranks.Counter[str]() for _ in range(2)]
        monkeypatch.setattr(ranks, "_store", lambda: store)

        def play(number: int) -> None:
            monkeypatch.setenv("RANK", str(number))
            monkeypatch.setenv("WORLD_SIZE", "2")
            monkeypatch.setattr(ranks, "_made", made[number])

        return [Rank(number, play) for number in range(2)]

    return begin


def shuffled(cluster: str) -> Loader:
    numbers: Any = torch.arange(COUNT)
    return distribute_dataloader(DataLoader(numbers, BATCH, shuffle=True), cluster)


def steps(iterator: Iterator[Any], count: int) -> list[list[int]]:
    """Return the next batches, at most so many. The model draws in each step."""
    found = []
    for batch in islice(iterator, count):
        torch.rand(3)
        found.append(batch.tolist())
    return found


def whole(loader: Loader) -> list[list[int]]:
    """Return the batches of a pass."""
    return steps(iter(loader), COUNT)


def test_a_loader_reads_as_the_rank_that_its_process_becomes(
    cluster: str, pair: Callable[[], list[Rank]]
) -> None:
    """A loader that was made, and has begun to read, before the process was a rank is
    dealt its part of the batches.
    """
    loaders = [shuffled(cluster), shuffled(cluster)]
    loaders[0].start()
    found = [rank(whole, one) for rank, one in zip(pair(), loaders, strict=True)]
    assert [len(one) for one in found] == [COUNT // BATCH // 2] * 2
    assert sorted(row for one in found for batch in one for row in batch) == [*range(COUNT)]
    assert [len(one) for one in loaders] == [COUNT // BATCH // 2] * 2


def test_a_process_that_becomes_a_rank_does_not_read_a_whole_local_dataset(
    pair: Callable[[], list[Rank]],
) -> None:
    """A local dataset is refused as soon as the process is one of two ranks."""
    loader, alone = Loader(Dataset.range(4)), Loader(Dataset.range(4), num_consumers=1)
    for rank in pair():
        with pytest.raises(InvalidArgumentError, match="each of them would read all of it"):
            rank(iter, loader)
        assert len(rank(list, alone)) == 4


def test_ranks_that_disagree_are_told_before_the_first_batch(
    cluster: str, pair: Callable[[], list[Rank]]
) -> None:
    """A rank whose loader has another rule for the end, or another number of batches,
    gets an error that names both, and no batch.
    """
    numbers: Any = torch.arange(COUNT)

    def made(**other: Any) -> Loader:
        return distribute_dataloader(DataLoader(numbers, BATCH), cluster, **other)

    for finite, batches in (("pad", None), ("drop", 3)):
        first, second = pair()
        rank_0, rank_1 = first(made), second(partial(made, finite=finite, batches=batches))
        first(iter, rank_0)
        with pytest.raises(FailedPreconditionError, match=r"rank 0 has .*, and consumer 1 has"):
            second(iter, rank_1)


@pytest.mark.parametrize("read", [0, 3, 6, 7], ids=["first", "middle", "last", "end"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_state_that_is_put_together_from_two_ranks_resumes_both(
    cluster: str, pair: Callable[[], list[Rank]], read: int, first: int
) -> None:
    """torch.distributed.checkpoint saves each key from any rank that has it. Whichever
    these are, both ranks go on with the batches of a run that was left alone, over
    two passes.
    """
    left_alone = pair()
    loaders = [rank(shuffled, cluster) for rank in left_alone]
    iterators = [rank(iter, one) for rank, one in zip(left_alone, loaders, strict=True)]
    for rank, iterator in zip(left_alone, iterators, strict=True):
        rank(steps, iterator, read)
    states = [rank(one.state_dict) for rank, one in zip(left_alone, loaders, strict=True)]
    rest = [rank(steps, one, COUNT) for rank, one in zip(left_alone, iterators, strict=True)]
    later = [rank(whole, one) for rank, one in zip(left_alone, loaders, strict=True)]

    chosen = cycle([first, 1 - first])
    saved = {name: states[next(chosen)][name] for name in states[0] if name != "ranks"}
    again = pair()
    loaders = [rank(shuffled, cluster) for rank in again]
    for rank, one, state in zip(again, loaders, states, strict=True):
        rank(one.load_state_dict, {**saved, "ranks": state["ranks"]})
    if read <= COUNT // BATCH // 2:
        assert [rank(whole, one) for rank, one in zip(again, loaders, strict=True)] == rest
    assert [rank(whole, one) for rank, one in zip(again, loaders, strict=True)] == later
