"""The order of a pass of a ``DataLoader``: its samplers and generators run in the
training process, as in torch.

A state holds the generators as they were before the order was drawn, so that the order
can be drawn again.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice
from typing import Any
from weakref import WeakSet

import msgspec
import numpy as np
import torch
from msgspec.structs import replace
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from zmqdata.errors import InvalidArgumentError
from zmqdata.machine.threads import collection_rests

MOST_INDICES = 1 << 26
"""Most indices of a pass. A sampler that yields more has no end, or does not fit into
memory.
"""
_begun: WeakSet[DataLoader[Any]] = WeakSet()
"""Loaders that have drawn the seed of workers that live on."""


class BatchIndices(Sequence[Any]):
    """Indices of the items of each batch, compact if they are whole numbers.

    Args:
        batches: what the sampler yields for each batch: a list of indices, or a single
            index.

    >>> BatchIndices([[3, 1], [2]])[1]
    [2]
    """

    def __init__(self, batches: Sequence[Any]) -> None:
        self._others: Sequence[Any] | None = None
        self._ends: Any = None
        numbers = _whole(batches)
        if numbers is None and {*map(type, batches)} == {list}:
            numbers = _whole([*chain.from_iterable(batches)])
            self._ends = np.cumsum([0, *map(len, batches)])
        if numbers is None:
            self._others = batches
        self._numbers = numbers

    def __len__(self) -> int:
        if self._others is not None:
            return len(self._others)
        return len(self._numbers if self._ends is None else self._ends[1:])

    def __getitem__(self, number: Any) -> Any:
        if self._others is not None:
            return self._others[number]
        if self._ends is None:
            return int(self._numbers[number])
        first, stop = self._ends[number], self._ends[number + 1]
        return self._numbers[first:stop].tolist()

    @cached_property
    def digest(self) -> str:
        """Hash of the indices, by which a state knows its order again. Of indices that
        are no whole numbers, their number.
        """
        if self._others is not None:
            return str(len(self._others))
        found = hashlib.blake2b(self._numbers.tobytes(), digest_size=8)
        if self._ends is not None:
            found.update(np.asarray(self._ends, np.int64).tobytes())
        return found.hexdigest()


def _whole(values: Sequence[Any]) -> Any:
    """Return values as an array of 64-bit numbers; None if one is no such number.

    A pass may have millions of indices, so no Python code runs for each.
    """
    if not {*map(type, values)} <= {int}:
        return None
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return None


@dataclass
class Draw:
    """The numbers that torch draws when a pass begins."""

    seed: int
    """Seed of the workers."""
    order: BatchIndices | None
    """Order of the items; None for an iterable-style dataset."""
    rest: Iterator[Any] | None = None
    """The sampler behind the order if it draws once more when it ends."""
    rest_at: int = 0
    """Number of the batch for which the sampler is asked for its end."""

    @property
    def digest(self) -> str:
        """Hash of the order; "" for an iterable-style dataset."""
        return "" if self.order is None else self.order.digest

    def is_other(self, digest: str) -> bool:
        """Return True if a hash is that of another order; "" is that of any."""
        return "" not in (digest, self.digest) and digest != self.digest


class PassDraw:
    """The draws of a pass, in the turns in which torch makes them. An iterator draws
    the seed. With processes it draws the order, too, and otherwise the first batch
    does.

    Args:
        loader: the loader.
        batches: most batches to draw; None for all.
        seed: seed that was drawn already; None to draw it.
        at_once: True to draw the order now.

    Raises:
        InvalidArgumentError: the sampler does not end.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        batches: int | None,
        seed: int | None,
        at_once: bool = False,
    ) -> None:
        self._loader, self._batches, self._random = loader, batches, _random(loader)
        self._rest_at = 0
        before = generators(loader)
        is_stream = isinstance(loader.dataset, IterableDataset)
        self._indices = None if is_stream else iter(self._random or loader._index_sampler)
        # Some samplers draw in __iter__, others when they are asked for an index.
        is_early = at_once or (
            not is_stream and (loader.num_workers > 0 or generators(loader) != before)
        )
        self._before = replace(before, seed=seed) if is_early else None
        self._seed = _seed(loader) if seed is None else seed
        self._drawn = self._order() if is_early else None

    @property
    def is_over(self) -> bool:
        """True if the order is drawn."""
        return self._drawn is not None

    def generators(self) -> Generators:
        """Return the states of the generators from which the pass can be drawn again,
        with the seed if they are those behind its draw.
        """
        return self._before or replace(generators(self._loader), seed=self._seed)

    def finish(self) -> Draw:
        """Draw what is left, and return all of it."""
        order = self._order() if self._drawn is None else self._drawn
        if self._random is None:
            return Draw(self._seed, order)
        return Draw(self._seed, order, self._indices, self._rest_at)

    def _order(self) -> BatchIndices | None:
        loader, indices = self._loader, self._indices
        if indices is None:
            return None
        with collection_rests():  # thousands of lists are created, and none is garbage
            if self._random is None:
                return BatchIndices(_drawn(loader, indices, self._batches))
            sampler, found = loader._index_sampler, [*islice(indices, len(self._random))]
            self._rest_at = len(found)
            if sampler is not self._random:
                size = sampler.batch_size
                self._rest_at //= size
                found = [found[first : first + size] for first in range(0, len(found), size)]
            order = BatchIndices(found[: len(sampler)][: self._batches])
        if asked_ahead(loader) > self._rest_at:
            next(indices, None)
        return order


