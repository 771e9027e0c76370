"""Where the iterators of this program get their seeds from."""

from __future__ import annotations

import itertools
import secrets

from zmqdata.dataset.arguments import at_least
from zmqdata.iterators import mixed_seed


class _Seeds:
    """Where local iterators get their seeds from: the operating system, until a seed
    was set.
    """

    def __init__(self) -> None:
        self.seed: int | None = None
        self.fixed = secrets.randbits(63)
        self.count = itertools.count()

    def set(self, seed: int) -> None:
        self.seed, self.fixed, self.count = seed, mixed_seed(seed), itertools.count()

    def next(self) -> int:
        return (
            secrets.randbits(63) if self.seed is None else mixed_seed(self.seed, next(self.count))
        )


_seeds = _Seeds()


def set_random_seed(seed: int) -> None:
    """Make what local iteration draws (shuffles without a seed of their own) the same
    in each run of the program.

    Args:
        seed: at least 0. The iterators that are made from now on get seeds that follow
            from it and their number.

    Raises:
        TypeError, ValueError: it is no such number.

    >>> from zmqdata.dataset import Dataset
    >>> set_random_seed(7); first = list(Dataset.range(10).shuffle(10))
    >>> set_random_seed(7); first == list(Dataset.range(10).shuffle(10))
    True

    As ``tf.random.set_seed``, for datasets only. In the service, seeds of the
    dispatcher decide instead, but for ``distribute(..., deterministic=True)``.
    """
    _seeds.set(at_least("seed", seed, 0))


def given_seed() -> int:
    """A seed that follows from the one that was set, if any: the same in each run of
    the program.
    """
    return 0 if _seeds.seed is None else _seeds.fixed


def next_seed() -> int:
    """The seed of the next iterator."""
    return _seeds.next()


def fixed_seed() -> int:
    """The seed of what is the same in all iterators of this program."""
    return _seeds.fixed
