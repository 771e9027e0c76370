"""The part of a ``Loader`` by which accelerate learns where its loop stands, as from
its own loaders. accelerate is imported only if the program uses it.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from zmqdata.torch.reading import LoaderIterator


class AcceleratedIterator:
    """An iterator over a pass, from which accelerate learns of the end of the pass, as
    from its own loaders. It knows the iterator until the loop drops it.

    Args:
        iterator: the iterator.
    """

    remainder = 0
    """Number of samples that the last batch repeats, as accelerate asks for it."""

    def __init__(self, iterator: LoaderIterator) -> None:
        self._iterator = iterator
        self._is_shown = False

    @property
    def end_of_dataloader(self) -> bool:
        """True if the loop has the last batch of a pass whose length is known."""
        return self._iterator.is_full()

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
