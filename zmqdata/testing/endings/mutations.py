"""Mutations of the cores, each of which breaks a law in a world that aims at the end.

A mutation replaces attributes of the core for a while. Each part of the rule that says
when a reader may end has a mutation here that leaves the part out, so that no part is
without a world that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from zmqdata.core.client.leaving import ReadingEnd
from zmqdata.testing.checks import LawBroken
from zmqdata.testing.endings.aimed import AimedScenario
from zmqdata.testing.endings.relaunches import RelaunchScenario
from zmqdata.testing.scenario import Scenario

MOST_WORLDS = 2000
"""Number of worlds within which a mutation must break a law."""
AIMED: tuple[Callable[[int], Scenario], ...] = (AimedScenario, RelaunchScenario)
"""Kinds of worlds that look for mutations, in turn."""


@dataclass(frozen=True)
class Mutation:
    """A change of the core that leaves a part of a rule out."""

    text: str
    """What the changed core does, as a sentence."""
    patches: tuple[tuple[Any, str, Any], ...]
    """The replaced attributes: owner, name and replacement."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Cover the time in which the core is changed."""
        former = [(owner, name, getattr(owner, name)) for owner, name, _ in self.patches]
        try:
            for owner, name, replacement in self.patches:
                setattr(owner, name, replacement)
            yield
        finally:
            for owner, name, original in former:
                setattr(owner, name, original)


MUTATIONS: dict[str, Mutation] = {
    "ends-at-once": Mutation(
        "A reader that is done ends without asking.",
        ((ReadingEnd, "has_come", lambda self, *args: True),),
    ),
}
"""All mutations, by name."""


def broken_by(
    mutation: Mutation,
    first: int = 0,
    most: int = MOST_WORLDS,
    kinds: Sequence[Callable[[int], Scenario]] = AIMED,
) -> tuple[int, LawBroken] | None:
    """Return how many worlds were needed until one broke a law, and what it says; None
    if the laws do not notice the mutation.

    Example:
        >>> from zmqdata.testing.endings.mutations import MUTATIONS, broken_by
        >>> worlds, broken = broken_by(MUTATIONS["ends-at-once"])
        >>> worlds < 100
        True
    """
    with mutation.applied():
        for number in range(most):
            kind = kinds[number % len(kinds)]
            try:
                kind(first + number // len(kinds)).run()
            except LawBroken as broken:
                return number + 1, broken
    return None
