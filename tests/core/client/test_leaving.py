"""Test the goodbye of a client."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.coordinated import Stepping
from zmqdata.core.client.leaving import LAST_REPORT, PATIENCE, REPEAT, Goodbye
from zmqdata.core.client.notices import Notices
from zmqdata.core.client.tasks import Reading


class Leaving:
    """The goodbye of client ``me``, and its messages."""

    def __init__(
        self, counts: bool = True, patience: float = 3600.0, reading: Reading | None = None
    ) -> None:
        self.commands: list[object] = []
        self.reading = reading or Reading(None, self.commands.append)
        reader = m.Reader(consumer_index=None if reading is None else 1)
        notices = Notices("job", reader, "tcp://d:1", patience, -1, self.commands.append)
        self.goodbye = Goodbye("me", self.reading, notices, counts, self.commands.append)

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
    leaving.goodbye.stop(m.IterationClosed("me"))
    leaving.goodbye.begin(1.0, at_end=False)
    leaving.goodbye.tick(1.0 + REPEAT / 2)
    leaving.goodbye.stop(m.IterationClosed("somebody else"))
    leaving.goodbye.tick(1.0 + REPEAT)
    assert leaving.said() == [goodbye((0, 3), report=1)] * 2
    leaving.goodbye.stop(m.IterationClosed("me"))
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


def numbered(counts: bool = True) -> Leaving:
    """Return the goodbye of consumer 1, whose loop has taken three steps."""
    reading = Stepping(None, lambda command: None)
    plan = m.Plan((m.View(0, ((1, 0),)),), 9, {})
    reading.list(m.TaskList(1, (m.TaskPlace(1, 1, "w", "w"),), False, plan))
    reading.grants("w")
    reading.store(reading.task(1), m.Block(1, 1, 1, 0, 3, 0, 30), "content")
    leaving = Leaving(counts, reading=reading)
    leaving.hand_out()
    return leaving


def test_the_last_steps_are_reported_for_as_long() -> None:
    """A numbered consumer repeats its last report as long as other readers do, and
    warns how many steps may come again when it gives up.
    """
    leaving = numbered()
    leaving.goodbye.begin(0.0, at_end=True)
    leaving.goodbye.close(1.0)
    leaving.goodbye.tick(LAST_REPORT + 0.9)
    said = leaving.said()
    assert said == [e.Send(e.DISPATCHER, m.CloseIteration("me", 1, {}, 3, at_end=True))] * 2
    leaving.goodbye.tick(LAST_REPORT + 1.0)
    [warning, closed] = leaving.said()
    assert isinstance(warning, e.LogLine)
    assert closed == e.Closed()
    assert (
        "has not answered for 300 s, so the last 3 steps read of job 'job' are not reported. "
        "A successor of consumer 1 may receive them again" in warning.text
    )


def test_reported_steps_are_not_waited_for() -> None:
    """The end of a program waits for a numbered consumer only if it has read to its
    end, the dispatcher has not counted all of it, and a successor would repeat it.
    """
    for counts, at_end, reported, is_waited_for in (
        (True, True, False, True),
        (True, True, True, False),
        (True, False, False, False),
        (False, True, False, False),
    ):
        leaving = numbered(counts)
        leaving.goodbye.begin(0.0, at_end=at_end)
        if reported:
            leaving.reading.acknowledge(1)
        assert leaving.goodbye.must_be_heard == is_waited_for
        leaving.goodbye.stop(m.IterationClosed("me"))
        assert not leaving.goodbye.must_be_heard
    leaving = Leaving()
    leaving.hand_out()
    leaving.goodbye.begin(0.0, at_end=True)
    assert not leaving.goodbye.must_be_heard


def test_a_stopped_process_does_not_give_up() -> None:
    """Time in which the process did not run does not count against the goodbye."""
    leaving = numbered()
    leaving.goodbye.forgive(50.0)
    leaving.goodbye.begin(0.0, at_end=True)
    leaving.goodbye.close(1.0)
    leaving.goodbye.forgive(900.0)
    leaving.goodbye.tick(1000.0)
    assert not leaving.goodbye.is_over
