"""Pipelines at a worker: asked for once, fetched part by part, and kept for the tasks
that come next.

The bytes of parts lie in a cache that the shell keeps, perhaps together with other
processes; here is known only which of them are there, and what to ask for next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.worker import events as e

REPEAT = 1.0
MOST_PATIENCE = 15.0
PIPELINES_KEPT = 4
PIECES_AHEAD = 2
PIECE_PATIENCE = 5.0
MOST_PIECE_PATIENCE = 60.0
LOOK_AGAIN = 0.5
"""Seconds until it is looked again whether another process has fetched a part."""
MOST_BROKEN = 2


@dataclass
class Fetch:
    """A part on its way here. ``taken`` bytes were given to the shell, ``asked`` were
    asked for.

    ``claimed``: whether it is ours to fetch; ``look_at``: when to look for it in the
    cache, None while the shell looks.
    """

    part: m.Part
    claimed: bool = False
    look_at: float | None = 0.0
    taken: int = 0
    kept: int = 0
    asked: int = 0
    broken: int = 0
    progress: float = 0.0
    patience: float = PIECE_PATIENCE


@dataclass
class Stocked:
    """A packed pipeline, empty where it is one of its parts."""

    pipeline: bytes = field(repr=False)
    parts: tuple[m.Part, ...] = ()


@dataclass
class Found:
    """What a task can start with: the packed pipeline, or the reason why it can not."""

    pipeline: bytes = field(repr=False)
    reason: str = ""


@dataclass
class _Ask:
    since: float = -MOST_PATIENCE
    patience: float = field(default=REPEAT / 2)


class Pipelines:
    """The pipelines of one worker process.

    Args:
        worker: its id.
        do: takes commands.
    """

    def __init__(self, worker: str, do: Callable[[e.WorkerCommand], None]) -> None:
        self.worker = worker
        self.stock: dict[str, Stocked] = {}
        self.whole: set[str] = set()
        self.fetches: dict[str, Fetch] = {}
        self._do = do
        self._asks: dict[str, _Ask] = {}
        self._reasons: dict[str, str] = {}

    def find(self, definition: m.TaskDefinition) -> Found | None:
        """What the task can start with; None while it is on its way."""
        reason = self._reasons.get(definition.dataset_id) or self._reasons.get(definition.digest)
        if reason is not None:
            return Found(b"", reason)
        stocked = self.stock.get(definition.digest)
        if stocked is None or any(part.digest not in self.whole for part in stocked.parts):
            return None
        return Found(stocked.pipeline)

    def want(self, definition: m.TaskDefinition, now: float) -> None:
        """Asks for a pipeline that is not here, rarer each time: it may be on its way
        already.
        """
        if definition.digest in self.stock:
            return
        ask = self._asks.setdefault(definition.dataset_id, _Ask())
        if now - ask.since >= ask.patience:
            self._asks[definition.dataset_id] = _Ask(now, min(ask.patience * 2, MOST_PATIENCE))
            self._send(m.RequestPipeline(self.worker, definition.dataset_id))

    def sent(self, message: m.PipelineSent, used: Iterable[str], now: float) -> None:
        """A pipeline has come, or the reason why there is none. ``used``: digests of
        the pipelines of our tasks.
        """
        self._asks.pop(message.dataset_id, None)
        if message.reason:
            self._reasons[message.dataset_id] = message.reason
            return
        if message.digest not in self.stock:
            self._make_room(set(used))
            self.stock[message.digest] = Stocked(message.pipeline, message.parts)
            for part in message.parts:
                if part.digest not in self.whole:
                    self.fetches.setdefault(part.digest, Fetch(part))
            self.tick(now)

    def told(self) -> None:
        """The tasks that a reason was for have started with it; a later task may have
        better luck.
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
        """Looks for parts in the cache, and repeats what was not answered. One part at
        a time is fetched.
        """
        busy = any(fetch.claimed or fetch.look_at is None for fetch in self.fetches.values())
        for digest, fetch in self.fetches.items():
            if fetch.claimed and now - fetch.progress >= fetch.patience:
                fetch.progress, fetch.patience = now, min(fetch.patience * 2, MOST_PIECE_PATIENCE)
                fetch.asked = fetch.taken
                self._ask_on(fetch)
            elif not busy and fetch.look_at is not None and now >= fetch.look_at:
                fetch.look_at = None
                self._do(e.ClaimPart(digest, fetch.part.size))
                busy = True

    def claimed(self, event: e.PartClaimed, now: float) -> None:
        """The cache was looked at."""
        fetch = self.fetches.get(event.digest)
        if fetch is None or fetch.claimed:
            return
        fetch.look_at = now + LOOK_AGAIN
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
        """A piece has come. One that does not follow what is here was lost or asked for
        twice.
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
        """A piece was written, or could not be."""
        fetch = self.fetches.get(event.digest)
        if fetch is None or not fetch.claimed:
            return
        fetch.kept, fetch.progress = event.have, now
        if event.error:
            self._fail(fetch, event.error)
        elif event.broken:
            fetch.broken += 1
            fetch.claimed, fetch.look_at = False, now
            if fetch.broken > MOST_BROKEN:
                self._fail(
                    fetch, "its bytes are not what its digest says, each time that it was sent"
                )
        elif event.have == fetch.part.size:
            self._done(fetch, now)
        else:
            self._ask_on(fetch)
        self.tick(now)

    def _ask_on(self, fetch: Fetch) -> None:
        # What the disk has not taken yet counts as being on its way: a slow one must
        # not fill the memory.
        while fetch.asked < min(fetch.part.size, fetch.kept + PIECES_AHEAD * m.PIECE_BYTES):
            self._send(m.RequestPiece(self.worker, fetch.part.digest, fetch.asked))
            fetch.asked += m.PIECE_BYTES

    def _done(self, fetch: Fetch, now: float) -> None:
        del self.fetches[fetch.part.digest]
        self.whole.add(fetch.part.digest)

    def _fail(self, fetch: Fetch, error: str) -> None:
        """Every pipeline that has the part fails; what else there is of them may be
        needed again.
        """
        self.fetches.pop(fetch.part.digest, None)
        self._release_others()
        text = f"a part of the pipeline ({fetch.part.size / 1e6:.1f} MB) cannot be kept by this worker: {error}"
        for digest, stocked in self.stock.items():
            if fetch.part in stocked.parts:
                self._reasons[digest] = text

    def _send(self, message: m.Message) -> None:
        self._do(e.Send(e.DISPATCHER, message))
