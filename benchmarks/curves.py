"""Costs by size and number: bytes of an element, workers, consumers, splits, facts in
the journal.

Each curve has a title, two labels, and lines of points by name. Its processes are those
of ``running``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import zmqdata
from benchmarks.cases import Way
from benchmarks.figures import turns
from benchmarks.journal import history, measure_replay, measure_writing
from benchmarks.processes import ROOT, PeerError
from benchmarks.reading import Turn, count
from benchmarks.running import Budget, Stage
from benchmarks.workloads import ENDLESS, Make, touching
from zmqdata.errors import DataServiceError

Curve = dict[str, Any]
Tell = Callable[[str], None]
NAP = 0.02
"""Seconds that an element takes in pipelines that wait instead of working."""
SIZES = (8, 64, 512, 4096, 32_768, 262_144, 2**21, 2**24, 2**26)
COUNTS = (1, 2, 4, 8, 16, 32, 64)
SPLITS = (10**2, 10**3, 10**4, 10**5, 10**6, 10**7)
FACTS = (10**3, 10**4, 10**5, 10**6)
SIZED = (
    Way("zmqdata", "default"),
    Way("zmqdata", "tcp"),
    Way("tfdata", "uncompressed"),
    Way("bare", "memcpy"),
)


def wait(x: Any) -> Any:
    """Wait, as a pipeline bound by a disk or a remote network does."""
    sleep(NAP)
    return x


def points(
    numbers: tuple[int, ...], measure: Callable[[int], float], tell: Tell, what: str
) -> list[tuple[int, float]]:
    """Return the measurement at each number; report failures, which leave no point."""
    found = []
    for number in numbers:
        try:
            found.append((number, measure(number)))
        except (DataServiceError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            tell(f"{number} {what}: not measured, {error}")
            continue
        tell(f"{number} {what}: {found[-1][1]:,.0f} a second")
    return found


def element_sizes(budget: Budget, tell: Tell, sizes: tuple[int, ...] = SIZES) -> Curve:
    """Measure bytes per second by the size of an element."""
    found: dict[str, list[tuple[float, float]]] = {str(way): [] for way in SIZED}
    with Stage() as stage:
        for size in sizes:
            values: dict[Way, list[float]] = {way: [] for way in SIZED}
            for repetition in range(budget.repetitions):
                for way in turns(SIZED, repetition):
                    turn = Turn(
                        "rate", f"bytes:{size}", way.setting, 1, budget.seconds, budget.warm, 0
                    )
                    with contextlib.suppress(PeerError):
                        values[way].append(
                            stage.measure(way, turn, budget.seconds + budget.patience)
                        )
            for way, rates in values.items():
                if rates:
                    found[str(way)].append((size, median(rates) * size / 1e6))
            tell(
                f"{size} bytes: "
                + ", ".join(f"{way} {v[-1][1]:,.0f} MB/s" for way, v in found.items() if v)
            )
    return {
        "title": "What one worker carries",
        "x": "bytes of an element",
        "y": "MB/s",
        "lines": found,
    }


def workers(budget: Budget, tell: Tell, counts: tuple[int, ...] = COUNTS) -> Curve:
    """Measure elements per second of a pipeline that waits, by the number of its
    processes.
    """

    def measure(number: int) -> float:
        with zmqdata.LocalCluster(1, processes_per_worker=number) as cluster:
            dataset = zmqdata.Dataset.range(ENDLESS).map(wait)
            elements = iter(dataset.apply(zmqdata.distribute("distributed_epoch", cluster.target)))
            # All processes have started before the measurement.
            count(elements, int, max(1.0, 3 * number * NAP))
            found = count(elements, int, 3 * budget.seconds)
            elements.close()
        return found

    ideal = [(number, number / NAP) for number in counts]
    lines = {"zmqdata": points(counts, measure, tell, "workers"), "as many as they can make": ideal}
    title = f"Workers that wait {NAP * 1000:g} ms per element"
    return {"title": title, "x": "workers", "y": "elements/s", "lines": lines}


def consumers(budget: Budget, tell: Tell, counts: tuple[int, ...] = COUNTS) -> Curve:
    """Measure elements per second of all clients of a job, by their number; each client
    is a process.
    """
    with zmqdata.LocalCluster(1) as cluster:

        def measure(number: int) -> float:
            with crowd(cluster.target, number, 2 * budget.seconds) as crew:
                for one in crew:
                    assert one.stdout is not None
                    if not one.stdout.readline():
                        raise RuntimeError("a client ended before it had read anything")
                for one in crew:
                    assert one.stdin is not None
                    one.stdin.write("go\n")
                    one.stdin.flush()
                return sum(float(one.communicate(timeout=budget.patience)[0]) for one in crew)

        lines = {"zmqdata": points(counts, measure, tell, "clients")}
    return {
        "title": "Clients that share a job",
        "x": "clients",
        "y": "1 KB arrays/s, together",
        "lines": lines,
    }


@contextlib.contextmanager
def crowd(service: str, number: int, seconds: float) -> Iterator[list[subprocess.Popen[str]]]:
    """Start clients of a new job, each a process that reads when told to."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.curves",
        service,
        secrets.token_hex(4),
        str(seconds),
    ]
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    crew = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        for _ in range(number)
    ]
    try:
        yield crew
    finally:
        for one in crew:
            one.send_signal(signal.SIGKILL)
            one.communicate()


