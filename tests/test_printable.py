"""Facts about texts of others that are shown."""

from __future__ import annotations

import pytest

from zmqdata.printable import printable


@pytest.mark.parametrize(
    "one", ["\x1b", "\x07", "\n", "\r", "\x9b", "\u202e", "\u2066", "\udc80", "\x7f", "\u200b"]
)
def test_what_a_terminal_would_obey_is_a_question_mark(one: str) -> None:
    """Controls of both kinds, ends of lines, changes of direction, halves of
    characters, and what has no width.
    """
    assert printable(f"a{one}[2Jb") == "a?[2Jb"


@pytest.mark.parametrize("text", ["", "job 1: 'x' [red]", "größer, 訓練, تدريب"])
def test_other_text_stays(text: str) -> None:
    """Letters of any script, spaces and marks."""
    assert printable(text) == text
