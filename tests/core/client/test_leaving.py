"""Test the goodbye of a client."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.leaving import LAST_REPORT, PATIENCE, REPEAT, Goodbye
from zmqdata.core.client.tasks import Reading


class Leaving:
    """The goodbye of client ``me``, and its messages."""

    def __init__(self, counts: bool = True, patience: float = 3600.0) -> None:
        self.commands: list[object] = []
        self.reading = Reading(None, self.commands.append)
        self.goodbye = Goodbye("me", self.reading, patience, counts, self.commands.append)

    def hand_out(self) -> None:
        self.reading.task(1)
        self.reading.hand_out(e.TakenElements(1, 1, 0, 3, 0))

    def said(self) -> list[object]:
        commands = list(self.commands)
        self.commands.clear()
        return commands


def goodbye(*delivered: tuple[int, int], report: int = 0) -> e.Send:
    return e.Send(
        e.DISPATCHER, m.CloseIteration("me", report, {1: delivered} if delivered else {}, 0, 0)
    )


def test_it_is_repeated_until_it_is_heard() -> None:
    """The client repeats its goodbye with the last report until it is acknowledged, and
    ignores other answers.
    """
    leaving = Leaving()
    leaving.hand_out()
    leaving.goodbye.heard(m.IterationClosed("me"))
    leaving.goodbye.begin(1.0, at_end=False)
    leaving.goodbye.tick(1.0 + REPEAT / 2)
    leaving.goodbye.heard(m.IterationClosed("somebody else"))
    leaving.goodbye.tick(1.0 + REPEAT)
    assert leaving.said() == [goodbye((0, 3), report=1)] * 2
    leaving.goodbye.heard(m.IterationClosed("me"))
    leaving.goodbye.tick(9.0)
    assert (leaving.said(), leaving.goodbye.is_over) == ([], True)


def test_whoever_closes_is_told_once() -> None:
    """A closing caller is released once when the goodbye has ended, or at once if it
    had ended or was not needed.
    """
    for is_first in (True, False):
        leaving = Leaving()
        if is_first:
            leaving.goodbye.close(0.0)
        leaving.goodbye.omit()
        if not is_first:
            assert leaving.said() == []
            leaving.goodbye.close(0.0)
        leaving.goodbye.omit()
        assert leaving.said() == [e.Closed()]


def test_a_report_that_others_depend_on_has_more_time() -> None:
    """A report that other clients depend on is repeated for the dispatcher time-out, at
    most a few minutes; other goodbyes end soon.
    """
    for reports, counts, patience, longest in (
        (True, True, 3600.0, LAST_REPORT),
        (True, True, 20.0, 20.0),
        (True, False, 3600.0, PATIENCE),
        (False, True, 3600.0, PATIENCE),
    ):
        leaving = Leaving(counts, patience)
        if reports:
            leaving.hand_out()
        leaving.goodbye.begin(0.0, at_end=False)
        leaving.goodbye.close(1.0)
        leaving.goodbye.tick(longest + 0.9)
        assert not leaving.goodbye.is_over
        leaving.goodbye.tick(longest + 1.0)
        assert leaving.goodbye.is_over
