"""Test decisions on their way to the dispatcher, and the events that wait for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata.core.worker import decisions
from zmqdata.core.worker import events as e
from zmqdata.core.worker.decisions import Agreeing
from zmqdata.core.worker.lineage import Agreement
from zmqdata.decisions import Decision, Decisions

KEY = (7, 1)


class Hosted:
    """A task, and the outcome of its events."""

    key = KEY

    def __init__(self) -> None:
        self.agreement = Agreement(Decisions(), 0)
        self.sent: list[m.ElementsDecided] = []
        self.handled: list[object] = []
        handlers: dict[type[Any], Callable[[Any, float], None]] = {
            kind: lambda event, now: self.handled.append(event)
            for kind in (e.Produced, e.StateNoted, e.Exhausted)
        }
        self.agreeing = Agreeing(
            "w", lambda event: self if event.attempt == 1 else None, self._do, handlers
        )

    def _do(self, command: object) -> None:
        assert isinstance(command, e.Send)
        assert isinstance(command.message, m.ElementsDecided)
        self.sent.append(command.message)

    def make(self, number: int) -> e.Produced:
        """Make a block, which is handled or held."""
        made = e.Produced(*KEY, number, 1, 10, b"", ())
        if not self.agreeing.holds(made):
            self.handled.append(made)
        return made

    def decide(self, first: int, *decisions: Decision) -> None:
        self.agreeing.events[e.Decided](e.Decided(*KEY, first, decisions), 0.0)

    def answer(self, report: int, attempt: int = 1, needed: int = 0) -> None:
        self.agreeing.messages[m.DecisionsKept](
            e.DISPATCHER, m.DecisionsKept(7, attempt, report, needed), 1.0
        )


def test_nothing_waits_where_nothing_is_decided() -> None:
    """A pipeline that skips nothing sends its elements at once."""
    host = Hosted()
    made = host.make(0)
    assert (host.handled, host.sent) == ([made], [])


def test_what_is_made_behind_a_decision_waits_until_it_is_durable() -> None:
    """Elements behind a decision wait in order until it is durable, and earlier
    elements do not wait.
    """
    host = Hosted()
    before = host.make(0)
    host.decide(0, Decision("/0", 0, 5, (3,)))
    behind = [host.make(1), host.make(2)]
    assert (host.handled, host.agreement.kept.length) == ([before], 0)
    host.answer(1)
    assert (host.handled, host.agreement.kept.length) == ([before, *behind], 1)
    assert host.agreement.ask is None


def test_what_is_decided_meanwhile_is_told_at_once_all_together() -> None:
    """An acknowledgement releases its elements, and a single request carries all
    decisions since.
    """
    host = Hosted()
    host.decide(0, Decision("/0", 0, 5))
    first = host.make(0)
    host.decide(0, Decision("/0", 0, 8))
    second = host.make(1)
    host.decide(1, Decision("/0", 8, 9, (8,)))
    third = host.make(2)
    host.answer(1)
    assert host.handled == [first]
    assert host.sent[1:] == [
        m.ElementsDecided("w", 7, 1, 2, 0, (Decision("/0", 0, 8), Decision("/0", 8, 9, (8,))))
    ]
    host.answer(2)
    assert host.handled == [first, second, third]
    assert host.agreement.growing == 1


def test_an_ask_is_repeated_until_it_is_answered() -> None:
    """The worker repeats a request after a while without an acknowledgement, and
    ignores other acknowledgements.
    """
    host = Hosted()
    host.decide(0, Decision("/0", 0, 5))
    assert host.agreement.overdue_report(0.5, 1.0) is None
    assert host.agreement.overdue_report(1.0, 1.0) is host.sent[0]
    assert host.agreement.overdue_report(1.5, 1.0) is None
    host.answer(9)
    host.answer(1, attempt=2)
    assert host.agreement.ask is host.sent[0]
    host.answer(1)
    host.answer(1)
    assert host.agreement.overdue_report(9.0, 1.0) is None


def test_very_much_is_told_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker sends many decisions in portions, for example after an outage of the
    dispatcher, as messages have limits. Each portion releases its elements.
    """
    monkeypatch.setattr(decisions, "MOST_TOLD", 2)
    host = Hosted()
    made = []
    for number in range(6):
        host.decide(number, Decision(f"/0[{number}]/", 0, 1))
        made.append(host.make(number))
    host.answer(1)
    assert host.handled == made[:1]
    host.answer(2)
    assert host.handled == made[:3]
    host.answer(3)
    host.answer(4)
    assert host.handled == made
    assert [(ask.first, len(ask.decisions)) for ask in host.sent] == [
        (0, 1),
        (1, 2),
        (3, 2),
        (5, 1),
    ]
    assert host.agreement.kept.length == 6


def test_what_nobody_needs_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker keeps a few unneeded decisions for late clients, and beyond a bound
    only decisions that an attempt may need.
    """
    monkeypatch.setattr(decisions, "MOST_KEPT", 3)
    host = Hosted()
    for number in range(5):
        host.decide(number, Decision(f"/0[{number}]/", 0, 1))
        host.answer(number + 1, needed=number)
    assert (host.agreement.kept.base, host.agreement.kept.length) == (3, 5)
