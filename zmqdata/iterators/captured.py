"""Random generators that functions of a pipeline hold, in a task: they are seeded for
each element before the function is called.

All tasks get copies of the same generator, which would draw the same numbers again and
again. In a task the draws follow from its seed, the operation, and the number of the
element. A task that continues elsewhere, from any state, therefore draws the same; a
filter that draws keeps the same elements. Functions that run on several threads share
the generator: their draws differ from element to element, but are not repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from zmqdata.iterators.context import Context, mixed_seed, subgroup
from zmqdata.nodes.base import Node


class Captured:
    """Random generators that the nodes of a task hold.

    Args:
        seed: seed of the task.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generators: dict[int, list[Callable[[int], None]]] = {}

    def begin(self, generators: Mapping[int, Sequence[Any]]) -> None:
        """Seed generators for an attempt of the task, and later for each element.

        Args:
            generators: the generators of each node that counts its elements for them,
                by the node's identity.
        """
        self._generators = {key: [*map(seeding, held)] for key, held in generators.items()}
        self.seed([one for held in generators.values() for one in held], self._seed)

    def seed_from(self, generators: Sequence[Any], number: int) -> None:
        """Seed generators once, for the elements from a number on."""
        self.seed(generators, mixed_seed(self._seed, number))

    @staticmethod
    def seed(generators: Sequence[Any], base: int) -> None:
        """Seed each of some generators differently."""
        for number, generator in enumerate(generators):
            seed = subgroup(base, number)
            seeding(generator)(seed)
            # Only ``spawn`` draws from it: not worth the time for each element.
            sequence = getattr(_bits_of(generator), "seed_seq", None)
            if isinstance(sequence, np.random.SeedSequence):
                _seed_sequence(sequence, seed)

    def seeder(self, node: Node, context: Context) -> Callable[[int], None] | None:
        """Return a function that seeds the generators of a node for the element with a
        number; None if the node has none to count its elements for.

        Args:
            node: the node.
            context: its context.
        """
        generators = self._generators.get(id(node))
        if generators is None:
            return None
        digest = hashlib.blake2b(context.place.encode(), digest_size=8).digest()
        base = mixed_seed(self._seed, int.from_bytes(digest, "big"))

        def seed_for(number: int) -> None:
            drawn = subgroup(base, number)
            for seed in generators:
                seed(drawn)
                drawn = subgroup(drawn, 0)

        return seed_for


def seeding(generator: Any) -> Callable[[int], None]:
    """Return a function that seeds a generator of Python, numpy or torch in place.

    >>> import random
    >>> for one in (random.Random(), np.random.default_rng(), np.random.RandomState()):
    ...     seed = seeding(one)
    ...     seed(2**63); first = one.random()
    ...     seed(2**63); print(one.random() == first)
    True
    True
    True
    """
    if hasattr(generator, "manual_seed"):
        manual_seed: Callable[[int], None] = generator.manual_seed
        return manual_seed
    if isinstance(generator, np.random.SeedSequence):
        return partial(_seed_sequence, generator)
    bits = _bits_of(generator)
    if isinstance(bits, np.random.PCG64):
        return partial(_seed_pcg64, bits)
    if isinstance(bits, np.random.BitGenerator) and not (
        isinstance(generator, np.random.RandomState) and isinstance(bits, np.random.MT19937)
    ):
        return partial(_seed_bits, bits)
    # Creating a bit generator for its state would take ten times as long.
    return (
        (lambda seed: generator.seed([seed & _WORD, seed >> 32]))
        if isinstance(generator, np.random.RandomState)
        else generator.seed
    )


_WORD = (1 << 32) - 1


def _bits_of(generator: Any) -> Any:
    for name in ("bit_generator", "_bit_generator"):
        generator = getattr(generator, name, generator)
    return generator


def _seed_sequence(sequence: np.random.SeedSequence, seed: int) -> None:
    """Let a seed sequence spawn others. Its entropy, which is the user's, stays."""
    np.random.SeedSequence.__init__(sequence, sequence.entropy, spawn_key=(seed,))


def _seed_pcg64(bits: Any, seed: int) -> None:
    state = {"state": (subgroup(seed, 1) << 64) + subgroup(seed, 2), "inc": 1}
    whole = {"bit_generator": type(bits).__name__, "state": state, "has_uint32": 0, "uinteger": 0}
    with bits.lock:
        bits.state = whole


def _seed_bits(bits: Any, seed: int) -> None:
    # A bit generator of another library may have no such constructor: it stays a copy.
    with suppress(TypeError, ValueError):
        state = type(bits)(seed).state
        with bits.lock:
            bits.state = state
