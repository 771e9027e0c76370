"""Test the checkpoints of a client."""

from __future__ import annotations

import msgspec
import pytest

from zmqdata import messages as m
from zmqdata.core.client.checkpoint import Standing
from zmqdata.core.client.coordinated import Stepping
from zmqdata.core.client.tasks import Reading
from zmqdata.errors import FailedPreconditionError
from zmqdata.splits import Split

JOB = m.JobParameters("job", "d", "DYNAMIC")


def standing(reading: Reading, reader: m.Reader | None = None) -> Standing:
    return Standing("k", JOB, reader or m.Reader(), reading)


def lineage(task: int, index: int, entries: int) -> m.Lineage:
    ledger = tuple(Split(0, 10 * at, 10 * at + 10) for at in range(entries))
    return m.Lineage(1, task, 1, (0,), (ledger,), (), m.Origin(index, 9, None, 5, 0))


def test_a_checkpoint_says_all_that_a_client_knows() -> None:
    """A checkpoint holds the job, the other readers, the splits used before the client
    came, and the tasks. Operations that hold elements have them again only if no other
    client reads the job.
    """
    reading = Reading(None, lambda command: None)
    one = standing(reading)
    before = m.SourcePart(0, ((0, 3),), 0)
    opened = m.IterationOpened("k", 1, m.TaskList(1, (), False), fingerprint="f", sources=(before,))
    one.begin(msgspec.structs.replace(opened, delivered_before={7000: ((0, 4),)}, repetition=3))
    one.list(m.TaskList(2, (m.TaskPlace(7000, 1, "w", "w", 5),), False, readers=("a", "b")))
    one.receive_lineage(lineage(7000, 5, 2))
    reading.passed.add(7000, 4, 9)
    with pytest.raises(FailedPreconditionError, match="Other clients read this job"):
        one.checkpoint(2)
    one.list(m.TaskList(2, (m.TaskPlace(7000, 1, "w", "w", 5),), False, readers=("k",)))
    found = one.checkpoint(2)
    assert (found.job, found.repetition, found.fingerprint) == (JOB, 3, "f")
    assert (found.part, found.parts) == (m.shown_name("k"), ("k",))
    assert one.checkpoint(5).parts == ("k",)
    assert (found.seed, found.num_shards, found.sources) == (5, 0, (before,))
    assert [(part.index, part.delivered) for part in found.tasks] == [(5, ((0, 6),))]
    assert found.order == ((5, 6, 9),)


def test_before_anything_has_come_there_is_a_checkpoint() -> None:
    """A checkpoint before the first element holds what the dispatcher said at
    admission, or nothing.
    """
    one = standing(Reading(None, lambda command: None))
    assert (one.checkpoint(0).seed, one.checkpoint(0).tasks) == (0, ())
    one.begin(m.IterationOpened("k", 1, m.TaskList(1, (), False), seed=8, num_shards=2))
    assert (one.checkpoint(0).seed, one.checkpoint(0).num_shards) == (8, 2)


def test_an_order_that_cannot_come_again_is_refused() -> None:
    """A checkpoint with elements of another client in between is refused, and the error
    gives the remedy.
    """
    reading = Reading(None, lambda command: None)
    one = standing(reading)
    one.receive_lineage(lineage(7000, 0, 2))
    reading.passed.add(7000, 0, 2)
    reading.passed.add(7000, 5, 7)
    assert one.checkpoint(4).order == ()
    with pytest.raises(FailedPreconditionError, match="deterministic=True"):
        one.checkpoint(2)


def told(base: int, number: int) -> m.Lineage:
    """Return the first lineage of a stream whose entries before a state were
    forgotten.
    """
    states = (m.TaskState(number, b"", (base,)),)
    return m.Lineage(
        1, 7000, 2, (base,), ((Split(0, 90, 95),),), states, m.Origin(0, 9, None, 5, 0, number)
    )


def test_what_was_delivered_before_a_stream_began_others_had() -> None:
    """Elements before the first lineage of a task count as delivered to other clients,
    except elements that a later operation may replay.
    """
    reading = Reading(None, lambda command: None)
    one = standing(reading)
    one.receive_lineage(told(4, 17))
    assert one.checkpoint(0).tasks[0].delivered == ((0, 17),)
    one.receive_lineage(told(9, 40))
    found = one.checkpoint(0).tasks[0]
    assert (found.delivered, found.bases, [state.number for state in found.states]) == (
        ((0, 40),),
        (9,),
        [40],
    )
    reading.passed.add(7000, 42, 44)
    one.receive_lineage(told(10, 45))
    assert one.checkpoint(0).tasks[0].delivered == ((0, 42), (44, 45))
    assert one.checkpoint(2).tasks[0].delivered == ((0, 45),)


