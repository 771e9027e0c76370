"""Tests of ``zmqdata.worker.tasks.pipeline``."""

from __future__ import annotations

import random
import types

import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.worker.tasks import pipeline


def module_function() -> types.FunctionType:
    """Return a function that uses a generator of this module."""
    return lambda x: RNG.random()


RNG = np.random.default_rng(1)


def test_generators_of_modules_belong_to_a_users_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker seeds the generators of modules in its own process, and not in that of a
    user.
    """
    node = Dataset.range(3).map(module_function()).node
    before = RNG.bit_generator.state
    pipeline.captured_by(node, 1).begin()
    assert before == RNG.bit_generator.state
    monkeypatch.setattr(pipeline, "_is_own_process", False)
    pipeline.own_process()
    pipeline.captured_by(node, 1).begin()
    assert before != RNG.bit_generator.state


def test_global_generators_are_seeded_by_the_system() -> None:
    """Equal seeds that a module gave to global generators do not last."""
    states = random.getstate(), np.random.get_state()
    try:
        drawn = set()
        for _ in range(2):
            random.seed(1)
            np.random.seed(1)
            pipeline.seed_globals()
            drawn |= {random.random(), float(np.random.random())}
        assert len(drawn) == 4
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
