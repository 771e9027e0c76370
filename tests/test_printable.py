"""Tests of the display of untrusted texts."""

from __future__ import annotations

import pytest

from zmqdata.printable import printable


@pytest.mark.parametrize(
    "one", ["\x1b", "\x07", "\n", "\r", "\x9b", "\u202e", "\u2066", "\udc80", "\x7f", "\u200b"]
)
def test_what_a_terminal_would_obey_is_a_question_mark(one: str) -> None:
    """Characters that control a terminal are replaced by question marks. The test
    covers controls, line ends, bidirectional marks, surrogates and zero-width
    characters.
    """
    assert printable(f"a{one}[2Jb") == "a?[2Jb"


@pytest.mark.parametrize("text", ["", "job 1: 'x' [red]", "größer, 訓練, تدريب"])
def test_other_text_stays(text: str) -> None:
    """Letters of any script, spaces and marks stay unchanged."""
    assert printable(text) == text
