"""Facts about splits that are taken back in simulated time: one slow worker does not
hold up the end.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from zmqdata import Dataset
from zmqdata.testing import SimulatedService

TOTAL = 1_500
BEFORE = 100
MADE: Counter[str] = Counter()
"""How many elements each task has made; functions of an importable module go by name."""


def make(x: Any) -> Any:
    MADE[threading.current_thread().name] += 1
    return x


@pytest.mark.parametrize("repetitions", [1, 2])
def test_a_worker_that_turns_slow_loses_what_it_has_not_started(
    make_service: Callable[..., SimulatedService], repetitions: int
) -> None:
    """With hundreds of splits leased, it makes those it had begun, and the other worker
    all the rest, each once.
    """
    service = make_service(pace=0.001)
    MADE.clear()
    elements = iter(service.read(Dataset.range(TOTAL).repeat(repetitions).map(make)))
    got = [int(next(elements)) for _ in range(2 * BEFORE)]
    [name] = [f"zmqdata-task-{task}" for task in service.workers[0].core.tasks]
    before, service.workers[0].pace = MADE[name], 10.0
    got += map(int, elements)
    assert sorted(got) == sorted([*range(TOTAL)] * repetitions)
    assert sum(MADE.values()) == TOTAL * repetitions
    # A source has begun what lasts a twentieth of a second, here some 50 splits.
    assert before < MADE[name] < before + 150
