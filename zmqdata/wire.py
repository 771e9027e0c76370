"""Conversion of control messages and data headers to and from frames. Only this module
knows the byte layout of messages.

``blocks`` encodes elements. Decoding raises ``ProtocolError`` and no other exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from zmqdata.errors import ProtocolError, VersionMismatchError
from zmqdata.messages import (
    PROTOCOL_VERSION,
    Message,
    OnLink,
    Probe,
    TaskList,
    TasksChanged,
    ToClient,
    ToDispatcher,
    ToWorker,
)

MAGIC = b"ZD%d" % PROTOCOL_VERSION
"""First frame of every control message. It distinguishes a peer with another protocol
version from garbage.
"""

MOST_MAGIC = 11
"""Maximum number of bytes of a first frame that are examined: no version has more
digits.
"""
NOTICE = Probe()
"""Answer to a message of another protocol version. As in every message, its first frame
states the version of the sender.

Only the listening side sends it, once for each such message. The connecting side stops
when it receives it and sends no answer, so two peers never exchange such notices
endlessly.
"""

MessageT = TypeVar("MessageT")


def _plain(value: Any) -> Any:
    """Convert an instance of a subclass of ``str``, such as ``np.str_`` from an array,
    to plain text.
    """
    if isinstance(value, str):
        return str.__str__(value)
    raise NotImplementedError(f"A message cannot carry {value!r} of {type(value)}")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode


def pack(message: Message) -> list[bytes]:
    """Return the frames of a control message."""
    if isinstance(message, TasksChanged):
        message = TasksChanged(message.client, _encoded_once(message.task_list))
    return [MAGIC, _encode(message)]


_last_list: tuple[Any, Any] = (None, None)


def _encoded_once(task_list: TaskList) -> Any:
    """Return a task list as encoded bytes, and reuse the bytes of the last call for the
    same list. Hundreds of clients receive the same list.
    """
    global _last_list  # replaced as a whole, so that each thread sees a consistent pair
    known, content = _last_list
    if known is not task_list:
        content = msgspec.Raw(_encode(task_list))
        _last_list = task_list, content
    return content


def pack_header(message: Message) -> bytes:
    """Return the first frame of a message on a link."""
    return _encode(message)


class Unpacker(Generic[MessageT]):
    """Decoder of the messages that a socket of a certain kind may receive.

    Args:
        kinds: the union of message classes that are allowed there.
    """

    def __init__(self, kinds: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(kinds).decode

    def control(self, frames: Sequence[bytes | memoryview]) -> MessageT:
        """Return the message in the frames of a control socket, without routing id.

        Raises:
            VersionMismatchError: the frames begin like a message of another protocol
                version. The rest of such a message is not decoded.
            ProtocolError: the frames are anything else than exactly one allowed
                message.
        """
        magic = bytes(frames[0][:MOST_MAGIC]) if frames else b""
        if magic != MAGIC and magic[:2] == MAGIC[:2] and magic[2:].isdigit():
            raise VersionMismatchError(
                f"Version mismatch, the peer speaks protocol version {magic[2:].decode()} and this "
                f"process version {PROTOCOL_VERSION}: their releases of zmqdata are incompatible. "
                "Compare `zmqdata --version` on both sides, install the same release, and restart "
                "the changed side"
            )
        if len(frames) != 2:
            raise ProtocolError(f"expected 2 frames, got {len(frames)}")
        if magic != MAGIC:
            raise ProtocolError("not a zmqdata message")
        return self.header(frames[1])

    def header(self, frame: bytes | memoryview) -> MessageT:
        """Return the message in a single frame.

        Raises:
            ProtocolError: the frame is anything else than exactly one allowed message.
        """
        try:
            return self._decode(frame)  # type: ignore[no-any-return]  # the decoder was made for MessageT
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise ProtocolError(f"malformed message: {error}") from None


to_dispatcher: Unpacker[ToDispatcher] = Unpacker(ToDispatcher)
to_client: Unpacker[ToClient] = Unpacker(ToClient)
to_worker: Unpacker[ToWorker] = Unpacker(ToWorker)
on_link: Unpacker[OnLink] = Unpacker(OnLink)
