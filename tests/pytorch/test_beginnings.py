"""A pass begins with its first batch, and an iterator costs what it costs in torch."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import DataLoader

from tests.full import full
from tests.pytorch.comparing import drawn, seed, stored
from tests.pytorch.loaders import Stream, seeded
from zmqdata import Dataset
from zmqdata.torch import Loader, distribute_dataloader

pytestmark = pytest.mark.realprocess


def shuffled(count: int, workers: int, own: bool) -> Any:
    """Return a shuffled DataLoader, with a generator of its own or without."""
    return DataLoader(
        range(count),  # type: ignore[arg-type]
        batch_size=2,
        shuffle=True,
        num_workers=workers,
        generator=seeded(5) if own else None,
    )


def rows(batches: Any) -> Any:
    return [batch.tolist() for batch in batches]


def played(loader: Any) -> list[Any]:
    """Return what a program reads that drops iterators, breaks out of loops and draws
    between an iterator and its first batch, and what it could draw after each step.
    """
    seed(1)
    found: list[Any] = []

    def note(batches: Any) -> None:
        found.append([*batches])
        states = [drawn(), None if loader.generator is None else loader.generator.get_state()]
        found.append([*map(str, states)])

    iter(loader)
    note([])
    note(rows(loader))
    for _ in range(2):
        iter(loader)
    note(rows(loader))
    for count in (1, 2, 3, 4):
        note(rows(islice(loader, count)))
    held = iter(loader)
    torch.rand(3)
    note(rows(held))
    note([one.tolist(), other.tolist()] for one, other in zip(loader, loader, strict=True))
    note(rows(loader))
    return found


@pytest.mark.parametrize("own", [True, False], ids=["own", "global"])
@pytest.mark.parametrize(
    ("count", "workers"),
    [
        *[(count, 0) for count in (1, 4, 7, 8)],
        *[(count, 1) for count in (4, 7)],
        (7, 3),
        *[full(*case) for case in ((1, 1), (8, 1), (1, 3), (4, 3), (8, 3))],
    ],
)
def test_an_iterator_costs_what_it_costs_in_torch(
    cluster: str, count: int, workers: int, own: bool
) -> None:
    """Batches and generators are torch's after each step of a program that drops
    iterators and breaks out of loops: without processes an iterator draws the seed, and
    otherwise the order, too.
    """
    plain = shuffled(count, workers, own)
    plain.multiprocessing_context = "fork" if workers else None
    wanted = played(plain)
    assert played(distribute_dataloader(shuffled(count, workers, own), cluster)) == wanted


def test_an_iterator_alone_begins_nothing() -> None:
    """An iterator makes no batch, and counts no pass, before its first batch is asked
    for. Dropped iterators of a seeded dataset shift no order.
    """
    made: list[int] = []
    numbers = Dataset.range(6).shuffle(6, seed=3).map(lambda one: made.append(one) or one)
    loader, plain = Loader(numbers), Dataset.range(6).shuffle(6, seed=3)
    for number in range(2):
        iter(loader)
        held = iter(loader)
        assert made == []
        assert loader.state_dict()["epoch"] == number
        assert rows(held) == [*plain]
        made.clear()


def test_a_state_is_of_the_newest_iterator_that_is_held() -> None:
    """A state is that of the newest iterator that the program holds. If it drops that
    one before its first batch, the state is of an older pass that has begun since.
    """
    loader = Loader(Dataset.range(6).batch(2))
    older, newer = iter(loader), iter(loader)
    next(older)
    assert [loader.state_dict()[name] for name in ("epoch", "batches")] == [1, 0]
    del newer
    assert [loader.state_dict()[name] for name in ("epoch", "batches")] == [0, 1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["own", "global", "stream"])
def test_a_state_behind_an_iterator_resumes_exactly(cluster: str, kind: str, workers: int) -> None:
    """A state that is taken between an iterator and its first batch resumes with the
    batches, and leaves generators, as in a program that was left alone. The program
    draws before the state and behind it.
    """

    def made() -> Loader:
        if kind == "stream":
            return distribute_dataloader(DataLoader(Stream(0, 9), 2, num_workers=workers), cluster)
        return distribute_dataloader(shuffled(7, workers, kind == "own"), cluster)

    def rest(loader: Loader, iterator: Any) -> Any:
        torch.rand(2)
        return rows(iterator), drawn(), rows(loader), drawn()

    seed(1)
    loader = made()
    next(iter(loader))
    held = iter(loader)
    torch.rand(3)
    state = stored(loader.state_dict())
    wanted = rest(loader, held)
    again = made()
    seed(2)
    again.load_state_dict(state)
    for _ in range(2):
        iter(again)  # dropped, so the next one continues from the state, too
    assert again.state_dict() == state
    assert rest(again, iter(again)) == wanted


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("count", [7, 8])
def test_a_state_of_each_place_ends_with_the_draws_of_torch(
    cluster: str, count: int, workers: int
) -> None:
    """A pass that is continued leaves the loader's generator as one that was left
    alone, wherever the state is from: torch draws once more near the end.
    """
    loader = distribute_dataloader(shuffled(count, workers, own=True), cluster)
    iterator = iter(loader)
    states = [loader.state_dict()]
    states += [loader.state_dict() for _ in iterator]
    wanted = rows(loader)
    for state in states:
        again = distribute_dataloader(shuffled(count, workers, own=True), cluster)
        again.load_state_dict(stored(state))
        rows(again)
        assert rows(again) == wanted


def test_a_pass_that_has_failed_to_begin_is_over(cluster: str) -> None:
    """The error of a sampler comes from the iterator or its first batch, as in torch,
    and the same iterator has no batch later. The next one begins a pass.
    """

    class Failing(torch.utils.data.Sampler):
        fails = True

        def __iter__(self) -> Any:
            yield 0
            if self.fails:
                raise ValueError("no order today")
            yield 1

    sampler = Failing()
    plain: Any = DataLoader(range(2), 1, sampler=sampler)  # type: ignore[arg-type]
    loader = distribute_dataloader(plain, cluster)
    held = iter(loader)
    with pytest.raises(ValueError, match="no order today"):
        next(held)
    assert rows(held) == []
    sampler.fails = False
    assert rows(loader) == [[0], [1]]
