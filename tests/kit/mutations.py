"""Mutations of the cores, each of which breaks a law in a world that aims at the end.

A mutation replaces attributes of the core for a while. Each part of the rule that says
when a reader may end has a mutation here that leaves the part out, so that no part is
without a world that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from tests.kit.aimed import AIMED
from tests.kit.checks import LawBroken
from tests.kit.relaunches import RELAUNCH
from tests.kit.scenario import Kind, Scenario
from zmqdata import messages as m
from zmqdata.core.client.leaving import ReadingEnd
from zmqdata.core.dispatcher.peers.liveness import Questions, Roster
from zmqdata.core.dispatcher.readers.leaving import Departing, Departures
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.dispatcher.tasks.tasklists import TaskLists
from zmqdata.core.worker.links import SendLinks

MOST_WORLDS = 2000
"""Number of worlds within which a mutation must break a law."""
LOOKING = (AIMED, RELAUNCH)
"""Kinds of worlds that look for mutations, in turn."""


@dataclass(frozen=True)
class Mutation:
    """A change of the core that leaves a part of a rule out."""

    text: str
    """Behaviour of the changed core, as a sentence."""
    patches: tuple[tuple[Any, str, Any], ...]
    """The replaced attributes: owner, name and replacement."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Cover the time in which the core is changed."""
        former = [(owner, name, getattr(owner, name)) for owner, name, _ in self.patches]
        try:
            for owner, name, replacement in self.patches:
                setattr(owner, name, replacement)
            yield
        finally:
            for owner, name, original in former:
                setattr(owner, name, original)


def _hear_anything(self: Questions, client: str, answer: m.Question | None, done: bool) -> bool:
    member = self.clients.members.get(client)
    if member is not None:
        member.answered = self._count
        member.answered_reading = member.answered_reading if done else self._count
    return member is not None


def _release_by_any(self: Departures, iteration: Iteration, group: Departing) -> None:
    reads_all = Mutation("", ((TaskLists, "readable", lambda *args: lambda task: True),))
    with reads_all.applied():
        RELEASE(self, iteration, group)


def _answer_for_clients(self: SendLinks, questions: Mapping[str, m.Question], now: float) -> None:
    ASK(self, questions, now)
    for client in questions.keys() & self.by_client.keys():
        self.by_client[client].answer = questions[client]


def _begin_without_mark(self: Outbox, *args: Any, **options: Any) -> None:
    BEGIN(self, *args, **options)
    self.mark = 1


def _list_what_is_hosted(self: TaskLists, iteration: Iteration, client: str) -> m.TaskList:
    return replace(LIST(self, iteration, client), owed_elsewhere=())


def _forgive_and_believe(
    self: Roster, seconds: float, now: float, names: Iterable[str] | None = None
) -> None:
    known = None if names is None else list(names)
    FORGIVE(self, seconds, now, known)
    for name in self.members if known is None else known:
        self.members[name].answered = self.members[name].answered_reading = FOR_EVER


def _has_all(self: ReadingEnd, task_list: m.TaskList) -> bool:
    return self._is_anonymous or HAS_ALL(self, task_list)


RELEASE, ASK, BEGIN = Departures._release, SendLinks.ask, Outbox.__init__
LIST, FORGIVE, HAS_ALL = TaskLists.task_list, Roster.forgive, ReadingEnd._has_all
FOR_EVER = 1 << 60
"""Number of a question that is never asked."""
MUTATIONS: dict[str, Mutation] = {
    "ends-at-once": Mutation(
        "A reader that is done ends without asking.",
        ((ReadingEnd, "has_come", lambda self, *args: True),),
    ),
    "number-dropped": Mutation(
        "Whatever a reader says counts as an answer to the newest question.",
        ((Questions, "hear", _hear_anything),),
    ),
    "any-heir": Mutation(
        "Any reader that is not done releases the others, whatever it may read.",
        ((Departures, "_release", _release_by_any),),
    ),
    "worker-answers": Mutation(
        "A worker answers a question by itself, once it has heard it.",
        ((SendLinks, "ask", _answer_for_clients),),
    ),
    "mark-repeats": Mutation(
        "All starts of a dispatcher have the same mark.",
        ((Outbox, "__init__", _begin_without_mark),),
    ),
    "hosted-only": Mutation(
        "Lists leave out what is owed elsewhere.",
        ((TaskLists, "task_list", _list_what_is_hosted),),
    ),
    "forgiven-lives": Mutation(
        "A reader that is forgiven its silence counts as alive.",
        ((Roster, "forgive", _forgive_and_believe),),
    ),
    "anonymous-alone": Mutation(
        "A reader of a job without a name counts as alone.",
        ((ReadingEnd, "_has_all", _has_all),),
    ),
}
"""All mutations, by name."""


def broken_by(
    mutation: Mutation,
    first: int = 0,
    most: int = MOST_WORLDS,
    kinds: Sequence[Kind] = LOOKING,
) -> tuple[int, LawBroken] | None:
    """Return how many worlds were needed until one broke a law, and what it says; None
    if the laws do not notice the mutation. A world that breaks a law without the
    mutation, too, does not count.

    Example:
        >>> from tests.kit.mutations import MUTATIONS, broken_by
        >>> worlds, broken = broken_by(MUTATIONS["ends-at-once"])
        >>> worlds < 100
        True
    """
    for number in range(most):
        kind, seed = kinds[number % len(kinds)], first + number // len(kinds)
        with mutation.applied():
            broken = _breach(kind, seed)
        if broken is not None and _breach(kind, seed) is None:
            return number + 1, broken
    return None


def _breach(kind: Kind, seed: int) -> LawBroken | None:
    try:
        Scenario(seed, kind).run()
    except LawBroken as broken:
        return broken
    return None
