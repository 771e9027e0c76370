"""Control messages and data headers <-> frames. The only place that knows how messages
look as bytes.

Elements are encoded elsewhere (``blocks``). Decoding never raises anything but
``ProtocolError``.
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
"""First frame of every control message: tells a peer of another version from garbage.
"""

MOST_MAGIC = 11
"""More of a first frame is not looked at: no version has more digits."""
NOTICE = Probe()
"""The answer to a message of another version: as of any message, its first frame says
which version is spoken here.

Only who listens gives it, once for each such message. Who has connected ends when it
comes, and answers nothing: so it is the last word, and no two sides can go on telling
each other.
"""

MessageT = TypeVar("MessageT")


def _plain(value: Any) -> Any:
    """Text of a kind of its own, as names that come from an array are (``np.str_``),
    travels as any text.
    """
    if isinstance(value, str):
        return str.__str__(value)
    raise NotImplementedError(f"no message may have {value!r} of {type(value)}")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode


def pack(message: Message) -> list[bytes]:
    """The frames of a control message."""
    if isinstance(message, TasksChanged):
        message = TasksChanged(message.client, _encoded_once(message.task_list))
    return [MAGIC, _encode(message)]


_last_list: tuple[Any, Any] = (None, None)


def _encoded_once(task_list: TaskList) -> Any:
    """A list's bytes in place of it, the same as before if it is the one before:
    hundreds of clients get the same.
    """
    global _last_list  # replaced as a whole, so that threads see one or the other
    known, content = _last_list
    if known is not task_list:
        content = msgspec.Raw(_encode(task_list))
        _last_list = task_list, content
    return content


def pack_header(message: Message) -> bytes:
    """The first frame of a message on a link."""
    return _encode(message)


class Unpacker(Generic[MessageT]):
    """Decodes what one kind of socket may receive.

    Args:
        kinds: the union of message classes that are allowed there.
    """

    def __init__(self, kinds: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(kinds).decode

    def control(self, frames: Sequence[bytes | memoryview]) -> MessageT:
        """The message in the frames of a control socket (routing id removed).

        Raises:
            VersionMismatchError: it begins as a message of another version; what else
                is in it only that one knows.
            ProtocolError: for anything else that is not exactly one allowed message.
        """
        magic = bytes(frames[0][:MOST_MAGIC]) if frames else b""
        if magic != MAGIC and magic[:2] == MAGIC[:2] and magic[2:].isdigit():
            raise VersionMismatchError(
                f"Version mismatch, the peer speaks protocol version {magic[2:].decode()} and this "
                "process version "
                f"{PROTOCOL_VERSION}: their releases of zmqdata do not go together. Compare "
                "`zmqdata --version` on "
                "both sides, install the same release, and start again what was changed"
            )
        if len(frames) != 2:
            raise ProtocolError(f"expected 2 frames, got {len(frames)}")
        if magic != MAGIC:
            raise ProtocolError("not a zmqdata message")
        return self.header(frames[1])

    def header(self, frame: bytes | memoryview) -> MessageT:
        """The message in a single frame.

        Raises:
            ProtocolError: for anything that is not exactly one allowed message.
        """
        try:
            return self._decode(frame)  # type: ignore[no-any-return]  # the decoder was made for MessageT
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise ProtocolError(f"malformed message: {error}") from None


to_dispatcher: Unpacker[ToDispatcher] = Unpacker(ToDispatcher)
to_client: Unpacker[ToClient] = Unpacker(ToClient)
to_worker: Unpacker[ToWorker] = Unpacker(ToWorker)
on_link: Unpacker[OnLink] = Unpacker(OnLink)
