"""Test how the dispatcher blames an element for deaths of workers, and what follows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.kit.transcript import TICK, Transcript
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.lineage import definition_of
from zmqdata.core.dispatcher.tasks.poison import (
    APART_AFTER,
    APART_FOR,
    LONG,
    LONGEST_CALL,
    MOST_DEATHS,
    MOST_IN_ALL,
    MOST_TOGETHER,
    MOST_UNEXPLAINED,
    PATIENCE,
    REPORTS_WITHIN,
)
from zmqdata.core.ranges import RangeSet
from zmqdata.splits import FileSplits, IndexSplits, Split, SplitSource

ROWS = IndexSplits(100)
LABEL = "map(parse) at train.py:12"
NEVER = 1e9


class Fleet(Transcript):
    """Two workers, ``a`` and ``b``, of a job that a client reads; each dead worker has
    a numbered successor.
    """

    core: DispatcherCore
    first_workers = ("a", "b")

    def __init__(self, mode: str = "DYNAMIC", source: SplitSource = ROWS, **job: Any) -> None:
        super().__init__(DispatcherCore(1, DispatcherTimes(client_timeout=NEVER)))
        description = m.DatasetDescription(
            "d" * 64, "print", (source,), "", None, -2, None, "3.11", "0"
        )
        self.hear("k", m.RegisterDataset("request", "dataset", description, b"pipeline"))
        self.successors = 0
        for name in self.first_workers:
            self.join(name)
        self.hear("k", m.OpenIteration("k", m.JobParameters("job", "dataset", mode, **job), 0))

    def join(self, name: str, *deaths: m.Death) -> None:
        self.hear(name, m.RegisterWorker(name, f"tcp://{name}:1", (), "3.11", "0", (), deaths))

    @property
    def iteration(self) -> Iteration:
        return next(iter(self.core.state.iterations.values()))

    def task_of(self, worker: str) -> Task:
        return self.tasks_of(worker)[0]

    def tasks_of(self, worker: str) -> list[Task]:
        return [
            task
            for task in self.core.state.tasks.values()
            if task.worker == worker and not task.settled
        ]

    def work(
        self, worker: str, number: int = 7, node: str = "/0", skippable: bool = True
    ) -> m.Work:
        task = self.task_of(worker)
        return m.Work(
            task.task, task.attempt, number, node, LABEL if node else "", skippable, (3, 4)
        )

    def die(
        self,
        worker: str,
        *in_progress: m.Work,
        killed: bool = False,
        how: str = "was killed by SIGSEGV",
        beside: tuple[tuple[int, int], ...] = (),
    ) -> str:
        """Let a process die and its successor report the death, and return the
        successor's name.
        """
        tasks = tuple((task.task, task.attempt) for task in self.tasks_of(worker))
        death = m.Death(worker, how, killed, (*tasks, *beside), in_progress)
        self.successors += 1
        name = f"{worker[0]}{self.successors}"
        self.join(name, death)
        self.go_on()
        return name

    def answer(self) -> None:
        """Answer for the clients that they hold nothing of each task that asks."""
        for ask in self.all_of(m.RequestHoldings):
            self.hear(ask.client, m.HoldingsReported(ask.client, ask.task, ask.attempt, ()))

    def go_on(self) -> None:
        """Let the clients answer, and the dispatcher decide what is tried next."""
        self.answer()
        self.wait(TICK)
        self.answer()
        self.wait(TICK)

    def report(self, worker: str, **told: Any) -> None:
        """Let a worker report its tasks; ``told`` are fields of each report."""
        tasks = self.tasks_of(worker)
        told = {"produced": 0, "total": None, **told}
        reports = tuple(m.TaskReport(task.task, task.attempt, **told) for task in tasks)
        self.hear(worker, m.WorkerHeartbeat(worker, reports, ()))
        self.go_on()

    def host(self, task: Task) -> str:
        return self.core.state.tasks[task.task].worker

    def kill(self, task: Task, times: int = MOST_DEATHS + 1, **work: Any) -> None:
        """Let each host of a task die at the given element the given number of times,
        beside other tasks at first, then alone.
        """
        for _ in range(times):
            self.die(self.host(task), self.work(self.host(task), **work))

    def failure(self) -> str:
        return self.iteration.failure.text if self.iteration.failure is not None else ""

    def definition(self, task: Task) -> m.TaskDefinition:
        return definition_of(task, self.iteration, self.core.state.datasets["dataset"], RangeSet())


def test_three_deaths_of_an_element_alone_fail_the_job() -> None:
    """The error names element, node, task, split, cause of death and the option that
    skips such elements. The first death raises the suspicion, and proves nothing.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    fleet.kill(task, MOST_DEATHS)
    assert [death.alone for death in task.deaths.values()] == [False, True, True]
    assert not fleet.failure()
    task_of_death = fleet.work(fleet.host(task))
    death = m.Death(
        fleet.host(task), "was killed by SIGSEGV", False, ((task.task, 4),), (task_of_death,)
    )
    fleet.join("c", death)
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
    for number in (8, 7, 8, 7, 8):
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
    element.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    fleet.kill(task)
    fleet.now += 1.0
    fleet.hear("k", m.ClientHeartbeat("k", 0, 0, {}))
    [element] = fleet.sent(m.ClientHeartbeatAnswered).task_list.left_out
    assert (element.index, element.place, element.number, element.label, element.split) == (
        task.index,
        "/0",
        7,
        LABEL,
        (3, 4),
    )
    assert "has brought its worker down 3 times" in element.error


