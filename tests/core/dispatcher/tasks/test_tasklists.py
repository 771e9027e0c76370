"""Test the task lists that clients get. ``test_hosting`` tests the placement of
tasks.
"""

from __future__ import annotations

from msgspec import structs

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.holdings import Holdings
from zmqdata.core.dispatcher.tasks.placement import Placement, WorkerFacts
from zmqdata.core.dispatcher.tasks.tasklists import TaskLists
from zmqdata.core.ranges import RangeSet

JOB = m.JobParameters("job", "dataset", "DYNAMIC")


class Board:
    """Task lists of an iteration with two clients, of which only the first is
    connected.
    """

    def __init__(self, *tasks: Task) -> None:
        self.out, self.clients, placement = Outbox(1), Roster(), Placement()
        placement.add("a", WorkerFacts("tcp://a", (), "3.11"))
        self.clients.hear("k", "peer-k", 0.0)
        self.iteration = Iteration(
            2000, JOB, 0, 7, [], {task.task: task for task in tasks}, {"k", "l"}
        )
        self.state: DispatcherState = self.out.state
        self.state.iterations[2000] = self.iteration
        self.lists = TaskLists(self.out, self.clients, placement, Holdings())

    def news(
        self, client: str, now: float, version: int, mark: int | None = None
    ) -> m.TaskList | None:
        mark = self.out.mark if mark is None else mark
        beat = m.ClientHeartbeat(client, version, 0, {}, task_mark=mark)
        return self.lists.news(self.iteration, beat, now)

    def sent(self) -> list[m.TaskList]:
        self.lists.push(0.0)
        sent = [one for one in self.out.drain() if isinstance(one, e.Send)]
        assert {one.peer for one in sent} <= {"peer-k"}
        return [one.message.task_list for one in sent if isinstance(one.message, m.TasksChanged)]


def test_a_list_names_what_still_owes_elements() -> None:
    """A list names hosted and waiting tasks, without tasks whose elements were all
    delivered.
    """
    settled = Task(3, 2000, 1, [], total=0)
    board = Board(
        Task(1, 2000, 1, [], attempt=1, worker="a"), Task(2, 2000, 1, [], attempt=2), settled
    )
    assert board.lists.task_list(board.iteration, "k").tasks == (
        m.TaskPlace(1, 1, "a", "tcp://a", 0),
        m.TaskPlace(2, 2, "", "", 0),
    )


def test_a_change_is_pushed_once() -> None:
    """Each connected client gets a single list at the end of a turn, with the next
    version.
    """
    board = Board(Task(1, 2000, 1, [], attempt=1, worker="a"))
    board.lists.tell(board.iteration)
    board.lists.tell(board.iteration)
    [first] = board.sent()
    assert (board.sent(), first.version) == ([], 1)
    board.lists.tell(board.iteration)
    assert [one.version for one in board.sent()] == [2]


def test_a_list_of_another_start_is_replaced() -> None:
    """A client that has a list of a former dispatcher gets a new one, even if both have
    the same version.
    """
    board = Board()
    mark, version = board.out.mark, board.lists.version(2000)
    assert board.news("k", 0.0, version=version, mark=mark) is None
    assert board.news("k", 0.0, version=version, mark=mark + 1) is not None


def test_tasks_of_which_others_have_all_are_owed_elsewhere() -> None:
    """A task without a host whose elements a client has, or had, is no place, and is
    still named until they are delivered.
    """
    held = Task(1, 2000, 1, [], attempt=2, total=5, held={"dead": RangeSet([(0, 5)])})
    board = Board(held, Task(2, 2000, 1, [], attempt=1, worker="a"))
    found = board.lists.task_list(board.iteration, "k")
    assert ([place.task for place in found.tasks], found.owed_elsewhere) == ([2], (1,))
    held.delivered.add(0, 5)
    assert board.lists.task_list(board.iteration, "k").owed_elsewhere == ()


