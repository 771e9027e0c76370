"""Train a small model to predict the next byte of Python source code, with worker
processes that prepare its input.

    python examples/audit.py                # a dispatcher and two workers here
    python examples/audit.py --service tcp://HOST:5050     # running servers
    python examples/audit.py --kill-worker  # kill a worker in the first epoch
    python examples/audit.py --local        # no server, all in this process

The input is the source of Python's own standard library, so nothing is downloaded. All
zmqdata code is in ``make_pipeline``, in ``main`` and in the loop of ``train``; the
model is plain numpy. At the end the script checks that each window of each file was
delivered exactly once per epoch, and exits with code 1 if not. It also prints the
service's own audit of its splits and elements.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A single core for the model leaves the others to the workers: threads of a matrix
# library that wait for each other on busy cores make it many times slower. These must
# be set before numpy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

import zmqdata

WINDOW = 128  # bytes in an element
CONTEXT = 8  # bytes that the model sees before it predicts the next byte

Batch = dict[str, Any]


# --------------------------------------------------------------------------------------
# the input pipeline


def read(path: str) -> dict[str, Any]:
    """Read a file. Runs on a worker, like every function of a pipeline."""
    return {"file": path, "content": np.fromfile(path, dtype=np.uint8)}


def cut(source: dict[str, Any]) -> zmqdata.Dataset:
    """Cut a file into numbered windows of equal length; the last is padded with
    newlines.
    """
    content = source["content"]
    count = -(-len(content) // WINDOW)
    windows = np.full((count, WINDOW), ord("\n"), dtype=np.uint8)
    windows.reshape(-1)[: len(content)] = content
    return zmqdata.Dataset.from_tensor_slices(
        {"file": [source["file"]] * count, "number": np.arange(count), "bytes": windows}
    )


def make_pipeline(files: Sequence[Path], batch_size: int) -> zmqdata.Dataset:
    """Build the pipeline: files, windows, shuffled windows, batches. Nothing runs
    yet.
    """
    return (
        zmqdata.Dataset.list_files([str(path) for path in files])
        .map(read)
        .flat_map(cut)
        .shuffle(4_096)
        .batch(batch_size)
    )


def find_sources(limit: int) -> list[Path]:
    """Return the first ``limit`` non-empty modules of Python's standard library."""
    folder = Path(sysconfig.get_path("stdlib"))
    return [path for path in sorted(folder.glob("*.py")) if path.stat().st_size][:limit]


# --------------------------------------------------------------------------------------
# the model