def test_each_poison_is_found_in_its_turn() -> None:
    """Deaths that a poisoned element explains count for no other element, so the second
    needs three deaths of its own.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    fleet.kill(task)
    fleet.kill(task, MOST_DEATHS, number=20)
    assert list(task.poisoned) == [("/0", 7)]
    fleet.kill(task, 1, number=20)
    assert list(task.poisoned) == [("/0", 7), ("/0", 20)]
    assert not fleet.failure()


@pytest.mark.parametrize(
    ("work", "text"),
    [
        ({"node": "", "skippable": False}, "no node is known"),
        ({"skippable": False}, f"{LABEL} cannot leave out an element"),
    ],
)
def test_what_cannot_be_left_out_fails(work: dict[str, Any], text: str) -> None:
    """The job fails with the reason despite on_poison="skip" if no node is known or the
    node cannot skip.
    """
    fleet = Fleet(on_poison="skip")
    fleet.kill(fleet.task_of("a"), **work)
    assert f"It cannot be left out (on_poison='skip'): {text}" in fleet.failure()


def test_opening_a_pipeline_may_kill() -> None:
    """The error names a pipeline that kills each process that opens it."""
    fleet = Fleet()
    fleet.kill(fleet.task_of("a"), number=m.OPENING, node="", skippable=False)
    assert fleet.failure().startswith("Opening the pipeline")


def test_suspects_are_told() -> None:
    """The successor of the dead process makes the suspect element alone, and those just
    before it, since a process that crashes may run on.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    fleet.kill(task, 1)
    assert fleet.definition(task).suspects == (("/0", 5), ("/0", 6), ("/0", 7))
    assert fleet.host(task) == "a1"


def test_one_of_several_calls_is_found() -> None:
    """The dispatcher blames the call that was in progress at three deaths, among
    several calls at the same time. A death during two calls proves nothing.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    for others in ((5, 6), (), (9,), ()):
        worker = fleet.host(task)
        fleet.die(worker, *[fleet.work(worker, number) for number in (7, *others)])
    assert not task.poisoned
    fleet.kill(task, 1)
    assert list(task.poisoned) == [("/0", 7)]


def test_a_crash_that_comes_late_is_traced_back() -> None:
    """If a process dies alone and at no suspect, ever more elements before it are
    suspect.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    for number, first in ((90, 88), (95, 63), (None, 0)):
        worker = fleet.host(task)
        fleet.die(worker, *([fleet.work(worker, number)] if number is not None else []))
        assert fleet.definition(task).suspects[0] == ("/0", first)
    assert len(fleet.definition(task).suspects) == 96
    fleet.kill(task, MOST_DEATHS, number=50)
    assert list(task.poisoned) == [("/0", 50)]


