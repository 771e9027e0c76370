"""Functions that stand in for the processes of a DataLoader: what user code sees in
them, and what it draws.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import Dataset, IterableDataset, Subset, default_collate, get_worker_info

import zmqdata
from tests.pytorch import loaders
from tests.pytorch.comparing import assert_same, seed
from tests.pytorch.loaders import AtOnce, Made, Stream, whole
from zmqdata.errors import PipelineError
from zmqdata.failures.exceptions import formatted
from zmqdata.pipelines.parcels import Parcel
from zmqdata.testing.cluster import await_condition
from zmqdata.torch import fetching
from zmqdata.torch.fetching import (
    BatchFetcher,
    FailedBatch,
    LoaderParts,
    StreamFetcher,
    batch_or_error,
)
from zmqdata.torch.orders import BatchIndices, generators, restore_global
from zmqdata.torch.packing import unpack


@pytest.fixture(autouse=True)
def own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the functions seed the generators of this process, as a worker's, and give
    the generators back.
    """
    monkeypatch.setattr(fetching, "may_seed_modules", lambda: True)
    kept = generators(torch.utils.data.DataLoader(Made(3)))
    yield
    restore_global(kept)


ORDER = BatchIndices([[0, 1], [2, 3], [4, 5], [6]])


def parts_of(dataset: Any, workers: int = 0, init: Any = None, **others: Any) -> LoaderParts:
    arguments: dict[str, Any] = {"collate_fn": whole, "is_batched": True} | others
    return LoaderParts(dataset=dataset, num_workers=workers, init=init, **arguments)


def fetched(parts: LoaderParts, *batches: int, seed: int = 5) -> list[Any]:
    fetcher = BatchFetcher(Parcel(parts, ""), ORDER, seed)
    return [unpack(fetcher(np.int64(batch))) for batch in batches]


def streamed(parts: LoaderParts, number: int = 0, seed: int = 5) -> list[Any]:
    found = StreamFetcher(Parcel(parts, ""), seed)(np.int64(number))
    return [one if isinstance(one, FailedBatch) else unpack(one) for one in found]


def three(index: int) -> Any:
    """Draw from each generator."""
    return index, random.random(), float(np.random.normal()), torch.rand(()).item()


class Drawing(IterableDataset):
    """Draws in ``__iter__`` and for each item."""

    def __iter__(self) -> Iterator[Any]:
        first = three(-1)
        return iter([*map(three, range(5)), first])


class DrawingLate(IterableDataset):
    """Draws when an item is asked for."""

    def __iter__(self) -> Iterator[Any]:
        yield from map(three, range(5))


# ------------------------------------------------------------------------ draws


def test_draws_follow_from_the_seed_and_the_batch() -> None:
    """A batch draws the same whatever was fetched before, by whichever worker. Another
    seed and another batch draw something else.
    """
    parts = parts_of(Made(7, three))
    seed(1)
    wanted = fetched(parts, 0, 1, 2, 3)
    seed(2)
    alone = [fetched(parts, batch)[0] for batch in (3, 1, 0, 2)]
    assert alone == [wanted[3], wanted[1], wanted[0], wanted[2]]
    for workers in (1, 3):
        assert fetched(parts_of(Made(7, three), workers), 3, 0) == [wanted[3], wanted[0]]
    assert fetched(parts, 0, seed=6)[0][0] != wanted[0][0]
    numbers = [number for batch in wanted for item in batch for number in item[1:]]
    assert len({*numbers}) == len(numbers)


def test_a_seed_may_be_any_of_torch() -> None:
    """Seeds of 64 bits, with a sign or without, draw different numbers."""
    seeds = [0, 1, -1, 2**63 - 1, -(2**63), 2**32, 2**31]
    draws = [fetched(parts_of(Made(7, three)), 0, seed=one)[0][0] for one in seeds]
    assert len({*draws}) == len(seeds)


def test_an_init_that_fails_runs_again() -> None:
    """No batch is made by a copy whose ``worker_init_fn`` has not succeeded, also in
    later passes that have the same copy.
    """
    calls = []

    def init(number: int) -> None:
        calls.append(number)
        if len(calls) < 3:
            raise OSError("not yet")

    parcel = Parcel(parts_of(Made(7), 1, init))
    for _ in range(2):
        with pytest.raises(OSError, match="not yet"):
            BatchFetcher(parcel, ORDER, 5)(np.int64(0))
    for _ in range(2):
        BatchFetcher(parcel, ORDER, 5)(np.int64(0))
    assert len(calls) == 3


