"""All ZeroMQ sockets of zmqdata, with all of their options. No other module sets a
socket option.

High-water marks are only a safety net: credit bounds the bytes in flight. ZMTP
heartbeats run in a C thread, so a connection stays up while Python code holds the
interpreter, and goes down soon after its host dies.

Only the side that connects to a control socket sends heartbeats. libzmq (4.3.5:
``Assertion failed: !_io_error``) aborts the process if a heartbeat is due on a
connection that broke at a bad moment: while its queue was full, or while its socket was
being closed and data arrived. Any peer may fill a server's queue, and blocks of a link
arrive while the link is closed. A server detects silent peers through the kernel
(``connections``), which also ends connections to hosts that are gone.
"""

from __future__ import annotations

import contextlib
import errno
import resource
from collections.abc import Iterable, Sequence

import zmq

from zmqdata.config.endpoints import FILE_SCHEME
from zmqdata.errors import DescriptorShortageError
from zmqdata.machine.descriptors import check_room
from zmqdata.machine.threads import available_cores
from zmqdata.transport.dispatcher_file import current_address
from zmqdata.transport.handshakes import Handshakes
from zmqdata.transport.keys import Key

HEARTBEAT_MS = 1_000
CONTROL_QUEUE = 1_000
HEARD_QUEUE = 1_000
"""Limit of messages of a peer that a server has received and not yet handled; further
messages wait at the peer.

More than an honest peer ever has waiting. If the queue is full when the connection
breaks, a heartbeat of the peer that is read afterwards aborts this process, too.
"""
BACKLOG = 4_096
"""Limit of connections that wait to be accepted; large, so that a burst does not keep
other peers out.
"""
MAX_CONTROL_BYTES = 16 << 20
MAX_CLIENT_BYTES = 2 << 20
"""Limit of a client's message to a worker: grants for thousands of tasks."""
MAX_GREETING_BYTES = 4 << 10
"""Limit of a message to a socket that expects nothing but the handshake."""
DATA_QUEUE = 64
MAX_DATA_BYTES = 4 << 30
MAX_SOCKETS = 16_000
MOST_IO_THREADS = 4
"""Limit of libzmq's I/O threads, among which connections are spread, as far as cores
are available. Encrypting a gigabyte keeps a thread busy for a second. So does the end
of ten thousand connections at once, since each searches the timers of all.
"""
LEAST_IO_THREADS = 2
"""Two even on a single core, so that a busy thread does not delay all connections."""
NEAR_SEND_BYTES = 256 << 10
"""Size requested for the kernel's send buffer towards a client on the same host; the
kernel allocates twice as much. So little stays in the processor's nearest cache until
the receiver reads it; the megabytes of the default size do not.
"""
LINGER_MS = 1_000
LINK_SILENCE_MS = 10_000
RECONNECT_MS = 50
RECONNECT_MAX_MS = 1_000
HANDSHAKE_MS = 5_000
"""Milliseconds after which a connection without a completed handshake is dropped, with
the memory of what it sent.
"""
CONTROL = "control"
"""ZAP domain of control sockets; each link has its own domain."""
OF_CONTEXT = 4 + 2 * MOST_IO_THREADS
"""Limit of file descriptors that a context and its first socket take."""
OF_BIND = 4
"""File descriptors that must be left when a socket is bound: it takes one, and libzmq
(4.3.5, ``resolve_nic_name``) aborts the process if it cannot list the interfaces.
"""
CONNECT_MS = 3_000
"""Milliseconds to wait for a connection before a new attempt. TCP's own retries back
off to a minute after a long outage.
"""