@pytest.mark.parametrize("element", [-1, 3, 4])
def test_what_may_be_delivered_is_not_left_out(element: int) -> None:
    """The job fails if the call for a fatal element had returned before the first death
    and a client has the element that was then in progress, or a later one.
    """
    fleet = Fleet(on_poison="skip")
    task = fleet.task_of("a")
    fleet.kill(task, 1, number=8)
    fleet.core.state.apply(u.DeliverUpdate(task.task, ((0, 4),)))
    for _ in range(MOST_DEATHS):
        worker = fleet.host(task)
        fleet.die(worker, replace(fleet.work(worker), element=element))
    assert ("clients may have it" in fleet.failure()) == (element < 4)
    assert len(task.poisoned) == (element == 4)


# --- suspects are made alone


class Town(Fleet):
    """A fleet with a second job, read by the client ``l``: its tasks are beside those
    of the first.
    """

    def __init__(self, *workers: str, mode: str = "DYNAMIC", **job: Any) -> None:
        self.first_workers = workers
        super().__init__(**job)
        parameters = m.JobParameters("other", "dataset", mode)
        self.hear("l", m.OpenIteration("l", parameters, 0))

    @property
    def other(self) -> Iteration:
        return list(self.core.state.iterations.values())[1]

    def crash(self, worker: str, number: int = 7, killed: bool = False) -> None:
        """Let a process die while each of its tasks makes an element."""
        in_progress = [
            m.Work(task.task, task.attempt, number, "/0", LABEL, True)
            for task in self.tasks_of(worker)
        ]
        self.die(worker, *in_progress, killed=killed)


def test_only_a_death_alone_counts() -> None:
    """The job that lives alone is cleared, of two jobs in a process that dies again and
    again. The other fails.
    """
    town = Town("a")
    innocent = town.tasks_of("a")[1]
    while not town.failure():
        [worker] = town.core.hosting.facts
        tasks = town.tasks_of(worker)
        if tasks == [innocent]:
            town.report(worker, tried=True)
        else:
            assert innocent not in tasks or not innocent.deaths
            town.crash(worker)
    town.go_on()
    town.report(innocent.worker, tried=True)
    assert town.other.failure is None
    assert not innocent.suspicious


def test_one_process_tries_suspects_at_a_time() -> None:
    """While a process makes a suspect, it has no other task, and other suspects wait.
    All others continue elsewhere.
    """
    town = Town("a", "b")
    town.crash("a")
    [trial] = town.tasks_of("a1")
    waiting = [task for task in town.core.state.tasks.values() if not task.worker]
    assert [
        task.task in town.core.state.iterations[task.iteration].suspected for task in waiting
    ] == [True]
    assert town.tasks_of("b")
    town.join("c")
    town.go_on()
    assert town.tasks_of("a1") == [trial]
    town.report("a1", tried=True)
    assert waiting[0].worker
    assert town.tasks_of(waiting[0].worker) == waiting
    town.report(waiting[0].worker, tried=True)
    assert not town.core.hosting.placement.reserved
    assert not any(one.suspected for one in town.core.state.iterations.values())


def test_on_the_only_worker_others_wait() -> None:
    """On the only worker of a cluster, tasks that were idle wait until the suspects are
    made, and then return.
    """
    town = Town("a")
    tasks = town.tasks_of("a")
    town.die("a", town.work("a"))
    assert town.tasks_of("a1") == [tasks[0]]
    town.report("a1", tried=True)
    assert town.tasks_of("a1") == tasks


