"""Facts about saves in simulated worlds: every element is on disk once whatever dies,
and the laws catch broken cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tests.full import seeds
from tests.kit.checks import LawBroken
from tests.kit.runner import SimulatedPipeline
from tests.kit.saving import SAVING, SAVING_POISON, Saver, SavingWorld
from tests.kit.scenario import Scenario
from zmqdata import messages as m
from zmqdata.core.dispatcher.saving import Saves
from zmqdata.core.dispatcher.tasks.hosting import Hosting

Mutation = Callable[[pytest.MonkeyPatch], None]
FAMILIES = 4
WORLDS = 25
FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))


@pytest.mark.parametrize("family", seeds(FAMILIES, core=1))
def test_whatever_goes_wrong_everything_is_saved_once(family: int) -> None:
    """Deaths of workers and of the dispatcher, cuts and lost messages leave every
    element in one chunk of the manifest.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        Scenario(seed, SAVING).run()


@pytest.mark.parametrize("family", seeds(2, core=1))
def test_poison_is_left_out_of_saves_or_ends_them(family: int) -> None:
    """The dispatcher finds elements that kill their worker among all other faults, and
    ERROR names one of them.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        Scenario(seed, SAVING_POISON).run()


@pytest.mark.parametrize(("rule", "marker", "deaths"), [("skip", "DONE", 8), ("fail", "ERROR", 4)])
def test_three_deaths_are_enough(rule: str, marker: str, deaths: int) -> None:
    """Two elements that kill are each skipped after three deaths alone, or the save
    ends after the first element's deaths. Another death has raised the suspicion.
    """
    world = SavingWorld(
        seed=2, pipeline=SimulatedPipeline(splits=40, most=1, kills=20), on_poison=rule
    )
    world.add_worker()
    Saver(world)
    world.save_until_marked()
    assert world.folder.marker == marker
    assert len(world.workers) == 1 + deaths
    world.check_saved()


def test_a_calm_save_uses_every_worker() -> None:
    """Each of three workers writes a stream of its own, and together they save
    everything.
    """
    world = SavingWorld(seed=1, pipeline=SimulatedPipeline(splits=300))
    for _ in range(3):
        world.add_worker()
    saver = Saver(world)
    world.save_until_marked()
    assert saver.outcome == "started"
    assert len({task.worker for task in world.dispatcher.core.state.tasks.values()}) == 3
    world.check_saved()


def _count_what_does_not_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    def chunk_written(self: Saves, peer: Any, message: Any, now: float) -> None:
        task = self._current(peer, message)
        if task is not None:
            self._commit(task, message)
            self.out.send(peer, m.ChunkCommitted(task.task, task.attempt, message.stop))

    monkeypatch.setattr(Saves, "chunk_written", chunk_written)


def _publish_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a new dispatcher from checking committed chunks again."""
    monkeypatch.setattr(Saves, "resume", lambda self: None)


def _forget_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = Hosting._definition

    def definition(self: Hosting, task: Any) -> Any:
        return structs.replace(real(self, task), skip=())

    monkeypatch.setattr(Hosting, "_definition", definition)


def _tell_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmqdata.core.worker.saving.REPEAT", 1e9)


@pytest.mark.parametrize(
    ("mutation", "first"),
    [
        (_count_what_does_not_follow, 0),
        (_publish_first, 60),
        (_forget_what_counts, 0),
        (_tell_once, 0),
    ],
)
def test_a_broken_core_is_caught(
    mutation: Mutation, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A core without a rule breaks a law in one of a few worlds."""
    mutation(monkeypatch)
    with pytest.raises(LawBroken):
        _live_through(range(first, first + 50))


def _live_through(seeds: range) -> None:
    for seed in seeds:
        Scenario(seed, SAVING).run()
