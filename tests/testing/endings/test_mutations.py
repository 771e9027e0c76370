"""Facts about mutations of the cores: the worlds that aim at the end find each one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.full import full
from tests.kit.kinds import PLAIN
from tests.kit.mutations import MUTATIONS, Mutation, broken_by
from tests.kit.scenario import Program
from zmqdata.core.client.leaving import ReadingEnd

CHEAP = "ends-at-once"


@pytest.mark.parametrize("name", [CHEAP, *map(full, sorted(MUTATIONS.keys() - {CHEAP}))])
def test_each_mutation_breaks_a_law(name: str) -> None:
    """A core that lacks a part of the rule breaks a law within 2,000 worlds."""
    assert broken_by(MUTATIONS[name]) is not None, MUTATIONS[name].text


class Calm(Program):
    """A program that does nothing, and breaks nothing."""

    def run(self) -> None:
        """Do nothing."""


class Broken(Program):
    """A program that breaks a law whatever the core does."""

    def run(self) -> None:
        """Break a law."""
        self.world.laws.fail("always")


def test_a_mutation_that_no_law_notices_is_reported() -> None:
    """A world that breaks a law in any case is no sign of a mutation, and the core is
    afterwards as before.
    """
    original = ReadingEnd.has_come
    mutation = Mutation("nothing else", ((ReadingEnd, "has_come", original),))
    kinds = [replace(PLAIN, program=program) for program in (Calm, Broken)]
    assert broken_by(mutation, most=3, kinds=kinds) is None
    with MUTATIONS[CHEAP].applied():
        assert ReadingEnd.has_come is not original
    assert ReadingEnd.has_come is original
