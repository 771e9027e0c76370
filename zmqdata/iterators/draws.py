"""Random numbers as a function of a seed and the number of the draw."""

from __future__ import annotations

import numpy as np

from zmqdata.iterators.base import Context, mixed_seed

_DRAWS = 1024  # numbers made at a time


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


def drawing_seed(seed: int | None, varies: bool, context: Context) -> int:
    """Return the seed of a node's draws: from the user's seed or the context's, and
    from the repetition if the draws vary with it.
    """
    turn = (context.turn,) if varies else ()
    if seed is not None:
        return mixed_seed(seed, *turn)
    return mixed_seed(context.seed if varies else context.fixed_seed, *context.path, *turn)
