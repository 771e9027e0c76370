"""Data loaders of all kinds, by name. Each function makes a loader anew, with the
number of workers that it is given.

Workers of the service import this module.
"""

from __future__ import annotations

import random
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pack_sequence, pad_sequence
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)

Make = Callable[[int], DataLoader]

SAMPLED: dict[str, Make] = {}
"""Loaders of map-style datasets with all kinds of samplers, by name."""
MAPS: dict[str, Make] = {}
"""Loaders of all kinds of map-style datasets, items and collate functions, by name."""
STREAMS: dict[str, Make] = {}
"""Loaders of iterable-style datasets by name."""


def of_sampler(make: Make) -> Make:
    SAMPLED[make.__name__] = make
    return make


def of_map(make: Make) -> Make:
    MAPS[make.__name__] = make
    return make


def of_stream(make: Make) -> Make:
    STREAMS[make.__name__] = make
    return make


# ------------------------------------------------------------------------ datasets


class Made(Dataset):
    """``count`` items that a function makes of their numbers."""

    def __init__(self, count: int, item: Callable[[int], Any] = float) -> None:
        self.count = count
        self.item = item

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.item(index)


class AtOnce(Made):
    """Makes all items of a batch in one call."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(self.item(index), len(indices)) for index in indices]


class ByKey(Dataset):
    """Items by a text, or by a pair of numbers."""

    def __getitem__(self, key: Any) -> Any:
        return torch.tensor([len(key), *map(ord, map(str, key))][:2])


class Rows(Dataset):
    """Takes the indices of a whole batch."""

    def __getitem__(self, indices: Any) -> Any:
        return torch.as_tensor(indices) * 10

    def __len__(self) -> int:
        return 11


class Stream(IterableDataset):
    """Numbers from ``first`` to ``stop``, shared out among workers or not."""

    def __init__(self, first: int, stop: int, is_shared: bool = True) -> None:
        self.first, self.stop, self.is_shared = first, stop, is_shared

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if worker is None or not self.is_shared:
            return iter(range(self.first, self.stop))
        return iter(range(self.first + worker.id, self.stop, worker.num_workers))


class Sized(Stream):
    """A stream that says how long it is."""

    def __len__(self) -> int:
        return self.stop - self.first


class Uneven(IterableDataset):
    """Worker number n yields ``counts[n]`` items."""

    def __init__(self, *counts: int) -> None:
        self.counts = counts

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, of = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for at in range(self.counts[number]):
            yield {"at": at, "worker": f"{number} of {of}", "seed": worker is not None}


class Bounded(IterableDataset):
    """Numbers within bounds that ``share_out`` sets in each worker, as torch's pages
    show it.
    """

    def __init__(self, first: int, stop: int) -> None:
        self.first, self.stop = first, stop

    def __iter__(self) -> Iterator[Any]:
        return iter(range(self.first, self.stop))


def share_out(number: int) -> None:
    worker = get_worker_info()
    assert worker is not None
    assert number == worker.id
    part = -(-(worker.dataset.stop - worker.dataset.first) // worker.num_workers)
    first = worker.dataset.first + number * part
    worker.dataset.first = first
    worker.dataset.stop = min(first + part, worker.dataset.stop)


# ------------------------------------------------------------------------ items

Pair = namedtuple("Pair", "left right")


@dataclass
class Example:
    """An item or a batch with names."""

    image: Any
    label: Any
    name: str = ""


class Tagged(torch.Tensor):
    """A tensor with an attribute."""


class Holder:
    """An object that holds tensors."""

    def __init__(self, items: list[Any]) -> None:
        self.whole = torch.tensor(items)
        self.same = self.whole
        self.items = items


def nest(index: int) -> Any:
    return {
        "z": Pair(torch.full((2,), float(index)), (index, [index / 2, str(index)])),
        "a": {"flag": index % 2 == 0, "array": np.arange(3, dtype=np.int16) + index},
        "b": np.float32(index),
    }


def words(index: int) -> Any:
    return "w" * (index % 4), index, b"bytes", 0.5 * index, index > 3


def ragged(index: int) -> Any:
    return torch.arange(index % 5 + 1) * 1.0


def number_types(index: int) -> Any:
    names = (
        "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64"
    )
    return {name: np.full((2,), index % 2, name) for name in names.split()}


def short_floats(index: int) -> Any:
    values = torch.full((2, 2), index / 4)
    names = "bfloat16 float16 float8_e4m3fn float8_e5m2 complex64"
    return {name: values.to(getattr(torch, name)) for name in names.split()}


def image(index: int) -> Any:
    return torch.arange(index, index + 60).reshape(3, 4, 5).float()


def noise(index: int) -> Any:
    """Return numbers that follow from the index alone."""
    return torch.from_numpy(np.random.default_rng(index).normal(size=3))


def whole(items: list[Any]) -> Any:
    return items


def as_example(items: list[Any]) -> Example:
    return Example(torch.stack([noise(item) for item in items]), [*map(int, items)], "é")


def channels_last(items: list[Any]) -> Any:
    return torch.stack(items).to(memory_format=torch.channels_last)


def tagged(items: list[Any]) -> Any:
    batch = torch.tensor(items).as_subclass(Tagged)
    batch.tag = f"{len(items)} items"
    return batch


def scaled(items: list[Any], factor: float) -> Any:
    return default_collate(items) * factor


def as_int(index: int) -> int:
    return index


class Collator:
    """Collates by a method."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def collate(self, items: list[Any]) -> Any:
        return OrderedDict(b=default_collate(items) + self.offset, a=None, c=["x", None])

    def __call__(self, items: list[Any]) -> Any:
        return tuple(items), {1: self.offset, None: True}


