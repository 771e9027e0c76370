"""Measure the journal: the time to replay a million facts, and the facts written per
second.

    python benchmarks/journal.py [--facts 1000000] [--tasks 10000] [--folder DIR]

The history is that of an iteration whose tasks lease splits and deliver elements. Each
fact is a turn of its own, which is the worst case. The folder determines the disk that
is measured.
"""

from __future__ import annotations

import argparse
import queue
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from zmqdata import updates as u
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.dispatcher.journalfile import JournalFile, JournalWriter
from zmqdata.messages import DatasetDescription, JobParameters
from zmqdata.splits import IndexSplits, Split

WORKERS = 100


def beginning(tasks: int) -> Iterator[u.Update]:
    """Yield the updates of a job with ``tasks`` hosted tasks."""
    description = DatasetDescription(
        "d" * 64, "fingerprint", (IndexSplits(None),), "", None, -1, None, "3.11", "0"
    )
    yield u.RegisterDatasetUpdate("dataset", description)
    yield u.BeginIncarnationUpdate(1, JobParameters("job", "dataset", "DYNAMIC"))
    yield u.CreateIterationUpdate(2000, 1, 0, 7)
    for worker in range(WORKERS):
        yield u.AddWorkerUpdate(f"worker-{worker}", f"tcp://10.0.0.{worker}:5050", (), "3.11")
    for task in range(4000, 4000 + tasks):
        yield u.CreateTaskUpdate(task, 2000, task)
        yield u.HostTaskUpdate(task, 1, f"worker-{task % WORKERS}")


def history(facts: int, tasks: int) -> list[u.Update]:
    """Return a history of ``facts`` updates: the job, then deliveries, with a lease of
    splits as every fourth.
    """
    draw, made = random.Random(1), list(beginning(tasks))
    delivered, split = dict.fromkeys(range(4000, 4000 + tasks), 0), 0
    for number in range(facts - len(made)):
        task = 4000 + draw.randrange(tasks)
        if number % 4:
            first, delivered[task] = delivered[task], delivered[task] + 100
            made.append(u.DeliverUpdate(task, ((first, first + 100),)))
        else:
            made.append(u.AssignSplitsUpdate(task, 0, Split(0, split, split + 10)))
            split += 10
    return made


def measure_writing(folder: Path, facts: Sequence[u.Update]) -> float:
    """Return the seconds to write each fact as a turn of its own, as fast as the thread
    accepts them.
    """
    file, turns, failures = (
        JournalFile(folder),
        queue.SimpleQueue[int](),
        queue.SimpleQueue[Exception](),
    )
    file.begin([])
    writer = JournalWriter(file, turns.put, failures.put)
    writer.start()
    began = time.perf_counter()
    for turn, fact in enumerate(facts, 1):
        writer.write(turn, (fact,))
    while turns.get() < len(facts):
        pass
    seconds = time.perf_counter() - began
    writer.close()
    return seconds


def measure_turns(folder: Path, fact: u.Update, count: int = 200) -> float:
    """Return the seconds of a turn with nothing else to write: the delay of an
    answer.
    """
    file, turns, failures = (
        JournalFile(folder),
        queue.SimpleQueue[int](),
        queue.SimpleQueue[Exception](),
    )
    file.begin([])
    writer = JournalWriter(file, turns.put, failures.put)
    writer.start()
    began = time.perf_counter()
    for turn in range(1, count + 1):
        writer.write(turn, (fact,))
        turns.get()
    seconds = (time.perf_counter() - began) / count
    writer.close()
    return seconds


def measure_replay(folder: Path) -> tuple[float, DispatcherState]:
    """Return the seconds to replay the journal, and the resulting state."""
    state = DispatcherState()
    began = time.perf_counter()
    JournalFile(folder).replay(state.apply)
    return time.perf_counter() - began, state


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--folder", help="folder to write to; a temporary folder if left out")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        facts = history(chosen.facts, chosen.tasks)
        seconds = measure_writing(folder, facts)
        size = (folder / "journal").stat().st_size
        print(
            f"write   {len(facts)} turns of one fact: {seconds:.2f} s, {len(facts) / seconds:,.0f} "
            "facts/s"
        )
        seconds, state = measure_replay(folder)
        print(
            f"replay  {len(facts)} facts, {size / 1e6:.0f} MB: {seconds:.2f} s, "
            f"{len(facts) / seconds:,.0f} facts/s"
        )
        began = time.perf_counter()
        few = snapshot(state)
        taken = time.perf_counter() - began
        began = time.perf_counter()
        JournalFile(folder).begin(few)
        seconds, size = time.perf_counter() - began, (folder / "journal").stat().st_size
        told = f"{taken:.3f} s to take, {seconds:.3f} s to write"
        print(f"snapshot of {len(state.tasks)} tasks, {size / 1e6:.1f} MB: {told}")
        seconds, _ = measure_replay(folder)
        print(f"replay of the snapshot: {seconds:.2f} s")
        print(f"one turn alone: {measure_turns(folder, facts[-1]) * 1000:.2f} ms")


if __name__ == "__main__":
    main()
