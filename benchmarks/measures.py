"""Measure what measuring costs: the service with and without it, in turn.

    python -m benchmarks.measures [--pairs 8] [--elements 300000]

Each run reads a job with one worker, in processes of their own, and counts the
processor seconds of all of them. Runs with and without measures alternate. What a
worker and a loop do to measure is left out by replacing these functions. The result is
the ratio of the medians; small elements without work show the cost at its largest.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
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


def run(elements: int, kind: str, with_measures: bool) -> dict[str, Any]:
    """Read in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.measures", "--read", kind]
    command += ["--elements", str(elements), *([] if with_measures else ["--without"])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run the pairs and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--elements", type=int, default=600_000)
    parser.add_argument("--read", choices=["rows", "batches"])
    parser.add_argument("--without", action="store_true")
    chosen = parser.parse_args()
    if chosen.read:
        if chosen.without:
            leave_out_measures()
        print(json.dumps(read(chosen.elements, chosen.read)))
        return
    for kind in ("rows", "batches"):
        pairs = [
            [
                run(chosen.elements, kind, bool(with_measures ^ (pair % 2)))
                for with_measures in (1, 0)
            ]
            for pair in range(chosen.pairs)
        ]
        measured = [pair[number % 2] for number, pair in enumerate(pairs)]
        plain = [pair[1 - number % 2] for number, pair in enumerate(pairs)]
        for what in ("work", "seconds"):
            medians = [statistics.median(one[what] for one in runs) for runs in (measured, plain)]
            each = statistics.median(
                one[what] / other[what] for one, other in zip(measured, plain, strict=True)
            )
            print(
                f"{kind}: {what} with measures {medians[0]:.3f} s, without {medians[1]:.3f} s, "
                f"ratio {medians[0] / medians[1]:.3f}, of pairs {each:.3f} (goal {GOAL})"
            )


if __name__ == "__main__":
    main()
