"""Facts about peers that send invalid messages: the service serves all other peers as
if these were absent.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest
import zmq
from zmq.auth.thread import ThreadAuthenticator

from tests.foreign import ForeignContext
from tests.service.conftest import Service, wait_until
from zmqdata import Dataset, messages, wire
from zmqdata.blocks import BlockBuilder
from zmqdata.client.calls import status
from zmqdata.errors import DataLossError
from zmqdata.transport.keychoice import own_key

GARBAGE = [
    [b""],
    [wire.MAGIC],
    [wire.MAGIC, b""],
    [wire.MAGIC, b"\xc1"],
    [wire.MAGIC, b"\x81\xa4type\xa7Unknown"],
    [wire.MAGIC, wire.pack(messages.RequestStatus("r"))[1][:-1]],
    [wire.MAGIC, *[b"x"] * 50],
    [b"ZD9", wire.pack(messages.RequestStatus("r"))[1]],
    [b"GET / HTTP/1.1", b""],
    [wire.MAGIC, b"\x93" * 5000],
    [wire.MAGIC, wire.pack(messages.Grant("l", 0, ()))[1][:7]],
    [wire.MAGIC, b"\xdf\xff\xff\xff\xff"],
]


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """The context of a stranger's sockets."""
    context = ForeignContext()
    context.linger = 0
    yield context
    context.destroy(linger=0)


