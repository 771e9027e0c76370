"""Tests that an event's cost at the dispatcher is independent of the number of workers.
The tests count steps and measure no time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from benchmarks.events import Crowd, measure
from zmqdata import messages as m

FEW, MANY = 20, 200


def crowd(workers: int, clients: int = 2) -> Crowd:
    """Return a dispatcher with many workers, each with a task that all peers know."""
    made = Crowd(clients)
    for _ in range(workers):
        made.register()
    for _ in range(40):
        made.tick()
        for worker in made.workers:
            made.beat(worker)
    for worker in made.workers:
        made.ask(worker)
    return made


def steps(call: Callable[[], object]) -> int:
    """Return the number of bytecode instructions that a call executes in total."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    gc.disable()  # garbage of other tests could run code
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def dying(made: Crowd) -> Callable[[], object]:
    return lambda: made.die(made.workers[7])


EVENTS: dict[str, Callable[[Crowd], Callable[[], object]]] = {
    "worker beats": lambda made: lambda: made.beat(made.workers[7]),
    "worker asks for splits": lambda made: lambda: made.ask(made.workers[7]),
    "client reports": lambda made: lambda: made.report(made.clients[0], 1, made.workers[:5]),
    "connection lost": lambda made: (
        lambda: made.core.workers.lose_contact(made.workers[7], made.now)
    ),
}


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_costs_the_same_however_many_workers_there_are(kind: str) -> None:
    """An event takes equally many interpreter steps for many workers, within 10 %."""
    few, many = (steps(EVENTS[kind](crowd(workers))) for workers in (FEW, MANY))
    assert 0 < many <= 1.1 * few


@pytest.mark.parametrize("kind", ["register", "die"])
def test_workers_come_and_go_at_the_same_cost(kind: str) -> None:
    """A worker joins or leaves at a constant cost, as placing its task looks at no
    other. The test has no clients to notify.
    """
    found = []
    for workers in (FEW, MANY):
        made = crowd(workers, clients=1)
        made.hear(made.clients[0], m.CloseIteration(made.clients.pop(), 0, {}))
        made.tick()
        found.append(steps(made.register if kind == "register" else dying(made)))
    few, many = found
    assert 0 < many <= 1.1 * few


def test_a_tick_looks_at_the_silent_only() -> None:
    """A tick looks only at silent workers, so it is cheap if all have just reported."""
    few, many = (steps(crowd(workers).tick) for workers in (FEW, MANY))
    assert 0 < many <= 1.1 * few


@pytest.mark.full
def test_every_kind_of_event_is_measured() -> None:
    """The program measures each kind of event it names, and reports seconds."""
    found = measure(20, 2)
    assert len(found) == 7
    assert all(0 < seconds < 1 for seconds in found.values())