def test_a_numbered_consumer_says_its_step() -> None:
    """The checkpoint of a numbered consumer has its step, the views and the task
    indices of the plan, but no rounds.
    """
    reading = Stepping(None, lambda command: None)
    one = standing(reading, m.Reader(0))
    view = m.View(0, ((7000, 0), (7001, 0)))
    places = tuple(m.TaskPlace(task, 1, "w", "w") for task in (7000, 7001))
    plan = m.Plan((view,), 20, {}, indices=((7000, 4), (7001, 6)))
    reading.list(m.TaskList(1, places, False, plan))
    one.list(m.TaskList(1, places, False, plan))
    one.receive_lineage(lineage(7000, 4, 1))
    found = one.checkpoint(0)
    assert (found.step, found.views) == (0, (m.View(0, ((4, 0), (6, 0))),))
    assert [(part.index, part.delivered) for part in found.tasks] == [(4, ())]


def test_who_goes_on_knows_what_it_knew() -> None:
    """A resumed client knows the unfinished tasks of its checkpoint before any worker
    sends lineage, and lacks nothing. In another iteration it does not.
    """
    reading = Reading(None, lambda command: None)
    before = standing(reading)
    before.receive_lineage(lineage(7000, 0, 2))
    reading.passed.add(7000, 0, 5)
    checkpoint = before.checkpoint(5)
    again = Reading(None, lambda command: None)
    places = m.TaskList(1, (m.TaskPlace(8000, 1, "w", "w", 0),), False)
    opened = m.IterationOpened("k", 1, places, delivered_before={8000: ((0, 5),)})
    found = msgspec.structs.replace(opened, seed=checkpoint.seed)
    one, other = standing(again), standing(again)
    again.list(places)
    other.begin(opened)
    assert other.tasks_without_lineage == {8000}
    other.begin(opened, checkpoint)
    assert other.tasks_without_lineage == {8000}
    one.begin(found, checkpoint)
    assert not one.tasks_without_lineage
    assert one.checkpoint(0).tasks == checkpoint.tasks


def opened_again(
    delivered: dict[int, m.Ranges], totals: dict[int, int] | None = None
) -> m.IterationOpened:
    """Return the dispatcher's answer to a client that asks again."""
    gone = m.SourcePart(0, ((0, 3),), 0)
    return m.IterationOpened(
        "k",
        1,
        m.TaskList(2, (), False),
        sources=(gone,),
        delivered_before=delivered,
        totals=totals or {},
    )


def with_another() -> tuple[Reading, Standing]:
    """Return a client that reads two tasks with another client, which has just left."""
    reading = Reading(None, lambda command: None)
    one = standing(reading)
    places = tuple(m.TaskPlace(task, 1, "w", "w", task - 7000) for task in (7000, 7001))
    for readers in (("k", "l"), ("k",)):
        tasks = m.TaskList(1, places, False, readers=readers)
        one.list(tasks)
        reading.list(tasks)
        if len(readers) == 2:
            one.receive_lineage(lineage(7000, 0, 2))
            one.receive_lineage(lineage(7001, 1, 2))
    return reading, one


def test_what_those_had_who_have_left_is_asked_for() -> None:
    """The dispatcher tells what departed clients had and each worker the lineage of it;
    the checkpoint is incomplete until then.
    """
    _, one = with_another()
    assert (one.asks, one.is_behind) == (1, True)
    one.catch_up(opened_again({7000: ((0, 4), (6, 30))}))
    assert (one.is_behind, one.tasks_without_lineage) == (False, {7000})
    one.receive_lineage(lineage(7000, 0, 3))
    assert one.tasks_without_lineage == {7000}
    one.receive_lineage(msgspec.structs.replace(lineage(7000, 0, 3), asks=1, upto=8))
    assert one.tasks_without_lineage == set()
    found = one.checkpoint(0)
    assert [part.delivered for part in found.tasks] == [((0, 4), (6, 8)), ()]
    assert found.sources == (m.SourcePart(0, ((0, 3),), 0),)


def test_a_task_that_is_settled_needs_no_word_of_a_worker() -> None:
    """A settled task is delivered except for elements that this client may replay, and
    a newly settled task makes the client ask again.
    """
    reading, one = with_another()
    reading.passed.add(7000, 5, 7)
    one.catch_up(opened_again({7001: ((0, 2),)}, {7000: 9}))
    assert one.tasks_without_lineage == {7001}
    found = one.checkpoint(0).tasks[0]
    assert (found.delivered, found.total) == (((0, 5), (7, 9)), 9)
    rest = m.TaskList(3, (m.TaskPlace(7002, 1, "w", "w", 2),), False, readers=("k",))
    one.list(rest)
    reading.list(rest)
    assert (one.asks, one.is_behind) == (2, True)
    one.catch_up(opened_again({}, {7000: 9, 7001: 4}))
    assert one.tasks_without_lineage == set()
    assert [part.delivered for part in one.checkpoint(2).tasks] == [((0, 9),), ((0, 4),)]


