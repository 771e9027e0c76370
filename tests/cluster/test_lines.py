"""Test which lines of a server's output are shown, and when."""

from __future__ import annotations

import pytest

from zmqdata.cluster.lines import BAR_EVERY, MOST_LINE, PARTLY_AFTER, ShownLines
from zmqdata.config.logs import FOLLOWS

QUIET = "2026-01-02 10:00:00,000 INFO [7] zmqdata.worker: registered"
QUIET_2 = QUIET.replace("[7]", "[7+2]")
LOUD = "2026-01-02 10:00:00,000 ERROR [7] decode: no such file"
LOUD_1 = LOUD.replace("[7]", "[7+1]")


def shown(*pieces: str, seconds: float = 0.0) -> list[str]:
    """Return the lines shown of pieces of output, so many seconds apart."""
    lines = ShownLines()
    found = [
        one for now, piece in enumerate(pieces) for one in lines.take(piece.encode(), now * seconds)
    ]
    return [*found, *lines.end()]


def test_a_record_is_shown_or_hidden_as_a_whole() -> None:
    """The further lines of a record share its fate, whatever lies between two looks; a
    line that is printed behind it is shown.
    """
    more = f"{FOLLOWS}Traceback"
    assert shown(f"{QUIET_2}\n", f"{more}\n{FOLLOWS}\nprinted\n") == ["printed"]
    assert shown(f"{LOUD_1}\n{more}\n{QUIET_2}\n{more}\n{more}\n") == [LOUD_1, more]
    assert shown(f"printed\n{QUIET}\n{LOUD}\n") == ["printed", LOUD]


def test_a_printed_line_that_looks_like_part_of_a_record_is_shown() -> None:
    """A line that begins as the further lines of records do is shown if the record
    before it is complete.
    """
    printed = f"{FOLLOWS}a table | with bars"
    assert shown(f"{QUIET}\n{printed}\n") == [printed]
    assert shown(f"{QUIET_2}\n{FOLLOWS}a\n{FOLLOWS}b\n", f"{printed}\n") == [printed]


def test_a_record_behind_a_line_without_an_end_is_a_line_of_its_own() -> None:
    """Text that was printed without the end of its line and the record behind it are
    two lines, each shown for itself, also if the text was shown before.
    """
    assert shown(f"loading ... {LOUD}\nnext\n") == ["loading ... ", LOUD, "next"]
    assert shown(f"loading ... {QUIET}\nnext\n") == ["loading ... ", "next"]
    assert shown("\r1%\r2%", f"{LOUD_1}\n{FOLLOWS}a\n") == ["2%", LOUD_1, f"{FOLLOWS}a"]
    for record, follow in ((LOUD, [LOUD]), (QUIET, [])):
        pieces = ("loading ... ", "", f"{record}\n")
        assert shown(*pieces, seconds=PARTLY_AFTER) == ["loading ... ", *follow]


def test_a_progress_bar_is_one_line() -> None:
    """The last state of a line that is written over is shown, now and then while it
    lasts and at its end; a bar that is cleared leaves no line.
    """
    assert shown("\r 1%\r 2%\r 3%\n", "text\r\n") == [" 3%", "text"]
    assert shown("\r 1%\r    \r", "next\n") == ["next"]
    steps = [f"\r{n}%" for n in range(40)]
    assert shown(*steps, "\n", seconds=1.0) == ["0%", "10%", "20%", "30%", "39%"]
    assert shown(*steps, seconds=BAR_EVERY / 1000) == ["0%", "39%"]


def test_a_line_without_an_end_is_shown_after_a_while() -> None:
    """The beginning of a line appears when nothing follows it for a second, and what
    follows later is a line of its own.
    """
    lines = ShownLines()
    assert list(lines.take(b"loading ", 0.0)) == []
    assert list(lines.take(b"... ", 0.5)) == []
    assert list(lines.take(b"", 0.5 + PARTLY_AFTER)) == ["loading ... "]
    assert list(lines.take(b"\n", 5.0)) == []
    assert list(lines.take(b"done\n\n", 5.0)) == ["done", ""]
    assert list(lines.end()) == []


@pytest.mark.parametrize(("begin", "is_shown"), [("x", True), (LOUD, True), (QUIET, False)])
def test_a_line_without_an_end_takes_bounded_memory(begin: str, is_shown: bool) -> None:
    """A line that is too long is shown in pieces, or hidden as a whole."""
    line = begin + "x" * (3 * MOST_LINE)
    pieces = [line[at : at + 1000] for at in range(0, len(line), 1000)]
    found = shown(*pieces, "\nprinted\n")
    assert found[-1] == "printed"
    assert "".join(found[:-1]) == (line if is_shown else "")
    assert all(len(one) <= MOST_LINE + 1000 for one in found)