def test_consumers_are_told_their_plan() -> None:
    """The list carries the plan for numbered consumers."""
    board = Board()
    plan = m.Plan((), 4, {})
    board.lists.plan = lambda iteration: plan
    assert board.lists.task_list(board.iteration, "k").plan is plan


def test_nothing_is_left_of_an_iteration() -> None:
    """The version of a list is removed with its iteration."""
    board = Board()
    board.lists.tell(board.iteration)
    board.lists.push(0.0)
    board.lists.forget(2000)
    assert board.lists.versions == {}


def test_large_lists_are_told_in_rounds() -> None:
    """The dispatcher sends a limited number of task places at a time, and changes wait
    for the next round with its own version.
    """
    board = Board(*[Task(number, 2000, 1, [], attempt=1, worker="a") for number in range(5_000)])
    names = [f"k{number:02}" for number in range(40)]
    board.iteration.clients = set(names)
    for name in names:
        board.clients.hear(name, name, 0.0)
    board.lists.tell(board.iteration)
    board.lists.push(0.0)
    told = [one.message for one in board.out.drain()]
    assert 0 < len(told) < 40
    assert {id(one.task_list) for one in told} == {id(told[0].task_list)}
    board.lists.tell(board.iteration)
    board.lists.push(0.0)
    assert board.out.drain() == []
    for tenth in range(1, 20):
        board.lists.push(tenth / 10)
    later = [one.message for one in board.out.drain()]
    versions = [one.task_list.version for one in told + later]
    assert versions == sorted(versions)
    assert {one.client for one in told + later if one.task_list.version == 1} == set(names)
    assert versions[-1] == 2


def test_who_speaks_hears_the_round_that_goes_on() -> None:
    """A heartbeat gets the list of the present round if it was not sent yet, and
    nothing while it may be in flight.
    """
    board = Board(*[Task(number, 2000, 1, [], attempt=1, worker="a") for number in range(60_000)])
    board.clients.hear("l", "peer-l", 0.0)
    board.lists.tell(board.iteration)
    board.lists.push(0.0)
    [first] = board.out.drain()
    assert first.message.client == "k"
    assert board.news("k", 0.0, version=0) is None
    assert board.news("l", 0.0, version=0) is first.message.task_list
    board.lists.push(9.0)
    assert board.out.drain() == []
    assert board.news("k", 9.0, version=0) is first.message.task_list
    assert board.news("k", 9.0, version=1) is None


def test_a_list_counts_what_ended_tasks_have_left_out() -> None:
    """A list has the number of elements that each ended task has left out, without
    tasks that have left out none or are no longer part of the iteration.
    """
    gone = Task(4, 2000, 1, [], total=3, left_out=3, removed=True)
    board = Board(*(Task(n, 2000, 1, [], total=3, left_out=n % 3) for n in (1, 2, 3)), gone)
    assert board.lists.task_list(board.iteration, "k").left_out_of == {1: 1, 2: 2}


def test_a_list_names_what_workers_leave_out() -> None:
    """A list names skipped elements with their details, also of settled tasks, but not
    if they fail the job.
    """
    work = m.Work(1, 1, 7, "/0", "map(f)", True, (3, 4))
    first = Task(1, 2000, 1, [], index=4, total=0, poisoned={("/0", 7): "died"})
    first.deaths[1] = u.CountDeathUpdate(1, 1, "died", False, (work,))
    board = Board(first, Task(2, 2000, 1, [], poisoned={("/1", 9): "died, too"}))
    assert board.lists.task_list(board.iteration, "k").left_out == ()
    board.iteration.job = structs.replace(JOB, on_poison="skip")
    assert board.lists.task_list(board.iteration, "k").left_out == (
        m.LeftOutElement(4, "/0", 7, "map(f)", "died", (3, 4)),
        m.LeftOutElement(0, "/1", 9, "", "died, too"),
    )
