"""Datasets that a function of the user makes from each element: flat_map and
interleave.

States do not hold the nested datasets: restoring pulls the outer element again and
calls the function again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from zmqdata.elements.specs import UNKNOWN_CARDINALITY
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import call, failure
from zmqdata.iterators.callsites import call_site
from zmqdata.iterators.context import Context, Name, Namer
from zmqdata.iterators.deciding import Decider
from zmqdata.iterators.inference import spec_by_running, spec_of_nested
from zmqdata.iterators.inputs import dataset_iterator, fault_decider, marked_input
from zmqdata.iterators.naming import unnamed
from zmqdata.iterators.trail import Trail
from zmqdata.nodes.base import Applying, Node
from zmqdata.operations.mapping import rows_made
from zmqdata.operations.sources import Range, nested_node


@dataclass(frozen=True, kw_only=True)
class FlatMap(Applying):
    """Yields the elements of the datasets that a function makes from each element, one
    dataset after the other.
    """

    operation: ClassVar[str] = "flat_map"
    draws_once: ClassVar[bool] = True
    own_state: ClassVar[int] = 16
    state_growth: ClassVar[str] = "the state of the dataset being read"
    restoring: ClassVar[str] = (
        "pulls up to 16 elements again, and calls the function for the elements being read"
    )

    @property
    def batch_rows(self) -> int | None:
        return rows_made(self.function, None)

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class Interleave(FlatMap):
    """``FlatMap`` that reads ``cycle_length`` datasets in turn, ``block_length``
    elements at a time.
    """

    cycle_length: int
    """Number of datasets read in turn."""
    block_length: int = 1
    """Number of consecutive elements from a dataset."""
    operation: ClassVar[str] = "interleave"
    state_growth: ClassVar[str] = "the states of the datasets being read"

    @property
    def state_bytes(self) -> int:
        return 16 * self.cycle_length


_MARK_EVERY = 16
NOTHING = Range(start=0, stop=0)
"""Replaces a dataset whose element is left out."""


@dataclass
class Opened:
    """Dataset made from an outer element, while it is read."""

    number: int
    """Number of the outer element."""
    iterator: ElementIterator
    """Iterator over the dataset."""
    node: Node
    """Node of the dataset."""
    name: Name | None
    """Name of the outer element; None if it has none."""

    @cached_property
    def naming(self) -> Namer:
        """Namer of the elements of the dataset."""
        return self.iterator.namer() or unnamed


def open_nested(
    node: FlatMap,
    context: Context,
    number: int,
    element: Any,
    name: Name | None,
    decider: Decider | None = None,
    ended: Opened | None = None,
) -> Opened:
    """Call the user's function and begin to read the dataset that it returned.

    Args:
        node: the operation.
        context: context of the operation.
        number: number of the element.
        element: argument of the function.
        name: name of the element; None if it has none.
        decider: follows earlier decisions on failures of the function; None: failures
            are not decided here.
        ended: a dataset that was read to its end. If the function has returned the same
            dataset again, its iterator is used again, if it can be renewed.

    Raises:
        PipelineError: the function failed or returned no dataset.
    """
    seed_for = context.seeder(node)
    if seed_for is not None:
        seed_for(number)
    try:
        again = partial(call, node.function, element)
        if decider is None and context.watch is None:
            inner = nested_node(again(), node, again)
        else:
            inner = _noted_node(node, context, number, again, decider)
        within = context.nested(number, name, node)
        if ended is not None and ended.node is inner and ended.iterator.renew(within):
            ended.number, ended.name = number, name
            return ended
        return Opened(number, dataset_iterator(inner, within), inner, name)
    except FAILURES as error:
        raise failure(node, error) from error


def _noted_node(
    node: FlatMap,
    context: Context,
    number: int,
    again: Callable[[], Any],
    decider: Decider | None,
) -> Node:
    """Return the node of the dataset, and record the call."""
    site = call_site(node, context)
    arguments: tuple[Any, ...] = (again,)
    if decider is not None:
        arguments = (decider.follow, number, *arguments)
    if site is None:
        return nested_node(arguments[0](*arguments[1:]), node, again)
    if site.leaves_out(number):
        return NOTHING
    return nested_node(site.call(number, *arguments), node, again)


@make_iterator.register(FlatMap)
class FlatMapIterator(ElementIterator):
    """Reads the nested datasets in order."""

    def __init__(self, node: FlatMap, context: Context) -> None:
        self._node, self._context = node, context
        self._publish_in(context)
        self._trail = Trail(marked_input(node, context), _MARK_EVERY, self._oldest)
        self._decider = fault_decider(node, context)
        self._opened: Opened | None = None
        self._ended: Opened | None = None  # dataset that ended last
        self._last: Opened | None = None  # dataset that the last element came from

    def namer(self) -> Namer | None:
        return self._name

    def _name(self) -> Name | None:
        return None if self._last is None else self._last.naming()

    def _oldest(self) -> int:
        return self._trail.pulled if self._opened is None else self._opened.number

    def __next__(self) -> Any:
        while True:
            if self._opened is not None:
                try:
                    element = next(self._opened.iterator)
                except StopIteration:
                    self._opened.iterator.close()
                    self._ended, self._opened = self._opened, None
                else:
                    self._last = self._opened
                    return element
            number = self._trail.pulled
            element = self._trail.pull()
            self._strand.place = self._own_place
            self._opened = open_nested(
                self._node,
                self._context,
                number,
                element,
                self._trail.name(),
                self._decider,
                self._ended,
            )
            self._ended = None

    def rewind(self, repetition: int) -> bool:
        if self._opened is not None:
            self._opened.iterator.close()
            self._opened = None
        self._context = self._context.repeated(repetition)
        return self._trail.rewind(repetition)

    def state(self) -> Any:
        opened = self._opened
        return [
            self._trail.state(),
            None if opened is None else [opened.number, opened.iterator.state()],
        ]

    def restore(self, state: Any) -> None:
        trail, opened = state
        number, inner = opened or (-1, None)
        found = self._trail.restore(trail, (number,))
        if opened:
            self._opened = open_nested(
                self._node,
                self._context,
                number,
                found[number],
                found.names[number],
                self._decider,
            )
            self._opened.iterator.restore(inner)

    def current_split(self) -> tuple[int, int] | None:
        return self._trail.source.current_split()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.iterator.close()
        self._trail.source.close()


@make_iterator.register(Interleave)
class InterleaveIterator(ElementIterator):
    """Reads several nested datasets in turn. A slot whose dataset ended gets a new
    dataset when its turn comes again.
    """

    def __init__(self, node: Interleave, context: Context) -> None:
        self._node, self._context = node, context
        self._publish_in(context)
        self._decider = fault_decider(node, context)
        self._trail = Trail(self._make_source(), max(_MARK_EVERY, node.cycle_length), self._oldest)
        self._places: list[Opened | None] = [None] * node.cycle_length
        self._last: Opened | None = None  # dataset that the last element came from
        # Dataset that ended last in each slot.
        self._ended: list[Opened | None] = [None] * node.cycle_length
        self._turn = 0
        self._taken = 0  # elements taken from the slot whose turn it is
        self._input_ended = False

    _any_order = False

    def _choose_turn(self) -> None:
        """Give the turn to any slot, if the order is free."""

    def _make_source(self) -> ElementIterator:
        return marked_input(self._node, self._context)

    def namer(self) -> Namer | None:
        return self._name

    def _name(self) -> Name | None:
        return None if self._last is None else self._last.naming()

    def _open(self, number: int, element: Any, name: Name | None) -> Opened:
        ended, self._ended[self._turn] = self._ended[self._turn], None
        return open_nested(self._node, self._context, number, element, name, self._decider, ended)

    def _reopen(self, number: int, element: Any, name: Name | None, inner: Any) -> Opened:
        opened = self._open(number, element, name)
        opened.iterator.restore(inner)
        return opened

    def _oldest(self) -> int:
        return min(
            (place.number for place in self._places if place is not None),
            default=self._trail.pulled,
        )

    def __next__(self) -> Any:
        while True:
            if self._any_order:
                self._choose_turn()
            place = self._places[self._turn]
            if place is None:
                self._fill()
                continue
            try:
                element = next(place.iterator)
            except StopIteration:
                place.iterator.close()
                self._places[self._turn], self._ended[self._turn] = None, place
                self._pass_turn()
                continue
            self._last = place
            self._taken += 1
            if self._taken == self._node.block_length:
                self._pass_turn()
            return element

    def rewind(self, repetition: int) -> bool:
        for place in self._places:
            if place is not None:
                place.iterator.close()
        self._places = [None] * len(self._places)
        self._turn = self._taken = 0
        self._input_ended = False
        self._context = self._context.repeated(repetition)
        return self._trail.rewind(repetition)

    def _fill(self) -> None:
        """Open a dataset in the slot whose turn it is; if the input has ended, go to
        the next slot that has a dataset.
        """
        if self._input_ended:
            if not any(self._places):
                raise StopIteration
            self._pass_turn()
            return
        number = self._trail.pulled
        try:
            element = self._trail.pull()
        except StopIteration:
            self._input_ended = True
            return
        self._strand.place = self._own_place
        self._places[self._turn] = self._open(number, element, self._trail.name())

    def _pass_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self._places)
        self._taken = 0

    def state(self) -> Any:
        places = [
            None if place is None else [place.number, place.iterator.state()]
            for place in self._places
        ]
        return [self._trail.state(), places, self._turn, self._taken, self._input_ended]

    def restore(self, state: Any) -> None:
        trail, places, self._turn, self._taken, self._input_ended = state
        found = self._trail.restore(trail, {place[0] for place in places if place})
        for index, place in enumerate(places):
            if place:
                number, inner = place
                self._places[index] = self._reopen(
                    number, found[number], found.names[number], inner
                )

    def close(self) -> None:
        for place in self._places:
            if place is not None:
                place.iterator.close()
        self._trail.source.close()


@spec_by_running.register
def _(node: FlatMap, past_failures: bool) -> Any:
    return spec_of_nested(node, partial(_inner_node, node))


def _inner_node(node: FlatMap, element: Any) -> Node:
    """Return the node of the dataset that the function makes of an element."""
    again = partial(call, node.function, element)
    try:
        return nested_node(again(), node, again)
    except Exception as error:
        raise failure(node, error) from error