def with_outlook(width: int) -> Callable[[list[Any]], Any]:
    def padded(items: list[Any]) -> Any:
        batch = pad_sequence(items, batch_first=True)
        return torch.nn.functional.pad(batch, (0, width - batch.shape[1]))

    return padded


# ------------------------------------------------------------------------ samplers


class Buckets(Sampler):
    """Batches of items of equal length, in an order drawn from the functions of torch.
    It yields the same list again and again.
    """

    def __init__(self, lengths: list[int], most: int) -> None:
        self.lengths, self.most = lengths, most

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for length in torch.randperm(max(self.lengths) + 1).tolist():
            for index, own in enumerate(self.lengths):
                if own == length:
                    batch.append(index)
                if len(batch) == self.most:
                    yield batch
                    batch.clear()
            if batch:
                yield batch
                batch.clear()

    def __len__(self) -> int:
        return sum(-(-self.lengths.count(length) // self.most) for length in {*self.lengths})


class Drawing(Sampler):
    """Indices drawn from a generator of its own, or from global functions."""

    def __init__(self, count: int, source: Any) -> None:
        self.count, self.source = count, source

    def __iter__(self) -> Iterator[int]:
        if self.source == "numpy":
            yield from np.random.permutation(self.count).tolist()
        elif self.source == "random":
            yield from random.sample(range(self.count), self.count)
        elif isinstance(self.source, random.Random):
            yield from self.source.sample(range(self.count), self.count)
        else:  # numpy's integers
            yield from self.source.permutation(self.count)

    def __len__(self) -> int:
        return self.count


class Alternating(Sampler):
    """Forwards in even passes, and backwards in odd passes, by ``set_epoch``."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count) if self.epoch % 2 == 0 else range(self.count)[::-1])

    def __len__(self) -> int:
        return self.count


class Eager(Sampler):
    """Draws when the iterator is made, and not when its first index is read."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.count).tolist())

    def __len__(self) -> int:
        return self.count


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------------ by sampler


@of_sampler
def sequential(workers: int) -> DataLoader:
    return DataLoader(Made(23), batch_size=4, num_workers=workers)


@of_sampler
def last_dropped(workers: int) -> DataLoader:
    return DataLoader(Made(23), batch_size=4, drop_last=True, num_workers=workers)


@of_sampler
def shuffled(workers: int) -> DataLoader:
    return DataLoader(Made(23), batch_size=4, shuffle=True, num_workers=workers)


@of_sampler
def shuffled_by_generator(workers: int) -> DataLoader:
    return DataLoader(Made(23), 4, shuffle=True, generator=seeded(3), num_workers=workers)


@of_sampler
def random_with_replacement(workers: int) -> DataLoader:
    sampler = RandomSampler(range(23), replacement=True, num_samples=41)
    return DataLoader(Made(23), 4, sampler=sampler, num_workers=workers)


@of_sampler
def random_with_replacement_by_generator(workers: int) -> DataLoader:
    sampler = RandomSampler(range(23), replacement=True, num_samples=41, generator=seeded(1))
    return DataLoader(Made(23), 4, sampler=sampler, num_workers=workers)


@of_sampler
def random_several_times(workers: int) -> DataLoader:
    sampler = RandomSampler(range(23), num_samples=50)
    return DataLoader(Made(23), 6, sampler=sampler, num_workers=workers)


@of_sampler
def random_by_two_generators(workers: int) -> DataLoader:
    sampler = RandomSampler(range(23), num_samples=30, generator=seeded(1))
    return DataLoader(Made(23), 4, sampler=sampler, generator=seeded(2), num_workers=workers)


@of_sampler
def random_by_one_generator(workers: int) -> DataLoader:
    both = seeded(1)
    sampler = RandomSampler(range(23), generator=both)
    return DataLoader(Made(23), 4, sampler=sampler, generator=both, num_workers=workers)


@of_sampler
def subset_at_random(workers: int) -> DataLoader:
    return DataLoader(
        Made(23), 4, sampler=SubsetRandomSampler([*range(0, 23, 2)]), num_workers=workers
    )


@of_sampler
def subset_by_generator(workers: int) -> DataLoader:
    sampler = SubsetRandomSampler([*range(0, 23, 2)], generator=seeded(4))
    return DataLoader(Made(23), 4, sampler=sampler, num_workers=workers)


@of_sampler
def weighted(workers: int) -> DataLoader:
    sampler = WeightedRandomSampler([1.0, 2.0, 5.0, 0.0, 9.0] * 4, 30)
    return DataLoader(Made(20), 4, sampler=sampler, num_workers=workers)


@of_sampler
def weighted_without_replacement(workers: int) -> DataLoader:
    weights = [1.0, 2.0, 5.0, 3.0, 9.0] * 4
    sampler = WeightedRandomSampler(weights, 13, replacement=False, generator=seeded(5))
    return DataLoader(Made(20), 4, sampler=sampler, num_workers=workers)


@of_sampler
def sampled_in_sequence(workers: int) -> DataLoader:
    return DataLoader(Made(23), 4, sampler=SequentialSampler(range(9)), num_workers=workers)


@of_sampler
def batches_by_sampler(workers: int) -> DataLoader:
    sampler = BatchSampler(RandomSampler(range(11)), 3, drop_last=False)
    return DataLoader(Rows(), batch_size=None, sampler=sampler, num_workers=workers)


@of_sampler
def batches_by_batch_sampler(workers: int) -> DataLoader:
    sampler = BatchSampler(RandomSampler(range(11)), 3, drop_last=True)
    return DataLoader(Made(11), batch_sampler=sampler, num_workers=workers)


@of_sampler
def buckets(workers: int) -> DataLoader:
    sampler = Buckets([index % 5 + 1 for index in range(23)], 3)
    return DataLoader(Made(23, ragged), batch_sampler=sampler, num_workers=workers)


@of_sampler
def shard_of_a_rank(workers: int) -> DataLoader:
    sampler = DistributedSampler(Made(23), num_replicas=3, rank=1, shuffle=True, seed=7)
    return DataLoader(Made(23), 2, sampler=sampler, num_workers=workers)


@of_sampler
def equal_shards_of_ranks(workers: int) -> DataLoader:
    sampler = DistributedSampler(Made(23), 3, 2, shuffle=False, drop_last=True)
    return DataLoader(Made(23), 2, sampler=sampler, num_workers=workers)


@of_sampler
def drawn_by_numpy(workers: int) -> DataLoader:
    return DataLoader(Made(23), 4, sampler=Drawing(23, "numpy"), num_workers=workers)


@of_sampler
def drawn_by_random(workers: int) -> DataLoader:
    return DataLoader(Made(23), 4, sampler=Drawing(23, "random"), num_workers=workers)


@of_sampler
def drawn_by_own_numpy(workers: int) -> DataLoader:
    sampler = Drawing(23, np.random.default_rng(3))
    return DataLoader(Made(23), 4, sampler=sampler, num_workers=workers)


@of_sampler
def drawn_by_own_legacy_numpy(workers: int) -> DataLoader:
    sampler = Drawing(23, np.random.RandomState(3))
    return DataLoader(Made(23), 4, sampler=sampler, num_workers=workers)


@of_sampler
def drawn_by_own_random(workers: int) -> DataLoader:
    sampler = Drawing(23, random.Random(3))
    return DataLoader(Made(23), 4, sampler=sampler, num_workers=workers)


@of_sampler
def drawn_eagerly(workers: int) -> DataLoader:
    return DataLoader(Made(23), 4, sampler=Eager(23), num_workers=workers)


@of_sampler
def alternating(workers: int) -> DataLoader:
    return DataLoader(Made(9), 2, sampler=Alternating(9), num_workers=workers)


@of_sampler
def by_texts(workers: int) -> DataLoader:
    return DataLoader(ByKey(), 2, sampler=["b", "abc", "ab"], num_workers=workers)


@of_sampler
def by_pairs(workers: int) -> DataLoader:
    batches = [[(1, 2), (3, 4)], [(5, 6)]]
    return DataLoader(ByKey(), batch_sampler=batches, num_workers=workers)


# ------------------------------------------------------------------------ by dataset


@of_map
def tensors(workers: int) -> DataLoader:
    rows = TensorDataset(torch.arange(22.0).reshape(11, 2), torch.arange(11))
    return DataLoader(rows, 3, shuffle=True, num_workers=workers)


@of_map
def concatenated(workers: int) -> DataLoader:
    return DataLoader(ConcatDataset([Made(5), Made(7)]), 3, shuffle=True, num_workers=workers)


@of_map
def subset(workers: int) -> DataLoader:
    return DataLoader(Subset(Made(20), [7, 3, 3, 19]), 3, num_workers=workers)


@of_map
def split_at_random(workers: int) -> DataLoader:
    return DataLoader(random_split(Made(20), [0.5, 0.5], seeded(1))[1], 3, num_workers=workers)


@of_map
def stacked(workers: int) -> DataLoader:
    rows = StackDataset(x=Made(8), more=TensorDataset(torch.arange(8)))
    return DataLoader(rows, 3, num_workers=workers)


@of_map
def stacked_subset(workers: int) -> DataLoader:
    rows = Subset(StackDataset(Made(8), Made(8, words)), [5, 1, 2, 7])
    return DataLoader(rows, 3, num_workers=workers)


@of_map
def all_items_at_once(workers: int) -> DataLoader:
    return DataLoader(AtOnce(8), 3, num_workers=workers)


@of_map
def plain_lists(workers: int) -> DataLoader:
    return DataLoader([*"zmqdata"], 3, shuffle=True, num_workers=workers)


@of_map
def without_batches(workers: int) -> DataLoader:
    return DataLoader(Made(7, nest), batch_size=None, num_workers=workers)


@of_map
def without_batches_shuffled(workers: int) -> DataLoader:
    return DataLoader(Made(7, noise), batch_size=None, shuffle=True, num_workers=workers)


@of_map
def empty(workers: int) -> DataLoader:
    return DataLoader(Made(0), 3, num_workers=workers)


@of_map
def shorter_than_a_batch(workers: int) -> DataLoader:
    return DataLoader(Made(2, noise), 3, num_workers=workers)


# ------------------------------------------------------------------------ by items


@of_map
def nests(workers: int) -> DataLoader:
    return DataLoader(Made(9, nest), 2, num_workers=workers)


@of_map
def texts(workers: int) -> DataLoader:
    return DataLoader(Made(9, words), 4, shuffle=True, num_workers=workers)


@of_map
def dtypes_of_numpy(workers: int) -> DataLoader:
    return DataLoader(Made(9, number_types), 2, num_workers=workers)


@of_map
def dtypes_that_numpy_lacks(workers: int) -> DataLoader:
    return DataLoader(Made(9, short_floats), 2, num_workers=workers)


@of_map
def images_with_channels_last(workers: int) -> DataLoader:
    return DataLoader(Made(9, image), 2, collate_fn=channels_last, num_workers=workers)


@of_map
def lists_of_items(workers: int) -> DataLoader:
    return DataLoader(Made(9, ragged), 2, collate_fn=whole, num_workers=workers)


@of_map
def items_with_none(workers: int) -> DataLoader:
    items = Made(9, lambda index: None if index % 3 else [index] * index)
    return DataLoader(items, 2, collate_fn=whole, num_workers=workers)


@of_map
def packed_sequences(workers: int) -> DataLoader:
    pack = partial(pack_sequence, enforce_sorted=False)
    return DataLoader(Made(9, ragged), 4, collate_fn=pack, num_workers=workers)


@of_map
def dataclasses(workers: int) -> DataLoader:
    return DataLoader(Made(9, as_int), 2, collate_fn=as_example, num_workers=workers)


@of_map
def subclasses_of_tensors(workers: int) -> DataLoader:
    return DataLoader(Made(9), 2, collate_fn=tagged, num_workers=workers)


@of_map
def own_objects(workers: int) -> DataLoader:
    return DataLoader(Made(9), 2, collate_fn=Holder, num_workers=workers)


@of_map
def collated_by_lambda(workers: int) -> DataLoader:
    return DataLoader(Made(9), 2, collate_fn=lambda items: sum(items), num_workers=workers)


@of_map
def collated_by_closure(workers: int) -> DataLoader:
    return DataLoader(Made(9, ragged), 2, collate_fn=with_outlook(7), num_workers=workers)


@of_map
def collated_by_partial(workers: int) -> DataLoader:
    return DataLoader(Made(9), 2, collate_fn=partial(scaled, factor=2.5), num_workers=workers)


@of_map
def collated_by_method(workers: int) -> DataLoader:
    return DataLoader(Made(9), 2, collate_fn=Collator(3).collate, num_workers=workers)


@of_map
def collated_by_object(workers: int) -> DataLoader:
    return DataLoader(Made(9), 2, collate_fn=Collator(3), num_workers=workers)


@of_map
def converted(workers: int) -> DataLoader:
    return DataLoader(Made(9, nest), 2, collate_fn=default_convert, num_workers=workers)


# ------------------------------------------------------------------------ streams


@of_stream
def stream(workers: int) -> DataLoader:
    return DataLoader(Stream(0, 23), 4, num_workers=workers)


@of_stream
def stream_for_each_worker(workers: int) -> DataLoader:
    return DataLoader(Stream(0, 11, is_shared=False), 4, num_workers=workers)


@of_stream
def stream_with_last_dropped(workers: int) -> DataLoader:
    return DataLoader(Stream(0, 23), 3, drop_last=True, num_workers=workers)


@of_stream
def stream_without_batches(workers: int) -> DataLoader:
    return DataLoader(Stream(0, 11), batch_size=None, num_workers=workers)


@of_stream
def stream_that_is_sized(workers: int) -> DataLoader:
    return DataLoader(Sized(0, 23), 4, num_workers=workers)


@of_stream
def uneven_streams(workers: int) -> DataLoader:
    return DataLoader(Uneven(7, 1, 12, 0), 2, num_workers=workers)


@of_stream
def streams_that_end_early(workers: int) -> DataLoader:
    return DataLoader(Uneven(0, 0, 5), batch_size=None, num_workers=workers)


@of_stream
def chained_streams(workers: int) -> DataLoader:
    chain = ChainDataset([Stream(0, 5), Stream(100, 107)])
    return DataLoader(chain, 2, num_workers=workers)


@of_stream
def streams_shared_out_by_init(workers: int) -> DataLoader:
    return DataLoader(Bounded(3, 21), 2, num_workers=workers, worker_init_fn=share_out)


@of_stream
def empty_stream(workers: int) -> DataLoader:
    return DataLoader(Stream(0, 0), 2, num_workers=workers)


@of_stream
def stream_of_nests(workers: int) -> DataLoader:
    items = ChainDataset([Mapped(Stream(0, 9), nest)])
    return DataLoader(items, 2, num_workers=workers)


class Mapped(IterableDataset):
    """The results of a function for the items of a stream."""

    def __init__(self, items: IterableDataset, function: Callable[[int], Any]) -> None:
        self.items, self.function = items, function

    def __iter__(self) -> Iterator[Any]:
        return map(self.function, self.items)


LOADERS = SAMPLED | MAPS | STREAMS
"""All these loaders by name."""
