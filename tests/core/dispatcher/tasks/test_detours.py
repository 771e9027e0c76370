"""Test how a task moves when a client cannot reach its worker."""

from __future__ import annotations

from tests.core.dispatcher.tasks.test_hosting import Hosts
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.tasks.detours import HEARD_LATELY, Detours


class Crossing(Hosts):
    """Hosts whose clients report unreachable workers."""

    def miss(self, *names: str, now: float = 1.0) -> list[str]:
        """Let a client report unreachable workers, and return the log lines."""
        detours = Detours(self.out, self.hosting)
        detours.move_tasks(self.iteration, "k", [f"tcp://{name}" for name in names], now)
        return [one.text for one in self.out.drain() if isinstance(one, e.LogLine)]


def hosts(mode: str = "DYNAMIC") -> Crossing:
    crossing = Crossing("k", mode=mode)
    crossing.add("a", "b")
    crossing.hosting.staff(crossing.iteration)
    crossing.out.drain()
    return crossing


def test_a_task_leaves_a_worker_that_its_reader_misses() -> None:
    """A new attempt begins on another worker, and the log gives the reason."""
    crossing = hosts()
    [task] = [task for task in crossing.tasks if task.worker == "a"]
    [text] = crossing.miss("a")
    assert "cannot reach worker tcp://a" in text
    assert (task.attempt, task.worker) == (2, "")
    assert task.task in crossing.hosting.facts["a"].shunned


def test_a_task_comes_to_each_worker_once() -> None:
    """A task moves to each worker once, so that a client without any reachable worker
    waits.
    """
    crossing = hosts()
    assert crossing.miss("a", "b") == []
    crossing = hosts()
    assert len(crossing.miss("a")) == 1
    assert crossing.miss("b") == []


def test_a_worker_that_nobody_hears_is_not_the_cables_fault() -> None:
    """A worker that no peer hears keeps its task, as it is busy or will be found
    dead.
    """
    crossing = hosts()
    assert crossing.miss("a", now=HEARD_LATELY) == []
    assert crossing.miss() == []


def test_copies_stay_where_they_are() -> None:
    """A copy that each worker makes for itself does not move."""
    assert hosts("OFF").miss("a") == []
