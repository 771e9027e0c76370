"""Tests of the socket on which a server receives all peers, on real connections."""

from __future__ import annotations

import socket as plain
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest
import zmq

from benchmarks.attackers import GREETING
from zmqdata.testing.cluster import await_condition
from zmqdata.transport import sockets
from zmqdata.transport.connections import LITTLE
from zmqdata.transport.entrance import (
    MOST_UNHEARD,
    MOST_UNHEARD_BYTES,
    PATIENCE,
    TELL_EVERY,
    Entrance,
    Guests,
)
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects
from zmqdata.transport.tcp import connections_of

LARGE = 15 << 20
HOST = "127.0.0.1"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts what a connection has carried"
)


class House:
    """An entrance with its peers, whose loop and clock the test drives by hand."""

    def __init__(self, stack: ExitStack) -> None:
        self.context = stack.enter_context(sockets.new_context())
        self.peers = stack.enter_context(ExitStack())
        self.loop = Loop("house", lambda: None)
        stack.callback(self.loop.stop)
        self.heard: list[tuple[bytes, list[bytes]]] = []
        self.entrance = Entrance(
            self.context,
            self.loop,
            f"tcp://{HOST}:0",
            10_000,
            16 << 20,
            None,
            Rejects(),
            self._hear,
        )
        stack.callback(self.entrance.close)
        self.loop.start()

    def _hear(self) -> bool:
        try:
            peer, frames = self.entrance.receive()
        except zmq.Again:
            return False
        self.heard.append((peer, [frame.bytes for frame in frames]))
        return True

    def look(self, now: float) -> None:
        """Run a tick in the loop's thread."""
        self.call(lambda: self.entrance.look(now))

    def call(self, what: Callable[[], object]) -> None:
        """Run a call in the loop's thread, and raise its exception."""
        done: list[BaseException | None] = []

        def run() -> None:
            try:
                what()
            except BaseException as error:
                done.append(error)
            else:
                done.append(None)

        self.loop.post(run)
        await_condition(lambda: done, what="a call")
        if done[0] is not None:
            raise done[0]

    def join(self, name: bytes = b"") -> zmq.Socket[bytes]:
        """Return a connected peer."""
        dealer = self.peers.enter_context(closing(self.context.socket(zmq.DEALER)))
        dealer.linger, dealer.sndhwm = 0, 0
        if name:
            dealer.routing_id = name
        dealer.reconnect_ivl = 20
        monitor = dealer.get_monitor_socket(int(zmq.Event.HANDSHAKE_SUCCEEDED))
        dealer.connect(self.entrance.bound)
        assert monitor.poll(10_000)
        dealer.disable_monitor()
        monitor.close(linger=0)
        return dealer

    @property
    def port(self) -> int:
        return int(self.entrance.bound.rpartition(":")[2])

    @property
    def connected(self) -> int:
        found = connections_of(self.port)
        return len(found or {})

    @property
    def received(self) -> int:
        found = connections_of(self.port)
        return sum(told.received for told in (found or {}).values())

    def await_guests(self, count: int, nbytes: int) -> None:
        """Wait until ``count`` peers are accepted and have sent ``nbytes``. The
        sockets' own threads accept and receive.
        """
        guests = self.entrance._guests
        await_condition(
            lambda: guests._let_in >= count and self.received >= nbytes,
            what="all who have connected",
        )

    def says(self, dealer: zmq.Socket[bytes], what: bytes) -> None:
        """Send a message until the server receives it, as a closed connection loses
        messages.
        """

        def is_heard() -> bool:
            dealer.send(what)
            return any(frames == [what] for _, frames in self.heard)

        await_condition(is_heard, what="a word")


@pytest.fixture
def house() -> Iterator[House]:
    with ExitStack() as stack:
        made = House(stack)
        yield made
        made.loop.stop()
        assert made.loop.join(10)


