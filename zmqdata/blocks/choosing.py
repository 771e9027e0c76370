"""Choice of the codec for each column of a stream: the decision of "AUTO", from
measurements.

Nothing here compresses or reads a clock: measurements come in, a choice goes out. All
costs are per byte of the elements, so that codecs can be compared: bytes on the wire,
and seconds of a core on either side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

UNKNOWN_SPEED = 1.25e9
"""Assumed bytes per second of a link that has not been measured: 10 Gbit/s, for which
few codecs pay.
"""
LEAST_GAIN = 0.8
"""A choice is replaced only if another takes at most this part of its time; smaller
gains may be measurement errors.
"""
PROBE_SHARE = 4096
"""One byte in this many is compressed for trial."""
DECIDE_BYTES = 4 << 20
"""Bytes after which the choice is reconsidered with the measurements made meanwhile."""
DRIFT = 1.25
"""A column is probed again if its packing saves or costs more or less by this factor
than at first. Other packings have then changed, too, for example because other
processes use the machine.
"""
SOONER = 16
"""Limit of how many times as often as usual unstable columns are probed."""
MEMORY = 0.8
"""Weight that earlier measurements of a cost keep with each new measurement."""


class Packing(NamedTuple):
    """A codec of blosc with a filter."""

    codec: str
    """Name of the codec."""
    shuffle: str
    """Name of the filter: "noshuffle", "shuffle" or "bitshuffle"."""

    def __str__(self) -> str:
        return self.codec if self.shuffle == "noshuffle" else f"{self.codec}+{self.shuffle}"


Chosen: TypeAlias = "dict[int, Packing]"
"""Packings by column; other columns are not compressed."""


class Cost(NamedTuple):
    """The cost of a byte."""

    size: float = 1.0
    """Bytes sent."""
    pack: float = 0.0
    """Seconds to compress it."""
    unpack: float = 0.0
    """Seconds to decompress it."""


PLAIN = Cost()


class Conditions(NamedTuple):
    """The conditions of a stream."""

    speed: float = UNKNOWN_SPEED
    """Bytes per second that its links carry; infinite within a host."""
    making: float = 0.0
    """Seconds in which the pipeline makes a byte."""
    links: int = 1
    """Number of links whose blocks the client decompresses with the same thread."""
    crowding: float = 1.0
    """Seconds that pass for a second of work of a worker's core; more than 1 if others
    compete for the core.
    """

    def seconds(self, cost: Cost) -> float:
        """Return the time per byte when all sides work at once: that of the slowest.

        The pipeline's thread both makes and compresses elements.
        """
        return max(
            self.making + self.crowding * cost.pack,
            cost.size / self.speed,
            cost.unpack * self.links,
        )

    @property
    def may_gain(self) -> bool:
        """True if compression may pay: the link is slower than the pipeline."""
        return self.making * self.speed < 1


@dataclass
class MeasuredColumn:
    """The measurements of a column."""

    nbytes: int
    """Its bytes in a block."""
    costs: dict[Packing, Cost]
    """Costs of the packings that were tried."""
    first: dict[Packing, Cost] = field(default_factory=dict)
    """Costs of the first whole blocks, against which drift is measured."""


def total_cost(columns: Mapping[int, MeasuredColumn], chosen: Chosen) -> Cost:
    """Return the cost of a byte of the whole block."""
    whole = sum(column.nbytes for column in columns.values()) or 1
    parts = [
        (column.nbytes / whole, _cost(column, chosen.get(index)))
        for index, column in columns.items()
    ]
    return Cost(*(math.fsum(share * cost[at] for share, cost in parts) for at in range(3)))


def _cost(column: MeasuredColumn, packing: Packing | None) -> Cost:
    return PLAIN if packing is None else column.costs.get(packing, PLAIN)


def best_choice(columns: Mapping[int, MeasuredColumn], conditions: Conditions) -> Chosen:
    """Return the packings that together take the least time, and among equals the least
    work of cores.

    Each column in turn, beginning with the largest gain of its own, takes what is best
    given the others. A second pass follows, since the first columns may have taken more
    than needed. No step makes the result worse, so it is never worse than no
    compression.
    """

    def rank(cost: Cost) -> tuple[float, float]:
        return conditions.seconds(cost), cost.pack + cost.unpack

    def best_of(index: int, cost: Cost, present: Packing | None) -> tuple[Cost, Packing | None]:
        column = columns[index]
        share, before = column.nbytes / whole, _cost(column, present)
        options = [
            (_exchanged(cost, before, other, share), packing) for packing, other in _options(column)
        ]
        return min(options, key=lambda option: rank(option[0]))

    chosen: Chosen = {}
    whole = sum(column.nbytes for column in columns.values()) or 1
    plain = cost = total_cost(columns, chosen)
    order = sorted(columns, key=lambda index: rank(best_of(index, plain, None)[0]))
    for index in order * 2:
        found, packing = best_of(index, cost, chosen.get(index))
        if rank(found) < rank(cost):
            cost = found
            chosen.pop(index, None)
            if packing is not None:
                chosen[index] = packing
    return chosen


def _options(column: MeasuredColumn) -> Iterator[tuple[Packing | None, Cost]]:
    yield None, PLAIN
    yield from column.costs.items()


def _exchanged(total: Cost, before: Cost, after: Cost, share: float) -> Cost:
    return Cost(
        *(whole + share * (new - old) for whole, old, new in zip(total, before, after, strict=True))
    )


def _has_drifted(cost: float, first: float) -> bool:
    return not first / DRIFT <= cost <= first * DRIFT


class Choice:
    """The packings of a stream's columns, and when to probe again.

    It begins without compression. A choice stands until another is clearly better, or
    it is worse than no compression, so that it does not change with every measurement.
    >>> choice, lz4 = Choice(), Packing("lz4", "shuffle")
    >>> slow = Conditions(speed=1e8)
    >>> choice.begin(1 << 20, slow)
    True
    >>> measured = MeasuredColumn(1 << 20, {lz4: Cost(0.2, 4e-10, 1e-10)})
    >>> choice.probed({0: measured}, 1 << 17, slow)
    >>> str(choice.standing[0])
    'lz4+shuffle'
    """

    def __init__(self) -> None:
        self.columns: dict[int, MeasuredColumn] = {}
        self.standing: Chosen = {}
        self._since_probe = self._probe_at = self._soonest = 0
        self._until_decision = 0

    def begin(self, nbytes: int, conditions: Conditions) -> bool:
        """Note a block with ``nbytes`` that could be compressed; return True if its
        columns must be probed first.
        """
        self._since_probe += nbytes
        self._until_decision -= nbytes
        if not conditions.may_gain:
            self.standing = {}
            return False
        if self._since_probe >= self._probe_at:
            return True
        if self._until_decision <= 0:
            self.decide(conditions)
        return False

    def probed(
        self, columns: dict[int, MeasuredColumn], sampled: int, conditions: Conditions
    ) -> None:
        """Adopt the results of trying ``sampled`` bytes."""
        self.columns = columns
        self._since_probe, self._probe_at = 0, PROBE_SHARE * sampled
        self._soonest = self._probe_at // SOONER
        self.decide(conditions)

    def packed(self, index: int, nbytes: int, cost: Cost) -> None:
        """Add the cost of packing a whole block of a column; its ``unpack`` is
        unknown.
        """
        column, packing = self.columns.get(index), self.standing.get(index)
        if column is None or packing is None:
            return
        old, column.nbytes = column.costs[packing], nbytes
        # A sample differs somewhat from its block, so the first whole block sets the
        # costs.
        if packing not in column.first:
            column.first[packing] = cost
            column.costs[packing] = Cost(cost.size, cost.pack, old.unpack)
            return
        size, pack = (MEMORY * a + (1 - MEMORY) * b for a, b in zip(old[:2], cost[:2], strict=True))
        column.costs[packing] = Cost(size, pack, old.unpack)
        first = column.first[packing]
        if _has_drifted(size, first.size) or _has_drifted(pack, first.pack):
            self._probe_at = self._soonest

    def decide(self, conditions: Conditions) -> None:
        """Reconsider the choice."""
        self._until_decision = DECIDE_BYTES
        if self._seconds({}, conditions) < self._seconds(self.standing, conditions):
            self.standing = {}
        best = best_choice(self.columns, conditions)
        if self._seconds(best, conditions) <= LEAST_GAIN * self._seconds(self.standing, conditions):
            self.standing = best

    def _seconds(self, chosen: Chosen, conditions: Conditions) -> float:
        return conditions.seconds(total_cost(self.columns, chosen))
