"""Parts of pipelines at the dispatcher: which are stored, which are being uploaded, and
which are no longer needed. The bytes only pass through; the shell stores them.

The content of a mapped file becomes a part only if a worker lacks the file. A client of
the iteration then sends it. It finds the digest when it is asked, because that reads
all of the range.

Protocol 2.7 to 2.10 and 4.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from zmqdata import messages as m
from zmqdata.core.dispatcher.events import (
    DropPipeline,
    KeepPiece,
    Peer,
    PieceKept,
    SendPiece,
    SendPipeline,
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
PATIENCE = 60.0
"""Seconds that a client has to read a range, and seconds without a piece of it."""
SLOWEST = 20e6
"""Bytes in a second that the slowest disk reads."""
ALONE_FOR = 10.0
"""Seconds to wait for a client that can send the content. A client may be about to join
again.
"""
FORGOTTEN_AFTER = 60.0
"""Seconds after the last request of a worker at which a range is no longer wanted."""


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

    def found(self, stored: Iterable[str], partial: Mapping[str, int]) -> None:
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

    def kept(self, event: PieceKept, now: float) -> None:
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

    def lost(self, digest: str) -> None:
        """Record that a part can no longer be read."""
        self.stored.discard(digest)

    def collect_unused(self, now: float, patience: float, also_used: Collection[str] = ()) -> None:
        """Remove parts that no dataset has used for long, and uploads that no client
        continues. Parts that are ``also_used`` stay.
        """
        used = {part.digest for one in self.out.state.datasets.values() for part in one.parts}
        used.update(also_used)
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


@dataclass
class WantedRange:
    """A mapped range whose content workers want."""

    map: m.MappedRange
    """The range."""
    since: float
    """When a worker first requested the content."""
    heard: float
    """When a worker last requested the content."""
    waiting: dict[Peer, m.RequestPipeline] = field(default_factory=dict)
    """Request by worker, for each that waits."""
    client: str = ""
    """The client that is to send the content; empty if none is."""
    deadline: float = 0.0
    """When another client is asked instead."""
    content: m.Part | None = None
    """The content, once the client has told its digest."""
    unable: dict[str, str] = field(default_factory=dict)
    """Reason by client, for each that cannot send the content."""


class Maps:
    """Gets the content of mapped ranges from clients for workers without the files.

    Args:
        out: state and commands.
        parts: the stored parts.
    """

    def __init__(self, out: Outbox, parts: Parts) -> None:
        self.out = out
        self.parts = parts
        self.wanted: dict[str, WantedRange] = {}
        self._contents: dict[str, m.Part] = {}

    # --- workers

    def request(self, peer: Peer, ask: m.RequestPipeline, now: float) -> None:
        """Send a worker the pipeline of a dataset, with the content of the ranges that
        it lacks. If no client has sent a content yet, the answer waits for it.
        """
        description = self.out.state.datasets.get(ask.dataset_id)
        if description is None:
            text = f"Dataset id {ask.dataset_id} not found."
            self.out.send(peer, m.PipelineSent(ask.dataset_id, "", b"", text))
            return
        lacks = set(ask.lacks)
        lacking = [one for one in description.maps if one.name in lacks]
        absent = [one for one in lacking if self._stored(one.name) is None]
        for one in absent:
            wanted = self.wanted.setdefault(one.name, WantedRange(one, now, now))
            wanted.heard = now
            wanted.waiting[peer] = ask
        if not absent:
            sent = tuple(replace(one, content=self._stored(one.name)) for one in lacking)
            self.out.commands.append(
                SendPipeline(
                    peer,
                    ask.dataset_id,
                    description.digest,
                    description.parts,
                    sent or description.maps,
                )
            )

    def _stored(self, name: str) -> m.Part | None:
        content = self._contents.get(name)
        return content if content is not None and content.digest in self.parts.stored else None

    # --- clients

    def wanted_of(self, client: str, dataset_id: str, now: float) -> tuple[str, ...]:
        """Return the ranges that this client of a dataset is to send. One client sends
        each range.
        """
        if not self.wanted:
            return ()
        found = []
        for name in self._names(dataset_id):
            wanted = self.wanted.get(name)
            if wanted is None or client in wanted.unable:
                continue
            if not wanted.client:
                wanted.client = client
                self._extend(wanted, now)
            if wanted.client == client:
                found.append(name)
        return tuple(found)

    def _names(self, dataset_id: str) -> Iterable[str]:
        description = self.out.state.datasets.get(dataset_id)
        return () if description is None else (one.name for one in description.maps)

    def _extend(self, wanted: WantedRange, now: float) -> None:
        wanted.deadline = now + PATIENCE + wanted.map.size / SLOWEST

    def supply(self, peer: Peer, ask: m.SupplyMap, now: float) -> None:
        """Take the digest of a range from a client, and request its bytes unless they
        are stored.
        """
        known = self._find(ask.name)
        wanted = self.wanted.get(ask.name)
        if known is None or (wanted is None and ask.content is None):
            self.out.send(peer, m.MapSupplied(ask.request))
        elif ask.content is None:
            assert wanted is not None
            self._cannot(wanted, ask.client, ask.reason)
            self._turn_to_next(ask.client, now)
            self.out.send(peer, m.MapSupplied(ask.request))
        elif not m.is_digest(ask.content.digest) or ask.content.size != known.size:
            text = f"The content of a range of {known.size} bytes must be a part of that size"
            self.out.refuse(peer, ask.request, InvalidArgumentError, text)
        elif ask.content.digest in self.parts.stored:
            self._contents[ask.name] = ask.content
            self.out.send(peer, m.MapSupplied(ask.request))
            self.wanted.pop(ask.name, None)
            self._turn_to_next(ask.client, now)
            for worker, request in (wanted.waiting if wanted is not None else {}).items():
                if not any(worker in other.waiting for other in self.wanted.values()):
                    self.request(worker, request, now)
        else:
            if wanted is not None:
                wanted.content = ask.content
            self.parts.ask_for(peer, ask.request, ask.content, now)

    def _turn_to_next(self, client: str, now: float) -> None:
        """Let the time for the other ranges of a client begin anew: it sends one range
        after the other.
        """
        for one in self.wanted.values():
            if one.client == client:
                self._extend(one, now)

    def _find(self, name: str) -> m.MappedRange | None:
        if name in self.wanted:
            return self.wanted[name].map
        described = (one for known in self.out.state.datasets.values() for one in known.maps)
        return next((one for one in described if one.name == name), None)

    def _cannot(self, wanted: WantedRange, client: str, reason: str) -> None:
        wanted.unable[client] = reason
        if wanted.client == client:
            wanted.client = ""

    # --- time

    def tick(self, now: float) -> None:
        """Give up clients that are gone or too slow. Answer the workers if no client
        can send what they want.
        """
        at_work = {
            wanted.client
            for wanted in self.wanted.values()
            if now < wanted.deadline or self._is_arriving(wanted, now)
        }
        for name, wanted in list(self.wanted.items()):
            if now - wanted.heard >= FORGOTTEN_AFTER:
                del self.wanted[name]
                continue
            if wanted.client not in self.out.state.client_iteration:
                wanted.client = ""
            elif wanted.client not in at_work:
                self._cannot(wanted, wanted.client, "it has not sent the content in time")
            is_alone = wanted.unable or now - wanted.since >= ALONE_FOR
            if not wanted.client and is_alone and not self._readers(name) - wanted.unable.keys():
                self._fail(name, wanted)

    def _readers(self, name: str) -> set[str]:
        """Return the clients that read datasets with this range."""
        return {
            client
            for one in self.out.state.iterations.values()
            if name in self._names(one.job.dataset_id)
            for client in one.clients
        }

    def _is_arriving(self, wanted: WantedRange, now: float) -> bool:
        upload = None if wanted.content is None else self.parts.uploads.get(wanted.content.digest)
        return upload is not None and now - upload.heard < PATIENCE

    def _fail(self, name: str, wanted: WantedRange) -> None:
        del self.wanted[name]
        why = "; ".join(sorted(set(wanted.unable.values()))) or "no client reads the dataset now"
        size = f"{wanted.map.size / 1e6:.0f} MB"
        text = f". No client of the job has sent the content ({size}) instead: {why}"
        for peer, ask in wanted.waiting.items():
            described = self.out.state.datasets.get(ask.dataset_id)
            digest = "" if described is None else described.digest
            self.out.send(peer, m.PipelineSent(ask.dataset_id, digest, b"", text))

    # --- datasets

    def registered_again(self, description: m.DatasetDescription) -> None:
        """Forget the contents of a dataset that a client registers again: its files may
        have changed between the samples.
        """
        for one in description.maps:
            self._contents.pop(one.name, None)

    @property
    def used(self) -> set[str]:
        """Digests of the contents of the ranges of registered datasets."""
        names = {one.name for known in self.out.state.datasets.values() for one in known.maps}
        self._contents = {
            name: content for name, content in self._contents.items() if name in names
        }
        return {content.digest for content in self._contents.values()}