def draw(loader: DataLoader[Any], batches: int | None, seed: int | None = None) -> Draw:
    """Draw the seed and then the order of a pass at once, as torch does.

    Args:
        loader: the loader.
        batches: as for ``PassDraw``.
        seed: as for ``PassDraw``.
    """
    return PassDraw(loader, batches, seed).finish()


def asked_ahead(loader: DataLoader[Any]) -> int:
    """Return the number of batches whose indices processes of torch ask for before the
    loop has its first batch.
    """
    return int(loader.num_workers * (loader.prefetch_factor or 0))


def _random(loader: DataLoader[Any]) -> Any:
    """Return the sampler if it draws a permutation more when it ends, which a loop that
    breaks leaves out. Others draw that from a generator of their own.
    """
    sampler: Any = loader._index_sampler
    sampler = sampler.sampler if type(sampler) is BatchSampler else sampler
    is_random = type(sampler) is RandomSampler and not sampler.replacement
    return sampler if is_random and sampler.generator is not None else None


def _seed(loader: DataLoader[Any]) -> int:
    """Draw the seed of the workers."""
    source = torch.default_generator if loader.generator is None else loader.generator
    before = source.get_state() if _lives_on(loader) else None
    number = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    if before is not None:
        # torch draws no other seed for workers that live on. Its place in the sequence
        # of draws belongs to the sampler.
        source.set_state(before)
    if loader.persistent_workers:
        _begun.add(loader)
    return int(number.item())


def _lives_on(loader: DataLoader[Any]) -> bool:
    """Return True if torch would begin another pass with the workers of the last."""
    return loader.persistent_workers and (loader in _begun or loader._iterator is not None)


def _drawn(loader: DataLoader[Any], indices: Iterator[Any], batches: int | None) -> list[Any]:
    found: list[Any] = []
    room = MOST_INDICES
    # Without `for`, which would call __iter__ again: some samplers begin anew in it.
    for number in count():
        batch = next(indices, _END) if batches is None or number < batches else _END
        if batch is _END:
            return found
        # A sampler may yield the same list again, with other content.
        found.append(batch.copy() if type(batch) is list else batch)
        room -= max(1, len(batch)) if isinstance(batch, (list, tuple)) else 1
        if room < 0:
            break
    sampler = type(loader._index_sampler).__name__
    raise InvalidArgumentError(
        f"`{sampler}` yielded more than {MOST_INDICES} indices in one pass. The order of a "
        "pass is drawn when it begins, so a sampler has to end. Pass `batches=` with the "
        "number of batches of a pass"
    )


_END = object()


# ------------------------------------------------------------------ generators


class Generators(msgspec.Struct, frozen=True):
    """States of the generators from which an order may be drawn."""

    torch: bytes
    """Generator behind the functions of torch."""
    numpy: tuple[str, bytes, int, int, float]
    """Generator behind the functions of ``numpy.random``."""
    python: tuple[int, tuple[int, ...], float | None]
    """Generator behind the functions of ``random``."""
    own: list[bytes | dict[str, Any]] = []
    """Generators that the loader and its samplers hold, in the order in which
    ``_own_generators`` finds them.
    """
    epochs: list[int] = []
    """The epochs of its samplers, in the same manner."""
    lives_on: bool = False
    """True if the loader has drawn the seed of workers that live on."""
    seed: int | None = None
    """Seed of the pass if it was drawn before these states; None if not."""


def generators(loader: DataLoader[Any]) -> Generators:
    """Return the states of all generators from which the next order may be drawn."""
    name, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, spare = random.getstate()
    return Generators(
        torch=_bytes_of(torch.get_rng_state()),
        numpy=(str(name), np.asarray(keys).tobytes(), int(place), int(has_gauss), float(gauss)),
        python=(version, words, spare),
        own=[_state_of(one) for one in _own_generators(loader)],
        epochs=[one.epoch for one in _with_epochs(loader)],
        lives_on=_lives_on(loader),
    )


