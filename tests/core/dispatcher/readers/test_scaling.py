"""Test the needs of jobs, and the number of workers that a dispatcher decides from
them.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.dispatcher.rundesk import CLIENT_TIMEOUT, JOB, Desk
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.readers.scaling import most_workers
from zmqdata.core.dispatcher.state.tasks import Iteration, IterationFailure
from zmqdata.core.ledger import SplitCursor
from zmqdata.measures.scaling import DOWN_AFTER
from zmqdata.splits import FileSplits, IndexSplits

MADE = m.TaskSums(seconds=10.0, making=10.0, elements=50.0)
WAITING = m.LoopSums(seconds=10.0, waiting=6.0, elements=100.0)
STARVED = m.LoopMeasures(WAITING, WAITING, 0.1, pace=0.04)
"""A loop that five workers would feed, of which each makes an element in 0.2 s."""
PAUSED = replace(STARVED, waiting=3, idle=5.0)


def read(desk: Desk, client: str, job: m.JobParameters = JOB) -> m.IterationOpened:
    """Open a job with a loop that waits, and let the worker and the loop report."""
    opened = desk.opened(client, f"run of {job.name}", job=job)
    reports = tuple(
        m.TaskReport(
            task.task,
            task.attempt,
            50,
            None,
            measures=m.TaskMeasures(task.task, task.attempt, MADE, MADE),
        )
        for task in desk.core.state.iterations[opened.iteration].tasks.values()
    )
    desk.hear("w", m.WorkerHeartbeat("w", reports, ()))
    tell(desk, client, STARVED)
    return opened


def tell(desk: Desk, client: str, measures: m.LoopMeasures) -> None:
    desk.hear(client, m.ClientHeartbeat(client, 0, 0, {}, measures=measures))


def workers(desk: Desk, seconds: float, *alive: str) -> int:
    """Return the number after some seconds in which these clients send heartbeats, and
    somebody asks once a second.
    """
    for _ in range(round(seconds)):
        desk.wait(1.0, *alive)
        desk.core.desired.decision(desk.now)
    return desk.core.desired.decision(desk.now).workers


def test_the_number_is_what_loops_need() -> None:
    """The number is what the verdict on each job says, over all jobs, with the reason
    in words. Nobody needs a worker before.
    """
    desk = Desk()
    assert workers(desk, 5.0) == 0
    read(desk, "a")
    assert workers(desk, 5.0, "a") == 5
    read(desk, "b", replace(JOB, name="other"))
    assert workers(desk, 5.0, "a", "b") == 10
    assert desk.core.desired.decision(desk.now).reason == "2 jobs need 10 workers."


def test_a_need_that_is_not_known_takes_no_worker() -> None:
    """Before a loop has reported, the workers that are there stay."""
    desk = Desk()
    desk.hear("v", m.RegisterWorker("v", "tcp://v:1", (), "3.11", "0", ()))
    desk.opened("a", "run")
    assert workers(desk, 5.0, "a") == 2


def test_a_pause_keeps_the_need() -> None:
    """A loop that takes nothing of what is there keeps its workers, also if its verdict
    says nothing any more. A loop that waits for its input needs as many as before.
    """
    desk = Desk()
    read(desk, "a")
    assert workers(desk, 5.0, "a") == 5
    quiet = m.LoopSums(seconds=10.0)
    tell(desk, "a", replace(PAUSED, recent=quiet))
    assert workers(desk, 2 * DOWN_AFTER, "a") == 5
    assert "as last measured" in desk.core.desired.decision(desk.now).reason
    tell(desk, "a", replace(PAUSED, pace=0.4))  # of which one worker would feed the loop
    assert workers(desk, 2 * DOWN_AFTER, "a") == 5
    tell(desk, "a", STARVED)
    assert workers(desk, 2 * DOWN_AFTER, "a") == 5
    assert desk.core.desired.decision(desk.now).reason == "1 job needs 5 workers."


def test_a_job_pauses_if_all_of_its_loops_do() -> None:
    """While one of two loops reads on, the need is that of both."""
    desk = Desk()
    opened = read(desk, "a")
    assert read(desk, "b").iteration == opened.iteration
    tell(desk, "a", PAUSED)
    assert workers(desk, 5.0, "a", "b") == 10
    tell(desk, "b", replace(STARVED, pace=0.4))
    assert workers(desk, 2 * DOWN_AFTER, "a", "b") == 6


def test_between_two_passes_the_need_stays() -> None:
    """A job that was read to the end of its pass keeps its need until its run begins
    the next, and while that one has not been measured.
    """
    desk = Desk()
    opened = read(desk, "a")
    assert workers(desk, 5.0, "a") == 5
    desk.finish(opened.incarnation, 0, "a")
    assert workers(desk, 180.0) == 5
    desk.opened("a2", "run of job", repetition=1)
    assert workers(desk, 2 * DOWN_AFTER, "a2") == 5


def test_the_need_stays_while_the_last_elements_are_read() -> None:
    """Once workers have made everything, a loop that reads the rest keeps them for the
    next pass.
    """
    desk = Desk()
    opened = read(desk, "a")
    assert workers(desk, 5.0, "a") == 5
    one = desk.core.state.iterations[opened.iteration]
    for task in list(one.tasks.values()):
        desk.core.out.commit(u.EndTaskUpdate(task.task, 50))
    desk.core.out.commit(u.CloseTaskListUpdate(opened.iteration))
    one.cursors[0].next = 100
    assert (most_workers(one), one.finished) == (0, False)
    assert workers(desk, 2 * DOWN_AFTER, "a") == 5
    assert "as last measured" in desk.core.desired.decision(desk.now).reason


def test_a_job_that_was_left_needs_nothing() -> None:
    """A job whose loop has left it before the end of its pass needs no worker after
    ``down_after``.
    """
    desk = Desk()
    read(desk, "a")
    assert workers(desk, 5.0, "a") == 5
    desk.close("a")
    assert workers(desk, DOWN_AFTER - 5.0) == 5
    assert workers(desk, 10.0) == 0


def test_a_silent_loop_needs_nothing() -> None:
    """A loop that has been silent for the client time-out counts as gone, although its
    job waits for it. It needs as many workers as before when it comes back.
    """
    desk = Desk()
    read(desk, "a")
    assert workers(desk, 5.0, "a") == 5
    desk.lose("a")
    assert workers(desk, DOWN_AFTER - 5.0) == 5
    assert workers(desk, CLIENT_TIMEOUT + 10.0) == 0
    assert workers(desk, 10.0, "a") == 5


def test_a_job_that_has_failed_needs_nothing() -> None:
    """An error that ended a job ends its need, although its loop has not left yet."""
    desk = Desk()
    opened = read(desk, "a")
    assert workers(desk, 5.0, "a") == 5
    failed = IterationFailure("DataLossError", "A file is gone.", b"")
    desk.core.state.iterations[opened.iteration].failure = failed
    assert workers(desk, 2 * DOWN_AFTER, "a") == 0


def test_a_job_never_gets_more_than_it_has_tasks() -> None:
    """A job of a promised order needs at most as many workers as it has tasks."""
    desk = Desk()
    read(desk, "a", replace(JOB, num_tasks=3))
    assert workers(desk, 10.0, "a") == 3


def iteration(*cursors: SplitCursor, shards: int = 0, running: int = 0) -> Iteration:
    return Iteration(2000, JOB, 0, 7, list(cursors), num_shards=shards, running=running)


@pytest.mark.parametrize(
    ("one", "most"),
    [
        (iteration(), None),
        (iteration(shards=4, running=2), 4),
        (iteration(SplitCursor(IndexSplits(10))), 10),
        (iteration(SplitCursor(IndexSplits(10), next=7), running=2), 5),
        (iteration(SplitCursor(IndexSplits(10), next=10), running=2), 2),
        (iteration(SplitCursor(IndexSplits(10), next=10)), 0),
        (iteration(SplitCursor(IndexSplits(10)), SplitCursor(IndexSplits(3)), running=1), 14),
        (iteration(SplitCursor(IndexSplits(None))), None),
        (iteration(SplitCursor(FileSplits(("*",), False, None))), None),
    ],
)
def test_the_input_limits_the_number(one: Iteration, most: int | None) -> None:
    """The limit is the number of shards, or of the splits that are left and the tasks
    that are at one. Endless input, and files that are not listed yet, have none.
    """
    assert most_workers(one) == most


def test_a_save_keeps_the_workers_that_write_it() -> None:
    """Workers that write a save are not taken away, although nothing says how many it
    needs.
    """
    desk = Desk()
    save = m.SaveParameters("saved", "id")
    desk.core.out.commit(u.BeginIncarnationUpdate(900, replace(JOB, name="save", save=save)))
    desk.core.out.commit(u.CreateIterationUpdate(901, 900, 0, 7, 0))
    assert workers(desk, 5.0) == 1


def test_one_program_holds_the_place_for_three_intervals() -> None:
    """Another program gets the place once the first was silent for three of its
    intervals, or has given it up.
    """
    desired = Desk().core.desired
    assert desired.claim("a", 5.0, 0.0) == "a"
    assert desired.claim("b", 1.0, 14.9) == "a"
    assert desired.claim("b", 1.0, 15.0) == "b"
    assert desired.claim("a", 5.0, 17.0) == "b"
    assert desired.claim("b", 0.0, 17.0) == "b"
    assert desired.claim("a", 5.0, 17.0) == "a"


def test_processes_are_counted_by_name() -> None:
    """Workers count as the median of those with a name, or as one process."""
    desk = Desk()
    assert desk.core.desired.processes() == 1
    for name in ("x/0", "x/1", "x/2", "y/0", "y/1", "z"):
        worker = m.RegisterWorker(name, f"tcp://{name}:1", (), "3.11", "0", (), name=name)
        desk.hear(name, worker)
    assert desk.core.desired.processes() == 2
