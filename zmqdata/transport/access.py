"""Access control for a server's sockets: answers libzmq's ZAP requests (RFC 27) from a
key file.

libzmq proves that a peer holds the secret of the public key it shows. This module
decides whether the server admits that key. Each message carries the public key of its
connection (``User-Id``), so a key that is revoked while its holder is connected is
refused with the next message.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from enum import Enum

import zmq
from zmq.utils import z85

from zmqdata.errors import DataServiceError
from zmqdata.messages import SAYS, Message
from zmqdata.transport import sockets
from zmqdata.transport.keys import ALL, Key, Known, load
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

log = logging.getLogger(__name__)

ANYBODY = Known(ALL, "", "anybody")
"""The peer that a server without a key sees behind every connection."""
_ACCEPTED, _REFUSED = b"200", b"400"


class Visitor(Enum):
    """A peer that connects to the socket of a link."""

    CLIENT = 1
    """The client of the link."""
    LATE = 2
    """The client of a link that was closed while it connected."""
    STRANGER = 3
    """Any other peer."""


LinkCheck = Callable[[str, bytes, list[bytes]], Visitor]
"""Tells who a peer is that connects to a link. Arguments: the link's domain, the
mechanism, the credentials.
"""


class Keyring:
    """The keys that a server admits, kept in step with its key file.

    Args:
        key: the key as read when the server started; None admits every peer.
    """

    def __init__(self, key: Key | None) -> None:
        self.key = key
        self._known = self._said = _by_public(key)
        # An absolute path: a pipeline in this process may change the working directory.
        # The first look finds changes made since the file was read.
        self._path = os.path.abspath(key.path) if key is not None and key.path else ""
        self._read: tuple[int, ...] | None = None
        self._is_gone = False

    def __bool__(self) -> bool:
        return self.key is not None

    def holder(self, public: str) -> Known | None:
        """Return the entry of a public key; None if the key is not admitted."""
        return ANYBODY if self.key is None else self._known.get(public)

    def look(self) -> None:
        """Read the key file again if it has changed. While it cannot be read, the last
        good content stays in force.

        A file with a wrong mode, as after ``grep -v NAME k >new; mv new k``, can revoke
        keys but not add any. A person who revokes a key expects its refusal, and other
        users may have added lines to a file that they could write.
        """
        if not self._path:
            return
        try:
            state = _state(self._path)
        except OSError as error:
            if not self._is_gone:
                log.warning(
                    "the key file is gone: %s. Until it is back, the keys read before stay in "
                    "force",
                    error,
                )
            self._is_gone = True
            return
        self._is_gone = False
        if state == self._read:
            return
        self._read = state
        try:
            known = self._said = _by_public(load(self._path))
        except (DataServiceError, OSError) as error:
            known = self._of_both()
            log.error(
                "the keys read before stay in force%s, because the key file cannot be used: %s",
                f", except for {len(self._said) - len(known)} that the file no longer lists"
                if known != self._said
                else "",
                error,
            )
        if known != self._known:
            self._known = known
            log.info("key file %s was changed: %d keys are admitted", self._path, len(known))

    def _of_both(self) -> dict[str, Known]:
        """Return the keys of the last good content that the file still lists; all of
        them if the file cannot be read.
        """
        try:
            now = _by_public(load(self._path, any_mode=True))
        except (DataServiceError, OSError):
            return self._said
        return {
            name: one
            for name, one in self._said.items()
            if name in now and now[name].role == one.role
        }


def _state(path: str) -> tuple[int, ...]:
    """Return a fingerprint of the file's metadata, compared to detect a change."""
    found = os.stat(path)
    # Owner and mode are part of it: a file that other users could read is refused, and
    # must be read again once its mode is corrected.
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode, found.st_uid


def _by_public(key: Key | None) -> dict[str, Known]:
    return {} if key is None else {one.public: one for one in key.known}


class Access:
    """Answers the ZAP requests of a context. Create it before any socket is bound.

    Args:
        context: the context of the sockets.
        loop: polls the ZAP socket.
        keyring: the keys to admit.
        rejects: counts refused peers.
        visitor: tells who connects to links; None if the server has no links.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        keyring: Keyring,
        rejects: Rejects,
        visitor: LinkCheck | None = None,
    ) -> None:
        self.keyring = keyring
        self._rejects = rejects
        self._visitor = visitor
        self._socket = sockets.access_check(context)
        loop.read(self._socket, self._answer)

    def _answer(self) -> bool:
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        version, request, domain, address, _, mechanism, *credentials = frames
        name = domain.decode(errors="replace")
        user, is_late = self._user(name, mechanism, credentials), False
        if name != sockets.CONTROL and self._visitor is not None:
            visitor = self._visitor(name, mechanism, credentials)
            user = name if visitor is Visitor.CLIENT else None
            is_late = visitor is Visitor.LATE
        status = (
            [_REFUSED, b"this key is not admitted", b""]
            if user is None
            else [_ACCEPTED, b"OK", user.encode()]
        )
        if is_late:
            log.debug("a client connects to a link that was closed meanwhile")
        elif user is None:
            where = "a control socket" if name == sockets.CONTROL else "a data socket"
            self._rejects.count(address.decode(errors="replace"), where, "its key is not admitted")
        self._socket.send_multipart([version, request, *status, b""])
        return True

    def _user(self, domain: str, mechanism: bytes, credentials: list[bytes]) -> str | None:
        """Return the user name under which a peer is admitted to a control socket; None
        if it is refused.
        """
        is_key = mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == 32
        if domain != sockets.CONTROL or not is_key:
            return None
        public = z85.encode(credentials[0]).decode()
        return None if self.keyring.holder(public) is None else public

    def sender(self, frames: Sequence[zmq.Frame]) -> Known | None:
        """Return the sender of a message; None if its key is no longer admitted."""
        if not self.keyring:
            return ANYBODY
        for frame in frames:
            with contextlib.suppress(zmq.ZMQError):
                return self.keyring.holder(str(frame.get("User-Id")))
        return None

    def objection(self, frames: Sequence[zmq.Frame], message: Message) -> str:
        """Return the reason why the sender may not send this message; "" if it may."""
        sender = self.sender(frames)
        if sender is None:
            return "the key of this connection is no longer admitted"
        if sender.role != ALL and not isinstance(message, SAYS[sender.role]):
            remedy = "name the key file of its own role by --key-file or ZMQDATA_KEY_FILE"
            return f"a {sender.role}'s key may not be used for {type(message).__name__}: {remedy}"
        return ""

    def close(self) -> None:
        """Close the socket, after the loop has ended."""
        self._socket.close()
