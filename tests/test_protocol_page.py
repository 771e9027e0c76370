"""Tests of the page that describes the protocol."""

from __future__ import annotations

import re
from pathlib import Path

from zmqdata import messages

PAGE = (Path(__file__).parent.parent / "docs" / "protocol.md").read_text()
KINDS = {kind.__name__ for kind in messages.Message.__subclasses__()}


def test_every_message_is_described() -> None:
    """The protocol page names every message."""
    assert not {name for name in KINDS if f"`{name}`" not in PAGE}


def test_nothing_else_is_described() -> None:
    """Every CamelCase name on the protocol page is a message or a struct that messages
    carry.
    """
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", PAGE))
    assert not {name for name in named if not hasattr(messages, name)}


def test_what_draws_follow_from_is_described() -> None:
    """The page names every seed of a task and the place where it is redrawn."""
    fields = messages.TaskDefinition.__struct_fields__
    seeds = {field for field in fields if "seed" in field} | {"repetition"}
    assert seeds <= set(fields)
    clause = PAGE[PAGE.index("\n5.4. ") : PAGE.index("\n5.5. ")]
    assert seeds <= set(re.findall(r"`(\w+)`", clause))


def test_clauses_are_numbered_without_gaps() -> None:
    """Clauses are numbered section.1, section.2 and so on in order."""
    clauses = [(int(a), int(b)) for a, b in re.findall(r"^(\d+)\.(\d+)\. ", PAGE, re.MULTILINE)]
    for section in {a for a, _ in clauses}:
        found = [b for a, b in clauses if a == section]
        assert found == list(range(1, len(found) + 1))
