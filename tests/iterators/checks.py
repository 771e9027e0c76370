"""Shared helpers for the tests of iterators: the checker of ``zmqdata.testing``, and a
split provider with its ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.splits import Split
from zmqdata.testing.iterators import MAX_STEPS, check_iterator, outcomes, plain, run

__all__ = ["LedgerProvider", "check_restore", "outcomes", "plain", "provided", "run"]


def check_restore(
    node: Node, context: Callable[[], Context] = lambda: Context(seed=7), limit: int = MAX_STEPS
) -> list[Any]:
    """Run ``check_iterator`` on a node."""
    return check_iterator(node, context=context, limit=limit)


class LedgerProvider:
    """Provide the given ranges, repetition by repetition, with the ledger that leads to
    the current place.
    """

    def __init__(self, repetitions: Sequence[Sequence[Split]]) -> None:
        self.entries: list[Split] = []
        for number, splits in enumerate(repetitions):
            self.entries += [Split(number, *_range_of(split)) for split in splits]
            self.entries.append(Split(number, 0, 0))
        self.position = 0
        self.repetition = 0
        self.ended = False

    def next_split(self) -> Split | None:
        while not self.ended and self.position < len(self.entries):
            entry = self.entries[self.position]
            self.position += 1
            if entry.repetition == self.repetition:
                if not entry.is_end:
                    return entry
                self.ended = True
        return None

    def reset(self) -> None:
        self.repetition += 1
        self.ended = False

    def state(self) -> int:
        return self.position

    def restore(self, state: int) -> None:
        self.position = state
        before = self.entries[state - 1] if state else Split(0, 0, 1)
        self.repetition, self.ended = before.repetition, before.is_end


def _range_of(split: Split) -> tuple[int, int, tuple[str, ...]]:
    return split.start, split.stop, split.names


def _named(start: int, stop: int) -> Split:
    return Split(0, start, stop, tuple(f"file {number}" for number in range(start, stop)))


def provided(*sources: Sequence[Sequence[tuple[int, int] | Split]]) -> Callable[[], Context]:
    """Return a maker of contexts with a provider for each source, from the ranges of
    each repetition. Ranges without names are of files.
    """

    def make() -> Context:
        ledgers = [
            [
                [_named(*one) if isinstance(one, tuple) else one for one in ranges]
                for ranges in repetitions
            ]
            for repetitions in sources
        ]
        return Context(seed=7, providers=tuple(LedgerProvider(ledger) for ledger in ledgers))

    return make
