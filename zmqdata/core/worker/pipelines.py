"""Pipelines at a worker: requested once, fetched part by part, and kept for later
tasks.

The shell keeps the bytes of parts in a cache, possibly shared with other processes.
This module only tracks which parts are present and what to request next.

Protocol 2.7 and 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker.memory import MemoryWatch
from zmqdata.printable import shown_size

REPEAT = 1.0
"""Seconds after which an unanswered request is resent."""
MOST_PATIENCE = 15.0
"""Maximum number of seconds between two requests for a pipeline."""
PIPELINES_KEPT = 4
"""Number of pipelines kept, beyond which unused ones are removed."""
PIECES_AHEAD = 2
"""Number of pieces that are requested ahead of what is written."""
PIECE_PATIENCE = 5.0
"""Seconds without progress after which the next piece is requested again."""
MOST_PIECE_PATIENCE = 60.0
"""Maximum of the same time, which doubles with each repetition."""
POLL_AGAIN = 0.5
"""Seconds after which the worker checks again whether another process has fetched a
part.
"""
MOST_BROKEN = 2
"""Number of times that a part may fail its digest before its pipelines fail."""


@dataclass
class Fetch:
    """A part that is being fetched."""

    part: m.Part
    """The part."""
    claimed: bool = False
    """True if this worker fetches the part, and no other process does."""
    poll_at: float | None = 0.0
    """Time to look for the part in the cache; None while the shell looks."""
    taken: int = 0
    """Number of bytes passed to the shell."""
    kept: int = 0
    """Number of bytes written."""
    asked: int = 0
    """Number of bytes requested."""
    broken: int = 0
    """Number of times that the complete part did not match its digest."""
    progress: float = 0.0
    """Time of the last progress or request."""
    patience: float = PIECE_PATIENCE
    """Seconds without progress after which a piece is requested again."""


@dataclass
class Stocked:
    """A packed pipeline with its parts."""

    pipeline: bytes = field(repr=False)
    """The packed pipeline; empty if it is one of the parts."""
    parts: tuple[m.Part, ...] = ()
    """The parts."""


@dataclass
class Found:
    """The packed pipeline that a task starts with, or the reason why it has none."""

    pipeline: bytes = field(repr=False)
    """The packed pipeline; empty if it is one of the parts."""
    reason: str = ""
    """Reason why the pipeline cannot be had; "" if it can."""


@dataclass
class _Ask:
    since: float = -MOST_PATIENCE
    patience: float = field(default=REPEAT / 2)


class Pipelines:
    """The pipelines of a worker process.

    Args:
        worker: id of the worker.
        do: receives the resulting commands.

    Attributes:
        parcels: ids of the datasets of which opened parcels are kept.
    """

    def __init__(self, worker: str, do: Callable[[e.WorkerCommand], None]) -> None:
        self.worker = worker
        self.stock: dict[str, Stocked] = {}
        self.whole: set[str] = set()
        self.fetches: dict[str, Fetch] = {}
        self.parcels: frozenset[str] = frozenset()
        self._do = do
        self._asks: dict[str, _Ask] = {}
        self._reasons: dict[str, str] = {}

    def drop_parcels(self, datasets: Iterable[str]) -> None:
        """Drop the opened parcels of datasets, as far as there are any."""
        dropped = self.parcels.intersection(datasets)
        if dropped:
            self.parcels -= dropped
            self._do(e.DropParcels(dropped))

    def spare(self, memory: MemoryWatch, parcels: frozenset[str]) -> None:
        """Record the datasets whose opened parcels are kept. If the process is over its
        limit of memory, drop all of them, and log that.
        """
        self.parcels = parcels
        if memory.is_over and self.parcels and (notice := memory.spare()):
            self._do(e.LogLine("warning", notice))
            self.drop_parcels(self.parcels)

    def find(self, definition: m.TaskDefinition) -> Found | None:
        """Return the pipeline of a task, or the reason why the worker has none; None
        while the pipeline is in transit.
        """
        reason = self._reasons.get(definition.job.dataset_id) or self._reasons.get(
            definition.digest
        )
        if reason is not None:
            return Found(b"", reason)
        stocked = self.stock.get(definition.digest)
        if stocked is None or any(part.digest not in self.whole for part in stocked.parts):
            return None
        return Found(stocked.pipeline)

    def want(self, definition: m.TaskDefinition, now: float) -> None:
        """Request a missing pipeline, at growing intervals, because it may be in
        transit already.
        """
        if definition.digest in self.stock:
            return
        ask = self._asks.setdefault(definition.job.dataset_id, _Ask())
        if now - ask.since >= ask.patience:
            self._asks[definition.job.dataset_id] = _Ask(now, min(ask.patience * 2, MOST_PATIENCE))
            self._send(m.RequestPipeline(self.worker, definition.job.dataset_id))

    def sent(self, message: m.PipelineSent, used: Iterable[str], now: float) -> None:
        """Add a pipeline that has arrived, or record why it does not exist.

        Args:
            message: the answer of the dispatcher.
            used: digests of the pipelines of this worker's tasks.
            now: the time.
        """
        self._asks.pop(message.dataset_id, None)
        if message.reason:
            self._reasons[message.dataset_id] = message.reason
        elif message.digest not in self.stock:
            self._make_room(set(used))
            self.stock[message.digest] = Stocked(message.pipeline, message.parts)
            for part in message.parts:
                if part.digest not in self.whole:
                    self.fetches.setdefault(part.digest, Fetch(part))
            self.tick(now)

    def check_maps(self, peer: e.Peer, ask: m.CheckMaps, now: float) -> None:
        """Look whether the worker sees the files of a pipeline, for the dispatcher."""
        self._do(e.CheckFiles(ask.request, ask.maps))

    def files_checked(self, event: e.FilesChecked, now: float) -> None:
        """Tell the dispatcher what the worker sees of the files."""
        self._send(m.MapsChecked(self.worker, event.request, event.fault))

    def forget_failures(self) -> None:
        """Forget the failures, which the tasks that waited have started with. A later
        task requests its pipeline again.
        """
        for digest in self._reasons:
            self.stock.pop(digest, None)
        self._reasons.clear()

    def _make_room(self, used: set[str]) -> None:
        for digest in [digest for digest in self.stock if digest not in used][: 1 - PIPELINES_KEPT]:
            del self.stock[digest]
        needed = {part.digest for stocked in self.stock.values() for part in stocked.parts}
        if self.whole - needed or self.fetches.keys() - needed:
            self.whole &= needed
            self.fetches = {
                digest: fetch for digest, fetch in self.fetches.items() if digest in needed
            }
            self._release_others()

    def _release_others(self) -> None:
        self._do(e.ReleaseParts(frozenset(self.whole | self.fetches.keys())))

    # --- parts

    def tick(self, now: float) -> None:
        """Look for parts in the cache, and resend unanswered requests. One part is
        fetched at a time.
        """
        busy = any(fetch.claimed or fetch.poll_at is None for fetch in self.fetches.values())
        for digest, fetch in self.fetches.items():
            if fetch.claimed and now - fetch.progress >= fetch.patience:
                fetch.progress, fetch.patience = now, min(fetch.patience * 2, MOST_PIECE_PATIENCE)
                fetch.asked = fetch.taken
                self._ask_on(fetch)
            elif not busy and fetch.poll_at is not None and now >= fetch.poll_at:
                fetch.poll_at = None
                self._do(e.ClaimPart(digest, fetch.part.size))
                busy = True

    def claimed(self, event: e.PartClaimed, now: float) -> None:
        """Handle the result of looking for a part in the cache."""
        fetch = self.fetches.get(event.digest)
        if fetch is None or fetch.claimed:
            return
        fetch.poll_at = now + POLL_AGAIN
        if event.error:
            self._fail(fetch, event.error)
        elif event.have == fetch.part.size:
            self._done(fetch, now)
        elif event.ours:
            fetch.claimed = True
            fetch.taken = fetch.kept = fetch.asked = event.have
            fetch.progress = now
            self._ask_on(fetch)
        self.tick(now)

    def piece_sent(self, message: m.PieceSent, now: float) -> None:
        """Handle a piece that has arrived. A piece that does not follow the present
        bytes was requested twice, or follows a lost piece, and is ignored.
        """
        fetch = self.fetches.get(message.digest)
        if fetch is None or not fetch.claimed or message.offset != fetch.taken:
            return
        if (
            message.reason
            or not message.content
            or message.offset + len(message.content) > fetch.part.size
        ):
            self._fail(fetch, message.reason or "the dispatcher sent a piece of another part")
            return
        fetch.progress, fetch.patience = now, PIECE_PATIENCE
        fetch.taken += len(message.content)
        fetch.asked = max(fetch.asked, fetch.taken)
        self._do(e.KeepPiece(message.digest, fetch.part.size, message.offset, message.content))

    def kept(self, event: e.PieceKept, now: float) -> None:
        """Handle the result of writing a piece."""
        fetch = self.fetches.get(event.digest)
        if fetch is None or not fetch.claimed:
            return
        fetch.kept, fetch.progress = event.have, now
        if event.error:
            self._fail(fetch, event.error)
        elif event.broken:
            fetch.broken += 1
            fetch.claimed, fetch.poll_at = False, now
            if fetch.broken > MOST_BROKEN:
                self._fail(fetch, "its bytes did not match its digest, each time it was sent")
        elif event.have == fetch.part.size:
            self._done(fetch, now)
        else:
            self._ask_on(fetch)
        self.tick(now)

    def _ask_on(self, fetch: Fetch) -> None:
        # Bytes not yet written count as in flight, so that a slow disk does not fill
        # the memory.
        while fetch.asked < min(fetch.part.size, fetch.kept + PIECES_AHEAD * m.PIECE_BYTES):
            self._send(m.RequestPiece(self.worker, fetch.part.digest, fetch.asked))
            fetch.asked += m.PIECE_BYTES

    def _done(self, fetch: Fetch, now: float) -> None:
        del self.fetches[fetch.part.digest]
        self.whole.add(fetch.part.digest)

    def _fail(self, fetch: Fetch, error: str) -> None:
        """Fail every pipeline that has the part. Their other parts may be needed
        again.
        """
        self.fetches.pop(fetch.part.digest, None)
        self._release_others()
        text = (
            f"this worker cannot keep a part of the pipeline ({shown_size(fetch.part.size)}): "
            f"{error}"
        )
        for digest, stocked in self.stock.items():
            if fetch.part in stocked.parts:
                self._reasons[digest] = text

    def _send(self, message: m.Message) -> None:
        self._do(e.Send(e.DISPATCHER, message))
