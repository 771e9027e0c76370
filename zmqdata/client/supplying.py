"""Sending of what a dispatcher or a worker lacks: the parts of a pipeline, and the
content of the files that it maps.

``Upload`` decides what to send. It has no socket and no clock; ``client.calls`` carries
its messages. Reading and sending of files may take minutes, so a thread of its own does
both. The thread of the iterator only starts it.

Protocol 2.7 and 2.10.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from zmqdata import messages as m
from zmqdata.client.calls import call, new_request
from zmqdata.core.client.events import SupplyMaps
from zmqdata.errors import DataLossError, DataServiceError, UnavailableError
from zmqdata.filenames import legible
from zmqdata.pipelines.memorymaps import FilePart
from zmqdata.pipelines.packing import ParcelContent
from zmqdata.printable import shown_size
from zmqdata.threads import Background

log = logging.getLogger(__name__)

MOST_WAIT = 1.0
"""Seconds to wait for the thread at the end."""
SAY_EVERY = 3.0
"""Seconds between two reports of the progress of an upload."""
PIECES_AHEAD = 2
"""Number of pieces sent before the dispatcher confirms them."""
MOST_BROKEN = 3
"""Number of damaged arrivals of a part after which the upload fails."""


class Content(Protocol):
    """The bytes of a part."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> bytes: ...


class Upload:
    """Sends the parts that the dispatcher requests.

    Args:
        ask: the message that registers the dataset, or tells the content of a mapped
            range. It is sent again when a part has arrived.
        contents: bytes of the parts by digest.
    """

    def __init__(
        self, ask: m.RegisterDataset | m.SupplyMap, contents: Mapping[str, Content]
    ) -> None:
        self._ask = ask
        self._contents = contents
        self._digest = ""
        self._have = 0
        self._sent = 0
        self._stored = 0
        self._broken = 0
        self._piece_bytes = m.PIECE_BYTES

    @property
    def total(self) -> int:
        """Size of all parts in bytes."""
        return sum(map(len, self._contents.values()))

    @property
    def done(self) -> int:
        """Number of bytes that the dispatcher has confirmed in this upload."""
        return self._stored + self._have * bool(self._digest)

    def answer(self, message: m.Message) -> Sequence[m.Message]:
        """Return the messages to send after this message from the dispatcher.

        Raises:
            DataLossError: a part repeatedly arrives damaged, or the dispatcher requests
                an unknown part.
        """
        if isinstance(message, m.RequestPart):
            content = self._contents.get(message.digest)
            if isinstance(content, ParcelContent) and content.parcel.is_of_other:
                return ()  # the ask is repeated, and another process sends it meanwhile
            self._digest, self._have, self._sent = message.digest, message.have, message.have
            self._piece_bytes = max(1, message.piece_bytes)
            return self._pieces()
        if not isinstance(message, m.PieceStored) or message.digest != self._digest:
            return ()
        if message.have < self._have:
            self._begin_anew()
        self._have = message.have
        if message.have == len(self._content()):
            self._stored += message.have
            self._digest = ""
            return (self._ask,)
        self._sent = max(self._sent, self._have)
        return self._pieces()

    def _begin_anew(self) -> None:
        self._broken += 1
        self._sent = 0
        if self._broken >= MOST_BROKEN:
            raise DataLossError(
                "The dispatcher received other bytes than were sent of a part of the "
                f"pipeline ({self._digest[:16]}...), {self._broken} times. Check its "
                "disk and memory."
            )

    def _pieces(self) -> list[m.Message]:
        content, pieces = self._content(), []
        while self._sent < min(len(content), self._have + PIECES_AHEAD * self._piece_bytes):
            piece = content[self._sent : self._sent + self._piece_bytes]
            pieces.append(
                m.StorePiece(self._ask.request, self._digest, len(content), self._sent, piece)
            )
            self._sent += len(piece)
        return list(pieces)

    def _content(self) -> Content:
        if self._digest not in self._contents:
            raise DataLossError(
                "The dispatcher requests a part that does not belong to this "
                f"pipeline: {self._digest[:16]}..."
            )
        return self._contents[self._digest]


class Progress:
    """Logs how much of an upload is done, every few seconds of a long one.

    Args:
        upload: the upload.
        clock: returns the time in seconds.
    """

    def __init__(self, upload: Upload, clock: Callable[[], float] = time.monotonic) -> None:
        self._upload = upload
        self._clock = clock
        self._say_at = clock() + SAY_EVERY

    def answer(self, message: m.Message) -> Sequence[m.Message]:
        """Return the upload's answer to a message, as ``Upload.answer``."""
        answers, now = self._upload.answer(message), self._clock()
        if now >= self._say_at and self._upload.done:
            self._say_at = now + SAY_EVERY
            log.warning(
                "sending the arrays of a pipeline to the dispatcher: %s of at most %s",
                shown_size(self._upload.done),
                shown_size(self._upload.total),
            )
        return answers


