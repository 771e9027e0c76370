"""Tests of ``zmqdata.worker.speeds``: what runners learn of the links to their
clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from msgspec import structs

from tests.definitions import changed, define
from zmqdata import messages as m
from zmqdata.blocks import UNKNOWN_SPEED
from zmqdata.core.worker import events as e
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.transport.tcp import Sent
from zmqdata.worker.links import LinkSockets
from zmqdata.worker.speeds import Speeds

Key = tuple[int, int]


@dataclass
class FakeCompression:
    """The settings that a runner receives, and the text that it shows."""

    speed: float = -1.0
    links: int = -1
    is_wanted: bool = True
    shown: str = ""
    chosen: dict[int, object] = field(default_factory=dict)


@dataclass
class FakeRunner:
    """A runner, reduced to the parts that concern links."""

    compression: FakeCompression = field(default_factory=FakeCompression)
    takes_turns: bool = False


class FakeSockets:
    """Sockets with counts that a test sets."""

    def __init__(self) -> None:
        self.far: dict[str, str] = {}
        self.counts: dict[str, Sent] = {}

    def sent(self) -> dict[str, Sent]:
        return self.counts


class Place:
    """A worker with tasks that clients read, inspected once a second."""

    def __init__(self, *tasks: int, **changes: Any) -> None:
        self.core = WorkerCore(WorkerProfile("w", "tcp://w"))
        self.sockets = FakeSockets()
        self.speeds = Speeds(self.core, cast("LinkSockets", self.sockets))
        self.now = 0.0
        self.runners = {(task, 1): FakeRunner() for task in tasks}
        for task in tasks:
            definition = define(task, 1, 7, "dataset", "digest", "DYNAMIC", 9, None, ((),), ())
            self.hear(e.DISPATCHER, m.HostTask(changed(definition, **changes)))

    def hear(self, peer: e.Peer, message: m.Message) -> list[object]:
        return self.core.handle(self.now, e.Received(peer, message))

    def read(
        self,
        client: str,
        *tasks: int,
        far: bool = True,
        links: int = 1,
        consumer: int | None = None,
        decompresses: bool = True,
    ) -> None:
        """Let a client read tasks over a link, and tell the worker how many links the
        client reads.
        """
        name = f"{client}-1"
        ask = m.OpenLink(client, name, "", 0, "", ("tcp",), m.Reader(consumer))
        self.hear(client.encode(), structs.replace(ask, decompresses=decompresses))
        self.core.handle(self.now, e.LinkBound(name, "tcp://w:1", "secret"))
        grants = tuple(m.StreamGrant(task, 1, 8, 1000, 0) for task in tasks)
        self.hear(client.encode(), m.Grant(name, 0, grants, links))
        if far:
            self.sockets.far[name] = f"host of {client}"
            self.sockets.counts[name] = Sent(0, 0.0)

    def pass_by(self, **rates: float) -> list[e.Compressing]:
        """Let a second pass in which the links are always busy."""
        self.now += 1.0
        for client, rate in rates.items():
            nbytes, busy = self.sockets.counts[f"{client}-1"]
            self.sockets.counts[f"{client}-1"] = Sent(nbytes + int(rate), busy + 1.0)
        return list(self.speeds.look(self.now, cast("Any", self.runners)))

    def told(self, task: int) -> float:
        return self.runners[task, 1].compression.speed


def test_nothing_is_compressed_while_no_reader_decompresses() -> None:
    """A task compresses as long as any of its readers has a codec, or it has no
    reader.
    """
    place = Place(1)
    compression = place.runners[1, 1].compression
    place.pass_by()
    assert compression.is_wanted
    place.read("k", 1, decompresses=False)
    place.pass_by()
    assert not compression.is_wanted
    place.read("l", 1)
    place.pass_by()
    assert compression.is_wanted


def test_a_far_reader_is_as_fast_as_its_link() -> None:
    """A far reader counts as on a fast network before any data are sent, and has the
    measured speed afterwards.
    """
    place = Place(1)
    place.read("k", 1)
    place.pass_by()
    assert place.told(1) == UNKNOWN_SPEED
    place.pass_by(k=1e8)
    assert place.told(1) == 1e8


def test_the_next_link_to_a_host_is_as_fast_as_the_one_before() -> None:
    """A returning reader has the last measured speed of its host until a new
    measurement, not the speed of a fast network.
    """
    place = Place(1)
    place.read("k", 1)
    place.pass_by()
    place.pass_by(k=1e8)
    place.sockets.far.clear()
    place.sockets.counts.clear()
    place.pass_by()
    place.sockets.far["k-1"] = "host of k"
    place.pass_by()
    assert place.told(1) == 1e8


def test_compressed_blocks_make_no_link_slower() -> None:
    """While a task compresses, its link counts as at least as fast as before."""
    place = Place(1)
    place.read("k", 1)
    place.pass_by()
    place.pass_by(k=1e8)
    place.runners[1, 1].compression.chosen = {0: "lz4"}
    place.pass_by(k=5e7)
    assert place.told(1) == 1e8
    place.pass_by(k=2e8)
    assert place.told(1) == 1.5e8


def test_near_readers_and_none_have_no_speed() -> None:
    """A reader on the same host makes the speed infinite, even if another reader is on
    another host.
    """
    place = Place(1, 2)
    place.read("k", 1, far=False)
    place.read("f", 1)
    place.pass_by()
    assert [place.told(1), place.told(2)] == [math.inf, math.inf]


def test_tasks_on_one_link_share_it() -> None:
    """Two tasks that a client reads have half of its link each. A task that has ended
    takes no share.
    """
    place = Place(1, 2)
    place.read("k", 1, 2)
    place.pass_by()
    place.pass_by(k=1e8)
    assert [place.told(1), place.told(2)] == [5e7, 5e7]
    place.core.handle(place.now, e.Exhausted(2, 1, 0, 0))
    place.pass_by(k=1e8)
    assert place.told(1) == 1e8


def test_tasks_that_take_turns_have_the_whole_link() -> None:
    """Tasks that a single thread makes and compresses in turn are also measured in
    turn.
    """
    place = Place(1, 2)
    for runner in place.runners.values():
        runner.takes_turns = True
    place.read("k", 1, 2)
    place.pass_by()
    place.pass_by(k=1e8)
    assert [place.told(1), place.told(2)] == [1e8, 1e8]


@pytest.mark.parametrize(
    ("changes", "speed"), [({}, 4e8), ({"num_consumers": 2}, 2e8), ({"cache": True}, 3e8)], ids=str
)
def test_several_readers_count_as_the_job_wants_it(changes: dict[str, Any], speed: float) -> None:
    """The speed is the sum for first come, first served, twice the slowest for equal
    parts, and the fastest if each reader gets everything.
    """
    place = Place(1, **changes)
    place.read("a", 1, consumer=0)
    place.read("b", 1, consumer=1)
    place.pass_by()
    place.pass_by(a=1e8, b=3e8)
    assert place.told(1) == speed


@pytest.mark.parametrize(("said", "counts"), [(5, 5), (0, 1), (-3, 1)])
def test_the_clients_thread_is_shared(said: int, counts: int) -> None:
    """The runner learns how many links a client reads. Impossible numbers count as a
    single link.
    """
    place = Place(1)
    place.read("k", 1, links=said)
    place.pass_by()
    assert place.runners[1, 1].compression.links == counts


def test_files_have_no_link() -> None:
    """A task that is saved receives no speed."""
    place = Place(1, save_path="/folder")
    place.pass_by()
    assert place.told(1) == -1.0


def test_changes_of_what_is_shown_are_told_once() -> None:
    """A runner's choice of compression reaches the core and the report to the
    dispatcher.
    """
    place = Place(1)
    place.runners[1, 1].compression.shown = "lz4, 2x smaller"
    [event] = place.pass_by()
    place.core.handle(place.now, event)
    assert event == e.Compressing(1, 1, "lz4, 2x smaller")
    assert place.core.tasks[1].report(place.now).compressed == "lz4, 2x smaller"
    assert place.pass_by() == []
    assert place.core.handle(place.now, e.Compressing(9, 1, "of a task that is gone")) == []