def stranger_with_key(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Return a connection that has the key of the cluster, but sends what no client
    would send.
    """
    socket = context.socket(zmq.DEALER)
    show_key(socket)
    socket.connect(endpoint)
    return socket


def show_key(socket: zmq.Socket[bytes]) -> None:
    key = own_key()
    socket.curve_publickey, socket.curve_secretkey = key.pair
    socket.curve_serverkey = key.server("worker")


def serve_with_key(socket: zmq.Socket[bytes]) -> int:
    """Bind a socket that shows the key of the cluster, and return its port."""
    socket.curve_publickey, socket.curve_secretkey = own_key().pair
    socket.curve_server = True
    return socket.bind_to_random_port("tcp://127.0.0.1")


def bound_sockets(service: Service) -> list[str]:
    return [service.target, service.workers[0].address]


@pytest.mark.parametrize("which", [0, 1])
def test_garbage_is_dropped_and_logged_once(
    service: Service,
    context: zmq.Context[zmq.Socket[bytes]],
    caplog: pytest.LogCaptureFixture,
    which: int,
) -> None:
    """The service drops garbage on a bound socket, logs it once per peer and kind, and
    goes on.
    """
    stranger = stranger_with_key(context, bound_sockets(service)[which])
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            for frames in GARBAGE:
                stranger.send_multipart(frames)
        ds = service.read(Dataset.range(1000))
        assert sorted(int(x) for x in ds) == list(range(1000))
    shell = [service.dispatcher._shell, service.workers[0]._shell][which]
    wait_until(lambda: shell.rejects.total >= 20 * len(GARBAGE), "all of it was counted")
    dropped = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert 1 <= len(dropped) == len(set(dropped)) <= len(GARBAGE)


def test_status_counts_what_was_dropped(
    service: Service, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """status() shows how many messages the service dropped, and why."""
    stranger = stranger_with_key(context, service.target)
    stranger.send_multipart([b"ZD8", b"x"])
    wait_until(lambda: status(service.target)["rejected"], "it is counted")
    assert "speaks protocol version 8" in str(status(service.target)["rejected"])


def test_records_of_garbage_stay_small(
    service: Service, context: zmq.Context[zmq.Socket[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    """Memory does not grow with the number of strangers or with the variety of their
    messages.
    """
    shell = service.dispatcher._shell
    assert shell is not None
    with caplog.at_level(logging.CRITICAL):
        for number in range(3000):
            shell.rejects.count(f"peer-{number}", "the dispatcher's socket", f"kind {number}: bad")
    assert len(shell.rejects.counts) <= 1001
    assert len(shell.rejects._logged) == 1000
    assert shell.rejects.total == 3000


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_not_zeromq_is_ignored(service: Service, which: int) -> None:
    """Bytes of another protocol than ZeroMQ's, and silent connections, do no harm."""
    host, port = bound_sockets(service)[which].removeprefix("tcp://").split(":")
    open_ones = [socket.create_connection((host, int(port))) for _ in range(20)]
    for number, one in enumerate(open_ones[:10]):
        one.sendall(bytes([number]) * 10_000)
    assert sorted(int(x) for x in service.read(Dataset.range(100))) == list(range(100))
    for one in open_ones:
        one.close()


@pytest.mark.parametrize("which", [0, 1])
def test_oversized_messages_are_refused(
    make_service: Callable[..., Service], context: zmq.Context[zmq.Socket[bytes]], which: int
) -> None:
    """A message over the limit of a socket ends the sender's connection, and the
    service keeps none of it.
    """
    service = make_service(max_message_bytes=1 << 20)
    stranger = context.socket(zmq.DEALER)
    stranger.set(zmq.RECONNECT_IVL, -1)
    show_key(stranger)
    monitor = stranger.get_monitor_socket(zmq.Event.DISCONNECTED)
    stranger.connect(bound_sockets(service)[which])
    stranger.send_multipart([wire.MAGIC, bytes(32 << 20)])
    assert monitor.poll(10_000), "the connection was not ended"
    stranger.disable_monitor()
    assert len(list(service.read(Dataset.range(100)))) == 100


def test_a_stranger_gets_nothing_from_a_data_socket(
    make_service: Callable[..., Service], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """A PULL without the link's secret gets no block, even with the cluster's key; the
    client misses none.
    """
    service = make_service(workers=1)
    it = iter(service.read(Dataset.range(100_000).map(lambda x: x), data_transfer_protocol="tcp"))
    found = [int(next(it))]
    shell = service.workers[0]._shell
    assert shell is not None
    (link,) = shell.links._links.values()
    thieves = []
    for show in (lambda thief: None, show_password, show_key):
        thief = context.socket(zmq.PULL)
        show(thief)
        thief.connect(link.endpoint)
        thieves.append(thief)
    wait_until(
        lambda: shell.rejects.counts.get("a data socket: its key is not admitted"),
        "the last one is refused",
    )
    found += [int(x) for x in it]
    assert found == list(range(100_000))
    assert not any(thief.poll(50) for thief in thieves)
    # ZeroMQ itself refuses connections that do not try a key.
    assert shell.rejects.counts["a data socket: its key is not admitted"] == 1


def show_password(socket: zmq.Socket[bytes]) -> None:
    socket.plain_username, socket.plain_password = b"me", b"guess"


class HostileWorker:
    """Registers as a worker, and sends clients the given messages.

    Args:
        target: the dispatcher.
        blocks: returns the messages for a link, as frames.
    """

    def __init__(self, target: str, blocks: Callable[[int], list[list[bytes]]]) -> None:
        self.context = zmq.Context()
        self.access = ThreadAuthenticator(self.context)
        self.access.start()
        self.blocks = blocks
        self.links = 0
        self.tasks: list[int] = []
        self.stopping = False
        self.control = self.context.socket(zmq.ROUTER)
        self.access.configure_curve("*", "*")
        port = serve_with_key(self.control)
        self.dispatcher = stranger_with_key(self.context, target)
        register = messages.RegisterWorker("evil", f"tcp://127.0.0.1:{port}", (), "3.11", "0", ())
        self.dispatcher.send_multipart(wire.pack(register))
        self.pushes: list[zmq.Socket[bytes]] = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        poller = zmq.Poller()
        poller.register(self.control, zmq.POLLIN)
        poller.register(self.dispatcher, zmq.POLLIN)
        while not self.stopping:
            ready = dict(poller.poll(50))
            if self.dispatcher in ready:
                message = wire.to_worker.control(self.dispatcher.recv_multipart())
                if isinstance(message, messages.HostTask):
                    self.tasks.append(message.definition.task)
            if self.control in ready:
                self.answer(*self.control.recv_multipart())
            self.dispatcher.send_multipart(
                wire.pack(messages.WorkerHeartbeat("evil", self.reports(), ()))
            )
        self.access.stop()
        self.context.destroy(linger=0)

    def reports(self) -> tuple[messages.TaskReport, ...]:
        return tuple(messages.TaskReport(task, 1, 0, None) for task in self.tasks)

    def answer(self, peer: bytes, *frames: bytes) -> None:
        message = wire.to_worker.control(frames)
        if isinstance(message, messages.OpenLink):
            self.links += 1
            push = self.context.socket(zmq.PUSH)
            port = serve_with_key(push)
            self.pushes.append(push)
            secret = zmq.curve_keypair()[1].decode()
            opened = messages.LinkOpened(message.link, f"tcp://127.0.0.1:{port}", secret)
            self.control.send_multipart([peer, *wire.pack(opened)])
        elif isinstance(message, messages.Grant) and self.tasks:
            for block in self.blocks(self.tasks[0]):
                self.pushes[-1].send_multipart(block)
            self.control.send_multipart([peer, b"garbage", b"on the control connection"])

    def stop(self) -> None:
        self.stopping = True
        self.thread.join(5)


def lying_block(task: int, **changes: int) -> list[bytes]:
    builder = BlockBuilder()
    for _ in range(4):
        builder.add(np.zeros(10))
    block = builder.build()
    header = messages.Block(1, task, 1, 0, 4, 0, block.nbytes, block.meta)
    return [wire.pack_header(msgspec.structs.replace(header, **changes)), *map(bytes, block.frames)]


@pytest.mark.parametrize(
    "blocks",
    [
        lambda task: [[b"garbage"]],
        pytest.param(
            lambda task: [lying_block(task, count=1_000_000)],
            marks=pytest.mark.full,  # tests/client/test_decoding.py tests the lies
        ),
    ],
    ids=["garbage", "lies"],
)
def test_a_hostile_worker_ends_in_an_error(
    make_service: Callable[..., Service], blocks: Callable[[int], list[list[bytes]]]
) -> None:
    """The client gives up a worker that sends only garbage with DataLossError, and
    neither hangs nor crashes.
    """
    service = make_service(workers=0)
    evil = HostileWorker(service.target, blocks)
    try:
        with pytest.raises(DataLossError, match="cannot be decoded"):
            next(iter(service.read(Dataset.range(10))))
        assert evil.links > 1
    finally:
        evil.stop()
