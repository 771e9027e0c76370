"""The identity and the limits of a worker.

Protocol 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata import messages as m
from zmqdata.config.worker import DRAIN_SECONDS
from zmqdata.core.worker.memory import NO_LIMIT, MemoryLimit


@dataclass
class WorkerProfile:
    """The worker's limits, and what it says of itself when it registers."""

    worker: str
    """Id of the worker."""
    address: str
    """Address of its ROUTER."""
    dispatcher: str = ""
    """Endpoint of the dispatcher, for notices and errors."""
    tags: tuple[str, ...] = ()
    """Tags of the worker."""
    python: str = ""
    """Version of its Python."""
    version: str = ""
    """Version of its zmqdata."""
    buffer_bytes: int = 16 << 20
    """Maximum number of bytes that a task may produce ahead of its clients."""
    cache_bytes: int = 10 << 30
    """Number of bytes of a task that the worker keeps for trainers that all read it in
    full.
    """
    heartbeat: float = 1.0
    """Seconds between two heartbeats."""
    dispatcher_timeout: float = 3600.0
    """Seconds without a dispatcher after which the worker ends."""
    drain_seconds: float = DRAIN_SECONDS
    """Maximum number of seconds that a drain waits for other workers."""
    snapshot_chunk_bytes: int = 6 << 30
    """Maximum size of a chunk of a distributed save, in bytes."""
    deaths: tuple[m.Death, ...] = ()
    """Deaths of the processes that this process has replaced, until they are told."""
    max_tasks: int = 0
    """Number of tasks after which the worker leaves; 0 for no limit."""
    process: str = ""
    """Its host and process id, as ``"host:pid"``."""
    name: str = ""
    """Name that its user has given it; empty if it has none."""
    is_quiet: bool = False
    """True if another process of the worker warns of what concerns all of them."""
    memory: MemoryLimit = NO_LIMIT
    """Limit of the memory of its process."""

    def registration(self, tasks: tuple[m.TaskReport, ...]) -> m.RegisterWorker:
        """Return the message that registers the worker with tasks from before."""
        return m.RegisterWorker(
            self.worker,
            self.address,
            self.tags,
            self.python,
            self.version,
            tasks,
            self.deaths,
            self.process,
            self.name,
        )
