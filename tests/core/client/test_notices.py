"""Test what a client tells its user."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.notices import Notices
from zmqdata.core.client.tasks import Reading

OPEN = m.TaskList(1, (), closed=False)


class Listener:
    """A client's user with the messages so far."""

    def __init__(self, **reader: Any) -> None:
        self.said: list[tuple[str, str]] = []
        self.notices = Notices("job", m.Reader(**reader), "tcp://d:1", 60.0, 8, self._take)
        self.reading = Reading(None, self._take)

    def _take(self, command: object) -> None:
        assert isinstance(command, e.LogLine)
        self.said.append((command.level, command.text))

    def complain(
        self,
        now: float,
        opened: bool = True,
        held: bool = True,
        tasks: m.TaskList = OPEN,
    ) -> str:
        """Return the last message up to now."""
        self.notices.complain(now, opened, held, self.reading, tasks)
        return self.said[-1][1] if self.said else ""


def opened(
    delivered: int = 0,
    finished: bool = False,
    shared: bool = False,
    step: int = 0,
    how: str = "follows",
    age: float = 0.0,
) -> m.IterationOpened:
    return m.IterationOpened(
        "me",
        7,
        OPEN,
        delivered=delivered,
        finished=finished,
        shared=shared,
        step=step,
        repetition=2,
        incarnation=3,
        how=how,
        age=age,
    )


def test_a_late_reader_is_told_what_others_have_read() -> None:
    """The client warns that all or a part of the job was read before, unless present
    members of its run have it.
    """
    listener = Listener()
    for message in (
        opened(how="begun"),
        opened(),
        opened(5, shared=True),
        opened(5),
        opened(5, shared=True, how="joined", age=12.3),
        opened(8, finished=True, shared=True),
    ):
        listener.notices.joined(message)
    assert not listener.said, "a state may be loaded first"
    listener.notices.wanted()
    assert [level for level, _ in listener.said] == ["warning"] * 3
    alone, shared, late = [text for _, text in listener.said]
    assert "job 'job', repetition 2, incarnation 3: this client reads on with its run" in alone
    assert "5 of 8 elements were delivered before, and this client receives only" in alone
    assert "reads with another run, which began 12 s ago; 5 of 8 elements" in shared
    assert "others read, too. To read the dataset from its beginning, pass on_existing" in shared
    assert "start the program again or use another job_name" in late
    assert "this repetition has ended before, and none of its elements is left" in late


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("restarted", "takes the place of a process of its run that is gone"),
        ("continued", "continues what an earlier run has left"),
        ("loaded", "continues from a state"),
    ],
)
def test_all_but_a_plain_start_is_told(how: str, text: str) -> None:
    """The client logs how it came to its iteration, unless it begins the iteration or
    follows its run.
    """
    listener = Listener()
    listener.notices.wanted()
    listener.notices.joined(opened(how=how))
    assert [(level, text in said) for level, said in listener.said] == [("info", True)]


def test_sharing_with_another_run_is_a_warning() -> None:
    """The client warns that another run gets a part of the elements, unless consumers
    or trainers of a cache join.
    """
    levels = []
    for reader in ({}, {"consumer_index": 0}, {"trainer_id": "t"}):
        listener = Listener(**reader)
        listener.notices.wanted()
        listener.notices.joined(opened(how="joined"))
        levels += [level for level, text in listener.said if "reads with another run" in text]
    assert levels == ["warning", "info", "info"]


def test_a_consumer_of_another_run_that_takes_over_is_a_warning() -> None:
    """The client warns that it continues in the middle of what another run reads."""
    listener = Listener(consumer_index=1)
    listener.notices.wanted()
    listener.notices.joined(opened(step=30, how="joined"))
    [(level, text)] = listener.said
    assert level == "warning"
    assert text.endswith("reads with another run; consumer 1 continues at step 30")


def test_what_was_asked_for_is_no_warning() -> None:
    """A client that continues an earlier run is told the share that is gone, without a
    warning.
    """
    listener = Listener()
    listener.notices.wanted()
    listener.notices.joined(opened(5, how="continued"))
    assert [(level, "5 of 8 elements" in said) for level, said in listener.said] == [("info", True)]


