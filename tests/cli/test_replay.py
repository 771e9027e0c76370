"""Tests of what ``zmqdata replay`` prints, on elements that were made in this
process.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

import numpy as np
import pytest

from tests.definitions import define
from zmqdata.cli.commands import main
from zmqdata.cli.replay import cause_of, summary_of, tell_replayed, user_frame
from zmqdata.client.replaying import FetchedTask
from zmqdata.errors import PipelineError
from zmqdata.messages import LeftOutElement
from zmqdata.worker.tasks.replay import ReplayedElement

TASK = FetchedTask("train", define(4001, 1, 7, "dataset", "d", "OFF", 1, None, (), ()), b"", {})


def half(x: int, *, scale: float = 2.0) -> float:
    y = scale * x
    raise ValueError(f"no {y}")


def failed() -> PipelineError:
    """Return the error of a pipeline for a call of ``half``, with its traceback."""
    try:
        try:
            half(21)
        except ValueError as error:
            raise PipelineError("map(half) failed: ValueError: no 42.0") from error
    except PipelineError as error:
        return error
    raise AssertionError


def test_a_failure_is_told_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a debugger, the traceback and the arguments of the outermost function of
    the user are printed, and the exit code is 1.
    """
    error = failed()
    assert error.__cause__ is not None
    frame = user_frame(error.__cause__.__traceback__)
    assert frame is not None
    assert frame.f_code.co_name == "failed"
    # A pipeline calls the function from its own code, which is skipped.
    assert error.__cause__.__traceback__ is not None
    error.__cause__.__traceback__ = error.__cause__.__traceback__.tb_next
    found = ReplayedElement(122, 0, error=error, failed_before=(3,))
    assert tell_replayed(TASK, found, None) == 1
    told = capsys.readouterr().out
    assert "Element 122 of task 4001 (job train) fails here: ValueError: no 42.0" in told
    assert "Earlier elements fail, too: [3]." in told
    assert re.search(r"Arguments of half\(\):\n  x = 21\n  scale = 2.0\n", told)
    assert "in half\n" in told


def test_the_debugger_gets_the_traceback_of_the_user() -> None:
    """The debugger is opened for the user's exception, not for the pipeline's."""
    opened: list[TracebackType] = []
    error = failed()
    assert tell_replayed(TASK, ReplayedElement(1, 0, error=error), opened.append) == 1
    assert opened == [cause_of(error).__traceback__]


def test_an_element_that_does_not_fail_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The element is summarized, with what was skipped on the way; the exit code is
    0.
    """
    skipped = LeftOutElement(0, "/0", 17, "map(f)", "ValueError: no")
    found = ReplayedElement(7, 5, ({"x": np.zeros(3)},), left_out=(skipped,))
    assert tell_replayed(TASK, found, None) == 0
    told = capsys.readouterr().out
    assert "continues from a state before element 5" in told
    assert "1 elements are skipped on the way, the last is number 17 at map(f)" in told
    assert "does not fail here" in told
    assert "array([0., 0., 0.])" in told


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.arange(4, dtype=np.int8), "ndarray, shape (4,), dtype int8: [0 1 2 3]"),
        (np.int64(3), "np.int64(3)"),
        ("x" * 1000, "'" + "x" * 396 + "..."),
        (Mute(), "Mute, whose repr fails with RuntimeError"),
    ],
)
def test_values_are_summarized(value: Any, text: str) -> None:
    """A value is a line of limited length, whatever its ``repr`` does."""
    assert summary_of(value) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["replay", "4001", "-1"], "elements are numbered from 0, got -1"),
        (["replay", "x", "1"], "invalid int value: 'x'"),
        (["replay", "4001", "1"], "which dispatcher? Give --dispatcher tcp://HOST:PORT"),
    ],
)
def test_wrong_arguments_are_told(
    arguments: list[str],
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong number, or no dispatcher, ends with exit code 2 and a line."""
    monkeypatch.delenv("ZMQDATA_DISPATCHER", raising=False)
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert text in capsys.readouterr().err
