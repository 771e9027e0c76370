"""Facts about whole clusters in a single thread: they keep their promises through every
fault that a seed brings.
"""

from __future__ import annotations

import math
import os
import random
import time

import pytest

from tests.full import full, seeds
from tests.kit.checks import LawBroken
from tests.kit.kinds import COORDINATED, COORDINATED_POISON, PLAIN, POISON
from tests.kit.runner import SimulatedPipeline, SimulatedRunner
from tests.kit.scenario import Scenario
from tests.kit.world import World
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.core.dispatcher.state.tasks import Task
from zmqdata.core.lineage import MOST_STATES
from zmqdata.testing import CALM, Faults

FAMILIES = 60
WORLDS = 5
FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))


def test_a_thousand_elements_reach_three_clients(record_property: pytest.RecordProperty) -> None:
    """Five workers bring 1,000 elements to three training loops, each of them once."""
    began = time.perf_counter()
    world = World(seed=1, pipeline=SimulatedPipeline(splits=667))
    for _ in range(5):
        world.add_worker()
    clients = [world.add_client() for _ in range(3)]
    world.run_until(lambda: world.all_done)
    world.clock.advance(2.0)
    world.laws.check_end()
    assert [client.outcome for client in clients] == ["end"] * 3
    assert sum(client.taken for client in clients) == len(world.pipeline.names()) == 1000
    record_property("seconds", round(time.perf_counter() - began, 3))
    record_property("simulated_seconds", round(world.clock.now, 3))


@pytest.mark.parametrize("family", seeds(FAMILIES, core=1))
def test_whatever_goes_wrong_the_laws_hold(family: int) -> None:
    """Deaths, cuts, joins, stalls and lost, late and repeated messages leave every
    iteration complete and ended.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        Scenario(seed, PLAIN).run()


@pytest.mark.parametrize("family", seeds(20, core=1))
def test_poison_is_left_out_whatever_else_goes_wrong(family: int) -> None:
    """The dispatcher finds and skips elements that kill their worker among all other
    faults; the others come once.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        Scenario(seed, POISON).run()


@pytest.mark.parametrize("seed", [90471, 90527, 90564])
def test_worlds_with_poison_that_broke_a_law_once(seed: int) -> None:
    """Worlds in which a rule for trials of suspects once was wrong keep all laws."""
    Scenario(seed, POISON).run()


def test_each_element_that_is_found_to_kill_is_progress() -> None:
    """A world may bring no element for longer than its patience, as long as one fatal
    element after another is found. Then it must bring one.
    """
    fatal = SimulatedPipeline(splits=20, most=1, kills=1)
    world = World(1, pipeline=fatal, on_poison="skip")
    world.add_worker()
    client = world.add_client()
    world.run_until(lambda: world.all_done, patience=20.0)
    assert (client.outcome, client.taken) == ("end", 0)
    assert world.clock.now > 40.0
    world.add_client().stalled_until = math.inf
    with pytest.raises(LawBroken, match="for 20 s"):
        world.run_until(lambda: world.all_done, patience=20.0)


