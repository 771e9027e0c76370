"""Facts about the situations that ``docs/restarting.md`` lists.

Each row is a simulated world with an unreliable network. In some of them the dispatcher
is restarted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.counts import how_many
from tests.kit.programs import (
    RepetitionRead,
    SimulatedLoader,
    TrainingProcess,
    TrainingProgram,
)
from tests.kit.runner import Name, SimulatedPipeline
from tests.kit.world import DISPATCHER, World
from zmqdata import messages as m
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.testing import Faults

SEEDS = how_many(1, 3)
FAULTS = Faults(drop=0.05, repeat=0.05, reorder=0.02, break_link=0.01, bind_error=0.1, hold=0.5)
CLIENT_TIMEOUT = 4.0
PATIENCE = 60.0
SLOW = 0.1
"""Seconds that an element takes a training loop of which more is to be seen."""


class Stage:
    """A world whose network is unreliable, with two workers. In every second world the
    dispatcher is restarted somewhere in the first seconds.
    """

    def __init__(self, seed: int, mode: str = "DYNAMIC", **world: Any) -> None:
        times = DispatcherTimes(
            client_timeout=world.pop("client_timeout", CLIENT_TIMEOUT),
            gc_timeout=world.pop("gc_timeout", 1_000.0),
        )
        pipeline = SimulatedPipeline(splits=world.pop("splits", 60))
        self.world = World(seed, mode, pipeline, FAULTS, times, journalled=True, **world)
        self.random = random.Random(seed)
        for _ in range(2):
            self.world.add_worker()
        self.everything = Counter(self.world.pipeline.names())
        if seed % 2:
            self.world.clock.after(self.random.uniform(0.0, 4.0), self.world.restart_dispatcher)

    def program(self, key: str, on_existing: str = "share", **options: Any) -> TrainingProgram:
        return TrainingProgram(self.world, key, on_existing, **options)

    def until(self, condition: Callable[[], bool]) -> None:
        self.world.run_until(condition, PATIENCE)

    def begin(self, process: TrainingProcess, elements: int = 1) -> RepetitionRead:
        """Let a process read, and return once it has some elements."""
        return self.begin_all([process], elements)[0]

    def begin_all(
        self, processes: list[TrainingProcess], elements: int = 1
    ) -> list[RepetitionRead]:
        """Let processes read together, and return once each has some elements."""
        readings = [process.read() for process in processes]
        for client in [one for reading in readings for one in reading.clients]:
            client.pace, client.gulp = SLOW, 1
        self.until(
            lambda: all(
                sum(client.taken for client in reading.clients) >= elements for reading in readings
            )
        )
        assert not any(reading.is_over for reading in readings)
        return readings

    def finish(self, *readings: RepetitionRead) -> None:
        """Let readings come to their ends, and their iterators say goodbye."""
        self.until(lambda: all(reading.is_over for reading in readings))
        for reading in readings:
            assert reading.outcomes == {"end"}
        clients = [client for reading in readings for client in reading.clients]
        self.until(lambda: not any(client.alive for client in clients))

    def read(self, process: TrainingProcess) -> RepetitionRead:
        """Let a process read a repetition to its end."""
        reading = process.read()
        self.finish(reading)
        return reading

    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    def is_whole(self, *readings: RepetitionRead) -> bool:
        """Return True if readings had all elements, each once, of one repetition."""
        found: Counter[Name] = Counter()
        for reading in readings:
            found += reading.had
        places = {place for reading in readings for place in reading.places}
        return found == self.everything and len(places) == 1


def place(*readings: RepetitionRead) -> tuple[int, int]:
    [found] = {found for reading in readings for found in reading.places}
    return found


def everywhere(test: Any) -> Any:
    return pytest.mark.parametrize("seed", range(SEEDS))(test)


# --- the script is run again


@everywhere
def test_a_script_that_is_run_again_after_it_finished_reads_everything(seed: int) -> None:
    """The second start of a script begins the job anew."""
    stage = Stage(seed)
    first = stage.read(stage.program("first").start())
    again = stage.read(stage.program("again").start())
    assert (first.hows, again.hows) == ({"begun"}, {"begun"})
    assert (place(first), place(again)) == ((1, 0), (2, 0))
    assert stage.is_whole(first)
    assert stage.is_whole(again)


@everywhere
@pytest.mark.parametrize("pause", [0.3, 1.0, 20.0])
def test_a_script_that_is_run_again_after_a_crash_reads_everything(seed: int, pause: float) -> None:
    """A script that begins as soon as it has crashed, or later, takes over nothing."""
    stage = Stage(seed)
    crashed = stage.program("crashed")
    left = stage.begin(crashed.start(), 20)
    crashed.kill()
    stage.wait(pause)
    again = stage.read(stage.program("again").start())
    assert not stage.is_whole(left)
    assert again.hows == {"begun"}
    assert place(again) == (2, 0)
    assert stage.is_whole(again)


@everywhere
def test_a_script_that_is_stopped_by_hand_and_run_again_reads_everything(seed: int) -> None:
    """A script that leaves its loop early and says goodbye leaves nothing behind."""
    stage = Stage(seed)
    left = stage.begin(stage.program("left").start(), 20)
    for client in left.clients:
        client.close()
    again = stage.read(stage.program("again").start())
    assert again.hows == {"begun"}
    assert stage.is_whole(again)


@everywhere
def test_a_script_that_is_run_again_while_the_first_one_reads_shares(seed: int) -> None:
    """Both have all elements together, and the second is told so."""
    stage = Stage(seed)
    first = stage.begin(stage.program("first").start(), 10)
    second = stage.program("second").start().read()
    stage.finish(first, second)
    assert second.hows == {"joined"}
    assert stage.is_whole(first, second)
    assert second.opened[0].shared


# --- ranks


def ranks(program: TrainingProgram, count: int = 2, **options: Any) -> list[TrainingProcess]:
    return [program.start(str(rank), **options) for rank in range(count)]


@everywhere
@pytest.mark.parametrize("key", ["torchrun", "slurm job 7, restart 1"])
@pytest.mark.parametrize("pause", [0.3, 1.0, 20.0])
def test_ranks_that_are_all_restarted_read_everything(seed: int, key: str, pause: float) -> None:
    """torchrun restarts all ranks under the key they had, and Slurm requeues a job
    under another: all elements come again, for all ranks together.
    """
    stage = Stage(seed)
    former = stage.program("torchrun")
    left = stage.begin_all(ranks(former), 10)
    former.kill()
    stage.wait(pause)
    now = former if key == former.key else stage.program(key)
    again = [process.read() for process in ranks(now)]
    stage.finish(*again)
    assert not stage.is_whole(*left)
    assert {one.opened[0].how for one in again} == {"begun", "follows"}
    assert place(*again) == (2, 0)
    assert stage.is_whole(*again)


@everywhere
def test_a_rank_that_is_restarted_joins_the_others(seed: int) -> None:
    """The others read on, and all elements come once. The repetitions that follow are
    read together.
    """
    stage = Stage(seed)
    program = stage.program("torchrun")
    [stays, goes] = ranks(program)
    [kept, lost] = stage.begin_all([stays, goes], 5)
    goes.kill()
    successor = program.start("1", former=goes)
    joined = successor.read()
    stage.finish(kept, joined)
    assert joined.hows == {"restarted"}
    assert place(joined, kept) == (1, 0)
    assert stage.is_whole(kept, lost, joined)
    following = [stays.read(), successor.read()]
    stage.finish(*following)
    assert place(*following) == (1, 1)
    assert stage.is_whole(*following)


@everywhere
def test_a_rank_that_is_restarted_later_joins_the_present_repetition(seed: int) -> None:
    """It does not read again what its run has read."""
    stage = Stage(seed)
    program = stage.program("torchrun")
    [stays, goes] = ranks(program)
    stage.finish(stays.read(), goes.read())
    [kept, lost] = stage.begin_all([stays, goes], 5)
    goes.kill()
    joined = program.start("1", former=goes).read()
    stage.finish(kept, joined)
    assert joined.hows == {"restarted"}
    assert place(joined, kept) == (1, 1)
    assert stage.is_whole(kept, lost, joined)


@everywhere
def test_restarted_ranks_follow_no_dead_rank_that_they_were_not(seed: int) -> None:
    """All ranks are restarted, and the first to ask is one that had not read before."""
    stage = Stage(seed)
    program = stage.program("torchrun")
    left = stage.begin(program.start("0"), 10)
    program.kill()
    again = []
    for rank in ("1", "0"):
        again.append(program.start(rank).read())
        stage.until(lambda: bool(again[-1].opened))
    stage.finish(*again)
    assert not stage.is_whole(left)
    assert place(*again) == (2, 0)
    assert stage.is_whole(*again)


@everywhere
def test_a_child_with_the_rank_of_its_parent_reads_with_it(seed: int) -> None:
    """Neither of the two processes counts as the successor of the other."""
    stage = Stage(seed)
    program = stage.program("torchrun")
    parent, child = program.start("0"), program.start("0")
    first = stage.begin(parent, 5)
    second = child.read()
    stage.finish(first, second)
    following = [stage.begin(parent), child.read()]
    stage.finish(*following)
    assert [one.hows for one in (second, *following)] == [{"follows"}] * 3
    assert (place(first, second), place(*following)) == ((1, 0), (1, 1))
    assert stage.is_whole(first, second)
    assert stage.is_whole(*following)


@everywhere
def test_a_numbered_consumer_that_is_restarted_takes_its_seat(seed: int) -> None:
    """Each consumer has had each step in the end, and no step twice."""
    stage = Stage(seed, splits=200, num_consumers=2, finite="pad", consumer_timeout=1_000.0)
    program = stage.program("torchrun")
    processes = [program.start(str(rank), consumer=rank) for rank in range(2)]
    [kept, _] = stage.begin_all(processes, 5)
    processes[1].kill()
    successor = program.start("1", former=processes[1], consumer=1).read()
    stage.finish(kept, successor)
    stage.wait(2.0)
    assert place(successor, kept) == (1, 0)
    stage.world.steps.check_end(stage.world.pipeline.names())


@everywhere
@pytest.mark.parametrize("pause", [0.0, 20.0])
def test_a_rank_that_starts_after_a_short_iteration_has_none(seed: int, pause: float) -> None:
    """Its first repetition is empty, and it is told so, even if the job was collected.
    The second one is read together.
    """
    stage = Stage(seed, gc_timeout=5.0)
    [early, late] = ranks(stage.program("torchrun"))
    had = stage.read(early)
    stage.wait(pause)
    empty = stage.read(late)
    assert stage.is_whole(had)
    assert not empty.had
    assert place(empty, had) == (1, 0)
    assert empty.opened[0].finished
    assert pause or empty.opened[0].delivered == stage.everything.total()
    following = [early.read(), late.read()]
    stage.finish(*following)
    assert place(*following) == (1, 1)
    assert stage.is_whole(*following)


@everywhere
def test_nothing_is_left_of_a_repetition_that_was_collected_half_read(seed: int) -> None:
    """A rank that comes when the others have left a repetition, and it was collected,
    begins the job anew. The others follow it.
    """
    stage = Stage(seed, gc_timeout=3.0)
    [early, late] = ranks(stage.program("torchrun"))
    left = stage.begin(early, 10)
    for client in left.clients:
        client.close()
    stage.wait(20.0)
    whole = stage.read(late)
    assert whole.hows == {"begun"}
    assert (place(left), place(whole)) == ((1, 0), (2, 0))
    assert stage.is_whole(whole)
    following = [early.read(), late.read()]
    stage.finish(*following)
    assert place(*following) == (2, 1)
    assert stage.is_whole(*following)


# --- notebooks, sweeps and pauses


@everywhere
def test_a_cell_that_is_run_again_reads_everything(seed: int) -> None:
    """A cell whose old iterator was closed begins anew."""
    stage = Stage(seed)
    old = stage.begin(stage.program("process:a#1").start(), 10)
    for client in old.clients:
        client.close()
    again = stage.read(stage.program("process:a#2").start())
    assert again.hows == {"begun"}
    assert stage.is_whole(again)


@everywhere
def test_a_cell_that_is_run_again_shares_with_its_old_iterator(seed: int) -> None:
    """An old iterator that is open, and takes nothing any more, still is a reader."""
    stage = Stage(seed)
    old = stage.begin(stage.program("process:a#1").start(), 5)
    for client in old.clients:
        client.stalled_until = stage.world.clock.now + 8.0
    again = stage.program("process:a#2").start().read()
    stage.finish(old, again)
    assert again.hows == {"joined"}
    assert stage.is_whole(old, again)


@everywhere
def test_runs_of_a_sweep_that_overlap_share_from_the_present_repetition_on(seed: int) -> None:
    """A run that comes in the second repetition of another reads it with that one, and
    the third, too.
    """
    stage = Stage(seed)
    first, second = stage.program("trial 1").start(), stage.program("trial 2").start()
    alone = stage.read(first)
    present = stage.begin(first, 5)
    joined = second.read()
    stage.finish(present, joined)
    assert stage.is_whole(alone)
    assert joined.hows == {"joined"}
    assert place(present, joined) == (1, 1)
    assert stage.is_whole(present, joined)
    following = [first.read(), second.read()]
    stage.finish(*following)
    assert place(*following) == (1, 2)
    assert stage.is_whole(*following)


@everywhere
def test_a_run_that_joins_after_a_finished_repetition_reads_the_next(seed: int) -> None:
    """The newest repetition is finished while a slow rank still reads an older one. A
    run that joins now has a whole repetition.
    """
    stage = Stage(seed)
    fast, slow = ranks(stage.program("torchrun"))
    [left, held] = stage.begin_all([fast, slow], 5)
    for client in left.clients:
        client.close()
    for client in held.clients:
        client.stalled_until = stage.world.clock.now + 30.0
    assert stage.is_whole(stage.read(fast))
    joined = stage.read(stage.program("second").start())
    assert joined.hows == {"joined"}
    assert place(joined) == (1, 2)
    assert stage.is_whole(joined)
    stage.finish(held)


@everywhere
@pytest.mark.parametrize("pause", [0.0, 20.0])
def test_a_run_that_pauses_and_finds_its_name_taken_reads_on(seed: int, pause: float) -> None:
    """The run that took the name begins anew, and both read all their repetitions."""
    stage = Stage(seed)
    pausing, other = stage.program("pausing").start(), stage.program("other").start()
    mine = [stage.read(pausing)]
    stage.wait(pause)
    theirs = [stage.begin(other, 5)]
    mine.append(pausing.read())
    stage.finish(mine[1], theirs[0])
    theirs.append(stage.read(other))
    stage.wait(pause)
    mine.append(stage.read(pausing))
    assert [place(one) for one in mine] == [(1, 0), (1, 1), (1, 2)]
    assert [place(one) for one in theirs] == [(2, 0), (2, 1)]
    assert all(stage.is_whole(one) for one in mine + theirs)


@everywhere
def test_a_pause_may_outlast_the_job(seed: int) -> None:
    """A run finds its place again in a job that was collected while it paused."""
    stage = Stage(seed, gc_timeout=3.0)
    process = stage.program("pausing").start()
    readings = []
    for _ in range(3):
        readings.append(stage.read(process))
        stage.wait(20.0)
    assert [place(one) for one in readings] == [(1, 0), (1, 1), (1, 2)]
    assert all(stage.is_whole(one) for one in readings)


# --- data loaders, children and copies

LOADERS = {
    "new workers": SimulatedLoader(2),
    "new workers, same seed": SimulatedLoader(2, is_seeded=True),
    "persistent workers": SimulatedLoader(3, is_persistent=True),
    "copies in child processes": SimulatedLoader(2, has_copies=True),
    "copies in a pool": SimulatedLoader(3, has_copies=True, is_persistent=True),
}


@everywhere
@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_workers_of_a_data_loader_read_each_element_once(
    seed: int, loader: SimulatedLoader
) -> None:
    """Each element goes to one worker, and each pass is another repetition."""
    stage = Stage(seed)
    process = stage.program("loading").start(loader=loader)
    readings = []
    for _ in range(3):
        readings.append(stage.read(process))
        stage.wait(0.5)
    assert [place(one) for one in readings] == [(1, 0), (1, 1), (1, 2)]
    assert all(stage.is_whole(one) for one in readings)


@everywhere
def test_ranks_with_data_loaders_read_each_element_once(seed: int) -> None:
    """All workers of all ranks share a repetition, pass after pass."""
    stage = Stage(seed)
    processes = ranks(stage.program("torchrun"), loader=LOADERS["new workers"])
    for repetition in range(2):
        readings = [process.read() for process in processes]
        stage.finish(*readings)
        assert place(*readings) == (1, repetition)
        assert stage.is_whole(*readings)


@everywhere
def test_children_that_train_one_after_the_other_read_everything(seed: int) -> None:
    """A child that makes its own dataset begins anew when the child before it has ended
    all its iterations.
    """
    stage = Stage(seed)
    family = stage.program("process:family")
    first = stage.read(family.start(is_fresh=True))
    second = stage.read(family.start(is_fresh=True))
    assert [place(one) for one in (first, second)] == [(1, 0), (2, 0)]
    assert stage.is_whole(first)
    assert stage.is_whole(second)


@everywhere
def test_a_dataset_without_a_job_name_has_its_own_job_in_each_copy(seed: int) -> None:
    """Copies by ``deepcopy`` or from a file have other jobs, and all elements each."""
    stage = Stage(seed)
    jobs = [m.JobParameters(name, "dataset", "DYNAMIC", anonymous=True) for name in ("a", "b")]
    readings = [stage.program("one process", job=job).start().read() for job in jobs]
    stage.finish(*readings)
    assert [one.hows for one in readings] == [{"begun"}, {"begun"}]
    assert all(stage.is_whole(one) for one in readings)
    stage.wait(CLIENT_TIMEOUT)
    assert not stage.world.dispatcher.core.state.iterations


# --- another behaviour


@everywhere
@pytest.mark.parametrize("is_living", [False, True])
def test_a_run_may_begin_anew_in_any_case(seed: int, is_living: bool) -> None:
    """A run with ``on_existing="new"`` reads everything, and so does a living one."""
    stage = Stage(seed)
    former = stage.program("former")
    other = stage.begin(former.start(), 10)
    if not is_living:
        former.kill()
    anew = stage.program("new", "new").start().read()
    stage.finish(anew, *([other] if is_living else []))
    assert anew.hows == {"begun"}
    assert stage.is_whole(anew)
    assert stage.is_whole(other) == is_living


@everywhere
@pytest.mark.parametrize("pause", [0.3, 20.0])
def test_a_run_may_continue_what_a_crash_has_left(seed: int, pause: float) -> None:
    """A run with ``on_existing="continue"`` reads what a crashed one has left, and is
    told so.
    """
    stage = Stage(seed)
    former = stage.program("former")
    left = stage.begin(former.start(), 20)
    former.kill()
    stage.wait(pause)
    rest = stage.read(stage.program("continues", "continue").start())
    assert rest.hows == {"continued"}
    assert rest.had
    assert stage.is_whole(left, rest)


@everywhere
def test_nobody_continues_what_a_living_run_reads(seed: int) -> None:
    """A run with ``on_existing="continue"`` is refused while another one reads."""
    stage = Stage(seed)
    reads = stage.begin(stage.program("reads").start(), 5)
    for client in reads.clients:
        client.stalled_until = stage.world.clock.now + 8.0
    refused = stage.program("continues", "continue").start().read()
    stage.until(lambda: refused.is_over)
    assert refused.outcomes == {"FailedPreconditionError"}
    stage.finish(reads)
    assert stage.is_whole(reads)


@everywhere
def test_a_name_that_exists_may_be_refused(seed: int) -> None:
    """A run with ``on_existing="error"`` reads a new job only."""
    stage = Stage(seed)
    first = stage.read(stage.program("first", "error").start())
    second = stage.program("second", "error").start().read()
    stage.until(lambda: second.is_over)
    assert second.outcomes == {"AlreadyExistsError"}
    assert stage.is_whole(first)


@everywhere
def test_processes_of_a_run_must_agree(seed: int) -> None:
    """A rank that asks for another ``on_existing`` than the first is refused."""
    stage = Stage(seed)
    one, other = stage.program("torchrun", "share"), stage.program("torchrun", "new")
    reads = stage.begin(one.start("0"), 5)
    refused = other.start("1").read()
    stage.until(lambda: refused.is_over)
    assert refused.outcomes == {"InvalidArgumentError"}
    stage.finish(reads)
    assert stage.is_whole(reads)


# --- who is alive


@everywhere
def test_a_reader_that_only_workers_hear_is_alive(seed: int) -> None:
    """A run shares with a reader that has no connection to the dispatcher and reads on,
    because a worker vouches for it.
    """
    stage = Stage(seed)
    [client] = stage.begin(stage.program("cut off").start(), 5).clients
    stage.world.network.sever(client.name, DISPATCHER)
    stage.wait(3.0)
    second = stage.program("second").start().read()
    stage.until(lambda: bool(second.opened))
    assert second.hows == {"joined"}


@everywhere
def test_readers_whose_connections_break_for_a_second_are_alive(seed: int) -> None:
    """A run that asks meanwhile shares with them, although no worker vouches for
    readers that know of each other.
    """
    stage = Stage(seed, splits=200, client_timeout=15.0)
    stage.world.network.faults = replace(FAULTS, hold=1.0)
    readings = stage.begin_all(ranks(stage.program("torchrun")), 20)
    clients = [client for reading in readings for client in reading.clients]
    for client in clients:
        client.stalled_until = stage.world.clock.now + 12.0
        stage.world.network.sever(client.name, DISPATCHER)
    stage.wait(FAULTS.notice[1] + 0.1)
    second = stage.program("second").start().read()
    stage.wait(1.3)
    for client in clients:
        stage.world.network.heal(client.name, DISPATCHER)
    stage.finish(*readings, second)
    assert second.hows == {"joined"}
    assert stage.is_whole(*readings, second)


@everywhere
@pytest.mark.parametrize("seconds", [0.2, 5.0])
def test_a_dispatcher_that_is_restarted_meanwhile_knows_who_reads(
    seed: int, seconds: float
) -> None:
    """A run that asks while the dispatcher is away shares with the run that reads."""
    stage = Stage(seed)
    first = stage.begin(stage.program("first").start(), 5)
    for client in first.clients:
        client.stalled_until = stage.world.clock.now + 15.0
    stage.world.restart_dispatcher(seconds)
    second = stage.program("second").start().read()
    stage.finish(first, second)
    assert second.hows == {"joined"}
    assert stage.is_whole(first, second)


# --- shards of workers beside their clients


def beside(stage: Stage) -> list[tuple[str, ...]]:
    """Return the addresses of the workers, each beside a client."""
    stage.wait(5.0)
    return [(worker.name,) for worker in stage.world.workers]


def local_stage(seed: int) -> Stage:
    return Stage(seed, mode="DATA", shards=2, target_workers="LOCAL")


@everywhere
def test_ranks_read_the_shards_of_their_own_workers(seed: int) -> None:
    """The ranks have all elements together, repetition after repetition."""
    stage = local_stage(seed)
    program = stage.program("torchrun")
    processes = [
        program.start(str(rank), local_workers=one) for rank, one in enumerate(beside(stage))
    ]
    for repetition in range(2):
        readings = [process.read() for process in processes]
        stage.finish(*readings)
        assert place(*readings) == (1, repetition)
        assert all(one.had for one in readings)
        assert stage.is_whole(*readings)


@everywhere
def test_programs_beside_other_workers_read_their_own_shards(seed: int) -> None:
    """A program whose shard nobody has read reads it, although the other has ended."""
    stage = local_stage(seed)
    readings = [
        stage.read(stage.program(f"machine {one}").start(local_workers=one))
        for one in beside(stage)
    ]
    assert [one.hows for one in readings] == [{"begun"}] * 2
    assert place(*readings) == (1, 0)
    assert stage.is_whole(*readings)


@everywhere
def test_a_program_that_is_run_again_beside_its_worker_reads_its_shard(seed: int) -> None:
    """A living reader of another shard is no reason to join."""
    stage = local_stage(seed)
    here, there = beside(stage)
    other = stage.begin(stage.program("there").start(local_workers=there))
    first = stage.read(stage.program("here").start(local_workers=here))
    again = stage.read(stage.program("here, again").start(local_workers=here))
    stage.finish(other)
    assert (place(first, other), place(again)) == ((1, 0), (2, 0))
    assert again.hows == {"begun"}
    assert again.had == first.had
    assert stage.is_whole(first, other)


# --- numbered consumers and states


@everywhere
def test_another_run_takes_a_seat_whose_holder_is_gone(seed: int) -> None:
    """The other consumer reads on, and each consumer has each step in the end."""
    stage = Stage(seed, splits=200, num_consumers=2, finite="pad", consumer_timeout=1_000.0)
    first, second = stage.program("first"), stage.program("second")
    processes = [first.start(str(rank), consumer=rank) for rank in range(2)]
    [kept, _] = stage.begin_all(processes, 5)
    processes[1].kill()
    successor = second.start("1", consumer=1).read()
    stage.finish(kept, successor)
    stage.wait(2.0)
    assert successor.hows == {"joined"}
    assert place(successor, kept) == (1, 0)
    stage.world.steps.check_end(stage.world.pipeline.names())


@everywhere
def test_another_run_gets_no_seat_whose_holder_lives(seed: int) -> None:
    """The consumer that asks for it is refused, and the first one reads on."""
    stage = Stage(seed, splits=200, num_consumers=2, finite="pad", consumer_timeout=1_000.0)
    first, second = stage.program("first"), stage.program("second")
    kept = stage.begin_all([first.start(str(rank), consumer=rank) for rank in range(2)], 5)
    refused = second.start("1", consumer=1).read()
    stage.until(lambda: refused.is_over)
    assert refused.outcomes == {"FailedPreconditionError"}
    stage.finish(*kept)
    assert place(*kept) == (1, 0)


def state_of(reading: RepetitionRead) -> tuple[bytes, Counter[Name]]:
    """Return the state of a reading, and the elements that belong to it."""
    [client] = reading.clients
    core = client.core
    state = m.encode_checkpoint(core.standing.checkpoint(core.reading.passed.count))
    return state, Counter(name for names in client.had.names.values() for name in names.values())


@everywhere
@pytest.mark.parametrize("pause", [0.3, 20.0])
def test_a_script_that_loads_a_state_reads_the_rest(seed: int, pause: float) -> None:
    """A new run that loads the state of a crashed one begins anew from there."""
    stage = Stage(seed)
    crashed = stage.program("crashed")
    state, had = state_of(stage.begin(crashed.start(), 20))
    stage.wait(1.0)
    crashed.kill()
    stage.wait(pause)
    process = stage.program("again").start()
    rest = process.read(state)
    stage.finish(rest)
    assert rest.hows == {"loaded"}
    assert place(rest) == (2, 0)
    assert had + rest.had == stage.everything
    following = stage.read(process)
    assert place(following) == (2, 1)
    assert stage.is_whole(following)


@everywhere
def test_a_state_disturbs_no_other_run(seed: int) -> None:
    """A process closes its iterator and loads a former state while another run that had
    joined it reads on, and has all that is left.
    """
    stage = Stage(seed, splits=120)
    process = stage.program("goes back").start()
    first = stage.begin(process, 5)
    state, had = state_of(first)
    stage.wait(1.0)
    other = stage.begin(stage.program("other").start())
    for client in first.clients:
        client.close()
    rest = process.read(state)
    stage.finish(other, rest)
    assert (other.hows, rest.hows) == ({"joined"}, {"loaded"})
    assert (place(other), place(rest)) == ((1, 0), (2, 0))
    assert had + rest.had == stage.everything
    assert stage.is_whole(first, other)


@everywhere
def test_a_state_is_refused_while_its_run_reads(seed: int) -> None:
    """A rank that loads a state alone, while another rank reads, gets an error."""
    stage = Stage(seed, splits=200)
    [stays, loads] = ranks(stage.program("torchrun"))
    state, _ = state_of(stage.begin(loads, 5))
    loads.readings[-1].clients[0].close()
    reads = stage.begin(stays, 5)
    refused = loads.read(state)
    stage.until(lambda: refused.is_over)
    assert refused.outcomes == {"FailedPreconditionError"}
    stage.finish(reads)
