"""Tests of how elements that workers left out are logged here."""

from __future__ import annotations

import pytest

from zmqdata.client.quarantine import MOST_KINDS, QuarantineLog
from zmqdata.messages import LeftOutElement


def left_out(number: int, error: str = "ValueError: bad", label: str = "map(f)") -> LeftOutElement:
    return LeftOutElement(3, "/0", number, label, error, (0, 9), "Traceback ...\nin f\n")


def test_each_kind_of_error_is_logged_once_and_then_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first element of each operation and class of error is logged with its
    traceback, then the tenth, the hundredth and so on.
    """
    log = QuarantineLog()
    for number in range(1234):
        log.tell(left_out(number, f"ValueError: bad {number}"))
    log.tell(left_out(7, "OSError: gone"))
    log.tell(left_out(8, label="map(g)"))
    first, *counts, other, elsewhere = [record.getMessage() for record in caplog.records]
    assert first == (
        "map(f) leaves out element 0 (task 3, split 0 to 9): ValueError: bad 0\n"
        "Traceback ...\nin f\n"
        "Further elements with ValueError are counted; `iterator.quarantine` lists them."
    )
    assert [text.partition(";")[0] for text in counts] == [
        f"map(f) has left out {count} elements with ValueError" for count in ("10", "100", "1,000")
    ]
    assert counts[-1].endswith(
        "the newest is element 999 (task 3, split 0 to 9): ValueError: bad 999"
    )
    assert other.startswith("map(f) leaves out element 7 ")
    assert elsewhere.startswith("map(g) leaves out element 8 ")


def test_the_number_of_kinds_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Errors whose classes have ever other names make no more lines than kinds."""
    log = QuarantineLog()
    for number in range(3 * MOST_KINDS):
        log.tell(left_out(number, f"Error{number}: bad"))
    assert len(caplog.records) == MOST_KINDS
