"""Functions that workers run in place of the processes of a ``DataLoader``: they fetch
and collate items as there, by as many virtual workers as the loader has.

Draws of ``random``, numpy and torch follow from the seed of the pass and the number of
the batch. So they depend neither on the number of real workers nor on which of them
makes a batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import _utils
from torch.utils.data._utils.worker import WorkerInfo

from zmqdata.torch.orders import BatchIndices
from zmqdata.torch.packing import Packed, pack
from zmqdata.worker.tasks.pipeline import may_seed_modules

_CONVERTS = (_utils.collate.default_collate, _utils.collate.default_convert)
"""Functions of torch that put batches into shared memory if they run in a process of a
``DataLoader``. Here nobody would take them from there.
"""


@dataclass
class LoaderParts:
    """The parts of a ``DataLoader`` that workers need."""

    dataset: Any
    """Dataset of the loader."""
    collate_fn: Callable[[Any], Any]
    """Makes a batch of items."""
    is_batched: bool
    """True if a batch has a list of items, False if it is a single item."""
    num_workers: int
    """Number of virtual workers; 0 if the loader has no workers."""
    init: Callable[[int], None] | None
    """``worker_init_fn`` of the loader."""
    batch_size: int | None = None
    """Number of items of a batch of an iterable dataset."""
    drop_last: bool = False
    """True if an incomplete last batch of an iterable dataset is left out."""


class _VirtualWorker:
    """The state that torch gives to a process of a ``DataLoader``.

    Args:
        parts: parts of the loader.
        seed: seed of the pass.
        number: number of the virtual worker.
    """

    def __init__(self, parts: LoaderParts, seed: int, number: int) -> None:
        self._parts = parts
        self._seed = seed
        self._number = number
        self._has_begun = False

    @contextmanager
    def at_work(self, batch: int) -> Iterator[None]:
        """Run user code as in this worker, with the draws of a batch."""
        parts, before = self._parts, _utils.worker._worker_info
        with _drawing(self._seed, batch):
            if parts.num_workers:
                _utils.worker._worker_info = WorkerInfo(
                    id=self._number,
                    num_workers=parts.num_workers,
                    seed=self._seed + self._number,
                    dataset=parts.dataset,
                )
            try:
                if not self._has_begun:
                    self._has_begun = True
                    if parts.init is not None and parts.num_workers:
                        parts.init(self._number)
                yield
            finally:
                _utils.worker._worker_info = before

    def collated(self, items: Any) -> Packed:
        """Return the batch of these items."""
        if self._parts.collate_fn in _CONVERTS:
            _utils.worker._worker_info = None
        return pack(self._parts.collate_fn(items))


class BatchFetcher:
    """Returns a batch of a map-style dataset for its number.

    Args:
        parts: parts of the loader.
        order: indices of the items of each batch.
        seed: seed of the pass.
    """

    def __init__(self, parts: LoaderParts, order: BatchIndices, seed: int) -> None:
        self._parts = parts
        self._order = order
        self._seed = seed
        self._workers: dict[int, _VirtualWorker] = {}

    def __call__(self, number: int) -> Packed:
        batch = int(number)
        worker = self._worker(batch % max(1, self._parts.num_workers))
        with worker.at_work(batch):
            return worker.collated(self._fetched(self._order[batch]))

    def _worker(self, number: int) -> _VirtualWorker:
        if number not in self._workers:
            self._workers[number] = _VirtualWorker(self._parts, self._seed, number)
        return self._workers[number]

    def _fetched(self, indices: Any) -> Any:
        dataset = self._parts.dataset
        if not self._parts.is_batched:
            return dataset[indices]
        if getattr(dataset, "__getitems__", None):
            return dataset.__getitems__(indices)
        return [dataset[index] for index in indices]


class StreamFetcher:
    """Yields the batches of an iterable-style dataset that a virtual worker makes.

    Args:
        parts: parts of the loader.
        seed: seed of the pass.
    """

    def __init__(self, parts: LoaderParts, seed: int) -> None:
        self._parts = parts
        self._seed = seed

    def __call__(self, number: int) -> Iterator[Packed]:
        parts, index = self._parts, int(number)
        worker = _VirtualWorker(parts, self._seed, index)
        with worker.at_work(index):
            items = iter(parts.dataset)
        for turn in count():
            with worker.at_work(turn * max(1, parts.num_workers) + index):
                batch = self._next(items)
                if batch is _END:
                    return
                packed = worker.collated(batch)
            yield packed

    def _next(self, items: Iterator[Any]) -> Any:
        if not self._parts.is_batched:
            return next(items, _END)
        assert self._parts.batch_size is not None
        batch = [*islice(items, self._parts.batch_size)]
        is_short = len(batch) < self._parts.batch_size
        return _END if not batch or (is_short and self._parts.drop_last) else batch


_END = object()


@contextmanager
def _drawing(seed: int, batch: int) -> Iterator[None]:
    """Draw by this seed from the generators behind the functions of ``random``, numpy
    and torch. Give them back as they were if the worker is a thread of the training
    process.
    """
    if may_seed_modules():
        _seed_modules(seed, batch)
        yield
        return
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    _seed_modules(seed, batch)
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


def _seed_modules(seed: int, batch: int) -> None:
    words = np.random.SeedSequence([seed % 2**64, batch]).generate_state(4)
    random.seed(int(words[0]) << 32 | int(words[1]))
    np.random.seed(words)
    torch.default_generator.manual_seed(int(words[2]) << 31 | int(words[3]) >> 1)
