"""Test which spans of loops a dispatcher keeps, on simulated time."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.core.dispatcher.state import trace as r
from zmqdata.core.dispatcher.state.trace import LAST_REPORTS, TELL, ReportedTrace
from zmqdata.measures.trace import KEPT

SPAN = m.Span(0, "loop", "step", 0.0, 1.0)


def asked(seconds: float = 0.0, first: int = 0, trace: str = "t") -> m.RequestTrace:
    return m.RequestTrace("r", trace, seconds, first)


def report(client: str, first: int = 0, count: int = 1, trace: str = "t") -> m.SpansReported:
    return m.SpansReported(client, trace, first, (SPAN,) * count, f"client {client}", 0.5, 0.1)


def tracks(answer: m.RequestRefused | m.TraceRecorded) -> dict[str, int]:
    assert isinstance(answer, m.TraceRecorded)
    return {track.name: len(track.spans) for track in answer.tracks}


def test_clients_are_told_until_the_end() -> None:
    """Each second of a trace, the clients of that time are told how much is left of
    it; before and after it, none is.
    """
    one = ReportedTrace()
    assert one.due(0.0, ["a"]) is None
    one.answer(asked(2.5), 10.0)
    assert one.due(10.0, ["a"]) == m.RecordSpans("t", 2.5)
    assert one.due(10.0 + TELL / 2, ["a"]) is None
    assert one.due(10.0 + TELL, ["a", "b"]) == m.RecordSpans("t", 1.5)
    assert one.due(12.5, ["a", "b"]) is None


def test_reports_of_told_clients_are_kept() -> None:
    """The spans of clients that were told come with the answer once the last reports
    are in; others, late ones and those of another trace do not.
    """
    one = ReportedTrace()
    one.answer(asked(2.0), 10.0)
    one.due(10.0, ["a", "b", "silent"])
    one.keep(report("a"), 11.0)
    one.keep(report("a", 1), 12.5)
    one.keep(report("b"), 12.0)
    one.keep(report("b", 1, trace="u"), 12.0)
    one.keep(report("stranger"), 12.0)
    early = one.answer(asked(), 12.0)
    assert isinstance(early, m.TraceRecorded)
    assert (early.left, early.tracks) == (LAST_REPORTS, ())
    over = 12.0 + LAST_REPORTS
    one.keep(report("b", 1), over + 0.1)
    answer = one.answer(asked(), over)
    assert tracks(answer) == {"client a": 2, "client b": 1}
    assert isinstance(answer, m.TraceRecorded)
    assert {(track.ahead, track.error) for track in answer.tracks} == {(0.5, 0.1)}


def test_one_trace_at_a_time() -> None:
    """Another trace is refused until the present one is complete, and an old one is
    forgotten.
    """
    one = ReportedTrace()
    one.answer(asked(2.0), 10.0)
    refused = one.answer(asked(2.0, trace="u"), 11.0)
    assert isinstance(refused, m.RequestRefused)
    assert (refused.error, "3 s" in refused.text) == ("ResourceExhaustedError", True)
    one.due(14.5 + KEPT, [])
    gone = one.answer(asked(), 14.5 + KEPT)
    assert isinstance(gone, m.RequestRefused)
    assert gone.error == "NotFoundError"
    assert isinstance(one.answer(asked(2.0, trace="u"), 80.0), m.TraceRecorded)


def test_memory_of_all_clients_together_is_bounded() -> None:
    """Clients together keep no more spans than one limit, and what is dropped is
    counted.
    """
    one = ReportedTrace()
    one.answer(asked(2.0), 10.0)
    names = [f"c{at}" for at in range(r.MOST_TOGETHER // m.MOST_SPANS_TOLD + 5)]
    one.due(10.0, names)
    for name in names:
        one.keep(report(name, 0, m.MOST_SPANS_TOLD), 11.0)
    answer = one.answer(asked(), 20.0)
    assert isinstance(answer, m.TraceRecorded)
    assert answer.total == r.MOST_TOGETHER
    assert sum(track.dropped for track in answer.tracks) == 5 * m.MOST_SPANS_TOLD
