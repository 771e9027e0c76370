"""The part of a ``Loader`` by which accelerate learns where its loop stands, as from
its own loaders. accelerate is imported only if the program uses it.
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
    """An iterator over a pass, from which accelerate learns of the end of the pass, as
    from its own loaders. It knows the iterator until the loop drops it.

    Args:
        iterator: the iterator.
    """

    def __init__(self, iterator: LoaderIterator) -> None:
        self._iterator = iterator
        self._is_shown = False

    @property
    def end_of_dataloader(self) -> bool:
        """True if the loop has the last batch of a pass whose length is known."""
        return self._iterator.is_full()

    @property
    def remainder(self) -> int:
        """Number of samples of the last step before those that repeat others; 0 if none
        does, -1 if that is unknown.
        """
        return self._iterator.remainder

    def __iter__(self) -> AcceleratedIterator:
        return self

    def __next__(self) -> Any:
        try:
            if not self._is_shown:
                self._is_shown = True
                _show_accelerate(self)
                weakref.finalize(self, _show_accelerate).atexit = False
            return next(self._iterator)
        except StopIteration:
            _show_accelerate(without=self)
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


_REMADE = frozenset(
    {"dataset", "collate_fn", "generator", "num_workers", "pin_memory", "drop_last"}
    | {"batch_size", "prefetch_factor", "worker_init_fn"}
)
"""Attributes of a ``Loader`` that accelerate asks for to make a ``DataLoader`` anew."""


def is_remade(name: str) -> bool:
    """Return True if accelerate asks for an attribute to make a ``DataLoader`` anew.

    Args:
        name: name of the attribute, for which the caller's caller has asked.
    """
    return name in _REMADE and sys._getframe(2).f_globals.get("__name__") == _REMAKER


def around(loader: Any) -> DataLoader[Any]:
    """Return a ``DataLoader`` around a ``Loader``, which hands its batches out."""
    own = torch.Generator()  # the loader alone draws from the program's
    return DataLoader(BatchesToSkip(loader), None, collate_fn=_same, generator=own)


_REMAKER = "accelerate.data_loader"
"""Module that makes a ``DataLoader`` anew."""


def gradients() -> Any:
    """Return the state in which accelerate knows the loaders that are read; None if the
    program does not use it.
    """
    kind = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    return kind() if kind is not None and kind._shared_state else None


def _show_accelerate(
    read: AcceleratedIterator | None = None, without: AcceleratedIterator | None = None
) -> None:
    """Tell accelerate that an iterator is read, or is read no more."""
    state = gradients()
    if state is not None:
        known = state.dataloader_references
        # Those that were dropped are None, and so is the first, which stays.
        still = [one for one in known if one is not None and one is not without]
        state.dataloader_references = [None, *still, *([] if read is None else [read])]
