"""The iterators of random_map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zmqdata import nodes
from zmqdata.iterators.base import Context, as_element, failure, input_iterator, make_iterator, mixed_seed
from zmqdata.iterators.guarding import Outcome
from zmqdata.iterators.parallel import ParallelIterator, keeps_order
from zmqdata.iterators.transforms import CountingIterator


class _Stream:
    """One generator, put to another place of one counter-based stream for each element.

    Making a generator for each would cost twenty times as much. Word 2 of the counter is the number of the element; an
    element may draw 2**128 times.
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)
        self._generator = np.random.Generator(self._bits)
        # Lists, as numpy reads the state item by item, which takes three times as long from arrays.
        key = self._bits.state["state"]["key"].tolist()
        self._counter = [0, 0, 0, 0]
        self._place: Any = {**self._bits.state, "buffer": [0] * 4, "state": {"counter": self._counter, "key": key}}

    def at(self, number: int) -> np.random.Generator:
        """The generator for element ``number``; valid until the next call."""
        self._counter[2] = number
        self._bits.state = self._place
        return self._generator


@make_iterator.register(nodes.RandomMap)
class RandomMapIterator(CountingIterator):
    """Calls a function with each element and a generator. Its state is the number of the next element."""

    def __init__(self, node: nodes.RandomMap, context: Context) -> None:
        super().__init__(node, context, 0)
        self._function = node.function
        self._at = _Stream(map_seed(node, context)).at

    def __next__(self) -> Any:
        element = next(self._input)
        number = self._count
        self._count = number + 1
        generator = self._at(number)
        try:
            if type(element) is tuple:
                return as_element(self._function(*element, generator))
            return as_element(self._function(element, generator))
        except Exception as error:
            raise failure(self._node, error) from error


@make_iterator.register(nodes.ParallelRandomMap)
class ParallelRandomMapIterator(ParallelIterator):
    """The same on several threads. State and restoring as for ``ParallelIterator``."""

    def __init__(self, node: nodes.ParallelRandomMap, context: Context) -> None:
        call = _drawing_call(node, map_seed(node, context))
        super().__init__(input_iterator(node, context), call, node, context, keeps_order(node, context))


def _drawing_call(node: nodes.ParallelRandomMap, seed: int) -> Callable[[int, Any], Outcome]:
    """A function from the number of an element and the element to what the map makes of it. It raises nothing."""
    function = node.function
    idle: list[_Stream] = []  # one for each call under way; taken and put back at once, which needs no lock

    def run(number: int, element: Any) -> Outcome:
        try:
            stream = idle.pop()
        except IndexError:
            stream = _Stream(seed)
        try:
            generator = stream.at(number)
            arguments = element if type(element) is tuple else (element,)
            return as_element(function(*arguments, generator)), None
        except Exception as error:
            raised = failure(node, error)
            raised.__cause__ = error
            return None, raised
        except BaseException as error:
            return None, error
        finally:
            idle.append(stream)

    return run


def map_seed(node: nodes.RandomMap | nodes.ParallelRandomMap, context: Context) -> int:
    """What the draws follow from beside the number: the user's seed or the context's, and the repetition."""
    turn = (context.turn,) if node.rerandomize_each_iteration else ()
    if node.seed is not None:
        return mixed_seed(node.seed, *turn)
    base = context.seed if node.rerandomize_each_iteration else context.fixed_seed
    return mixed_seed(base, *context.path, *turn)
