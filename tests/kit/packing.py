"""Tasks that pack or balance their elements with the package's own operations, in
simulated worlds.

The elements of a task come in the order in which their documents are complete in the
rows that come out, or batch by batch. So an element that an attempt loses, repeats or
places elsewhere breaks the laws of any world.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.kit.runner import Name, SimulatedRunner
from tests.kit.world import World
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations.balancing import Balance
from zmqdata.operations.packing import Pack


class Waiting(Exception):
    """Raised by a source whose next element needs splits that have not arrived."""

    final = True


BOS, EOS = 98, 99
"""Tokens put around each document."""


def tokens_of(name: Name) -> list[int]:
    """Return the tokens of a document."""
    return [*range(1 + (name[0] + 3 * name[1] + 5 * name[2]) % 13)]


@dataclass(frozen=True, kw_only=True)
class NamesOfRunner(Node):
    """The elements that a simulated runner makes, as documents."""

    runner: Any = field(repr=False)
    """The runner."""


@make_iterator.register(NamesOfRunner)
class NameIterator(ElementIterator):
    """Yields the elements of a simulated runner as documents."""

    def __init__(self, node: NamesOfRunner, context: Context) -> None:
        self._runner: PackingRunner = node.runner

    def __next__(self) -> Any:
        name = next(self._runner.source)
        if name is None:
            raise Waiting
        return {"tokens": np.array(tokens_of(name)), "name": np.array(name)}

    def state(self) -> Any:
        return self._runner.place

    def restore(self, state: Any) -> None:
        self._runner.place = state


class PackingRunner(SimulatedRunner):
    """Runner of a task that packs its elements. A state is that from before the row
    that came out last, and the number of its elements that were taken.

    Attributes:
        source: the elements before they are packed.
    """

    source: Iterator[Name | None]
    holds = True

    def _make(self) -> Iterator[Name | None]:
        self.source = super()._make()
        self._begin()
        return self._unpacked()

    def _begin(self) -> None:
        draw = random.Random(repr(replace(self.pipeline, healed=False)))  # equal in each attempt
        way = draw.choice(["first_fit", "first_fit", "next_fit", "concat"])
        node = Pack(
            inputs=(NamesOfRunner(runner=self),),
            lengths=(("tokens", draw.choice([4, 9, 30])),),
            bins=draw.choice([2, 5, 20]) if way == "first_fit" else 1,
            concat=way == "concat",
            overflow="split",
            max_sequences=draw.choice([None, None, 2]),
            pad=(0,),
            bos=(BOS,),
            eos=(EOS,),
            meta=("name",),
        )
        self._iterator = make_iterator(node, Context())
        self._row: tuple[Any, int] | None = None

    @property
    def place(self) -> list[int]:
        """The next element before it is packed."""
        return [self._at, self._started, self._given, self._repetition, self._position]

    @place.setter
    def place(self, place: list[int]) -> None:
        self._at, self._started, self._given, self._repetition, self._position = place
        self.source = super()._make()

    def _unpacked(self) -> Iterator[Name | None]:
        """Yield the documents that are complete, row by row, and None whenever the next
        row needs splits.
        """
        while True:
            before = self._iterator.state()
            try:
                row = next(self._iterator)
            except Waiting:
                yield None
                continue
            except StopIteration:
                return
            for taken, name in enumerate(self._complete(row), 1):
                self._row = before, taken
                yield name

    def _complete(self, row: Any) -> list[Name]:
        """Return the documents that are complete with a row."""
        return complete(row)

    def _mark(self) -> None:
        """Record nothing: the operation does."""

    def _state(self) -> tuple[Any, tuple[int, int], int] | None:
        if self._row is None:
            return None
        before, taken = self._row
        at, started, *_ = before[0][1]
        return [before, taken, self._came], (at, started), self._deciding.mark()[1]

    def _return_to(self, content: Any) -> None:
        before, taken, self._came = content
        self._begin()
        self._iterator.restore(before)
        self._names = self._unpacked()
        for _ in range(taken):
            assert next(self._names) is not None, "a state is told of splits not yet given"


def complete(row: dict[str, Any]) -> list[Name]:
    """Return the documents whose ends are in a row, after checking its tokens."""
    segments, ended = row["tokens_segment_ids"], []
    for number, found in enumerate(row["name"], 1):
        name: Any = tuple(found.tolist())
        mine, whole = segments == number, np.array([BOS, *tokens_of(name), EOS])
        assert (row["tokens"][mine] == whole[row["tokens_positions"][mine]]).all()
        if row["tokens"][mine][-1] == EOS:
            ended.append(name)
    return ended


class PackingWorld(World):
    """A simulated cluster whose tasks pack their elements."""

    make_runner = PackingRunner


class BalancingRunner(PackingRunner):
    """Runner of a task that balances its elements. A batch of one element is an element
    of its consumer.
    """

    def _begin(self) -> None:
        draw = random.Random(repr(replace(self.pipeline, healed=False)))  # equal in each attempt
        size = draw.choice([1, 1, 2, 3, None])
        node = Balance(
            inputs=(NamesOfRunner(runner=self),),
            num_consumers=self.definition.job.num_consumers or draw.choice([1, 2, 4]),
            cost="tokens",
            batch_size=size,
            max_cost=None if size else draw.choice([13.0, 8.0, 30.0]),
            oversize="error" if size else "alone",
            window=draw.choice([1, 2, 5]),
            in_lists=True,
        )
        self._iterator = make_iterator(node, Context(seed=1))
        self._row = None

    def _complete(self, row: Any) -> list[Name]:
        """Return the elements of a batch, after checking them."""
        names: list[Any] = [tuple(one["name"].tolist()) for one in row]
        for name, one in zip(names, row, strict=True):
            assert one["tokens"].tolist() == tokens_of(name)
        return names


class BalancingWorld(World):
    """A simulated cluster whose tasks balance their elements."""

    make_runner = BalancingRunner
