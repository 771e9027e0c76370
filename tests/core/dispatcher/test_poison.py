"""Facts about deaths of workers: which element is to blame, and what follows."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.core.dispatcher.lineage import definition_of
from zmqdata.core.dispatcher.poison import LONG, MOST_DEATHS, MOST_IN_ALL, MOST_UNEXPLAINED
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.ranges import RangeSet
from zmqdata.splits import FileSplits, IndexSplits, Split, SplitSource
from zmqdata.testing import Transcript

ROWS = IndexSplits(100)
LABEL = "map(parse) at train.py:12"


class Fleet(Transcript):
    """Two workers, ``a`` and ``b``, of a job that a client reads; whoever dies has a
    successor, numbered on.
    """

    core: DispatcherCore

    def __init__(self, mode: str = "DYNAMIC", source: SplitSource = ROWS, **job: Any) -> None:
        super().__init__(DispatcherCore(1, DispatcherTimes()))
        description = m.DatasetDescription(
            "d" * 64, "print", (source,), "", None, -2, None, "3.11", "0"
        )
        self.hear("k", m.RegisterDataset("request", "dataset", description, b"pipeline"))
        self.successors = 0
        for name in ("a", "b"):
            self.join(name)
        self.hear("k", m.OpenIteration("k", m.JobParameters("job", "dataset", mode, **job), 0))

    def join(self, name: str, *deaths: m.Death) -> None:
        self.hear(name, m.RegisterWorker(name, f"tcp://{name}:1", (), "3.11", "0", (), deaths))

    @property
    def iteration(self) -> Iteration:
        return next(iter(self.core.state.iterations.values()))

    def task_of(self, worker: str) -> Task:
        return next(
            task
            for task in self.core.state.tasks.values()
            if task.worker == worker and not task.removed
        )

    def crumb(
        self, worker: str, number: int = 7, node: str = "/0", skippable: bool = True
    ) -> m.Crumb:
        task = self.task_of(worker)
        return m.Crumb(
            task.task, task.attempt, number, node, LABEL if node else "", skippable, (3, 4)
        )

    def die(
        self,
        worker: str,
        *crumbs: m.Crumb,
        killed: bool = False,
        how: str = "was killed by SIGSEGV",
    ) -> str:
        """A process dies and another one takes its place, which says so and whose name
        is returned.
        """
        tasks = [
            task
            for task in self.core.state.tasks.values()
            if task.worker == worker and not task.settled
        ]
        death = m.Death(
            worker, how, killed, tuple((task.task, task.attempt) for task in tasks), crumbs
        )
        self.successors += 1
        self.join(f"{worker}{self.successors}", death)
        self.answer()
        return f"{worker}{self.successors}"

    def answer(self) -> None:
        """The client holds nothing of any task that asks."""
        for ask in self.all_of(m.RequestHoldings):
            self.hear("k", m.HoldingsReported("k", ask.task, ask.attempt, ()))

    def host(self, task: Task) -> str:
        return self.core.state.tasks[task.task].worker

    def kill(self, task: Task, times: int = MOST_DEATHS, **crumb: Any) -> None:
        """Whoever hosts a task dies at an element of it, so many times."""
        for _ in range(times):
            self.die(self.host(task), self.crumb(self.host(task), **crumb))

    def failure(self) -> str:
        return self.iteration.failure.text if self.iteration.failure is not None else ""

    def definition(self, task: Task) -> m.TaskDefinition:
        return definition_of(task, self.iteration, "d" * 64, RangeSet())


def test_three_deaths_at_an_element_fail_the_job() -> None:
    """The error names element, node, task, split and the way of dying, and how to leave
    such elements out.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    fleet.kill(task, 2)
    assert not fleet.failure()
    fleet.kill(task, 1)
    refusal = fleet.sent(m.RequestRefused)
    assert refusal.error == "PipelineError"
    assert refusal.text.startswith(
        f"Element 7 that came to {LABEL} (task {task.task}, split 3 to 4) has brought its"
    )
    assert "3 times: it was killed by SIGSEGV, 3 times." in refusal.text
    assert "on_poison='skip'" in refusal.text


def test_files_are_named() -> None:
    """Of a source of files the error has the name of the file."""
    fleet = Fleet(source=FileSplits(("*.txt",), False, None))
    task = fleet.task_of("a")
    fleet.core.state.apply(
        u.ListFilesUpdate(task.iteration, 0, 0, ("a.txt", "b.txt", "c.txt", "d.txt", "e.txt"))
    )
    fleet.core.state.apply(
        u.AssignSplitsUpdate(task.task, 0, Split(0, 2, 5, ("c.txt", "d.txt", "e.txt")))
    )
    fleet.kill(task)
    assert "split 3 to 4: 'd.txt'" in fleet.failure()


