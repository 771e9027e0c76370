"""Training loops in processes of their own, and the proof that they were handed what was promised."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.processes.training_loop import RECORD, distributed
from zmqdata import LocalCluster

LOOP = Path(__file__).with_name("training_loop.py")


class TrainingLoop:
    """A training loop in a process, and what it has written down.

    Args:
        target: where the dispatcher is.
        kind: of the job, a key of ``training_loop.KINDS``.
        count: how many elements the job has.
        consumer: as which consumer it reads, where they are numbered.
        path: what it writes.
        within: the command that runs another one where the loop shall be.
        pace: seconds that it is busy with each element.
    """

    def __init__(
        self,
        target: str,
        kind: str,
        count: int,
        consumer: int,
        path: Path,
        within: Sequence[str] = (),
        pace: float = 0.0,
    ) -> None:
        self.consumer = consumer
        self.killed = False
        self.path = path
        self.log = path.with_suffix(".log")
        arguments = [target, kind, str(count), str(consumer), str(path), str(pace)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*within, sys.executable, str(LOOP), *arguments], stdout=log, stderr=log, env=environment
            )

    @property
    def count(self) -> int:
        return self.path.stat().st_size // RECORD.size if self.path.exists() else 0

    @property
    def records(self) -> list[tuple[int, int]]:
        """Each element, and when it was handed out, in nanoseconds."""
        content = self.path.read_bytes() if self.path.exists() else b""
        return list(RECORD.iter_unpack(content[: len(content) // RECORD.size * RECORD.size]))

    @property
    def elements(self) -> list[int]:
        return [element for element, _ in self.records]

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def unreported(self) -> int:
        """How many elements it had handed out and could not report, as it says, when others were given them."""
        return sum(map(int, re.findall(r"so do (\d+) that it had handed out", self.log.read_text())))

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.killed = True
        self._process.kill()
        self._process.wait()

    def has_ended(self) -> bool:
        """Whether it has read to the end; fails when it has ended in another way."""
        code = self._process.poll()
        if code is None:
            return False
        assert code == 0 or self.killed, f"{self.path.name} ended with {code}: {self.log.read_text()[-2000:]}"
        return True


def check(kind: str, count: int, loops: Sequence[TrainingLoop]) -> None:
    """Every element was handed out, none of them twice, in the order that this kind of job promises.

    What was handed out and not reported by loops that were killed, or given up while they were cut off, may have come
    again.
    """
    if kind == "ordered":
        check_order(count, loops)
    elif kind == "coordinated":
        check_consumers(count, loops)
    else:
        check_once(count, loops)


def handed_out(loops: Sequence[TrainingLoop], killed: bool) -> Counter[int]:
    """How often each element came to those that were killed, or to the others."""
    return Counter(element for loop in loops if loop.killed == killed for element in loop.elements)


def check_once(count: int, loops: Sequence[TrainingLoop]) -> None:
    alive, dead = handed_out(loops, killed=False), handed_out(loops, killed=True)
    twice = [element for element, times in alive.items() if times > 1]
    missing = [element for element in range(count) if element not in alive and element not in dead]
    assert not missing, f"missing: {missing[:9]}"
    assert alive.total() - len(alive) <= sum(loop.unreported for loop in loops), f"twice: {twice[:9]}"


def streams(loops: Sequence[TrainingLoop]) -> dict[int, list[int]]:
    """What each consumer had, in order; its successor repeats at most what the one before had not reported."""
    found: dict[int, list[int]] = {}
    for loop in loops:
        before, elements = found.get(loop.consumer, []), loop.elements
        starts = [at for at, element in enumerate(before) if elements and element == elements[0]] or [len(before)]
        overlap = before[starts[-1] :]
        astray = overlap != elements[: len(overlap)] and elements != overlap[: len(elements)]
        assert not astray, f"{loop.path.name} goes astray"
        found[loop.consumer] = before[: starts[-1]] + max(elements, overlap, key=len)
    return found


def check_order(count: int, loops: Sequence[TrainingLoop]) -> None:
    with LocalCluster(1, in_process=True) as cluster:
        expected = [int(element[0]) for element in distributed(cluster.target, "ordered", count, 0)]
    assert streams(loops)[0] == expected


def check_consumers(count: int, loops: Sequence[TrainingLoop]) -> None:
    found = streams(loops)
    assert len({len(stream) for stream in found.values()}) == 1
    counts = Counter(element for stream in found.values() for element in stream)
    assert set(counts.values()) == {1}
    assert count - len(counts) <= 8
