"""Test the recorder of spans, on simulated time."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages as m
from zmqdata.measures.recorder import Recorder
from zmqdata.measures.trace import KEPT
from zmqdata.testing.clock import Clock

WALL = 1_000_000.0


def recorder(clock: Clock, most: int = 100) -> Recorder:
    return Recorder(lambda: clock.now, lambda: WALL + clock.now, most)


def test_nothing_is_recorded_by_default() -> None:
    """A recorder that was not begun, or has ended, keeps nothing."""
    clock = Clock()
    one = recorder(clock)
    one.note(1, "", "making", 0.0, 1.0)
    one.mark(1, "", "sent", {})
    assert (one.is_on, one.spans(), one.left) == (False, (), 0.0)
    one.begin("t", 1.0)
    clock.now += 1.0
    assert one.look(lambda: None)
    one.note(1, "", "making", clock.now - 0.5, clock.now)
    assert (one.is_on, one.spans()) == (False, ())


def test_spans_end_with_the_recording() -> None:
    """A span that begins before a recording, or ends after it, is cut; what lasts on at
    the end is noted once.
    """
    clock = Clock()
    one = recorder(clock)
    clock.now += 10.0
    began = clock.now
    one.begin("t", 2.0)
    one.note(1, "", "early", began - 5.0, began + 0.5)
    clock.now += 2.5
    one.mark(1, "link", "sent", {})
    assert one.look(lambda: one.note(1, "", "late", began + 1.0, clock.now))
    one.note(1, "", "late", began + 1.0, clock.now)
    assert [(span.name, span.began - WALL, span.seconds) for span in one.spans()] == [
        ("early", began, 0.5),
        ("late", began + 1.0, 1.0),
    ]
    assert not one.look(lambda: None)
    clock.now += KEPT
    assert not one.look(lambda: None)
    assert (one.spans(), one.trace) == ((), "")


def test_neighbours_of_one_name_are_one_span() -> None:
    """Consecutive looks at a node become a span; a gap or another name begins a new
    one, and so does a span of another task.
    """
    clock = Clock()
    one = recorder(clock)
    one.begin("t", 10.0)
    begins = clock.now
    for name, since, until in (
        ("a", 0.0, 1.0),
        ("a", 1.001, 2.0),
        ("b", 2.0, 3.0),
        ("b", 4.0, 5.0),
    ):
        one.note(1, "node", name, begins + since, begins + until, merges=True)
        one.note(2, "node", name, begins + since, begins + until)
    found = [(span.name, round(span.seconds, 6)) for span in one.spans() if span.task == 1]
    assert found == [("a", 2.0), ("b", 1.0), ("b", 1.0)]
    assert len([span for span in one.spans() if span.task == 2]) == 4


def test_memory_is_bounded() -> None:
    """The oldest spans are dropped and counted, and a reader of the queue sees the
    gap.
    """
    clock = Clock()
    one = recorder(clock, most=3)
    one.begin("t", 100.0)
    for at in range(5):
        one.note(1, "", str(at), clock.now + at, clock.now + at + 1)
    assert ([span.name for span in one.spans()], one.dropped) == (["2", "3", "4"], 2)
    first, spans = one.take(2)
    assert (first, [span.name for span in spans]) == (2, ["2", "3"])
    first, spans = one.take(2)
    assert (first, [span.name for span in spans]) == (4, ["4"])
    assert one.take(2)[1] == ()


def test_a_request_may_be_repeated() -> None:
    """A repeated request begins nothing anew; another is refused meanwhile; the spans
    are sent in pages, as often as they are requested.
    """
    clock = Clock()
    one = recorder(clock, most=m.MOST_SPANS_TOLD + 100)
    ask = m.RequestTrace("r", "t", 5.0)
    assert one.answer(ask, "w") == m.TraceRecorded("r", 5.0)
    begins = clock.now
    for at in range(m.MOST_SPANS_TOLD + 1):
        one.note(1, "", str(at), begins + at / 1000, begins + (at + 1) / 1000)
    clock.now += 2.0
    again = one.answer(ask, "w")
    assert isinstance(again, m.TraceRecorded)
    assert (again.left, again.tracks) == (3.0, ())
    other = one.answer(m.RequestTrace("r", "u", 5.0), "w")
    assert isinstance(other, m.RequestRefused)
    assert other.error == "ResourceExhaustedError"
    clock.now += 3.0
    one.look(lambda: None)
    found: list[str] = []
    for _ in range(2):
        page = one.answer(m.RequestTrace("r", "t", first=len(found)), "w")
        assert page == one.answer(m.RequestTrace("r", "t", first=len(found)), "w")
        assert isinstance(page, m.TraceRecorded)
        assert (page.left, page.total) == (0.0, m.MOST_SPANS_TOLD + 1)
        found += [span.name for track in page.tracks for span in track.spans]
    assert found == [str(at) for at in range(m.MOST_SPANS_TOLD + 1)]
    unknown = one.answer(m.RequestTrace("r", "v"), "w")
    assert isinstance(unknown, m.RequestRefused)
    assert unknown.error == "NotFoundError"
    assert isinstance(one.answer(m.RequestTrace("r", "v", 1.0), "w"), m.TraceRecorded)
    assert one.spans() == ()


@given(
    st.lists(
        st.tuples(
            st.integers(1, 2),
            st.floats(-2, 12),
            st.floats(-2, 12),
            st.booleans(),
            st.sampled_from("ab"),
        )
    )
)
def test_spans_of_a_row_never_overlap(
    noted: list[tuple[int, float, float, bool, str]],
) -> None:
    """In whatever order spans are noted, those of a row follow each other, within the
    recording.
    """
    clock = Clock()
    one = recorder(clock)
    one.begin("t", 10.0)
    begins = clock.now
    for task, since, until, merges, name in noted:
        one.note(task, "", name, begins + since, begins + until, merges=merges)
    for task in (1, 2):
        found = [span for span in one.spans() if span.task == task]
        assert all(a.began + a.seconds <= b.began + 1e-6 for a, b in itertools.pairwise(found))
        assert all(begins - 1e-6 <= span.began - WALL for span in found)
        assert all(span.began - WALL + span.seconds <= begins + 10 + 1e-6 for span in found)
        assert all(span.seconds > 0 for span in found)