def test_a_successor_is_told_where_it_goes_on() -> None:
    """A consumer that begins behind the first step notes its step."""
    listener = Listener(consumer_index=1)
    listener.notices.wanted()
    listener.notices.joined(opened(delivered=5))
    listener.notices.joined(opened(step=12))
    [(level, text)] = listener.said
    assert level == "info"
    assert text.endswith("reads on with its run; consumer 1 continues at step 12")


def test_a_client_that_was_given_up_says_what_goes_to_others() -> None:
    """A client that was given up lists the elements that go to other clients, or that
    may come twice.
    """
    listener = Listener()
    listener.notices.given_up("It was silent.", 30, 4)
    assert (
        "It was silent. The 30 elements that it held go to other clients, and so do 4 elements"
        in listener.said[0][1]
    )


def test_skipped_elements_are_told_now_and_then() -> None:
    """The client counts elements skipped in shared caches over all workers, and notes a
    larger count every ten seconds.
    """
    listener = Listener(trainer_id="a")
    listener.notices.tell_skipped(0.0)
    listener.notices.count_skipped("link 1", 3)
    listener.notices.count_skipped("link 2", 4)
    for now in (1.0, 2.0, 12.0):
        listener.notices.tell_skipped(now)
    listener.notices.count_skipped("link 1", 5)
    listener.notices.tell_skipped(13.0)
    assert [text.split(" elements")[0] for _, text in listener.said] == ["7", "2"]


def test_a_dispatcher_is_not_waited_for_without_end() -> None:
    """After the time-out the client gives the dispatcher up, with the reason and what
    to check.
    """
    notices = Listener().notices
    notices.heard = 10.0
    assert notices.is_too_silent(69.0) == ""
    assert "tcp://d:1 has not answered for 60 s (dispatcher_timeout=60 s)" in notices.is_too_silent(
        70.0
    )


def test_a_silent_dispatcher_is_named() -> None:
    """The client notes a silent dispatcher every ten seconds, with the effect on
    elements that it holds.
    """
    listener = Listener()
    assert listener.complain(4.0) == ""
    assert listener.complain(6.0).endswith("still trying (dispatcher_timeout=60 s)")
    assert len(listener.said) == 1
    assert "until it answers, no element is handed out" in listener.complain(16.0, held=False)


class Waiter(Listener):
    """A listener whose training loop waits."""

    at = 0.0

    def waits(
        self,
        tasks: m.TaskList = OPEN,
    ) -> str:
        """Return the message after ten further seconds without an element."""
        for _ in range(2):
            self.at += 10.0
            self.notices.heard = self.at
            self.complain(self.at, tasks=tasks)
        return self.said[-1][1]


def test_what_is_waited_for_is_named() -> None:
    """The client notes for which job it waits, and whether it waits for a worker, a
    consumer, a host, an unhosted task or the end.
    """
    waiter = Waiter(consumer_index=2)
    waiter.notices.idle = m.IdleWorkers(0, 0)
    text = waiter.waits()
    assert text.startswith(
        "job 'job', consumer 2: waiting for 10 s for a worker to host its first task: no worker "
        "is registered at tcp://d:1. If no host"
    )
    plan = m.TaskList(2, (), True, m.Plan((), 0, {}, (1, 2)))
    assert waiter.waits(plan).endswith("s for consumer 1, 2 of this job, still without a client")
    waiter.notices.ranks = "`WORLD_SIZE=3` makes it one"
    assert waiter.waits(plan).endswith("still without a client. `WORLD_SIZE=3` makes it one")
    waiter.notices.joined(opened())
    assert waiter.waits(m.TaskList(3, (), True)).endswith("s for the end of the iteration")
    tasks = m.TaskList(3, (m.TaskPlace(1, 1, "w", "w:1"), m.TaskPlace(2, 1, "", "")), True)
    waiter.reading.list(tasks)
    text = waiter.waits(tasks)
    assert text.startswith("job 'job', repetition 2, consumer 2: waiting for ")
    assert text.endswith("s for elements of worker w:1, and for a worker to host 1 further task")
    assert "trainer 'fast': waiting" in Waiter(trainer_id="fast").waits()


