"""Facts about the end of an iteration in simulated worlds: the last reader has had what
dead readers held.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.full import seeds
from tests.kit.endlaws import EndLaws
from tests.kit.runner import SimulatedPipeline
from tests.kit.world import SimulatedClient, World
from zmqdata import messages as m
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.core.events import LogLine
from zmqdata.testing.network import Faults

TIMEOUT = 5.0
PIPELINE = SimulatedPipeline(splits=300, most=1)


def make_world(seed: int, mode: str) -> World:
    times = DispatcherTimes(client_timeout=TIMEOUT)
    world = World(
        seed, mode, PIPELINE, times=times, shards=2 if mode == "DATA" else 0, journalled=True
    )
    for _ in range(2):
        world.add_worker()
    return world


def add_reader(world: World, gulp: int = 5) -> SimulatedClient:
    client = world.add_client(limit=40)
    client.pace, client.gulp = 0.02, gulp
    return client


@pytest.mark.parametrize("seed", seeds(20, core=3))
@pytest.mark.parametrize("mode", ["DYNAMIC", "DATA"])
def test_who_ends_last_has_what_a_dead_reader_held(seed: int, mode: str) -> None:
    """A reader dies before or after the other reader has nothing left, and the other
    gets what it held; no third must come.
    """
    world = make_world(seed, mode)
    first, second = add_reader(world), add_reader(world, gulp=1)
    goal = world.random.randrange(100, 299)
    world.run_until(lambda: first.taken + second.taken >= goal)
    world.random.choice([first, second]).die()
    died = world.clock.now
    world.run_until(lambda: world.all_done)
    if world.clock.now - died < TIMEOUT:
        # The death is unknown when the other reader ends: the next reader gets what is
        # left.
        add_reader(world)
        world.run_until(lambda: world.all_done)
    world.clock.advance(1.0)
    world.laws.check_end()


@pytest.mark.parametrize("seed", seeds(20, core=3))
@pytest.mark.parametrize("mode", ["DYNAMIC", "DATA"])
def test_a_successor_waits_for_what_its_predecessor_held(seed: int, mode: str) -> None:
    """A training loop that dies near the end and restarts at once reads the rest within
    the timeout.
    """
    world = make_world(seed, mode)
    first = add_reader(world)
    goal = world.random.randrange(1, 299)
    world.run_until(lambda: first.taken >= goal)
    first.die()
    world.clock.advance(world.random.choice([0.1, 1.0, 4.0]))
    add_reader(world)
    died = world.clock.now
    world.run_until(lambda: world.all_done)
    assert world.clock.now - died < 2 * TIMEOUT + 10.0
    world.clock.advance(1.0)
    world.laws.check_end()


@pytest.mark.parametrize("seed", range(4))
def test_who_ends_last_has_what_was_beside_a_dead_reader(seed: int) -> None:
    """A reader dies with the worker that only it reads. The other reader, which soon
    has nothing left beside it, gets what both had.
    """
    times = DispatcherTimes(client_timeout=TIMEOUT)
    world = World(seed, pipeline=PIPELINE, times=times, journalled=True, target_workers="LOCAL")
    workers = [world.add_worker() for _ in range(2)]
    world.clock.advance(1.0)
    first, second = (world.add_client(local_workers=(one.name,)) for one in workers)
    first.pace, second.pace = 0.001, 1.0
    world.run_until(lambda: first.core.reading.waiting > 0)
    first.stalled_until = awake = world.clock.now + 20.0
    world.run_until(lambda: first.core.task_list.closed and world.clock.now > awake - 0.1)
    second.die()
    workers[1].die()
    world.run_until(lambda: world.all_done)
    assert first.outcome == "end"
    world.clock.advance(1.0)
    world.laws.check_end()


@pytest.mark.parametrize("seed", seeds(10, core=3))
def test_nobody_waits_for_a_slow_loop(seed: int) -> None:
    """A reader with nothing left ends within a second, though another reader is busy
    with the elements that it holds.
    """
    world = make_world(seed, "DYNAMIC")
    fast, slow = add_reader(world), add_reader(world)
    world.run_until(lambda: slow.taken > 5)
    slow.stalled_until = world.clock.now + 1000.0
    world.run_until(lambda: fast.core.ending.has_begun or fast.outcome is not None)
    began = world.clock.now
    world.run_until(lambda: fast.outcome is not None)
    assert world.clock.now - began < 1.0
    assert slow.outcome is None


@pytest.mark.parametrize("seed", seeds(20, core=3))
@pytest.mark.parametrize("job", ["numbered", "shared", "alone"])
@pytest.mark.parametrize("leave", [False, True])
def test_a_dispatcher_that_has_closed_for_good_is_not_waited_for(
    seed: int, job: str, leave: bool
) -> None:
    """Readers go on with what their workers give, and end soon after their last
    element: in silence if they have everything, with a warning if others held elements,
    and with an error if elements are missing here.
    """
    numbered = {"num_consumers": 2, "finite": "drop"} if job == "numbered" else {}
    world = World(seed, pipeline=PIPELINE, journalled=True, **numbered)
    laws, said = EndLaws(world), list[str]()
    world.laws.on_client.append(
        lambda name, core, event, commands: said.extend(
            command.text for command in commands if isinstance(command, LogLine)
        )
    )
    workers = [world.add_worker() for _ in range(2)]
    readers = [
        world.add_client(limit=40, consumer=index if numbered else None)
        for index in range(1 if job == "alone" else 2)
    ]
    for reader in readers:
        reader.pace, reader.gulp = 0.02, 1
    goal = world.random.randrange(1, 280)
    world.run_until(lambda: sum(reader.taken for reader in readers) >= goal)
    world.dispatcher.close()
    if leave:
        for worker in workers:
            worker.die()
    closed = world.clock.now
    readers[0].stalled_until = awake = closed + seed % 3 * 10.0  # at most beyond its lease
    world.run_until(lambda: world.all_done)
    assert world.clock.now - max(awake, world.progress) < 2.0
    world.clock.advance(0.5)
    assert all(reader.closed for reader in readers)
    ended = [reader for reader in readers if reader.outcome == "end"]
    assert {reader.outcome for reader in readers} <= {"end", "UnavailableError"}
    if job == "numbered":
        assert [reader for reader in readers if reader.taken == 150] == ended
        assert not any("dispatcher" in text for text in said)
    elif job == "alone":
        assert [reader for reader in readers if reader.taken == 300] == ended
    elif len(ended) == 2:
        assert sum(reader.taken for reader in readers) == 300
        assert all(laws.records[reader.name].warned for reader in readers)


def test_a_reader_that_is_not_let_in_hears_that_the_dispatcher_has_closed() -> None:
    """A rank that waits for the states of other ranks ends at once with an error."""

    def ranks() -> World:
        world = World(0, pipeline=PIPELINE, journalled=True, num_consumers=2, finite="drop")
        world.add_worker()
        return world

    world = ranks()
    readers = [world.add_client(limit=40, consumer=index) for index in range(2)]
    world.run_until(lambda: all(one.taken and one.core.standing.is_whole for one in readers))
    state = m.encode_checkpoint(readers[0].core.standing.checkpoint(readers[0].taken))
    world = ranks()
    reader = world.add_client(consumer=0, resume=state)
    world.run_until(lambda: bool(reader.core.notices.awaited))
    world.dispatcher.close()
    world.clock.advance(2.0)
    assert (reader.outcome, reader.taken) == ("UnavailableError", 0)


HOP = 0.01
"""Seconds that each message takes in the worlds that count messages."""


def hops_to_the_end(seed: int, readers: int, **job: Any) -> int:
    """Return the number of messages, one after the other, between the moment at which a
    reader has nothing left and its end. The last reader is slow and reads on.
    """
    world = World(seed, pipeline=PIPELINE, faults=Faults(delay=(HOP, HOP)), **job)
    world.add_worker()
    world.clock.advance(1.0)
    clients = [world.add_client() for _ in range(readers)]
    for client in clients:
        client.pace = 0.02 if client is clients[0] else 20.0
    core, since = clients[0].core, None
    while not core.finished:
        world.clock.run_next()
        if not core.links.done:
            since = None
        elif since is None:
            since = world.clock.now
    return 0 if since is None else round((world.clock.now - since) / HOP)


@pytest.mark.parametrize(
    ("readers", "job", "hops"),
    [
        (1, {}, 2),
        (1, {"anonymous": True}, 0),
        (2, {}, 4),
        (3, {"anonymous": True}, 4),
        (2, {"mode": "OFF"}, 4),
        (1, {"num_consumers": 1, "num_tasks": 2, "finite": "drop"}, 0),
    ],
)
@pytest.mark.parametrize("seed", seeds(5, core=1))
def test_an_end_takes_few_messages(seed: int, readers: int, job: dict[str, Any], hops: int) -> None:
    """A lone reader of a named job asks once, and a reader with an heir waits for four
    messages, however slow the loop of the heir is.
    """
    assert hops_to_the_end(seed, readers, **job) <= hops


def test_what_a_journal_that_was_set_back_does_not_know_comes_again() -> None:
    """Elements of a reader that is dead, and whose coming the journal has lost, are
    owed to the next reader. The laws allow that they come twice.
    """
    times = DispatcherTimes(client_timeout=TIMEOUT)
    world = World(1, pipeline=PIPELINE, times=times, journalled=True)
    world.add_worker()
    first = world.add_client()
    first.pace, first.gulp = 0.05, 1
    iterations, disk = world.laws.state.iterations, world.disk
    world.run_until(lambda: any(one.ended for one in iterations.values()))
    assert disk is not None
    former, second = disk.content, world.add_client()
    second.pace, second.gulp = 0.05, 1
    world.run_until(lambda: second.taken >= 5)
    first.die()
    second.die()
    world.restart_dispatcher(0.1)
    disk.set_back(former)
    third = world.add_client()
    world.run_until(lambda: third.outcome is not None)
    assert third.outcome == "end"
    assert first.taken + third.taken >= len(PIPELINE.names())
    world.laws.check_end()
