"""The seeds of the iterators of this program."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from zmqdata.config.checks import at_least
from zmqdata.iterators.context import mixed_seed
from zmqdata.machine.runkeys import program_key
from zmqdata.nodes.base import Node, Ordinal, all_nodes, kept_orders, lineage
from zmqdata.recipes import names_arguments


class _Seeds:
    """Source of seeds for local iterators: the operating system, or a seed that the
    user has set.

    Attributes:
        seed: the user's seed, or None.
        fixed: seed of what is drawn once, the same in all processes of a run.
        orders: numbers of the next orders that are drawn once, by their operations.
    """

    seed: int | None

    def __init__(self) -> None:
        self.orders: defaultdict[int, Iterator[int]] = defaultdict(itertools.count)
        self.set(None)

    def set(self, seed: int | None) -> None:
        self.seed, self.count = seed, itertools.count()
        self._fixed = None if seed is None else mixed_seed(seed)
        if seed is not None:
            self.orders = defaultdict(itertools.count)

    @property
    def fixed(self) -> int:
        # Not at once: a launcher or the user may say later which run this is.
        if self._fixed is None:
            digest = hashlib.sha256(b"zmqdata orders " + program_key().encode()).digest()
            self._fixed = int.from_bytes(digest[:8], "big") >> 1
        return self._fixed

    @fixed.setter
    def fixed(self, seed: int) -> None:
        self._fixed = seed

    def next(self) -> int:
        return (
            secrets.randbits(63) if self.seed is None else mixed_seed(self.seed, next(self.count))
        )


_seeds = _Seeds()


@names_arguments
def set_random_seed(seed: int | None) -> None:
    """Make the draws of operations without their own seed equal in each run of the
    program.

    Args:
        seed: at least 0. The seeds of iterators created from now on follow from it and
            from their number. None: they are drawn again, as before the first call.

    Raises:
        TypeError, ValueError: the seed is not such a number.

    >>> from zmqdata.dataset import Dataset
    >>> set_random_seed(7); first = list(Dataset.range(10).shuffle(10))
    >>> set_random_seed(7); first == list(Dataset.range(10).shuffle(10))
    True

    Equivalent of ``tf.random.set_seed``, for datasets only. With the service, jobs
    count as iterators do. Elements then draw the same in each run as long as they have
    a place in a source; which worker gets which of them, and the order of their
    arrival, is promised by ``distribute(..., deterministic=True)`` only.
    """
    _seeds.set(None if seed is None else at_least("seed", seed, 0))


def given_seed() -> int:
    """Return a seed derived from the user's seed, the same in each run of the program;
    0 if the user has set none.
    """
    return 0 if _seeds.seed is None else mixed_seed(_seeds.seed)


def next_seed() -> int:
    """Return the seed of the next iterator."""
    return _seeds.next()


def fixed_seed() -> int:
    """Return the seed of everything that is the same in all iterators of this
    program.
    """
    return _seeds.fixed


def number_order(node: Node) -> None:
    """Give a node that was just built the next number among the orders of this program
    that consist of the same operations, if its order is drawn once.

    All pipelines that contain the node have the same order then, and a node that is
    built by the same operations again has another.
    """
    order = node.kept_order
    if order is not None:
        order.number = next(_seeds.orders[lineage(node)])


@contextmanager
def resumed_orders(node: Node, fixed: int, numbers: Sequence[int]) -> Iterator[None]:
    """Let the orders that are drawn once be those of a state of the pipeline, from the
    next iterator on: parts of a dataset that are read later must be parts of the same
    order. They stay as they were if loading the state fails.

    Args:
        node: the pipeline.
        fixed: the fixed seed of the program that the state comes from.
        numbers: the numbers of its orders.
    """
    orders, before = kept_orders(node), _seeds.fixed
    own = [order.number for order in orders]
    if any(one.draws_once for one in all_nodes(node)):
        _seeds.fixed = fixed
    # They differ in length if the state of another pipeline is loaded on purpose.
    _renumber(orders, numbers)
    try:
        yield
    except BaseException:
        _seeds.fixed = before
        _renumber(orders, own)
        raise


def _renumber(orders: Sequence[Ordinal], numbers: Sequence[int]) -> None:
    for order, number in zip(orders, numbers, strict=False):
        order.number = number
