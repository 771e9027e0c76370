"""What a worker knows of one task that it hosts: how far it is made, and what is owed to whom.

Pure bookkeeping; what is sent, started and stopped is the worker core's affair.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from zmqdata import commands as c
from zmqdata import messages as m
from zmqdata.core.dealing import Dealing
from zmqdata.core.feeds import SplitFeed
from zmqdata.core.lanes import RoundRobin
from zmqdata.core.streams import Portion
from zmqdata.core.window import Windowed

STATES_KEPT = 4


@dataclass
class HostedTask:
    """A task that this worker hosts. ``dealing`` holds what it made, ``feeds`` are the ledgers of its sources.

    ``allowed``: how many bytes it may make, and ``unread`` how many elements while nobody reads it, None while somebody
    does. ``hungry``: a client waits for the next element. ``incomplete``: a client that is gone took elements with it
    that are not here any more. ``failure``: why it can not run; it has no end then, so that nobody takes it for empty.
    ``states``: the newest places where its pipeline was, oldest first. ``busy``: for how many seconds it has been
    at ``crumb``.
    """

    definition: m.TaskDefinition
    feeds: list[SplitFeed]
    dealing: Dealing
    started: bool = False
    produced: int = 0
    produced_bytes: int = 0
    allowed: int = 0
    unread: int | None = 0
    total: int | None = None
    dropped: int = 0
    left_out: int = 0
    hungry: bool = False
    incomplete: bool = False
    failure: bytes = b""
    progress: float = 0.0
    states: deque[m.TaskState] = field(default_factory=lambda: deque(maxlen=STATES_KEPT))
    busy: float = 0.0
    crumb: m.Crumb | None = None

    @property
    def key(self) -> tuple[int, int]:
        return (self.definition.task, self.definition.attempt)

    @property
    def skipped(self) -> dict[str, int]:
        """How many elements each trainer of a shared cache was too slow for."""
        return self.dealing.skipped if isinstance(self.dealing, Windowed) else {}

    @property
    def owes_elements(self) -> bool:
        """Whether something that is made waits for a client that reads here."""
        return any(not self.dealing.has_all(stream) for stream in self.dealing.streams.values())

    def add(self, made: c.Produced, now: float) -> None:
        """Takes a block that was made."""
        block = (made.first, made.count, made.size, made.meta, made.frames, made.failure)
        self.dealing.add(Portion(*block, lane=made.lane))
        self.produced = max(self.produced, made.first + made.count)
        self.produced_bytes += made.size
        self.progress = now
        self.hungry = False

    def skip(self, unwanted: tuple[int, ...]) -> None:
        """Makes no room for rounds that nobody waits for. Once all are made they hold up nobody, and are kept."""
        if self.total is None and isinstance(self.dealing, RoundRobin):
            self.dealing.skip(unwanted)

    def report(self, now: float) -> m.TaskReport:
        """What the dispatcher is told of it."""
        idle = 0.0 if self.total is not None else now - self.progress
        incomplete = self.incomplete or any(stream.lacking for stream in self.dealing.streams.values())
        return m.TaskReport(
            *self.key,
            self.produced,
            self.total,
            idle,
            incomplete,
            self.skipped,
            self.dropped,
            self.failure,
            self.busy,
            self.crumb,
            self.left_out,
        )