class MapSupplier:
    """Sends ranges of files that workers lack, one after the other.

    Args:
        service: address of the dispatcher.
        timeout: seconds to wait for the dispatcher.
        maps: the ranges of files that the pipeline maps.
    """

    def __init__(self, service: str, timeout: float, maps: Iterable[m.MappedRange] = ()) -> None:
        self._service = service
        self._timeout = timeout
        self._maps = {one.name: one for one in maps}
        self._wanted: dict[str, SupplyMaps] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._is_busy = False
        self._thread: Background | None = None
        self._announced: set[str] = set()

    def supply(self, command: SupplyMaps) -> None:
        """Send these ranges, unless they are being sent. Returns at once."""
        with self._lock:
            for name in command.names:
                self._wanted.setdefault(name, command)
            if not self._is_busy and self._wanted and not self._stopped.is_set():
                self._is_busy = True
                self._start()

    def _start(self) -> None:
        self._thread = Background(target=self._run, name="zmqdata-maps", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop sending."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(MOST_WAIT)

    # --- in the thread

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._wanted or self._stopped.is_set():
                    self._is_busy = False
                    return
                name, command = next(iter(self._wanted.items()))
                fresh = self._wanted.keys() - self._announced
            self._announce(fresh)
            try:
                self._send(name, command.client)
            except Exception as error:
                # The dispatcher asks this client again until its time is over.
                log.info("the content of a mapped file was not sent: %s", error)
            with self._lock:
                del self._wanted[name]

    def _announce(self, names: Collection[str]) -> None:
        """Tell the user once which ranges are sent."""
        self._announced.update(names)
        parts = [part_of(self._maps[name]) for name in sorted(names) if name in self._maps]
        parts = [part for part in parts if not part.fault()]
        if parts:
            paths = sorted({legible(part.path) for part in parts})
            more = f"{len(paths)} files ({paths[0]}...)"
            log.warning(
                "workers lack %s, which the pipeline maps. The content (%.0f MB) is sent, unless "
                "the dispatcher has it. Put files where all workers find them under the same path "
                "to send their paths only.",
                f"the file {paths[0]}" if len(paths) == 1 else more,
                sum(part.nbytes for part in parts) / 1e6,
            )

    def _send(self, name: str, client: str) -> None:
        try:
            content = content_of(self._maps.get(name), self._stopped.is_set)
        except (OSError, EOFError, ValueError) as error:
            self._tell(m.SupplyMap(new_request(), client, name, None, str(error)))
            return
        if content is None:
            return
        ask = m.SupplyMap(new_request(), client, name, m.Part(content.digest, len(content)))
        try:
            self._tell(ask, content)
        except UnavailableError:
            raise
        except (DataServiceError, OSError, EOFError) as error:
            self._tell(m.SupplyMap(new_request(), client, name, None, str(error)))

    def _tell(self, ask: m.SupplyMap, content: RangeContent | None = None) -> None:
        contents = {} if content is None else {content.digest: content}
        self._ask(ask, Progress(Upload(ask, contents)).answer)

    def _ask(self, ask: m.SupplyMap, reply: Callable[[m.Message], Sequence[m.Message]]) -> None:
        request, stopped = ask.request, self._stopped
        call(self._service, ask, m.MapSupplied, request, self._timeout, reply, stopped=stopped)


class RangeContent:
    """The bytes of a range of a file, which are read when they are sent.

    Args:
        part: the range.
        digest: SHA-256 of its bytes.
    """

    def __init__(self, part: FilePart, digest: str) -> None:
        self.part = part
        self.digest = digest

    def __len__(self) -> int:
        return self.part.nbytes

    def __getitem__(self, place: slice) -> bytes:
        begin, end, _ = place.indices(self.part.nbytes)
        return self.part.read(begin, end)


def part_of(one: m.MappedRange) -> FilePart:
    """Return the range that a message names."""
    return FilePart(one.path, one.start, one.size, one.samples)


def content_of(one: m.MappedRange | None, stopped: Callable[[], bool]) -> RangeContent | None:
    """Read a range of a file for its digest, and return its content; None if stopped.

    Raises:
        ValueError: this process does not see the file, or the file has changed.
        OSError: the file cannot be read.
        EOFError: the file became shorter.
    """
    if one is None:
        raise ValueError("the client knows another pipeline under the id of the dataset")
    part = part_of(one)
    if part.fault():
        raise ValueError(
            f"the client ({platform.node()}) does not see the file {legible(part.path)} either, "
            "or it has changed since the dataset was defined"
        )
    digest, say_at, done = hashlib.sha256(), time.monotonic() + SAY_EVERY, 0
    for piece in part.pieces():
        if stopped():
            return None
        digest.update(piece)
        done += len(piece)
        if time.monotonic() >= say_at:
            say_at = time.monotonic() + SAY_EVERY
            log.warning(
                "reading %s before it is sent: %.0f of %.0f MB",
                legible(part.path),
                done / 1e6,
                part.nbytes / 1e6,
            )
    return RangeContent(part, digest.hexdigest())