def test_a_task_that_nobody_hosts_is_asked_for_until_it_is_settled() -> None:
    """The client asks for an unlisted task without a host until it is settled, as no
    worker sends its lineage.
    """
    reading, one = with_another()
    rest = m.TaskList(3, (m.TaskPlace(7000, 1, "w", "w", 0),), False, readers=("k",))
    one.list(rest)
    reading.list(rest)
    for _ in range(2):
        one.catch_up(opened_again({7001: ((0, 2),)}))
        assert (one.is_behind, one.is_whole) == (True, False)
    one.catch_up(opened_again({}, {7001: 4}))
    assert (one.is_behind, one.is_whole) == (False, True)


OVER = m.Origin(0, 77, 0, 8, 2, poisoned=(("/1", 4),))


def static(totals: dict[int, int]) -> m.IterationOpened:
    """Return the answer for a job with static parts and the given settled tasks."""
    over = {
        task: msgspec.structs.replace(OVER, index=task - 7000, shard=task - 7000) for task in totals
    }
    return m.IterationOpened(
        "k", 1, m.TaskList(2, (), True), seed=8, num_shards=2, totals=totals, over=over
    )


@pytest.mark.parametrize("late", [False, True])
def test_a_static_part_that_was_over_before_anything_of_it_came_stays_over(late: bool) -> None:
    """The checkpoint marks a static part over that ended before any lineage came, for
    clients that join and clients that stay.
    """
    reading = Reading(None, lambda command: None)
    one = standing(reading)
    if late:
        one.begin(static({7000: 9}))
    else:
        one.begin(static({}))
        one.list(m.TaskList(1, (), True, readers=("k", "l")))
        one.list(m.TaskList(2, (), True, readers=("k",)))
        one.catch_up(static({7000: 9}))
    (part,) = one.checkpoint(0).tasks
    assert (part.index, part.seed, part.shard, part.delivered, part.total) == (
        0,
        77,
        0,
        ((0, 9),),
        9,
    )
    assert part.poisoned == OVER.poisoned
    assert one.is_whole


def test_what_was_told_of_a_part_that_is_over_is_kept() -> None:
    """The client keeps the lineage of a finished part, as another reader's state may
    lack it.
    """
    reading = Reading(None, lambda command: None)
    one = standing(reading)
    one.begin(static({}))
    one.receive_lineage(lineage(7000, 0, 2))
    told = one.checkpoint(0).tasks[0]
    one.kept.know(7000, OVER)
    assert one.checkpoint(0).tasks[0] == told


def test_splits_that_were_given_up_before_they_were_told_are_asked_for() -> None:
    """The client asks the dispatcher for released splits when a host begins behind
    entries that the client was never told.
    """
    reading = Reading(None, lambda command: None)
    one = standing(reading)
    one.begin(m.IterationOpened("k", 1, m.TaskList(1, (), False)))
    first = lineage(7000, 0, 2)
    one.receive_lineage(first)
    assert one.is_whole
    behind = msgspec.structs.replace(first, bases=(4,), ledger=((Split(0, 9, 11),),), attempt=2)
    one.receive_lineage(behind)
    assert (one.asks, one.is_behind) == (1, True)
    one.catch_up(opened_again({}))
    assert one.is_whole
    one.receive_lineage(behind)
    assert one.asks == 1


@pytest.mark.parametrize("entries", [(), (Split(0, 20, 30),)])
def test_an_entry_that_was_told_in_part_and_then_given_up_is_asked_for(
    entries: tuple[Split, ...],
) -> None:
    """The client asks the dispatcher for a partly told entry when the next host begins
    right behind it, as that host omits its end.
    """
    one = standing(Reading(None, lambda command: None))
    one.begin(m.IterationOpened("k", 1, m.TaskList(1, (), False)))
    told = msgspec.structs.replace(
        lineage(7000, 0, 2), ledger=((Split(0, 0, 10), Split(0, 10, 13)),), states=()
    )
    one.receive_lineage(told)
    more = msgspec.structs.replace(told, origin=None, bases=(1,), ledger=((Split(0, 10, 17),),))
    one.receive_lineage(more)
    assert one.is_whole
    one.receive_lineage(msgspec.structs.replace(more, bases=(2,), ledger=((Split(0, 20, 24),),)))
    assert one.is_whole
    one.receive_lineage(msgspec.structs.replace(told, bases=(3,), ledger=(entries,), attempt=2))
    assert (one.asks, one.is_behind) == (1, True)


def test_who_joins_where_entries_were_given_up_asks_which() -> None:
    """A client that joins asks for released entries, as the dispatcher's answer may be
    outdated. It does not ask for entries of its own state.
    """
    reading = Reading(None, lambda command: None)
    one = standing(reading)
    one.begin(m.IterationOpened("k", 1, m.TaskList(1, (), False)))
    one.receive_lineage(
        msgspec.structs.replace(lineage(7000, 0, 2), bases=(4,), ledger=((Split(0, 9, 11),),))
    )
    assert one.is_behind
