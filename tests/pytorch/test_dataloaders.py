"""Training programs read a distributed DataLoader as they read DataLoaders."""

from __future__ import annotations

import io
import random
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler
from tqdm import tqdm

import zmqdata
from tests.pytorch.comparing import assert_same, drawn, seed, stored
from tests.pytorch.loaders import LOADERS, Made, Uneven, whole
from zmqdata import LocalCluster
from zmqdata.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    PipelineError,
    UnavailableError,
)
from zmqdata.torch import Loader, distribute_dataloader

pytestmark = pytest.mark.realprocess


def numbers(batches: Any) -> list[Any]:
    return [batch.tolist() for batch in batches]


# ------------------------------------------------------------------------ loops


def train(train_loader: Any, validation: Any) -> list[Any]:
    """Train in the manner of many programs, and return what they read."""
    had: list[Any] = []
    for batch in validation:  # a sanity check
        had.append(batch)
        break
    for _ in range(2):
        for step, batch in enumerate(train_loader):
            had.append((batch, torch.rand(()).item()))
            if step == 2:
                had += list(validation)
        had += list(zip(validation, train_loader, strict=False))[:2]
    return had


def test_programs_with_two_loaders(cluster: str) -> None:
    """A sanity check, a validation in the middle of a pass, an early end and two
    loaders at once read what they would read from DataLoaders.
    """
    seed(1)
    wanted = train(LOADERS["shuffled"](0), LOADERS["nests"](0))
    left = drawn()
    seed(1)
    loaders = [distribute_dataloader(LOADERS[name](0), cluster) for name in ("shuffled", "nests")]
    assert_same(train(*loaders), wanted)
    assert drawn() == left
    for loader in loaders:
        loader.close()


def test_two_passes_over_one_loader_at_once(cluster: str) -> None:
    """Two iterators over a loader are two passes."""
    loader = distribute_dataloader(LOADERS["sequential"](0), cluster)
    wanted = numbers(LOADERS["sequential"](0))
    pairs = [*zip(loader, loader, strict=True)]
    assert [numbers(pair) for pair in pairs] == [[batch, batch] for batch in wanted]


def test_attributes_are_those_of_the_loader(cluster: str) -> None:
    """Training libraries find the attributes that they ask a DataLoader for."""
    original = LOADERS["shard_of_a_rank"](3)
    loader = distribute_dataloader(original, cluster)
    names = "dataset sampler batch_sampler batch_size drop_last num_workers collate_fn generator"
    for name in f"{names} worker_init_fn".split():
        assert getattr(loader, name) is getattr(original, name)
    assert isinstance(loader, Loader)
    assert not isinstance(loader, DataLoader)
    assert loader.device is None
    assert loader.pin_memory is False
    assert distribute_dataloader(original, cluster, device="meta").device == torch.device("meta")


def test_lengths(cluster: str) -> None:
    """The length is that of the DataLoader for a map-style dataset, n with
    ``batches=n``, and otherwise unknown. ``tqdm`` shows it as its total.
    """
    for name in ("sequential", "last_dropped", "random_several_times", "buckets", "empty"):
        assert len(distribute_dataloader(LOADERS[name](0), cluster)) == len(LOADERS[name](0))
        assert total_of_bar(distribute_dataloader(LOADERS[name](0), cluster)) == len(
            LOADERS[name](0)
        )
    for unknown in (LOADERS["stream"](0), DataLoader(Made(9), batch_sampler=Unsized())):
        with pytest.raises(TypeError, match="not known before they have been read"):
            len(distribute_dataloader(unknown, cluster))
        assert total_of_bar(distribute_dataloader(unknown, cluster)) is None
        assert len(distribute_dataloader(unknown, cluster, batches=2)) == 2


def total_of_bar(loader: Loader) -> int | None:
    """Return the total that ``tqdm`` shows of a loader."""
    total: int | None = tqdm(loader, file=io.StringIO()).total
    return total