def test_a_trial_has_its_time() -> None:
    """A task that does not come to its suspects in time is cleared, so that others
    wait for a limited time. If it dies later, it gets twice the time.
    """
    town = Town("a")
    tasks = town.tasks_of("a")
    for patience in (PATIENCE, 2 * PATIENCE):
        host = tasks[0].worker
        town.die(host, m.Work(tasks[0].task, tasks[0].attempt, 7, "/0", LABEL, True))
        town.wait(patience - 1.0)
        assert town.tasks_of(tasks[0].worker) == [tasks[0]]
        town.wait(1.5)
        town.go_on()
        assert sorted(task.task for task in town.tasks_of(tasks[0].worker)) == sorted(
            task.task for task in tasks
        )
        assert not tasks[0].suspicious


@pytest.mark.parametrize(
    ("node", "number", "early", "late"),
    [
        ("/0", 7, {"produced": 9}, {"tried": True}),
        ("/0", 7, {"waits": True, "idle": 1.9}, {"waits": True, "idle": 2.0}),
        ("/0", 7, {"produced": 9}, {"produced": 9, "total": 9}),
        ("", 7, {"produced": 7}, {"produced": 8}),
        ("", m.OPENING, {}, {"produced": 1}),
    ],
)
def test_a_trial_ends(node: str, number: int, early: dict[str, Any], late: dict[str, Any]) -> None:
    """A trial ends when the suspects were made, no longer come, or wait for readers."""
    town = Town("a")
    task = town.tasks_of("a")[0]
    town.die("a", town.work("a", number, node))
    town.report("a1", **early)
    assert town.tasks_of("a1") == [task]
    town.report("a1", **late)
    assert not task.suspicious
    assert len(town.tasks_of("a1")) > 1


def test_others_are_tried_before_a_suspect_that_proves_nothing() -> None:
    """A task that dies alone without a proof lets each other suspect be tried before
    it. One whose death proves something is tried again at once.
    """
    town = Town("a")
    guilty, innocent = town.tasks_of("a")
    town.crash("a")
    town.die("a1", town.work("a1"))
    assert town.tasks_of("a2") == [guilty]
    town.die("a2", town.work("a2", 7), town.work("a2", 8))
    assert town.tasks_of("a3") == [innocent]
    town.report("a3", tried=True)
    assert town.tasks_of("a3") == [guilty]


def quarrel(town: Town, together: float = 1.0, **told: Any) -> list[float]:
    """Let processes die while several tasks run in one, until a job fails or fifty have
    died. Return for how many seconds each task was alone.
    """
    alone: list[float] = []
    while town.successors < 50 and not any(
        one.failure for one in town.core.state.iterations.values()
    ):
        [worker] = town.core.hosting.facts
        if len(town.tasks_of(worker)) > 1:
            town.wait(together)
            town.crash(worker, **told)
            continue
        began, task = town.now, town.task_of(worker)
        while town.tasks_of(worker) == [task]:
            town.report(worker, tried=True)
        alone.append(town.now - began)
    return alone


def test_jobs_that_crash_only_together_are_kept_apart() -> None:
    """Two jobs whose processes die only while they run both stay alone for longer from
    the fifth death on. After the twentieth, the newer one fails.
    """
    town = Town("a")
    alone = quarrel(town)
    assert town.other.failure is not None
    assert "died 20 times in a row soon after they ran other tasks" in town.other.failure.text
    assert "cluster of its own" in town.other.failure.text
    assert town.iteration.failure is None
    assert town.successors == MOST_TOGETHER
    assert max(alone[: 2 * APART_AFTER - 2]) < 1.0
    assert all(APART_FOR <= one < APART_FOR + 1.0 for one in alone[2 * APART_AFTER :])
    town.go_on()
    town.report(town.iteration.tasks[next(iter(town.iteration.tasks))].worker, tried=True)
    assert not town.iteration.suspected


@pytest.mark.parametrize("told", [{"together": PATIENCE + 1.0}, {"killed": True}])
def test_rare_deaths_and_kills_fail_no_job(told: dict[str, Any]) -> None:
    """Deaths that come long after the trials, and SIGKILL, say nothing about tasks that
    ran beside each other.
    """
    town = Town("a")
    quarrel(town, **told)
    assert town.successors == 50


