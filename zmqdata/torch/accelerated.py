"""The part of a ``Loader`` that accelerate needs: its iterators report the end of a
pass as those of accelerate do, and it can stand in a new ``DataLoader``.

accelerate is never imported here: the module reads its state if the program uses it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from zmqdata.torch.iterator import LoaderIterator


class AcceleratedIterator:
    """An iterator over a pass that reports the end of the pass to accelerate, as the
    loaders of accelerate do. It is listed there until the loop drops it.

    Args:
        iterator: the iterator.
    """

    def __init__(self, iterator: LoaderIterator) -> None:
        self._iterator = iterator
        self._is_listed = False

    @property
    def end_of_dataloader(self) -> bool:
        """True if the loop has the last batch of a pass whose length is known."""
        return self._iterator.is_full()

    @property
    def remainder(self) -> int:
        """Number of samples of the last step before those that repeat others; 0 if none
        does, -1 if that is unknown.
        """
        return self._iterator.pass_.remainder

    def __iter__(self) -> AcceleratedIterator:
        return self

    def __next__(self) -> Any:
        try:
            if not self._is_listed:
                self._is_listed = True
                _update_list(self)
                weakref.finalize(self, _update_list).atexit = False
            return next(self._iterator)
        except StopIteration:
            _update_list(removed=self)
            raise


class BatchesToSkip(IterableDataset[Any]):
    """The batches of a ``Loader`` for ``accelerate.skip_first_batches``, which makes a
    ``DataLoader`` around them that leaves the first ones out.

    Args:
        loader: the loader.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)


def _same(batch: Any) -> Any:
    return batch


_REBUILDER = "accelerate.data_loader"
"""Module that builds a ``DataLoader`` from the attributes of another loader."""
_REBUILT = frozenset(
    {"dataset", "collate_fn", "generator", "num_workers", "pin_memory", "drop_last"}
    | {"batch_size", "prefetch_factor", "worker_init_fn"}
)
"""Attributes of a loader that the module reads for that."""


def rebuilds_loader(name: str) -> bool:
    """Return True if accelerate reads an attribute to build a ``DataLoader`` from it.

    Args:
        name: name of the attribute, which the caller's caller reads.
    """
    return name in _REBUILT and sys._getframe(2).f_globals.get("__name__") == _REBUILDER


def dataloader_around(loader: Any) -> DataLoader[Any]:
    """Return a ``DataLoader`` that yields the batches of a ``Loader``."""
    own = torch.Generator()  # only the Loader draws from the generator of the program
    return DataLoader(BatchesToSkip(loader), None, collate_fn=_same, generator=own)


def wrap_iterator(iterator: LoaderIterator) -> LoaderIterator | AcceleratedIterator:
    """Return an iterator for a loop: one that reports to accelerate if the program uses
    it.
    """
    return AcceleratedIterator(iterator) if _gradient_state() else iterator


def _gradient_state() -> Any:
    """Return the state in which accelerate lists the iterators that are read; None if
    the program does not use accelerate.
    """
    kind = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    return kind() if kind is not None and kind._shared_state else None


def _update_list(
    added: AcceleratedIterator | None = None, removed: AcceleratedIterator | None = None
) -> None:
    """Add an iterator to those that accelerate lists, or remove one."""
    state = _gradient_state()
    if state is not None:
        known = state.dataloader_references
        # A dropped iterator is None. So is the first entry, which stays.
        others = [other for other in known if other is not None and other is not removed]
        state.dataloader_references = [None, *others, *([] if added is None else [added])]
