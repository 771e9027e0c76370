"""Tests of ``zmqdata.worker.tasks.pipeline``."""

from __future__ import annotations

import random

import numpy as np

from zmqdata.worker.tasks import pipeline


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