def test_a_death_alone_explains_those_beside_others() -> None:
    """Deaths beside a job of which an element is proved guilty now and then do not
    count against the other job.
    """
    town = Town("a")
    for _ in range(100):
        [worker] = town.core.hosting.facts
        tasks = town.tasks_of(worker)
        dies = len(tasks) > 1 or (
            tasks[0].iteration == town.iteration.iteration
            and town.successors % 10 == 9
            and not tasks[0].removed
        )
        if dies:
            town.crash(worker, number=town.successors)
        else:
            town.report(worker, tried=True)
            town.wait(APART_FOR)
            town.report(worker, tried=True)
    assert town.successors > 2 * MOST_TOGETHER
    assert not town.iteration.failure
    assert not town.other.failure


def test_an_idle_job_is_not_counted() -> None:
    """Among jobs whose processes die only together, one that is between calls at some
    deaths is counted at the others, and one that does nothing is never counted.
    """
    town = Town("a")
    town.hear("n", m.OpenIteration("n", m.JobParameters("idle", "dataset", "DYNAMIC"), 0))
    first, second, third = town.core.state.iterations.values()
    while town.successors < 60 and not (first.failure or second.failure):
        [worker] = town.core.hosting.facts
        tasks = town.tasks_of(worker)
        if len(tasks) > 1:
            busy = ([first, second], [first], [second])[town.successors % 3]
            in_progress = [
                m.Work(task.task, task.attempt, 7, "/0", LABEL, True)
                for task in tasks
                if any(task.iteration == one.iteration for one in busy)
            ]
            town.die(worker, *in_progress)
        else:
            town.report(worker, tried=True)
    assert first.failure or second.failure
    assert third.failure is None
    assert town.core.deaths.trials.together == {}


def test_deaths_at_the_same_time_count_once() -> None:
    """Processes that die before the suspects of the first were tried say no more than
    the first.
    """
    names = "abcdefghijklmnopqrstuvwxy"
    town = Town(*names)
    for name in names:
        in_progress = [
            m.Work(task.task, task.attempt, 7, "/0", LABEL, True) for task in town.tasks_of(name)
        ]
        tasks = tuple((one.task, one.attempt) for one in in_progress)
        town.join(f"{name}1", m.Death(name, "ended", False, tasks, tuple(in_progress)))
    assert len([task for task in town.core.state.tasks.values() if task.deaths]) == 2 * len(names)
    assert not any(one.failure for one in town.core.state.iterations.values())


def test_a_job_alone_may_die_often() -> None:
    """A job that has its processes for itself dies often, each time at an element that
    lives when it is made again, and goes on.
    """
    fleet = Fleet()
    task = fleet.task_of("a")
    for number in range(MOST_TOGETHER + 1):
        fleet.kill(task, 1, number=number)
        fleet.report(task.worker, tried=True)
        assert not fleet.iteration.suspected
    assert not fleet.failure()


def test_suspects_of_an_unread_job_wait_for_a_reader() -> None:
    """A suspect that no client reads holds no worker."""
    town = Town("a")
    tasks = town.tasks_of("a")
    town.hear("k", m.CloseIteration("k", 0, {}))
    assert tasks[0].iteration in town.core.state.iterations
    town.die("a", m.Work(tasks[0].task, tasks[0].attempt, 7, "/0"))
    assert town.tasks_of("a1") == [tasks[1]]


def test_the_call_of_a_suspect_may_last() -> None:
    """A trial does not end while the calls of suspects last, one after the other, for
    ten minutes each at most.
    """
    town = Town("a")
    task = town.tasks_of("a")[0]
    town.die("a", town.work("a"))
    for number, busy in ((6, 0.0), (6, 30.0), (7, 10.0), (7, LONGEST_CALL - 1.0)):
        town.wait(PATIENCE - 1.0)
        town.report("a1", busy=busy, work=town.work("a1", number))
        assert town.tasks_of("a1") == [task]
    town.wait(PATIENCE - 1.0)
    town.report("a1", busy=LONGEST_CALL, work=town.work("a1"))
    town.wait(1.5)
    town.go_on()
    assert len(town.tasks_of("a1")) > 1


