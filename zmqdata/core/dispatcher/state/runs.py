"""The dispatcher's durable knowledge of incarnations and runs. Only
``core.dispatcher.state.state`` changes it.

An incarnation is a job that began anew under its name. A run is one start of a training
program, with all its processes.

Decision 0033; protocol 1.5 and 3.13 to 3.16.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zmqdata import updates as u
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.ranges import RangeSet
from zmqdata.messages import JobParameters

PASSES_KEPT = 64
"""Maximum number of passes of data loader workers that are remembered for a member."""


@dataclass
class Incarnation:
    """A job, from the moment at which it began under its name."""

    number: int
    """Number of the incarnation."""
    job: JobParameters
    """Parameters of the job."""
    iterations: dict[int, Iteration] = field(default_factory=dict)
    """Its iterations by repetition; none once it is collected."""
    begun: RangeSet = field(default_factory=RangeSet)
    """Repetitions that have ever begun."""
    finished: RangeSet = field(default_factory=RangeSet)
    """Repetitions that were finished when they were collected."""
    runs: set[str] = field(default_factory=set)
    """Keys of the runs that read it."""
    shards: set[int] = field(default_factory=set)
    """Static shards that a client beside their workers has read."""

    @property
    def is_collected(self) -> bool:
        """True if none of its iterations is kept."""
        return not self.iterations

    @property
    def is_read(self) -> bool:
        """True if a client reads it now."""
        return any(one.clients for one in self.iterations.values())

    @property
    def clients(self) -> list[str]:
        """The clients that read it now, in the order of their names."""
        return sorted(name for one in self.iterations.values() for name in one.clients)

    @property
    def next(self) -> int:
        """The repetition after the last that has begun."""
        return self.begun.ranges[-1][1] if self.begun else 0

    @property
    def newest(self) -> int:
        """The repetition that a newcomer reads: the newest, or the next if that is
        finished.
        """
        repetition = self.next - 1
        known = self.iterations.get(repetition)
        return repetition + 1 if known is None or known.finished else repetition

    def has_finished(self, repetition: int) -> bool:
        """Return True if no element of a repetition is owed to any client, now or
        later.
        """
        known = self.iterations.get(repetition)
        return known.finished if known is not None else repetition in self.finished


@dataclass
class KnownRun:
    """A run, as far as it reads a job."""

    reads: u.RunUpdate
    """The incarnation that it reads, and how it came there."""
    members: dict[str, u.MemberUpdate] = field(default_factory=dict)
    """Its members by rank, or by process if the rank is unknown, and the copies of
    their datasets by name. The last has read most recently.
    """
    passes: dict[str, list[u.PassUpdate]] = field(default_factory=dict)
    """The newest passes of the workers of a member's data loaders, oldest first."""
