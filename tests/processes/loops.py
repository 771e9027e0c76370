"""Training loops in processes of their own, and the proof that they were handed what
was promised.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.processes.training_loop import RECORD, distributed
from zmqdata import LocalCluster
from zmqdata.messages import shown_name
from zmqdata.testing.cluster import await_condition

LOOP = Path(__file__).with_name("training_loop.py")
TIMES = 100
"""How often a client can have been given up, and have joined again under another name.
"""
PATIENCE = 30.0
"""Seconds for which a training loop may say goodbye."""


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
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*within, sys.executable, str(LOOP), *arguments],
                stdout=log,
                stderr=log,
                env=environment,
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
        """How many elements it had handed out and could not report, as it says, when
        others were given them.
        """
        ways = r"so do (\d+) elements that it had handed out|(\d+) elements handed out here could not be"
        told = re.findall(ways, self.log.read_text())
        return sum(int(number) for numbers in told for number in numbers if number)

    def reported(self, audit: Mapping[str, Any]) -> int:
        """How many elements it was the first to report, as the dispatcher has counted
        under all of its names.
        """
        told = self.path.with_suffix(".client")
        client = told.read_text() if told.exists() else ""
        names = {
            shown_name(name)
            for name in [client, *(f"{client}.{number}" for number in range(TIMES))]
        }
        return sum(one["delivered"] for one in audit["clients"] if one["client"] in names)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        """Has it end behind the element that it has, and report what it was handed."""
        # Who it is it says once it is ready to be asked.
        told = self.path.with_suffix(".client")
        await_condition(lambda: told.exists() or not self.running, PATIENCE, "its beginning")
        self._process.terminate()
        self._process.wait(PATIENCE)
        self.has_ended()

    def kill(self) -> None:
        self.killed = True
        self._process.kill()
        self._process.wait()

    def has_ended(self) -> bool:
        """Whether it has read to the end; fails when it has ended in another way."""
        code = self._process.poll()
        if code is None:
            return False
        assert code == 0 or self.killed, (
            f"{self.path.name} ended with {code}: {self.log.read_text()[-2000:]}"
        )
        return True


def check(
    kind: str, count: int, loops: Sequence[TrainingLoop], audit: Mapping[str, Any] | None = None
) -> None:
    """Every element was handed out, none of them twice, in the order that this kind of
    job promises.

    What was handed out and not reported by loops that were killed, or given up while
    they were cut off, may have come again.

    Args:
        kind: of the job, a key of ``training_loop.KINDS``.
        count: how many elements it has.
        loops: all that have read it.
        audit: what the dispatcher has counted. With it the check is exact.
    """
    if kind == "ordered":
        check_order(count, loops, audit)
    elif kind == "coordinated":
        check_consumers(count, loops, audit)
    else:
        check_once(count, loops, audit)


def handed_out(loops: Sequence[TrainingLoop], killed: bool) -> Counter[int]:
    """How often each element came to those that were killed, or to the others."""
    return Counter(element for loop in loops if loop.killed == killed for element in loop.elements)


def check_once(
    count: int, loops: Sequence[TrainingLoop], audit: Mapping[str, Any] | None = None
) -> None:
    """Each element came to one of those that were not killed, or was handed out, and
    reported, by one that was.
    """
    alive, dead = handed_out(loops, killed=False), handed_out(loops, killed=True)
    twice = [element for element, times in alive.items() if times > 1]
    missing = [element for element in range(count) if element not in alive]
    lost = [element for element in missing if element not in dead]
    assert not lost, f"missing: {lost[:9]}"
    excused = sum(loop.unreported for loop in loops if not loop.killed)
    assert alive.total() - len(alive) <= excused, f"twice: {twice[:9]}"
    if audit is not None:
        check_reports(missing, loops, audit)


def check_reports(
    missing: Sequence[int], loops: Sequence[TrainingLoop], audit: Mapping[str, Any]
) -> None:
    """Who was killed has reported what came to nobody else, no more and no less; the
    others all that they had.

    Of what others had, that does not count which they had not reported when they were
    given up, as they say.
    """
    reported = {loop.path.name: loop.reported(audit) for loop in loops}
    by_killed = sum(reported[loop.path.name] for loop in loops if loop.killed)
    text = f"of {reported} reported, {by_killed} are of killed loops; {len(missing)} elements came to nobody else"
    assert by_killed == len(missing), f"{text}: {missing[:9]}"
    for loop in loops:
        unreported = loop.count - reported[loop.path.name]
        most = loop.count if loop.killed else loop.unreported
        assert 0 <= unreported <= most, (
            f"{loop.path.name} had {loop.count}; {text}; it may have kept {most} to itself"
        )


def streams(loops: Sequence[TrainingLoop]) -> dict[int, list[int]]:
    """What each consumer had, in order; its successor repeats at most what the one
    before had not reported.
    """
    found: dict[int, list[int]] = {}
    for loop in loops:
        before, elements = found.get(loop.consumer, []), loop.elements
        starts = [
            at for at, element in enumerate(before) if elements and element == elements[0]
        ] or [len(before)]
        overlap = before[starts[-1] :]
        astray = overlap != elements[: len(overlap)] and elements != overlap[: len(elements)]
        assert not astray, f"{loop.path.name} goes astray"
        found[loop.consumer] = before[: starts[-1]] + max(elements, overlap, key=len)
    return found


def check_order(
    count: int, loops: Sequence[TrainingLoop], audit: Mapping[str, Any] | None = None
) -> None:
    """The reader and its successors had, together, what an undisturbed one has."""
    with LocalCluster(1, in_process=True) as cluster:
        expected = [int(element[0]) for element in distributed(cluster.target, "ordered", count, 0)]
    assert streams(loops)[0] == expected
    assert audit is None or audit["consumers"] == [count]


def check_consumers(
    count: int, loops: Sequence[TrainingLoop], audit: Mapping[str, Any] | None = None
) -> None:
    """All consumers had the same number of elements, none of them twice, and all but
    those of rounds not full.
    """
    found = streams(loops)
    assert len({len(stream) for stream in found.values()}) == 1
    counts = Counter(element for stream in found.values() for element in stream)
    assert set(counts.values()) == {1}
    if audit is None:
        assert count - len(counts) <= 8
    else:
        assert (
            count - len(counts)
            == audit["elements"]["dropped"]
            <= audit["tasks"]["count"] * (len(found) - 1)
        )
        assert audit["consumers"] == [len(found[consumer]) for consumer in sorted(found)]
