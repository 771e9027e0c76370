"""Random generators that the functions of a task hold, and those that they make when
they are called first.

A function may make a generator on a worker and keep it, under ``functools.lru_cache``
or in an attribute. Each task would make the same. The runner therefore searches the
functions again after the first element, and after a few later ones. What it finds is
seeded for the task from there on. The pipeline is never run again for it, because what
it has read may be read once only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.captured import Captured
from zmqdata.iterators.context import mixed_seed
from zmqdata.nodes.base import Node, every_node
from zmqdata.nodes.options import ExternalStatePolicy, options_of
from zmqdata.pipelines.generators import Held, generators_of, loader_seed
from zmqdata.worker.tasks.pipeline import may_seed_modules

log = logging.getLogger(__name__)

_GROWTH = 4
"""Factor between the numbers of the elements after which functions are searched,
counted from the beginning of the pass.
"""
_MOST_TOLD = 100
"""Maximum number of generators that a process warns of."""
_told: set[tuple[str, str]] = set()


class TaskGenerators:
    """Random generators of one attempt of a task.

    Args:
        node: the pipeline.
        seed: seed of the task.

    Attributes:
        captured: seeds generators for each element.
        due: number of the element after which functions are searched next.
    """

    def __init__(self, node: Node, seed: int) -> None:
        self._nodes = every_node(node)
        for one in self._nodes:
            of_pass = loader_seed(one)
            seed = seed if of_pass is None else mixed_seed(seed, of_pass)
        self.captured = Captured(seed)
        self.due = self._first = 0
        self._policy = options_of(node).experimental_external_state_policy
        self._found = self._search()
        self._known = {id(held.generator): held.generator for _, held in self._found}
        self._made: dict[tuple[int, str], Any] = {}
        self._counting: frozenset[int] = frozenset()

    @property
    def counting(self) -> list[int]:
        """Indices of the nodes that count their elements for generators. The states of
        their iterators depend on it.
        """
        return sorted(self._counting)

    def begin(self, number: int, counting: Collection[int] | None) -> None:
        """Seed the generators for a pass of the pipeline.

        Args:
            number: number of the first element.
            counting: the nodes that did so when the state was taken from which the pass
                begins; None: it begins without a state.
        """
        self.due = self._first = number
        if counting is None:
            counting = {index for index, _ in self._found}
        self._counting = frozenset(counting)
        self.captured.begin(
            {
                id(self._nodes[index]): [held.generator for at, held in self._found if at == index]
                for index in self.counting
            }
        )
        others = [held.generator for index, held in self._found if index not in self._counting]
        self.captured.seed_from(others, number)

    def look(self, number: int) -> None:
        """Search the functions again, after the element with a number.

        Raises:
            FailedPreconditionError: they have made generators, and the options have
                ``ExternalStatePolicy.FAIL``.
        """
        while self.due <= number:
            self.due = self._first + ((self.due - self._first) * _GROWTH or 1)
        new = []
        for index, held in self._search():
            before = self._made.get((index, held.path))
            if before is held.generator:  # it is kept from call to call
                self._tell(self._nodes[index], held)
            # A generator that replaces one that was made before is made in each call:
            # the function seeds it as it likes.
            if before is None and id(held.generator) not in self._known:
                new.append(held.generator)
                self._made[index, held.path] = held.generator
                self._known[id(held.generator)] = held.generator
        self.captured.seed_from(new, number + 1)

    def _search(self) -> list[tuple[int, Held]]:
        return [
            (index, held)
            for index, node in enumerate(self._nodes)
            for held in generators_of(node, in_modules=may_seed_modules())
        ]

    def _tell(self, node: Node, held: Held) -> None:
        key = node.label, held.path
        if self._policy is ExternalStatePolicy.IGNORE or loader_seed(node) is not None:
            return
        kind = type(held.generator)
        text = (
            f"{node.label} made `{held.path}` on a worker, a {kind.__module__.partition('.')[0]} "
            f"{kind.__name__}, and keeps it from call to call. Each worker would make the same, "
            "which would draw the same numbers in every task and epoch. Workers therefore seed it "
            "anew, and its own seed has no effect. Use random_map(function, seed=...), which "
            "passes a generator to the function and draws the same with and without the service"
        )
        if self._policy is ExternalStatePolicy.FAIL:
            raise FailedPreconditionError(
                f"{text}. The options of the pipeline have ExternalStatePolicy.FAIL, with "
                "which this is an error."
            )
        if key not in _told and len(_told) < _MOST_TOLD:
            _told.add(key)
            log.warning("%s.", text)
