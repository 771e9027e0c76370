"""Tests of ``zmqdata.worker.tasks.pipeline``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from tests.definitions import define
from zmqdata.dataset import Dataset
from zmqdata.pipelines import pack_pipeline
from zmqdata.worker.tasks import pipeline


@pytest.fixture(autouse=True)
def same_generators() -> Iterator[None]:
    """Give the generators of modules back as they were."""
    states = random.getstate(), np.random.get_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])


def test_global_generators_are_seeded_by_the_system() -> None:
    """Equal seeds that a module gave to global generators do not last."""
    drawn = set()
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        pipeline.seed_globals()
        drawn |= {random.random(), float(np.random.random())}
    assert len(drawn) == 4


def test_opening_a_pipeline_waits_for_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline is opened while another thread draws by a seed. Neither waits, and the
    generators are seeded by the system once that thread is done.
    """
    monkeypatch.setattr(pipeline, "_is_own_process", True)
    packed = pack_pipeline(Dataset.range(3).node)
    task = define(1, 1, 7, "dataset", packed.digest, "OFF", 9, None, (), ())
    called = partial(pipeline.opened, packed.encoded, task, lambda digest: None, "this worker")
    with pipeline.seeding():
        random.seed(1)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(called).result(10)
        assert random.random() == random.Random(1).random()
        random.seed(1)
    assert random.random() != random.Random(1).random()
