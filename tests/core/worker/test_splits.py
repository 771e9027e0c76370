"""Test how a worker feeds splits to its runners and returns unstarted splits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker.ledger import SplitFeed
from zmqdata.core.worker.splits import Feeding
from zmqdata.splits import Split

KEY = (4, 2)
FIRST, SECOND, THIRD = Split(0, 0, 5), Split(0, 5, 9), Split(0, 9, 12)


@dataclass
class Task:
    """A hosted task with two sources."""

    key: tuple[int, int] = KEY
    feeds: list[SplitFeed] = field(default_factory=lambda: [SplitFeed(0), SplitFeed(0)])
    started: bool = True


class Talk:
    """The split feeding of a worker with a single task, and its reaction to the last
    message.
    """

    def __init__(self, *tasks: Task) -> None:
        self.tasks = {task.key: task for task in tasks}
        self.done: list[object] = []
        self.feeding = Feeding(
            "w",
            lambda word: self.tasks.get((word.task, word.attempt)),
            self.done.append,
        )

    def feed(self, event: object, now: float = 0.0) -> list[object]:
        """Return the reaction to an event."""
        self.done.clear()
        self.feeding.events[type(event)](event, now)
        return list(self.done)

    def hear(self, message: m.Message, now: float = 0.0) -> list[object]:
        """Return the reaction to a message of the dispatcher."""
        self.done.clear()
        self.feeding.messages[type(message)](e.DISPATCHER, message, now)
        return list(self.done)


def sent(message: m.Message) -> list[object]:
    return [e.Send(e.DISPATCHER, message)]


def ask(have: int = 0, cut: int = 0, source: int = 0, **more: Any) -> m.RequestSplits:
    return m.RequestSplits("w", *KEY, source, 0, have, cut, **more)


def wanted(have: int = 0, source: int = 0, **more: Any) -> e.SplitsWanted:
    return e.SplitsWanted(*KEY, source, 0, have, **more)


def assigned(first: int, *splits: Split, cut: int = 0, source: int = 0) -> m.SplitsAssigned:
    return m.SplitsAssigned(*KEY, source, first, splits, cut)


def returned(cut: int, entries: int, stop: int, source: int = 0) -> list[object]:
    return sent(m.SplitsReturned("w", *KEY, source, cut, entries, stop))


def test_a_wish_is_sent_once() -> None:
    """The worker asks the dispatcher once for the next splits of a source, and
    separately for another source.
    """
    talk = Talk(Task())
    assert talk.feed(wanted(waiting=False, pace=0.5)) == sent(ask(waiting=False, pace=0.5))
    assert talk.feed(wanted(waiting=False, pace=0.7)) == []
    assert talk.feed(wanted()) == sent(ask())
    assert talk.feed(wanted(source=1)) == sent(ask(source=1))


def test_a_wish_that_was_fulfilled_in_the_meantime_is_not_sent() -> None:
    """The worker does not send an outdated wish of a runner that does not know yet
    which splits were fed to it.
    """
    talk = Talk(Task())
    assert talk.hear(assigned(0, FIRST)) == [e.FeedSplits(*KEY, 0, (FIRST,))]
    assert talk.feed(wanted(have=0)) == []
    assert talk.feed(wanted(have=1)) == sent(ask(have=1))


def test_the_time_of_an_ask_is_that_of_the_wish() -> None:
    """A request has the time of the runner's wish, from which the worker counts to its
    repetition.
    """
    task = Task()
    Talk(task).feed(wanted(), 7.0)
    assert task.feeds[0].overdue_request(7.9, 1.0) is None
    assert task.feeds[0].overdue_request(8.0, 1.0) == ask()


def test_only_what_is_new_is_fed() -> None:
    """The worker feeds no repeated split, only the new splits of an overlapping answer,
    and none behind a gap.
    """
    talk = Talk(Task())
    assert talk.hear(assigned(1, SECOND)) == []
    assert talk.hear(assigned(0, FIRST)) == [e.FeedSplits(*KEY, 0, (FIRST,))]
    assert talk.hear(assigned(0, FIRST)) == []
    assert talk.hear(assigned(0, FIRST, SECOND)) == [e.FeedSplits(*KEY, 0, (SECOND,))]
    assert talk.hear(assigned(0, SECOND, source=1)) == [e.FeedSplits(*KEY, 1, (SECOND,))]


def test_a_runner_is_asked_what_it_has_not_started() -> None:
    """A running task decides which splits it returns; the worker reports the kept
    splits and then asks for the next.
    """
    talk = Talk(Task())
    talk.hear(assigned(0, FIRST, SECOND))
    talk.feed(wanted(have=2, waiting=False))
    assert talk.hear(m.TakeBackSplits(*KEY, 0, 1)) == [e.ReturnSplits(*KEY, 0)]
    assert talk.feed(e.LedgerCut(*KEY, 0, 1, 3, True)) == returned(1, 1, 3) + sent(
        ask(1, 1, waiting=False)
    )
    assert talk.hear(assigned(1, SECOND)) == []
    assert talk.hear(assigned(1, THIRD, cut=1)) == [e.FeedSplits(*KEY, 0, (THIRD,))]


def test_a_cut_without_a_wish_asks_for_nothing() -> None:
    """The worker only reports the kept splits after a cut without a wish."""
    talk = Talk(Task())
    talk.hear(assigned(0, FIRST, SECOND))
    assert talk.feed(e.LedgerCut(*KEY, 0, 1, 3, True)) == returned(1, 1, 3)


def test_a_cut_that_changed_nothing_has_no_number() -> None:
    """A cut without unstarted splits keeps its number and the request in flight."""
    task = Task()
    talk = Talk(task)
    talk.hear(assigned(0, FIRST))
    talk.feed(wanted(have=1))
    assert talk.feed(e.LedgerCut(*KEY, 0, 1, 5, False)) == returned(0, 1, 5)
    assert (task.feeds[0].cut, task.feeds[0].ask) == (0, ask(1))


def test_a_repeated_question_gets_the_same_answer() -> None:
    """The worker repeats a lost answer without asking the runner, and does not answer
    older or later cut numbers.
    """
    talk = Talk(Task())
    talk.hear(assigned(0, FIRST, SECOND))
    talk.feed(e.LedgerCut(*KEY, 0, 1, 3, True))
    assert talk.hear(m.TakeBackSplits(*KEY, 0, 1)) == returned(1, 1, 3)
    assert talk.hear(m.TakeBackSplits(*KEY, 0, 0)) == []
    assert talk.hear(m.TakeBackSplits(*KEY, 0, 3)) == []
    assert talk.hear(m.TakeBackSplits(*KEY, 0, 2)) == [e.ReturnSplits(*KEY, 0)]


def test_a_task_that_has_not_started_keeps_everything() -> None:
    """A task without a runner keeps its whole ledger with its cut number."""
    talk = Talk(Task(feeds=[SplitFeed(2), SplitFeed(0)], started=False))
    assert talk.hear(m.TakeBackSplits(*KEY, 0, 1)) == returned(0, 2, 0)
    assert talk.hear(assigned(2, THIRD)) == [e.FeedSplits(*KEY, 0, (THIRD,))]


def test_what_is_for_nobody_here_is_dropped() -> None:
    """The worker ignores messages for another task, an older attempt or a missing
    source.
    """
    talk = Talk(Task())
    for task, attempt in ((4, 1), (5, 2)):
        assert talk.feed(e.SplitsWanted(task, attempt, 0, 0, 0)) == []
        assert talk.feed(e.LedgerCut(task, attempt, 0, 0, 0, True)) == []
        assert talk.hear(m.SplitsAssigned(task, attempt, 0, 0, (FIRST,))) == []
        assert talk.hear(m.TakeBackSplits(task, attempt, 0, 1)) == []
    for source in (-1, 2):
        assert talk.hear(assigned(0, FIRST, source=source)) == []
        assert talk.hear(m.TakeBackSplits(*KEY, source, 1)) == []


# --- with a dispatcher, over a network that loses, repeats and reorders


class Between:
    """A runner, its feeding and a dispatcher over a network that may deliver any sent
    message at any time or never.
    """

    def __init__(self) -> None:
        self.talk = Talk(Task())
        self.runner: list[Split] = []
        self.started = 0
        self.ledger: list[Split] = []
        self.cut = self.next = 0
        self.mail: list[m.Message] = []

    def act(self, commands: list[object]) -> None:
        """Perform the reaction of the feeding."""
        for command in commands:
            if isinstance(command, e.FeedSplits):
                self.runner.extend(command.splits)
            elif isinstance(command, e.ReturnSplits):
                changed = len(self.runner) > self.started
                del self.runner[self.started :]
                stop = self.runner[-1].stop if self.runner else 0
                self.act(self.talk.feed(e.LedgerCut(*KEY, 0, self.started, stop, changed)))
            elif isinstance(command, e.Send):
                self.mail.append(command.message)

    def deliver(self, message: m.Message) -> None:
        """Deliver a message to the dispatcher or the worker."""
        if isinstance(message, m.RequestSplits):
            self._answer(message)
        elif not isinstance(message, m.SplitsReturned):
            self.act(self.talk.hear(message))
        elif message.cut == self.cut + 1:
            self.cut += 1
            del self.ledger[message.entries :]

    def _answer(self, request: m.RequestSplits) -> None:
        if request.cut == self.cut:
            if request.have == len(self.ledger):
                self.ledger.append(Split(0, self.next, self.next + 1))
                self.next += 1
            self.mail.append(assigned(request.have, *self.ledger[request.have :], cut=self.cut))

    def step(self, choice: int) -> None:
        """Perform a random next step."""
        if choice == 0:
            self.act(self.talk.feed(wanted(len(self.runner))))
        elif choice == 1:
            self.started = min(self.started + 1, len(self.runner))
        elif choice == 2:
            self.mail.append(m.TakeBackSplits(*KEY, 0, self.cut + 1))
        elif self.mail:
            self.deliver(self.mail[max(-len(self.mail), 2 - choice)])


@given(st.lists(st.integers(0, 7), min_size=30, max_size=90))
def test_a_runner_never_has_what_was_given_to_others(choices: list[int]) -> None:
    """The worker's splits are always a prefix of the dispatcher's ledger, however late
    or often messages arrive.
    """
    between = Between()
    for choice in choices:
        between.step(choice)
        assert between.runner == between.ledger[: len(between.runner)]
