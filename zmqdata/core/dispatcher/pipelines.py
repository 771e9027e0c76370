"""Parts of pipelines at the dispatcher: which are stored, which are being uploaded, and
which are no longer needed. The bytes only pass through; the shell stores them.

Protocol 2.7 to 2.9 and 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.dispatcher.events import (
    DropPipeline,
    KeepPiece,
    Peer,
    PieceKept,
    SendPiece,
)
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.limits import MOST_UPLOADS, too_many
from zmqdata.errors import InvalidArgumentError, ResourceExhaustedError
from zmqdata.printable import shown_size

UNUSED_FOR = 3600.0
"""Seconds for which a part is kept that no dataset has. A program that is changed and
restarted within that time need not upload it again.
"""
ABANDONED_AFTER = 300.0
"""Seconds after the last piece at which an incomplete upload is removed."""


@dataclass
class IncomingPart:
    """A part that clients are uploading."""

    size: int
    """Size of the complete part in bytes; 0 if unknown."""
    taken: int = 0
    """Number of bytes passed to the shell."""
    written: int = 0
    """Number of bytes that the shell has written."""
    heard: float = 0.0
    """When a client last spoke of the part."""
    waiting: dict[Peer, str] = field(default_factory=dict)
    """Request id by peer, for each peer that waits for an answer."""


class Parts:
    """Receives parts from clients in pieces, and sends them to workers.

    Args:
        out: state and commands.
    """

    def __init__(self, out: Outbox) -> None:
        self.out = out
        self.piece_bytes = m.PIECE_BYTES
        self.stored: set[str] = set()
        self.uploads: dict[str, IncomingPart] = {}
        self._unused_since: dict[str, float] = {}

    def restore(self, stored: Iterable[str], partial: Mapping[str, int]) -> None:
        """Register what an earlier dispatcher left behind: complete parts, and the
        sizes of partial ones.
        """
        self.stored.update(stored)
        self.uploads.update(
            (digest, IncomingPart(0, have, have)) for digest, have in partial.items()
        )

    def missing(self, parts: Iterable[m.Part]) -> m.Part | None:
        """Return the first of these parts that is not stored."""
        return next((part for part in parts if part.digest not in self.stored), None)

    def ask_for(self, peer: Peer, request: str, part: m.Part, now: float) -> None:
        """Ask a client to upload a part, from the first missing byte on."""
        if many := self._excess(part.digest):
            self.out.refuse(peer, request, ResourceExhaustedError, many)
            return
        upload = self._upload(part.digest, part.size, now)
        self.out.send(peer, m.RequestPart(request, part.digest, upload.taken, self.piece_bytes))

    def _excess(self, digest: str) -> str:
        """Return the reason why another upload cannot begin; "" if it can."""
        return (
            ""
            if digest in self.uploads
            else too_many("parts being sent", len(self.uploads), MOST_UPLOADS)
        )

    def _upload(self, digest: str, size: int, now: float) -> IncomingPart:
        upload = self.uploads.setdefault(digest, IncomingPart(size))
        upload.heard = now
        # A partial part left by an earlier dispatcher does not tell its final size.
        upload.size = upload.size or size
        return upload

    def store_piece(self, peer: Peer, ask: m.StorePiece, now: float) -> None:
        """Pass the next piece of a part to the shell. A piece that is already stored,
        or comes out of order, is only answered.
        """
        if ask.digest in self.stored:
            self.out.send(peer, m.PieceStored(ask.request, ask.digest, ask.size))
            return
        if not m.is_digest(ask.digest) or not 0 < len(ask.content) <= m.MOST_PIECE_BYTES:
            text = (
                "A piece needs a digest of 64 hexadecimal characters and 1 to "
                f"{m.MOST_PIECE_BYTES} bytes of content"
            )
            self.out.refuse(peer, ask.request, InvalidArgumentError, text)
            return
        if many := self._excess(ask.digest):
            self.out.refuse(peer, ask.request, ResourceExhaustedError, many)
            return
        upload = self._upload(ask.digest, ask.size, now)
        if ask.size != upload.size or ask.offset + len(ask.content) > ask.size:
            text = (
                f"A piece at offset {ask.offset} of a part of {ask.size} bytes does not "
                f"fit into the part of {upload.size} bytes that is being uploaded"
            )
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

    def record_piece(self, event: PieceKept, now: float) -> None:
        """Record the written bytes of a part and answer its clients. The last piece
        counts only if the part matches its digest.
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
                f"part {event.digest[:16]} of a pipeline does not match its digest; "
                "it is uploaded again",
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
            "The dispatcher cannot store a part of the pipeline "
            f"({shown_size(upload.size)}): {error}. Free disk space there, or start "
            "the dispatcher with another --work-dir"
        )
        self.out.note("error", text)
        for peer, request in upload.waiting.items():
            self.out.refuse(peer, request, ResourceExhaustedError, text)
        del self.uploads[digest]
        self.out.commands.append(DropPipeline(digest))

    def request_piece(self, peer: Peer, ask: m.RequestPiece, now: float) -> None:
        """Send a worker or a client a piece."""
        if ask.digest in self.stored:
            self.out.commands.append(SendPiece(peer, ask.digest, ask.offset, ask.request))
        else:
            text = f"the dispatcher has lost a part of the pipeline ({ask.digest[:16]}...)"
            self.out.send(peer, m.PieceSent(ask.digest, ask.offset, b"", text, ask.request))

    def lose(self, digest: str) -> None:
        """Record that a part can no longer be read."""
        self.stored.discard(digest)

    def collect_unused(self, now: float, patience: float) -> None:
        """Remove parts that no dataset has used for long, and uploads that no client
        continues.
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
