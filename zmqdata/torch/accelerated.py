"""The part of a ``Loader`` by which accelerate learns where its loop stands, as from
its own loaders. accelerate is imported only if the program uses it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset

from zmqdata.torch.reading import LoaderIterator


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


_AROUND: dict[str, Callable[[Any], Any]] = {
    "dataset": BatchesToSkip,
    "collate_fn": lambda loader: _same,
    # The seed of a loader around another one is nobody's.
    "generator": lambda loader: torch.Generator(),
    "num_workers": lambda loader: 0,
    "pin_memory": lambda loader: False,
    "drop_last": lambda loader: False,
    "batch_size": lambda loader: None,
    "prefetch_factor": lambda loader: None,
    "worker_init_fn": lambda loader: None,
}


def around(name: str) -> Callable[[Any], Any] | None:
    """Return a function of a loader for the value of an attribute, if accelerate asks
    for it to make a ``DataLoader`` anew. It makes one around the loader with it. None:
    the attribute has its own value.

    Args:
        name: name of the attribute, for which the caller's caller has asked.
    """
    if name not in _AROUND or sys._getframe(2).f_globals.get("__name__") != _REMAKER:
        return None
    return _AROUND[name]


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
