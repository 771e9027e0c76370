"""Measure whether readers of one job end together, and so do workers.

    python -m benchmarks.sharing [readers] [workers]

``readers`` lets processes read one job, each at its own pace, and compares the end of
the last one with the ideal: the elements, divided by the speed of all readers together.
``workers`` lets one process read pipelines of which each element takes a worker 5 ms,
and compares the end with the ideal. All waiting is sleep, so that the machine's
processors need not be as many.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zmqdata import Dataset, LocalCluster, distribute

JOB = "shared"
WORK = 0.005
"""Seconds of a worker for an element."""
COUNT = 600
"""Number of elements of a pipeline whose workers are measured."""


@dataclass(frozen=True)
class Readers:
    """Readers of a job."""

    count: int
    """Number of elements."""
    paces: tuple[float, ...]
    """Seconds that each reader takes for an element."""
    late: float = 0.0
    """Seconds after which all readers but the first begin."""
    workers: int = 2
    """Number of workers."""

    @property
    def ideal(self) -> float:
        """Seconds until the end if no reader ever waits."""
        first = min(self.late, self.count * self.paces[0])
        left = self.count - first / self.paces[0]
        return first + left / sum(1 / pace for pace in self.paces)

    @property
    def bound(self) -> float:
        """Seconds that are allowed."""
        return 1.1 * self.ideal + max(self.paces) + 0.2


SHARED = (
    Readers(100, (0.01, 0.01)),
    Readers(100, (0.01, 0.1)),
    Readers(100, (0.05, 0.5), workers=3),
    Readers(40, (0.1, 0.1, 1.0)),
    Readers(1_000, (0.003, 0.003)),
    Readers(3_000, (0.003, 0.003), late=2.0),
    Readers(10_000, (0.001, 0.01)),
    Readers(2_000, (0.02,) * 8 + (0.2,) * 8),
)
SIZES = (0, 10, 60, 300, COUNT, 2 * COUNT)
"""Sizes of the shuffle; 0 for none."""


def shared(target: str, count: int) -> Dataset:
    return Dataset.range(count).apply(distribute("distributed_epoch", target, JOB))


def read(target: str, count: int, pace: float, begin: float) -> None:
    """Read the job from a time on, and print the number of elements and the end."""
    dataset = shared(target, count)
    time.sleep(max(0.0, begin - time.time()))
    found = 0
    for _ in dataset:
        found += 1
        time.sleep(pace)
    print(found, time.time())


def measure_readers(case: Readers) -> tuple[float, list[int]]:
    """Return the seconds until the last reader ended, and the elements of each."""
    with LocalCluster(case.workers) as cluster:
        begin = time.time() + 2.0 + 0.3 * len(case.paces)
        environment = {**os.environ, "ZMQDATA_RUN_ID": "one"}
        command = [sys.executable, "-m", "benchmarks.sharing", "read", cluster.target]
        started = []
        for number, pace in enumerate(case.paces):
            when = begin + (case.late if number else 0.0)
            arguments = [*command, str(case.count), str(pace), str(when)]
            started.append(
                subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
            )
        told = [one.communicate()[0].split() for one in started]
    return max(float(end) for _, end in told) - begin, [int(found) for found, _ in told]


class Source:
    """A source with random access."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        return index


def work(element: Any) -> int:
    """Wait as long as an element takes, and return the worker's process."""
    time.sleep(WORK)
    return os.getpid()


def source_of(kind: str, folder: str) -> Dataset:
    if kind == "files":
        return Dataset.list_files(f"{folder}/*", shuffle=False)
    if kind == "slices":
        return Dataset.from_tensor_slices(list(range(COUNT)))
    return Dataset.range(COUNT) if kind == "range" else Dataset.from_source(Source())


def measure_workers(
    cluster: LocalCluster, dataset: Dataset, joins: bool = False
) -> tuple[float, float, Counter[int]]:
    """Return the seconds of an epoch, the ideal, and the elements of each worker.

    Args:
        cluster: the workers.
        dataset: what they make.
        joins: True to add a worker when a part of the elements was read.
    """
    workers = len(cluster.workers)
    elements: Counter[int] = Counter()
    joined = 0.0
    began = time.monotonic()
    for process in dataset.apply(distribute("distributed_epoch", cluster.target)):
        elements[int(process)] += 1
        if joins and not joined and time.monotonic() - began > 0.8:
            cluster.add_worker()
            joined = time.monotonic() - began
    seconds, total = time.monotonic() - began, elements.total()
    left = total * WORK - joined * workers
    return seconds, joined + left / (workers + joins), elements


def tell_readers() -> None:
    for case in SHARED:
        seconds, found = measure_readers(case)
        print(
            f"{case.count:6,} elements, paces {dict(Counter(case.paces))}, late {case.late:g} s, "
            f"{case.workers} workers: {seconds:.2f} s, ideal {case.ideal:.2f}, "
            f"allowed {case.bound:.2f}{'' if seconds <= case.bound else ' MISSED'}; {found}",
            flush=True,
        )


def tell_workers() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(COUNT):
            Path(folder, f"{number:04}").touch()
        for workers in (1, 2, 3):
            with LocalCluster(workers) as cluster:
                for kind in ("range", "slices", "source", "files"):
                    for size in SIZES:
                        tell_worker(cluster, kind, folder, size=size)
                    tell_worker(cluster, kind, folder, size=60, repeat=2)
                    tell_worker(cluster, kind, folder, size=COUNT, repeat=2)
        for kind in ("range", "slices", "source", "files"):
            for size in (0, 60, COUNT):
                with LocalCluster(1) as cluster:
                    tell_worker(cluster, kind, folder, size=size, joins=True)


def tell_worker(
    cluster: LocalCluster,
    kind: str,
    folder: str,
    size: int,
    repeat: int = 1,
    joins: bool = False,
) -> None:
    dataset = source_of(kind, folder)
    if size:
        dataset = dataset.shuffle(size)
    workers = len(cluster.workers)
    seconds, ideal, elements = measure_workers(
        cluster, dataset.repeat(repeat).map(work), joins=joins
    )
    late = ", one more joins" if joins else ""
    print(
        f"{kind}.shuffle({size}).repeat({repeat}), {workers} workers{late}: {seconds:.2f} s, "
        f"ideal {ideal:.2f}, ratio {seconds / ideal:.2f}"
        f"{'' if seconds <= 1.1 * ideal + 0.1 else ' MISSED'}; {sorted(elements.values())}",
        flush=True,
    )


def main() -> None:
    if sys.argv[1:2] == ["read"]:
        target, count, pace, begin = sys.argv[2:]
        read(target, int(count), float(pace), float(begin))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("what", nargs="*", choices=["readers", "workers"], default=["readers"])
    what = parser.parse_args().what
    if "readers" in what:
        tell_readers()
    if "workers" in what:
        tell_workers()


if __name__ == "__main__":
    main()
