"""The iterator over a pass of a ``Loader``: it begins the pass at its first batch, and
knows its place in the pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import torch

from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.torch.devices import Copier
from zmqdata.torch.supplies import LoaderState, NextPass, Pass, Supply, short

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


class _Copied:
    """A batch on its way to its device, as an element that operations leave alone."""

    __slots__ = ("batch", "copying")

    def __init__(self, batch: Any, copying: Any) -> None:
        self.batch = batch
        self.copying = copying


class LoaderIterator:
    """An iterator over a pass of a ``Loader``. The pass begins with the first batch.

    Threads may share it: each batch goes to one of them, and all learn of the end.

    Args:
        draw: draws what torch draws when an iterator is made.
        begin: the loader's part of the beginning, which calls ``begin``.
        state: state from which the pass continues; None for a whole pass.

    Attributes:
        state: as the argument.
        epoch: number of the pass, once it has begun.
        elements: the batches as elements, once it has begun.
        is_begun: True if the pass has begun.
        is_over: True after the last batch.
        resumed: generators as they were when the pass continued from a state; None if
            it did not.
    """

    epoch: int
    elements: DatasetIterator
    _read: Pass

    def __init__(
        self,
        draw: Callable[[], NextPass],
        begin: Callable[[LoaderIterator], None],
        state: LoaderState | None,
    ) -> None:
        self._draw = draw
        self._begin: Callable[[LoaderIterator], None] | None = begin
        self._drawn: NextPass | None = None
        self.state = state
        self.is_begun = self.is_over = False
        self.resumed: bytes | None = None
        self._lock = threading.Lock()
        self._looks_back: Supply | None = None
        self._before: LoopPlace | None = None
        self._ahead: list[Any] = []

    @property
    def drawn(self) -> NextPass:
        """The pass before its first batch."""
        if self._drawn is None:
            self._drawn = self._draw()
        return self._drawn

    def begin(
        self,
        read: Pass,
        epoch: int,
        prefetch: int,
        copier: Copier,
        stream: DatasetIterator | None,
    ) -> None:
        """Begin the pass.

        Args:
            read: the pass.
            epoch: number of the pass.
            prefetch: number of batches to convert and copy ahead.
            copier: copies batches to their device.
            stream: elements to go on with; None: those of the pass.
        """
        self._read, self.epoch, self._count = read, epoch, read.first
        self._copier, self._prefetch = copier, prefetch
        self.elements = self._elements() if stream is None else stream
        self.is_begun = True

    def ensure_begun(self) -> None:
        """Begin the pass if it has not begun."""
        begin, self._begin = self._begin, None
        if begin is not None and not self.is_over:
            self.is_over = True  # unless nothing fails
            begin(self)
            self.is_over = False

    def _elements(self) -> DatasetIterator:
        """Return the elements of the pass, from its position on."""
        read, copier = self._read, self._copier
        batches = read.batches
        if not copier.is_idle:
            content = read.content
            batches = batches.map(lambda *element: _Copied(*copier.begin(content(_one(element)))))
            batches = batches.prefetch(self._prefetch)
        elements = _resumed(batches, read.position) if read.position else None
        if elements is not None and not read.is_next:
            return elements
        if elements is not None:
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
            if self._ahead:
                self._count += 1
                return self._ahead.pop()
            if self._read.rest is not None and self._count >= self._read.rest_at:
                next(self._read.rest, None)
            if self.is_over or self.is_full():
                self._end()
            if self._looks_back is not None:
                self._before = self._place(self._looks_back)
            return self._take()

    def _take(self) -> Any:
        """Return the next batch, and count it."""
        try:
            element = next(self.elements)
            if isinstance(element, _Copied):
                batch = self._copier.arrived(element.batch, element.copying)
            else:
                batch = self._read.content(element)
        except StopIteration:
            self._end()
        except Exception as error:
            if not getattr(error, "final", False):
                self._count += 1  # The error stands for a batch.
            raise
        self._count += 1
        return batch

    def has_batch(self, supply: Supply) -> bool:
        """Return True if the pass has another batch, which is kept for the loop."""
        with self._lock:
            self.ensure_begun()
            if self.is_full():
                return False
            self._before = self._place(supply)
            try:
                batch = self._take()
            except StopIteration:
                return False
            self._count -= 1
            self._ahead.append(batch)
            return True

    def is_full(self) -> bool:
        """Return True if all batches of the pass have been received."""
        return self.is_begun and self._read.count is not None and self._count >= self._read.count

    def _end(self) -> None:
        """Raise StopIteration, or the error for a pass that has too few batches."""
        is_first = not self.is_over
        self.is_over = True
        if is_first:
            if not self._read.is_endless:
                self.elements.close()
            if self._read.count is not None and self._count < self._read.count:
                raise short(self._read.count, self._count)
        raise StopIteration

    def look_back(self, supply: Supply) -> None:
        """Keep the place before the last batch from now on."""
        self._looks_back = supply

    def place(self, supply: Supply, ahead: int = 0) -> LoopPlace:
        """Return the place of the loop in the pass.

        Args:
            supply: the supply of the pass.
            ahead: number of the last batches that do not count as received, 0 or 1.

        Raises:
            FailedPreconditionError: the place before these batches is not known.
        """
        with self._lock:
            if not ahead:
                return self._place(supply)
            if ahead > 1 or self._before is None:
                raise FailedPreconditionError(
                    f"the training library has taken {ahead} batches for later steps, and the "
                    "place before them is not known. Pass `batches=` to the Loader, with the "
                    "number of batches of a pass: a library takes nothing ahead if it knows that"
                )
            return self._before

    def _place(self, supply: Supply) -> LoopPlace:
        if self._ahead:
            assert self._before is not None
            return self._before
        return LoopPlace(self._count, supply.position(self.elements, self._read, self._count))

    @property
    def is_endless(self) -> bool:
        """True if the next pass goes on where this one has ended."""
        return self._read.is_endless

    def source(self) -> str:
        """Return by what a state knows again what is read."""
        return self._read.source()

    @property
    def generators(self) -> bytes:
        """Generators of torch as they were when the pass began."""
        return self._read.generators

    @property
    def remainder(self) -> int:
        """As in the pass."""
        return self._read.remainder

    @property
    def is_padding(self) -> bool:
        """True if another consumer has had the last batch, too."""
        count, padding = self._read.count, self._read.padding
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


def _one(element: tuple[Any, ...]) -> Any:
    return element[0] if len(element) == 1 else element
