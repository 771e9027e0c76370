"""What follows from measured values: who has its turn next, medians, spreads, ratios,
goals. Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.cases import OURS, Case, Goal, Way

TRIALS = 2
"""Repetitions after which a peer's settings that are far from its best one are measured
no more.
"""
WORTH = 0.6
"""How near to its peer's best setting one must be to be measured on."""


def turns(taking_part: Sequence[Way], repetition: int) -> list[Way]:
    """The order of one repetition: each time somebody else begins, so that nobody
    always follows the same one.
    """
    first = repetition % max(1, len(taking_part))
    return [*taking_part[first:], *taking_part[:first]]


@dataclass
class Values:
    """What was measured of one way of a case: one value of each repetition, or why
    there is none.
    """

    found: list[float]
    error: str = ""

    @property
    def median(self) -> float:
        return median(self.found)

    @property
    def spread(self) -> float:
        """The distance between the smallest and the largest, as a share of the
        median.
        """
        return (max(self.found) - min(self.found)) / self.median if self.median else 0.0


Measured = Mapping[Way, Values]


def best(case: Case, measured: Measured, peer: str, settings: Sequence[str] = ()) -> Way | None:
    """The peer's best way; None where nothing of it was measured to the end."""
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
    """Who is measured in this repetition: who has not failed and is not far behind
    another way of its peer.
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
    """What became of a goal.

    Args:
        goal: which.
        theirs: the way that we were compared with; None where there was none, or the
            goal is a time.
        value: median of the ratios of each repetition, or of the seconds; None where it
            could not be measured.
        lowest: the smallest of them.
        highest: the largest of them.
        reached: None where it could not be measured.
    """

    goal: Goal
    theirs: Way | None = None
    value: float | None = None
    lowest: float | None = None
    highest: float | None = None
    reached: bool | None = None


def verdict(case: Case, measured: Measured, goal: Goal) -> Verdict:
    """Whether a goal is reached. Values are compared with those of the same
    repetition.
    """
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