def test_deaths_at_other_elements_are_counted_apart() -> None:
    """Two deaths at each of two elements fail nothing."""
    fleet = Fleet()
    task = fleet.task_of("a")
    for number in (7, 8, 7, 8):
        fleet.kill(task, 1, number=number)
    assert not fleet.failure()


def test_poison_is_left_out_on_request() -> None:
    """With on_poison="skip" the next host is told what to leave out, and nothing
    fails.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    fleet.kill(task)
    assert fleet.definition(task).poisoned == (("/0", 7),)
    assert fleet.definition(task).suspects == ()
    assert not fleet.failure()
    assert list(task.poisoned) == [("/0", 7)]


def test_clients_are_told_what_is_left_out() -> None:
    """Their next task lists name the element, the operation, the split and why; those
    who read on get each once.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    fleet.kill(task)
    [element] = fleet.sent(m.TasksChanged).task_list.left_out
    assert (element.task, element.number, element.label, element.split) == (
        task.task,
        7,
        LABEL,
        (3, 4),
    )
    assert "has brought its worker down 3 times" in element.error
    fleet.now += 1.0  # until then the list may be on its way
    fleet.hear("k", m.ClientHeartbeat("k", 0, 0, {}))
    assert fleet.sent(m.ClientHeartbeatAnswered).task_list.left_out == (element,)


def test_each_poison_is_found_in_its_turn() -> None:
    """Deaths that a poisoned element explains count for no other: the second one takes
    three deaths of its own.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    fleet.kill(task)
    fleet.kill(task, 2, number=20)
    assert list(task.poisoned) == [("/0", 7)]
    fleet.kill(task, 1, number=20)
    assert list(task.poisoned) == [("/0", 7), ("/0", 20)]
    assert not fleet.failure()


@pytest.mark.parametrize(
    ("crumb", "text"),
    [
        ({"node": "", "skippable": False}, "no node is known"),
        ({"skippable": False}, f"{LABEL} cannot leave out an element"),
    ],
)
def test_what_cannot_be_left_out_fails(crumb: dict[str, Any], text: str) -> None:
    """Without a node, or where the node cannot do it, on_poison="skip" fails the job
    and says why.
    """
    fleet = Fleet(on_poison="skip")
    fleet.kill(fleet.task_of("a"), **crumb)
    assert f"It cannot be left out (on_poison='skip'): {text}" in fleet.failure()


def test_opening_a_pipeline_may_kill() -> None:
    """A pipeline that kills whoever opens it is named as such."""
    fleet = Fleet()
    fleet.kill(fleet.task_of("a"), number=m.OPENING, node="", skippable=False)
    assert fleet.failure().startswith("Opening the pipeline")


def test_suspects_are_told() -> None:
    """What a process died at is called for alone from then on, and its task is kept
    apart from others.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    fleet.kill(task, 1)
    assert fleet.definition(task).suspects == (("/0", 7),)
    assert fleet.host(task) == "a1"


def test_one_of_several_calls_is_found() -> None:
    """Of calls that ran at the same time the one that was there at three deaths is to
    blame.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    for others in ((5, 6), (), (9,)):
        worker = fleet.host(task)
        fleet.die(worker, *[fleet.crumb(worker, number) for number in (7, *others)])
    assert list(task.poisoned) == [("/0", 7)]


def test_who_was_at_nothing_is_not_to_blame() -> None:
    """Where another task of the process was in a call, only that is counted."""
    fleet = Fleet()
    bystander, culprit = fleet.task_of("a"), fleet.task_of("b")
    tasks = tuple((task.task, task.attempt) for task in (bystander, culprit))
    fleet.join("c", m.Death("b", "ended", False, tasks, (fleet.crumb("b"),)))
    assert (len(bystander.deaths), len(culprit.deaths)) == (0, 1)


def test_five_deaths_at_nothing_fail() -> None:
    """Deaths without a call, such as of a library's thread, count towards a limit of
    five.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    for _ in range(MOST_UNEXPLAINED - 1):
        fleet.die(fleet.host(task))
    assert not fleet.failure()
    fleet.die(fleet.host(task))
    assert "working on no known element" in fleet.failure()


def test_ever_other_elements_fail_in_the_end() -> None:
    """A pipeline that dies at another element each time is given up, unless by SIGKILL,
    which people send.
    """
    fleet, killed = Fleet(), Fleet()
    tasks = fleet.task_of("a"), killed.task_of("a")
    for number in range(MOST_IN_ALL):
        fleet.kill(tasks[0], 1, number=number)
        worker = killed.host(tasks[1])
        killed.die(worker, killed.crumb(worker, number), killed=True)
    assert "at many different elements" in fleet.failure()
    assert not killed.failure()