class Unsized(Sampler):
    def __iter__(self) -> Iterator[list[int]]:
        number = 0
        while True:
            yield [number % 9]
            number += 1


def test_a_number_of_batches(cluster: str) -> None:
    """Each pass has n batches if ``batches=n`` says so, also of a sampler without an
    end. A pass that has fewer is an error that says how many are missing.
    """
    for make, more in ((LOADERS["shuffled"], 9), (LOADERS["stream"], 9)):
        seed(1)
        loader = distribute_dataloader(make(0), cluster, batches=4)
        found = numbers(loader)
        seed(1)
        assert found == numbers(make(0))[:4]
        assert len(numbers(loader)) == 4
        # Of a stream, only reading shows it.
        with pytest.raises(InvalidArgumentError, match="has 6: 3 are missing"):
            list(distribute_dataloader(make(0), cluster, batches=more))
    with pytest.raises(InvalidArgumentError, match="has 6: 3 are missing"):
        distribute_dataloader(LOADERS["shuffled"](0), cluster, batches=9)
    for wrong in (0, -1, True, 2.5, "3"):
        with pytest.raises((ValueError, TypeError), match="batches"):
            distribute_dataloader(LOADERS["shuffled"](0), cluster, batches=wrong)
    endless = distribute_dataloader(
        DataLoader(Made(9), batch_sampler=Unsized()), cluster, batches=3
    )
    assert numbers(endless) == numbers(endless) == [[0.0], [1.0], [2.0]]


def test_batches_may_be_skipped(cluster: str) -> None:
    """``skip`` leaves out batches of the next pass, or of the running one, and says if
    there are fewer.
    """
    wanted = numbers(LOADERS["sequential"](0))
    loader = distribute_dataloader(LOADERS["sequential"](0), cluster)
    loader.skip(2)
    iterator = iter(loader)
    assert numbers([next(iterator)]) == wanted[2:3]
    loader.skip(1)
    state = stored(loader.state_dict())
    assert numbers(iterator) == wanted[4:]
    loader.load_state_dict(state)
    assert numbers(loader) == wanted[4:]
    with pytest.raises(InvalidArgumentError, match=r"`skip\(7\)` reached the end .* after 6"):
        loader.skip(7)


def test_a_pass_may_start_early(cluster: str) -> None:
    """``start`` draws the order of the next pass, which ``iter`` continues; a state and
    an epoch that come after it replace that pass.
    """
    seed(1)
    loader = distribute_dataloader(LOADERS["shuffled"](0), cluster)
    wanted = [numbers(loader), numbers(loader)]
    seed(1)
    loader = distribute_dataloader(LOADERS["shuffled"](0), cluster)
    before = stored(loader.state_dict())
    loader.start()
    loader.start()
    seed(2)
    assert numbers(loader) == wanted[0]
    loader.start()
    loader.load_state_dict(before)
    loader.start()
    assert [numbers(loader), numbers(loader)] == wanted
    seed(1)
    loader.load_state_dict(before)
    assert numbers(loader) == wanted[0]
    loader.start()
    loader.set_epoch(1)  # nothing is told of it
    assert numbers(loader) == wanted[1]
    alternating = distribute_dataloader(LOADERS["alternating"](0), cluster)
    alternating.start()
    alternating.set_epoch(1)
    assert numbers(alternating)[0] == [8, 7]


class ByEpoch(Dataset):
    """Draws by the epoch that it was told."""

    def __init__(self) -> None:
        self.told = 0

    def set_epoch(self, epoch: int) -> None:
        self.told = epoch

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index + 100 * self.told


def by_epoch() -> DataLoader:
    rows = ByEpoch()
    return DataLoader(rows, 2, sampler=DistributedSampler(rows, 2, 1, seed=3))