def test_init_does_not_change_what_batches_draw() -> None:
    """``worker_init_fn`` runs again wherever batches of its worker are made, and may
    seed and draw, so the draws of batches do not depend on it.
    """

    def init(number: int) -> None:
        seed(number)
        three(0)

    wanted = fetched(parts_of(Made(7, three)), 0, 1, 2, 3)
    with_init = parts_of(Made(7, three), 2, init)
    assert fetched(with_init, 0, 1, 2, 3) == wanted
    assert [fetched(with_init, batch)[0] for batch in range(4)] == wanted


def test_draws_of_streams_follow_from_the_seed_and_the_batch() -> None:
    """A stream draws the same again, worker by worker, and draws something else in
    ``__iter__``, in each batch, and in each worker.
    """
    late = parts_of(DrawingLate(), 2, batch_size=2)
    early = parts_of(Drawing(), 2, batch_size=2)
    for parts in (late, early):
        wanted = [streamed(parts, number) for number in range(2)]
        seed(9)
        assert [streamed(parts, number) for number in range(2)] == wanted
        numbers = [n for stream in wanted for batch in stream for item in batch for n in item[1:]]
        assert len({*numbers}) == len(numbers)
        assert streamed(parts, 0, seed=6) != wanted[0]
    assert streamed(early)[0][0][1:] != streamed(late)[0][0][1:]