class NextByteModel:
    """A next-byte model: it embeds the last ``CONTEXT`` bytes, mixes them in a hidden
    layer, and outputs 256 probabilities. Trained by Adam.
    """

    def __init__(
        self, seed: int = 0, embedding: int = 16, hidden: int = 128, rate: float = 3e-3
    ) -> None:
        rng = np.random.default_rng(seed)

        def weights(rows: int, columns: int) -> Any:
            return (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

        self.embedding = weights(256, embedding)
        self.inner, self.inner_bias = (
            weights(CONTEXT * embedding, hidden),
            np.zeros(hidden, np.float32),
        )
        self.outer, self.outer_bias = (
            weights(hidden, 256) * np.float32(0.1),
            np.zeros(256, np.float32),
        )
        self.rate, self.steps = rate, 0
        self.moments = [(np.zeros_like(p), np.zeros_like(p)) for p in self.parameters()]

    def parameters(self) -> list[Any]:
        return [self.embedding, self.inner, self.inner_bias, self.outer, self.outer_bias]

    def train(self, windows: Any) -> float:
        """Take a step on windows of shape (n, WINDOW); return the loss before it, in
        bits per byte.
        """
        examples = sliding_window_view(windows, CONTEXT + 1, axis=1)[:, ::2].reshape(
            -1, CONTEXT + 1
        )
        context, target = examples[:, :CONTEXT], examples[:, CONTEXT]
        rows = np.arange(len(target))

        embedded = self.embedding[context].reshape(len(target), -1)
        hidden = np.maximum(embedded @ self.inner + self.inner_bias, 0)
        scores = hidden @ self.outer + self.outer_bias
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        loss = -np.log2(scores[rows, target] + 1e-9).mean()

        scores[rows, target] -= 1
        scores /= len(target)
        to_hidden = (scores @ self.outer.T) * (hidden > 0)
        to_embedded = (to_hidden @ self.inner.T).reshape(-1, self.embedding.shape[1])
        to_table = [
            np.bincount(context.ravel(), weights=part, minlength=256) for part in to_embedded.T
        ]
        self._descend(
            [
                np.stack(to_table, axis=1),
                embedded.T @ to_hidden,
                to_hidden.sum(0),
                hidden.T @ scores,
                scores.sum(0),
            ]
        )
        return float(loss)

    def _descend(self, gradients: list[Any]) -> None:
        self.steps += 1
        rate = self.rate * np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        for parameter, gradient, (mean, square) in zip(
            self.parameters(), gradients, self.moments, strict=True
        ):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            parameter -= (rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)


# --------------------------------------------------------------------------------------
# the training loop


@dataclass
class Record:
    """Measurements of the training loop."""

    losses: list[float] = field(default_factory=list)
    """Loss of each step, in bits per byte."""
    seen: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Deliveries of each (file, window number)."""
    waited: float = 0.0
    """Seconds spent waiting for batches."""
    seconds: float = 0.0
    """Seconds in all."""
    accidents: int = 0
    """1 once the accident has happened."""

    def first_and_last_loss(self) -> tuple[float, float]:
        tenth = max(1, len(self.losses) // 10)
        return self.losses[0], float(np.mean(self.losses[-tenth:]))


def train(
    dataset: Iterable[Batch],
    model: NextByteModel,
    epochs: int,
    windows: int,
    accident: Callable[[], object] = lambda: None,
) -> Record:
    """Train ``epochs`` times over the dataset; record the windows that came and the
    time spent waiting for them.

    The ``accident`` happens during the first epoch, while most elements are still to be
    made.
    """
    record = Record()
    started = time.perf_counter()
    with tqdm(total=epochs * windows, unit=" windows", desc="training", mininterval=0.5) as bar:
        for _ in range(epochs):
            for batch in timed(dataset, record):
                record.losses.append(model.train(batch["bytes"]))
                record.seen.update(
                    zip(batch["file"].tolist(), batch["number"].tolist(), strict=True)
                )
                bar.set_postfix(loss=f"{np.mean(record.losses[-50:]):.2f} bits/byte", refresh=False)
                bar.update(len(batch["number"]))
                if not record.accidents and 10 * bar.n >= windows:
                    record.accidents = 1
                    accident()
    record.seconds = time.perf_counter() - started
    return record


def timed(dataset: Iterable[Batch], record: Record) -> Iterator[Batch]:
    """Yield the batches of the dataset; add the time spent waiting for each to the
    record.
    """
    batches = iter(dataset)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        record.waited += time.perf_counter() - asked
        if batch is None:
            return
        yield batch


# --------------------------------------------------------------------------------------
# the proof


def expected_windows(files: Iterable[Path], epochs: int) -> Counter[tuple[str, int]]:
    """Return how often each (file, window number) must come, computed from the file
    sizes alone.
    """
    return Counter(
        {
            (str(path), n): epochs
            for path in files
            for n in range(-(-path.stat().st_size // WINDOW))
        },
    )


def differences(expected: Counter[tuple[str, int]], seen: Counter[tuple[str, int]]) -> list[str]:
    """Describe windows that are missing, came too often, or were not expected; return
    an empty list if there are none.
    """
    return [
        f"{Path(file).name}, window {number}: expected {expected[file, number]} times, came "
        f"{seen[file, number]} times"
        for file, number in sorted(expected.keys() | seen.keys())
        if expected[file, number] != seen[file, number]
    ]


def show(record: Record, files: Sequence[Path], epochs: int, wrong: list[str]) -> None:
    """Print the results, and the first few windows with a wrong count."""
    first, last = record.first_and_last_loss()
    size = epochs * sum(path.stat().st_size for path in files)
    whole = len({file for file, _ in record.seen})
    proof = (
        f"yes: {len(files)} files, {sum(record.seen.values()):,} windows"
        if not wrong
        else f"NO: {len(wrong)} windows"
    )
    table = Table(title="zmqdata audit", show_header=False)
    for name, figure in [
        ("files", f"{whole} in {epochs} epoch(s)"),
        ("bytes", f"{size:,}"),
        ("elements (windows) per second", f"{sum(record.seen.values()) / record.seconds:,.0f}"),
        (
            "trainer waited for input",
            f"{record.waited / record.seconds:.1%} of {record.seconds:.1f} s",
        ),
        ("loss, first and last", f"{first:.2f} and {last:.2f} bits per byte"),
        ("each file exactly once per epoch", proof),
    ]:
        table.add_row(name, figure)
    console = Console()
    console.print(table)
    for line in wrong[:10]:
        console.print(line)


def show_audit(audits: Sequence[dict[str, Any]]) -> None:
    """Print the dispatcher's accounts, summed over all epochs."""
    table = Table(title="audit of the service", show_header=False)
    for name, group, key in [
        ("splits handed out", "splits", "handed_out"),
        ("splits finished", "splits", "finished"),
        ("tasks that changed their host", "tasks", "rehosted"),
        ("splits of these tasks", "splits", "rehosted"),
        ("elements delivered", "elements", "delivered"),
        ("duplicates dropped", "elements", "duplicates_dropped"),
        ("elements left out", "elements", "left_out"),
    ]:
        table.add_row(name, f"{sum(one[group][key] for one in audits):,}")
    Console().print(table)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a next-byte model on Python's standard library."
    )
    parser.add_argument(
        "--files", type=int, default=200, metavar="N", help="number of source files to read (200)"
    )
    parser.add_argument("--epochs", type=int, default=2, metavar="N", help="passes over them (2)")
    parser.add_argument(
        "--batch-size", type=int, default=64, metavar="N", help="windows in a training step (64)"
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="worker processes (2)")
    parser.add_argument(
        "--kill-worker", action="store_true", help="kill a worker (SIGKILL) during the first epoch"
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--service", metavar="ADDRESS", help="use the dispatcher at this address, tcp://HOST:PORT"
    )
    place.add_argument(
        "--local", action="store_true", help="run the pipeline in this process, without any server"
    )
    args = parser.parse_args(arguments)
    if args.kill_worker and (args.local or args.service or args.workers < 2):
        parser.error("--kill-worker needs two workers of its own")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    files = find_sources(args.files)
    expected = expected_windows(files, args.epochs)
    dataset = make_pipeline(files, args.batch_size)

    audits: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        accident: Callable[[], object] = lambda: None  # noqa: E731 - nothing happens
        if not args.local:
            service = args.service
            if service is None:
                cluster = stack.enter_context(zmqdata.LocalCluster(num_workers=args.workers))
                service = cluster.target
                accident = cluster.workers[0].kill if args.kill_worker else accident
            job = f"audit-{secrets.token_hex(4)}"
            dataset = dataset.apply(zmqdata.distribute("distributed_epoch", service, job_name=job))
        record = train(dataset, NextByteModel(), args.epochs, len(expected), accident)
        if not args.local:
            audits = zmqdata.audit(service, job)

    wrong = differences(expected, record.seen)
    show(record, files, args.epochs, wrong)
    if audits:
        show_audit(audits)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
