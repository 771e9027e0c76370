"""Test how the dispatcher blames an element for deaths of workers, and what follows."""

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
    """Two workers, ``a`` and ``b``, of a job that a client reads; each dead worker has
    a numbered successor.
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
        """Let a process die and its successor report the death, and return the
        successor's name.
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
        """Answer for the client that it holds nothing of each task that asks."""
        for ask in self.all_of(m.RequestHoldings):
            self.hear("k", m.HoldingsReported("k", ask.task, ask.attempt, ()))

    def host(self, task: Task) -> str:
        return self.core.state.tasks[task.task].worker

    def kill(self, task: Task, times: int = MOST_DEATHS, **crumb: Any) -> None:
        """Let each host of a task die at the given element the given number of
        times.
        """
        for _ in range(times):
            self.die(self.host(task), self.crumb(self.host(task), **crumb))

    def failure(self) -> str:
        return self.iteration.failure.text if self.iteration.failure is not None else ""

    def definition(self, task: Task) -> m.TaskDefinition:
        return definition_of(task, self.iteration, self.core.state.datasets["dataset"], RangeSet())


def test_three_deaths_at_an_element_fail_the_job() -> None:
    """The error names element, node, task, split, cause of death and the option that
    skips such elements.
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
    """The error names the file of an element from a source of files."""
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
    """Two deaths at each of two elements fail nothing, as each element is counted
    apart.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    for number in (7, 8, 7, 8):
        fleet.kill(task, 1, number=number)
    assert not fleet.failure()


def test_poison_is_left_out_on_request() -> None:
    """The next host is told which element to skip with on_poison="skip", and the job
    goes on.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    fleet.kill(task)
    assert fleet.definition(task).poisoned == (("/0", 7),)
    assert fleet.definition(task).suspects == ()
    assert not fleet.failure()
    assert list(task.poisoned) == [("/0", 7)]


def test_clients_are_told_what_is_left_out() -> None:
    """The next task lists name element, operation, split and reason of each skipped
    element once for each reader.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    fleet.kill(task)
    [element] = fleet.sent(m.TasksChanged).task_list.left_out
    assert (element.index, element.place, element.number, element.label, element.split) == (
        task.index,
        "/0",
        7,
        LABEL,
        (3, 4),
    )
    assert "has brought its worker down 3 times" in element.error
    fleet.now += 1.0  # until then the list may be on its way
    fleet.hear("k", m.ClientHeartbeat("k", 0, 0, {}))
    assert fleet.sent(m.ClientHeartbeatAnswered).task_list.left_out == (element,)


def test_each_poison_is_found_in_its_turn() -> None:
    """Deaths that a poisoned element explains count for no other element, so the second
    needs three deaths of its own.
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
    """The job fails with the reason despite on_poison="skip" if no node is known or the
    node cannot skip.
    """
    fleet = Fleet(on_poison="skip")
    fleet.kill(fleet.task_of("a"), **crumb)
    assert f"It cannot be left out (on_poison='skip'): {text}" in fleet.failure()


def test_opening_a_pipeline_may_kill() -> None:
    """The error names a pipeline that kills each process that opens it."""
    fleet = Fleet()
    fleet.kill(fleet.task_of("a"), number=m.OPENING, node="", skippable=False)
    assert fleet.failure().startswith("Opening the pipeline")


def test_suspects_are_told() -> None:
    """The next host calls a suspect element alone, and gets its task apart from
    others.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    fleet.kill(task, 1)
    assert fleet.definition(task).suspects == (("/0", 7),)
    assert fleet.host(task) == "a1"


def test_one_of_several_calls_is_found() -> None:
    """The dispatcher blames the call that was in progress at three deaths, among
    several calls at the same time.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    for others in ((5, 6), (), (9,)):
        worker = fleet.host(task)
        fleet.die(worker, *[fleet.crumb(worker, number) for number in (7, *others)])
    assert list(task.poisoned) == [("/0", 7)]


def test_who_was_at_nothing_is_not_to_blame() -> None:
    """The dispatcher counts a death only for the task that was in a call."""
    fleet = Fleet()
    bystander, culprit = fleet.task_of("a"), fleet.task_of("b")
    tasks = tuple((task.task, task.attempt) for task in (bystander, culprit))
    fleet.join("c", m.Death("b", "ended", False, tasks, (fleet.crumb("b"),)))
    assert (len(bystander.deaths), len(culprit.deaths)) == (0, 1)


def test_five_deaths_at_nothing_fail() -> None:
    """Five deaths without a call, such as in a library's thread, fail the job."""
    fleet = Fleet()
    task = fleet.task_of("a")
    for _ in range(MOST_UNEXPLAINED - 1):
        fleet.die(fleet.host(task))
    assert not fleet.failure()
    fleet.die(fleet.host(task))
    assert "working on no known element" in fleet.failure()


def test_ever_other_elements_fail_in_the_end() -> None:
    """A pipeline that dies at another element each time fails in the end, except by
    SIGKILL, which people send.
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
    """A SIGKILL without a call counts for no task. Three SIGKILLs at the same element
    fail the job, as the system is short of memory.
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
    """The dispatcher ignores a repeated report of a death, an attempt that never
    existed and an unknown task.
    """
    fleet = Fleet()
    task, crumb = fleet.task_of("a"), fleet.crumb("a")
    death = m.Death("a", "ended", False, ((task.task, 1), (task.task, 99), (1, 1)), (crumb,))
    fleet.join("a1", death)
    fleet.join("a1", death)
    fleet.join("a2", death)
    assert list(task.deaths) == [1]


def test_the_dead_are_lost_at_once() -> None:
    """The tasks of a dead worker move as soon as its successor reports the death,
    without waiting for the connection.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    fleet.join("a1", m.Death("a", "ended", False, ((task.task, 1),), ()))
    assert "a" not in fleet.core.workers
    assert fleet.core.state.tasks[task.task].attempt == 2


def test_a_host_that_was_chosen_too_early_is_chosen_again() -> None:
    """A task that moved before its death was reported moves again, so that its host
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
    """Three copies in mode OFF that die at the same element fail the job, as copies are
    counted together.
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
    """The dispatcher logs a call that takes a minute once, and does nothing else
    without a time-out.
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
    """After task_timeout the task moves to another worker, and the call counts as a
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
    """An element that never finishes three times fails the job like an element that
    kills.
    """
    fleet = Fleet(task_timeout=5.0)
    task = fleet.task_of("a")
    for _ in range(MOST_DEATHS):
        worker = fleet.host(task)
        report = m.TaskReport(task.task, task.attempt, 0, None, busy=6.0, crumb=fleet.crumb(worker))
        fleet.hear(worker, m.WorkerHeartbeat(worker, (report,), ()))
        fleet.answer()
    assert "it was stuck for 6 s, 3 times" in fleet.failure()


def test_a_stuck_copy_is_replaced() -> None:
    """Another copy takes the place of a stuck copy in mode OFF."""
    fleet = Fleet("OFF", task_timeout=5.0)
    before = fleet.task_of("a")
    busy(fleet, "a", 5.0)
    after = fleet.task_of("a")
    assert before.removed
    assert after.task != before.task