def test_a_worker_in_the_training_process_seeds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generators behind the functions of torch, numpy and ``random`` stay as they
    are where the training draws from them, too.
    """
    monkeypatch.setattr(fetching, "may_seed_modules", lambda: False)
    seed(3)
    before = generators_of_all()
    fetched(parts_of(Made(7, int), 2), 0, 1)
    streamed(parts_of(Made(7, int), batch_size=2))
    assert generators_of_all() == before


def test_tasks_in_threads_do_not_disturb_each_other() -> None:
    """Two threads that are to make batches at once make them one after the other, and
    draw what each draws alone.
    """
    first, second = threading.Event(), threading.Event()

    def slow(index: int) -> Any:
        first.set()
        assert not second.wait(0.2), "another batch was made in the meantime"
        return three(index)

    def quick(index: int) -> Any:
        second.set()
        return three(index)

    wanted = fetched(parts_of(Made(7, three)), 3)
    found: list[Any] = []
    making = threading.Thread(target=lambda: found.extend(fetched(parts_of(Made(7, slow)), 3)))
    making.start()
    await_condition(first.is_set)
    assert fetched(parts_of(Made(7, quick)), 3) == wanted
    making.join(10)
    assert found == wanted


def generators_of_all() -> Any:
    """Return the states of the global generators as a loader stores them."""
    return generators(torch.utils.data.DataLoader(Made(3)))


# ------------------------------------------------------------------------ workers


def seen(index: int) -> Any:
    """Return what an item sees of its worker."""
    worker = get_worker_info()
    if worker is None:
        return index, None
    return index, (worker.id, worker.num_workers, worker.seed, getattr(worker.dataset, "mark", ""))


def mark(number: int) -> None:
    """Count the calls for each worker in its dataset."""
    worker = get_worker_info()
    assert worker is not None
    assert worker.id == number
    worker.dataset.mark = getattr(worker.dataset, "mark", "") + str(number)


def test_items_see_a_virtual_worker() -> None:
    """Batch number b is made by worker b modulo the number of workers, with the seed
    that torch gives to it; without workers there is no worker.
    """
    info = [item[1] for batch in fetched(parts_of(Made(7, seen), 3), 0, 1, 2, 3) for item in batch]
    assert info == [(0, 3, 5, "")] * 2 + [(1, 3, 6, "")] * 2 + [(2, 3, 7, "")] * 2 + [(0, 3, 5, "")]
    assert fetched(parts_of(Made(7, seen)), 3) == [[(6, None)]]
    assert get_worker_info() is None


def test_init_runs_once_in_each_virtual_worker() -> None:
    """``worker_init_fn`` runs before the first batch of its worker, sees the worker,
    and may change the dataset. Without workers it does not run.
    """
    parts = parts_of(Made(7, seen), 2, mark)
    marks = [batch[0][1][3] for batch in fetched(parts, 0, 2, 0, 1, 3, 2)]
    assert marks == ["0", "0", "0", "01", "01", "01"]
    assert fetched(parts_of(Made(7, seen), 0, mark), 0)[0][0] == (0, None)
    stream = streamed(parts_of(Infos(), 3, mark, batch_size=1), 2)
    assert stream == [[("init", "2")], [(2, 3, 7)]]


class Infos(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        yield "init", getattr(self, "mark", "")
        yield worker.id, worker.num_workers, worker.seed


def test_an_init_that_fails_is_the_error_of_a_batch() -> None:
    """An error of ``worker_init_fn`` reaches the loop, and leaves no worker behind."""

    def init(number: int) -> None:
        raise OSError(f"no database for {number}")

    for run in (fetched, streamed):
        with pytest.raises(OSError, match="no database for 0"):
            run(parts_of(Made(7, seen) if run is fetched else Infos(), 1, init, batch_size=1), 0)
        assert get_worker_info() is None


def test_collate_functions_see_the_worker_unless_they_are_torchs() -> None:
    """The user's ``collate_fn`` sees the worker. That of torch sees none, because it
    would put batches into shared memory for a process that takes them from there.
    """

    def collate(items: list[Any]) -> Any:
        return get_worker_info() is not None, items

    assert fetched(parts_of(Made(7), 2, collate_fn=collate), 0) == [(True, [0.0, 1.0])]
    parts = parts_of(Made(7, torch.tensor), 2, collate_fn=default_collate)
    batch = BatchFetcher(Parcel(parts, ""), ORDER, 5)(0)
    assert unpack(batch).tolist() == [0, 1]
    shared = parts_of(Made(7, torch.tensor), 2, collate_fn=lambda items: default_collate(items))
    assert fetched(shared, 0)[0].tolist() == [0, 1]


def test_items_are_fetched_as_torch_fetches_them() -> None:
    """``__getitems__`` is called if there is one, and ``__getitem__`` with what the
    sampler has yielded if there are no batches.
    """
    assert fetched(parts_of(AtOnce(7)), 1) == [[(2.0, 2), (3.0, 2)]]

    class Without(AtOnce):
        __getitems__ = None

    assert fetched(parts_of(Without(7)), 1) == [[2.0, 3.0]]

    class Anything(Dataset):
        def __getitem__(self, index: Any) -> Any:
            return type(index).__name__, index

        def __getitems__(self, indices: Any) -> Any:
            raise AssertionError("there are no batches")

    for index in (3, "key", (1, 2), [1, 2]):
        parts = parts_of(Anything(), is_batched=False)
        found = unpack(BatchFetcher(Parcel(parts, ""), BatchIndices([index]), 5)(0))
        assert found == (type(index).__name__, index)


def test_fetchers_are_values() -> None:
    """A fetcher that has been sent to another process makes the same batches."""
    parts = parts_of(Made(7, three), 2, mark)
    fetcher = BatchFetcher(Parcel(parts, ""), ORDER, 5)
    sent = pickle.loads(pickle.dumps(fetcher))
    assert_same(unpack(sent(2)), unpack(fetcher(2)))
    stream = pickle.loads(
        pickle.dumps(StreamFetcher(Parcel(parts_of(DrawingLate(), batch_size=2), ""), 5))
    )
    assert_same([unpack(one) for one in stream(0)], streamed(parts_of(DrawingLate(), batch_size=2)))


# ------------------------------------------------------------------------ streams


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 6])
def test_batches_of_a_stream(count: int, drop_last: bool) -> None:
    """A stream is cut into batches, of which the last may be short or left out."""
    parts = parts_of(Stream(0, count), batch_size=3, drop_last=drop_last)
    items = [*range(count)]
    wanted = [items[first : first + 3] for first in range(0, count, 3)]
    assert streamed(parts) == [batch for batch in wanted if len(batch) == 3 or not drop_last]
    assert streamed(parts_of(Stream(0, count), is_batched=False)) == items


class Restarting(IterableDataset):
    """Begins anew in ``__iter__``, and returns itself."""

    def __iter__(self) -> Restarting:
        self.at = -1
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 5:
            raise StopIteration
        return self.at


@pytest.mark.parametrize("is_batched", [True, False])
def test_a_stream_may_be_its_own_iterator(is_batched: bool) -> None:
    """A dataset whose ``__iter__`` begins anew and returns the dataset is asked once
    for an iterator.
    """
    found = streamed(parts_of(Restarting(), batch_size=2, is_batched=is_batched))
    assert found == ([[0, 1], [2, 3], [4]] if is_batched else [0, 1, 2, 3, 4])


class Failing(Restarting):
    def __next__(self) -> int:
        index = super().__next__()
        if index == 2:
            raise ValueError("no item 2")
        return index


def broken() -> Iterator[int]:
    yield 0
    raise ValueError("no more")


class FailingOnce(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return broken()


def test_a_failed_batch_of_a_stream_is_an_error_among_batches() -> None:
    """The error of an item or of ``collate_fn`` stands for its batch, and the next
    batch follows, unless the stream has ended with the error.
    """

    def collate(items: list[Any]) -> Any:
        if 0 in items:
            raise LookupError("no batch of 0")
        return items

    found = streamed(parts_of(Failing(), batch_size=2))
    assert found[0] == [0, 1]
    assert str(found[1].error) == "no item 2"
    assert found[2:] == [[3, 4]]
    found = streamed(parts_of(Stream(0, 5), batch_size=2, collate_fn=collate))
    assert isinstance(found[0].error, LookupError)
    assert found[1:] == [[2, 3], [4]]
    found = streamed(parts_of(FailingOnce(), is_batched=False))
    assert found[0] == 0
    assert str(found[1].error) == "no more"
    assert len(found) == 2
    with pytest.raises(ValueError, match="no more") as raised:
        batch_or_error(found[1])
    assert any(entry.name == "broken" for entry in raised.traceback)
    assert batch_or_error(b"", 0) == (b"", 0)


class Slotted(Exception):
    """An exception that takes no other attributes."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):
            raise AttributeError(name)
        super().__setattr__(name, value)


