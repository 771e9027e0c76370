"""Registering a dataset: the client's part of the talk in which a dispatcher says what it lacks of a pipeline.

``Upload`` decides, without a socket and a clock; ``client.calls`` carries its messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zmqdata import messages as m
from zmqdata.errors import DataLossError

PIECES_AHEAD = 2
MOST_BROKEN = 3


class Upload:
    """Sends the parts that the dispatcher asks for.

    Args:
        ask: what registers the dataset; it is sent again when a part has arrived.
        contents: the parts' bytes by digest.
    """

    def __init__(self, ask: m.RegisterDataset, contents: Mapping[str, bytes]) -> None:
        self._ask = ask
        self._contents = contents
        self._digest = ""
        self._have = 0
        self._sent = 0
        self._broken = 0
        self._piece_bytes = m.PIECE_BYTES

    def answer(self, message: object) -> Sequence[m.Message]:
        """What to send after this message from the dispatcher.

        Raises:
            DataLossError: a part arrives with other bytes time and again, or is not one of ours.
        """
        if isinstance(message, m.RequestPart):
            self._digest, self._have, self._sent = message.digest, message.have, message.have
            self._piece_bytes = max(1, message.piece_bytes)
            return self._pieces()
        if not isinstance(message, m.PieceStored) or message.digest != self._digest:
            return ()
        if message.have < self._have:
            self._begin_anew()
        self._have = message.have
        if message.have == len(self._content()):
            self._digest = ""
            return (self._ask,)
        self._sent = max(self._sent, self._have)
        return self._pieces()

    def _begin_anew(self) -> None:
        self._broken += 1
        self._sent = 0
        if self._broken >= MOST_BROKEN:
            raise DataLossError(
                f"The dispatcher got other bytes than were sent of a part of the pipeline ({self._digest[:16]}...), "
                f"{self._broken} times. Is its disk or memory broken?"
            )

    def _pieces(self) -> list[m.Message]:
        content, pieces = self._content(), []
        while self._sent < min(len(content), self._have + PIECES_AHEAD * self._piece_bytes):
            piece = content[self._sent : self._sent + self._piece_bytes]
            pieces.append(m.StorePiece(self._ask.request, self._digest, len(content), self._sent, piece))
            self._sent += len(piece)
        return list(pieces)

    def _content(self) -> bytes:
        if self._digest not in self._contents:
            raise DataLossError(f"The dispatcher asks for a part that is not of this pipeline: {self._digest[:16]}...")
        return self._contents[self._digest]
