"""The PUSH sockets of a worker, one for each link, and the check that only the link's
client connects to it.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from msgspec import structs
from zmq.utils import z85

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.blocks import uncompressed, whole
from zmqdata.config.endpoints import DATA_PORT_MARK, PORT_MARK, join_address, split_address
from zmqdata.config.worker import DATA_TRANSPORTS, WorkerConfig
from zmqdata.core.worker import events as e
from zmqdata.errors import InvalidArgumentError
from zmqdata.machine.descriptors import check_room
from zmqdata.transport import sockets
from zmqdata.transport.access import Visitor
from zmqdata.transport.addresses import announced_address, announced_host, bind_endpoint, host_token
from zmqdata.transport.folders import SocketFolder
from zmqdata.transport.keys import Key
from zmqdata.transport.local import Handover, token_of_process
from zmqdata.transport.loop import Loop
from zmqdata.transport.memory import SharedMemory
from zmqdata.transport.rejects import Rejects
from zmqdata.transport.tcp import Sent, sent_by_port

log = logging.getLogger(__name__)

MOST_QUEUED_BYTES = 1 << 30
"""Maximum number of bytes queued for a client that does not receive what it has
requested. A client that follows the protocol never has so much in flight.
"""

CLOSED_KEPT = 100
"""Number of closed links whose late clients are recognized: the newest."""
OF_LINK = 10
"""File descriptors that must be left for a new link, which takes about 8. libzmq
(4.3.5) aborts the process if none is left when the client connects.
"""


@dataclass(frozen=True)
class LinkSecret:
    """The secret by which a worker knows the client of a link."""

    secret: str = field(repr=False)
    """Secret that the client shows, or whose possession it proves if ``public`` is
    set.
    """
    public: bytes = b""
    """Public key of the client for this link; empty without encryption."""

    def is_shown(self, mechanism: bytes, credentials: list[bytes]) -> bool:
        """Return True if a peer shows this secret."""
        if self.public:
            return mechanism == b"CURVE" and credentials == [self.public]
        is_plain = mechanism == b"PLAIN" and len(credentials) == 2
        return is_plain and hmac.compare_digest(credentials[1], self.secret.encode())


@dataclass
class PushSocket:
    """A bound socket, and the messages that could not be sent yet because its client
    has not connected.
    """

    socket: zmq.Socket[bytes]
    """The socket."""
    endpoint: str
    """Endpoint to which it is bound."""
    secret: LinkSecret
    """The secret of its client."""
    memory: SharedMemory | None = None
    """Shared memory for the client; None if there is none."""
    shared: bool = False
    """True once the client has mapped ``memory``."""
    taken: bool = False
    """True once the client has connected. No second connection is accepted, because a
    client that is cut off opens another link.
    """
    decompresses: bool = True
    """False if the client has no codec."""
    queue: deque[tuple[list[Any], int]] = field(default_factory=deque)
    """Messages that could not be sent yet, each with its size."""
    queued_bytes: int = 0
    """Total size of the messages in ``queue``."""


class LinkSockets:
    """Binds, feeds and closes the data sockets of a worker.

    Args:
        context: creates the sockets.
        loop: polls them.
        config: address to bind to, allowed ports, offered transports, and size of
            shared memories.
        announced: returns the address, host and port, to which clients connect for a
            bound port.
        report: receives ``LinkBound`` and ``LinkBroken`` events.
        rejects: counts rejected messages and connections.
        key: encrypts TCP; None for no encryption.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        config: WorkerConfig,
        announced: Callable[[int], str],
        report: Callable[[e.WorkerEvent], None],
        rejects: Rejects,
        key: Key | None,
    ) -> None:
        self._context = context
        self._loop = loop
        self._host = config.host
        self._announced = announced
        self._data_ports = config.usable_data_ports
        chosen = config.data_transfer_protocol
        self._transports = DATA_TRANSPORTS if chosen is None else (chosen,)
        self._memory_bytes = config.shared_memory_bytes
        self._report = report
        self._links: dict[str, PushSocket] = {}
        self._domains: dict[str, PushSocket] = {}
        self._closed: deque[LinkSecret] = deque(maxlen=CLOSED_KEPT)
        self._handovers: dict[str, Handover] = {}
        self._far: dict[str, int] = {}
        self._hosts: dict[str, str] = {}
        self._folder: SocketFolder | None = None
        self._rejects = rejects
        self._is_warned = False
        self._key = key

    @property
    def far(self) -> Mapping[str, str]:
        """Links to clients on other hosts, with their hosts. Only there can compression
        save time.
        """
        return self._hosts

    def sent(self) -> dict[str, Sent]:
        """Return what was sent on the links to clients on other hosts, as far as the
        kernel tells.
        """
        counts = sent_by_port(self._far.values())
        return {link: counts[port] for link, port in self._far.items() if port in counts}

    def bind(self, command: e.BindLink) -> None:
        """Bind a link: to a path if both sides share the host, otherwise to a TCP port.
        Within one process, a handover replaces the socket.
        """
        if "local" in command.transports and command.process == token_of_process():
            handover = self._handovers[command.link] = Handover()
            self._report(e.LinkBound(command.link, handover.address, ""))
            return
        near = command.host == host_token()
        usable = tuple(
            one for one in command.transports if one in self._transports and (near or one == "tcp")
        )
        if not usable:
            text = self._mismatch(near, command.transports)
            self._report(e.LinkBound(command.link, "", "", text, "InvalidArgumentError"))
            return
        try:
            socket, endpoint = self._bind_one(command.link, near, usable)
        except OSError as error:
            reason = (error.strerror or str(error)).rstrip(".")
            self._report(e.LinkBound(command.link, "", "", reason))
            return
        secret = LinkSecret(secrets.token_urlsafe(24))
        if self._key is not None and endpoint.startswith("tcp://"):
            public, private = zmq.curve_keypair()
            secret = LinkSecret(private.decode(), z85.decode(public))
        link = PushSocket(socket, endpoint, secret, decompresses=command.decompresses)
        if "shm" in usable:
            link.memory = self._make_memory()
        self._links[command.link] = self._domains[domain_of(command.link)] = link
        address = endpoint
        if endpoint.startswith("tcp://"):
            port = split_address(endpoint.partition("://")[2])[1]
            address = f"tcp://{self._announced(port)}"
            if not near:
                self._far[command.link], self._hosts[command.link] = port, command.host
        told = None if link.memory is None else link.memory.told
        self._report(e.LinkBound(command.link, address, secret.secret, memory=told))

    def _make_memory(self) -> SharedMemory | None:
        if not self._memory_bytes:
            return None
        try:
            return SharedMemory(self._memory_bytes)
        except OSError as error:
            reason = (
                "this worker cannot share memory with clients on its host: "
                f"{error.strerror or error}"
            )
            log.log(
                logging.DEBUG if self._is_warned else logging.WARNING,
                "%s; sockets are slower",
                reason,
            )
            self._is_warned = True
            return None

    def share(self, command: e.ShareMemory) -> None:
        """Record that the client of a link has mapped its memory."""
        if command.link in self._links:
            self._links[command.link].shared = True

    def _mismatch(self, near: bool, transports: tuple[str, ...]) -> str:
        where = "on the same host" if near else "on another host, which only tcp can reach"
        if transports == ("local",):
            where = "in another process"
        offered, taken = " or ".join(self._transports), " or ".join(transports)
        # The text begins like tf.data's.
        host = self._announced(0).rpartition(":")[0]
        return (
            f"Protocol {taken!r} is not available for worker {host}: it sends elements over "
            f"{offered} only, the client takes them over {taken} only and is {where}. Change the "
            "`data_transfer_protocol` of the worker or the client."
        )

    def _bind_one(
        self, link: str, near: bool, transports: tuple[str, ...]
    ) -> tuple[zmq.Socket[bytes], str]:
        # Links whose clients have not connected yet will take theirs.
        expected = sum(not one.taken for one in self._links.values())
        check_room("a link to a client", OF_LINK * (1 + expected))
        reasons = []
        if near and ("ipc" in transports or "shm" in transports):
            try:
                return sockets.link_push(self._context, [self._path(link)], domain_of(link))
            except OSError as error:
                reasons.append(f"over ipc: {error.strerror or error}")
        if "tcp" in transports:
            try:
                return sockets.link_push(
                    self._context, self._ports(), domain_of(link), self._key, near
                )
            except (OSError, InvalidArgumentError) as error:
                reasons.append(
                    f"over tcp: {getattr(error, 'strerror', None) or error}{self._hint()}"
                )
        raise OSError(errno.EADDRNOTAVAIL, "; ".join(reasons))

    def _hint(self) -> str:
        if self._data_ports is None:
            return ""
        first, last = self._data_ports
        of_clients = sum(link.endpoint.startswith("tcp://") for link in self._links.values())
        ports = f"data port {first}" if first == last else f"data ports {first}-{last}"
        return (
            f"; this worker has {ports} only, of which other clients use {of_clients}, and each "
            "client that reads at the same time needs one. Start the worker with --data-ports A-B, "
            "wide enough for all clients, instead of --data-transfer-port"
        )

    def _path(self, link: str) -> str:
        if self._folder is None:
            self._folder = SocketFolder()
        return (
            f"ipc://{self._folder.path / hashlib.blake2b(link.encode(), digest_size=8).hexdigest()}"
        )

    def _ports(self) -> Iterator[str]:
        if self._data_ports is None:
            yield bind_endpoint(self._host, 0)
            return
        for port in range(self._data_ports[0], self._data_ports[1] + 1):
            yield bind_endpoint(self._host, port)

    def unbind(self, command: e.UnbindLink) -> None:
        """Close the socket of a link, and free its port or path."""
        handover = self._handovers.pop(command.link, None)
        if handover is not None:
            handover.close()
        link = self._links.pop(command.link, None)
        self._domains.pop(domain_of(command.link), None)
        self._far.pop(command.link, None)
        self._hosts.pop(command.link, None)
        if link is None:
            return
        self._closed.append(link.secret)
        self._loop.forget(link.socket)
        link.socket.close()
        if link.memory is not None:
            link.memory.close()
        if link.endpoint.startswith("ipc://"):
            Path(link.endpoint.removeprefix("ipc://")).unlink(missing_ok=True)

    def push(self, command: e.Push) -> None:
        """Send a message on a link as soon as its client is connected."""
        if command.link in self._handovers:
            self._handovers[command.link].put((command.header, command.frames))
            return
        link = self._links.get(command.link)
        if link is not None:
            message = _message(link, command.header, command.frames)
            size = sum(memoryview(frame).nbytes for frame in message)
            link.queue.append((message, size))
            link.queued_bytes += size
            if len(link.queue) == 1:
                self._drain(command.link)
            elif link.queued_bytes > MOST_QUEUED_BYTES:
                self._give_up(command.link, link)

    def _give_up(self, name: str, link: PushSocket) -> None:
        """Break a link whose client does not receive what it has requested."""
        text = f"{link.queued_bytes} bytes that its client has requested are not received"
        # The name of a link begins with that of its client, which must stay secret.
        self._rejects.count(
            m.shown_name(name), "a data socket", f"its client takes nothing: {text}"
        )
        link.queue.clear()
        link.queued_bytes = 0
        self._report(e.LinkBroken(name, text))

    def _drain(self, name: str) -> None:
        link = self._links[name]
        while link.queue:
            try:
                link.socket.send_multipart(link.queue[0][0], zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._loop.write(link.socket, lambda: self._drain(name))
                return
            link.queued_bytes -= link.queue.popleft()[1]
        self._loop.write(link.socket, None)

    def visitor(self, domain: str, mechanism: bytes, credentials: list[bytes]) -> Visitor:
        """Return who a peer is that connects to a link. Its client has the secret that
        was sent to it. A second connection is that of a stranger.
        """
        link = self._domains.get(domain)
        if link is not None and not link.taken and link.secret.is_shown(mechanism, credentials):
            link.taken = True
            return Visitor.CLIENT
        # Another link may have the port of the closed one already.
        is_late = any(secret.is_shown(mechanism, credentials) for secret in self._closed)
        return Visitor.LATE if is_late else Visitor.STRANGER

    def close(self) -> None:
        """Close all sockets. The loop has ended."""
        for name in [*self._links, *self._handovers]:
            self.unbind(e.UnbindLink(name))
        if self._folder is not None:
            self._folder.close()


def domain_of(link: str) -> str:
    """Return the ZAP domain of a link. It is a hash, because clients choose the names
    of links, of any length and content.

    >>> domain_of("control") == domain_of("link"), len(domain_of("x" * 1000))
    (False, 37)
    """
    return f"link-{hashlib.blake2b(link.encode(), digest_size=16).hexdigest()}"


def _message(link: PushSocket, header: m.OnLink, frames: Any) -> list[Any]:
    """Return the frames of a message. Large frames are placed in the shared memory if
    it has room.
    """
    if isinstance(header, m.Block) and header.meta and not link.decompresses:
        # The block was compressed for other clients, or before this client came.
        meta, frames = uncompressed(header.meta, frames)
        header = structs.replace(header, meta=bytes(meta))
    slot = link.memory.place(frames) if frames and link.shared and link.memory is not None else None
    if slot is None:
        return [wire.pack_header(header), *map(whole, frames)]
    following = [whole(frame) for frame, size in zip(frames, slot.sizes, strict=True) if size < 0]
    return [wire.pack_header(structs.replace(header, slot=slot)), *following]


def data_address(config: WorkerConfig, dispatcher_endpoint: str) -> Callable[[int], str]:
    """Return a function that maps a bound port to the address to which clients connect
    for elements.

    Example:
        >>> config = WorkerConfig("10.0.0.1:1", data_transfer_address="gate:%dts_port%")
        >>> data_address(config, "tcp://10.0.0.1:1")(7000)
        'gate:7000'
    """
    if config.data_transfer_address:
        advertised = config.data_transfer_address.replace(DATA_PORT_MARK, PORT_MARK)
        return lambda port: announced_address(config.host, advertised, dispatcher_endpoint, port)
    host = announced_host(config.host, config.worker_address, dispatcher_endpoint)
    return lambda port: join_address(host, port)
