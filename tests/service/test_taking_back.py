"""Facts about splits that the dispatcher takes back, counted by task: a slow worker
does not delay the end.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from tests.service.conftest import Service, wait_until
from zmqdata import Dataset

TOTAL = 1_500
BEFORE = 100


class Workshop:
    """Counts the elements of each task. The first task that has made ``BEFORE``
    elements gets stuck in the next element.
    """

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.stuck = ""
        self.gate = threading.Event()
        self._cost = threading.Event()
        self._lock = threading.Lock()

    def make(self, value: int) -> int:
        name = threading.current_thread().name
        with self._lock:
            if not self.stuck and self.made[name] == BEFORE:
                self.stuck = name
        (self.gate if name == self.stuck else self._cost).wait(
            90.0 if name == self.stuck else 0.001
        )
        with self._lock:
            self.made[name] += 1
        return value


WORKSHOP = Workshop()


def make(value: int) -> int:
    return WORKSHOP.make(value)


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A new workshop, in which ``make`` works."""
    fresh = Workshop()
    monkeypatch.setattr(f"{__name__}.WORKSHOP", fresh)
    return fresh


def totals(service: Service) -> list[int]:
    """Return the number of elements of each task that has ended."""
    shell = service.dispatcher._own_shell()
    assert shell is not None
    return [task.total for task in list(shell.core.state.tasks.values()) if task.total is not None]


@pytest.mark.parametrize("repetitions", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_worker_that_is_stuck_loses_what_it_has_not_started(
    service: Service, workshop: Workshop, repetitions: int
) -> None:
    """A stuck worker with hundreds of leased splits makes the splits that it has begun,
    and the other worker makes all the rest, each once.
    """
    got: list[int] = []
    dataset = service.read(Dataset.range(TOTAL).repeat(repetitions).map(make))
    reader = threading.Thread(target=lambda: got.extend(map(int, dataset)), daemon=True)
    reader.start()
    wait_until(lambda: totals(service), "the other worker comes to the end", 60.0)
    others = sum(workshop.made.values()) - workshop.made[workshop.stuck]
    assert totals(service) == [others]
    workshop.gate.set()
    reader.join(60.0)
    assert sorted(got) == sorted(list(range(TOTAL)) * repetitions)
    assert sum(workshop.made.values()) == TOTAL * repetitions
    # A source begins the splits of a twentieth of a second, here about 50.
    assert workshop.made[workshop.stuck] < BEFORE + 150


def test_a_worker_that_drains_gives_back_at_once(
    make_service: Callable[..., Service], workshop: Workshop
) -> None:
    """While clients read the last elements of a draining worker, others make what it
    had not begun, and nothing is lost or doubled.
    """
    service = make_service(worker_options={"shutdown_quiet_period_ms": 5_000})
    workshop.gate.set()
    elements = iter(service.read(Dataset.range(TOTAL).map(make)))
    got = [int(next(elements)) for _ in range(BEFORE)]
    stopping = threading.Thread(target=service.workers[0].stop)
    stopping.start()
    got += map(int, elements)
    stopping.join(60.0)
    assert sorted(got) == list(range(TOTAL))
