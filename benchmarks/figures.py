"""Evaluation of measured values: order of turns, medians, spreads, ratios, goals. Pure
arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.cases import OURS, Case, Goal, Way

TRIALS = 2
"""Repetitions after which slow settings of a peer are no longer measured."""
WORTH = 0.6
"""Share of the best setting's value that a setting must reach to be measured
further.
"""


def turns(taking_part: Sequence[Way], repetition: int) -> list[Way]:
    """Return the order of a repetition; it rotates, so that no way always follows the
    same way.
    """
    first = repetition % max(1, len(taking_part))
    return [*taking_part[first:], *taking_part[:first]]


@dataclass
class Values:
    """Measurements of a way in a case."""

    found: list[float]
    """A value for each repetition."""
    error: str = ""
    """Reason why values are missing."""

    @property
    def median(self) -> float:
        return median(self.found)

    @property
    def spread(self) -> float:
        """Distance between the smallest and the largest value, as a share of the
        median.
        """
        return (max(self.found) - min(self.found)) / self.median if self.median else 0.0


Measured = Mapping[Way, Values]


def best(case: Case, measured: Measured, peer: str, settings: Sequence[str] = ()) -> Way | None:
    """Return the peer's best way; None if none was measured in every repetition."""
    most = max((len(values.found) for values in measured.values()), default=0)
    known = [
        way
        for way, values in measured.items()
        if way.peer == peer
        and len(values.found) == most > 0
        and (not settings or way.setting in settings)
    ]
    sign = 1 if case.more_is_better else -1
    return max(known, key=lambda way: sign * measured[way].median, default=None)


def worth_more(case: Case, measured: Measured, repetition: int) -> list[Way]:
    """Return the ways to measure in a repetition: without failed ways, and ways far
    behind another of the same peer.
    """
    left = [way for way in case.ways if not (way in measured and measured[way].error)]
    if repetition < TRIALS:
        return left
    kept = []
    for way in left:
        leader = best(case, {w: v for w, v in measured.items() if w in left}, way.peer)
        if (
            way.setting in case.named(way.peer)
            or leader is None
            or _near(case, measured[way], measured[leader])
        ):
            kept.append(way)
    return kept


def _near(case: Case, values: Values, leading: Values) -> bool:
    if len(values.found) < len(leading.found):
        return False
    if case.more_is_better:
        return values.median >= WORTH * leading.median
    return leading.median >= WORTH * values.median


@dataclass(frozen=True)
class Verdict:
    """The result of a goal."""

    goal: Goal
    """The goal."""
    theirs: Way | None = None
    """The peer's way that was compared; None if it was not measured, or the goal is a
    time.
    """
    value: float | None = None
    """Median of the ratios of each repetition, or of the seconds; None if not
    measured.
    """
    lowest: float | None = None
    """Smallest of these values."""
    highest: float | None = None
    """Largest of these values."""
    reached: bool | None = None
    """True if the goal is reached; None if not measured."""


def verdict(case: Case, measured: Measured, goal: Goal) -> Verdict:
    """Evaluate a goal. Values are compared with values of the same repetition."""
    own = best(case, measured, OURS, (goal.ours,))
    if own is None:
        return Verdict(goal)
    values = measured[own].found
    if not goal.peer:
        return Verdict(
            goal, None, median(values), min(values), max(values), median(values) <= goal.most
        )
    theirs = best(case, measured, goal.peer, goal.settings)
    if theirs is None:
        return Verdict(goal)
    pairs = zip(values, measured[theirs].found, strict=True)
    ratios = [a / b if case.more_is_better else b / a for a, b in pairs]
    return Verdict(
        goal, theirs, median(ratios), min(ratios), max(ratios), median(ratios) >= goal.least
    )
