"""Test the part of a client in a trace, on simulated time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages as m
from zmqdata.client.trace import REPORT, ClientTrace
from zmqdata.core.client import events as e
from zmqdata.core.client.decider import ClientCore
from zmqdata.core.client.profile import ClientProfile
from zmqdata.measures.meter import LoopMeter
from zmqdata.testing.clock import Clock

AHEAD = 1_000.0


class Loop:
    """A training loop whose client may record.

    Args:
        ahead: seconds by which the client's clock is ahead of the dispatcher's.
    """

    def __init__(self, ahead: float = 0.0) -> None:
        self.clock, self.sent = Clock(), list[m.Message]()
        self.meter = LoopMeter(lambda: self.clock.now)
        core = ClientCore(ClientProfile("me", m.JobParameters("train", "d", "OFF"), 0, "tcp://d:1"))
        self.trace = ClientTrace(
            self.meter,
            core,
            lambda command: self.sent.append(command.message),
            lambda: AHEAD + ahead + self.clock.now,
        )

    def hear(self, message: m.Message) -> bool:
        return self.trace.takes(e.Received(e.DISPATCHER, message))

    def step(self, waiting: float, working: float) -> None:
        self.meter.ask()
        self.clock.now += waiting
        self.meter.give()
        self.clock.now += working

    def spans(self) -> list[m.Span]:
        reports = [one for one in self.sent if isinstance(one, m.SpansReported)]
        return [span for one in reports for span in one.spans]


def test_a_loop_records_while_it_is_asked() -> None:
    """Waits and steps are recorded between the message and the end, and reported each
    second; nothing is recorded before and after.
    """
    loop = Loop()
    loop.step(1.0, 1.0)
    assert loop.meter.recorder is None
    assert loop.hear(m.RecordSpans("t", 2.0))
    for _ in range(40):
        loop.step(0.025, 0.075)
        loop.trace.look()
    assert loop.meter.recorder is None
    seconds = {
        name: round(sum(span.seconds for span in loop.spans() if span.name == name), 3)
        for name in ("wait for an element", "step")
    }
    assert seconds["wait for an element"] + seconds["step"] == 2.0
    assert 0.45 <= seconds["wait for an element"] <= 0.55
    reports = [one for one in loop.sent if isinstance(one, m.SpansReported)]
    assert len(reports) >= 2 / REPORT
    assert [one.first for one in reports] == [
        sum(len(before.spans) for before in reports[:at]) for at in range(len(reports))
    ]
    assert {one.client for one in reports} == {"me"}
    assert all("job train" in one.name for one in reports)


def test_a_repeated_message_begins_nothing_anew() -> None:
    """The dispatcher repeats its message; other messages are left to the decider."""
    loop = Loop()
    loop.hear(m.RecordSpans("t", 2.0))
    loop.step(0.5, 0.5)
    assert loop.hear(m.RecordSpans("t", 1.0))
    loop.trace.close()
    assert sum(span.seconds for span in loop.spans()) == 1.0
    assert not loop.hear(m.Probe())
    assert not loop.trace.takes(e.Received("w", m.RecordSpans("t", 2.0)))
    loop.hear(m.RecordSpans("t", 0.0))
    assert not loop.trace.recorder.is_on


def test_blocks_are_marked_when_they_arrive() -> None:
    """The arrival of a block is recorded with its number on the link and its size."""
    loop = Loop()
    event = e.Arrived("me-1", m.Block(3, 7, 1, 0, 16, 0, 128), None)
    loop.trace.arrived(event)
    loop.hear(m.RecordSpans("t", 2.0))
    loop.trace.arrived(event)
    loop.trace.close()
    [span] = [span for span in loop.spans() if span.row.startswith("link ")]
    assert (span.task, span.numbers["message"], span.numbers["bytes"]) == (7, 3.0, 128.0)
    assert "me-1" not in span.row


@given(
    st.floats(-1e5, 1e5),
    st.lists(st.tuples(st.floats(0, 0.4), st.floats(0, 0.4)), min_size=1, max_size=4),
)
def test_clocks_are_compared(ahead: float, trips: list[tuple[float, float]]) -> None:
    """However a round trip divides into its two ways, the difference of the clocks is
    found within the error that is told.
    """
    loop = Loop(ahead)
    for there, back in trips:
        loop.hear(m.RecordSpans("t", 10.0))
        asked = [one for one in loop.sent if isinstance(one, m.RequestEcho)][-1]
        loop.clock.now += there
        echo = m.EchoSent(asked.request, AHEAD + loop.clock.now)
        loop.clock.now += back
        assert loop.hear(echo)
        assert loop.hear(echo)  # a late copy changes nothing
    loop.trace.report()
    report = loop.sent[-1]
    assert isinstance(report, m.SpansReported)
    assert abs(report.ahead - ahead) <= report.error + 1e-6
    assert report.error <= min(sum(trip) for trip in trips) / 2 + 1e-6
