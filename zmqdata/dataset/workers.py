"""The part of a profile that workers run: what they are at, and advice on it."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from zmqdata.iterators.watching import OUTSIDE, WAITS_FOR_READERS, WAITS_FOR_SPLITS
from zmqdata.nodes import Node, TaskActivity

FIRST_LOOK, EVERY = 0.2, 0.5
"""Seconds until the workers are asked, and then between two questions: their tasks may
be gone when the run ends.
"""
SMALL = 50e-6
"""Seconds for an element below which handing it over costs more than most functions."""
SLOW = 3.0
"""Factor by which a worker is slower than the median of all that counts as slow."""


class WorkerWatch:
    """Asks the workers of distributed nodes what they are at, in a thread of its own.

    Args:
        found: the nodes; those that run in this process are ignored.
    """

    def __init__(self, found: Iterable[Node]) -> None:
        self._nodes = {id(node): node for node in found if node.runs_elsewhere}
        self._seen: dict[int, dict[tuple[int, int], TaskActivity]] = {
            key: {} for key in self._nodes
        }
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zmqdata-profile", daemon=True)
        if self._nodes:
            self._thread.start()

    def _run(self) -> None:
        pause = FIRST_LOOK
        while not self._ended.wait(pause):
            self._ask()
            pause = EVERY

    def _ask(self) -> None:
        for key, node in self._nodes.items():
            self._seen[key].update(node.activity())

    def end(self) -> None:
        """Ask a last time, and end the thread."""
        if self._nodes and not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._ask()

    def of(self, node: Node) -> list[TaskActivity]:
        """Return what the tasks of a node were seen at."""
        return list(self._seen.get(id(node), {}).values())


def seen_at(tasks: Iterable[TaskActivity]) -> Counter[str]:
    """Return how often tasks were seen at what, together."""
    seen: Counter[str] = Counter()
    for task in tasks:
        seen.update(task.seen)
    return seen


def slow_workers(tasks: Iterable[TaskActivity]) -> dict[str, float]:
    """Return the workers that are much slower than others, with the factor.

    Only the time in which a worker was at work counts.

    Example:
        >>> slow_workers(TaskActivity(worker, {"map(f)": 10}, made)
        ...              for worker, made in (("a", 100), ("b", 110), ("c", 10)))
        {'c': 10.0}
    """
    made: Counter[str] = Counter()
    looks: Counter[str] = Counter()
    for task in tasks:
        made[task.worker] += task.produced
        looks[task.worker] += sum(
            count
            for what, count in task.seen.items()
            if what not in (WAITS_FOR_READERS, WAITS_FOR_SPLITS)
        )
    each = {worker: count / max(1, made[worker]) for worker, count in looks.items() if count}
    if len(each) < 2:
        return {}
    usual = statistics.median_low(each.values())
    return {
        worker: slowness for worker in sorted(each) if (slowness := each[worker] / usual) >= SLOW
    }


def advice_on_workers(tasks: Iterable[TaskActivity], each: float) -> str:
    """Return advice for a pipeline that runs on workers.

    Args:
        tasks: what they were seen at.
        each: seconds for an element.

    Example:
        >>> seen = {"map(decode) at train.py:3": 9, OUTSIDE: 1}
        >>> advice_on_workers([TaskActivity("tcp://a:1", seen, 9)], 0.01)[:52]
        'The workers are busy, most often with map(decode) at'
    """
    tasks = list(tasks)
    seen = seen_at(tasks)
    whole = sum(seen.values())
    most = max(seen, key=lambda name: seen[name]) if seen else OUTSIDE
    slow = slow_workers(tasks)
    if each < SMALL and most in (OUTSIDE, WAITS_FOR_READERS):
        return (
            "Elements are small, and handing them over takes longer than making them. Make them "
            "fewer and larger: batch() before distribute(), or a larger batch."
        )
    if not whole:
        return (
            "The run was too short to see what the workers do. Profile more elements: repeat() "
            "before distribute(), and a longer profile()."
        )
    if seen.get(WAITS_FOR_READERS, 0) > whole / 2:
        return (
            "The workers wait for this process, so elements travel, or are taken here, more "
            "slowly than they are made. Make elements fewer and larger: batch() before "
            "distribute(). Or read the job in several processes."
        )
    if slow:
        names = ", ".join(f"{worker} ({factor:.0f} times)" for worker, factor in slow.items())
        return (
            f"Some workers take much longer for an element than the others: {names}. Look at "
            "their machines; the others make what these do not."
        )
    if most == WAITS_FOR_SPLITS:
        return (
            "The workers wait for splits: the source has fewer files or elements left than "
            "workers, or the dispatcher is slow. Use more and smaller files."
        )
    if most == OUTSIDE:
        return (
            "The workers are busy, but seldom with your functions: reading, batching or packing "
            "takes their time. Add workers, and profile() the dataset before distribute() to find "
            "the operation."
        )
    share = 100 * seen[most] / whole
    name = most.partition(" at ")[0]
    busy = f"The workers are busy, most often with {most} ({share:.0f} % of the time). "
    if name.startswith("from_generator("):
        return (
            f"{busy}Make the generator faster, or use files or arrays as the source, of which "
            "each worker reads a part."
        )
    waits = (
        " If it waits rather than computes, num_parallel_calls=AUTOTUNE lets it wait for several "
        "elements at a time."
    )
    return f"{busy}Add workers, or make {name} faster.{waits if name.startswith('map(') else ''}"


def shares(seen: Mapping[str, int]) -> str:
    """Return the shares of time as text.

    Example:
        >>> shares({"map(f)": 3, OUTSIDE: 1})
        '75 % map(f), 25 % outside of functions'
    """
    whole = sum(seen.values())
    ranked = sorted(seen.items(), key=lambda item: -item[1])
    return ", ".join(f"{100 * count / whole:.0f} % {name}" for name, count in ranked)
