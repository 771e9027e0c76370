"""Tests of the decisions of a host, in a simulated engine."""

from __future__ import annotations

import itertools
import random

import pytest

from zmqdata.cluster.fleet import (
    DRAINING,
    HEALTHY_AFTER,
    LONGEST_PAUSE,
    QUEUED,
    RUNNING,
    STARTING,
    Fleet,
)


class Engine:
    """An engine whose workers wait in a queue, start, end and drain.

    Args:
        random_: decides which starts it refuses.
        refuses: share of the starts that it refuses.
    """

    def __init__(self, random_: random.Random, refuses: float = 0.0) -> None:
        self.states: dict[str, str] = {}
        self.refuses = refuses
        self.starts = 0
        self._random = random_

    def turn(self, fleet: Fleet, now: float) -> None:
        """Carry out what the fleet decides."""
        actions = fleet.decide(now, self.states)
        for name in actions.start:
            self.starts += 1
            if self._random.random() < self.refuses:
                fleet.refused(now)
                break
            assert name not in self.states, "two workers have one name"
            self.states[name] = QUEUED
            fleet.accepted(name)
        for name in actions.stop:
            assert self.states[name] != DRAINING, "a worker is told twice"
            self.states[name] = DRAINING

    def live(self, deadly: float) -> None:
        """Let workers go on by a step; some of them die."""
        following = {QUEUED: STARTING, STARTING: RUNNING}
        for name, state in list(self.states.items()):
            if state == DRAINING or (state == RUNNING and self._random.random() < deadly):
                del self.states[name]
            elif self._random.random() < 0.5:
                self.states[name] = following.get(state, state)


@pytest.fixture
def engine() -> Engine:
    """An engine that refuses nothing."""
    return Engine(random.Random(1))


def test_a_worker_that_ends_is_started_again_under_its_name(engine: Engine) -> None:
    """A worker that has run for long and ends is replaced at once."""
    fleet = Fleet("w")
    assert fleet.grow(2) == ["w-0", "w-1"]
    engine.turn(fleet, 0.0)
    engine.states = dict.fromkeys(engine.states, RUNNING)
    engine.turn(fleet, 1.0)
    del engine.states["w-0"]
    engine.turn(fleet, 1.0 + HEALTHY_AFTER)
    assert engine.states == {"w-0": QUEUED, "w-1": RUNNING}


def test_a_queued_worker_is_left_in_the_queue(engine: Engine) -> None:
    """However long a worker is queued, it is started once."""
    fleet = Fleet("w")
    fleet.grow(1)
    for now in range(10_000):
        engine.turn(fleet, float(now))
    assert engine.starts == 1


def test_the_least_useful_workers_are_given_up_first() -> None:
    """A smaller wish gives up queued workers, then starting ones, then the newest."""
    fleet = Fleet("w")
    states = {"w-0": RUNNING, "w-1": QUEUED, "w-2": RUNNING, "w-3": STARTING, "w-4": RUNNING}
    fleet.grow(5)
    for left in (
        ["w-0", "w-2", "w-3", "w-4"],
        ["w-0", "w-2", "w-4"],
        ["w-0", "w-2"],
        ["w-0"],
        [],
    ):
        fleet.resize(len(left), states)
        assert fleet.wanted == left


def test_a_worker_that_was_stopped_is_told_once(engine: Engine) -> None:
    """A worker that is not wanted is told to end once, and is not replaced."""
    fleet = Fleet("w")
    fleet.grow(2)
    engine.turn(fleet, 0.0)
    fleet.shrink(["w-0", "unknown"])
    for now in range(1, 4):
        engine.turn(fleet, float(now))
    assert engine.states == {"w-0": DRAINING, "w-1": QUEUED}
    engine.states.pop("w-0")
    engine.turn(fleet, 5.0)
    assert engine.states == {"w-1": QUEUED}


def test_refused_starts_pause_for_a_minute_at_most(engine: Engine) -> None:
    """After ten refused starts in a row, the next one comes a minute later."""
    fleet, engine.refuses = Fleet("w"), 1.0
    fleet.grow(3)
    times, now = [], 0.0
    while len(times) < 15:
        before = engine.starts
        engine.turn(fleet, now)
        times += [now] if engine.starts > before else []
        now += 0.25
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 0.5
    assert pauses[9:] == [LONGEST_PAUSE] * 5


def test_an_end_soon_after_the_start_counts_as_a_refused_start(engine: Engine) -> None:
    """Workers that end at once are started ten times in the first minutes, no more."""
    fleet = Fleet("w")
    fleet.grow(1)
    for step in range(4 * 600):
        engine.states = {}
        engine.turn(fleet, step / 4)
    assert 10 < engine.starts < 22


def test_pauses_grow_beside_a_healthy_worker(engine: Engine) -> None:
    """A worker that the engine always refuses is not started again and again because
    another one runs.
    """
    fleet = Fleet("w")
    fleet.grow(1)
    for now in (0.0, 20.0):
        engine.turn(fleet, now)
        engine.states = {"w-0": RUNNING}
    engine.turn(fleet, 20.0 + HEALTHY_AFTER)
    fleet.grow(1)
    engine.refuses, engine.starts = 1.0, 0
    for step in range(4 * 120):
        engine.turn(fleet, 40.0 + step / 4)
    assert engine.starts < 12


def test_workers_that_end_together_are_one_failure(engine: Engine) -> None:
    """A node that takes all of its workers along costs no minute."""
    fleet = Fleet("w")
    fleet.grow(16)
    engine.turn(fleet, 0.0)
    engine.states = {}
    engine.turn(fleet, 1.0)
    engine.turn(fleet, 1.5)
    assert len(engine.states) == 16


def test_a_healthy_worker_ends_the_pauses(engine: Engine) -> None:
    """After a worker has run for long, the first failure pauses for a moment again."""
    fleet = Fleet("w")
    fleet.grow(1)
    for _ in range(12):
        fleet.refused(0.0)
    engine.turn(fleet, LONGEST_PAUSE)
    engine.states = {"w-0": RUNNING}
    engine.turn(fleet, 100.0)
    engine.turn(fleet, 100.0 + HEALTHY_AFTER)
    engine.states = {}
    engine.turn(fleet, 101.0 + HEALTHY_AFTER)
    assert engine.states == {"w-0": QUEUED}


@pytest.mark.parametrize("seed", range(200))
def test_the_wish_comes_true_in_any_engine(seed: int) -> None:
    """Once an engine refuses and kills no more, exactly the wanted workers run."""
    chance = random.Random(seed)
    fleet, engine = Fleet("w"), Engine(chance, refuses=chance.choice([0.0, 0.2, 0.9]))
    deadly, now = chance.choice([0.0, 0.01, 0.3]), 0.0
    for _ in range(chance.randrange(5, 80)):
        change = chance.random()
        if change < 0.2:
            fleet.grow(chance.randrange(3))
        elif change < 0.4:
            fleet.shrink(chance.sample(fleet.wanted, len(fleet.wanted) // 2))
        elif change < 0.6:
            fleet.resize(chance.randrange(8), engine.states)
        engine.turn(fleet, now)
        engine.live(deadly)
        now += chance.choice([0.1, 1.0, 5.0])
    engine.refuses = 0.0
    for _ in range(60):
        engine.turn(fleet, now)
        engine.live(0.0)
        now += 5.0
    assert engine.states == dict.fromkeys(fleet.wanted, RUNNING)
