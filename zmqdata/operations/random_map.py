"""random_map, whose draws follow from the names of elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.callsites import call_site
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.draws import NamedStream, named_seed
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.inputs import CountingIterator, followed
from zmqdata.iterators.naming import unnamed
from zmqdata.iterators.random_access import element_at, name_at, refusal
from zmqdata.nodes.base import ByNames
from zmqdata.operations.mapping import GuardedMap, GuardedMapIterator, Map, called_for
from zmqdata.operations.parallel import ParallelMap, make_parallel_map


@dataclass(frozen=True, kw_only=True)
class Drawing(ByNames):
    """Base to put before the node of a random map: the origin of its draws."""

    rerandomize_each_iteration: bool = True
    """True to draw anew in each repetition."""

    @property
    def draws_once(self) -> bool:
        return self.seed is None and not self.rerandomize_each_iteration


@dataclass(frozen=True, kw_only=True)
class RandomMap(Drawing, Map):
    """Calls a function with each element and a random generator that depends on seed,
    repetition and the element's number.
    """

    operation: ClassVar[str] = "random_map"
    own_state: ClassVar[int] = 8


@dataclass(frozen=True, kw_only=True)
class GuardedRandomMap(Drawing, GuardedMap):
    """Random map that retries with the same draws, or leaves elements out. Fields as in
    ``RandomMap`` and ``GuardedMap``.
    """

    operation: ClassVar[str] = "random_map"


@dataclass(frozen=True, kw_only=True)
class ParallelRandomMap(Drawing, ParallelMap):
    """Random map on several threads. Fields as in ``RandomMap`` and ``ParallelMap``."""

    operation: ClassVar[str] = "random_map"


GuardedRandomNode = GuardedRandomMap | ParallelRandomMap


@make_iterator.register(RandomMap)
class RandomMapIterator(CountingIterator):
    """Calls a function with each element and a generator. Its state is the number of
    the next element, and the input's state.
    """

    _node: RandomMap

    def __init__(self, node: RandomMap, context: Context) -> None:
        inside = context.changed(named=True)
        super().__init__(node, inside, 0)
        self._context = context
        self._name = self._input.namer() or unnamed
        self._function = node.function
        maker = ElementMaker(node, context)
        self._made, self._finished = maker.element, maker.finished
        self._call_user = followed(node, context, self._input, self._drawn)
        self._stream = NamedStream(map_seed(node, context))
        self._at = self._stream.at
        self._site = call_site(node, context)

    def __next__(self) -> Any:
        site = self._site
        while True:
            element = next(self._input)
            self._strand.place = self._own_place
            number = self._count
            self._count = number + 1
            if site is None:
                # A copy of ``_call``, inlined to save the time of a call.
                try:
                    value = self._call_user(number, element)
                    return value if type(value) in self._finished else self._made(value)
                except FAILURES as error:
                    raise failure(self._node, error) from error
            if number not in site.special or not site.leaves_out(
                number, self._input.current_split()
            ):
                return site.call(number, self._call, number, element)

    def rewind(self, repetition: int) -> bool:
        if self._site is not None:
            return False
        self._context = self._context.repeated(repetition)
        self._count = 0
        self._stream.restart(map_seed(self._node, self._context))
        return self._input.rewind(repetition)

    def _call(self, number: int, element: Any) -> Any:
        try:
            return self._made(self._call_user(number, element))
        except FAILURES as error:
            raise failure(self._node, error) from error

    def _drawn(self, number: int, element: Any) -> Any:
        generator = self._at(self._name() or self._context.counted(number))
        return (
            self._function(*element, generator)
            if type(element) is tuple
            else self._function(element, generator)
        )


@make_iterator.register(GuardedRandomMap)
class GuardedRandomMapIterator(GuardedMapIterator):
    """Random map whose elements may be left out or retried. State as for
    ``GuardedMapIterator``.
    """

    def __init__(self, node: GuardedRandomMap, context: Context) -> None:
        self._context = context
        self._draw = drawing_call(node, context)
        super().__init__(node, context.changed(named=True), self._drawn)
        self._name = self._input.namer() or unnamed

    def _drawn(self, number: int, element: Any) -> Any:
        return self._draw(self._name() or self._context.counted(number), element)


@make_iterator.register(ParallelRandomMap)
def _on_threads(node: ParallelRandomMap, context: Context) -> ElementIterator:
    return make_parallel_map(node, context.changed(named=True), drawing_call(node, context))


def drawing_call(node: GuardedRandomNode, context: Context) -> Callable[[Name, Any], Any]:
    """Return a function from an element's name and the element to the result of the
    user's function.

    A second call for the same element draws the same numbers. Thread-safe.
    """
    function, seed = node.function, map_seed(node, context)
    # A stream for each call in flight. Popping and appending are atomic, so no lock is
    # needed.
    idle: list[NamedStream] = []

    def call_user(name: Name, element: Any) -> Any:
        try:
            stream = idle.pop()
        except IndexError:
            stream = NamedStream(seed)
        try:
            arguments = element if type(element) is tuple else (element,)
            return function(*arguments, stream.at(name))
        finally:
            idle.append(stream)

    return call_user


def map_seed(node: RandomMap | GuardedRandomNode, context: Context) -> int:
    """Return the seed of the draws, which with the element's name determines them: from
    the user's seed or the context's, and the repetition.
    """
    return named_seed(node, node.rerandomize_each_iteration, context)


@element_at.register(GuardedRandomMap)
@element_at.register(ParallelRandomMap)
def _(node: GuardedRandomNode, index: int) -> Any:
    if node.on_error == "skip":
        raise refusal(node, index)
    _refuse_new_draws(node, index)
    draw, name = drawing_call(node, Context()), name_at(node.input, index)
    return called_for(node, index, lambda number, element: draw(name, element))


@element_at.register
def _(node: RandomMap, index: int) -> Any:
    _refuse_new_draws(node, index)
    generator = NamedStream(map_seed(node, Context())).at(name_at(node.input, index))
    element = element_at(node.input, index)
    arguments = element if type(element) is tuple else (element,)
    try:
        return ElementMaker(node, Context()).element(node.function(*arguments, generator))
    except FAILURES as error:
        raise failure(node, error) from error


def _refuse_new_draws(node: RandomMap | GuardedRandomNode, index: int) -> None:
    if node.seed is None or node.rerandomize_each_iteration:
        raise refusal(
            node,
            index,
            ", as each iteration draws anew: give a seed, and rerandomize_each_iteration=False",
        )
