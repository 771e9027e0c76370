"""Elements that kill the process working on them: deaths are counted here, and the
consequences are decided.

The successor of a dead worker reports what the worker was working on. A worker reports
a call that does not return itself.

Decision 0016; protocol 8.9 to 8.12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.hosting import Hosting
from zmqdata.core.dispatcher.lineage import kin
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.job_rules import outlives_host
from zmqdata.errors import PipelineError
from zmqdata.filenames import legible

MOST_DEATHS = 3
"""Deaths at the same element after which it counts as poison."""
MOST_UNEXPLAINED = 5
"""Deaths of a task at no known element after which its iteration fails."""
MOST_IN_ALL = 20
"""Deaths of a task at different elements after which its iteration fails."""
LONG = 60.0
"""Seconds in one call after which the log reports it."""


class Deaths:
    """Counts deaths. At too many, fails the iteration or has the element left out.

    Args:
        out: state and commands.
        hosting: places tasks.
    """

    def __init__(self, out: Outbox, hosting: Hosting) -> None:
        self.out = out
        self.hosting = hosting
        self._told: dict[int, tuple[int, m.Place]] = {}

    def take(self, death: m.Death) -> None:
        """Count the death of a process for each of its tasks that may be the cause.

        SIGKILL counts only if an element is known to count it under: a person may have
        sent the signal.
        """
        for number, attempt in death.tasks:
            task = self.out.state.tasks.get(number)
            crumbs = tuple(
                one for one in death.crumbs if (one.task, one.attempt) == (number, attempt)
            )
            if (
                task is None
                or attempt > task.attempt
                or (not crumbs and (death.crumbs or death.killed))
            ):
                continue
            if (
                self._count(task, attempt, death.how, death.killed, crumbs)
                and task.worker
                and attempt < task.attempt
            ):
                # Its next host was chosen before this death was known, and would die of
                # the same element.
                self.hosting.fence(task)

    def look(self, worker: str, reports: Iterable[m.TaskReport]) -> None:
        """Log tasks that are in a call for long, and move tasks that exceed their
        ``task_timeout``.
        """
        for report in reports:
            task = self.out.state.tasks.get(report.task)
            if (
                task is None
                or report.crumb is None
                or (task.worker, task.attempt) != (worker, report.attempt)
            ):
                continue
            limit = self.out.state.iterations[task.iteration].job.task_timeout
            if limit is not None and report.busy >= limit and not task.settled:
                self._end_stuck(task, report.crumb, report.busy)
            elif report.busy >= LONG:
                self._tell(task, report.crumb, report.busy)

    def _end_stuck(self, task: Task, crumb: m.Crumb, busy: float) -> None:
        self.out.note(
            "warning",
            f"{what(crumb)} has been worked on for {busy:.0f} s (task_timeout); task {task.task} "
            "moves on",
        )
        if self._count(task, task.attempt, f"was stuck for {busy:.0f} s", False, (crumb,)):
            self._move(task)

    def _move(self, task: Task) -> None:
        """Take a task from the worker where it is stuck. A copy is replaced by a new
        one.
        """
        iteration = self.out.state.iterations[task.iteration]
        self.hosting.facts[task.worker].shunned.add(task.task)
        if outlives_host(iteration.job):
            self.hosting.fence(task)
        else:
            self.hosting.give_up(task)
            self.hosting.staff(iteration)

    def _tell(self, task: Task, crumb: m.Crumb, busy: float) -> None:
        if self._told.get(task.task) == (task.attempt, crumb.place):
            return
        self._told = {
            number: told for number, told in self._told.items() if number in self.out.state.tasks
        }
        self._told[task.task] = (task.attempt, crumb.place)
        self.out.note(
            "warning",
            f"{what(crumb)} has been worked on for {busy:.0f} s at worker "
            f"{self.hosting.facts[task.worker].address} "
            f"(task {task.task}). distribute(task_timeout=...) ends such calls",
        )

    # --- what follows

    def _count(
        self, task: Task, attempt: int, how: str, killed: bool, crumbs: tuple[m.Crumb, ...]
    ) -> bool:
        """Count a death of an attempt, once. Return True if the task continues after
        it.
        """
        iteration = self.out.state.iterations[task.iteration]
        if (
            attempt in task.deaths
            or iteration.failure is not None
            or (task.settled and outlives_host(iteration.job))
        ):
            return False
        self.out.commit(u.CountDeathUpdate(task.task, attempt, how, killed, crumbs))
        self._judge(task, iteration)
        return iteration.failure is None and not task.settled

    def _judge(self, task: Task, iteration: Iteration) -> None:
        alike = kin(task, iteration)
        poisoned = {place for one in alike for place in one.poisoned}
        found = [death for one in alike for death in one.deaths.values()]
        found = [
            death for death in found if not any(crumb.place in poisoned for crumb in death.crumbs)
        ]
        counts = Counter(crumb.place for death in found for crumb in death.crumbs)
        place = max(counts, key=lambda one: (counts[one], bool(one[0])), default=("", 0))
        if counts[place] >= MOST_DEATHS:
            self._condemn(task, iteration, place, found)
        elif sum(not death.crumbs for death in found) >= MOST_UNEXPLAINED:
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
        self, task: Task, iteration: Iteration, place: m.Place, found: list[u.CountDeathUpdate]
    ) -> None:
        deaths = [death for death in found if any(crumb.place == place for crumb in death.crumbs)]
        crumb = next(crumb for crumb in deaths[-1].crumbs if crumb.place == place)
        text = (
            f"{what(crumb)}{self._origin(task, crumb)} has brought its worker down {_times(deaths)}"
        )
        if iteration.job.on_poison != "skip":
            self._fail(
                iteration,
                text,
                [],
                " on_poison='skip' leaves such elements out." if crumb.skippable else "",
            )
        elif crumb.skippable:
            self.out.note("error", f"job {iteration.job.name}: {text}; it is left out from now on")
            node, number = place
            self.out.commit(u.PoisonUpdate(task.task, node, number, text))
            self.hosting.lists.tell(iteration)
        else:
            why = (
                f"{crumb.label} cannot leave out an element"
                if crumb.node
                else "no node is known that could leave it out"
            )
            self._fail(iteration, text, [], f" It cannot be left out (on_poison='skip'): {why}.")

    def _fail(
        self, iteration: Iteration, text: str, deaths: list[u.CountDeathUpdate], remedy: str = ""
    ) -> None:
        times = f", {_times(deaths)}" if deaths else ""
        hint = "Run the pipeline up to there in a separate process to find the cause."
        self.hosting.fail(iteration, PipelineError.__name__, f"{text}{times}. {hint}{remedy}")

    def _origin(self, task: Task, crumb: m.Crumb) -> str:
        where = f"task {task.task}"
        if crumb.split is not None:
            first, stop = crumb.split
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


def what(crumb: m.Crumb) -> str:
    """Describe what a task was working on, as the beginning of a sentence.

    >>> what(m.Crumb(4000, 1, 17, "/0", "map(f) at train.py:12"))
    'Element 17 that came to map(f) at train.py:12'
    """
    if crumb.node:
        return f"Element {crumb.number} that came to {crumb.label}"
    return (
        "Opening the pipeline"
        if crumb.number == m.OPENING
        else f"Element {crumb.number} of the pipeline"
    )


def _times(deaths: list[u.CountDeathUpdate]) -> str:
    hows = Counter(death.how for death in deaths)
    told = ", ".join(
        how if count == 1 else f"{how}, {count} times" for how, count in hows.most_common(3)
    )
    return f"{len(deaths)} times: it {told}"
