"""Tests of ``zmqdata.core.dispatcher.tasks.holdings``."""

from __future__ import annotations

from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.holdings import Holdings
from zmqdata.core.ranges import RangeSet
from zmqdata.messages import JobParameters


def task(total: int | None = None, delivered: tuple[tuple[int, int], ...] = ()) -> Task:
    return Task(4000, 2000, 1, [], total=total, delivered=RangeSet(delivered))


def test_the_wait_ends_with_the_last_answer() -> None:
    """A fence stays until each asked client has answered once."""
    holdings, one = Holdings(), task()
    holdings.ask(one, {"k", "l"})
    assert holdings.answer(one, "k")
    assert not holdings.answer(one, "k")
    assert not holdings.close(one)
    assert holdings.is_open(one)
    assert holdings.answer(one, "l")
    assert holdings.close(one)
    assert not holdings.is_open(one)


def test_what_is_held_or_delivered_is_not_owed() -> None:
    """A task owes the elements that no client has, and a task without a known total
    always owes something.
    """
    holdings, one = Holdings(), task(10, ((0, 4),))
    assert holdings.owes(one)
    one.held["k"] = RangeSet([(4, 10)])
    assert holdings.taken(one).ranges == ((0, 10),)
    assert not holdings.owes(one)
    assert holdings.owes(task())


def test_a_client_that_is_gone_is_not_waited_for() -> None:
    """Dropping a client counts as its answer."""
    holdings, one = Holdings(), task()
    holdings.ask(one, {"k", "l"})
    holdings.answer(one, "k")
    assert not holdings.close(one)
    holdings.drop(one, "l")
    assert holdings.close(one)


def test_a_settled_task_leaves_nothing_behind() -> None:
    """Forgetting a task twice has the same effect as once."""
    holdings = Holdings()
    holdings.ask(task(), {"k"})
    holdings.forget(4000)
    holdings.forget(4000)
    assert holdings.waiting == {}


def test_the_rest_is_asked_after_a_restart() -> None:
    """After a restart the dispatcher asks only clients without a known answer, and with
    none left the fence ends.
    """
    holdings, one = Holdings(), task()
    one.held["k"] = RangeSet([(0, 5)])
    holdings.ask_rest(one, {"k", "l"})
    assert holdings.waiting == {4000: {"l"}}
    holdings.forget(4000)
    holdings.ask_rest(one, {"k"})
    assert not holdings.is_open(one)


def test_what_a_client_holds_alone_is_known() -> None:
    """A task with undelivered elements at a client must be made again without them."""
    job = JobParameters("job", "dataset", "DYNAMIC")
    holdings, iteration, one = Holdings(), Iteration(2000, job, 0, 7, []), task(10, ((0, 4),))
    iteration.tasks[4000] = one
    one.held = {"k": RangeSet([(0, 3)]), "l": RangeSet([(3, 6)])}
    assert [holdings.only_with(client, iteration) for client in "klm"] == [set(), {4000}, set()]