def test_names_that_others_have_make_the_socket_anew(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Duplicate names force a new socket, and honest peers reconnect by themselves. The
    server forgets the messages of the old connections.
    """
    honest, first = house.join(), house.join(b"x")
    house.says(honest, b"hello")
    house.says(first, b"it is me")
    for _ in range(MOST_UNHEARD):
        house.join(b"x").send(bytes(LITTLE))
    house.await_guests(MOST_UNHEARD + 2, MOST_UNHEARD * LITTLE)
    now = time.monotonic()
    for seconds in range(int(PATIENCE)):
        house.look(now + seconds)
    assert "anew" not in caplog.text
    house.look(now + PATIENCE)
    assert f"{MOST_UNHEARD} connections were admitted and never heard" in caplog.text
    house.says(honest, b"still there")
    for seconds in range(30):
        house.look(now + PATIENCE + 1 + seconds)
    assert caplog.text.count("anew") == 1


def test_few_that_say_much_are_too_many(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """A few connections with many unread bytes force a new socket at once, to bound
    memory.
    """
    first = house.join(b"x")
    house.says(first, b"it is me")
    other = house.join(b"x")
    for _ in range(MOST_UNHEARD_BYTES // LARGE + 2):
        other.send(bytes(LARGE))
    connections = house.entrance._connections

    def has_come() -> bool:
        present = connections.unheard(0.0)
        return present is not None and present.nbytes >= MOST_UNHEARD_BYTES

    await_condition(has_come, 30, "all to come")
    house.look(time.monotonic())
    assert "Listening anew" in caplog.text


def test_who_leaves_without_a_word_counts(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Closed connections whose messages were never read count as unheard."""
    first = house.join(b"x")
    house.says(first, b"it is me")
    for _ in range(MOST_UNHEARD):
        with closing(house.join(b"x")) as dealer:
            dealer.send(b"never read")
    await_condition(lambda: house.connected == 1, what="them to be gone")
    now = time.monotonic()
    house.look(now)
    house.look(now + PATIENCE)
    assert "anew" in caplog.text


def test_strangers_hide_nobody(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Connections without a handshake do not offset unheard peers, however many
    connect.
    """
    house.says(house.join(b"x"), b"it is me")
    for _ in range(MOST_UNHEARD):
        house.join(b"x").send(bytes(LITTLE))
    house.await_guests(MOST_UNHEARD + 1, MOST_UNHEARD * LITTLE)
    now = time.monotonic()
    for second in range(int(PATIENCE) + 1):
        with ExitStack() as strangers:
            for _ in range(2 * MOST_UNHEARD):
                strangers.enter_context(plain.create_connection((HOST, house.port)))
            house.look(now + second)
    assert "anew" in caplog.text


def test_a_large_first_message_has_its_time(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """A slow first message does not count as unheard while its bytes keep arriving."""
    with ExitStack() as slow:
        said = recorded(house.entrance.bound)
        them = [
            slow.enter_context(plain.create_connection((HOST, house.port)))
            for _ in range(2 * MOST_UNHEARD)
        ]
        for one in them:
            one.sendall(said + b"\x02" + (8 << 20).to_bytes(8, "big"))
        now = time.monotonic()
        for second in range(3 * int(PATIENCE)):
            for one in them:
                one.sendall(bytes(LITTLE))
            said_by_now = len(them) * LITTLE * (second + 1)
            await_condition(lambda least=said_by_now: house.received >= least, what="what they say")
            house.look(now + second)
    assert house.entrance._guests._let_in == 2 * MOST_UNHEARD
    assert "anew" not in caplog.text


def recorded(endpoint: str) -> bytes:
    """Return the bytes of a greeting and a handshake without a key."""
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
    return GREETING.replace(b"CURVE", b"NULL\0") + b"\x04" + bytes([len(ready)]) + ready


def test_who_connects_again_counts_as_reachable(house: House) -> None:
    """A peer that reconnects after a socket reset remains reachable."""
    honest = house.join()
    house.says(honest, b"hello")
    peer = house.heard[-1][0]
    house.call(lambda: house.entrance._begin_anew(time.monotonic(), "a test"))
    house.says(honest, b"here again")
    with pytest.raises(zmq.Again):
        house.call(lambda: house.entrance.send(peer, [b"to its former name"]))
    house.call(lambda: house.entrance.send(house.heard[-1][0], [b"welcome back"]))
    assert honest.recv() == b"welcome back"


def test_a_port_that_somebody_else_has_is_waited_for(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """The server retries and logs a port held by another process, and then recovers."""
    honest = house.join()
    house.says(honest, b"hello")
    thief = plain.socket()
    thief.setsockopt(plain.SOL_SOCKET, plain.SO_REUSEADDR, 1)

    def steal() -> None:
        house.entrance.close(linger=0)
        await_condition(lambda: bound(thief, house.port), what="the port")
        house.entrance._begin_anew(time.monotonic(), "a test")
        house.entrance._tries = TELL_EVERY - 1

    house.call(steal)
    await_condition(lambda: "still trying" in caplog.text, what="a word of it")
    thief.close()
    house.says(honest, b"here again")


def bound(one: plain.socket, port: int) -> bool:
    with suppress(OSError):
        one.bind((HOST, port))
        one.listen()
        return True
    return False


def test_who_has_nothing_to_say_may_stay(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Any number of connections may send only heartbeats; the server still receives
    them.
    """
    quiet = [house.join() for _ in range(2 * MOST_UNHEARD)]
    now = time.monotonic()
    for seconds in range(30):
        house.look(now + seconds)
    assert "anew" not in caplog.text
    house.says(quiet[-1], b"at last")


def test_who_comes_and_goes_may_if_he_is_heard(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Peers that connect, send and leave never force a new socket, however often they
    do.
    """
    for number in range(2 * MOST_UNHEARD):
        with closing(house.join()) as dealer:
            house.says(dealer, b"%d" % number)
    now = time.monotonic()
    for seconds in range(30):
        house.look(now + seconds)
    assert "anew" not in caplog.text


def test_where_the_kernel_tells_nothing_all_stays(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without kernel statistics the server keeps its socket, as quiet peers look
    unheard.
    """
    monkeypatch.setattr("zmqdata.transport.connections.connections_of", lambda port: None)
    kept = [house.join() for _ in range(2 * MOST_UNHEARD)]
    now = time.monotonic()
    for seconds in range(30):
        house.look(now + seconds)
    assert "anew" not in caplog.text
    assert kept


def test_a_name_counts_once() -> None:
    """Repeated messages under a single name count as a single heard peer."""
    guests = Guests()
    for _ in range(3):
        guests.let_in()
        guests.heard(b"a")
    assert [guests.unheard(now) for now in (0.0, PATIENCE)] == [0, 2]


def test_those_who_have_just_come_have_time() -> None:
    """Only peers accepted before the patience interval count, however many connect."""
    guests = Guests()
    found = []
    for second in range(30):
        guests.let_in()
        if second >= PATIENCE:
            guests.heard(b"%d" % second)
        found.append(guests.unheard(float(second)))
    assert set(found) == {0}
    assert guests.unheard(90.0) == PATIENCE
    assert not guests.are_heard