def test_the_report_of_a_successor_is_awaited() -> None:
    """When the process that makes a suspect is lost, no other worker tries it before
    the successor has reported, or had time to.
    """
    town = Town("a", "b")
    town.crash("a")
    [trial] = town.tasks_of("a1")
    attempt = trial.attempt
    town.core.hosting.lose_worker("a1")
    town.go_on()
    assert not trial.worker
    town.join(
        "a2",
        m.Death(
            "a1",
            "ended",
            False,
            ((trial.task, attempt),),
            (m.Work(trial.task, attempt, 7, "/0"),),
        ),
    )
    town.go_on()
    assert [death.alone for death in trial.suspicious] == [False, True]
    assert trial.worker == "a2"
    town.core.hosting.lose_worker("a2")
    town.go_on()
    town.wait(REPORTS_WITHIN - 1.0)
    assert not trial.worker
    town.wait(1.5)
    town.go_on()
    assert trial.worker == "b"


def test_a_process_that_is_killed_on_trial_delays_nothing() -> None:
    """A suspect whose process a person has killed, while it was in no call, is tried
    again at once.
    """
    town = Town("a")
    town.crash("a")
    [trial] = town.tasks_of("a1")
    town.die("a1", killed=True)
    assert town.tasks_of("a2") == [trial]
    assert len(trial.deaths) == 1


def test_a_late_report_ends_no_trial() -> None:
    """The report of an earlier death leaves a task where it is made alone."""
    town = Town("a", "b")
    task = town.tasks_of("a")[0]
    attempt = task.attempt
    town.core.hosting.lose_worker("a")
    town.go_on()
    town.die("b", m.Work(task.task, task.attempt, 7, "/0"))
    trial = (task.worker, task.attempt)
    assert trial[0] == "b1"
    work = m.Work(task.task, attempt, 9, "/0")
    town.join("a1", m.Death("a", "ended", False, ((task.task, attempt),), (work,)))
    town.go_on()
    assert (task.worker, task.attempt) == trial


def test_a_process_with_remains_of_other_tasks_proves_nothing() -> None:
    """A death is no proof while a call of a task that was taken away still runs in the
    process.
    """
    town = Town("a")
    task = town.tasks_of("a")[0]
    town.die("a", town.work("a"))
    town.die("a1", town.work("a1"), beside=((town.tasks_of("a1")[0].task + 1, 1),))
    assert [death.alone for death in task.suspicious] == [False, False]


def test_a_restarted_dispatcher_tries_its_suspects() -> None:
    """A dispatcher that starts again tries each suspect alone, also one that was on
    trial.
    """
    town = Town("a")
    tasks = town.tasks_of("a")
    town.crash("a")
    again = DispatcherCore(2, DispatcherTimes(client_timeout=NEVER))
    for update in snapshot(town.core.state):
        again.state.apply(update)
    town.core = again
    town.commands = [*again.resume(town.now)]
    for client in ("k", "l"):
        town.hear(client, m.ClientHeartbeat(client, 0, 0, {}))
    town.join("a1")
    for task in tasks:
        for client in ("k", "l"):
            town.hear(client, m.HoldingsReported(client, task.task, task.attempt, ()))
    for _ in tasks:
        town.go_on()
        [trial] = town.tasks_of("a1")
        assert town.core.state.iterations[trial.iteration].suspects(trial)
        town.report("a1", tried=True)
    assert len(town.tasks_of("a1")) == len(tasks)


def test_a_new_copy_is_made_alone() -> None:
    """The copy that replaces one that died in mode OFF is made alone, before the tasks
    of other jobs.
    """
    town = Town("a", mode="OFF")
    town.crash("a")
    [first] = town.tasks_of("a1")
    town.report("a1", tried=True)
    [second] = town.tasks_of("a1")
    assert first.iteration != second.iteration
    town.report("a1", tried=True)
    assert {task.iteration for task in town.tasks_of("a1")} == set(town.core.state.iterations)


