"""Every ZeroMQ socket that zmqdata makes, with all of its options. No option is set
anywhere else.

High-water marks are the safety net only; what may be on its way is bounded by credit.
Heartbeats of ZMTP run in a C thread, so a connection stays up while Python code keeps
the interpreter busy, and goes down soon after its host dies. Only who connects to a
control socket sends them: libzmq (4.3.5: ``Assertion failed: !_io_error``) ends the
process when one is due on a connection that broke while its queue was full, or while
its socket was being closed and something came. Anybody may fill a server's queue, and
the blocks of a link come while it is closed. The kernel tells a server who is silent
(``connections``), and ends connections to hosts that are gone.
"""

from __future__ import annotations

import contextlib
import errno
import resource
from collections.abc import Iterable, Sequence

import zmq

from zmqdata.threads import available_cores
from zmqdata.transport.handshakes import Handshakes
from zmqdata.transport.keys import Key

HEARTBEAT_MS = 1_000
CONTROL_QUEUE = 1_000
HEARD_QUEUE = 1_000
"""Messages of one peer that a server has read and not looked at: what more there is
waits at the peer.

More than an honest peer ever has waiting: a heartbeat of its own that is read after its
connection broke ends our process, too, if the queue was full then.
"""
BACKLOG = 4_096
"""Connections that may wait to be taken, so that many that come at once do not keep
others out.
"""
MAX_CONTROL_BYTES = 16 << 20
MAX_CLIENT_BYTES = 2 << 20
"""What a client says to a worker: grants for thousands of tasks at most."""
MAX_GREETING_BYTES = 4 << 10
"""What is said to a socket on which nothing is said but who one is."""
DATA_QUEUE = 64
MAX_DATA_BYTES = 4 << 30
MAX_SOCKETS = 16_000
MOST_IO_THREADS = 4
"""Connections are spread among so many threads of libzmq, where there are cores for
them: to encrypt a gigabyte takes one for a second, and so does the end of ten thousand
connections at once: each looks through the deadlines of all.
"""
LEAST_IO_THREADS = 2
"""Those that wait for the one are not all, on one core, too."""
NEAR_SEND_BYTES = 256 << 10
"""What the kernel is asked to keep of what is sent to a client on the same host; it
takes twice as much. So little is still in the processor's nearest cache when the other
side reads it; of the megabytes that it allows itself, nothing is.
"""
LINGER_MS = 1_000
LINK_SILENCE_MS = 10_000
RECONNECT_MS = 50
RECONNECT_MAX_MS = 1_000
HANDSHAKE_MS = 5_000
"""Who connects and does not prove who it is keeps a connection for so long, and the
memory of what it has sent.
"""
CONTROL = "control"
"""The ZAP domain of control sockets; each link has one of its own."""
CONNECT_MS = 3_000
"""How long to wait for a connection before asking anew: TCP doubles its pauses, up to a
minute after a long cut.
"""


