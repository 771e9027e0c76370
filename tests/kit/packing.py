"""Tasks that pack, balance or mix their elements with the package's own operations, in
simulated worlds.

The elements of a task come in the order in which their documents are complete in the
rows that come out, or batch by batch. So an element that an attempt loses, repeats or
places elsewhere breaks the laws of any world.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from tests.kit.runner import Name, SimulatedRunner
from tests.kit.scenario import ANOTHER
from tests.kit.world import World
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.states import Courses
from zmqdata.nodes.base import Node
from zmqdata.operations.balancing import Balance
from zmqdata.operations.mixing import Mix
from zmqdata.operations.packing import Pack
from zmqdata.operations.schedules import DueChoices, weights_text
from zmqdata.operations.shuffle import Shuffle
from zmqdata.splits import IndexSplits, Split, SplitSource
from zmqdata.worker.tasks.ledger import decisions_needed


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


# --- mixing: split ``i`` belongs to dataset ``i % n``, which yields each element once.
# All datasets of a task read the same splits, each from a place of its own. A cluster
# in which a job resumes has other weights.

Place = list[int]
"""The next element of a dataset, before it is mixed."""


@dataclass(frozen=True, kw_only=True)
class PartOfRunner(Node):
    """The elements of a simulated runner that belong to a dataset."""

    runner: Any = field(repr=False)
    """The runner."""
    number: int
    """Number of the dataset."""

    split_source: ClassVar[SplitSource] = IndexSplits(None)


class OtherSplits:
    """Split provider of a dataset of which other tasks may have had all splits."""

    def next_split(self) -> Split | None:
        """Return None: the runner has the splits."""
        return None

    def reset(self) -> None:
        """Do nothing."""

    def state(self) -> Any:
        """Return a number, because it has no place."""
        return 0

    def restore(self, state: Any) -> None:
        """Do nothing."""


@make_iterator.register(PartOfRunner)
class PartIterator(ElementIterator):
    """Yields the names of the elements of a dataset."""

    def __init__(self, node: PartOfRunner, context: Context) -> None:
        self._runner: MixingRunner = node.runner
        self._number = node.number

    def __next__(self) -> Any:
        return np.array(self._runner.pull(self._number))

    def state(self) -> Any:
        return self._runner.places[self._number]

    def restore(self, state: Any) -> None:
        self._runner.go_to(self._number, state)


class MixingRunner(SimulatedRunner):
    """Runner of a task that mixes its elements, and may shuffle the mixture.

    Attributes:
        places: the place of each dataset.
    """

    holds = True
    reweights = False
    """True if the weights differ from those of a first cluster."""

    def _make(self) -> Iterator[Name | None]:
        self._mixture: ElementIterator | None = None
        self._top: Place = [self._base, 0, 0, 0, 0]
        self._courses = Courses(is_replaying=self._is_replaying)
        return self._mixed()

    def _is_replaying(self) -> bool:
        """Return False from the element on that no earlier attempt determines. It is
        asked if the weights differ.
        """
        known, states = self.definition, [one.number for one in self.definition.states]
        stops = [stop for _, stop in known.skip]
        if self.next_number < max([0, *stops, *states, *known.passed]):
            return True
        self.free = self.next_number if self.free is None else self.free
        return False

    def _begin(self, state: Any = None) -> None:
        draw = random.Random(repr(replace(self.pipeline, healed=False)))  # equal in each attempt
        count = draw.choice([1, 2, 3, 5])
        start = [self._base, 0, 0, 0, 0]
        self.places: list[Place] = [start] * count
        self._parts: list[Iterator[Name | None]] = [iter(())] * count
        for number in range(count):
            self.go_to(number, start)
        drawn = [
            [(0, self._weights(draw, count)), (draw.choice([5, 30]), self._weights(draw, count))]
            for _ in range(2)
        ]
        given = drawn[self.reweights][: draw.choice([1, 2])]
        choices = DueChoices(weights=tuple(given), seed=draw.randint(0, 9), reweight=self.reweights)
        mix: Node = Mix(
            inputs=tuple(PartOfRunner(runner=self, number=number) for number in range(count)),
            choices=choices,
            stop="once",
            names=tuple("abcde"[:count]),
        )
        size = draw.choice([1, 1, 4])
        node = mix if size == 1 else Shuffle(inputs=(mix,), buffer_size=size, seed=1)
        providers = tuple(OtherSplits() for _ in range(count))
        context = Context(deciding=self._deciding, courses=self._courses, providers=providers)
        self._mixture = make_iterator(node, context)
        if state is not None:
            self._mixture.restore(state)
        elif self.definition.first_decision:
            # A task that owes a rest alone may be made from anywhere, without the
            # decisions that name its weights.
            course = self._courses.of((count,) if size == 1 else (0, count))
            course.merge([[0, 0, 0, weights_text(tuple(drawn[0]))]])
        self._go_furthest()

    @staticmethod
    def _weights(draw: random.Random, count: int) -> tuple[int, ...]:
        return tuple(draw.choice([1, 2, 7]) for _ in range(count))

    def go_to(self, number: int, place: Place) -> None:
        """Let a dataset continue at a place."""
        self.places[number] = place
        self._at, self._started, self._given, self._repetition, self._position = place
        self._parts[number] = super()._make()

    def pull(self, number: int) -> Name:
        """Return the next element of a dataset."""
        self._at, self._started, self._given, self._repetition, self._position = self.places[number]
        try:
            for name in self._parts[number]:
                if name is None:
                    raise Waiting
                if name[1] % len(self.places) == number:
                    return name
            raise StopIteration
        finally:
            place = [self._at, self._started, self._given, self._repetition, self._position]
            self.places[number] = place
            self._go_furthest()

    def _go_furthest(self) -> None:
        """Be at the furthest place that this attempt has reached: the splits after it
        can be returned.
        """
        self._top = max([self._top, *self.places], key=lambda one: one[:3])
        self._at, self._started, self._given, self._repetition, self._position = self._top

    def _mixed(self) -> Iterator[Name | None]:
        """Yield the elements, and None whenever the next element needs splits. It is
        chosen anew then.
        """
        if self._mixture is None:
            self._begin()
        while True:
            assert self._mixture is not None
            before = self._mixture.state()
            try:
                name: Any = tuple(next(self._mixture).tolist())
            except Waiting:
                self._begin(before)
                yield None
            except StopIteration:
                return
            else:
                yield name

    def _mark(self) -> None:
        """Record nothing: the operation does."""

    def _state(self) -> tuple[Any, tuple[int, int], int] | None:
        if self._mixture is None:
            return None
        state = self._mixture.state()
        needs = min(self._needs(state))
        decided = min(decisions_needed(state), self._deciding.mark()[1])
        return [state, self._came], needs, decided

    def _needs(self, state: Any) -> Iterator[tuple[int, int]]:
        """Yield the splits from which the datasets of a state go on."""
        waiting = [state]
        while waiting:
            one = waiting.pop()
            if isinstance(one, list):
                if len(one) == 4 and isinstance(one[1], list) and len(one[1]) == 5:
                    yield one[1][0], one[1][1]
                else:
                    waiting += one
        yield max((place[0], place[1]) for place in self.places)

    def _return_to(self, content: Any) -> None:
        state, self._came = content
        self._begin(state)
        self._names = self._mixed()


class ReweightingRunner(MixingRunner):
    """Runner of a task in a cluster with other weights."""

    reweights = True


class MixingWorld(World):
    """A simulated cluster whose tasks mix their elements."""

    @property
    def make_runner(self) -> type[SimulatedRunner]:  # type: ignore[override]  # by its seed
        """Class of the runners of its tasks."""
        return ReweightingRunner if self.laws.seed >= ANOTHER else MixingRunner
