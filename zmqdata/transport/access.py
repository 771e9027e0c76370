"""Who may connect to the sockets of a server: answers libzmq's questions (ZAP, RFC 27)
from a key file.

libzmq proves that a peer holds the secret of the public key that it shows; here is
decided whether that key is let in. Every message of a connection bears that key
(``User-Id``), so one that is revoked while its holder is connected is refused with its
next message.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence

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
"""Whoever speaks to a server without a key."""
_ACCEPTED, _REFUSED = b"200", b"400"

LinkCheck = Callable[[str, bytes, list[bytes]], bool]
"""Says whether a peer is the client of a link, by the domain of the link, mechanism and
credentials.
"""


class Keyring:
    """The keys that a server lets in: what its key file says now.

    Args:
        key: as read when the server was started; None: everybody is let in.
    """

    def __init__(self, key: Key | None) -> None:
        self.key = key
        self._known = self._said = _by_public(key)
        # Whole: a pipeline in this process may go to another folder. What was changed
        # since is found at the first look.
        self._path = os.path.abspath(key.path) if key is not None and key.path else ""
        self._read: tuple[int, ...] | None = None
        self._is_gone = False

    def __bool__(self) -> bool:
        return self.key is not None

    def holder(self, public: str) -> Known | None:
        """As what the holder of a public key is let in; None: not at all."""
        return ANYBODY if self.key is None else self._known.get(public)

    def look(self) -> None:
        """Reads the file again if it was changed. While it cannot be read, what it said
        before counts.

        While only its mode is wrong, as it is after ``grep -v NAME k >new; mv new k``,
        it takes keys away and adds none: whoever revokes a key expects that it is
        refused, and others could have added theirs.
        """
        if not self._path:
            return
        try:
            state = _state(self._path)
        except OSError as error:
            if not self._is_gone:
                log.warning(
                    "the key file is gone; what it said before counts until it is there again: %s",
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
                "the key file is not what it should be; what it said before counts%s: %s",
                f", but for {len(self._said) - len(known)} keys that it does not have any more" if known != self._said
                else "", error,
            )  # fmt: skip
        if known != self._known:
            self._known = known
            log.info("key file %s was changed: %d keys are let in", self._path, len(known))

    def _of_both(self) -> dict[str, Known]:
        """What the file said when it was private, less what it does not say now; all of
        it if it cannot be read.
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
    """By what it is noticed that a file was changed."""
    found = os.stat(path)
    # With owner and mode: a file that others could read is refused, and read again when
    # that is mended.
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode, found.st_uid


def _by_public(key: Key | None) -> dict[str, Known]:
    return {} if key is None else {one.public: one for one in key.known}


class Access:
    """Answers who may connect to the sockets of one context. Make it before any socket
    is bound.

    Args:
        context: where the sockets are.
        loop: polls the questions.
        keyring: whom to let in.
        rejects: counts strangers.
        is_client: decides about links; None: there are none.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        keyring: Keyring,
        rejects: Rejects,
        is_client: LinkCheck | None = None,
    ) -> None:
        self.keyring = keyring
        self._rejects = rejects
        self._is_client = is_client
        self._socket = sockets.access_check(context)
        loop.read(self._socket, self._answer)

    def _answer(self) -> bool:
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        version, request, domain, address, _, mechanism, *credentials = frames
        name = domain.decode(errors="replace")
        user = self._user(name, mechanism, credentials)
        status = (
            [_REFUSED, b"this key is not let in", b""]
            if user is None
            else [_ACCEPTED, b"OK", user.encode()]
        )
        if user is None:
            where = "a control socket" if name == sockets.CONTROL else "a data socket"
            self._rejects.count(address.decode(errors="replace"), where, "its key is not let in")
        self._socket.send_multipart([version, request, *status, b""])
        return True

    def _user(self, domain: str, mechanism: bytes, credentials: list[bytes]) -> str | None:
        """The name under which a peer is let in; None: it is not."""
        if domain != sockets.CONTROL:
            return (
                domain
                if self._is_client is not None and self._is_client(domain, mechanism, credentials)
                else None
            )
        if mechanism != b"CURVE" or len(credentials) != 1 or len(credentials[0]) != 32:
            return None
        public = z85.encode(credentials[0]).decode()
        return None if self.keyring.holder(public) is None else public

    def sender(self, frames: Sequence[zmq.Frame]) -> Known | None:
        """Who has sent a message, None if that one is not let in any more."""
        if not self.keyring:
            return ANYBODY
        for frame in frames:
            with contextlib.suppress(zmq.ZMQError):
                return self.keyring.holder(str(frame.get("User-Id")))
        return None

    def objection(self, frames: Sequence[zmq.Frame], message: Message) -> str:
        """Why the sender of a message may not say it; "" if it may."""
        sender = self.sender(frames)
        if sender is None:
            return "the key of this connection is not let in any more"
        if sender.role != ALL and not isinstance(message, SAYS[sender.role]):
            remedy = "name the key file of its own role by --key-file or ZMQDATA_KEY_FILE"
            return f"a {sender.role}'s key may not be used for {type(message).__name__}: {remedy}"
        return ""

    def close(self) -> None:
        """Closes the socket; the loop has ended."""
        self._socket.close()
