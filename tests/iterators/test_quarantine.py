"""Tests of the list of elements that were left out."""

from __future__ import annotations

import logging

import pytest

from zmqdata import Dataset
from zmqdata.decisions import LEFT_OUT_KEPT
from zmqdata.iterators import quarantine as module
from zmqdata.iterators.quarantine import LeftOut, Quarantine


def left_out(number: int, place: str = "/0") -> LeftOut:
    return LeftOut(number, "map(f)", "ValueError: bad", "Traceback ...", None, place)


def test_an_element_is_listed_once() -> None:
    """An element that is left out again is not listed again; one without a place is."""
    found = Quarantine()
    found.extend([left_out(1), left_out(1), left_out(1, "/0 in repetition 1"), left_out(2)])
    found.extend([left_out(1, ""), left_out(1, "")])
    assert [(one.number, one.place) for one in found] == [
        (1, "/0"),
        (1, "/0 in repetition 1"),
        (2, "/0"),
        (1, ""),
        (1, ""),
    ]
    assert found.total == 5


def test_the_newest_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """A full quarantine drops the oldest element, and says so once."""
    found = Quarantine()
    found.extend(map(left_out, range(LEFT_OUT_KEPT)))
    assert caplog.records == []
    found.extend(map(left_out, range(LEFT_OUT_KEPT, LEFT_OUT_KEPT + 3)))
    assert [one.number for one in found] == list(range(3, LEFT_OUT_KEPT + 3))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "more than 1,000 elements were left out; `iterator.quarantine` lists the newest 1,000 only"
    )


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest elements are recognized when they come again."""
    monkeypatch.setattr(module, "LEFT_OUT_REMEMBERED", 2)
    found = Quarantine()
    found.extend(map(left_out, [1, 2, 3, 3, 2, 1]))
    assert [one.number for one in found] == [1, 2, 3, 1]


def test_a_replay_lists_nothing_again() -> None:
    """A shuffle that reads its input again after a state was loaded lists no element a
    second time, and each repetition and nested dataset lists its own.
    """

    def inverse(x: int) -> float:
        return 1 / int(x % 5)

    failing = Dataset.range(20).map(inverse, on_error="skip")
    dataset = (
        failing.shuffle(10)
        .repeat(2)
        .concatenate(
            Dataset.range(2).flat_map(lambda _: Dataset.range(5).map(inverse, on_error="skip"))
        )
    )
    iterator = iter(dataset)
    for _ in range(6):
        next(iterator)
    resumed = iter(dataset)
    resumed.load_state_dict(iterator.state_dict())
    assert len(list(resumed)) == 2 * 16 + 2 * 4 - 6
    assert len(resumed.quarantine) == 2 * 4 + 2
    assert len({(one.place, one.number) for one in resumed.quarantine}) == 2 * 4 + 2
