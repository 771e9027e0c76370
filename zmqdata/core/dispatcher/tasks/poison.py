"""Elements that kill the process working on them: deaths are counted here, and the
consequences are decided.

The successor of a dead worker reports what the worker was working on. A worker reports
a call that does not return itself. All that was in progress is suspect, and a suspect
is made again alone: only its death there proves it guilty.

Decision 0016; protocol 8.9 to 8.12.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.core.dispatcher.tasks.lineage import Suspicion, kin
from zmqdata.core.job_rules import outlives_host
from zmqdata.errors import PipelineError
from zmqdata.files.filenames import legible

MOST_DEATHS = 3
"""Deaths of an element alone after which it counts as poison."""
MOST_UNEXPLAINED = 5
"""Deaths of a task alone at no known element after which its iteration fails."""
MOST_IN_ALL = 20
"""Deaths of a task alone at different elements after which its iteration fails."""
PATIENCE = 15.0
"""Seconds for which a task is alone at first. It is cleared if it lives until then, and
gets twice the time when its process dies again.
"""
LONGEST_PATIENCE = 3600.0
"""Maximum of this time."""
LONGEST_CALL = 600.0
"""Seconds for which the call of a suspect may prolong this time."""
LONGEST_WAIT = 2.0
"""Seconds for which a task that is alone may wait for its readers."""
REPORTS_WITHIN = 30.0
"""Seconds in which the successor of a lost process that was alone reports its death."""
MOST_TOGETHER = 20
"""Deaths in a row beside other tasks, each soon after trials that all lived, after
which an iteration fails.
"""
APART_AFTER = 5
"""Number of these deaths after which tasks stay alone for longer."""
APART_FOR = 10.0
"""Least seconds for which they stay alone then."""
LONG = 60.0
"""Seconds in one call after which the log reports it."""


@dataclass
class Trial:
    """A worker that runs nothing but a suspect task."""

    worker: str
    """Name of the worker."""
    since: float
    """Time at which it began."""
    until: float
    """Time at which it ends."""
    task: int = 0
    """The suspect task; 0 while the worker waits for one."""
    attempt: int = 0
    """Attempt of the task."""
    suspects: set[m.Place] = field(default_factory=set)
    """The elements that it makes alone."""
    is_lost: bool = False
    """True if the worker is lost."""

    def proves(self, in_progress: tuple[m.Work, ...]) -> bool:
        """Return True if only one element can have killed the process that died at
        ``in_progress``.
        """
        places = {work.place for work in in_progress}
        return len(places) == 1 and all(not place[0] or place in self.suspects for place in places)


class Trials:
    """Has suspects made alone, one task of the cluster at a time.

    Nothing here is durable. A dispatcher that starts again tries every suspect anew.

    Args:
        out: state and commands.
        hosting: places tasks.

    Attributes:
        together: by iteration, the deaths in a row beside other tasks, each soon after
            trials that all lived.
    """

    def __init__(self, out: Outbox, hosting: Hosting) -> None:
        self.out = out
        self.hosting = hosting
        self.together: dict[int, int] = {}
        self._ended = -math.inf
        self._trial: Trial | None = None
        self._queue: dict[tuple[int, int], None] = {}  # iteration, and task or 0

    def resume(self) -> None:
        """Find the suspects of a former dispatcher. Those with a host lose it."""
        for iteration in self.out.state.iterations.values():
            for number in sorted(iteration.suspected):
                self.await_trial(iteration.tasks[number], 0)

    def await_trial(self, task: Task, attempt: int, is_miss: bool = False) -> None:
        """Note that a task is suspect after the death of an attempt. A later attempt
        began before this death was known, beside other tasks, and is given up.

        Args:
            task: the task.
            attempt: the attempt that died.
            is_miss: True if it died alone and nothing is proved by it. Other suspects
                are then tried before it.
        """
        iteration = self.out.state.iterations[task.iteration]
        outlives = outlives_host(iteration.job)
        key = (task.iteration, task.task * outlives)
        if is_miss:
            self._queue.pop(key, None)
        self._queue[key] = None
        is_beside = attempt < task.attempt and self.of(task.task, task.attempt) is None
        if task.worker and is_beside and outlives and not task.settled:
            self.hosting.fence(task)

    def of(self, task: int, attempt: int) -> Trial | None:
        """Return the trial for which an attempt of a task is made; None if it is made
        beside other tasks.
        """
        trial = self._trial
        return trial if trial and (trial.task, trial.attempt) == (task, attempt) else None

    def hear(self, death: m.Death, concerned: set[int], now: float) -> None:
        """End the trial of a process that is dead for certain. Without one, count the
        deaths in a row of processes that ran several tasks.

        Args:
            death: the death.
            concerned: the iterations whose tasks become suspect.
            now: present time.
        """
        trial = self._trial
        if trial is not None and trial.worker == death.worker:
            trial.is_lost, trial.until = True, now
        elif concerned and not death.killed and trial is None:
            is_again = now < self._ended + PATIENCE and len(death.tasks) > 1
            known, tasks = self.together if is_again else {}, self.out.state.tasks
            ran = {tasks[number].iteration for number, _ in death.tasks if number in tasks}
            self.together = {one: known.get(one, 0) + (one in concerned) for one in ran}

    def welcome(self, worker: str, now: float) -> None:
        """Reserve a new worker for suspects, before it gets other tasks."""
        trial = self._trial
        if trial is not None and trial.worker in self.hosting.facts:
            return
        is_free = trial is None or not trial.task or self._is_over(trial, now)
        if is_free and any(self._waiting()):
            self._trial = Trial(worker, now, now + PATIENCE)
            self.hosting.placement.reserved = worker

    def advance(self, now: float) -> None:
        """End a trial that is over. Begin the next."""
        trial = self._trial
        if trial is not None and trial.task:
            if not self._is_over(trial, now):
                return
            trial = self._trial = Trial(trial.worker, now, now + PATIENCE)
        waiting = list(self._waiting())
        for iteration, task in waiting:
            if task is not None and not self.hosting.is_ready(task):
                continue
            begun = self.hosting.host_alone(iteration, task)
            if begun is not None:
                until = now + PATIENCE * iteration.patience
                suspects = Suspicion.of(begun, iteration).suspects
                self._trial = Trial(begun.worker, now, until, begun.task, begun.attempt, suspects)
                self.out.note(
                    "info",
                    f"worker {self.hosting.facts[begun.worker].address} makes nothing but task "
                    f"{begun.task} of job {iteration.job.name} for a moment, because this task was "
                    "in progress when a process died",
                    iteration,
                )
                return
        if trial is not None and (not waiting or now >= trial.until):
            self._trial, self._ended = None, now
            self.hosting.resume_all()

    def _waiting(self) -> Iterator[tuple[Iteration, Task | None]]:
        """Yield the suspect tasks without a host, and None for a new copy, in the order
        in which they are tried.
        """
        for number, key in list(self._queue):
            iteration = self.out.state.iterations.get(number)
            if (
                iteration is None
                or iteration.failure is not None
                or not (key in iteration.suspected if key else iteration.suspected)
            ):
                del self._queue[number, key]
            elif iteration.clients or iteration.saving is not None:
                hostless = iteration.hosts.of("")
                found = [iteration.tasks[one] for one in hostless if key in (0, one)]
                found = [task for task in found if not task.settled]
                if found or not (key or iteration.closed):
                    yield iteration, found[0] if found else None

    def _is_over(self, trial: Trial, now: float) -> bool:
        task = self.out.state.tasks.get(trial.task)
        if task is None:
            return True
        iteration = self.out.state.iterations[task.iteration]
        if iteration.failure is not None or not iteration.suspects(task):
            return True
        if trial.worker not in self.hosting.facts:
            if not trial.is_lost:
                trial.is_lost, trial.until = True, now + REPORTS_WITHIN
            return now >= trial.until
        if not task.runs(trial.worker, trial.attempt):
            return True
        if now < trial.until:
            return False
        iteration.patience = min(2 * iteration.patience, LONGEST_PATIENCE / PATIENCE)
        self.clear(task, iteration)
        return True

    def note_report(self, worker: str, report: m.TaskReport, now: float) -> None:
        """Clear a task that has made its suspects alone and lives."""
        trial, task = self.of(report.task, report.attempt), self.out.state.tasks.get(report.task)
        if trial is None or task is None or worker != trial.worker:
            return
        if report.work and report.work.place in trial.suspects and report.busy < LONGEST_CALL:
            latest = trial.since + LONGEST_PATIENCE
            trial.until = max(trial.until, min(now + PATIENCE, latest))
        # The worker tells when it has made calls. Elements are counted here.
        numbers = (math.inf if node else number for node, number in trial.suspects)
        last = max(0, max(numbers, default=math.inf))
        lives = report.tried or report.total is not None or report.produced > last
        is_apart = self.together.get(task.iteration, 0) >= APART_AFTER
        is_stuck = report.waits and report.idle >= LONGEST_WAIT
        if is_stuck or (lives and now >= trial.since + APART_FOR * is_apart):
            self.clear(task, self.out.state.iterations[task.iteration])

    def clear(self, task: Task, iteration: Iteration) -> None:
        """Let a task go that has made its suspects, or had its time."""
        for one in kin(task, iteration):
            if one.suspicious:
                self.out.commit(u.ClearSuspectsUpdate(one.task, max(one.deaths)))


class Deaths:
    """Counts deaths. At too many, fails the iteration or has the element left out.

    Args:
        out: state and commands.
        hosting: places tasks.
    """

    def __init__(self, out: Outbox, hosting: Hosting) -> None:
        self.out = out
        self.hosting = hosting
        self.trials = Trials(out, hosting)
        self._named: dict[int, tuple[int, m.Place]] = {}

    def count(self, death: m.Death, now: float) -> None:
        """Count the death of a process for each of its tasks that may be the cause.

        SIGKILL counts only if an element is known to count it under: a person may have
        sent the signal.
        """
        known, concerned = self.out.state.tasks, dict[tuple[int, int], tuple[m.Work, ...]]()
        for number, attempt in death.tasks:
            in_progress = tuple(
                one for one in death.in_progress if (one.task, one.attempt) == (number, attempt)
            )
            is_explained = bool(in_progress) or not (death.in_progress or death.killed)
            if number in known and is_explained and self._is_new(known[number], attempt):
                concerned[number, attempt] = in_progress
        self.trials.hear(death, {known[number].iteration for number, _ in concerned}, now)
        self._fail_together()
        is_alone = len({*death.tasks}) == 1
        for (number, attempt), in_progress in concerned.items():
            self._count(known[number], attempt, death.how, death.killed, in_progress, is_alone)

    def check_calls(self, worker: str, reports: Iterable[m.TaskReport], now: float) -> None:
        """Log tasks that are in a call for long, and move tasks that exceed their
        ``task_timeout``.
        """
        for report in reports:
            self.trials.note_report(worker, report, now)
            task = self.out.state.tasks.get(report.task)
            if task is None or not report.work or not task.runs(worker, report.attempt):
                continue
            limit = self.out.state.iterations[task.iteration].job.task_timeout
            if limit is not None and report.busy >= limit:
                self._end_stuck(task, report.work, report.busy)
            elif report.busy >= LONG:
                self._tell(task, report.work, report.busy)

    def _end_stuck(self, task: Task, work: m.Work, busy: float) -> None:
        self.out.note(
            "warning",
            f"{what(work)} has been worked on for {busy:.0f} s (task_timeout); task {task.task} "
            "moves on",
            self.out.state.iterations[task.iteration],
        )
        self.hosting.facts[task.worker].shunned.add(task.task)
        if self._count(task, task.attempt, f"was stuck for {busy:.0f} s", False, (work,), True):
            self.hosting.evict(task)

    def _tell(self, task: Task, work: m.Work, busy: float) -> None:
        if self._named.get(task.task) == (task.attempt, work.place):
            return
        self._named = {
            number: told for number, told in self._named.items() if number in self.out.state.tasks
        }
        self._named[task.task] = (task.attempt, work.place)
        self.out.note(
            "warning",
            f"{what(work)} has been worked on for {busy:.0f} s at worker "
            f"{self.hosting.facts[task.worker].address} "
            f"(task {task.task}). distribute(task_timeout=...) ends such calls",
            self.out.state.iterations[task.iteration],
        )

    # --- what follows

    def _count(
        self,
        task: Task,
        attempt: int,
        how: str,
        killed: bool,
        in_progress: tuple[m.Work, ...],
        alone: bool,
    ) -> bool:
        """Count a death of an attempt, once. Return True if the task continues, and
        still has the host of this attempt.
        """
        if not self._is_new(task, attempt):
            return False
        iteration = self.out.state.iterations[task.iteration]
        trial = self.trials.of(task.task, attempt) if alone else None
        proof = trial is not None and trial.proves(in_progress)
        if trial is not None:
            self.trials.together.clear()
        self.out.commit(
            u.CountDeathUpdate(task.task, attempt, how, killed, in_progress, bool(trial), proof)
        )
        self._judge(task, iteration)
        self.trials.await_trial(task, attempt, trial is not None and not proof)
        return iteration.failure is None and attempt == task.attempt and not task.settled

    def _is_new(self, task: Task, attempt: int) -> bool:
        """Return True if the death of an attempt was not counted, and may count."""
        iteration = self.out.state.iterations[task.iteration]
        may_count = task.cleared < attempt <= task.attempt and iteration.failure is None
        is_settled = task.settled and outlives_host(iteration.job)
        return may_count and not is_settled and attempt not in task.deaths

    def _fail_together(self) -> None:
        """Fail the newest of the iterations whose processes die only with other tasks.
        The others may live without it.
        """
        together = self.trials.together
        number = max((one for one, count in together.items() if count >= MOST_TOGETHER), default=0)
        if number:
            together.clear()
            text = (
                f"Its workers died {MOST_TOGETHER} times in a row soon after they ran other tasks "
                "beside it. Alone in a process, all that was in progress lived. Tasks may share "
                "what allows one user at a time, such as a device or a library's state, or need "
                "too much memory together. Read this dataset from a cluster of its own, or when "
                "the other jobs have ended."
            )
            self.hosting.fail(self.out.state.iterations[number], PipelineError.__name__, text)

    def _judge(self, task: Task, iteration: Iteration) -> None:
        alike = kin(task, iteration)
        poisoned = {place for one in alike for place in one.poisoned}
        found = [
            death
            for one in alike
            for death in one.deaths.values()
            if death.alone and not any(work.place in poisoned for work in death.in_progress)
        ]
        proven = [one for one in Suspicion.of(task, iteration).proven if one[0] not in poisoned]
        counts = Counter(place for place, _ in proven)
        place = max(counts, key=lambda one: (counts[one], bool(one[0])), default=("", 0))
        if counts[place] >= MOST_DEATHS:
            deaths = [death for at, death in proven if at == place]
            self._condemn(task, iteration, place, deaths)
        elif sum(not death.in_progress for death in found) >= MOST_UNEXPLAINED:
            self._fail(
                iteration,
                f"Its workers died while task {task.task} was working on no known element",
                found,
            )
        elif sum(not death.killed for death in found) >= MOST_IN_ALL:
            self._fail(
                iteration, f"Its workers died at many different elements of task {task.task}", found
            )

    def _condemn(
        self, task: Task, iteration: Iteration, place: m.Place, deaths: list[u.CountDeathUpdate]
    ) -> None:
        work = deaths[-1].in_progress[0]
        text = (
            f"{what(work)}{self._origin(task, work)} has brought its worker down {_times(deaths)}"
        )
        cannot = " It cannot be left out (on_poison='skip'): "
        if iteration.job.on_poison != "skip":
            remedy = " on_poison='skip' leaves such elements out." if work.skippable else ""
        elif not work.node:
            remedy = cannot + "no node is known that could leave it out."
        elif not work.skippable:
            remedy = f"{cannot}{work.label} cannot leave out an element."
        elif self._may_be_delivered(task, iteration, deaths):
            remedy = cannot + "its call had returned before a process died: clients may have it."
        else:
            line = f"job {iteration.job.name}: {text}; it is left out from now on"
            self.out.note("error", line, iteration)
            node, number = place
            self.out.commit(u.PoisonUpdate(task.task, node, number, text))
            self.trials.clear(task, iteration)  # the elements before it have lived
            self.hosting.lists.tell(iteration)
            return
        self._fail(iteration, text, [], remedy)

    def _may_be_delivered(
        self, task: Task, iteration: Iteration, proofs: list[u.CountDeathUpdate]
    ) -> bool:
        """Return True if clients may have an element made of one that is proved guilty.
        Later elements would then have other numbers without it.
        """
        beside = [death for death in task.suspicious if not death.alone]
        known = {work.place for death in beside for work in death.in_progress}
        if not outlives_host(iteration.job) or proofs[-1].in_progress[0].place in known:
            return False
        taken = self.hosting.holdings.taken(task).ranges
        had = max([*(stop for _, stop in taken), *iteration.passed(task)], default=0)
        return had > max(0, max(death.in_progress[0].element for death in proofs))

    def _fail(
        self, iteration: Iteration, text: str, deaths: list[u.CountDeathUpdate], remedy: str = ""
    ) -> None:
        times = f", {_times(deaths)}" if deaths else ""
        hint = "Run the pipeline up to there in a separate process to find the cause."
        self.hosting.fail(iteration, PipelineError.__name__, f"{text}{times}. {hint}{remedy}")

    def _origin(self, task: Task, work: m.Work) -> str:
        where = f"task {task.task}"
        if work.split is not None:
            first, stop = work.split
            names = [
                name
                for ledger in task.ledger
                for entry in ledger.entries
                for at, name in enumerate(entry.names, entry.start)
                if first <= at < stop
            ]
            where += f", split {first} to {stop}" + (
                f": {', '.join(repr(legible(name)) for name in names[:3])}" if names else ""
            )
        return f" ({where})"


def what(work: m.Work) -> str:
    """Describe what a task was working on, as the beginning of a sentence.

    >>> what(m.Work(4000, 1, 17, "/0", "map(f) at train.py:12"))
    'Element 17 that came to map(f) at train.py:12'
    """
    if work.node:
        return f"Element {work.number} that came to {work.label}"
    return (
        "Opening the pipeline"
        if work.number == m.OPENING
        else f"Element {work.number} of the pipeline"
    )


def _times(deaths: list[u.CountDeathUpdate]) -> str:
    hows = Counter(death.how for death in deaths)
    told = ", ".join(
        how if count == 1 else f"{how}, {count} times" for how, count in hows.most_common(3)
    )
    return f"{len(deaths)} times: it {told}"
