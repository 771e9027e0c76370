"""Iterators of random_map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zmqdata import nodes
from zmqdata.iterators.base import Context, as_element, failure, make_iterator, mixed_seed
from zmqdata.iterators.callsites import call_site
from zmqdata.iterators.guarding import GuardedMapIterator, guarded_source
from zmqdata.iterators.inputs import followed
from zmqdata.iterators.parallel import ParallelIterator, keeps_order
from zmqdata.iterators.transforms import CountingIterator

GuardedRandomNode = nodes.GuardedRandomMap | nodes.ParallelRandomMap


class _Stream:
    """Generator that is repositioned in a counter-based stream for each element.

    Creating a generator for each element would cost twenty times as much. Word 2 of the
    counter is the number of the element; an element may draw 2**128 times.
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)
        self._generator = np.random.Generator(self._bits)
        # Lists, because numpy reads the state item by item, which takes three times as
        # long from arrays.
        key = self._bits.state["state"]["key"].tolist()
        self._counter = [0, 0, 0, 0]
        self._place: Any = {
            **self._bits.state,
            "buffer": [0] * 4,
            "state": {"counter": self._counter, "key": key},
        }

    def at(self, number: int) -> np.random.Generator:
        """Return the generator for element ``number``; valid until the next call."""
        self._counter[2] = number
        self._bits.state = self._place
        return self._generator


@make_iterator.register(nodes.RandomMap)
class RandomMapIterator(CountingIterator):
    """Calls a function with each element and a generator. Its state is the number of
    the next element, and the input's state.
    """

    def __init__(self, node: nodes.RandomMap, context: Context) -> None:
        super().__init__(node, context, 0)
        self._function = node.function
        self._call_user = followed(node, context, self._input, self._drawn)
        self._at = _Stream(map_seed(node, context)).at
        self._site = call_site(node, context)

    def __next__(self) -> Any:
        site = self._site
        while True:
            element = next(self._input)
            number = self._count
            self._count = number + 1
            if site is None:
                return self._call(number, element)
            if number not in site.special or not site.leaves_out(
                number, self._input.current_split()
            ):
                return site.call(number, self._call, number, element)

    def _call(self, number: int, element: Any) -> Any:
        try:
            return as_element(self._call_user(number, element))
        except Exception as error:
            raise failure(self._node, error) from error

    def _drawn(self, number: int, element: Any) -> Any:
        generator = self._at(number)
        return (
            self._function(*element, generator)
            if type(element) is tuple
            else self._function(element, generator)
        )


@make_iterator.register(nodes.GuardedRandomMap)
class GuardedRandomMapIterator(GuardedMapIterator):
    """Random map whose elements may be left out or retried. State as for
    ``GuardedMapIterator``.
    """

    def __init__(self, node: nodes.GuardedRandomMap, context: Context) -> None:
        super().__init__(node, context, drawing_call(node, map_seed(node, context)))


@make_iterator.register(nodes.ParallelRandomMap)
class ParallelRandomMapIterator(ParallelIterator):
    """Random map on several threads. State and restoring as for
    ``ParallelIterator``.
    """

    def __init__(self, node: nodes.ParallelRandomMap, context: Context) -> None:
        source, call, decider = guarded_source(
            node, context, drawing_call(node, map_seed(node, context))
        )
        super().__init__(source, call, node, context, keeps_order(node, context), decider)


def drawing_call(node: GuardedRandomNode, seed: int) -> Callable[[int, Any], Any]:
    """Return a function from an element's number and the element to the result of the
    user's function.

    A second call for the same element draws the same numbers. Thread-safe.
    """
    function = node.function
    # A stream for each call in flight. Popping and appending are atomic, so no lock is
    # needed.
    idle: list[_Stream] = []

    def call_user(number: int, element: Any) -> Any:
        try:
            stream = idle.pop()
        except IndexError:
            stream = _Stream(seed)
        try:
            arguments = element if type(element) is tuple else (element,)
            return function(*arguments, stream.at(number))
        finally:
            idle.append(stream)

    return call_user


def map_seed(node: nodes.RandomMap | GuardedRandomNode, context: Context) -> int:
    """Return the seed of the draws, which with the element's number determines them:
    from the user's seed or the context's, and the repetition.
    """
    turn = (context.turn,) if node.rerandomize_each_iteration else ()
    if node.seed is not None:
        return mixed_seed(node.seed, *turn)
    base = context.seed if node.rerandomize_each_iteration else context.fixed_seed
    return mixed_seed(base, *context.path, *turn)
