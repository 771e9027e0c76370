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
from heapq import nsmallest

from zmqdata import messages as m
from zmqdata.core.dispatcher.hosting import Hosting
from zmqdata.core.dispatcher.liveness import Questions, Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasklists import Reach
from zmqdata.core.job_rules import outlives_host

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
    told: bool = False
    """True if it was told that it may leave."""
    retold: int = 0
    """Newest question that it has answered to the dispatcher itself."""


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
    all_since: float | None = None
    """Time since which all readers are done; None if some are not."""
    retelling: int = 0
    """Number of the question by which all were asked for all that they delivered; 0 if
    they were not.
    """


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
        self._due: dict[int, Iteration] = {}

    def take(self, iteration: Iteration, beat: m.ClientHeartbeat, now: float) -> None:
        """Record whether a reader is done, and which question it has answered."""
        is_news = self.questions.hear(beat.client, beat.question, bool(beat.done))
        group = self._departing.get(iteration.iteration)
        if group is None and not beat.done:
            return
        if group is None:
            group = self._departing[iteration.iteration] = Departing()
        known = group.done.get(beat.client)
        if not beat.done:
            if known is not None:
                self._remove(group, beat.client)
                self.questions.ask(beat.client, group.question, now)  # others may wait
        elif known is None or known.beat != beat.done:
            group.done[beat.client] = Done(beat.done)
            group.all_since, group.retelling = None, 0
            self._due[iteration.iteration] = iteration
        else:
            if beat.question is not None and beat.question.mark == self.out.mark:
                known.retold = beat.question.count
            if known.told:  # the permission was lost
                is_news, known.told = True, False
        if is_news:
            self._release(iteration, group)

    def hear(self, beat: m.WorkerHeartbeat) -> None:
        """Record the questions that readers have answered by way of a worker."""
        state = self.out.state
        for client, sign in beat.readers.items():
            iteration = state.iterations.get(state.client_iteration.get(client, -1))
            if self.questions.hear(client, sign.question, sign.done) and iteration is not None:
                group = self._departing.get(iteration.iteration)
                if group is not None:
                    self._release(iteration, group)

    def are_all_done(self, iteration: Iteration) -> bool:
        """Return True if every reader of an iteration is done."""
        group = self._departing.get(iteration.iteration)
        return group is not None and iteration.clients <= group.done.keys()

    def push(self, now: float) -> None:
        """Pose a question for the readers that are done since the last one. A single
        question serves all of them.
        """
        for iteration in list(self._due.values()):
            group = self._departing.get(iteration.iteration)
            is_many = len(iteration.clients) > FEW
            if group is not None and is_many and now - group.posed < PAUSE:
                continue
            del self._due[iteration.iteration]
            if group is not None:
                group.question, group.posed = self.questions.pose(), now
                for one in group.done.values():
                    one.question = one.question or group.question
                self._ask(iteration, group, now)

    def _ask(self, iteration: Iteration, group: Departing, now: float) -> None:
        """Ask the readers that are not done: of many, those heard last first, and the
        others next time.
        """
        group.asked = now

        def turn(client: str) -> tuple[float, float]:
            member = self.clients.members[client]
            return (member.asked if member.asked >= group.posed else -math.inf), -member.heard

        asked = [
            client
            for client in iteration.clients - group.done.keys()
            if client in self.clients and not self.questions.has_answered(client, group.question)
        ]
        for client in nsmallest(FEW, sorted(asked), key=turn):
            self.questions.ask(client, group.question, now)

    def _release(self, iteration: Iteration, group: Departing) -> None:
        """Tell readers that they may leave if each task that is still owed has an
        heir.
        """
        waiting = {
            client: one for client, one in group.done.items() if one.question and not one.told
        }
        if not waiting:
            return
        owed = _owed(iteration)
        lists, oldest = self.hosting.lists, min(one.question for one in waiting.values())
        heirs = [client for client in iteration.clients if self.questions.read_on(client, oldest)]
        verdicts: dict[tuple[int, Reach], bool] = {}
        for client, one in waiting.items():
            key = one.question, lists.reach(iteration, client)
            if key not in verdicts:
                able = {
                    lists.reach(iteration, heir): heir
                    for heir in heirs
                    if self.questions.read_on(heir, one.question)
                }
                may_read = [lists.readable(iteration, heir) for heir in able.values()]
                reads = lists.readable(iteration, client)
                verdicts[key] = all(
                    any(heir(task) for heir in may_read) for task in owed if reads(task)
                )
            if verdicts[key]:
                one.told = True
                self.out.send(self.clients.peer(client), m.MayEnd(client, one.beat))

    # --- readers that are all done

    def tick(self, iterations: dict[int, Iteration], now: float) -> None:
        """Ask again, and give out what no reader holds."""
        for number in [number for number in self._departing if number not in iterations]:
            del self._departing[number]
            self._due.pop(number, None)
        self.push(now)
        for number, group in self._departing.items():
            iteration = iterations[number]
            waits = any(one.question and not one.told for one in group.done.values())
            if waits and now - group.asked >= PAUSE:
                self._ask(iteration, group, now)
            self._give_out(iteration, group, now)

    def _give_out(self, iteration: Iteration, group: Departing, now: float) -> None:
        """Have the rest of all tasks made again if all readers are done, and none of
        them has delivered it.
        """
        owed = _owed(iteration)
        if not self.are_all_done(iteration) or not owed or not outlives_host(iteration.job):
            group.all_since, group.retelling = None, 0
            return
        if group.all_since is None:
            group.all_since = now
        if now - group.all_since < QUIET:
            return
        if not group.retelling:
            group.retelling = self.questions.pose()
        missing = [
            client for client in iteration.clients if group.done[client].retold < group.retelling
        ]
        if missing:
            for client in sorted(missing)[:FEW]:
                self.questions.ask(client, group.retelling, now, retells=True)
            return
        group.all_since, group.retelling = None, 0
        for task in owed:
            self.hosting.fence(task)

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