def new_context(
    owner: str = "a ZeroMQ context", descriptors: int = OF_CONTEXT
) -> zmq.Context[zmq.Socket[bytes]]:
    """Return a new context for a shell, so that the shells of a process do not share
    access checks.

    Args:
        owner: the thing that is made with it, for an error.
        descriptors: number of file descriptors that the owner takes at its start.

    Raises:
        DescriptorShortageError: too few file descriptors are left. libzmq would abort
            the process.
    """
    _raise_file_limit()
    check_room(owner, descriptors)
    context = zmq.Context(max(LEAST_IO_THREADS, min(MOST_IO_THREADS, available_cores())))
    context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
    return context


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def control_router(
    context: zmq.Context[zmq.Socket[bytes]],
    endpoint: str,
    silence_ms: int,
    max_bytes: int = MAX_CONTROL_BYTES,
    key: Key | None = None,
) -> tuple[zmq.Socket[bytes], str]:
    """Return a bound ROUTER that reports unreachable peers, and its endpoint.

    Args:
        context: context of the socket.
        endpoint: ``tcp://host:port`` (port 0: any free port) or ``ipc://path``.
        silence_ms: time without an answer from its host after which a connection is
            dropped.
        max_bytes: limit of a message; a peer that sends a larger message is
            disconnected.
        key: the server's key pair; an access check decides which peers to admit. None
            admits every peer.
    """
    socket = context.socket(zmq.ROUTER)
    _set_control(socket, max_bytes)
    if key is not None:
        _serve(socket, key, CONTROL)
    socket.set(zmq.ROUTER_MANDATORY, 1)
    socket.set(zmq.RCVHWM, HEARD_QUEUE)
    socket.set(zmq.BACKLOG, BACKLOG)
    _give_up_hosts(socket, silence_ms)
    bind(socket, endpoint)
    return socket, _endpoint(socket)


