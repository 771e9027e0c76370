"""Facts about mutations of the cores: the worlds that aim at the end find each one."""

from __future__ import annotations

import pytest

from tests.full import full
from tests.kit.mutations import MUTATIONS, Mutation, broken_by
from tests.kit.scenario import Scenario
from zmqdata.core.client.leaving import ReadingEnd

CHEAP = "ends-at-once"


@pytest.mark.parametrize("name", [CHEAP, *map(full, sorted(MUTATIONS.keys() - {CHEAP}))])
def test_each_mutation_breaks_a_law(name: str) -> None:
    """A core that lacks a part of the rule breaks a law within 2,000 worlds."""
    assert broken_by(MUTATIONS[name]) is not None, MUTATIONS[name].text


class Calm(Scenario):
    """A world without a run, which breaks nothing."""

    def run(self) -> None:
        """Do nothing."""


class Broken(Scenario):
    """A world that breaks a law whatever the core does."""

    def run(self) -> None:
        """Break a law."""
        self.world.laws.fail("always")


def test_a_mutation_that_no_law_notices_is_reported() -> None:
    """A world that breaks a law in any case is no sign of a mutation, and the core is
    afterwards as before.
    """
    original = ReadingEnd.has_come
    mutation = Mutation("nothing else", ((ReadingEnd, "has_come", original),))
    assert broken_by(mutation, most=3, kinds=(Calm, Broken)) is None
    with MUTATIONS[CHEAP].applied():
        assert ReadingEnd.has_come is not original
    assert ReadingEnd.has_come is original
