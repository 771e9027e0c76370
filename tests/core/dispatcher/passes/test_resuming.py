"""Test iterations that resume in another cluster from the checkpoints of their
readers.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.full import seeds
from tests.kit.runner import Name, SimulatedPipeline
from tests.kit.world import World
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.core.dispatcher.passes import resuming
from zmqdata.core.dispatcher.passes.resuming import Beginning, changed_files, incarnation_of
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.ledger import Ledger
from zmqdata.errors import DataLossError, InvalidArgumentError
from zmqdata.splits import IndexSplits, Split
from zmqdata.testing.network import CALM, Faults

ROUGH = Faults(
    delay=(0.0005, 0.005), drop=0.05, repeat=0.05, reorder=0.05, break_link=0.01, hold=0.5
)


class Interrupted:
    """A stopped world and the checkpoints of its readers.

    Args:
        seed: decides everything.
        readers: number of readers, which are numbered if the job has numbered
            consumers.
        workers: number of workers.
        share: the share of elements that the readers read before the world stops.
        job: parameters of the world's job.
    """

    def __init__(self, seed: int, readers: int, workers: int, share: float, **job: Any) -> None:
        draw = random.Random(seed)
        repetitions = draw.choice([1, 1, 2])
        self.pipeline = SimulatedPipeline(
            draw.choice([5, 40, 120]), repetitions, most=draw.choice([1, 3, 8])
        )
        self.seed, self.readers, self.job = seed, readers, job
        self.first = self.world(seed, workers, CALM)
        self.add_readers(self.first, [b""] * readers)
        known = 0 if job.get("num_consumers") else readers
        self.first.run_until(
            lambda: all(
                one.core.opened and len(one.core.task_list.readers) == known
                for one in self.first.clients
            )
        )
        self.stop(self.first, share)

    def world(self, seed: int, workers: int, faults: Faults) -> World:
        shards = workers if self.job.get("mode", "DYNAMIC") == "DATA" else 0
        times = DispatcherTimes(gc_timeout=1e9)
        known: dict[str, Any] = {
            "pipeline": self.pipeline,
            "times": times,
            "shards": shards,
            **self.job,
        }
        world = World(seed, faults=faults, journalled=True, **known)
        for _ in range(workers):
            world.add_worker()
        return world

    def add_readers(self, world: World, resume: list[bytes]) -> None:
        numbered = self.job.get("num_consumers") is not None
        for number, state in enumerate(resume):
            world.add_client(consumer=number if numbered else None, resume=state)

    def read(self, world: World, count: int) -> None:
        world.run_until(
            lambda: world.all_done or sum(client.taken for client in world.clients) >= count
        )

    def stop(self, world: World, share: float) -> None:
        """Read the given share of all elements in a world, and keep the checkpoints of
        its readers.
        """
        self.read(world, int(share * len(self.pipeline.names())))
        readers = [client.core for client in world.clients]
        self.checkpoints = [one.standing.checkpoint(one.reading.passed.count) for one in readers]

    def go_on(self, workers: int, faults: Faults = CALM, crash: bool = False) -> World:
        """Resume in another cluster and read to the end."""
        world = self.join(workers, faults)
        for moment in (0.05, 0.15, 0.3, 1.0) if crash else ():
            world.clock.after(moment, world.restart_dispatcher)
        return self.finish(world)

    def join(self, workers: int, faults: Faults) -> World:
        """Return another cluster that all readers have joined with their
        checkpoints.
        """
        world = self.world(self.seed + 1_000_000, workers, faults)
        self.add_readers(world, [m.encode_checkpoint(one) for one in self.checkpoints])
        return world

    def finish(self, world: World) -> World:
        """Read to the end in all clients."""
        world.run_until(lambda: world.all_done)
        assert {client.outcome for client in world.clients} == {"end"}, [
            client.outcome for client in world.clients
        ]
        return world


def had(world: World) -> Counter[Name]:
    return Counter(
        name
        for client in world.clients
        for names in client.had.names.values()
        for name in names.values()
    )


# --- case by case


BEGINNING = Beginning(
    m.JobParameters("job", "dataset", "DYNAMIC", num_consumers=2, finite="drop"),
    m.DatasetDescription("d" * 64, "print", (IndexSplits(100),), "", None, 100, None, "3.11", "0"),
    1,
    2000,
    4000,
    lambda *numbers: sum(numbers),
)
TASK = m.TaskPart(0, 5, None, (0,), ((Split(0, 0, 10),),), (), (), None)


def consumer(index: int, step: int, *views: m.View) -> m.Checkpoint:
    """Return the checkpoint of a consumer that has read the given number of steps."""
    return m.Checkpoint(
        m.CHECKPOINT_VERSION,
        BEGINNING.job,
        "print",
        0,
        11,
        0,
        m.Reader(index),
        "",
        (),
        (),
        (TASK,) if views else (),
        step,
        views,
    )


def test_a_task_that_nobody_has_had_anything_of_is_over_when_its_turns_are() -> None:
    """A task without delivered elements that has had rounds in a view is over, as it
    had no elements.
    """
    view = m.View(0, ((0, 0), (1, 0)))
    facts = incarnation_of([consumer(0, 6, view), consumer(1, 6, view)], BEGINNING)
    assert [fact for fact in facts if isinstance(fact, u.EndTaskUpdate)] == [
        u.EndTaskUpdate(4001, 0)
    ]


def test_copies_of_which_nothing_was_to_come_are_not_begun_again() -> None:
    """If the readers had everything, no copy is added, and one that was lost with its
    worker stays lost.
    """
    job = m.JobParameters("job", "dataset", "OFF")
    ended = m.TaskPart(0, 5, None, (), (), (), ((0, 4),), 4)
    lost = m.TaskPart(1, 6, None, (), (), (), ((0, 2),), None)
    for over in ((True, True), (True, False)):
        readers = [
            m.Checkpoint(
                m.CHECKPOINT_VERSION,
                job,
                "print",
                0,
                11,
                0,
                m.Reader(),
                "",
                (),
                (),
                (ended, lost),
                over=one,
            )
            for one in over
        ]
        facts = incarnation_of(readers, replace(BEGINNING, job=job))
        told = [u.RemoveTaskUpdate(4001), u.CloseTaskListUpdate(2000)]
        assert [fact for fact in facts if fact in told] == (told if all(over) else [])


def test_consumers_that_do_not_say_what_they_read_in_turn_cannot_go_on() -> None:
    """The dispatcher refuses consumers without all views from the first on, as steps
    mean nothing without them.
    """
    for views in ((), (m.View(4, ((0, 2),)),)):
        with pytest.raises(InvalidArgumentError, match="which tasks take turns from step 3"):
            incarnation_of([consumer(0, 3, *views), consumer(1, 3, *views)], BEGINNING)


def test_a_view_that_begins_where_all_consumers_are_is_enough() -> None:
    """A view that begins at the step of all consumers is enough, as it says how many
    rounds its tasks have had.
    """
    facts = incarnation_of(
        [consumer(0, 4, m.View(4, ((0, 2),))), consumer(1, 4, m.View(4, ((0, 2),)))], BEGINNING
    )
    assert [fact for fact in facts if isinstance(fact, u.RestoreRoundsUpdate)] == [
        u.RestoreRoundsUpdate(2000, (4, 4), (m.View(4, ((4000, 2),)),), 4, (4000,))
    ]
    assert u.DeliverUpdate(4000, ((0, 2),)) in facts


def test_consumers_that_are_too_far_apart_cannot_go_on() -> None:
    """The dispatcher refuses consumers too far apart: the leader has forgotten splits
    or turns that the last consumer has not had.
    """
    view = m.View(0, ((0, 0),))
    gone = (m.SourcePart(source=0, repetition=0, gone=((10, 20),)),)
    behind, ahead = consumer(0, 3, view), consumer(1, 40, view)
    with pytest.raises(
        DataLossError, match=r"enough of the elements between steps 3 and 40.*too far apart"
    ):
        incarnation_of([behind, msgspec.structs.replace(ahead, sources=gone)], BEGINNING)
    both = [msgspec.structs.replace(one, sources=gone) for one in (behind, ahead)]
    assert incarnation_of(both, BEGINNING)
    later = consumer(1, 40, m.View(20, ((0, 10),)))
    with pytest.raises(DataLossError, match="between steps 3 and 40"):
        incarnation_of([behind, later], BEGINNING)
    assert incarnation_of([consumer(0, 3, view, *later.views), later], BEGINNING)


def begun(*entries: Split, total: int | None = None) -> list[u.AnyUpdate]:
    """Return the facts with which a job resumes from its only reader, which knows a
    single task with the given ledger.
    """
    job = msgspec.structs.replace(BEGINNING.job, num_consumers=None, finite=None)
    task = m.TaskPart(0, 5, None, (0,), (entries,), (), ((0, 9),), total)
    one = m.Checkpoint(
        m.CHECKPOINT_VERSION, job, "print", 0, 11, 0, m.Reader(), "me", ("me",), (), (task,), 0, ()
    )
    return incarnation_of([one], replace(BEGINNING, job=job))


def cursor_of(facts: list[u.AnyUpdate]) -> tuple[int, int, tuple[Split, ...]]:
    [cursor] = [fact for fact in facts if isinstance(fact, u.RestoreCursorUpdate)]
    return cursor.repetition, cursor.next, cursor.returned


def test_a_repetition_of_which_only_the_end_is_known_was_begun() -> None:
    """The splits of a repetition with only an end mark belonged to an unknown task, so
    a new task gets them.
    """
    facts = begun(Split(0, 0, 100), Split(0, 100, 100), Split(1, 100, 100), total=9)
    assert [fact.task for fact in facts if isinstance(fact, u.CreateTaskUpdate)] == [4000, 4001]
    assert cursor_of(facts) == (1, 100, (Split(1, 0, 100),))


def test_a_repetition_that_a_task_is_behind_was_handed_out() -> None:
    """The dispatcher hands out again the splits that no reader knows, even if a task
    has passed on to the next repetition.
    """
    assert cursor_of(begun(Split(0, 0, 90), Split(0, 95, 98))) == (0, 98, (Split(0, 90, 95),))
    rest = (Split(0, 90, 95), Split(0, 98, 100))
    assert cursor_of(begun(Split(0, 0, 90), Split(0, 95, 98), Split(0, 100, 100))) == (0, 100, rest)
    assert cursor_of(begun(Split(0, 0, 90), Split(0, 95, 98), Split(0, 0, 0), Split(1, 0, 4))) == (
        1,
        4,
        rest,
    )


def test_files_that_are_not_where_they_were_are_named() -> None:
    """A new listing must have the file names of the ledger at the same places in the
    same repetition.
    """
    iteration = Iteration(2000, BEGINNING.job, 0, 7, [])
    iteration.tasks[4000] = task = Task(
        4000, 2000, 1, [Ledger([Split(0, 1, 3, ("b", "c")), Split(0, 3, 3)])]
    )
    assert changed_files(iteration, 0, 0, ("a", "b", "c", "d")) == ""
    assert changed_files(iteration, 0, 1, ("x",)) == ""
    text = changed_files(iteration, 0, 0, ("b", "c"))
    assert "the files from number 1 on were b, c, now they are c." in text
    assert "now they are none" in changed_files(iteration, 0, 0, ())
    assert task.ledger[0].length == 2


# --- whole runs


@pytest.mark.parametrize("seed", seeds(24, core=8))
def test_one_reader_goes_on_with_another_number_of_workers(seed: int) -> None:
    """A reader that resumes on another number of workers reads each remaining element
    exactly once.
    """
    draw = random.Random(f"{seed}/one")
    world = Interrupted(seed, 1, draw.randint(1, 4), draw.random())
    second = world.go_on(draw.randint(1, 4), draw.choice([CALM, ROUGH]), crash=draw.random() < 0.4)
    assert had(world.first) + had(second) == Counter(world.pipeline.names())


@pytest.mark.parametrize("seed", seeds(40, core=10))
def test_one_reader_goes_on_twice(seed: int) -> None:
    """A reader can resume again when it is stopped before, while or after some of its
    tasks end.
    """
    draw = random.Random(f"{seed}/twice")
    world = Interrupted(seed, 1, draw.randint(1, 4), draw.random())
    second = world.join(draw.randint(1, 4), draw.choice([CALM, ROUGH]))
    second.run_until(lambda: second.all_done or second.clients[0].core.opened)
    if second.all_done:
        return
    share = draw.random() * (1 - world.first.clients[0].taken / max(1, len(world.pipeline.names())))
    world.stop(second, share)
    world.seed += 1
    third = world.go_on(draw.randint(1, 4), draw.choice([CALM, ROUGH]))
    assert had(world.first) + had(second) + had(third) == Counter(world.pipeline.names())


@pytest.mark.parametrize("seed", seeds(12, core=6))
def test_several_readers_go_on_together(seed: int) -> None:
    """The states of all readers of a job resume it together without losing an
    element.
    """
    draw = random.Random(f"{seed}/several")
    world = Interrupted(seed, draw.randint(2, 3), draw.randint(1, 3), draw.random() * 0.9)
    second = world.go_on(draw.randint(1, 4), draw.choice([CALM, ROUGH]), crash=draw.random() < 0.4)
    assert had(world.first) + had(second) == Counter(world.pipeline.names())


@pytest.mark.parametrize("seed", range(8))
def test_static_parts_go_on(seed: int) -> None:
    """Each static part resumes at its position, even if the cluster has more or fewer
    shards.
    """
    draw = random.Random(f"{seed}/static")
    world = Interrupted(seed, 1, draw.randint(1, 3), draw.random(), mode="DATA")
    second = world.go_on(draw.randint(1, 4))
    assert had(world.first) + had(second) == Counter(world.pipeline.names())


@pytest.mark.parametrize("seed", seeds(12, core=6))
def test_consumers_go_on_in_step(seed: int) -> None:
    """Numbered consumers take each element at most once, and miss at most the last
    incomplete round of each task.
    """
    draw = random.Random(f"{seed}/consumers")
    count = draw.randint(1, 3)
    world = Interrupted(
        seed,
        count,
        draw.randint(1, 3),
        draw.random() * 0.9,
        num_consumers=count,
        finite="drop",
        consumer_timeout=60.0,
    )
    second = world.go_on(draw.randint(1, 4), crash=draw.random() < 0.4)
    found, everything = had(world.first) + had(second), Counter(world.pipeline.names())
    assert not found - everything
    tasks = len(next(iter(second.dispatcher.core.state.iterations.values())).tasks)
    assert sum((everything - found).values()) < count * max(1, tasks)


@pytest.mark.parametrize("seed", [*seeds(12, core=4), 164, 257, 274, 627, 1068, 1583])
def test_consumers_go_on_from_different_steps_or_not_at_all(seed: int) -> None:
    """A consumer with an older state gets the rest of the same rounds, or the
    dispatcher refuses all consumers.
    """
    draw = random.Random(f"{seed}/apart")
    count = draw.randint(2, 3)
    shares = sorted([draw.random(), draw.random()])
    job: dict[str, Any] = {"num_consumers": count, "finite": "drop", "consumer_timeout": 60.0}
    world = Interrupted(seed, count, draw.randint(1, 3), shares[0], **job)
    older = world.checkpoints
    world.stop(world.first, shares[1])
    behind = draw.randrange(count)
    world.checkpoints[behind] = older[behind]
    second = world.join(draw.randint(1, 4), draw.choice([CALM, ROUGH]))
    second.run_until(lambda: second.all_done)
    steps = [one.step for one in world.checkpoints]
    if len(set(steps)) > 1 and {client.outcome for client in second.clients} == {"DataLossError"}:
        return
    assert {client.outcome for client in second.clients} == {"end"}
    found: Counter[Name] = Counter()
    for number, step in enumerate(steps):
        first, then = (paths(one, number) for one in (world.first, second))
        again = {at: name for at, name in first.items() if step <= at < max(steps)}
        assert {at: then.get(at) for at in again} == again
        assert step <= min(then, default=step)
        found.update(name for at, name in first.items() if at < step)
        found.update(then.values())
    everything = Counter(world.pipeline.names())
    assert not found - everything
    tasks = len(next(iter(second.dispatcher.core.state.iterations.values())).tasks)
    assert sum((everything - found).values()) < count * max(1, tasks)


def test_consumers_go_on_within_the_last_rounds() -> None:
    """Consumers that have taken some of the last rounds get the same elements at the
    remaining steps, even if one of them has an older state.
    """
    job: dict[str, Any] = {"num_consumers": 2, "finite": "drop", "consumer_timeout": 60.0}
    world = Interrupted(2, 2, 5, 0.0, mode="OFF", **job)
    states: dict[int, dict[int, m.Checkpoint]] = {0: {}, 1: {}}

    def have_ended() -> bool:
        for number, client in enumerate(world.first.clients):
            client.gulp, core = 1, client.core
            state = core.standing.checkpoint(core.reading.passed.count)
            states[number][state.step] = state
        return world.first.all_done

    world.first.run_until(have_ended)
    last = next(iter(world.first.dispatcher.core.state.iterations.values())).last_rounds
    assert last is not None
    assert last.count == 2
    for steps in itertools.product(range(last.first_step + 1, last.stop + 1), repeat=2):
        world.checkpoints = [states[number][step] for number, step in enumerate(steps)]
        second = world.go_on(2)
        for number, step in enumerate(steps):
            before = paths(world.first, number)
            assert paths(second, number) == {at: before[at] for at in before if at >= step}


def paths(world: World, consumer: int) -> dict[int, Name]:
    """Return the element that a consumer got at each step."""
    return {step: name for step, (_, name) in world.steps.of_consumer(consumer).items()}


@pytest.mark.parametrize("seed", seeds(12, core=6))
def test_a_promised_order_goes_on(seed: int) -> None:
    """A resumed read repeats the order of an undisturbed run step by step, with any
    number of workers before and after.
    """
    draw = random.Random(f"{seed}/promised")
    count = draw.randint(1, 2)
    job: dict[str, Any] = {
        "num_consumers": count,
        "finite": "drop",
        "num_tasks": draw.choice([1, 3, 5]),
    }
    world = Interrupted(
        seed, count, draw.randint(1, 3), draw.random() * 0.9, consumer_timeout=60.0, **job
    )
    second = world.go_on(draw.randint(1, 4), crash=draw.random() < 0.4)
    whole = world.world(seed + 7, 2, CALM)
    world.add_readers(whole, [b""] * count)
    whole.run_until(lambda: whole.all_done)
    for consumer in range(count):
        found = paths(world.first, consumer) | paths(second, consumer)
        assert found == paths(whole, consumer) != {}


def test_splits_that_a_task_holds_of_an_old_repetition_are_not_used_up() -> None:
    """All splits of a forgotten repetition count as used up, except those that a task
    still holds.
    """
    held = [Split(3, 0, 2), Split(3, 4, 5), Split(3, 6, 6), Split(20, 0, 6)]
    [part] = resuming._old_parts(1, held, oldest=4, count=6)
    assert (part.source, part.repetition, part.gone) == (1, 3, ((2, 4), (5, 6)))
