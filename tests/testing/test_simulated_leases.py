"""Facts about leases in simulated worlds: a client that was silent for too long
delivers nothing that others were given.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.full import seeds
from tests.kit.runner import SimulatedPipeline
from tests.kit.world import DISPATCHER, SimulatedClient, World
from zmqdata.core.client import events as e
from zmqdata.core.dispatcher.decider import DispatcherTimes

TIMEOUT = 5.0
PIPELINE = SimulatedPipeline(splits=1500, most=1)


def two_readers(seed: int, mode: str = "DYNAMIC") -> tuple[World, SimulatedClient, SimulatedClient]:
    """Return a world in which two training loops read slowly, and have begun."""
    times = DispatcherTimes(client_timeout=TIMEOUT)
    world = World(
        seed, mode, PIPELINE, times=times, shards=2 if mode == "DATA" else 0, journalled=True
    )
    for _ in range(2):
        world.add_worker()
    first, second = (world.add_client(limit=50) for _ in range(2))
    for client in (first, second):
        client.pace, client.gulp = 0.05, 2
    world.run_until(lambda: min(first.taken, second.taken) > 20)
    world.clock.advance(2.0)
    return world, first, second


def finish(world: World) -> None:
    """Let all clients read to the end, and check that each element came once."""
    world.run_until(lambda: world.all_done)
    world.clock.advance(8.0)
    world.add_client()
    world.run_until(lambda: world.all_done)
    world.clock.advance(3.0)
    world.laws.check_end()


def last_taken(world: World, client: SimulatedClient, seconds: float) -> float:
    """Return the time at which a client last took an element, in the given seconds of
    simulated time.
    """
    until, taken, when = world.clock.now + seconds, client.taken, world.clock.now
    while world.clock.now < until:
        world.clock.run_next()
        if client.taken > taken:
            taken, when = client.taken, world.clock.now
    return when


@pytest.mark.parametrize("seed", seeds(4, core=1))
@pytest.mark.parametrize("mode", ["DYNAMIC", "DATA"])
def test_a_frozen_client_joins_again(seed: int, mode: str) -> None:
    """Another client gets the elements of a frozen client, which after waking delivers
    none of them and reads on under another name.
    """
    world, frozen, _ = two_readers(seed, mode)
    frozen.freeze(3 * TIMEOUT)
    world.clock.advance(2 * TIMEOUT)
    assert frozen.name in world.laws.gone
    before = frozen.taken
    finish(world)
    assert frozen.core.client == f"{frozen.name}.1"
    assert frozen.taken > before


@pytest.mark.parametrize("mode", ["DYNAMIC", "OFF"])
def test_a_client_speaks_as_often_as_its_lease_needs(mode: str) -> None:
    """A client with a longer interval of its own renews its lease in time. The
    dispatcher hears it often, too, if its lease never ends.
    """
    world, *clients = two_readers(0, mode)
    spoken = {client.name: client.core.lease.speak(world.clock.now) for client in clients}
    for client in clients:
        client.core.profile = replace(client.core.profile, heartbeat=3600.0)
        client.stalled_until = world.clock.now + 20 * TIMEOUT
    world.laws.on_client.append(
        lambda name, core, event, commands: (
            ended.append(name) if not core.lease.holds(world.clock.now) else None
        )
    )
    ended = list[str]()
    world.clock.advance(10 * TIMEOUT)
    assert (ended, world.laws.gone) == ([], set())
    assert all(client.core.lease.speak(0.0) - spoken[client.name] >= 20 for client in clients)


@pytest.mark.parametrize("seed", seeds(4, core=1))
def test_a_client_whose_answers_are_lost_stops_in_time(seed: int) -> None:
    """The dispatcher hears a client whose answers are lost, so it does not give it up;
    the client waits after one lease, and continues once it hears.
    """
    world, deaf, _ = two_readers(seed)
    deaf.stalled_until = world.clock.now + 1.0
    world.network.sever(DISPATCHER, deaf.name, both_ways=False)
    began = world.clock.now
    assert began + 2.0 < last_taken(world, deaf, 20.0) < began + TIMEOUT
    assert deaf.name not in world.laws.gone
    before = deaf.taken
    world.network.heal(DISPATCHER, deaf.name)
    world.run_until(lambda: deaf.taken > before)
    assert deaf.core.client == deaf.name
    finish(world)


@pytest.mark.parametrize("rate", [0.92, 1.0, 1.1])
def test_a_client_that_is_not_heard_stops_in_time(rate: float) -> None:
    """A client that is not heard delivers nothing more before the dispatcher gives it
    up, though its clock is slow or fast.
    """
    world, mute, _ = two_readers(7)
    mute.rate = rate
    world.clock.advance(3.0)
    world.network.sever(mute.name, DISPATCHER, both_ways=False)
    world.run_until(lambda: mute.name in world.laws.gone)
    taken = mute.taken
    world.clock.advance(10.0)
    assert mute.taken == taken
    world.network.heal(mute.name, DISPATCHER)
    finish(world)
    assert mute.core.client == f"{mute.name}.1"


@pytest.mark.parametrize("seed", seeds(4, core=1))
def test_a_client_that_was_given_up_before_it_heard_anything_joins_again(seed: int) -> None:
    """A client that was let in without knowing reads nothing until it hears, and then
    reads under another name.
    """
    world, _, _ = two_readers(seed)
    deaf = world.add_client(limit=50)
    world.network.sever(DISPATCHER, deaf.name, both_ways=False)
    world.run_until(lambda: deaf.name in world.laws.state.client_iteration)
    world.network.sever(deaf.name, DISPATCHER, both_ways=False)
    world.run_until(lambda: deaf.name in world.laws.gone)
    assert not deaf.taken
    world.network.heal(deaf.name, DISPATCHER)
    finish(world)
    assert (deaf.core.client, deaf.outcome) == (f"{deaf.name}.1", "end")
    assert deaf.taken


@pytest.mark.parametrize("seed", seeds(4, core=1))
def test_the_only_client_reads_on_and_another_may_join(seed: int) -> None:
    """The only client reads on for long without the dispatcher, and a second client
    does not cost it the elements that it holds.
    """
    world = World(
        seed, pipeline=PIPELINE, times=DispatcherTimes(client_timeout=TIMEOUT), journalled=True
    )
    world.add_worker()
    only = world.add_client(limit=50)
    only.pace, only.gulp = 0.1, 1
    world.run_until(lambda: only.taken > 20)
    world.clock.advance(1.5)
    world.network.sever(only.name, DISPATCHER)
    before = only.taken
    world.clock.advance(6 * TIMEOUT)
    assert only.taken > before + 100
    other = world.add_client(limit=50)
    world.clock.advance(2 * TIMEOUT)
    assert other.taken
    assert only.name not in world.laws.gone
    world.network.heal(only.name, DISPATCHER)
    finish(world)
    assert only.core.client == only.name


def two_consumers(seed: int) -> tuple[World, SimulatedClient, SimulatedClient]:
    """Return a world in which two numbered consumers read slowly, and have begun."""
    times = DispatcherTimes(client_timeout=TIMEOUT)
    world = World(
        seed, "DYNAMIC", PIPELINE, times=times, journalled=True, num_consumers=2, finite="drop"
    )
    for _ in range(2):
        world.add_worker()
    first, second = (world.add_client(consumer=index) for index in range(2))
    for client in (first, second):
        client.pace, client.gulp = 0.05, 2
    world.run_until(lambda: min(first.taken, second.taken) > 20)
    return world, first, second


@pytest.mark.parametrize("seed", seeds(6, core=1))
@pytest.mark.parametrize("restart", [False, True])
def test_a_frozen_consumer_gets_its_seat_back(seed: int, restart: bool) -> None:
    """A frozen consumer that wakes continues with the step after its loop's last step,
    and so do the others.
    """
    world, frozen, other = two_consumers(seed)
    frozen.freeze(3 * TIMEOUT)
    world.clock.advance(2 * TIMEOUT)
    assert frozen.name in world.laws.gone
    if restart:
        world.restart_dispatcher(0.5)
    before = frozen.taken
    world.run_until(lambda: world.all_done)
    world.clock.advance(3.0)
    world.steps.check_end(world.pipeline.names())
    assert (frozen.outcome, other.outcome, frozen.core.client) == ("end", "end", f"{frozen.name}.1")
    assert before < frozen.taken == other.taken == len(world.pipeline.names()) // 2


@pytest.mark.parametrize("seed", seeds(6, core=1))
def test_a_frozen_consumer_that_was_replaced_ends(seed: int) -> None:
    """A frozen consumer whose successor has read in its place delivers nothing after
    waking, and its loop gets an error.
    """
    world, frozen, other = two_consumers(seed)
    frozen.freeze(3 * TIMEOUT)
    world.clock.advance(2 * TIMEOUT)
    before, successor = frozen.taken, world.add_client(consumer=0)
    world.run_until(lambda: world.all_done)
    world.clock.advance(3.0)
    world.steps.check_end(world.pipeline.names())
    assert [one.outcome for one in (frozen, other, successor)] == [
        "FailedPreconditionError",
        "end",
        "end",
    ]
    assert frozen.taken == before


def test_a_new_dispatcher_waits_for_one_lease() -> None:
    """A new dispatcher gives up no earlier client before a lease has passed, and tells
    all clients their lease again.
    """
    world, first, second = two_readers(3)
    world.network.sever(first.name, DISPATCHER)
    world.clock.advance(TIMEOUT - 1.0)
    world.restart_dispatcher(0.5)
    back = world.clock.now + 0.5
    world.run_until(lambda: first.name in world.laws.gone)
    assert world.clock.now >= back + TIMEOUT
    world.network.heal(first.name, DISPATCHER)
    finish(world)
    assert second.core.client == second.name
    opened = [
        what
        for _, who, what in world.laws.story
        if who == first.name and isinstance(what, e.DropQueued)
    ]
    assert len(opened) == 1


@pytest.mark.parametrize("seed", seeds(4, core=1))
def test_a_dispatcher_that_was_cut_off_gives_nobody_up(seed: int) -> None:
    """A dispatcher that was cut off keeps both clients when its cable is back; they
    keep their elements, and nothing comes twice.
    """
    world, first, second = two_readers(seed)
    others = [first.name, second.name, *(worker.name for worker in world.workers)]
    for other in others:
        world.network.sever(other, DISPATCHER)
    world.clock.advance(3 * TIMEOUT)
    for other in others:
        world.network.heal(other, DISPATCHER)
    finish(world)
    assert (first.core.client, second.core.client) == (first.name, second.name)


@pytest.mark.parametrize("seed", seeds(4, core=1))
@pytest.mark.parametrize("num_tasks", [None, 3])
def test_a_consumer_that_was_cut_off_takes_its_place_again(
    seed: int, num_tasks: int | None
) -> None:
    """A consumer that was given up while it was cut off continues after the last step
    that its own loop has taken.
    """
    times = DispatcherTimes(client_timeout=TIMEOUT)
    options = {"num_consumers": 2, "finite": "drop", "num_tasks": num_tasks}
    world = World(seed, pipeline=PIPELINE, times=times, journalled=True, **options)
    for _ in range(2):
        world.add_worker()
    first, second = (world.add_client(limit=50, consumer=consumer) for consumer in range(2))
    for client in (first, second):
        client.pace, client.gulp = 0.02, 2
    world.run_until(lambda: min(first.taken, second.taken) > 100)
    world.network.sever(first.name, DISPATCHER, both_ways=False)
    world.run_until(lambda: first.name in world.laws.gone)
    world.clock.advance(1.0)
    world.network.heal(first.name, DISPATCHER)
    world.run_until(lambda: world.all_done)
    assert (first.outcome, second.outcome) == ("end", "end")
    assert first.core.client == f"{first.name}.1"
    world.clock.advance(3.0)
    world.steps.check_end(PIPELINE.names())


@pytest.mark.parametrize("seed", seeds(4, core=1))
def test_who_reads_alone_beside_a_dispatcher_that_was_cut_off_keeps_what_it_has(seed: int) -> None:
    """The first client keeps its elements when another joins the moment that the cable
    is back, before the first could speak.
    """
    world, first, second = two_readers(seed)
    world.network.sever(first.name, DISPATCHER)
    world.run_until(lambda: first.name in world.laws.gone)
    world.clock.advance(2.0)
    assert second.core.lease.alone
    others = [second.name, *(worker.name for worker in world.workers)]
    for other in others:
        world.network.sever(other, DISPATCHER)
    before = second.taken
    world.clock.advance(2 * TIMEOUT)
    assert second.taken > before
    world.network.heal(first.name, DISPATCHER)
    world.run_until(lambda: first.core.client != first.name and first.core.opened)
    for other in others:
        world.network.heal(other, DISPATCHER)
    finish(world)
    assert second.core.client == second.name