def test_sigkill_counts_at_an_element_only() -> None:
    """SIGKILL at nothing is nobody's fault; three of them at the same element are the
    system's word on memory.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    for _ in range(MOST_UNEXPLAINED + 1):
        fleet.die(fleet.host(task), killed=True)
    assert not task.deaths
    for _ in range(MOST_DEATHS):
        worker = fleet.host(task)
        fleet.die(worker, fleet.crumb(worker), killed=True)
    assert fleet.failure()


def test_a_death_counts_once() -> None:
    """A report that comes again, or of an attempt that never was, changes nothing; nor
    does one of an unknown task.
    """
    fleet = Fleet()
    task, crumb = fleet.task_of("a"), fleet.crumb("a")
    death = m.Death("a", "ended", False, ((task.task, 1), (task.task, 99), (1, 1)), (crumb,))
    fleet.join("a1", death)
    fleet.join("a1", death)
    fleet.join("a2", death)
    assert list(task.deaths) == [1]


def test_the_dead_are_lost_at_once() -> None:
    """A successor's word is enough: its predecessor's tasks change their host without
    waiting for a connection.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    fleet.join("a1", m.Death("a", "ended", False, ((task.task, 1),), ()))
    assert "a" not in fleet.core.workers
    assert fleet.core.state.tasks[task.task].attempt == 2


def test_a_host_that_was_chosen_too_early_is_chosen_again() -> None:
    """A task that had moved on before its death was told moves again, so that its host
    knows the suspect.
    """
    fleet = Fleet()
    task, crumb = fleet.task_of("a"), fleet.crumb("a")
    fleet.core.hosting.lose_worker("a")
    fleet.feed(e.Tick())
    fleet.hear("k", m.HoldingsReported("k", task.task, 2, ()))
    assert (task.worker, task.attempt) == ("b", 2)
    fleet.join("a1", m.Death("a", "ended", False, ((task.task, 1),), (crumb,)))
    assert task.attempt == 3


def test_copies_are_counted_together() -> None:
    """In mode OFF each host makes a copy of its own: three that die at the same element
    are enough.
    """
    fleet = Fleet("OFF", on_poison="skip")
    for _ in range(MOST_DEATHS):
        worker = next(
            task.worker for task in fleet.iteration.live_tasks if task.worker.startswith("a")
        )
        fleet.die(worker, fleet.crumb(worker))
    copy = next(task for task in fleet.iteration.live_tasks if task.worker.startswith("a"))
    assert fleet.definition(copy).poisoned == (("/0", 7),)


# --- calls that do not return


def busy(fleet: Fleet, worker: str, seconds: float) -> None:
    task = fleet.task_of(worker)
    report = m.TaskReport(task.task, task.attempt, 0, None, busy=seconds, crumb=fleet.crumb(worker))
    fleet.hear(worker, m.WorkerHeartbeat(worker, (report,), ()))


def test_a_long_call_is_told_once() -> None:
    """The log tells of a call that takes a minute, once; without a time-out nothing
    else happens.
    """
    fleet = Fleet()
    busy(fleet, "a", LONG - 1)
    assert fleet.all_of(e.LogLine) == []
    busy(fleet, "a", LONG)
    assert (
        f"Element 7 that came to {LABEL} has been worked on for 60 s" in fleet.sent(e.LogLine).text
    )
    busy(fleet, "a", LONG + 1)
    assert fleet.all_of(e.LogLine) == []
    assert fleet.task_of("a").attempt == 1


def test_a_stuck_task_moves_on() -> None:
    """After task_timeout the task goes to another worker, and the call counts as a
    death at its element.
    """
    fleet = Fleet(task_timeout=5.0)
    task = fleet.task_of("a")
    busy(fleet, "a", 4.9)
    assert task.attempt == 1
    busy(fleet, "a", 5.0)
    assert any(message == m.DropTask(task.task, 1) for message in fleet.all_of(m.DropTask))
    fleet.answer()
    assert (task.worker, task.attempt) == ("b", 2)
    assert [death.how for death in task.deaths.values()] == ["was stuck for 5 s"]


def test_three_times_stuck_is_poison() -> None:
    """An element that is never done with fails the job like one that kills."""
    fleet = Fleet(task_timeout=5.0)
    task = fleet.task_of("a")
    for _ in range(MOST_DEATHS):
        worker = fleet.host(task)
        report = m.TaskReport(task.task, task.attempt, 0, None, busy=6.0, crumb=fleet.crumb(worker))
        fleet.hear(worker, m.WorkerHeartbeat(worker, (report,), ()))
        fleet.answer()
    assert "it was stuck for 6 s, 3 times" in fleet.failure()


def test_a_stuck_copy_is_replaced() -> None:
    """In mode OFF another copy takes the place of the stuck one."""
    fleet = Fleet("OFF", task_timeout=5.0)
    before = fleet.task_of("a")
    busy(fleet, "a", 5.0)
    after = fleet.task_of("a")
    assert before.removed
    assert after.task != before.task
