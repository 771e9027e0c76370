"""Random numbers as a function of a seed, and the number of the draw or the name of an
element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zmqdata.iterators.context import Context, Name, mixed_seed, subgroup
from zmqdata.nodes.base import ByNames, ByNode, Node, every_node

_DRAWS = 1024  # numbers made at a time
_WORD = 2**64 - 1


class Draws:
    """Uniform floats in [0, 1), identified by their number. They are the same in all
    versions of numpy.

    >>> Draws(7).at(2000) == Draws(7).at(2000), 0 <= Draws(7).at(5) < 1
    (True, True)
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._group = -1
        self._values: list[float] = []

    def at(self, number: int) -> float:
        """Return draw ``number``."""
        group, index = divmod(number, _DRAWS)
        if group != self._group:
            raw = np.random.PCG64([self._seed, group]).random_raw(_DRAWS)
            self._values = ((raw >> np.uint64(11)) * 2.0**-53).tolist()
            self._group = group
        return self._values[index]


class RawDraws:
    """Numbers of 64 bits, identified by their number, as arrays. They are the same in
    all versions of numpy, which guarantees the raw output of a bit generator.

    The generator counts, so it begins anywhere at once, and another seed costs a
    microsecond. A new generator would hash its seed for twenty.

    Args:
        seed: seed of 128 bits at most.

    >>> draws = RawDraws(7)
    >>> bool((draws.at(998, 6)[2:] == draws.at(1000, 4)).all())
    True
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)
        # Lists, as in ``NamedStream``.
        self._counter, self._key = [0, 0, 0, 0], [0, 0]
        self._place: Any = {
            **self._bits.state,
            "buffer": [0] * 4,
            "state": {"counter": self._counter, "key": self._key},
        }
        self.restart(seed)

    def restart(self, seed: int) -> None:
        """Become the numbers of another seed."""
        self._key[:] = seed & _WORD, seed >> 64

    def at(self, first: int, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Return the numbers ``first <= number < first + count``."""
        self._counter[0], skipped = divmod(first, 4)
        self._bits.state = self._place
        return self._bits.random_raw(skipped + count)[skipped:]


class NamedStream:
    """Generator that is repositioned in a counter-based stream for each element.

    Creating a generator for each element would cost twenty times as much. Words 2 and 3
    of the counter are the name of the element; an element may draw 2**128 times.

    Attributes:
        at: returns the generator for the element with a name; valid until the next
            call.
    """

    def __init__(self, seed: int) -> None:
        bits = np.random.Philox(key=seed)
        generator = np.random.Generator(bits)
        # Lists, because numpy reads the state item by item, which takes three times as
        # long from arrays.
        counter, key = [0, 0, 0, 0], bits.state["state"]["key"].tolist()
        place: Any = {
            **bits.state,
            "buffer": [0] * 4,
            "state": {"counter": counter, "key": key},
        }

        def at(name: Name) -> np.random.Generator:
            counter[3], counter[2] = name
            bits.state = place
            return generator

        # A closure, which is faster than a method.
        self.at: Callable[[Name], np.random.Generator] = at
        self._key = key

    def restart(self, seed: int) -> None:
        """Become the stream of another seed, at a tenth of the cost of a new stream.

        >>> stream = NamedStream(1)
        >>> stream.restart(7)
        >>> stream.at((0, 3)).integers(100) == NamedStream(7).at((0, 3)).integers(100)
        np.True_
        """
        self._key[:] = seed & _WORD, seed >> 64


class NamedDraws:
    """Uniform floats in [0, 1), identified by names. They are the same in all versions
    of numpy.

    >>> draws = NamedDraws(7)
    >>> draws.of((1, 2)) == draws.of((1, 2)), draws.of((1, 2)) == draws.of((2, 1))
    (True, False)
    """

    def __init__(self, seed: int) -> None:
        self._seed = mixed_seed(seed)
        self._group = -1
        self._mixed = 0

    def of(self, name: Name) -> float:
        """Return the draw of an element."""
        group, position = name
        if group != self._group:
            self._group, self._mixed = group, subgroup(self._seed, group)
        return (subgroup(self._mixed, position) >> 11) * 2.0**-53


def drawing_seed(seed: int | None, varies: bool, context: Context, part: int = 0) -> int:
    """Return the seed of a node's draws: from the user's seed or the context's, and
    from the repetition if the draws vary with it.

    Args:
        seed: seed of the user; None: the seed of the context. If tasks share the input,
            it is that of their iteration.
        varies: True if each repetition draws anew.
        context: context of the node.
        part: number of the task, where its draws do not follow from names of elements.
    """
    turn = (context.turn,) if varies else ()
    if seed is not None:
        mixed = mixed_seed(seed, *turn)
    elif not varies:
        mixed = mixed_seed(context.fixed_seed, *context.path)
    elif context.shared_seed is not None:
        mixed = mixed_seed(context.shared_seed, *context.path, *turn)
    else:
        return mixed_seed(context.seed, *context.path, *turn)
    # The copies of mode OFF have equal names.
    own = part or context.copy
    return subgroup(mixed, own) if own else mixed


_reuses = ByNode()


def named_seed(node: ByNames, varies: bool, context: Context) -> int:
    """Return the seed of draws that follow from names of elements.

    If the user gave the same seed to several of a chain of operations, each of them
    draws on its own. Beside each other, as the inputs of a zip, they draw the same.
    """
    seed = drawing_seed(node.seed, varies, context)
    if node.seed is None:
        return seed
    below = reuses_below(node) + (context.depth << 32)
    return mixed_seed(seed, below) if below else seed


def reuses_below(node: ByNames) -> int:
    """Return the number of operations below a node that draw by the same seed.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.random_map import RandomMap
    >>> numbers = Range(start=0, stop=3)
    >>> first = RandomMap(inputs=(numbers,), function=max, seed=1)
    >>> reuses_below(RandomMap(inputs=(first,), function=max, seed=1))
    1
    """
    if node not in _reuses:
        below = (one for one in every_node(node) if one is not node and isinstance(one, ByNames))
        _reuses[node] = sum(one.seed == node.seed for one in below)
    return int(_reuses[node])


def shared_seed(node: Node, seed: int | None, varies: bool, context: Context) -> int:
    """Return the seed of a source whose splits are indices into its draws: all tasks of
    an iteration draw the same numbers.

    Args:
        node: the source, or the shuffle that permutes it.
        seed: seed of the user, which has precedence; None: the seed of the context and
            the node's place. What the node draws once follows from the program's.
        varies: True if each repetition draws anew.
        context: context of the node.
    """
    turn = (context.turn,) if varies else ()
    if seed is not None:
        return mixed_seed(seed, *turn)
    if node.kept_order is not None:
        return mixed_seed(context.fixed_seed, *context.kept_place(node))
    base = context.seed if context.shared_seed is None else context.shared_seed
    return mixed_seed(base, *context.path, *turn)