def read_shared(service: str, job: str, seconds: float) -> None:
    """Read as a client of a shared job: announce the first element, read when told to,
    print the elements per second.
    """
    dataset = zmqdata.Dataset.range(ENDLESS).map(Make("kilobytes"))
    elements = iter(dataset.apply(zmqdata.distribute("distributed_epoch", service, job)))
    touch = touching("kilobytes")
    touch(next(elements))
    print("ready", flush=True)
    sys.stdin.readline()
    print(count(elements, touch, seconds), flush=True)
    elements.close()


def splits(budget: Budget, tell: Tell, counts: tuple[int, ...] = SPLITS) -> Curve:
    """Measure splits per second of a whole iteration, including ``iter()`` and its end,
    by their number.
    """
    with zmqdata.LocalCluster(1) as cluster:

        def measure(number: int) -> float:
            seconds = []
            for _ in range(budget.repetitions if number < 10**6 else 1):
                dataset = zmqdata.Dataset.range(number).apply(
                    zmqdata.distribute("distributed_epoch", cluster.target)
                )
                begin = perf_counter()
                seen = sum(1 for _ in dataset)
                seconds.append(perf_counter() - begin)
                if seen != number:
                    raise RuntimeError(f"{number} splits made {seen} elements")
            return number / median(seconds)

        lines = {"zmqdata": points(counts, measure, tell, "splits")}
    return {"title": "A whole iteration", "x": "splits", "y": "splits/s", "lines": lines}


def journal(budget: Budget, tell: Tell, counts: tuple[int, ...] = FACTS) -> Curve:
    """Measure the seconds to write and to replay a journal, by its number of facts."""
    lines: dict[str, list[tuple[float, float]]] = {"writing, a turn for each": [], "replay": []}
    for number in counts:
        with tempfile.TemporaryDirectory() as folder:
            facts = history(number, max(1, number // 100))
            lines["writing, a turn for each"].append((number, measure_writing(Path(folder), facts)))
            lines["replay"].append((number, measure_replay(Path(folder))[0]))
        tell(
            f"{number} facts: "
            + ", ".join(f"{name} {line[-1][1]:.3f} s" for name, line in lines.items())
        )
    return {"title": "The journal", "x": "facts", "y": "seconds", "lines": lines}


CURVES: dict[str, Callable[[Budget, Tell], Curve]] = {
    "element-sizes": element_sizes,
    "workers": workers,
    "consumers": consumers,
    "splits": splits,
    "journal": journal,
}

if __name__ == "__main__":
    read_shared(sys.argv[1], sys.argv[2], float(sys.argv[3]))
