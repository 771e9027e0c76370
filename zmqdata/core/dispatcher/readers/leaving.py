"""Departures: which readers may leave an iteration while elements of it are still owed.
This is the dispatcher's side; ``core.client.leaving`` is the readers'.

A reader could leave as soon as no more elements come to it. But another reader may have
died just before, unnoticed, and its elements would then reach no reader. So a reader
that is done stays until, for each task that is still owed, an heir has answered a
question that was posed afterwards. An heir is a reader that may read the task and is
not done. If all readers are done, no reader holds what is owed, and it is made again.

Nothing here is durable: readers repeat that they are done.

Decision 0047; protocol 3.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.dispatcher.peers.liveness import Questions, Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.holdings import holders_of, keeps
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.core.dispatcher.tasks.tasklists import Reach
from zmqdata.core.job_rules import outlives_host
from zmqdata.errors import DataLossError

FEW = 64
"""Maximum number of readers that are asked at a time."""
PAUSE = 0.25
"""Seconds between two occasions on which the readers of an iteration are asked."""
QUIET = 1.0
"""Seconds after which readers that are all done are asked for all that they delivered.
Until then, a worker may be sending them elements of a reader that has just left.
"""


@dataclass
class Done:
    """A reader that has handed out everything available to it."""

    beat: int
    """Number of the heartbeat that first said so."""
    question: int = 0
    """Number of the question that was posed since; 0 until one is."""
    posed: float = 0.0
    """Time at which it was posed."""
    may_leave: bool = False
    """True if it was told that it may leave."""
    retold: int = 0
    """Newest question for which it has reported all that it has delivered."""


@dataclass
class Departing:
    """The readers of an iteration that are done, and what the others are asked."""

    done: dict[str, Done] = field(default_factory=dict)
    """These readers, by name."""
    question: int = 0
    """Number of the newest question."""
    posed: float = -math.inf
    """Time at which it was posed."""
    asked: float = -math.inf
    """Time at which readers were last asked."""
    version: int = 0
    """Version of the task list by which readers were last told that they may leave."""
    all_since: float | None = None
    """Time since which all readers of a task are done; None if some are not."""
    given_out: dict[int, int] = field(default_factory=dict)
    """Tasks that were taken from their hosts because all readers were done, and the
    attempts that began then.
    """
    retelling: int = 0
    """Number of the question by which all were asked for all that they delivered; 0 if
    they were not.
    """

    @property
    def waiting(self) -> dict[str, Done]:
        """The readers for which a question was posed, and that may not leave yet."""
        return {name: one for name, one in self.done.items() if one.question and not one.may_leave}


class Departures:
    """Tracks which readers are done, and tells them when they may leave.

    Args:
        out: receives messages.
        clients: the living clients.
        questions: asks readers whether they are alive.
        hosting: knows which reader may read which task.
    """

    def __init__(
        self, out: Outbox, clients: Roster, questions: Questions, hosting: Hosting
    ) -> None:
        self.out = out
        self.clients = clients
        self.questions = questions
        self.hosting = hosting
        self._departing: dict[int, Departing] = {}
        self._due: set[int] = set()
        self._heard: set[int] = set()

    def record(self, iteration: Iteration, beat: m.ClientHeartbeat, now: float) -> None:
        """Record whether a reader is done, and which question it has answered."""
        number = iteration.iteration
        is_news = self.questions.hear(beat.client, beat.question, bool(beat.done))
        group = self._departing.get(number)
        if group is None and not beat.done:
            return
        if group is None:
            group = self._departing[number] = Departing()
        known = group.done.get(beat.client)
        if not beat.done:
            if known is not None:
                self._remove(group, beat.client)
                self.questions.ask(beat.client, group.question, now)  # others may wait
        elif known is None or known.beat != beat.done:
            group.done[beat.client] = Done(beat.done)
            group.all_since, group.retelling = None, 0
            self._due.add(number)
        else:
            if beat.retold is not None and beat.retold.mark == self.out.mark:
                known.retold = beat.retold.count
            if known.may_leave:  # the permission was lost
                is_news, known.may_leave = True, False
        if is_news:
            self._heard.add(number)

    def hear(self, beat: m.WorkerHeartbeat) -> None:
        """Record the questions that readers have answered by way of a worker."""
        for client, sign in beat.readers.items():
            if self.questions.hear(client, sign.question, sign.done):
                self._heard.add(self.out.state.client_iteration.get(client, -1))

    def are_all_done(self, iteration: Iteration) -> bool:
        """Return True if every reader of an iteration is done."""
        group = self._departing.get(iteration.iteration)
        return group is not None and iteration.clients <= group.done.keys()

    def push(self, now: float) -> None:
        """Pose a question for the readers that are done since the last one, and tell
        readers that they may leave. A single question serves all of a turn.
        """
        iterations = self.out.state.iterations
        for number in sorted(self._due & iterations.keys()):
            group = self._departing[number]
            if len(iterations[number].clients) > FEW and now - group.posed < PAUSE:
                continue
            self._due.discard(number)
            fresh = [one for one in group.done.values() if not one.question]
            if fresh:
                group.question, group.posed = self.questions.pose(), now
                for one in fresh:
                    one.question, one.posed = group.question, now
                self._ask(iterations[number], group, now)
        for number, group in self._departing.items():
            version = self.hosting.lists.version(number)
            if group.version != version:  # a task without an heir may be settled
                group.version = version
                self._heard.add(number)
        for number in sorted(self._heard & self._departing.keys() & iterations.keys()):
            self._release(iterations[number], self._departing[number])
        self._heard.clear()

    def _ask(self, iteration: Iteration, group: Departing, now: float) -> None:
        """Ask the readers that are not done and have not answered the newest question.

        Of many, ask those heard last first, and the others next time. They must not
        have answered the question of the reader that has waited longest, of each kind
        of reach.
        """
        group.asked = now
        undone, reach = iteration.clients - group.done.keys(), self.hosting.lists.reach
        first: dict[Reach | str, Done] = {}
        for client, one in sorted(group.waiting.items(), key=lambda item: item[1].question):
            first.setdefault(reach(iteration, client) if len(undone) > FEW else client, one)
        # One kind may wait for a dead reader while another can leave.
        sought = max(first.values(), key=lambda one: one.question)
        self.questions.ask_some(
            [
                client
                for client in undone
                if not self.questions.has_answered(client, sought.question)
            ],
            FEW,
            group.question,
            now,
            sought.posed,
        )

    def _release(self, iteration: Iteration, group: Departing) -> None:
        """Tell readers that they may leave if each task that is still owed has an
        heir.
        """
        waiting, lists = group.waiting, self.hosting.lists
        if not waiting:
            return
        oldest = min(one.question for one in waiting.values())
        heirs: dict[Reach, tuple[int, str]] = {}
        for client in iteration.clients:
            answer = self.questions.newest_of_reader(client), client
            if answer[0] >= oldest:
                reach = lists.reach(iteration, client)
                heirs[reach] = max(heirs.get(reach, answer), answer)
        able = [(count, lists.readable(iteration, heir)) for count, heir in heirs.values()]
        # Where a task is hosted, and its shard, decide who may read it.
        answers = [
            (task, max([count for count, may_read in able if may_read(task)], default=0))
            for task in {(one.shard, one.worker): one for one in _owed(iteration)}.values()
        ]
        answered: dict[Reach, float] = {}
        for client, one in waiting.items():
            reach = lists.reach(iteration, client)
            if reach not in answered:
                concerns = lists.concerning(iteration, client)
                answered[reach] = min(
                    [count for task, count in answers if concerns(task)], default=math.inf
                )
            if one.question <= answered[reach]:
                one.may_leave = True
                self.out.send(self.clients.peer(client), m.MayEnd(client, one.beat))

    # --- readers that are all done

    def tick(self, now: float) -> None:
        """Ask again, and give out what no reader holds."""
        iterations = self.out.state.iterations
        for number in self._departing.keys() - iterations.keys():
            del self._departing[number]
            self._due.discard(number)
        self.push(now)
        for number, group in self._departing.items():
            iteration = iterations[number]
            if now - group.asked >= PAUSE and group.waiting:
                self._ask(iteration, group, now)
            self._give_out(iteration, group, now)

    def _give_out(self, iteration: Iteration, group: Departing, now: float) -> None:
        """Have the rest of each task made again if all of its readers are done, and
        none of them has delivered it. A task that waits for its next host is left
        alone.
        """
        undone, waits = iteration.clients - group.done.keys(), self.hosting.lists.waits
        owed = [task for task in _owed(iteration) if task.worker or not waits(task)]
        able = {task.shard: holders_of(task, iteration) for task in owed}
        finished = {shard for shard, one in able.items() if one and undone.isdisjoint(one)}
        owed = [task for task in owed if task.shard in finished]
        if not owed or not outlives_host(iteration.job):
            group.all_since, group.retelling = None, 0
            return
        if group.all_since is None:
            group.all_since = now
        if now - group.all_since < QUIET:
            return
        if not group.retelling:
            group.retelling = self.questions.pose()
        readers = {client for shard in finished for client in able[shard]}
        missing = [client for client in readers if group.done[client].retold < group.retelling]
        if missing:
            for client in sorted(missing)[:FEW]:
                self.questions.ask(client, group.retelling, now, retells=True)
            return
        group.all_since, group.retelling = None, 0
        for task in owed:
            if not task.worker and group.given_out.get(task.task) == task.attempt:
                self.hosting.fail(iteration, DataLossError.__name__, _kept_back(task, iteration))
                return
            self.hosting.fence(task)
            group.given_out[task.task] = task.attempt

    def _remove(self, group: Departing, client: str) -> None:
        group.done.pop(client, None)
        group.all_since, group.retelling = None, 0

    def forget(self, client: str, iteration: Iteration) -> None:
        """Forget a reader that is gone."""
        group = self._departing.get(iteration.iteration)
        if group is not None:
            self._remove(group, client)


def _owed(iteration: Iteration) -> list[Task]:
    return [task for task in iteration.live_tasks if not task.settled]


def _kept_back(task: Task, iteration: Iteration) -> str:
    names = ", ".join(sorted(m.shown_name(one) for one in task.held if keeps(task, one)))
    return (
        f"Readers {names} of job {iteration.job.name} hold elements of task {task.task}. They "
        "report that they have handed out all that they received, without these elements, so no "
        "reader delivers them. These readers do not follow the protocol. Read the job again, or "
        "continue from a saved state of the iterator."
    )