def restore_global(states: Generators) -> None:
    """Set the generators behind the functions of torch, numpy and ``random``."""
    name, keys, place, has_gauss, gauss = states.numpy
    version, words, spare = states.python
    torch.set_rng_state(_tensor_of(states.torch))
    np.random.set_state((name, np.frombuffer(keys, np.uint32), place, has_gauss, gauss))
    random.setstate((version, tuple(words), spare))


def restore(loader: DataLoader[Any], states: Generators) -> None:
    """Set all generators from which the next order of a loader may be drawn.

    Raises:
        InvalidArgumentError: the loader holds other generators than the state.
    """
    own, epochs = _own_generators(loader), _with_epochs(loader)
    kinds = [_kind(_state_of(one)) for one in own]
    if kinds != [_kind(one) for one in states.own] or len(epochs) != len(states.epochs):
        raise InvalidArgumentError(
            f"the state has {len(states.own)} generators and {len(states.epochs)} epochs of "
            f"samplers, and this loader has {len(own)} and {len(epochs)}. The state belongs to a "
            "loader with another sampler or generator"
        )
    restore_global(states)
    for generator, state in zip(own, states.own, strict=True):
        _set_state(generator, state)
    for sampler, epoch in zip(epochs, states.epochs, strict=True):
        sampler.epoch = epoch
    (_begun.add if states.lives_on else _begun.discard)(loader)


def samplers(loader: DataLoader[Any]) -> list[Any]:
    """Return the samplers of a loader, and those that they wrap."""
    found: list[Any] = []
    waiting = [loader.batch_sampler, loader.sampler]
    while waiting:
        one = waiting.pop(0)
        if one is None or any(one is other for other in found):
            continue
        found.append(one)
        waiting += [value for name, value in _attributes(one).items() if _is_sampler(name, value)]
    return found


def takes_epoch(part: Any) -> bool:
    """Return True for a sampler or a dataset that depends on the number of the pass."""
    return callable(getattr(part, "set_epoch", None))


def _is_sampler(name: str, value: Any) -> bool:
    """Return True for a sampler that another sampler wraps. Any iterable may be one."""
    return name in ("sampler", "batch_sampler") or isinstance(value, torch.utils.data.Sampler)


def _attributes(value: Any) -> dict[str, Any]:
    return getattr(value, "__dict__", {})


def _own_generators(loader: DataLoader[Any]) -> list[Any]:
    kinds = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
    holders: Iterable[Any] = samplers(loader)
    values = [value for one in holders for value in _attributes(one).values()]
    found: list[Any] = []
    for value in [loader.generator, *values]:
        if isinstance(value, kinds) and not any(value is other for other in found):
            found.append(value)
    return found


def _with_epochs(loader: DataLoader[Any]) -> list[Any]:
    return [one for one in samplers(loader) if type(_attributes(one).get("epoch")) is int]


def _kind(state: bytes | dict[str, Any]) -> str:
    return "torch" if isinstance(state, bytes) else next(iter(state))


def _state_of(generator: Any) -> bytes | dict[str, Any]:
    if isinstance(generator, torch.Generator):
        return _bytes_of(generator.get_state())
    if isinstance(generator, np.random.Generator):
        return {"bits": msgspec.json.encode(generator.bit_generator.state, enc_hook=_listed)}
    if isinstance(generator, np.random.RandomState):
        return {"legacy": msgspec.json.encode(generator.get_state(legacy=False), enc_hook=_listed)}
    if isinstance(generator, random.SystemRandom):
        raise InvalidArgumentError(
            "a sampler draws from `random.SystemRandom`, whose state cannot be stored, so no "
            "pass could be resumed. Give it a `random.Random` with a seed"
        )
    return {"python": list(generator.getstate())}


def _listed(value: Any) -> Any:
    return value.tolist()


def _set_state(generator: Any, state: bytes | dict[str, Any]) -> None:
    if isinstance(state, bytes):
        generator.set_state(_tensor_of(state))
    elif "bits" in state:
        generator.bit_generator.state = msgspec.json.decode(state["bits"])
    elif "legacy" in state:
        generator.set_state(msgspec.json.decode(state["legacy"]))
    else:
        version, words, spare = state["python"]
        generator.setstate((version, tuple(words), spare))


def _bytes_of(state: torch.Tensor) -> bytes:
    return bytes(state.numpy())


def _tensor_of(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