def control_dealer(
    context: zmq.Context[zmq.Socket[bytes]],
    endpoint: str,
    key: Key | None,
    role: str,
    silence_ms: int = 10_000,
    max_bytes: int = -1,
) -> tuple[zmq.Socket[bytes], Handshakes]:
    """Return a DEALER that connects and reconnects until it is closed, and the observer
    of its handshakes. If the endpoint is a file, call ``follow`` each second.

    Args:
        context: context of the socket.
        endpoint: endpoint of the server.
        key: the key to show, which also holds the server's public key; None uses no
            encryption.
        role: role of the server.
        silence_ms: time without any traffic after which a connection is dropped.
        max_bytes: limit of a message; -1 for no limit.
    """
    socket = context.socket(zmq.DEALER)
    _set_control(socket, max_bytes)
    socket.set(zmq.RCVHWM, 0)
    socket.set(zmq.HEARTBEAT_IVL, min(HEARTBEAT_MS, max(100, silence_ms // 4)))
    socket.set(zmq.HEARTBEAT_TIMEOUT, silence_ms)
    socket.set(zmq.HEARTBEAT_TTL, silence_ms)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    socket.set(zmq.CONNECT_TIMEOUT, CONNECT_MS)
    handshakes = None
    try:
        if key is not None:
            _show(socket, *key.pair, key.server(role))
        handshakes = Handshakes(socket, endpoint, key)
        follow(socket, endpoint)
    except BaseException:
        if handshakes is not None:
            handshakes.close()
        socket.close(linger=0)
        raise
    return socket, handshakes


def follow(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Connect a DEALER to a server. Called again, connect it to the dispatcher that a
    file names now, instead of the former one.

    Args:
        socket: a socket that is connected by this function only.
        endpoint: endpoint of the server, or the file of a dispatcher.

    Raises:
        OSError, DataServiceError: as ``current_address``.
    """
    before = socket.get_string(zmq.LAST_ENDPOINT)
    if before and not endpoint.startswith(FILE_SCHEME):
        return
    address = current_address(endpoint)
    if address not in ("", before):
        if before:
            socket.disconnect(before)
        socket.connect(address)


def _serve(socket: zmq.Socket[bytes], key: Key, domain: str) -> None:
    """Make a socket encrypt, and ask the access check about each peer. Without an
    access check every peer is refused.
    """
    public, secret = key.pair
    socket.set(zmq.CURVE_SERVER, 1)
    socket.set(zmq.CURVE_PUBLICKEY, public)
    socket.set(zmq.CURVE_SECRETKEY, secret)
    _ask(socket, domain)


def _ask(socket: zmq.Socket[bytes], domain: str) -> None:
    socket.set_string(zmq.ZAP_DOMAIN, domain)
    socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)


def _show(socket: zmq.Socket[bytes], public: bytes, secret: bytes, server: bytes) -> None:
    """Make a socket encrypt its messages so that only the holder of the server's key
    can read them.
    """
    socket.set(zmq.CURVE_PUBLICKEY, public)
    socket.set(zmq.CURVE_SECRETKEY, secret)
    socket.set(zmq.CURVE_SERVERKEY, server)


def _set_control(socket: zmq.Socket[bytes], max_bytes: int) -> None:
    socket.set(zmq.LINGER, LINGER_MS)
    socket.set(zmq.SNDHWM, CONTROL_QUEUE)
    socket.set(zmq.MAXMSGSIZE, max_bytes)
    socket.set(zmq.IPV6, 1)
    socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)


def _give_up_hosts(socket: zmq.Socket[bytes], silence_ms: int) -> None:
    """Make the kernel end connections to hosts that do not answer, even while nothing
    is to be sent.
    """
    socket.set(zmq.TCP_MAXRT, silence_ms)
    socket.set(zmq.TCP_KEEPALIVE, 1)
    seconds = max(1, silence_ms // 4_000)
    socket.set(zmq.TCP_KEEPALIVE_IDLE, seconds)
    socket.set(zmq.TCP_KEEPALIVE_INTVL, seconds)
    socket.set(zmq.TCP_KEEPALIVE_CNT, 3)


def link_push(
    context: zmq.Context[zmq.Socket[bytes]],
    endpoints: Iterable[str],
    domain: str,
    key: Key | None = None,
    near: bool = False,
) -> tuple[zmq.Socket[bytes], str]:
    """Return a PUSH for a link, bound to the first free endpoint, and that endpoint.
    Only the link's client passes its ZAP domain.

    Args:
        context: context of the socket.
        endpoints: candidate endpoints, in order.
        domain: name of the link.
        key: key pair for encryption; None: the link asks for its password only.
        near: True if the client is on this host.

    Raises:
        OSError: none of the endpoints can be bound, or the process has no sockets left;
            the text says why.
    """
    try:
        socket = context.socket(zmq.PUSH)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"no socket is left: {error.strerror}") from None
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.SNDHWM, DATA_QUEUE)
    # Low: this socket is never read, so it would not notice either that the client
    # has closed its end.
    socket.set(zmq.RCVHWM, 1)
    socket.set(zmq.MAXMSGSIZE, MAX_GREETING_BYTES)
    socket.set(zmq.IPV6, 1)
    socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    if key is None:
        socket.set(zmq.PLAIN_SERVER, 1)
        _ask(socket, domain)
        # Not with a key: while a thread encrypts, the receiver lives on what the kernel
        # has buffered.
        if near:
            socket.set(zmq.SNDBUF, NEAR_SEND_BYTES)
    else:
        _serve(socket, key, domain)
    _give_up_hosts(socket, LINK_SILENCE_MS)
    reason = "no endpoint is given"
    for endpoint in endpoints:
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            reason = f"{endpoint}: {error.strerror}"
        else:
            return socket, _endpoint(socket)
    socket.close()
    raise OSError(errno.EADDRNOTAVAIL, f"no data socket can be bound ({reason})")


def link_pull(
    context: zmq.Context[zmq.Socket[bytes]],
    endpoint: str,
    user: str,
    secret: str,
    server: bytes | None = None,
) -> zmq.Socket[bytes]:
    """Return a PULL for a link, which never reconnects by itself. It receives the
    link's messages, and a notice at the end of its connection (see ``is_end``).

    A broken connection loses what was in its pipe without an error, so a broken link is
    replaced, never repaired. TCP detects an outage: its acknowledgements do not wait
    behind a large block, as the answers to ZeroMQ's heartbeats would.

    Args:
        context: context of the socket.
        endpoint: endpoint of the worker.
        user: name of the link.
        secret: a secret CURVE key if the worker has a key, else a password.
        server: the worker's public key; None uses no encryption.
    """
    socket = context.socket(zmq.PULL)
    socket.set(zmq.LINGER, 0)
    # No mark, since reading would stop at it (see ``HEARD_QUEUE``). The credit
    # granted bounds what is in flight.
    socket.set(zmq.RCVHWM, 0)
    socket.set(zmq.MAXMSGSIZE, MAX_DATA_BYTES)
    socket.set(zmq.IPV6, 1)
    socket.set(zmq.RECONNECT_IVL, -1)
    socket.set(zmq.CONNECT_TIMEOUT, CONNECT_MS)
    if server is None:
        socket.set_string(zmq.PLAIN_USERNAME, user)
        socket.set_string(zmq.PLAIN_PASSWORD, secret)
    else:
        _show(socket, zmq.curve_public(secret.encode()), secret.encode(), server)
    _give_up_hosts(socket, LINK_SILENCE_MS)
    ended = zmq.Event.DISCONNECTED | zmq.Event.CLOSED | zmq.Event.HANDSHAKE_FAILED_AUTH
    ended |= zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    try:
        # The socket reads its own monitor: a socket for that would take another two
        # file descriptors.
        notices = f"inproc://{user}-{id(socket)}"
        socket.monitor(notices, ended)
        socket.connect(notices)
        socket.connect(endpoint)
    except zmq.ZMQError:
        close_pull(socket)
        raise
    return socket


EVENT_BYTES = 6
"""Size of the first of two frames of a monitor's event."""


def is_end(frames: Sequence[zmq.Frame]) -> bool:
    """Return True if a message that a PULL of a link has received says that its
    connection has ended or failed. The worker cannot send such a message.
    """
    if len(frames) != 2 or len(frames[0]) != EVENT_BYTES:
        return False
    try:
        frames[0].get("Peer-Address")
    except zmq.ZMQError:  # of no connection
        return True
    return False


def close_pull(socket: zmq.Socket[bytes]) -> None:
    """Close a PULL and its monitor; an open monitor would keep the context from
    terminating.
    """
    socket.disable_monitor()
    socket.close()


def access_check(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """Return the socket on which libzmq asks whether a peer may connect (ZAP). Bind it
    before all other sockets.
    """
    socket = context.socket(zmq.REP)
    socket.set(zmq.LINGER, 0)
    socket.bind("inproc://zeromq.zap.01")
    return socket


def bind(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Bind a socket; raise an ``OSError`` that says why it failed and what to do."""
    try:
        check_room(f"a socket at {endpoint}", OF_BIND)
        socket.bind(endpoint.replace("tcp://localhost:", "tcp://127.0.0.1:"))
    except DescriptorShortageError:
        socket.close(linger=0)
        raise
    except zmq.ZMQError as error:
        socket.close(linger=0)
        reasons = {
            zmq.EADDRINUSE: "the port is in use; choose another, or 0 for any free one",
            errno.EACCES: "this port needs privileges; choose one above 1023",
            errno.ENODEV: "this machine has no such address",
            zmq.EADDRNOTAVAIL: "this machine has no such address",
        }
        reason = reasons.get(error.errno or 0, error.strerror)
        raise OSError(error.errno, f"cannot listen on {endpoint}: {reason}") from None


def _endpoint(socket: zmq.Socket[bytes]) -> str:
    return socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0")


_LAST = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)


def send_at_once(socket: zmq.Socket[bytes], frames: Sequence[bytes]) -> None:
    """Send a message without waiting. Unlike ``send_multipart``, combine the flags only
    once.

    Raises:
        zmq.ZMQError: the message cannot be sent now (``zmq.Again``), or not to this
            peer.
    """
    *before, last = frames
    for frame in before:
        socket.send(frame, _MORE)
    socket.send(last, _LAST)


def sender(frames: Sequence[zmq.Frame]) -> str:
    """Return the network address that a message came from; it identifies a peer that
    reconnects under ever new routing ids.
    """
    for frame in frames:
        with contextlib.suppress(zmq.ZMQError):
            return str(frame.get("Peer-Address"))
    return "an unknown address"
