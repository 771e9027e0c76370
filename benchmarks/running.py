"""Schedule of the cases: in each repetition every way has a turn, each peer in its own
process.

Processes and servers stay between the turns of a case, but readers do not: peers
without a turn are idle.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.cases import Case, Way
from benchmarks.figures import Values, turns, worth_more
from benchmarks.processes import NotInstalledError, PeerError, PeerProcess
from benchmarks.reading import Turn
from benchmarks.workloads import spin

if TYPE_CHECKING:
    from benchmarks.link import Link

WORK = 0.002
"""Seconds of Python per element in the case of this name."""
CALIBRATION = 50
"""Trials to calibrate the loop of Python."""


@dataclass(frozen=True)
class Budget:
    """Limits of the measurement."""

    repetitions: int = 5
    """Number of turns of each way."""
    seconds: float = 1.0
    """Seconds that a turn reads."""
    warm: float = 0.3
    """Seconds that it reads before."""
    patience: float = 60.0
    """Further seconds after which a peer is killed."""


@dataclass
class Result:
    """The result of a case."""

    case: Case
    """The case."""
    measured: dict[Way, Values] = field(default_factory=dict)
    """Measurements by way."""
    skipped: str = ""
    """Reason why the case was skipped."""


def spins_for(seconds: float) -> int:
    """Return the number of steps of the Python loop that take this long on this
    machine; the fastest of several trials counts.
    """
    steps = 10_000

    def tried() -> float:
        begin = perf_counter()
        spin(steps, 0)
        return perf_counter() - begin

    return max(1, int(steps * seconds / min(tried() for _ in range(CALIBRATION))))


class NoLinkError(Exception):
    """Raised if a case needs a network that cannot be created here."""


class Stage:
    """The peers' processes on a host or behind a link. Each is started at its first
    turn.
    """

    def __init__(self, link: Link | None = None) -> None:
        self._link = link
        self._processes: dict[str, PeerProcess] = {}
        self._missing: dict[str, str] = {}
        self.versions: dict[str, str] = {}

    def leave_only(self, peers: set[str]) -> None:
        """End all other peers: even idle, they would take time from the peers under
        measurement.
        """
        for peer in self._processes.keys() - peers:
            self._processes.pop(peer).close()

    def measure(self, way: Way, turn: Turn, deadline: float) -> float:
        """Return the value of a turn; a peer that has died is restarted.

        Raises:
            PeerError: the turn has no value.
        """
        if way.peer in self._missing:
            raise NotInstalledError(self._missing[way.peer])
        process = self._processes.get(way.peer)
        if process is None or not process.alive:
            process = self._processes[way.peer] = self._started(way.peer)
            self.versions |= process.versions
        return process.measure(turn, deadline)

    def _started(self, peer: str) -> PeerProcess:
        try:
            return (
                PeerProcess(peer, self._link.within, self._link.serve(peer))
                if self._link
                else PeerProcess(peer)
            )
        except NotInstalledError as error:
            self._missing[peer] = str(error)
            raise

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """End all peers; kill them at once after an error, such as Ctrl-C."""
        with contextlib.ExitStack() as stack:
            for process in self._processes.values():
                stack.callback(process.close if kind is None else process.kill)


@contextlib.contextmanager
def stage_for(rate: str, local: Stage) -> Iterator[Stage]:
    """Yield the stage of a case: this host, or a network with this bandwidth.

    Raises:
        NoLinkError: the network cannot be created; the text says why.
    """
    if not rate:
        yield local
        return
    local.leave_only(set())
    try:
        from benchmarks.link import Link, NotPermittedError
    except ImportError as error:
        raise NoLinkError(f"{error.name} is not installed") from error
    with tempfile.TemporaryDirectory() as folder:
        try:
            link = Link(rate, Path(folder))
        except NotPermittedError as refusal:
            raise NoLinkError(str(refusal)) from refusal
        with contextlib.closing(link), Stage(link) as stage:
            yield stage
            local.versions |= stage.versions


def run_case(
    case: Case, stage: Stage, budget: Budget, spins: int, tell: Callable[[str], None]
) -> Result:
    """Run all repetitions of a case."""
    result = Result(case)
    stage.leave_only({way.peer for way in case.ways})
    for repetition in range(budget.repetitions):
        left = worth_more(case, result.measured, repetition)
        for way in turns(left, repetition):
            values = result.measured.setdefault(way, Values([]))
            seconds = budget.seconds * case.longer
            turn = Turn(
                case.measure, case.element, way.setting, case.workers, seconds, budget.warm, spins
            )
            begin = perf_counter()
            try:
                values.found.append(
                    stage.measure(way, turn, seconds + budget.warm + budget.patience)
                )
                told = f"{values.found[-1]:,.4g}"
            except PeerError as error:
                values.error = told = str(error)
            tell(
                f"{case.name} {repetition + 1}/{budget.repetitions} {way}: {told} "
                f"[{perf_counter() - begin:.1f} s]"
            )
    return result


def run(
    cases: list[Case], budget: Budget, tell: Callable[[str], None]
) -> tuple[list[Result], dict[str, str]]:
    """Run all cases; return the results and the peers' versions.

    Args:
        cases: the cases.
        budget: limits of each case.
        tell: receives a line for each turn.
    """
    spins, results = spins_for(WORK), []
    with Stage() as local:
        for rate, together in groupby(cases, lambda case: case.rate):
            there = list(together)
            try:
                with stage_for(rate, local) as stage:
                    results += [run_case(case, stage, budget, spins, tell) for case in there]
            except NoLinkError as refusal:
                results += [Result(case, skipped=str(refusal)) for case in there]
                tell(f"cases with a link of {rate} are skipped: {refusal}")
        return results, local.versions
