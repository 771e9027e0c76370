"""Parts of pipelines at the dispatcher: which are kept, which are on their way, and
which nobody needs any more.

Their bytes pass through; where they lie is for the shell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.dispatcher.events import DropPipeline, KeepPiece, Peer, PieceKept, SendPiece
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.limits import MOST_UPLOADS, too_many
from zmqdata.errors import InvalidArgumentError, ResourceExhaustedError

UNUSED_FOR = 3600.0
"""How long a part is kept that no dataset has: a program that is changed and started
again need not send it again.
"""
ABANDONED_AFTER = 300.0


@dataclass
class IncomingPart:
    """A part that clients are sending. ``taken`` bytes were given to the shell,
    ``written`` of them are kept.

    ``waiting``: who is owed an answer, with the request.
    """

    size: int
    taken: int = 0
    written: int = 0
    heard: float = 0.0
    waiting: dict[Peer, str] = field(default_factory=dict)


class Parts:
    """Takes parts from clients, in pieces, and gives them to workers.

    Args:
        out: state and commands.
    """

    def __init__(self, out: Outbox) -> None:
        self.out = out
        self.piece_bytes = m.PIECE_BYTES
        self.stored: set[str] = set()
        self.uploads: dict[str, IncomingPart] = {}
        self._unused_since: dict[str, float] = {}

    def found(self, stored: Iterable[str], partial: Mapping[str, int]) -> None:
        """Takes over what an earlier dispatcher has left: whole parts, and how much
        there is of others.
        """
        self.stored.update(stored)
        self.uploads.update(
            (digest, IncomingPart(0, have, have)) for digest, have in partial.items()
        )

    def missing(self, parts: Iterable[m.Part]) -> m.Part | None:
        """The first of these parts that is not kept."""
        return next((part for part in parts if part.digest not in self.stored), None)

    def ask_for(self, peer: Peer, request: str, part: m.Part, now: float) -> None:
        """Has a client send a part, from where it is known."""
        if many := self._excess(part.digest):
            self.out.refuse(peer, request, ResourceExhaustedError, many)
            return
        upload = self._upload(part.digest, part.size, now)
        self.out.send(peer, m.RequestPart(request, part.digest, upload.taken, self.piece_bytes))

    def _excess(self, digest: str) -> str:
        """Why one more part cannot be taken in; "" when it can."""
        return (
            ""
            if digest in self.uploads
            else too_many("parts being sent", len(self.uploads), MOST_UPLOADS)
        )

    def _upload(self, digest: str, size: int, now: float) -> IncomingPart:
        upload = self.uploads.setdefault(digest, IncomingPart(size))
        upload.heard = now
        # What a dispatcher before this one has left does not say how long it was to
        # become.
        upload.size = upload.size or size
        return upload

    def store_piece(self, peer: Peer, ask: m.StorePiece, now: float) -> None:
        """Takes the next piece of a part; one that is here already, or comes too early,
        is answered all the same.
        """
        if ask.digest in self.stored:
            self.out.send(peer, m.PieceStored(ask.request, ask.digest, ask.size))
            return
        if not m.is_digest(ask.digest) or not 0 < len(ask.content) <= m.MOST_PIECE_BYTES:
            text = f"A piece has a digest of 64 hexadecimal characters and 1 to {m.MOST_PIECE_BYTES} bytes"
            self.out.refuse(peer, ask.request, InvalidArgumentError, text)
            return
        if many := self._excess(ask.digest):
            self.out.refuse(peer, ask.request, ResourceExhaustedError, many)
            return
        upload = self._upload(ask.digest, ask.size, now)
        if ask.size != upload.size or ask.offset + len(ask.content) > ask.size:
            text = f"A part of {upload.size} bytes cannot have a piece from {ask.offset} of a part of {ask.size} bytes"
            self.out.refuse(peer, ask.request, InvalidArgumentError, text)
            return
        if ask.offset == upload.taken:
            upload.taken += len(ask.content)
            upload.waiting[peer] = ask.request
            self.out.commands.append(KeepPiece(ask.digest, ask.size, ask.offset, ask.content))
        elif upload.taken > upload.written:
            upload.waiting[peer] = ask.request
        else:
            self.out.send(peer, m.PieceStored(ask.request, ask.digest, upload.written))

    def kept(self, event: PieceKept, now: float) -> None:
        """A piece was written, or could not be; the last one only if the whole part is
        what its digest says.
        """
        upload = self.uploads.get(event.digest)
        if upload is None:
            return
        upload.written = event.have
        if event.error:
            self._give_up(event.digest, upload, event.error)
            return
        if event.broken:
            self.out.note(
                "warning",
                f"part {event.digest[:16]} of a pipeline came with other bytes; it is sent anew",
            )
            upload.taken = event.have
        if event.have == upload.size:
            self.stored.add(event.digest)
            self._unused_since[event.digest] = now
            del self.uploads[event.digest]
        for peer, request in upload.waiting.items():
            self.out.send(peer, m.PieceStored(request, event.digest, event.have))
        if upload.taken == upload.written:
            upload.waiting.clear()

    def _give_up(self, digest: str, upload: IncomingPart, error: str) -> None:
        text = (
            f"The dispatcher cannot keep a part of the pipeline ({upload.size / 1e6:.1f} MB): "
            f"{error}. Make space "
            "there, or start the dispatcher with another --work-dir"
        )
        self.out.note("error", text)
        for peer, request in upload.waiting.items():
            self.out.refuse(peer, request, ResourceExhaustedError, text)
        del self.uploads[digest]
        self.out.commands.append(DropPipeline(digest))

    def request_piece(self, peer: Peer, ask: m.RequestPiece, now: float) -> None:
        """Sends a worker a piece."""
        if ask.digest in self.stored:
            self.out.commands.append(SendPiece(peer, ask.digest, ask.offset))
        else:
            text = f"the dispatcher has lost a part of the pipeline ({ask.digest[:16]}...)"
            self.out.send(peer, m.PieceSent(ask.digest, ask.offset, b"", text))

    def lost(self, digest: str) -> None:
        """A part can not be read any more."""
        self.stored.discard(digest)

    def collect_unused(self, now: float, patience: float) -> None:
        """Removes parts that no dataset has had for long, and those that nobody goes on
        sending.
        """
        used = {part.digest for one in self.out.state.datasets.values() for part in one.parts}
        used.update(one.digest for one in self.out.state.datasets.values())
        for digest in used:
            self._unused_since.pop(digest, None)
        old = [
            digest
            for digest in self.stored - used
            if now - self._unused_since.setdefault(digest, now) >= patience
        ]
        old += [
            digest
            for digest, upload in self.uploads.items()
            if now - upload.heard >= ABANDONED_AFTER
        ]
        for digest in old:
            self.stored.discard(digest)
            self.uploads.pop(digest, None)
            self._unused_since.pop(digest, None)
            self.out.commands.append(DropPipeline(digest))
