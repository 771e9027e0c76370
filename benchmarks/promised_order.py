"""Measure the price of a promised order: the same pipelines with and without it.

    python benchmarks/promised_order.py [--workers 1,2] [--seconds 1] [--turns 3]
        [--num-tasks 16] [--json FILE]

Both jobs of a case, with ``deterministic=True`` and without, are read for ``--seconds``
in turn. Wall time is what a training loop sees. CPU time, of the training process, the
dispatcher and all workers, is more informative on a machine with other load. A ratio of
0.9 is a price of 10 %. Linux only, since the CPU time of other processes is read from
/proc.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.testing.cluster import descendants

ENDLESS = 10**12
IMAGE = np.random.default_rng(0).integers(0, 255, (224, 224, 3), np.uint8)
TICKS = os.sysconf("SC_CLK_TCK")
WARM_UP = 1.0
LOOK = 64
"""Elements between two looks at the clock."""


def busy(x: Any) -> Any:
    """Keep a core busy for 0.1 ms of CPU time."""
    until = time.thread_time() + 1e-4
    while time.thread_time() < until:
        pass
    return x


def cases() -> dict[str, Callable[[], Dataset]]:
    """Return endless pipelines by name."""
    return {
        "int64 scalars": lambda: Dataset.range(ENDLESS),
        "1 KB arrays": lambda: Dataset.range(ENDLESS).map(lambda x: np.full(1024, x, np.uint8)),
        "150 KB images": lambda: Dataset.range(ENDLESS).map(lambda x: IMAGE.copy()),
        "map of 0.1 ms": lambda: Dataset.range(ENDLESS).map(busy),
    }


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time of this process and of others, threads included."""
    total = time.process_time()
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


@dataclass
class Read:
    """Either job of a case."""

    elements: Iterator[Any]
    """The elements."""
    pids: list[int]
    """Processes whose CPU time counts."""
    first: float = 0.0
    """Seconds to the first element."""
    wall: list[float] = field(default_factory=list)
    """Elements per second of wall time, for each turn."""
    cpu: list[float] = field(default_factory=list)
    """Elements per second of CPU time, for each turn."""

    def begin(self) -> None:
        """Take the first element, and more until credit windows are wide."""
        since = time.perf_counter()
        next(self.elements)
        self.first = time.perf_counter() - since
        self._take(WARM_UP)

    def turn(self, seconds: float) -> None:
        """Read for a while, after the elements that gathered while the other job was
        read.
        """
        self._take(seconds / 5)
        since, spent = time.perf_counter(), cpu_seconds(self.pids)
        count = self._take(seconds)
        self.wall.append(count / (time.perf_counter() - since))
        self.cpu.append(count / (cpu_seconds(self.pids) - spent))

    def _take(self, seconds: float) -> int:
        count, until = 0, time.perf_counter() + seconds
        while time.perf_counter() < until:
            for _, _element in zip(range(LOOK), self.elements, strict=False):
                count += 1
        return count


def measured(
    make: Callable[[], Dataset], cluster: LocalCluster, arguments: argparse.Namespace
) -> dict[str, float]:
    """Measure a case; return medians over the turns."""
    pids = descendants(os.getpid())
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "ordered": {"deterministic": True, "num_tasks": arguments.num_tasks},
    }
    if arguments.transport:
        options = {
            name: {**one, "data_transfer_protocol": arguments.transport}
            for name, one in options.items()
        }
    reads: dict[str, Read] = {}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options}
    for turn in range(arguments.turns):
        order = list(options.items())
        for name, chosen in order if turn % 2 else reversed(order):
            elements = iter(make().apply(distribute("distributed_epoch", cluster.target, **chosen)))
            with closing(elements):  # type: ignore[type-var]
                read = reads[name] = Read(elements, pids)
                read.begin()
                read.turn(arguments.seconds)
            found[name].append(
                {"first_ms": read.first * 1000, "wall": read.wall[0], "cpu": read.cpu[0]}
            )
    result = {
        f"{name} {what}": statistics.median(one[what] for one in turns)
        for name, turns in found.items()
        for what in ("wall", "cpu", "first_ms")
    }
    for what in ("wall", "cpu"):
        pairs = zip(found["ordered"], found["plain"], strict=True)
        result[f"{what} ratio"] = statistics.median(
            ordered[what] / plain[what] for ordered, plain in pairs
        )
    return result


def main() -> None:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", default="1,2", help="numbers of worker processes")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--num-tasks", type=int, default=16)
    parser.add_argument("--transport", choices=["tcp", "ipc"], default=None)
    parser.add_argument("--case", action="append", help="prefix of the names of cases to measure")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    print(
        "| case | workers | elements/s | ordered | ratio | ratio by CPU time | first element, ms | "
        "ordered |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for workers in [int(one) for one in arguments.workers.split(",")]:
        with LocalCluster(num_workers=workers) as cluster:
            for name, make in cases().items():
                if arguments.case and not name.startswith(tuple(arguments.case)):
                    continue
                row = measured(make, cluster, arguments)
                rows.append({"case": name, "workers": workers, **row})
                print(
                    f"| {name} | {workers} | {row['plain wall']:,.0f} | {row['ordered wall']:,.0f} "
                    f"| {row['wall ratio']:.2f} | {row['cpu ratio']:.2f} "
                    f"| {row['plain first_ms']:.0f} | {row['ordered first_ms']:.0f} |",
                    flush=True,
                )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
