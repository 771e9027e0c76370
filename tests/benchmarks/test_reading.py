"""Tests of the measuring loop on made-up elements."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.reading import Peer, Turn, count


class Fake(Peer):
    """A target that records every call."""

    def __init__(self) -> None:
        super().__init__()
        self.story: list[str] = []

    def prepare(self, turn: Turn) -> None:
        self.story.append("prepare")

    @contextlib.contextmanager
    def read(self, turn: Turn) -> Iterator[Iterator[Any]]:
        self.story.append("open")
        yield itertools.count()
        self.story.append("close")

    def forget(self) -> None:
        self.story.append("forget")


def turn(measure: str) -> Turn:
    return Turn(measure, "scalars", "", 1, 0.01, 0.0, 0)


def test_every_element_is_looked_at() -> None:
    """Every counted element was touched exactly once and in order."""
    seen: list[int] = []
    rate = count(itertools.count(), seen.append, 0.01)
    assert seen == list(range(len(seen)))
    assert 0 < rate <= len(seen) / 0.01


def test_elements_that_end_are_no_measurement() -> None:
    """A stream that ends early is an error, not a high rate."""
    with pytest.raises(EOFError):
        count(iter(range(3)), int, 1.0)


@pytest.mark.parametrize(
    ("measure", "story"),
    [
        ("rate", ["prepare", "open", "close"]),
        ("first", ["prepare", "open", "close", "open", "close"]),
        ("cold", ["forget", "prepare", "open", "close", "forget"]),
    ],
)
def test_what_each_measure_includes(measure: str, story: list[str]) -> None:
    """Servers start before the clock, except for a cold start; a first reader warms
    them up.
    """
    peer = Fake()
    assert peer.measure(turn(measure)) > 0
    assert peer.story == story
