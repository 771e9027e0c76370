"""Test how recorded spans travel: in pages, and gathered from reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages as m
from zmqdata.measures.trace import ReportedSpans, page_of


def spans(first: int, count: int) -> tuple[m.Span, ...]:
    return tuple(m.Span(at, "", str(at), 0.0, 1.0) for at in range(first, first + count))


@given(st.lists(st.integers(0, 3_000), max_size=5))
def test_pages_have_each_span_once(sizes: list[int]) -> None:
    """A reader that asks for page after page gets all spans of all processes."""
    tracks = [m.Track(str(at), spans(0, size), dropped=at) for at, size in enumerate(sizes)]
    found: list[list[m.Span]] = [[] for _ in tracks]
    first = 0
    while first < sum(sizes):
        page = page_of(m.RequestTrace("r", "t", first=first), tracks)
        count = sum(len(track.spans) for track in page.tracks)
        assert (page.total, 0 < count <= m.MOST_SPANS_TOLD) == (sum(sizes), True)
        first += count
        for at, track in enumerate(page.tracks):
            assert (track.name, track.dropped) == (str(at), at)
            found[at] += track.spans
    assert [tuple(one) for one in found] == [track.spans for track in tracks]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12))
def test_reports_count_once(reports: list[tuple[int, int]]) -> None:
    """Reports may be lost, repeated and late: each known span is there once, and what
    is missing counts as dropped.
    """
    one = ReportedSpans()
    expected: list[int] = []
    for first, count in reports:
        fresh = range(max(first, expected[-1] + 1 if expected else 0, one.seen), first + count)
        one.add(first, spans(first, count), 1_000)
        expected += fresh
    assert [span.task for span in one.spans] == expected
    assert one.track.dropped == one.seen - len(expected)


def test_the_newest_reported_spans_are_kept() -> None:
    """The oldest of too many spans are dropped."""
    one = ReportedSpans()
    one.add(0, spans(0, 5), 4)
    one.add(5, spans(5, 2), 4)
    assert [span.task for span in one.spans] == [3, 4, 5, 6]
    assert one.track.dropped == 3
    one.add(7, spans(7, 2), 0)
    assert (one.spans, one.track.dropped) == ((), 9)
