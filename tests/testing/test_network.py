"""Facts about the network that fails by seed."""

from __future__ import annotations

from typing import Any

from zmqdata.testing import Clock, Faults, SimulatedNetwork


class Wires:
    """A network with two nodes, and the messages that they received."""

    def __init__(self, seed: int = 1, **faults: Any) -> None:
        self.clock = Clock()
        self.network = SimulatedNetwork(self.clock, seed, Faults(**faults))
        self.got: list[Any] = []
        self.broken: list[str] = []
        for name in ("a", "b"):
            self.network.join(name, lambda sender, message: self.got.append(message))

    def send(self, count: int) -> list[Any]:
        for number in range(count):
            self.network.send("a", "b", number)
        self.clock.advance(60.0)
        return self.got

    def link(self) -> None:
        self.network.bind("link", "a")
        self.network.connect("link", "b", self.got.append, self.broken.append)


def test_a_calm_network_keeps_order() -> None:
    """A network without faults delivers each message once, in order."""
    assert Wires().send(100) == list(range(100))


def test_a_network_is_steady_while_nothing_changes_and_nothing_is_lost() -> None:
    """A network is steady from the moment of its last change on. One that loses
    messages never is.
    """
    wires = Wires(drop=0.5)
    wires.clock.advance(1.0)
    assert not wires.network.is_steady(0.5)
    wires.network.faults = Faults()
    assert [wires.network.is_steady(since) for since in (0.0, 0.5, 1.0)] == [False, False, True]
    assert wires.network.was_lossy


def test_faults_lose_repeat_and_reorder() -> None:
    """Each fault does what its name says, and no more."""
    assert 20 < len(Wires(drop=0.5).send(100)) < 80
    repeated = Wires(repeat=0.5).send(100)
    assert 120 < len(repeated) < 180
    assert set(repeated) == set(range(100))
    reordered = Wires(reorder=0.5).send(100)
    assert reordered != sorted(reordered) == list(range(100))


def test_a_seed_decides_everything() -> None:
    """The same seed has the same faults, and another seed has others."""
    faults = {"drop": 0.3, "repeat": 0.3, "reorder": 0.3}
    assert Wires(1, **faults).send(50) == Wires(1, **faults).send(50) != Wires(2, **faults).send(50)


def test_a_cut_loses_or_holds() -> None:
    """A cut lets nothing through, and the network delivers what it held when the cut
    heals.
    """
    for hold, arrives in ((0.0, []), (1.0, [0, 1, 2])):
        wires = Wires(hold=hold)
        wires.network.sever("a", "b", both_ways=False)
        assert wires.send(3) == []
        assert not wires.network.connected("b", "a")
        wires.network.heal("a", "b")
        wires.clock.advance(1.0)
        assert wires.got == arrives
        assert wires.network.connected("a", "b")


def test_a_short_cut_is_not_noticed() -> None:
    """A node notices a lost connection only after a while, and a connection to a
    missing peer at once.
    """
    wires = Wires()
    wires.network.sever("a", "b")
    assert wires.network.connected("a", "b")
    assert not wires.network.connected("a", "nobody")
    wires.network.send("a", "nobody", "lost")


def test_a_link_brings_everything_in_order() -> None:
    """A message pushed before the client connects waits for it."""
    wires = Wires()
    wires.network.bind("link", "a")
    wires.network.push("link", 0)
    wires.network.connect("link", "b", wires.got.append, wires.broken.append)
    for number in range(1, 50):
        wires.network.push("link", number)
    wires.clock.advance(1.0)
    assert (wires.got, wires.broken) == (list(range(50)), [])


def test_a_broken_link_loses_its_tail_and_tells_the_client_later() -> None:
    """A broken link delivers nothing more, and only the client learns of the break."""
    for ending in ("reset", "unbind", "leave", "cut", "cut while idle"):
        wires = Wires(break_link=1.0 if ending == "reset" else 0.0)
        wires.link()
        if ending == "unbind":
            wires.network.push("link", 1)
            wires.network.unbind("link")
            wires.network.unbind("link")
        elif ending == "leave":
            wires.network.push("link", 1)
            wires.network.leave("a")
        elif ending.startswith("cut"):
            wires.network.sever("b", "a")
        if ending != "cut while idle":
            wires.network.push("link", 2)
        assert wires.broken == []
        wires.clock.advance(10.0)
        assert (wires.got, len(wires.broken)) == ([], 1), ending


def test_a_client_that_disconnects_hears_nothing() -> None:
    """A client that ends its own link gets no notice, also if it ends it twice."""
    wires = Wires()
    wires.link()
    wires.network.push("link", 1)
    wires.network.disconnect("link")
    wires.network.disconnect("link")
    wires.clock.advance(10.0)
    assert (wires.got, wires.broken) == ([], [])


def test_connecting_to_nobody_breaks() -> None:
    """A link that is gone, or that has its client already, ends for a client that comes
    too late.
    """
    wires = Wires()
    wires.link()
    wires.network.connect("link", "b", wires.got.append, wires.broken.append)
    wires.network.connect("nowhere", "b", wires.got.append, wires.broken.append)
    wires.clock.advance(2.0)
    assert wires.broken == ["no worker is bound there"] * 2
