"""Loaders of two ranks, which a test plays one after the other in its own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from typing import Any
from uuid import uuid4

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import distributed
from torch.utils.data import DataLoader, Sampler

import zmqdata
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
        monkeypatch.setenv("ZMQDATA_RUN_ID", uuid4().hex)

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
        first(rank_0.start)
        with pytest.raises(FailedPreconditionError, match=r"rank 0 has .*, and consumer 1 has"):
            second(rank_1.start)


class EachSecond(Sampler[int]):
    """The part of a rank, drawn by a rule of its own.

    Args:
        rank: the rank.
        **named: what else it holds.
    """

    def __init__(self, rank: int, **named: Any) -> None:
        self.rank = rank
        self.__dict__.update(named)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.rank, COUNT, 2))

    def __len__(self) -> int:
        return COUNT // 2


def sharding(cluster: str, rank: int, **named: Any) -> Loader:
    numbers: Any = torch.arange(COUNT)
    loader = DataLoader(numbers, BATCH, sampler=EachSecond(rank, **named))
    return distribute_dataloader(loader, cluster)


def test_a_sampler_that_shards_by_rank_is_not_dealt_again(
    cluster: str, pair: Callable[[], list[Rank]]
) -> None:
    """A sampler that names its rank and their number, as torch's and that of
    accelerate do, is read whole. Any other that yields other indices on each rank is
    refused.
    """
    for named in ({"num_replicas": 2}, {"process_index": 0, "num_processes": 2}):
        found = [
            rank(whole, rank(partial(sharding, **named), cluster, number))
            for number, rank in enumerate(pair())
        ]
        assert sorted(row for one in found for batch in one for row in batch) == [*range(COUNT)]

    def plain(number: int) -> Loader:
        return sharding(cluster, number)

    first, second = pair()
    loaders = [first(plain, 0), second(plain, 1)]
    first(loaders[0].start)
    with pytest.raises(FailedPreconditionError, match=r"other indices for consumer 1.*shards by"):
        second(loaders[1].start)


def test_an_index_alone_does_not_say_who_shares_the_batches(
    cluster: str, pair: Callable[[], list[Rank]]
) -> None:
    """``consumer_index`` without ``num_consumers`` is refused where there are ranks."""
    for rank in pair():
        with pytest.raises(InvalidArgumentError, match=r"how many consumers.*there are 2 ranks"):
            rank(partial(Loader, Dataset.range(4), consumer_index=0))


@pytest.mark.parametrize("kind", ["dealt", "dataset"])
def test_ranks_that_are_one_consumer_have_the_same_batches(
    cluster: str, pair: Callable[[], list[Rank]], kind: str
) -> None:
    """Two ranks of one group have equal batches, all of them, in two shuffled passes,
    whatever their own generators would draw.
    """
    numbers: Any = torch.arange(COUNT)
    one = {"consumer_index": 0, "num_consumers": 1}
    read = zmqdata.distribute("distributed_epoch", cluster, deterministic=True, num_tasks=2)

    def made() -> Loader:
        if kind == "dealt":
            return distribute_dataloader(DataLoader(numbers, BATCH, shuffle=True), cluster, **one)
        return Loader(Dataset.range(COUNT).shuffle(COUNT, seed=3).batch(BATCH).apply(read), **one)

    both = pair()
    loaders = [rank(made) for rank in both]
    for _ in range(2):
        found = [rank(whole, loader) for rank, loader in zip(both, loaders, strict=True)]
        assert found[0] == found[1]
        assert sorted(row for batch in found[0] for row in batch) == [*range(COUNT)]


def test_ranks_of_one_consumer_need_a_promised_order(
    cluster: str, pair: Callable[[], list[Rank]]
) -> None:
    """Ranks of one group refuse a dataset whose order is not promised."""
    read = zmqdata.distribute("distributed_epoch", cluster)
    dataset = Dataset.range(COUNT).batch(BATCH).apply(read)
    for rank in pair():
        with pytest.raises(InvalidArgumentError, match="deterministic=True"):
            rank(partial(Loader, dataset, consumer_index=0, num_consumers=1))


def test_a_number_of_batches_belongs_to_the_number_of_ranks(
    cluster: str, pair: Callable[[], list[Rank]]
) -> None:
    """A state of a loader with ``batches`` is refused by another number of ranks."""
    numbers: Any = torch.arange(COUNT)

    def made(batches: int) -> Loader:
        return distribute_dataloader(DataLoader(numbers, BATCH), cluster, batches=batches)

    alone = made(6)
    next(iter(alone))
    state = alone.state_dict()
    for rank in pair():
        with pytest.raises(FailedPreconditionError, match="of 1 consumers that shared"):
            rank(made, 3).load_state_dict(state)


def test_padding_of_a_dataset_is_not_known(cluster: str, pair: Callable[[], list[Rank]]) -> None:
    """A loader over a dataset that is padded says that it knows no mask."""
    read = zmqdata.distribute("distributed_epoch", cluster)
    dataset = Dataset.range(6).batch(2).apply(read)
    for rank in pair():
        loader = rank(partial(Loader, dataset, finite="pad"))
        rank(loader.start)
        rank(iter, loader)
        with pytest.raises(FailedPreconditionError, match="is not known with `finite='pad'`"):
            rank(lambda: loader.is_padding)  # noqa: B023 - called at once
        loader.close()


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


def test_variables_that_are_left_over_are_named(
    cluster: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A single process with the variables of another program is told their names, at
    once or, if they name a launcher, within ten seconds.
    """
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = distribute_dataloader(DataLoader(range(4)), cluster)  # type: ignore[arg-type]
    with pytest.raises(FailedPreconditionError, match=r"`RANK=0` and `WORLD_SIZE=2`.* unset them"):
        next(iter(loader))
    with pytest.raises(InvalidArgumentError, match=r"read all of it.*`WORLD_SIZE=2`.* unset them"):
        Loader(Dataset.range(4))
    patience: list[float] = []

    def refuse(*_: Any, timeout: Any, **__: Any) -> None:
        patience.append(timeout.total_seconds())
        raise RuntimeError("refused")

    monkeypatch.setattr(distributed, "TCPStore", refuse)
    for name, value in (("ADDR", "localhost"), ("PORT", "29500")):
        monkeypatch.setenv(f"MASTER_{name}", value)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with pytest.raises(FailedPreconditionError, match=r"no launcher answers.*`WORLD_SIZE=2`"):
        ranks._store()
    assert caplog.text.count("`WORLD_SIZE=2`") == 2
    assert patience[0] < 10 < patience[1]


def test_the_count_of_ranks_alone_makes_no_rank(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without a number among the ranks reads alone."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = distribute_dataloader(DataLoader([1, 2, 3]), cluster)  # type: ignore[arg-type]
    assert [int(x) for x in loader] == [1, 2, 3]