@pytest.mark.parametrize(
    ("idle", "reason"),
    [
        (None, "no worker has a task that this client may read. `zmqdata status"),
        (m.IdleWorkers(0, 0), "no worker is registered at tcp://d:1. If no host"),
        (m.IdleWorkers(1, 0), "none of 1 registered worker may host it. Each is about to leave"),
        (m.IdleWorkers(3, 2), "of 3 registered workers, 2 may run this job, and none is the place"),
    ],
)
def test_why_no_worker_hosts_a_task_is_said(idle: m.IdleWorkers | None, reason: str) -> None:
    """A client without a task, or whose tasks have all lost their hosts, says why no
    worker hosts one: none is registered, none may, or none is the place of the task.
    """
    waiter = Waiter()
    waiter.notices.idle = idle
    assert f"for a worker to host its first task: {reason}" in waiter.waits()
    for count, tasks_left in ((1, "the task that has"), (2, "the 2 tasks that have")):
        waiter = Waiter()
        waiter.notices.idle = idle
        places = tuple(m.TaskPlace(number, 1, "", "") for number in range(count))
        tasks = m.TaskList(1, places, True)
        waiter.reading.list(tasks)
        expected = f"for a worker to host {tasks_left} further elements: {reason}"
        assert expected in waiter.waits(tasks)


def test_silent_workers_are_named_first() -> None:
    """A client that waits for many workers names the most silent ones, with the seconds
    of their silence, and counts the others.
    """
    waiter = Waiter()
    places = tuple(m.TaskPlace(number, 1, "w", f"w:{number}") for number in range(9))
    tasks = m.TaskList(1, places, True)
    waiter.reading.list(tasks)
    waiter.notices.silences = lambda now: {"w:7": 14.2, "w:3": 60.0, "w:1": 0.3}
    assert waiter.waits(tasks).endswith(
        "for elements of worker w:3 (silent for 60 s), worker w:7 (silent for 14 s), worker w:1, "
        "worker w:0, worker w:2 and 4 other workers"
    )


def test_a_loop_that_takes_each_element_at_once_waits_for_nothing() -> None:
    """A loop that takes each element at once does not count as waiting, as the client
    counts the taken elements.
    """
    listener = Listener()
    for now in range(60):
        listener.notices.heard = float(now)
        if now < 40:
            listener.reading.passed.add(1, now, now + 1)
        listener.complain(float(now))
    [(_, text)] = listener.said
    assert text.startswith("job 'job': waiting for 10 s for a worker to host its first task")


def test_for_whom_a_state_waits_is_named() -> None:
    """The client names the states that it waits for until its iteration opens, and
    ignores answers to other clients.
    """
    listener = Listener()
    listener.notices.heard = 100.0
    listener.notices.waits(m.OpenAwaited("other", "nobody"), "me")
    assert listener.complain(20.0, opened=False) == ""
    listener.notices.waits(m.OpenAwaited("me", "the state of consumer 1"), "me")
    listener.complain(30.0, opened=False)
    assert listener.complain(40.0, opened=False) == (
        "job 'job': waiting for 10 s for the state of consumer 1"
    )
    listener.notices.joined(opened())
    assert "no worker" in listener.complain(50.0)


def test_nothing_is_missing_while_there_is_something_to_hand_out() -> None:
    """The client counts waiting time only while the training loop waits."""
    listener = Listener()
    listener.reading.waiting = 1
    for now in range(0, 100, 5):
        listener.notices.heard = float(now)
        assert listener.complain(float(now)) == ""


def test_time_in_which_nobody_read_here_is_no_waiting() -> None:
    """Time in which the client did not run counts neither as silence of the dispatcher
    nor as time without elements.
    """
    listener = Listener()
    listener.complain(0.0)
    listener.notices.forgive(100.0)
    assert listener.notices.heard == 100.0
    listener.notices.heard = 112.0
    assert "for 12 s" in listener.complain(112.0)
