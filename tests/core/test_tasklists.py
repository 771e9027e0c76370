"""Facts about what clients are told of their tasks. Where tasks go is in ``test_hosting``."""

from __future__ import annotations

from zmqdata import commands as c
from zmqdata import messages as m
from zmqdata.core.holdings import Holdings
from zmqdata.core.liveness import Roster
from zmqdata.core.outbox import Outbox
from zmqdata.core.placement import Placement, WorkerFacts
from zmqdata.core.state import DispatcherState, Iteration, Task
from zmqdata.core.tasklists import TaskLists

JOB = m.JobParameters("job", "dataset", "DYNAMIC")


class Board:
    """Task lists of one iteration with two clients, one of which is connected."""

    def __init__(self, *tasks: Task) -> None:
        self.out, self.clients, placement = Outbox(1), Roster(), Placement()
        placement.facts["a"] = WorkerFacts("tcp://a", (), "3.11")
        self.clients.heard("k", "peer-k", 0.0)
        self.iteration = Iteration(2000, JOB, 0, 7, [], {task.task: task for task in tasks}, {"k", "l"})
        self.state: DispatcherState = self.out.state
        self.state.iterations[2000] = self.iteration
        self.lists = TaskLists(self.out, self.clients, placement, Holdings())

    def sent(self) -> list[m.TaskList]:
        self.lists.push()
        sent = [one for one in self.out.drain() if isinstance(one, c.Send)]
        assert {one.peer for one in sent} <= {"peer-k"}
        return [one.message.task_list for one in sent if isinstance(one.message, m.TasksChanged)]


def test_a_list_names_what_still_owes_elements() -> None:
    """Tasks at a host, and those that wait for one; not those of which everything was delivered."""
    settled = Task(3, 2000, 1, [], total=0)
    board = Board(Task(1, 2000, 1, [], attempt=1, worker="a"), Task(2, 2000, 1, [], attempt=2), settled)
    assert board.lists.task_list(board.iteration, "k").tasks == (
        m.TaskPlace(1, 1, "a", "tcp://a", 0),
        m.TaskPlace(2, 2, "", "", 0),
    )


def test_a_change_is_pushed_once() -> None:
    """Each connected client gets one list at the end of a turn, with the next version."""
    board = Board(Task(1, 2000, 1, [], attempt=1, worker="a"))
    board.lists.tell(board.iteration)
    board.lists.tell(board.iteration)
    [first] = board.sent()
    assert (board.sent(), first.version) == ([], 1)
    board.lists.tell(board.iteration)
    assert [one.version for one in board.sent()] == [2]


def test_versions_grow_over_restarts() -> None:
    """A dispatcher's lists replace all of those before it."""
    board = Board()
    board.state.life = 3
    assert board.lists.version(2000) == 3 << 32


def test_consumers_are_told_their_plan() -> None:
    """What the numbered consumers may read goes along."""
    board = Board()
    plan = m.Plan((), 4, {})
    board.lists.plan = lambda iteration: plan
    assert board.lists.task_list(board.iteration, "k").plan is plan


def test_nothing_is_left_of_an_iteration() -> None:
    """Its version goes with it."""
    board = Board()
    board.lists.tell(board.iteration)
    board.lists.push()
    board.lists.forget(2000)
    assert board.lists.versions == {}
