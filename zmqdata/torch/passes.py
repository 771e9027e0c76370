"""The passes of a ``Loader``, one after another: which pass the loop reads, which one
began early, and from which state the next one continues.

The iterator over a single pass is in ``iterator``, and what users call in ``loader``.
"""

from __future__ import annotations

import weakref
from typing import Any

import msgspec
import torch

from zmqdata.dataset import DatasetIterator
from zmqdata.errors import FailedPreconditionError
from zmqdata.torch.devices import Copier
from zmqdata.torch.iterator import LoaderIterator, LoopPlace
from zmqdata.torch.ranks import consumer_of
from zmqdata.torch.supplies import VERSION, LoaderState, Supply, supply_for


class PassSequence:
    """The passes of a ``Loader``. A copy has no iterators.

    Args:
        supply: begins the passes.
        device: device on which batches arrive; None leaves them in main memory.
        pin_memory: True to copy batches into pinned memory.
        prefetch: number of batches to convert and copy ahead.

    Attributes:
        latest_supply: the supply for the rank that this process last was.
        current: iterator over the last pass that has begun; None if none has.
        loaded: state from which the next pass continues; None for a whole pass.
    """

    def __init__(
        self, supply: Supply, device: torch.device | None, pin_memory: bool, prefetch: int
    ) -> None:
        self.latest_supply = supply
        self._device, self._pin_memory, self._prefetch = device, pin_memory, prefetch
        self._epoch = 0
        self.loaded: LoaderState | None = None
        self._skips_empty = False
        self._reset_iterators()

    def _reset_iterators(self) -> None:
        self._started: LoaderIterator | None = None
        self._started_from: LoaderState | None = None
        self.current: LoaderIterator | None = None
        self._next: weakref.ref[LoaderIterator] | None = None  # its pass may not have begun
        self._stream: DatasetIterator | None = None  # of a dataset without an end
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs. Iterators stay where they are."""
        left_out = ("_started", "current", "_next", "_stream", "_iterators")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset_iterators()

    def supply(self) -> Supply:
        """Return the supply of batches for the rank that this process is now."""
        supply = self.latest_supply
        if supply.consumer.is_alone and not supply.consumer.is_given:
            consumer = consumer_of(None, None)
            if not consumer.is_alone:  # its launcher has made it a rank
                self._drop_started()
                self.current = self._next = self._stream = None
                self.latest_supply = supply = supply_for(supply, consumer)
        return supply

    # --- iterators

    def make_iterator(self) -> LoaderIterator:
        """Return an iterator over the next pass that has drawn nothing."""
        iterator = LoaderIterator(self.supply(), self._begin, self.loaded)
        self._iterators.add(iterator)
        return iterator

    def _draw_iterator(self) -> LoaderIterator:
        """Return an iterator over the next pass, at the cost that it has in torch."""
        iterator = self.make_iterator()
        iterator.draw()
        return iterator

    def next_iterator(self) -> LoaderIterator:
        """Return the iterator for the next loop, over the pass that ``start`` has begun
        if there is one.
        """
        self.supply()  # drops a pass that began before this process was a rank
        iterator, self._started = self._started or self._draw_iterator(), None
        if self._skips_empty and iterator.resumed is not None and not iterator.has_batch():
            iterator = self._draw_iterator()
        self._skips_empty = False
        self._next = weakref.ref(iterator)
        if iterator.is_begun:
            self.current = iterator
        return iterator

    def newest_iterator(self) -> LoaderIterator | None:
        """Return the iterator that the loop has, whose pass may not have begun."""
        iterator = None if self._next is None else self._next()
        return self.current if iterator is None else iterator

    def start(self) -> LoaderIterator:
        """Begin the next pass, and return the iterator that the next loop gets."""
        if self._started is None:
            self._started_from = self.loaded
            self._started = self._draw_iterator()
            self._started.ensure_begun()
        return self._started

    def _begin(self, iterator: LoaderIterator) -> None:
        """Begin the pass of an iterator."""
        state = iterator.state
        epoch = self._epoch if state is None else state.epoch
        pass_ = iterator.drawn.begin()
        stream = self._stream if pass_.is_endless and state is None else None
        copier = Copier(self._device, self._pin_memory)
        iterator.begin(pass_, epoch, self._prefetch, copier, stream)
        self._stream = iterator.elements if pass_.is_endless else None
        self._epoch = epoch + 1
        if state is self.loaded:
            self.loaded = None
        if iterator is not self._started:
            self.current = iterator

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass, for samplers and datasets that draw by it.

        Args:
            epoch: number of the pass, from 0.
        """
        supply, started = self.supply(), self._started
        is_same = started is not None and started.epoch == epoch
        if not (is_same and supply.knows_epoch(self._started_from is not None)):
            self._drop_started()
            if self.loaded is None or self.loaded.epoch != epoch:
                self._epoch = epoch
            # Otherwise the state knows this pass, and only the dataset has to be told.
        supply.set_epoch(epoch)

    def _drop_started(self) -> None:
        """End a pass that ``start`` has begun and no loop has asked for. The next pass
        begins at the same place.
        """
        if self._started is not None:
            if not self._started.pass_.is_endless:  # the stream goes on
                self._started.close()
            self._epoch, self.loaded = self._started.epoch, self._started_from
            self._started = None

    def close(self) -> None:
        """End all iterators. Idempotent."""
        self._drop_started()
        for iterator in list(self._iterators):
            iterator.close()

    # --- states

    def state(self, prefetched: int = 0, is_over: bool = False) -> dict[str, Any]:
        """Return the state of the loop: behind the last batch that it has received, or
        at the beginning of the next pass.

        Args:
            prefetched: as for ``Loader.trainer_state``.
            is_over: as for ``Loader.trainer_state``.
        """
        supply = self.supply()
        iterator = newest = self.newest_iterator()
        if iterator is None or not iterator.is_begun or iterator.is_over or is_over:
            iterator, prefetched = self._started, 0
        if iterator is not None:
            pass_, place = iterator.pass_, iterator.place(prefetched)
            return self._state(iterator.epoch, place, pass_.source(), pass_.generators)
        if self.loaded is not None:
            return dict(msgspec.to_builtins(self.loaded))
        drawn = None if newest is None or newest.is_begun else newest.drawn
        place, last = LoopPlace(0, b""), self.current
        if last is not None and supply.is_continued:
            place = LoopPlace(0, last.place().position, is_next=not last.pass_.is_endless)
        generators = drawn.generators() if drawn else supply.present()
        return self._state(self._epoch, place, "", generators)

    def _state(
        self, epoch: int, place: LoopPlace, source: str, generators: bytes
    ) -> dict[str, Any]:
        supply = self.supply()
        state = LoaderState(
            version=VERSION,
            kind=supply.name,
            epoch=epoch,
            batches=place.batches,
            world=supply.consumer.count,
            position=place.position,
            is_next=place.is_next,
            source=source,
            generators=generators,
            ranks=supply.rank_states(generators, source),
        )
        return dict(msgspec.to_builtins(state))

    def load(self, state: LoaderState, skips_empty: bool = False) -> None:
        """Continue with the next iterator from a state.

        Args:
            state: the state.
            skips_empty: True to continue with the pass behind it if the state was taken
                behind the last batch of its pass.

        Raises:
            FailedPreconditionError: it is a state of another kind of loader, or of
                another dataset.
        """
        supply = self.supply()
        if state.kind != supply.name:
            raise FailedPreconditionError(
                f"this state is of a loader of kind {state.kind!r}, and this loader is of kind "
                f"{supply.name!r}: it reads something else"
            )
        supply.check(state)
        self._drop_started()
        self.current = self._next = None
        self.loaded = state
        self._skips_empty = skips_empty

    def settle(self) -> None:
        """Set the global generators as they were when the pass continued."""
        newest = self.newest_iterator()
        if newest is not None and newest.resumed is not None:
            self.supply().settle(newest.resumed)
