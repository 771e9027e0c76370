"""Measure how equal the steps of ``balance`` are, with random dealing beside them, and
what dealing costs: ``python -m benchmarks.balancing [--plot FILE]``.

Lengths are lognormal with sigma 1, in random order, and at most 32,768. A figure is the
sum of the dearest batches of all steps, divided by the sum of their means: how many
times as long as equal batches the steps take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plots import draw_curve
from zmqdata import Dataset
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context

CAP = 32_768
WINDOWS, STEPS, SIZE = 20, 16, 8
"""Windows of a row, and steps and elements of a batch in them."""
TABLE = (
    (2000, 2, None),
    (1000, 1, None),
    (400, 2, None),
    (1000, 2, None),
    (2000, 2, float(CAP) ** 2),
)
"""Median length, power of the length that is the cost, and ``max_cost``."""


def balanced(
    median: int, power: int, most: float | None, consumers: int, window: int = STEPS
) -> dict[str, float]:
    """Read balanced batches, and return what was counted: the sums of ``balance``, the
    steps of a random dealing, and processor seconds.
    """
    random = np.random.default_rng(0)
    count = WINDOWS * STEPS * consumers * (SIZE if most is None else 40)
    drawn = random.lognormal(np.log(median), 1, count)
    rows = [{"tokens": np.zeros(int(one), np.int8)} for one in np.minimum(drawn, CAP)]

    def cost(row: Any) -> float:
        return float(len(row["tokens"]) ** power)

    def read(by: Any) -> Dataset:
        size = SIZE if most is None else None
        return source.balance(
            consumers, cost=by, batch_size=size, max_cost=most, window=window, collate_fn=len
        )

    source, context = Dataset.range(count).map(lambda at: rows[int(at)]), Context()
    for _ in make_iterator(read(cost).node, context):
        pass
    seconds = _seconds(read("tokens" if most is None else cost)) - _seconds(source)
    return {**context.counts, "microseconds": 1e6 * seconds / count}


def _seconds(dataset: Dataset) -> float:
    began = time.process_time()
    for _ in make_iterator(dataset.node, Context()):
        pass
    return time.process_time() - began


def row(median: int, power: int, most: float | None, consumers: int) -> str:
    """Return a line of the table."""
    found = balanced(median, power, most, consumers)
    means = found["balance/means"]
    ratios = [found[f"balance/{name}"] / means for name in ("dearest", "bound", "in_order")]
    filled = f"{found['balance/filled'] / found['balance/room']:8.3f}" if most else " " * 8
    shown = " ".join(f"{ratio:9.3f}" for ratio in ratios)
    return f"{median:7} {power:6} {consumers:10} {shown} {filled} {found['microseconds']:10.2f}"


def curve() -> dict[str, object]:
    """Return how long steps take by the number of ranks."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for consumers in (2, 4, 8, 16, 32, 64):
        for name, window in (("balance, window=16", STEPS), ("balance, window=1", 1)):
            found = balanced(2000, 2, None, consumers, window)
            means = found["balance/means"]
            lines.setdefault(name, []).append((consumers, found["balance/dearest"] / means))
            if window == STEPS:
                order = found["balance/in_order"] / means
                lines.setdefault("in the order of the data", []).append((consumers, order))
    return {
        "title": "A step takes as long as its dearest rank",
        "x": "ranks",
        "y": "time of steps / mean of the ranks",
        "lines": lines,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and draw the plot if a file is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--plot", type=Path, help="SVG file of the plot")
    chosen = parser.parse_args(arguments)
    print(" median  power  consumers   balance     bound    random     fill us/element")
    for median, power, most in TABLE:
        for consumers in (8, 64) if most is None else (8,):
            print(row(median, power, most, consumers), flush=True)
    if chosen.plot is not None and not draw_curve(curve(), chosen.plot):
        print("matplotlib is not installed: no plot")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