def new_context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context of its own for one shell, so that shells in one process do not share
    access checks.
    """
    _raise_file_limit()
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
    """A bound ROUTER that says when a peer is not connected, and the address it got.

    Args:
        endpoint: ``tcp://host:port`` (port 0: any free one) or ``ipc://path``.
        silence_ms: after how long without an answer of its host a connection is given
            up.
        max_bytes: the largest message that is accepted; a peer that sends more is
            disconnected.
        key: by which it is known; whom it lets in says an access check. None: anybody.
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
    """A DEALER that connects, and goes on trying to for as long as it lives, and who
    tells why it is not let in.

    Args:
        endpoint: the server's address.
        key: what it shows, and how it knows the server; None: neither.
        role: the server's.
        silence_ms: after how long without any sign of life a connection is given up.
        max_bytes: the largest message that is accepted; -1: any.
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
    if key is not None:
        _show(socket, *key.pair, key.server(role))
    handshakes = Handshakes(socket, endpoint, key)
    socket.connect(endpoint)
    return socket, handshakes


def _serve(socket: zmq.Socket[bytes], key: Key, domain: str) -> None:
    """Has a socket encrypt, and ask for each peer whether it is let in. Where nobody
    answers, nobody is.
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
    """Has a socket encrypt what it says, so that only the holder of the server's key
    can read it.
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
    """Has the kernel end connections to hosts that do not answer, whether there is
    something to send or not.
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
    """A PUSH for one link, bound to the first of the endpoints that is free; only its
    client passes the ZAP domain.

    Args:
        endpoints: where it may be bound.
        domain: the name of the link.
        key: by which it encrypts; None: it only asks for the link's secret.
        near: its client is on this host.

    Raises:
        OSError: none of the endpoints can be bound, or there are no sockets left; the
            text says why.
    """
    try:
        socket = context.socket(zmq.PUSH)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"no socket is left: {error.strerror}") from None
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.SNDHWM, DATA_QUEUE)
    socket.set(
        zmq.RCVHWM, 1
    )  # nobody ever reads what a client says here, nor that it has closed its end then
    socket.set(zmq.MAXMSGSIZE, MAX_GREETING_BYTES)
    socket.set(zmq.IPV6, 1)
    socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    if key is None:
        socket.set(zmq.PLAIN_SERVER, 1)
        _ask(socket, domain)
        if (
            near
        ):  # not where a thread encrypts: while it does, the other side has what the kernel keeps
            socket.set(zmq.SNDBUF, NEAR_SEND_BYTES)
    else:
        _serve(socket, key, domain)
    _give_up_hosts(socket, LINK_SILENCE_MS)
    reason = "there is none"
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
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """A PULL for one link, which never reconnects by itself, and a monitor that tells
    when its connection ends.

    What was in a pipe when it broke is lost without an error, so a broken link is
    replaced, never mended. A cut is noticed by TCP, whose acknowledgements do not wait
    behind a large block as an answer of ZeroMQ's heartbeat would.

    Args:
        endpoint: the worker's address.
        user: the name of the link.
        secret: a secret CURVE key where the worker has a key, else a password.
        server: the worker's public key; None: nothing is encrypted.
    """
    socket = context.socket(zmq.PULL)
    socket.set(zmq.LINGER, 0)
    # No mark, as reading would stop there: see ``HEARD_QUEUE``. What is on its way is
    # bounded by what was granted.
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
    monitor = socket.get_monitor_socket(ended)
    monitor.set(zmq.LINGER, 0)
    socket.connect(endpoint)
    return socket, monitor


def close_pull(socket: zmq.Socket[bytes]) -> None:
    """Closes a PULL with its monitor; an open monitor would keep the context from
    ending.
    """
    socket.disable_monitor()
    socket.close()


def access_check(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """The socket on which libzmq asks whether a peer may connect (ZAP); bind it before
    any other.
    """
    socket = context.socket(zmq.REP)
    socket.set(zmq.LINGER, 0)
    socket.bind("inproc://zeromq.zap.01")
    return socket


def bind(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Binds, or raises an ``OSError`` that says why it is not possible and what to
    do.
    """
    try:
        socket.bind(endpoint.replace("tcp://localhost:", "tcp://127.0.0.1:"))
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
    """Sends a message without waiting, as ``send_multipart`` does, which joins the
    flags anew for each frame.

    Raises:
        zmq.ZMQError: it cannot be sent now (``zmq.Again``), or to this peer.
    """
    *before, last = frames
    for frame in before:
        socket.send(frame, _MORE)
    socket.send(last, _LAST)


def sender(frames: Sequence[zmq.Frame]) -> str:
    """The network address that a message came from: what is left of a peer that
    reconnects under ever new names.
    """
    for frame in frames:
        with contextlib.suppress(zmq.ZMQError):
            return str(frame.get("Peer-Address"))
    return "an unknown address"