def test_epochs_reach_sampler_and_dataset(cluster: str) -> None:
    """``set_epoch`` reaches the sampler and the dataset before the next draw, and again
    in a process that resumes in the middle of the epoch.
    """
    wanted = []
    original = by_epoch()
    for epoch in (4, 5):
        original.sampler.set_epoch(epoch)
        original.dataset.set_epoch(epoch)
        wanted.append(numbers(original))
    loader = distribute_dataloader(by_epoch(), cluster)
    loader.set_epoch(4)
    iterator = iter(loader)
    assert numbers([next(iterator)]) == wanted[0][:1]
    state = stored(loader.state_dict())
    assert numbers(iterator) == wanted[0][1:]
    loader.set_epoch(5)
    assert numbers(loader) == wanted[1]
    again = distribute_dataloader(by_epoch(), cluster)
    again.load_state_dict(state)
    found = []
    for epoch in range(state["epoch"], 6):
        again.set_epoch(epoch)
        found.append(numbers(again))
    assert found == [wanted[0][1:], wanted[1]]
    for wrong in (-1, 1.0, True, "1"):
        with pytest.raises(InvalidArgumentError, match="`epoch` must be a number of at least 0"):
            loader.set_epoch(wrong)


def test_a_dataset_that_is_changed_is_sent_again(cluster: str) -> None:
    """A pass reads the dataset as it was when the pass began, which is at its first
    batch, whatever has changed it since the last pass.
    """
    rows = ByEpoch()
    loader = distribute_dataloader(DataLoader(rows, 4), cluster)
    assert numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    rows.told = 1
    iterator = iter(loader)
    assert next(iterator).tolist() == [100, 101, 102, 103]
    rows.told = 2
    assert numbers(iterator) == [[104, 105, 106, 107]]
    assert numbers(loader)[0] == [200, 201, 202, 203]
    items = [1, 2, 3]
    growing = distribute_dataloader(DataLoader(items, 2), cluster)
    assert numbers(growing) == [[1, 2], [3]]
    items.append(4)
    assert numbers(growing) == [[1, 2], [3, 4]]


class Counting(IterableDataset):
    """A stream that counts its passes."""

    passes = -1

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        yield from range(self.passes * 10, self.passes * 10 + 2)


class Told(Counting):
    """A stream that is told the number of its pass."""

    def set_epoch(self, number: int) -> None:
        self.passes = number - 1


@pytest.mark.parametrize(
    ("kind", "workers", "persistent", "text"),
    [
        (Counting, 0, False, "num_workers=0, a DataLoader keeps one.*pass `num_workers=1`"),
        (Counting, 1, True, "persistent_workers=True, a .*leave `persistent_workers` out"),
        (Told, 1, True, "persistent_workers=True, a .*leave `persistent_workers` out"),
        (Told, 0, False, ""),
        (Told, 1, False, ""),
        (Counting, 1, False, ""),
    ],
)
def test_a_stream_that_torch_keeps_is_warned_of(
    cluster: str, kind: Any, workers: int, persistent: bool, text: str
) -> None:
    """A warning at the line of the call names the remedies for a stream that torch
    keeps from pass to pass. Without the warning, passes are torch's.
    """

    def made() -> DataLoader:
        return DataLoader(kind(), 2, num_workers=workers, persistent_workers=persistent)

    def passes(loader: Any) -> Any:
        found = []
        for number in range(3):
            if kind is Told:
                getattr(loader, "set_epoch", loader.dataset.set_epoch)(number)
            found += numbers(loader)
        return found

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = distribute_dataloader(made(), cluster)
    assert len(caught) == bool(text)
    for warning in caught:
        assert re.search(text, str(warning.message))
        assert warning.filename == __file__
    plain = made()
    plain.multiprocessing_context = "fork" if workers else None
    assert text or passes(loader) == passes(plain)


