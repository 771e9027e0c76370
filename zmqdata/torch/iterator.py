"""The iterator over a single pass of a ``Loader``: it begins the pass at its first
batch, and knows its place in the pass.

The sequence of passes is in ``passes``, and what a pass consists of in ``supplies``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import torch

from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.torch.devices import Copier
from zmqdata.torch.supplies import LoaderState, NextPass, Pass, Supply, too_few

SPAN = "zmqdata.next"
"""Name under which torch's profiler shows the wait of a loop for a batch."""


class LoopPlace(NamedTuple):
    """A place in a pass, as far as a state knows it."""

    batches: int
    """Number of batches of the pass that were received."""
    position: bytes
    """Position in the pass."""
    is_next: bool = False
    """True if the position is the end of the pass before."""


class _CopiedBatch:
    """A batch that is being copied to its device. Operations leave it alone."""

    __slots__ = ("batch", "copying")

    def __init__(self, batch: Any, copying: Any) -> None:
        self.batch = batch
        self.copying = copying


class LoaderIterator:
    """An iterator over a pass of a ``Loader``. The pass begins with the first batch.

    Threads may share it: each batch goes to one of them, and all learn of the end.

    Args:
        supply: draws the pass.
        begin: the loader's part of the beginning, which calls ``begin``.
        state: state from which the pass continues; None for a whole pass.

    Attributes:
        state: as the argument.
        epoch: number of the pass, once it has begun.
        elements: the batches as elements, once it has begun.
        pass_: the pass, once it has begun.
        is_begun: True if the pass has begun.
        is_over: True after the last batch.
        resumed: generators as they were when the pass continued from a state; None if
            it did not.
        keeps_previous_place: True to keep the place before the last batch.
    """

    epoch: int
    elements: DatasetIterator
    pass_: Pass

    def __init__(
        self, supply: Supply, begin: Callable[[LoaderIterator], None], state: LoaderState | None
    ) -> None:
        self._supply = supply
        self._begin: Callable[[LoaderIterator], None] | None = begin
        self.state = state
        self.is_begun = self.is_over = self.keeps_previous_place = False
        self.resumed: bytes | None = None
        self._lock = threading.Lock()
        self._previous_place: LoopPlace | None = None
        self._prefetched: list[Any] = []

    @cached_property
    def drawn(self) -> NextPass:
        """The pass before its first batch, with what torch draws when an iterator is
        made.
        """
        supply, state = self._supply, self.state
        return supply.next_pass() if state is None else supply.resume(state)

    def draw(self) -> None:
        """Draw the pass now. Note where a pass that continues leaves the generators."""
        if self.drawn and self.state is not None:
            self.resumed = self._supply.present()

    def begin(
        self, pass_: Pass, epoch: int, prefetch: int, copier: Copier, stream: DatasetIterator | None
    ) -> None:
        """Begin the pass.

        Args:
            pass_: the pass.
            epoch: number of the pass.
            prefetch: number of batches to convert and copy ahead.
            copier: copies batches to their device.
            stream: elements to go on with; None: those of the pass.
        """
        self.pass_, self.epoch, self._count = pass_, epoch, pass_.first
        self._copier, self._prefetch = copier, prefetch
        self.elements = self._elements() if stream is None else stream
        self.is_begun = True

    def ensure_begun(self) -> None:
        """Begin the pass if it has not begun."""
        begin, self._begin = self._begin, None
        if begin is not None and not self.is_over:
            self.is_over = True  # stays true if the beginning fails
            begin(self)
            self.is_over = False

    def _elements(self) -> DatasetIterator:
        """Return the elements of the pass, from its position on."""
        pass_, copier = self.pass_, self._copier
        batches = pass_.batches
        if not copier.is_idle:
            content = pass_.content

            def copied(*element: Any) -> _CopiedBatch:
                batch = content(element[0] if len(element) == 1 else element)
                return _CopiedBatch(*copier.begin(batch))

            batches = batches.map(copied).prefetch(self._prefetch)
        if pass_.position:
            elements = _resumed(batches, pass_.position)
            if not pass_.is_next:
                return elements
            # The end of the pass before says which repetition of which job follows.
            elements.close()
        # As in a program that was not interrupted:
        batches._iterations = self.epoch
        return iter(batches)

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        with torch.autograd.profiler.record_function(SPAN), self._lock:
            self.ensure_begun()
            if not self.is_begun:  # it was closed, or its beginning has failed
                raise StopIteration
            if self._prefetched:
                self._count += 1
                return self._prefetched.pop()
            if self.pass_.rest is not None and self._count >= self.pass_.rest_at:
                next(self.pass_.rest, None)
            if self.is_over or self.is_full():
                self._end()
            if self.keeps_previous_place:
                self._previous_place = self._place()
            return self._receive()

    def _receive(self) -> Any:
        """Return the next batch, and count it."""
        try:
            element = next(self.elements)
            if isinstance(element, _CopiedBatch):
                batch = self._copier.arrived(element.batch, element.copying)
            else:
                batch = self.pass_.content(element)
        except StopIteration:
            self._end()
        except Exception as error:
            if not getattr(error, "final", False):
                self._count += 1  # The error stands for a batch.
            raise
        self._count += 1
        return batch

    def has_batch(self) -> bool:
        """Return True if the pass has another batch, and prefetch it for the loop."""
        with self._lock:
            self.ensure_begun()
            if self.is_full():
                return False
            self._previous_place = self._place()
            try:
                batch = self._receive()
            except StopIteration:
                return False
            self._count -= 1
            self._prefetched.append(batch)
            return True

    def is_full(self) -> bool:
        """Return True if all batches of the pass have been received."""
        return self.is_begun and self.pass_.count is not None and self._count >= self.pass_.count

    def _end(self) -> None:
        """Raise StopIteration, or the error for a pass that has too few batches."""
        is_first = not self.is_over
        self.is_over = True
        if is_first:
            if not self.pass_.is_endless:
                self.elements.close()
            if self.pass_.count is not None and self._count < self.pass_.count:
                raise too_few(self.pass_.count, self._count)
        raise StopIteration

    def place(self, prefetched: int = 0) -> LoopPlace:
        """Return the place of the loop in the pass.

        Args:
            prefetched: number of the last batches that do not count as received, 0 or
                1.

        Raises:
            FailedPreconditionError: the place before these batches is not known.
        """
        with self._lock:
            if not prefetched:
                return self._place()
            if prefetched > 1 or self._previous_place is None:
                raise FailedPreconditionError(
                    f"the training library has taken {prefetched} batches for later steps, and the "
                    "place before them is not known. Pass `batches=` to the Loader, with the "
                    "number of batches of a pass: a library takes nothing ahead if it knows that"
                )
            return self._previous_place

    def _place(self) -> LoopPlace:
        if self._prefetched:
            assert self._previous_place is not None
            return self._previous_place
        position = self._supply.position(self.elements, self.pass_, self._count)
        return LoopPlace(self._count, position)

    @property
    def is_padding(self) -> bool:
        """True if another consumer has received the last batch, too."""
        count, padding = self.pass_.count, self.pass_.padding
        if padding is None:
            raise FailedPreconditionError(
                "which batches of a Dataset repeat others is not known with `finite='pad'`. Mark "
                "them by a number in the elements, such as that of `enumerate()`, or wrap a "
                "DataLoader by `distribute_dataloader`"
            )
        return count is not None and self._count > count - padding

    def close(self) -> None:
        """End the pass, and release its threads and connections. Idempotent."""
        self.is_over = True
        if self.is_begun:
            self.elements.close()


def _resumed(batches: Dataset, position: bytes) -> DatasetIterator:
    """Return an iterator that continues at a position.

    Raises:
        FailedPreconditionError: the position belongs to another pipeline.
    """
    try:
        return batches._resumed(msgspec.msgpack.decode(position))
    except InvalidArgumentError as error:
        raise FailedPreconditionError(
            "this state is of a loader over other operations. A loader with `device=` or "
            "`pin_memory=` has operations of its own: load its state into a loader that has "
            f"one of them, too, such as `device='cpu'`. {error}"
        ) from None
