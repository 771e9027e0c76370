"""Which codec pays for which column of a stream: the decision of "AUTO", from what was
measured.

Nothing here compresses or looks at a clock: measurements come in, a choice goes out.
All costs are per byte of the elements, so that codecs can be compared: bytes on the
wire, and seconds of a core on either side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

UNKNOWN_SPEED = 1.25e9
"""Bytes per second of a link that has not been measured: 10 Gbit/s, which few codecs
can gain anything from.
"""
LEAST_GAIN = 0.8
"""A choice gives way to one that takes at most this part of its time. Small gains may
be errors of measuring.
"""
PROBE_SHARE = 4096
"""One byte of so many is compressed for trial."""
DECIDE_BYTES = 4 << 20
"""After so many bytes the choice is thought over, by what was measured meanwhile."""
DRIFT = 1.25
"""A column is probed again when what it is compressed with makes it smaller or larger
by this factor than at first, or takes so much more or less time: then what the others
take is not what it was, either, as others use the machine.
"""
SOONER = 16
"""So many times as often as usual at most, where columns never stay the same."""
MEMORY = 0.8
"""The part of a cost that is left of what it was before, at each new measurement."""


class Packing(NamedTuple):
    """A codec of blosc with one of its filters: "noshuffle", "shuffle" or
    "bitshuffle".
    """

    codec: str
    shuffle: str

    def __str__(self) -> str:
        return self.codec if self.shuffle == "noshuffle" else f"{self.codec}+{self.shuffle}"


Chosen: TypeAlias = "dict[int, Packing]"
"""By column; those that are not in it travel as they are."""


class Cost(NamedTuple):
    """What a byte costs: bytes sent, seconds to compress it, seconds to decompress
    it.
    """

    size: float = 1.0
    pack: float = 0.0
    unpack: float = 0.0


PLAIN = Cost()


class Conditions(NamedTuple):
    """What surrounds a stream.

    Attributes:
        speed: bytes per second that its links carry; infinite where it stays on the
            host.
        making: seconds in which the pipeline makes a byte.
        links: how many links the client decompresses with the thread that takes this
            one, too.
        crowding: seconds that pass while a core of the worker works for one: more than
            one where others want it, too.
    """

    speed: float = UNKNOWN_SPEED
    making: float = 0.0
    links: int = 1
    crowding: float = 1.0

    def seconds(self, cost: Cost) -> float:
        """The time per byte when all sides work at once: that of the slowest.

        The pipeline's thread both makes elements and compresses them.
        """
        return max(
            self.making + self.crowding * cost.pack,
            cost.size / self.speed,
            cost.unpack * self.links,
        )

    @property
    def may_gain(self) -> bool:
        """Whether there is anything to gain: the link is slower than the pipeline."""
        return self.making * self.speed < 1


@dataclass
class MeasuredColumn:
    """A column as it was measured: its bytes in a block, and what the packings that
    were tried cost.

    ``first`` are the costs of whole blocks that drift is measured against.
    """

    nbytes: int
    costs: dict[Packing, Cost]
    first: dict[Packing, Cost] = field(default_factory=dict)


def total_cost(columns: Mapping[int, MeasuredColumn], chosen: Chosen) -> Cost:
    """What a byte of the whole block costs."""
    whole = sum(column.nbytes for column in columns.values()) or 1
    parts = [
        (column.nbytes / whole, _cost(column, chosen.get(index)))
        for index, column in columns.items()
    ]
    return Cost(*(math.fsum(share * cost[at] for share, cost in parts) for at in range(3)))


def _cost(column: MeasuredColumn, packing: Packing | None) -> Cost:
    return PLAIN if packing is None else column.costs.get(packing, PLAIN)


def best_choice(columns: Mapping[int, MeasuredColumn], conditions: Conditions) -> Chosen:
    """The packings that take the least time together, and of those that take the same
    the least of the cores.

    Each column in turn, the one first that gains most by itself, takes what is best
    given the others; twice, since what the first ones took may be more than is needed.
    No step is for the worse, so to compress nothing is never better.
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
    """What the columns of one stream are packed with, and when to find out anew.

    Begins with nothing compressed. A choice stands until another one is clearly better
    or it has become worse than to compress nothing, so that it does not change with
    every measurement.

    >>> choice, lz4 = Choice(), Packing("lz4", "shuffle")
    >>> slow = Conditions(speed=1e8)
    >>> choice.begin(1 << 20, slow)
    True
    >>> choice.probed({0: MeasuredColumn(1 << 20, {lz4: Cost(0.2, 4e-10, 1e-10)})}, 1 << 17, slow)
    >>> str(choice.standing[0])
    'lz4+shuffle'
    """

    def __init__(self) -> None:
        self.columns: dict[int, MeasuredColumn] = {}
        self.standing: Chosen = {}
        self._since_probe = self._probe_at = self._soonest = 0
        self._until_decision = 0

    def begin(self, nbytes: int, conditions: Conditions) -> bool:
        """A block with so many bytes that could be compressed comes; True when its
        columns should be probed first.
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
        """Takes what was found by trying ``sampled`` bytes."""
        self.columns = columns
        self._since_probe, self._probe_at = 0, PROBE_SHARE * sampled
        self._soonest = self._probe_at // SOONER
        self.decide(conditions)

    def packed(self, index: int, nbytes: int, cost: Cost) -> None:
        """Takes what the standing packing of a column did with a whole block;
        ``unpack`` is not known of it.
        """
        column, packing = self.columns.get(index), self.standing.get(index)
        if column is None or packing is None:
            return
        old, column.nbytes = column.costs[packing], nbytes
        if (
            packing not in column.first
        ):  # a sample is not quite like the block that it was taken from
            column.first[packing] = cost
            column.costs[packing] = Cost(cost.size, cost.pack, old.unpack)
            return
        size, pack = (MEMORY * a + (1 - MEMORY) * b for a, b in zip(old[:2], cost[:2], strict=True))
        column.costs[packing] = Cost(size, pack, old.unpack)
        first = column.first[packing]
        if _has_drifted(size, first.size) or _has_drifted(pack, first.pack):
            self._probe_at = self._soonest

    def decide(self, conditions: Conditions) -> None:
        """Thinks the choice over."""
        self._until_decision = DECIDE_BYTES
        if self._seconds({}, conditions) < self._seconds(self.standing, conditions):
            self.standing = {}
        best = best_choice(self.columns, conditions)
        if self._seconds(best, conditions) <= LEAST_GAIN * self._seconds(self.standing, conditions):
            self.standing = best

    def _seconds(self, chosen: Chosen, conditions: Conditions) -> float:
        return conditions.seconds(total_cost(self.columns, chosen))
