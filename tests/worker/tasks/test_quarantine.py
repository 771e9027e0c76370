"""Tests of how a worker reports the elements that its pipelines skip."""

from __future__ import annotations

import logging

import msgspec
import pytest

from tests.definitions import define
from zmqdata.decisions import LEFT_OUT_KEPT
from zmqdata.iterators.quarantine import LeftOut
from zmqdata.messages import LeftOutElement
from zmqdata.worker.tasks.quarantine import MOST_TEXT, SHOWN, TaskQuarantine

TASK = define(3, 1, 7, "dataset", "", "OFF", 9, None, (), (), stream=5, poisoned=(("/0", 0),))


def left_out(
    number: int, split: tuple[int, int] | None = None, text: str = "Traceback: ...\n"
) -> LeftOut:
    return LeftOut(number, "map(parse) at train.py:12", "ValueError: bad", text, split, "/0")


@pytest.fixture(autouse=True)
def _log_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def filled(count: int) -> TaskQuarantine:
    quarantine = TaskQuarantine(TASK, lambda element: None)
    for number in range(count):
        quarantine.append(left_out(number, (number, number + 1)))
    return quarantine


def test_the_first_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """A single record holds task, element, place in the user's code, split, error and
    traceback.
    """
    filled(1)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "task 3 leaves out element 0 of map(parse) at train.py:12 (split 0 to 1): ValueError: "
        "bad\nTraceback: ..."
    )


def test_many_are_told_by_powers_of_ten(caplog: pytest.LogCaptureFixture) -> None:
    """A million bad elements make seven lines, and a last line at the end."""
    quarantine = filled(1234)
    quarantine.end()
    texts = [record.getMessage() for record in caplog.records]
    assert [text.partition(",")[0] for text in texts[1:4]] == [
        f"task 3 has left out {count} elements" for count in (10, 100, 1000)
    ]
    assert "the newest is element 999 " in texts[3]
    assert texts[4:] == ["task 3 has ended and left out 1234 elements"]


@pytest.mark.parametrize("count", [0, 1])
def test_the_end_repeats_nothing(caplog: pytest.LogCaptureFixture, count: int) -> None:
    """A report that has logged every element ends without a last line."""
    filled(count).end()
    assert len(caplog.records) == count


def test_what_is_shown() -> None:
    """The status shows the number of all skipped elements, and the newest elements
    first.
    """
    shown = filled(LEFT_OUT_KEPT + 100).shown()
    assert shown["left_out"] == LEFT_OUT_KEPT + 100
    assert [one["number"] for one in shown["quarantine"]] == [
        *range(LEFT_OUT_KEPT + 99, LEFT_OUT_KEPT + 99 - SHOWN, -1)
    ]
    assert shown["quarantine"][0]["split"] == (LEFT_OUT_KEPT + 99, LEFT_OUT_KEPT + 100)


def test_any_text_can_be_shown() -> None:
    """Any text can be shown, including file names that are not valid text."""
    quarantine = TaskQuarantine(TASK, lambda element: None)
    quarantine.append(left_out(0, text="no \udcff"))
    assert (
        msgspec.json.decode(msgspec.json.encode(quarantine.shown()))["quarantine"][0]["traceback"]
        == "no \\udcff"
    )


def test_readers_hear_of_each_element_once() -> None:
    """Each element is reported once with bounded texts that can be encoded, also one
    that was left out in an earlier attempt; the dispatcher reports those that killed
    their process.
    """
    reported: list[LeftOutElement] = []
    quarantine = TaskQuarantine(TASK, reported.append)
    quarantine.append(left_out(0, text=""))
    quarantine.append(LeftOut(1, "map(parse)", "e" * 9000, "t" * 9000 + "\udcff", (1, 2), "/0"))
    for number in [*range(2, 2 * LEFT_OUT_KEPT), *range(LEFT_OUT_KEPT)]:
        quarantine.append(left_out(number, text=""))
    assert [one.number for one in reported] == list(range(1, 2 * LEFT_OUT_KEPT))
    assert (quarantine.total, len(quarantine)) == (2 * LEFT_OUT_KEPT, LEFT_OUT_KEPT)
    first = reported[0]
    assert (first.index, first.place, first.split, len(first.error)) == (5, "/0", (1, 2), MOST_TEXT)
    assert first.traceback.endswith("t\\udcff")
    assert len(first.traceback) == MOST_TEXT
