"""Upload of the parts of a pipeline that the dispatcher lacks.

``Upload`` decides what to send. It has no socket and no clock; ``client.calls`` carries
its messages.

Protocol 2.7 and 2.8.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from zmqdata import messages as m
from zmqdata.errors import DataLossError
from zmqdata.pipelines.packing import ParcelContent
from zmqdata.printable import shown_size

log = logging.getLogger(__name__)

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
        ask: the message that registers the dataset. It is sent again when a part has
            arrived.
        contents: bytes of the parts by digest.
    """

    def __init__(self, ask: m.RegisterDataset, contents: Mapping[str, Content]) -> None:
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