def test_persistent_workers_are_no_difference(cluster: str) -> None:
    """The batches of each pass are torch's also with ``persistent_workers``, for which
    torch draws no second seed, and after a resume.
    """

    def make() -> DataLoader:
        return DataLoader(Made(9), 2, shuffle=True, num_workers=1, persistent_workers=True)

    seed(1)
    original = make()
    original.multiprocessing_context = "fork"
    wanted = [numbers(original) for _ in range(3)]
    seed(1)
    loader = distribute_dataloader(make(), cluster)
    assert numbers(loader) == wanted[0]
    iterator = iter(loader)
    assert numbers([next(iterator)]) == wanted[1][:1]
    state = stored(loader.state_dict())
    again = distribute_dataloader(make(), cluster)
    again.load_state_dict(state)
    assert [numbers(again), numbers(again)] == [wanted[1][1:], wanted[2]]


# ------------------------------------------------------------------------ errors


class Failing(Made):
    def __getitem__(self, index: int) -> Any:
        if index in (4, 10):
            raise KeyError(f"no item {index}")
        return super().__getitem__(index)


class FailingStream(IterableDataset):
    def __iter__(self) -> Any:
        self.at = 0
        return self

    def __next__(self) -> Any:
        self.at += 1
        if self.at > 11:
            raise StopIteration
        if self.at in (5, 11):
            raise KeyError(f"no item {self.at - 1}")
        return self.at - 1


def events(iterator: Iterator[Any]) -> list[Any]:
    """Return the batches to the end, and the causes of errors in their places."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(iterator).tolist())
        except StopIteration:
            return found
        except (KeyError, PipelineError) as error:
            found.append(repr(error.__cause__ or error))


@pytest.mark.parametrize("dataset", [Failing(11), FailingStream()], ids=["map", "stream"])
def test_an_error_stands_for_its_batch(cluster: str, dataset: Any) -> None:
    """The next batch follows after an error, also after a resume behind the error, and
    the pass ends as in torch.
    """
    wanted = events(iter(DataLoader(dataset, 2)))
    assert len(wanted) == 6
    assert [type(one) for one in wanted].count(str) == 2
    loader = distribute_dataloader(DataLoader(dataset, 2), cluster)
    assert events(iter(loader)) == wanted
    iterator = iter(loader)
    assert numbers([next(iterator), next(iterator)]) == [[0, 1], [2, 3]]
    with pytest.raises(PipelineError, match="no item 4"):
        next(iterator)
    state = stored(loader.state_dict())
    resumed = distribute_dataloader(DataLoader(dataset, 2), cluster)
    resumed.load_state_dict(state)
    assert events(iter(resumed)) == wanted[3:]


def test_an_error_has_its_original_traceback(cluster: str) -> None:
    """The error of an item names the item's line, and its cause has its class."""
    for dataset in (Failing(11), FailingStream()):
        with pytest.raises(PipelineError) as raised:
            list(distribute_dataloader(DataLoader(dataset, 2), cluster))
        assert isinstance(raised.value.__cause__, KeyError)
        assert "test_dataloaders.py" in str(raised.value)
        assert 'raise KeyError(f"no item' in str(raised.value)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (lambda items: torch.eye(2).to_sparse(), "call .to_dense"),
        (lambda items: torch.ones(2, device="meta"), "return its shape"),
        (lambda items: iter(items), "cannot be pickled|not among the values"),
    ],
    ids=["sparse", "meta", "iterator"],
)
def test_batches_that_cannot_travel_are_errors(cluster: str, batch: Any, reason: str) -> None:
    """A batch that cannot be sent is an error in its place that says why."""
    loader = distribute_dataloader(DataLoader(Made(4), 2, collate_fn=batch), cluster)
    with pytest.raises(PipelineError, match=reason):
        next(iter(loader))