def broken_at_three(index: int) -> int:
    if index == 3:
        raise ValueError("broken")
    return index


def refuse_three(items: Any) -> Any:
    if 3 in items:
        raise ValueError("broken")
    return items


def slotted(index: int) -> int:
    raise Slotted


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (parts_of(Made(7, broken_at_three)), "failed for item 3 of batch 1: ValueError: broken"),
        (
            parts_of(Subset(Subset(Made(7, broken_at_three), [1, 2, 3]), [0, 1, 2])),
            "failed for item 2 of batch 1: ValueError: broken",
        ),
        (
            parts_of(AtOnce(7, broken_at_three)),
            "failed for batch 1 of the items 2, 3: ValueError: broken",
        ),
        (
            parts_of(Subset(AtOnce(7, broken_at_three), range(4))),
            "failed for batch 1 of the items 2, 3: ValueError: broken",
        ),
        (
            parts_of(Made(7), collate_fn=refuse_three),
            "failed for batch 1 of the items 2, 3: ValueError: broken",
        ),
        (parts_of(Made(7, slotted)), "failed: Slotted: "),
    ],
)
def test_an_error_names_the_item(parts: LoaderParts, text: str) -> None:
    """The error of a batch has the index of the item that failed, or the indices of the
    batch, and the traceback begins in the user's code.
    """
    fetcher = BatchFetcher(Parcel(parts, ""), ORDER, 5)
    batches = iter(zmqdata.Dataset.range(4).map(fetcher))
    if "Slotted" not in text:
        next(batches)
    with pytest.raises(PipelineError, match=text) as raised:
        next(batches)
    first = formatted(raised.value.__cause__).split("File ")[1]  # type: ignore[arg-type]
    files = __file__, loaders.__file__, torch.utils.data.dataset.__file__
    assert first.startswith(tuple(f'"{file}"' for file in files))


def test_an_error_names_a_single_item_and_a_virtual_worker() -> None:
    """Without batches it names the item, and a stream the batch and the worker."""
    single = parts_of(Made(7, broken_at_three), is_batched=False)
    order = BatchIndices([4, 3])
    fetcher = BatchFetcher(Parcel(single, ""), order, 5)
    batches = zmqdata.Dataset.range(1, 2).map(fetcher)
    with pytest.raises(PipelineError, match="failed for item 3: ValueError"):
        next(iter(batches))

    class Broken(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield from (0, 1)
            raise ValueError("broken")

    stream = StreamFetcher(Parcel(parts_of(Broken(), 3, batch_size=2), ""), 5)
    streams = iter(zmqdata.Dataset.range(1, 2).flat_map(stream).map(batch_or_error))
    next(streams)
    with pytest.raises(PipelineError, match="failed for batch 1 of virtual worker 1: ValueError"):
        next(streams)
