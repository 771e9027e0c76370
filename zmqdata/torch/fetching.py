"""Functions that workers run in place of the processes of a ``DataLoader``: they fetch
and collate items as there, by as many virtual workers as the loader has.

Draws of ``random``, numpy and torch follow from the seed of the pass and the number of
the batch. So they depend neither on the number of real workers nor on which of them
makes a batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset, _utils
from torch.utils.data._utils.worker import WorkerInfo

from zmqdata.iterators.calling import CALLED_FOR
from zmqdata.pipelines.parcels import Parcel
from zmqdata.torch.orders import BatchIndices
from zmqdata.torch.packing import Packed, pack
from zmqdata.worker.tasks.pipeline import may_seed_modules, seeding

_CONVERTS = (_utils.collate.default_collate, _utils.collate.default_convert)
"""Functions of torch that put batches into shared memory if they run in a process of a
``DataLoader``. Here nobody would take them from there.
"""


@dataclass
class LoaderParts:
    """The parts of a ``DataLoader`` that workers need.

    Functions come first: to pickle one with the objects that it holds takes longer the
    more objects were pickled before.
    """

    init: Callable[[int], None] | None
    """``worker_init_fn`` of the loader."""
    collate_fn: Callable[[Any], Any]
    """Makes a batch of items."""
    dataset: Any
    """Dataset of the loader."""
    is_batched: bool
    """True if a batch has a list of items, False if it is a single item."""
    num_workers: int
    """Number of virtual workers; 0 if the loader has no workers."""
    batch_size: int | None = None
    """Number of items of a batch of an iterable dataset."""
    drop_last: bool = False
    """True if an incomplete last batch of an iterable dataset is left out."""


class _VirtualWorker:
    """The state that torch gives to a process of a ``DataLoader``.

    Args:
        parcel: holds the parts of the loader.
        seed: seed of the pass.
        number: number of the virtual worker.
    """

    def __init__(self, parcel: Parcel, seed: int, number: int) -> None:
        self._parts: LoaderParts = parcel.value
        self._begun = parcel.begun
        self._seed = seed
        self._number = number

    @contextmanager
    def at_batch(self, batch: int) -> Iterator[None]:
        """Run user code for a batch as in this worker, with the draws of the batch."""
        if self._number not in self._begun:
            with self.at_beginning():
                pass
        with self._at_work(_OF_BATCH, batch):
            yield

    @contextmanager
    def at_beginning(self) -> Iterator[None]:
        """Run user code that comes before the first batch as in this worker, after
        ``worker_init_fn``. The draws of batches do not depend on it, because it runs
        again wherever batches of this worker are made.
        """
        init = self._parts.init
        with self._at_work(_OF_BEGINNING, self._number):
            if init is not None and self._parts.num_workers:
                init(self._number)
            self._begun.add(self._number)
            yield

    @contextmanager
    def _at_work(self, *place: int) -> Iterator[None]:
        parts = self._parts
        with _drawing(self._seed, *place):
            before = _utils.worker._worker_info
            if parts.num_workers:
                _utils.worker._worker_info = WorkerInfo(
                    id=self._number,
                    num_workers=parts.num_workers,
                    seed=self._seed + self._number,
                    dataset=parts.dataset,
                )
            try:
                yield
            finally:
                _utils.worker._worker_info = before

    def collated(self, items: Any) -> Packed:
        """Return the batch of these items."""
        if any(self._parts.collate_fn is one for one in _CONVERTS):
            _utils.worker._worker_info = None
        return pack(self._parts.collate_fn(items))


_MOST_NAMED = 8
_OF_BATCH, _OF_BEGINNING = 0, 1
"""Places in a pass at which user code draws."""


class _Fetcher:
    """Base of both fetchers.

    Args:
        parcel: holds the parts of the loader.
        seed: seed of the pass.

    Attributes:
        parcel, seed: as given.
    """

    def __init__(self, parcel: Parcel, seed: int) -> None:
        self.parcel = parcel
        self.seed = seed

    @property
    def zmqdata_batch_rows(self) -> int | None:
        """Number of items in a batch; 0: it varies. None: there are no batches."""
        return (self._parts.batch_size or 0) if self._parts.is_batched else None

    @property
    def zmqdata_dataset_name(self) -> str:
        """Name of the class of the dataset, for statuses."""
        return type(self._parts.dataset).__name__

    @property
    def _parts(self) -> LoaderParts:
        parts: LoaderParts = self.parcel.value
        return parts


class BatchFetcher(_Fetcher):
    """Returns a batch of a map-style dataset for its number.

    Args:
        parcel: holds the parts of the loader.
        order: indices of the items of each batch.
        seed: seed of the pass.
    """

    def __init__(self, parcel: Parcel, order: BatchIndices, seed: int) -> None:
        super().__init__(parcel, seed)
        self._order = order
        self._workers: dict[int, _VirtualWorker] = {}

    _item: Any  # that is fetched

    def __call__(self, number: int) -> Packed:
        batch = int(number)
        worker, indices = self._worker(batch % max(1, self._parts.num_workers)), self._order[batch]
        with worker.at_batch(batch):
            self._item = _END
            try:
                return worker.collated(self._fetched(indices))
            except Exception as error:
                _name(error, self._told(batch, indices))
                raise

    def _worker(self, number: int) -> _VirtualWorker:
        if number not in self._workers:
            self._workers[number] = _VirtualWorker(self.parcel, self.seed, number)
        return self._workers[number]

    def _fetched(self, indices: Any) -> Any:
        dataset, items = self._parts.dataset, []
        if not self._parts.is_batched:
            return dataset[indices]
        base = dataset
        while type(base) is Subset:  # its own `__getitems__` hides the item that fails
            base = base.dataset
        if getattr(base, "__getitems__", None):
            return dataset.__getitems__(indices)
        for self._item in indices:
            items.append(dataset[self._item])
        self._item = _END
        return items

    def _told(self, batch: int, indices: Any) -> str:
        """Return for which items the dataset or ``collate_fn`` has failed."""
        if not self._parts.is_batched:
            return f"item {indices!r}"
        if self._item is not _END:
            return f"item {self._item!r} of batch {batch}"
        some = ", ".join(map(repr, islice(indices, _MOST_NAMED)))
        return f"batch {batch} of the items {some}{', ...' * (len(indices) > _MOST_NAMED)}"


class StreamFetcher(_Fetcher):
    """Yields the batches of an iterable-style dataset that a virtual worker makes, and
    a ``FailedBatch`` in place of a batch that fails: the next one may succeed.

    Args:
        parcel: holds the parts of the loader.
        seed: seed of the pass.
    """

    def __call__(self, number: int) -> Iterator[Packed | FailedBatch]:
        parts, index = self._parts, int(number)
        worker = _VirtualWorker(self.parcel, self.seed, index)
        with worker.at_beginning():
            batches = _ItemBatches(iter(parts.dataset), parts)
        for turn in count():
            made: Packed | FailedBatch
            with worker.at_batch(turn * max(1, parts.num_workers) + index):
                try:
                    batch = batches.following()
                    if batch is _END:
                        return
                    made = worker.collated(batch)
                except Exception as error:  # as a DataLoader, which goes on after it
                    _name(error, f"batch {turn} of virtual worker {index}")
                    made = FailedBatch(error)
            yield made


def _name(error: Exception, items: str) -> None:
    with suppress(AttributeError, TypeError):  # an exception with slots
        setattr(error, CALLED_FOR, items)


class _ItemBatches:
    """Takes the items of each batch from a stream.

    Args:
        items: the stream.
        parts: parts of the loader.
    """

    def __init__(self, items: Iterator[Any], parts: LoaderParts) -> None:
        self._items = items
        self._parts = parts
        self._is_over = False

    def following(self) -> Any:
        """Return the items of the next batch, or ``_END``."""
        if self._is_over:
            return _END  # not every iterator stays at its end
        if not self._parts.is_batched:
            return self._item()
        batch: list[Any] = []
        assert self._parts.batch_size is not None
        # Not by `islice`, which would call __iter__: some datasets begin anew in it.
        while len(batch) < self._parts.batch_size:
            item = self._item()
            if item is _END:
                return _END if not batch or self._parts.drop_last else batch
            batch.append(item)
        return batch

    def _item(self) -> Any:
        item = next(self._items, _END)
        self._is_over = item is _END
        return item


class FailedBatch:
    """The error of a batch of an iterable-style dataset, within a worker.

    Args:
        error: the error.
    """

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def batch_or_error(*element: Any) -> Packed:
    """Return a batch of ``StreamFetcher``, or raise its error."""
    if isinstance(element[0], FailedBatch):
        raise element[0].error
    return element


_END = object()


@contextmanager
def _drawing(seed: int, *place: int) -> Iterator[None]:
    """Draw by this seed from the generators behind the functions of ``random``, numpy
    and torch. A worker that is a thread of the training process leaves them alone,
    because the training draws from them, too.

    Batches of a process are made one after the other: datasets are written for
    processes that do one thing at a time.
    """
    with seeding():
        if may_seed_modules():
            _seed_modules(seed, *place)
        yield


def _seed_modules(seed: int, *place: int) -> None:
    words = np.random.SeedSequence([seed % 2**64, *place]).generate_state(4)
    random.seed(int(words[0]) << 32 | int(words[1]))
    np.random.seed(words)
    torch.default_generator.manual_seed(int(words[2]) << 31 | int(words[3]) >> 1)
