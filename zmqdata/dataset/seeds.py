"""The seeds of the iterators of this program."""

from __future__ import annotations

import itertools
import secrets

from zmqdata.dataset.arguments import at_least
from zmqdata.iterators import mixed_seed


class _Seeds:
    """Source of seeds for local iterators: the operating system, or a seed that the
    user has set.
    """

    seed: int | None

    def __init__(self) -> None:
        self.set(None)

    def set(self, seed: int | None) -> None:
        self.seed, self.count = seed, itertools.count()
        self.fixed = secrets.randbits(63) if seed is None else mixed_seed(seed)

    def next(self) -> int:
        return (
            secrets.randbits(63) if self.seed is None else mixed_seed(self.seed, next(self.count))
        )


_seeds = _Seeds()


def set_random_seed(seed: int | None) -> None:
    """Make the draws of local iteration (shuffles without their own seed) equal in each
    run of the program.

    Args:
        seed: at least 0. The seeds of iterators created from now on follow from it and
            from their number. None: they are drawn again, as before the first call.

    Raises:
        TypeError, ValueError: the seed is not such a number.

    >>> from zmqdata.dataset import Dataset
    >>> set_random_seed(7); first = list(Dataset.range(10).shuffle(10))
    >>> set_random_seed(7); first == list(Dataset.range(10).shuffle(10))
    True

    Equivalent of ``tf.random.set_seed``, for datasets only. With the service, the
    dispatcher's seeds decide instead, except for
    ``distribute(..., deterministic=True)``.
    """
    _seeds.set(None if seed is None else at_least("seed", seed, 0))


def given_seed() -> int:
    """Return a seed derived from the user's seed, the same in each run of the program;
    0 if the user has set none.
    """
    return 0 if _seeds.seed is None else _seeds.fixed


def next_seed() -> int:
    """Return the seed of the next iterator."""
    return _seeds.next()


def fixed_seed() -> int:
    """Return the seed of everything that is the same in all iterators of this
    program.
    """
    return _seeds.fixed
