"""The dispatcher's durable knowledge of incarnations and runs. Only
``core.dispatcher.state.state`` changes it.

An incarnation is a job that began anew under its name. A run is a training program with
all its processes. A binding says which incarnation a run reads.

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
    """Keys of the runs that are bound to it."""
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
class RunMember:
    """A process of a run, or a copy of a dataset there, that is iterated over."""

    process: str
    """The process that made the dataset object."""
    base: int
    """The repetition that its first pass reads."""
    used: int = -1
    """The highest number of a pass so far, counted from ``base``."""
    passes: list[u.PassUpdate] = field(default_factory=list)
    """The newest passes of its data loaders' workers, oldest first."""
    loaded: int = 0
    """Number of passes, of its data loaders and copies, that its iterators skip."""
    copied: int = -1
    """The highest number of a pass that its copies in other processes have made."""
    ended: int = -1
    """The highest number of a pass that its copies have ended."""


@dataclass
class Binding:
    """A run that reads a job."""

    incarnation: int
    """The incarnation that it reads."""
    base: int
    """The repetition that the first pass of a member reads."""
    on_existing: str
    """Requested reaction if the name was in use."""
    is_repeated: bool = False
    """True if the run was bound before, so that members of it may have read on."""
    members: dict[str, RunMember] = field(default_factory=dict)
    """Its members by rank, or by process if the rank is unknown, and the copies of
    their datasets by name.
    """


def told(job: str, run: str, name: str, member: RunMember) -> u.RunMemberUpdate:
    """Return the update that says all of a member but its passes."""
    return u.RunMemberUpdate(
        job,
        run,
        name,
        member.process,
        base=member.base,
        used=member.used,
        loaded=member.loaded,
        copied=member.copied,
        ended=member.ended,
    )