def test_what_cannot_be_distributed_is_refused_at_the_call(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader that cannot move to other processes is an error before any pass."""
    with pytest.raises(TypeError, match=r"must be a torch.utils.data.DataLoader, got list"):
        distribute_dataloader([1, 2], cluster)
    with pytest.raises(TypeError, match=r"becomes a Loader by `zmqdata.torch.Loader`"):
        distribute_dataloader(Loader, cluster)
    model = DataLoader(Made(4), sampler=Drawn(torch.nn.Linear(1, 1)))
    with pytest.raises(InvalidArgumentError, match="the sampler Drawn holds a model"):
        distribute_dataloader(model, cluster)
    with pytest.raises(InvalidArgumentError, match=r"is a Doubled, which overrides `__iter__`"):
        distribute_dataloader(Doubled(Made(4)), cluster)
    pipe = torch.utils.data.datapipes.iter.IterableWrapper([1, 2])
    with pytest.raises(InvalidArgumentError, match="the dataset is an IterDataPipe"):
        distribute_dataloader(DataLoader(pipe), cluster)
    locked = DataLoader(Made(4, Unsendable()), 2)
    with pytest.raises(TypeError, match="never to be sent"):
        distribute_dataloader(locked, cluster)
    for option in ("deterministic", "job_name", "processing_mode"):
        with pytest.raises(InvalidArgumentError, match=f"`{option}` cannot be passed"):
            distribute_dataloader(LOADERS["sequential"](0), cluster, **{option: 1})
    monkeypatch.delenv("ZMQDATA_DISPATCHER", raising=False)
    with pytest.raises(InvalidArgumentError, match="no dispatcher is named"):
        distribute_dataloader(LOADERS["sequential"](0))
    monkeypatch.setenv("ZMQDATA_DISPATCHER", cluster)
    assert len(numbers(distribute_dataloader(LOADERS["sequential"](0)))) == 6


def test_a_dispatcher_that_is_not_there_is_waited_for_as_long_as_told() -> None:
    """The call ends with an error after ``dispatcher_timeout``, which it names."""
    with pytest.raises(UnavailableError, match=r"0\.3 s \(dispatcher_timeout\)"):
        distribute_dataloader(LOADERS["sequential"](0), "tcp://127.0.0.1:9", dispatcher_timeout=0.3)


class Doubled(DataLoader):
    def __iter__(self) -> Any:
        return iter([2 * batch for batch in super().__iter__()])


class Drawn(Sampler):
    def __init__(self, model: Any) -> None:
        self.model = model

    def __iter__(self) -> Iterator[int]:
        return iter([0])


class Unsendable:
    def __call__(self, index: int) -> int:
        return index

    def __reduce__(self) -> Any:
        raise TypeError("never to be sent")


def test_states_of_other_loaders_are_refused(cluster: str) -> None:
    """A state of another kind of loader, of another sampler, or no state at all is an
    error that says so.
    """
    loader = distribute_dataloader(LOADERS["shuffled_by_generator"](0), cluster)
    stream = distribute_dataloader(LOADERS["stream"](0), cluster)
    with pytest.raises(FailedPreconditionError, match=r"kind 'iterable'.* kind 'map'"):
        loader.load_state_dict(stream.state_dict())
    for wrong in ({}, [], None, {"version": 1}, {**loader.state_dict(), "batches": "3"}):
        with pytest.raises(InvalidArgumentError, match="must be a dict that state_dict"):
            loader.load_state_dict(wrong)
    for version in (0, 99):
        with pytest.raises(InvalidArgumentError, match=f"has version {version}, .* version 1"):
            loader.load_state_dict({**loader.state_dict(), "version": version})
    other = distribute_dataloader(LOADERS["shuffled"](0), cluster)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(InvalidArgumentError, match="with another sampler or generator"):
        iter(other)


# ------------------------------------------------------------------------ augmentation


def augmented(index: int) -> Any:
    """Return an item that draws from each generator."""
    return index, torch.randn(2), np.random.normal(size=2), random.random()


class AugmentedStream(Uneven):
    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            yield item, augmented(0)


def seeding(number: int) -> None:
    """Seed as many programs do it."""
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(number)


AUGMENTED = {
    "map": lambda: DataLoader(Made(22, augmented), 2, shuffle=True, collate_fn=whole),
    "map with workers": lambda: DataLoader(
        Made(22, augmented), 2, shuffle=True, num_workers=2, worker_init_fn=seeding
    ),
    "stream": lambda: DataLoader(AugmentedStream(9), 2),
    "stream with workers": lambda: DataLoader(
        AugmentedStream(9, 4, 7), 2, num_workers=3, worker_init_fn=seeding
    ),
}


class Augmenting:
    """Draws from generators of its own, as transforms of albumentations do."""

    def __init__(self) -> None:
        self.transforms = [{"rng": np.random.default_rng(1), "py": random.Random(1)}] * 12

    def __call__(self, index: int) -> Any:
        own = self.transforms[index % 12]
        return index, float(own["rng"].random()), own["py"].random()


def test_generators_that_a_dataset_holds_are_no_reason_to_warn(
    cluster: str, recwarn: pytest.WarningsRecorder
) -> None:
    """They draw anew for each batch and pass, by the seed of the loader, and no warning
    is said.
    """

    def draws() -> list[Any]:
        dataset = Made(12, Augmenting())
        loader = DataLoader(dataset, 2, num_workers=2, generator=torch.Generator().manual_seed(3))
        read = distribute_dataloader(loader, cluster)
        return [tuple(torch.cat(batch[1:]).tolist()) for _ in range(2) for batch in read]

    had = draws()
    assert len({one for batch in had for one in batch}) == 2 * 24
    assert draws() == had
    assert not [one for one in recwarn if "generator" in str(one.message)]


def two_passes(service: Any, make: Any, place: int) -> tuple[list[Any], list[Any]]:
    """Return two passes, and the same after a resume at a place."""
    seed(1)
    loader = distribute_dataloader(make(), service)
    iterator = iter(loader)
    first = [next(iterator) for _ in range(place)]
    state = stored(loader.state_dict())
    whole_run = [first + list(iterator), list(loader)]
    seed(2)
    again = distribute_dataloader(make(), service)
    again.load_state_dict(state)
    return whole_run, [first + list(again), list(again)]


def assert_augmented(services: list[Any], make: Any) -> None:
    runs = [run for service in services for run in two_passes(service, make, 3)]
    for run in runs[1:]:
        assert_same(run, runs[0])
    drawn_numbers = [repr(batch) for one in runs[0] for batch in one]
    assert len({*drawn_numbers}) == len(drawn_numbers)


@pytest.mark.parametrize("make", AUGMENTED.values(), ids=AUGMENTED.keys())
def test_augmentation_is_repeated_by_a_resume(cluster: str, make: Any) -> None:
    """Items that draw at random are equal again after a resume. Two passes draw
    different numbers.
    """
    assert_augmented([cluster], make)


@pytest.mark.full
def test_augmentation_does_not_depend_on_the_workers() -> None:
    """Items that draw at random are equal for clusters of one and of three workers."""
    with LocalCluster(num_workers=1) as one, LocalCluster(num_workers=3) as three:
        for make in AUGMENTED.values():
            assert_augmented([one, three], make)


class Reading(Dataset[int]):
    """Items that the service itself makes."""

    def __init__(self, service: str) -> None:
        self.service = service

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        counted = zmqdata.Dataset.range(5).apply(
            zmqdata.distribute("distributed_epoch", self.service)
        )
        return index + sum(map(int, counted))


def test_items_are_read_from_the_service_that_reads_them(cluster: str) -> None:
    """A dataset may read from the same workers for each item."""
    plain = DataLoader(Reading(cluster), 2, num_workers=2)
    for loader in (plain, distribute_dataloader(plain, cluster)):
        assert numbers(loader) == [[10, 11], [12, 13]]
