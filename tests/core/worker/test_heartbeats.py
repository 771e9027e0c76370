"""Test when a worker sends heartbeats to its dispatcher."""

from __future__ import annotations

from zmqdata.core.worker import events as e
from zmqdata.core.worker.heartbeats import FEW_TASKS, Heartbeats, notices
from zmqdata.core.worker.profile import WorkerProfile


def test_news_of_few_tasks_are_told_at_once() -> None:
    """News of a few tasks is sent at once, however recent the last heartbeat, and the
    next heartbeat follows after the usual pause.
    """
    beats = Heartbeats(usual=1.0, patience=60.0)
    beats.spoke(10.0)
    assert not beats.is_due(10.9, FEW_TASKS)
    assert beats.may_tell(10.0, FEW_TASKS)
    beats.spoke(10.0)
    assert not beats.is_due(10.9, FEW_TASKS)
    assert beats.is_due(11.0, FEW_TASKS)


def test_news_of_many_tasks_wait_for_more() -> None:
    """News of many tasks waits as long as their heartbeats cost, at most the usual
    pause, and goes with that heartbeat.
    """
    beats = Heartbeats(usual=100.0, patience=600.0)
    beats.spoke(10.0)
    assert not beats.may_tell(10.1, 1000)
    assert not beats.is_due(10.19, 1000)
    assert beats.is_due(10.21, 1000)
    assert not beats.is_due(109.9, 1_000_000)
    assert beats.is_due(110.0, 1_000_000)


def test_the_dispatcher_may_want_them_more_rarely() -> None:
    """The dispatcher can ask for rarer heartbeats, but neither for more frequent ones
    nor beyond its time-out.
    """
    beats = Heartbeats(usual=1.0, patience=60.0)
    for every, pause in ((0.0, 1.0), (0.2, 1.0), (5.0, 5.0), (100.0, 20.0)):
        beats.adopt_interval(every)
        assert beats.pause == pause


def test_who_says_nothing_is_given_up_once_in_so_long() -> None:
    """The worker gives the dispatcher up after a time-out from the first check or the
    last message, and sends optional messages only while it answers.
    """
    beats = Heartbeats(usual=1.0, patience=60.0)
    assert not beats.listens(0.0)
    assert not beats.gives_up(5.0)
    assert not beats.gives_up(64.0)
    beats.hear(64.0)
    assert beats.listens(67.0)
    assert not beats.listens(67.1)
    assert not beats.gives_up(123.0)
    assert beats.gives_up(124.0)
    assert not beats.gives_up(125.0)


def test_one_process_of_a_worker_warns_of_a_silent_dispatcher() -> None:
    """The first process of a worker warns that the dispatcher is silent. The others
    only note it.
    """
    for is_quiet, level in ((False, "warning"), (True, "info")):
        beats = Heartbeats(1.0, 600.0)
        who = WorkerProfile("w", "tcp://a:1", is_quiet=is_quiet)
        assert notices(beats, who, False, 0.0) == []
        (line,) = notices(beats, who, False, 3.0)
        assert isinstance(line, e.LogLine)
        assert line.level == level


def test_a_silent_dispatcher_is_reported_every_minute() -> None:
    """A worker reports the dispatcher's silence after three seconds, then every minute,
    and begins again once it has heard the dispatcher.
    """
    beats = Heartbeats(usual=1.0, patience=3600.0)
    reported = [now for now in range(200) if beats.silence(10.0 + now)]
    assert reported == [3, 63, 123, 183]
    assert beats.hear(210.0) == 200.0
    assert beats.hear(211.0) == 0.0
    assert [now for now in range(70) if beats.silence(211.0 + now)] == [3, 63]


def test_a_worker_is_cut_off_until_it_hears_the_dispatcher() -> None:
    """A worker is cut off from the loss of its connection, or from the report of a
    silence, until a message arrives.
    """
    beats = Heartbeats(usual=1.0, patience=600.0)
    beats.hear(0.0)
    assert not beats.is_cut_off
    beats.disconnect(1.0)
    assert beats.is_cut_off
    beats.hear(2.0)
    assert not beats.silence(4.0)
    assert not beats.is_cut_off
    assert beats.silence(5.0)
    assert beats.is_cut_off
    beats.hear(6.0)
    assert not beats.is_cut_off


def test_a_lost_connection_is_reported_soon_although_heartbeats_are_rare() -> None:
    """A worker that loses its connection reports that three seconds later if it hears
    nothing, however rare its heartbeats are. So does a worker that is not registered.
    """
    beats = Heartbeats(usual=1.0, patience=600.0)
    beats.hear(0.0)
    beats.adopt_interval(20.0)
    beats.disconnect(10.0)
    beats.disconnect(11.0)
    assert [now for now in range(80) if beats.silence(float(now))] == [13, 73]
    beats.hear(80.0)
    beats.disconnect(90.0)
    beats.hear(91.0)
    assert [now for now in range(91, 140) if beats.silence(float(now))] == []
    rare = Heartbeats(usual=20.0, patience=600.0)
    assert [now for now in range(80) if rare.silence(float(now), registered=False)] == [3, 63]


def test_rare_heartbeats_make_no_silence() -> None:
    """A dispatcher that asks for rare heartbeats is not silent before three of them."""
    beats = Heartbeats(usual=1.0, patience=600.0)
    beats.hear(0.0)
    beats.adopt_interval(20.0)
    assert [now for now in range(70) if beats.silence(float(now))] == [60]
