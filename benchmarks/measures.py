"""Measure what measuring costs: the service with and without it, in turn.

    python -m benchmarks.measures [--pairs 8] [--elements 600000] [--cores 1]

Each run reads a job of one worker, in a process of its own on one core, and counts its
processor seconds. Runs with and without measures alternate on the same core. What a
worker and a loop do to measure is left out by replacing these functions. The result is
the median of the ratios of pairs; small elements without work show the cost at its
largest.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from zmqdata import Dataset, LocalCluster, distribute

GOAL = 1.01
"""Ratio of processor seconds below which measuring is cheap enough."""


def leave_out_measures() -> None:
    """Replace all functions that measure by functions that do nothing."""
    from zmqdata.measures.meter import LoopMeter
    from zmqdata.worker.measuring import Measuring
    from zmqdata.worker.tasks.meter import Stopwatch

    nothing: dict[type, tuple[str, ...]] = {
        LoopMeter: ("ask", "give"),
        Measuring: ("look",),
        Stopwatch: ("turn", "wait_for_split"),
    }
    for kind, names in nothing.items():
        for name in names:
            setattr(kind, name, lambda *arguments: None)
    setattr(Measuring, "reports", lambda *arguments: ())  # noqa: B010 - as those above


def read(elements: int, kind: str) -> dict[str, Any]:
    """Read the elements of a job, and return seconds and processor seconds."""
    dataset = Dataset.range(elements)
    if kind == "batches":
        dataset = dataset.batch(32).map(lambda rows: rows * 2)
    with LocalCluster(1, in_process=True) as cluster:
        began, work = time.perf_counter(), _work()
        count = sum(1 for _ in dataset.apply(distribute("distributed_epoch", cluster.target)))
        return {"count": count, "seconds": time.perf_counter() - began, "work": _work() - work}


def _work() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(elements: int, kind: str, with_measures: bool, core: int) -> dict[str, Any]:
    """Read in a process of its own, on one core."""
    command = [sys.executable, "-m", "benchmarks.measures", "--read", kind]
    command += ["--elements", str(elements), "--core", str(core)]
    command += [] if with_measures else ["--without"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def pair_of(elements: int, kind: str, number: int, core: int) -> dict[str, float]:
    """Run with measures and without, every second time the other way round, and return
    the ratios.
    """
    found = {
        which: run(elements, kind, which, core)
        for which in ((True, False) if number % 2 else (False, True))
    }
    return {what: found[True][what] / found[False][what] for what in ("work", "seconds")}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the bounds between which the median lies in 95 of 100 cases, whatever the
    distribution is.

    >>> interval(range(20))
    (5, 14)
    """
    found, count = sorted(values), len(values)
    below, rank = 0.5**count, 0
    while below <= 0.025 and rank < count // 2:
        rank += 1
        below += math.comb(count, rank) * 0.5**count
    return found[max(0, rank - 1)], found[count - max(1, rank)]


def main() -> None:
    """Run the pairs and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--elements", type=int, default=600_000)
    parser.add_argument("--cores", type=int, default=1, help="pairs that run at the same time")
    parser.add_argument("--read", choices=["rows", "batches"])
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--without", action="store_true")
    chosen = parser.parse_args()
    if chosen.read:
        os.sched_setaffinity(0, {chosen.core})
        if chosen.without:
            leave_out_measures()
        print(json.dumps(read(chosen.elements, chosen.read)))
        return
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0))[: chosen.cores]:
        free.put(core)

    def measure(kind: str, number: int) -> dict[str, float]:
        core = free.get()
        try:
            return pair_of(chosen.elements, kind, number, core)
        finally:
            free.put(core)

    with ThreadPoolExecutor(chosen.cores) as pool:
        for kind in ("rows", "batches"):
            pairs = list(pool.map(partial(measure, kind), range(chosen.pairs)))
            for what in ("work", "seconds"):
                ratios = [one[what] for one in pairs]
                low, high = interval(ratios)
                print(
                    f"{kind}: {what} with measures / without: {statistics.median(ratios):.4f}, "
                    f"95 % between {low:.4f} and {high:.4f}, {len(ratios)} pairs (goal {GOAL})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