@pytest.mark.parametrize("family", seeds(40, core=1))
def test_consumers_stay_in_step_whatever_goes_wrong(family: int) -> None:
    """Killed workers and consumers, second readers and a bad network leave every
    consumer with the same steps.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        Scenario(seed, COORDINATED).run()


@pytest.mark.parametrize("family", seeds(10, core=1))
def test_poison_is_left_out_of_every_round(family: int) -> None:
    """The dispatcher finds and skips poison also among numbered consumers and copies,
    and all keep the same steps.
    """
    for seed in range(FIRST + family * 3, FIRST + (family + 1) * 3):
        Scenario(seed, COORDINATED_POISON).run()


def test_a_thousand_rounds_reach_four_consumers() -> None:
    """Four consumers read three workers in turn, and each consumer gets a quarter of
    the elements. Fewer than four are missing, whatever the number of tasks.
    """
    world = World(3, pipeline=SimulatedPipeline(splits=2667), num_consumers=4, finite="drop")
    for _ in range(3):
        world.add_worker()
    consumers = [world.add_client(consumer=index) for index in range(4)]
    world.run_until(lambda: world.all_done)
    world.clock.advance(2.0)
    world.steps.check_end(world.pipeline.names())
    assert [client.outcome for client in consumers] == ["end"] * 4
    assert {client.taken for client in consumers} == {len(world.pipeline.names()) // 4}


def test_those_who_wait_for_a_dead_consumer_end_with_an_error() -> None:
    """Consumers that wait for a dead consumer get the same error after the timeout."""
    world = World(
        11,
        pipeline=SimulatedPipeline(splits=3000),
        num_consumers=3,
        finite="drop",
        consumer_timeout=30.0,
    )
    world.add_worker(buffer_bytes=2000)
    consumers = [world.add_client(consumer=index) for index in range(3)]
    world.run_until(lambda: consumers[0].taken > 10)
    consumers[1].die()
    world.run_until(lambda: world.all_done)
    assert [client.outcome for client in consumers] == [
        "UnavailableError",
        "killed",
        "UnavailableError",
    ]


@pytest.mark.parametrize("goodbye", [True, False])
def test_nobody_waits_for_a_consumer_that_was_to_the_end(goodbye: bool) -> None:
    """A new worker with little memory makes the task again, without waiting for a
    consumer at the end that it never knew; the other gets there too.
    """
    pipeline = SimulatedPipeline(splits=8, most=1, unit=1000)
    world = World(12, pipeline=pipeline, num_consumers=2, finite="drop", consumer_timeout=30.0)
    worker = world.add_worker()
    dead, fast = (world.add_client(consumer=index) for index in range(2))
    dead.stalled_until = fast.stalled_until = 6.0
    world.clock.advance(2.0)
    world.network.sever(fast.name, "dispatcher")
    worker.die(), dead.die()
    world.add_worker(buffer_bytes=2000)
    world.run_until(lambda: fast.outcome == "end")
    if goodbye:
        world.network.heal(fast.name, "dispatcher")
    successor = world.add_client(consumer=0)
    successor.stalled_until = 60.0
    world.run_until(lambda: world.all_done)
    assert (successor.outcome, successor.taken) == ("end", fast.taken)


@pytest.mark.parametrize("away", [3.0, 100.0])
@pytest.mark.parametrize("is_cut_off", [True, False])
def test_a_successor_of_a_consumer_that_ended_gets_nothing(is_cut_off: bool, away: float) -> None:
    """Consumers end while the dispatcher is away, or while it does not reach one and
    gives it up. Once it is back, the iteration is finished, and a successor gets
    nothing.
    """
    pipeline = SimulatedPipeline(splits=200, most=1, unit=1)
    world = World(0, pipeline=pipeline, journalled=True, num_consumers=2, finite="drop")
    world.add_worker()
    first, other = (world.add_client(consumer=index) for index in range(2))
    first.pace, other.pace = 0.02, 0.2 if is_cut_off else 0.02
    first.gulp = other.gulp = 1
    world.run_until(lambda: first.taken >= 90)
    if is_cut_off:
        world.network.sever(first.name, "dispatcher")
        world.clock.advance(away)
        world.network.heal(first.name, "dispatcher")
    else:
        world.restart_dispatcher(away)
    world.run_until(lambda: world.all_done)
    world.clock.advance(away + 5.0)
    [iteration] = world.laws.state.iterations.values()
    assert ([first.taken, other.taken], iteration.finished) == ([100, 100], True)
    successor = world.add_client(consumer=0)
    world.run_until(lambda: world.all_done)
    assert (successor.outcome, successor.taken) == ("end", 0)


@pytest.mark.parametrize("seed", seeds(5, core=1))
def test_clients_of_a_dispatcher_that_forgot_them_end_with_an_error(seed: int) -> None:
    """Clients of a dispatcher that restarts without a journal end within seconds, and
    the next clients read everything anew.
    """
    world = World(seed, pipeline=SimulatedPipeline(splits=1000))
    for _ in range(3):
        world.add_worker()
    clients = [world.add_client() for _ in range(2)]
    world.run_until(lambda: all(client.core.opened for client in clients))
    assert sum(client.taken for client in clients) < len(world.pipeline.names()), (
        "they lack something"
    )
    world.restart_dispatcher()
    world.run_until(lambda: world.all_done)
    assert [client.outcome for client in clients] == ["UnavailableError"] * 2
    fresh = world.add_client()
    world.run_until(lambda: world.all_done)
    world.clock.advance(5.0)
    assert (fresh.outcome, fresh.taken) == ("end", len(world.pipeline.names()))
    world.laws.check_end()


@pytest.mark.parametrize("mode", ["DYNAMIC", "DATA"])
def test_a_dispatcher_with_a_journal_goes_on(mode: str) -> None:
    """Ten deaths of the dispatcher lose no element, repeat none, and restart no
    task.
    """
    world = World(
        3, mode, SimulatedPipeline(splits=400), shards=2 if mode == "DATA" else 0, journalled=True
    )
    for _ in range(2):
        world.add_worker()
    world.clock.advance(0.5)
    clients = [world.add_client() for _ in range(2)]
    for death in range(1, 11):
        world.run_until(lambda goal=death * 50: sum(client.taken for client in clients) > goal)  # type: ignore[misc]
        world.run_until(lambda: world.dispatcher.alive)
        world.restart_dispatcher(seconds=0.2)
    world.run_until(lambda: world.all_done)
    world.clock.advance(5.0)
    world.laws.check_end()
    assert [client.outcome for client in clients] == ["end"] * 2
    assert sum(client.taken for client in clients) == len(world.pipeline.names())
    assert {task.attempt for task in world.laws.state.tasks.values()} == {1}
    assert world.dispatcher.core.state.life == 11


@pytest.mark.parametrize("splits", [500, full(2000)])
def test_what_was_not_synced_was_told_to_nobody(splits: int) -> None:
    """A dispatcher that dies in the middle of its writes, again and again, contradicts
    nothing that it has sent.
    """
    world = World(11, pipeline=SimulatedPipeline(splits=splits), journalled=True)
    for _ in range(3):
        world.add_worker()
    client = world.add_client()
    draw, unsynced = random.Random(11), 0
    while client.outcome is None:
        world.clock.advance(draw.uniform(0.0, 0.3))
        assert world.disk is not None
        unsynced += not world.disk.idle
        world.restart_dispatcher()
    world.clock.advance(5.0)
    world.laws.check_end()
    assert client.taken == len(world.pipeline.names())
    assert unsynced > 10


@pytest.mark.parametrize("splits", [2000, full(4000)])
def test_a_long_journal_becomes_a_snapshot(splits: int) -> None:
    """The journal of a long job does not outgrow the state that lives."""
    world = World(12, pipeline=SimulatedPipeline(splits=splits), journalled=True)
    world.add_worker()
    client = world.add_client()
    world.run_until(lambda: client.outcome is not None)
    assert world.disk is not None
    assert len(world.disk.content) < 10 * splits


@pytest.mark.parametrize("seed", seeds(3, core=1))
def test_a_stuck_worker_keeps_only_what_it_has_begun(seed: int) -> None:
    """Idle workers make the splits that others leased and did not begin, each split in
    one ledger.
    """
    world = World(seed, pipeline=SimulatedPipeline(splits=400, most=1))
    for _ in range(2):
        world.add_worker()
    world.add_client()
    tasks = world.laws.state.tasks

    def has_many(task: Task) -> bool:
        return any(split.size >= 30 for split in task.ledger[0].entries[-1:])

    world.run_until(lambda: any(map(has_many, tasks.values())))
    task = next(filter(has_many, tasks.values()))
    slow = next(worker for worker in world.workers if worker.name == task.worker)
    leased = world.laws.state.iterations[task.iteration].tally.splits[task.task]
    slow.runners[task.task, 1].pace = 5.0
    world.run_until(lambda: world.all_done)
    world.clock.advance(2.0)
    world.laws.check_end()
    assert task.cuts
    assert task.total is not None
    assert task.total < leased


@pytest.mark.parametrize("family", seeds(8, core=1))
def test_splits_that_wander_are_read_once(family: int) -> None:
    """Each split ends in one ledger while workers turn slow and fast, they and the
    dispatcher die, and messages are lost.
    """
    cuts = 0
    for seed in range(FIRST + family * 6, FIRST + (family + 1) * 6):
        cuts += wander(seed)
    assert cuts > 5


def wander(seed: int) -> int:
    """Have such a world read to its end. Return how often the dispatcher took splits
    back.
    """
    draw = random.Random(f"{seed}/wander")
    pipeline = SimulatedPipeline(
        splits=draw.choice([30, 60, 200]), repetitions=draw.choice([2, 6]), most=2
    )
    faults = Faults(
        drop=draw.choice([0.0, 0.1]),
        repeat=draw.choice([0.0, 0.2]),
        reorder=draw.choice([0.0, 0.2]),
    )
    world = World(seed, pipeline=pipeline, faults=faults, journalled=True)
    for _ in range(draw.randint(2, 5)):
        world.add_worker()
    world.add_client()
    lives, restarts = draw.choice([0, 0, 1, 2]), draw.choice([0, 1, 4])

    def stir() -> None:
        nonlocal lives, restarts
        alive = [worker for worker in world.workers if worker.alive]
        worker = draw.choice(alive)
        for runner in worker.runners.values():
            runner.pace = draw.choice([0.001, 0.001, 4.0])
        if lives and draw.random() < 0.1:
            lives -= 1
            worker.die()
            world.add_worker()
        if restarts and draw.random() < 0.1:
            restarts -= 1
            world.restart_dispatcher(draw.choice([0.0, 0.3]))
        if not world.all_done:
            world.clock.after(draw.uniform(0.0, 0.4), stir)

    stir()
    world.run_until(lambda: world.all_done)
    world.network.faults = CALM
    world.clock.advance(5.0)
    world.laws.check_end()
    told = [what for _, _, what in world.laws.story if isinstance(what, e.Commit)]
    return sum(isinstance(what.update, u.CutLedgerUpdate) for what in told)


@pytest.mark.parametrize("seed", seeds(6, core=1))
@pytest.mark.parametrize("mode", ["DYNAMIC", full("DATA")])
def test_a_long_task_goes_on_where_it_was(seed: int, mode: str) -> None:
    """A worker that dies late costs about a second of work, and what its task needs
    stays small meanwhile.
    """
    world = World(seed, mode, SimulatedPipeline(splits=3000, most=1), shards=int(mode == "DATA"))
    first, client = world.add_worker(buffer_bytes=2000), world.add_client(limit=30)
    count = len(world.pipeline.names())
    world.run_until(lambda: bool(first.runners))
    (runner,) = first.runners.values()
    runner.pace = 0.02  # so that the whole task takes about ten seconds
    world.run_until(lambda: client.taken > 0.9 * count)
    (task,) = world.laws.state.tasks.values()
    assert len(task.states) <= MOST_STATES
    assert not any(task.delivered.covers(0, state.number) for state in task.states[1:])
    if mode == "DYNAMIC":
        assert len(task.ledger[0].entries) < 10
    first.die()
    second = world.add_worker()
    runners: list[SimulatedRunner] = []
    world.run_until(lambda: bool(runners.extend(second.runners.values()) or world.all_done))
    world.clock.advance(2.0)
    world.laws.check_end()
    assert runners[-1].made < count - runner.made + 0.2 * count


def test_every_copy_is_read_in_full_when_sharding_is_off() -> None:
    """Three workers each give all elements in mode OFF, and together they reach the two
    training loops.
    """
    world = World(2, "OFF", SimulatedPipeline(splits=50))
    for _ in range(3):
        world.add_worker()
    world.clock.advance(0.5)
    clients = [world.add_client() for _ in range(2)]
    world.run_until(lambda: world.all_done)
    world.laws.check_end()
    assert sum(client.taken for client in clients) == 3 * len(world.pipeline.names())


@pytest.mark.parametrize("seed", range(5))
def test_the_dispatcher_hears_that_a_task_waits_for_its_readers(seed: int) -> None:
    """A simulated task that has used its room has handed over all that it made, as a
    real one does. Its worker then reports that it waits for its readers.
    """
    world = World(seed, pipeline=SimulatedPipeline(splits=2000))
    worker = world.add_worker(buffer_bytes=2000)
    client = world.add_client()
    client.stalled_until = math.inf
    world.clock.advance(60.0)
    (runner,) = worker.runners.values()
    (report,) = world.dispatcher.core.hosting.facts[worker.name].reports.values()
    assert report.waits
    assert report.produced == runner.made


def test_a_worker_that_joins_gets_work() -> None:
    """A worker that joins during an iteration makes a share of its elements."""
    world = World(4, pipeline=SimulatedPipeline(splits=2000, most=1))
    world.add_worker(buffer_bytes=2000)
    client = world.add_client()
    world.run_until(lambda: client.taken > 50)
    late = world.add_worker()
    world.run_until(lambda: world.all_done)
    assert any(task.worker == late.name and task.total for task in world.laws.state.tasks.values())


def test_what_a_dead_client_was_handed_and_did_not_report_is_made_again() -> None:
    """A client that dies before its first report costs a new attempt of its task, and
    no element.
    """
    world = World(5, pipeline=SimulatedPipeline(splits=60))
    world.add_worker()
    first = world.add_client()
    world.run_until(lambda: first.taken >= 10)
    first.die()
    world.clock.advance(20.0)
    second = world.add_client()
    world.run_until(lambda: world.all_done)
    world.clock.advance(5.0)
    world.laws.check_end()
    assert second.taken == len(world.pipeline.names())
    assert [task.attempt for task in world.laws.state.tasks.values()] == [2]


def test_an_anonymous_job_leaves_with_its_client() -> None:
    """Nothing remains of an anonymous job in the dispatcher and the workers once its
    client is gone.
    """
    world = World(6, pipeline=SimulatedPipeline(splits=30), anonymous=True)
    worker = world.add_worker()
    world.add_client()
    world.run_until(lambda: world.all_done)
    world.clock.advance(5.0)
    world.laws.check_empty(world.dispatcher.core, {worker.name: worker.core})


@pytest.mark.parametrize("anonymous", [True, False])
def test_little_is_left_of_a_client_that_died_alone(anonymous: bool) -> None:
    """An anonymous job ends about a minute after its only client has died, and a named
    job after it was unused for long.
    """
    world = World(8, times=DispatcherTimes(gc_timeout=200.0), anonymous=anonymous)
    worker, client = world.add_worker(), world.add_client()
    world.run_until(lambda: client.taken > 10)
    client.die()
    world.clock.advance(80.0 if anonymous else 210.0)
    world.laws.check_empty(world.dispatcher.core, {worker.name: worker.core})


def test_a_client_that_has_lost_its_dispatcher_reads_on() -> None:
    """Workers keep the only client of an anonymous job while it reads on without the
    dispatcher.
    """
    world = World(9, pipeline=SimulatedPipeline(splits=200, most=1), anonymous=True)
    world.add_worker()
    client = world.add_client()
    world.run_until(lambda: client.taken > 10)
    world.network.sever(client.name, "dispatcher")
    client.stalled_until = world.clock.now + 200.0
    world.clock.advance(150.0)
    world.network.heal(client.name, "dispatcher")
    world.run_until(lambda: world.all_done)
    assert (client.outcome, client.taken) == ("end", len(world.pipeline.names()))


def test_a_failing_seed_tells_its_story() -> None:
    """A wait beyond its limit raises an error with what happened before and the seed to
    run it again.
    """
    world = World(7, times=DispatcherTimes(), faults=Faults(drop=1.0))
    world.add_worker()
    client = world.add_client()
    world.laws.tell(client.name, "speaks to nobody")
    with pytest.raises(
        LawBroken, match=r"(?s)seed 7: no training loop.*OpenIteration.*seed 7: no training"
    ):
        world.run_until(lambda: world.all_done, patience=5.0)


def test_a_loop_that_works_on_its_last_element_has_not_stalled() -> None:
    """The wait for an element begins anew when a training loop has ended its work on
    the last one.
    """
    world = World(1, pipeline=SimulatedPipeline(splits=1, most=1))
    world.add_worker()
    for client in (world.add_client(), world.add_client()):
        client.pace, client.is_steady = 40.0, True
    world.run_until(lambda: world.all_done, patience=60.0)
    assert world.clock.now > 120.0