def test_who_was_at_nothing_is_not_to_blame() -> None:
    """The dispatcher counts a death only for the task that was in a call."""
    fleet = Fleet()
    bystander, culprit = fleet.task_of("a"), fleet.task_of("b")
    tasks = tuple((task.task, task.attempt) for task in (bystander, culprit))
    fleet.join("c", m.Death("b", "ended", False, tasks, (fleet.work("b"),)))
    assert (len(bystander.deaths), len(culprit.deaths)) == (0, 1)


def test_five_deaths_at_nothing_fail() -> None:
    """Five deaths alone without a call, such as in a library's thread, fail the job."""
    fleet = Fleet()
    task = fleet.task_of("a")
    for _ in range(MOST_UNEXPLAINED):
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
    for number in range(MOST_IN_ALL + 1):
        fleet.kill(tasks[0], 1, number=number)
        worker = killed.host(tasks[1])
        killed.die(worker, killed.work(worker, number), killed=True)
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
    for _ in range(MOST_DEATHS + 1):
        worker = fleet.host(task)
        fleet.die(worker, fleet.work(worker), killed=True)
    assert fleet.failure()


def test_a_death_counts_once() -> None:
    """The dispatcher ignores a repeated report of a death, an attempt that never
    existed and an unknown task.
    """
    fleet = Fleet()
    task, work = fleet.task_of("a"), fleet.work("a")
    death = m.Death("a", "ended", False, ((task.task, 1), (task.task, 99), (1, 1)), (work,))
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
    task, work = fleet.task_of("a"), fleet.work("a")
    fleet.core.hosting.lose_worker("a")
    fleet.feed(e.Tick())
    fleet.hear("k", m.HoldingsReported("k", task.task, 2, ()))
    assert (task.worker, task.attempt) == ("b", 2)
    fleet.join("a1", m.Death("a", "ended", False, ((task.task, 1),), (work,)))
    assert task.attempt == 3


def test_copies_are_counted_together() -> None:
    """Three copies in mode OFF that die at the same element fail the job, as copies are
    counted together.
    """
    fleet = Fleet("OFF", on_poison="skip")
    for _ in range(MOST_DEATHS + 1):
        worker = next(
            task.worker for task in fleet.iteration.live_tasks if task.worker.startswith("a")
        )
        fleet.die(worker, fleet.work(worker))
    copy = next(task for task in fleet.iteration.live_tasks if task.worker.startswith("a"))
    assert fleet.definition(copy).poisoned == (("/0", 7),)


# --- calls that do not return


def busy(fleet: Fleet, worker: str, seconds: float) -> None:
    task = fleet.task_of(worker)
    report = m.TaskReport(task.task, task.attempt, 0, None, busy=seconds, work=fleet.work(worker))
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
    """After task_timeout the task moves to another worker, where it is made alone. The
    call counts as a death at its element.
    """
    fleet = Fleet(task_timeout=5.0)
    task = fleet.task_of("a")
    busy(fleet, "a", 4.9)
    assert task.attempt == 1
    busy(fleet, "a", 5.0)
    assert any(message == m.DropTask(task.task, 1) for message in fleet.all_of(m.DropTask))
    fleet.go_on()
    assert (task.worker, task.attempt) == ("b", 2)
    assert len(fleet.tasks_of("b")) == 1
    assert [death.how for death in task.deaths.values()] == ["was stuck for 5 s"]


def test_three_times_stuck_is_poison() -> None:
    """An element that never finishes three times fails the job like an element that
    kills.
    """
    fleet = Fleet(task_timeout=5.0)
    task = fleet.task_of("a")
    for _ in range(MOST_DEATHS + 1):
        worker = fleet.host(task)
        fleet.report(worker, busy=6.0, work=fleet.work(worker))
    assert "it was stuck for 6 s, 3 times" in fleet.failure()


def test_a_stuck_copy_is_replaced() -> None:
    """Another copy takes the place of a stuck copy in mode OFF."""
    fleet = Fleet("OFF", task_timeout=5.0)
    before = fleet.task_of("a")
    busy(fleet, "a", 5.0)
    fleet.go_on()
    after = fleet.task_of("a")
    assert before.removed
    assert after.task != before.task
