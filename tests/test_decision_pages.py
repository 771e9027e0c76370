"""Tests of the pages of decisions: their headings, and what they say of each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "decisions"
TEXTS = {
    path.name[:4]: path.read_text(encoding="utf-8")
    for path in sorted(FOLDER.glob("[0-9]*.md"))
    if path.name != "0000-template.md"
}
HEADINGS = ["Context", "Decision", "Alternatives", "Consequences"]


def state(text: str) -> str:
    """Return the paragraph below the title, on a line of its own."""
    return " ".join(text.split("\n\n")[1].split())


def successors(text: str) -> list[str]:
    """Return the numbers of the decisions that replace the one of a page."""
    told = re.search(r"State: replaced by (.*?)\.(?: |$)", re.sub(r"\(\S*\)", "", state(text)))
    return re.findall(r"\d{4}", told[1]) if told else []


@pytest.mark.parametrize("number", TEXTS)
def test_a_page_has_the_form_of_the_template(number: str) -> None:
    """Each page has a number, a date, a state and the headings of the template."""
    text = TEXTS[number]
    assert text.startswith(f"# {number}: ")
    assert re.match(r"Date: \d{4}-\d\d-\d\d\. State: (accepted\.|replaced by \[)", state(text))
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == HEADINGS


def test_replacements_are_told_on_both_pages() -> None:
    """A page that replaces another is named on the replaced page, and the reverse."""
    told = {(number, new) for number, text in TEXTS.items() for new in successors(text)}
    replaces = {
        (old, number)
        for number, text in TEXTS.items()
        for one in re.findall(r"Replaces ([\d\[]{4,5})", state(text))
        for old in re.findall(r"\d{4}", one) or re.findall(r"Replaces \[(\d{4})", state(text))
    }
    assert replaces <= told
    assert {old for old, _ in told} == {old for old, _ in replaces}


def test_the_index_has_the_title_and_state_of_each_page() -> None:
    """The index names each page in order, with its title and its state."""
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d{4}) \| \[(.*)\]\(.*\) \| (.*) \|$", index, re.MULTILINE)
    assert rows == [
        (number, text.splitlines()[0].partition(": ")[2], f"replaced by {' and '.join(news)}")
        if (news := successors(text))
        else (number, text.splitlines()[0].partition(": ")[2], "accepted")
        for number, text in TEXTS.items()
    ]
