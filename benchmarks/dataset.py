"""Measure the cost of operations per element, over a plain Python loop and beside
tf.data.

    python benchmarks/dataset.py [--count 50000] [--repeat 5] [--clock cpu|wall]
        [--json PATH]

It runs locally, without the service; tf.data takes part if it is installed. In each
repetition the three sides run each case in turn; the table shows the median over the
repetitions. The clock is the CPU time of the process with all its threads, so that
other processes on the machine have little effect. "over loop" is what the operation
adds to its source, minus what the loop adds to its own. The other columns are total
times, source included.

tf.data compiles such functions and calls no Python for them, but makes a numpy object
of each element that comes out (as_numpy_iterator). It runs a quarter of the elements.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from zmqdata import Dataset

try:
    import tensorflow as tf
except ImportError:
    tf = None

MOST_NS = 500  # over a loop, per element and node
MOST_STACKING = 1.3  # times np.stack
MOST_MEMORY = 1.2  # times a list of the elements
SMALL = np.zeros(16, np.float32)

Clock = Callable[[], float]


def identity(x: Any) -> Any:
    return x


def true(x: Any) -> bool:
    return True


def small(x: Any) -> Any:
    """Return an array of 64 bytes."""
    return SMALL


def numbers(count: int) -> Iterator[Any]:
    """Return the loop to compare with reading a range."""
    return map(np.int64, range(count))


def called(function: Callable[[Any], Any], elements: Iterable[Any]) -> Iterator[Any]:
    return (function(x) for x in elements)


def stacked(elements: Iterable[Any], size: int = 32) -> Iterator[Any]:
    """Yield batches: the loop to compare with batch."""
    iterator = iter(elements)
    while batch := list(islice(iterator, size)):
        yield np.stack(batch)


def in_turn(count: int) -> Iterable[Any]:
    """Return the loop to compare with interleave."""
    return chain.from_iterable(zip(*(numbers(count // 16) for _ in range(16)), strict=True))


@dataclass(frozen=True)
class Case:
    """An operation to measure."""

    build: Callable[[Any, int], Any]
    """Builds a dataset of a library with this many elements."""
    loop: Callable[[int], Iterable[Any]]
    """Returns the equivalent loop."""
    over: str = "range"
    """Name of the case without the operation, whose time is subtracted."""


CASES = {
    "range": Case(lambda kind, n: kind.range(n), numbers, ""),
    "map": Case(
        lambda kind, n: kind.range(n).map(identity), lambda n: called(identity, numbers(n))
    ),
    "filter": Case(
        lambda kind, n: kind.range(n).filter(true), lambda n: (x for x in numbers(n) if true(x))
    ),
    "map to 64 bytes": Case(
        lambda kind, n: kind.range(n).map(small), lambda n: called(small, numbers(n))
    ),
    "batch(32) of them": Case(
        lambda kind, n: kind.range(n).map(small).batch(32),
        lambda n: stacked(called(small, numbers(n))),
        "map to 64 bytes",
    ),
    "shuffle(1000)": Case(lambda kind, n: kind.range(n).shuffle(1000), numbers),
    "shuffle(all)": Case(lambda kind, n: kind.range(n).shuffle(n), numbers),
    "interleave(16)": Case(
        lambda kind, n: kind.range(16).interleave(lambda _: kind.range(n // 16), cycle_length=16),
        in_turn,
    ),
    "enumerate": Case(lambda kind, n: kind.range(n).enumerate(), lambda n: enumerate(numbers(n))),
    "prefetch(16)": Case(lambda kind, n: kind.range(n).prefetch(16), numbers),
    "random_map": Case(
        lambda kind, n: kind.range(n).random_map(lambda x, rng: x),
        lambda n: called(identity, numbers(n)),
    ),
}
GOALS = ("map", "filter", "batch(32) of them", "shuffle(1000)", "shuffle(all)", "interleave(16)")


@dataclass(frozen=True)
class Row:
    """Medians of a case, in nanoseconds per element; None if a side has no such
    operation.
    """

    case: str
    """Name of the case."""
    zmqdata: float | None
    """Total time of zmqdata."""
    loop: float | None
    """Total time of the loop."""
    tfdata: float | None
    """Total time of tf.data."""
    zmqdata_adds: float
    """Time that the operation adds to its source in zmqdata."""
    loop_adds: float
    """Time that it adds in the loop."""
    over_loop: float
    """Difference of both."""
    reached: bool | None
    """True if the goal is reached; None without a goal."""


def nanoseconds(elements: Iterable[Any], count: int, clock: Clock) -> float:
    """Return the nanoseconds per element of reading all elements."""
    begin = clock()
    deque(elements, maxlen=0)
    return (clock() - begin) / count * 1e9


def one_repetition(count: int, clock: Clock) -> dict[tuple[str, str], float]:
    """Return the nanoseconds per element of each side and case."""
    found, few = {}, count // 4
    for name, case in CASES.items():
        found["loop", name] = nanoseconds(case.loop(count), count, clock)
        found["zmqdata", name] = nanoseconds(case.build(Dataset, count), count, clock)
        if tf is not None and name != "random_map":
            found["tf.data", name] = nanoseconds(
                case.build(tf.data.Dataset, few).as_numpy_iterator(), few, clock
            )
    return found


def measured(count: int, repeat: int, clock: Clock) -> list[Row]:
    """Measure all cases, with a first repetition that does not count."""
    runs = [one_repetition(count, clock) for _ in range(repeat + 1)][1:]

    def middle(side: str, name: str, less: str = "") -> float | None:
        if (side, name) not in runs[0]:
            return None
        return median(run[side, name] - (run[side, less] if less else 0.0) for run in runs)

    rows = []
    for name, case in CASES.items():
        added = (middle("zmqdata", name, case.over) or 0.0, middle("loop", name, case.over) or 0.0)
        whole = [middle(side, name) for side in ("zmqdata", "loop", "tf.data")]
        reached = added[0] - added[1] < MOST_NS if name in GOALS else None
        rows.append(Row(name, *whole, *added, added[0] - added[1], reached))
    return rows


def grown(build: Callable[[], Any]) -> int:
    """Return the peak memory in bytes of building an object."""
    tracemalloc.start()
    try:
        return tracemalloc.get_traced_memory()[1] if build() is not None else 0
    finally:
        tracemalloc.stop()


def memory_ratio(make: Callable[[Any], Any], size: int) -> float:
    """Return the memory of a shuffle after two buffers of elements, relative to a list
    of as many elements.
    """

    def read() -> Any:
        iterator = iter(Dataset.range(10 * size).map(make).shuffle(size))
        deque(islice(iterator, 2 * size), maxlen=0)
        return iterator

    return grown(read) / grown(lambda: [make(x) for x in range(size)])


def machine() -> dict[str, Any]:
    """Return the versions and the machine."""
    packages = ["zmqdata", "numpy"] + (["tensorflow-cpu"] if tf is not None else [])
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        **{name: version(name) for name in packages},
    }


def show(rows: list[Row], ratios: dict[str, tuple[float, float]]) -> None:
    def verdict(reached: bool | None) -> str:
        return "" if reached is None else "yes" if reached else "NO"

    print(
        f"{'ns per element':18} {'over loop':>10} {'< 500':>6} {'zmqdata':>9} {'loop':>9} "
        f"{'tf.data':>9}"
    )
    for row in rows:
        whole = " ".join(
            f"{'-' if side is None else f'{side:.0f}':>9}"
            for side in (row.zmqdata, row.loop, row.tfdata)
        )
        print(f"{row.case:18} {row.over_loop:10.0f} {verdict(row.reached):>6} {whole}")
    for name, (ratio, most) in ratios.items():
        print(f"{name}: {ratio:.2f} (at most {most}: {verdict(ratio <= most)})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=50_000, help="elements of each case")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--clock", choices=["cpu", "wall"], default="cpu")
    parser.add_argument("--json", type=Path, help="file for all figures")
    arguments = parser.parse_args()
    if tf is None:
        print(
            "tensorflow is not installed, so the tf.data column stays empty: pip install "
            "tensorflow-cpu"
        )
    clock = perf_counter if arguments.clock == "wall" else process_time
    rows = measured(arguments.count // 64 * 64, arguments.repeat, clock)
    batch = next(row for row in rows if row.case == "batch(32) of them")
    ratios = {
        "batch over np.stack": (batch.zmqdata_adds / batch.loop_adds, MOST_STACKING),
        "memory of shuffle, 1 KB arrays": (
            memory_ratio(lambda x: np.full(1024, int(x) % 256, np.uint8), 100_000),
            MOST_MEMORY,
        ),
        "memory of shuffle, floats": (memory_ratio(float, 100_000), MOST_MEMORY),
    }
    show(rows, ratios)
    if arguments.json is not None:
        cases = [asdict(row) for row in rows]
        figures = {"machine": machine(), "clock": arguments.clock, "cases": cases, "ratios": ratios}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
