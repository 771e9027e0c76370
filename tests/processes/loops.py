"""Training loops in processes of their own, and the check that they were handed what
the kind of job promises.
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
"""Largest number of times that a client is given up and joins again under another
name.
"""
PATIENCE = 30.0
"""Seconds in which a training loop may end its session."""


class TrainingLoop:
    """A training loop in a process, and its records.

    Args:
        target: address of the dispatcher.
        kind: kind of the job, a key of ``training_loop.KINDS``.
        count: number of elements of the job.
        consumer: index of the consumer as which it reads, if consumers are numbered.
        path: file of the records that the loop writes.
        within: prefix of the command that runs the loop elsewhere.
        pace: seconds that the loop is busy with each element.
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
            # A loop that is started again goes on where the others of its run are.
            "ZMQDATA_RUN_ID": "the loops of a test",
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
        """Each element, and the time at which it was handed out, in nanoseconds."""
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
        """Number of elements that the loop handed out and could not report before other
        clients got them, according to its log.
        """
        ways = r"so do (\d+) elements that it had handed out|(\d+) elements handed out here could not be"
        text = self.log.read_text()
        told = sum(int(number) for found in re.findall(ways, text) for number in found if number)
        # At the end of the program it says again what it could not report.
        at_end = re.findall(r"so the last (\d+) elements read", text)
        return max([told, *map(int, at_end)])

    def reported(self, audit: Mapping[str, Any]) -> int:
        """Return the number of elements that the loop was the first to report.

        The dispatcher counts them under all names of the loop.
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
        """Ask the loop to end after its current element, and to report what it was
        handed.
        """
        # The loop writes its name once it is ready for the signal.
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
        """True if the loop has read to the end; fails if it has ended in another
        way.
        """
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
    """Check that every element was handed out exactly once, in the order that this kind
    of job promises.

    An element may come again if the loop that handed it out did not report it. The loop
    must have been killed, or given up while it was cut off.

    Args:
        kind: kind of the job, a key of ``training_loop.KINDS``.
        count: number of elements of the job.
        loops: all loops that have read the job.
        audit: counts of the dispatcher. With them the check is exact.
    """
    if kind == "ordered":
        check_order(count, loops, audit)
    elif kind == "coordinated":
        check_consumers(count, loops, audit)
    else:
        check_once(count, loops, audit)


def handed_out(loops: Sequence[TrainingLoop], killed: bool) -> Counter[int]:
    """Return the number of times that each element came to loops that were killed, or
    to the other loops.
    """
    return Counter(element for loop in loops if loop.killed == killed for element in loop.elements)


def check_once(
    count: int, loops: Sequence[TrainingLoop], audit: Mapping[str, Any] | None = None
) -> None:
    """Check that each element came once to a loop that lives, or that a killed loop
    handed it out and reported it.
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
    """Check that killed loops reported exactly the elements that came to no other loop,
    and that the other loops reported all of theirs.

    The elements that a living loop could not report before it was given up do not
    count. The loop logs their number.
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
    """Return the elements of each consumer, in order.

    A successor repeats at most the elements that its predecessor has not reported.
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
    """Check that the reader and its successors together had the elements of an
    undisturbed reader.
    """
    with LocalCluster(1, in_process=True) as cluster:
        expected = [int(element[0]) for element in distributed(cluster.target, "ordered", count, 0)]
    assert streams(loops)[0] == expected
    assert audit is None or audit["consumers"] == [count]


def check_consumers(
    count: int, loops: Sequence[TrainingLoop], audit: Mapping[str, Any] | None = None
) -> None:
    """Check that all consumers had the same number of elements, none twice, and missed
    only elements of incomplete rounds.
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
