"""Iterator of repeat, and its effect on split providers.

Decision 0038.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from zmqdata import nodes
from zmqdata.iterators.base import Context, ElementIterator, Name, Namer, make_iterator
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.naming import grouped
from zmqdata.splits import Split, SplitProvider

_log = logging.getLogger("zmqdata")

_SAY_AFTER = 64
"""Passes without elements after which an endless repeat says so, and again each time
that their number has doubled.
"""
_ENDLESS = 1 << 16
"""Repetitions reserved for each repetition of an outer, endless repeat: beyond it two
repetitions share a number.
"""


class ResetCounter:
    """Split provider whose state also counts the resets since the last request for a
    split.

    A provider's own state counts the entries of its ledger, where a reset leaves no
    trace before the next split.

    Attributes:
        origins: for each cache that began with this provider, by its path: the identity
            of the context of its first run, and the state of its input then. Later
            repetitions need both, and the providers have advanced by then.
    """

    def __init__(self, provider: SplitProvider) -> None:
        self._provider = provider
        self._resets = 0
        self.origins: dict[tuple[int, ...], Any] = {}

    def next_split(self) -> Split | None:
        split = self._provider.next_split()
        self._resets = 0
        return split

    def reset(self) -> None:
        self._provider.reset()
        self._resets += 1

    def state(self) -> Any:
        return [self._provider.state(), self._resets]

    def restore(self, state: Any) -> None:
        entries, resets = state
        self._provider.restore(entries)
        self._resets = 0
        for _ in range(resets):
            self.reset()


def _counting(providers: tuple[SplitProvider, ...] | None) -> tuple[ResetCounter, ...]:
    return tuple(
        one if isinstance(one, ResetCounter) else ResetCounter(one) for one in providers or ()
    )


def _refills(node: nodes.Node) -> bool:
    return node.refills or any(map(_refills, node.inputs))


@make_iterator.register(nodes.Repeat)
class RepeatIterator(ElementIterator):
    """Runs its input again and again, each time for another repetition.

    With providers, it asks them for the splits of the next repetition. An endless
    repeat ends after a pass with neither elements nor failures, as in tf.data. It goes
    on if other tasks may have taken the splits of that pass, or other clients its
    elements. A finite repeat makes all of its passes, unless its input is known to be
    empty.
    """

    def __init__(self, node: nodes.Repeat, context: Context) -> None:
        self._node = node
        self._providers = _counting(context.providers)
        self._context = (
            context if context.providers is None else replace(context, providers=self._providers)
        )
        self._outer = self._first_repetition(context.repetition)
        self._done = 0
        self._found = False
        self._fruitless = 0  # passes in a row without elements
        # Of the last element of earlier passes, if anyone asked for names then.
        self._last_name: Name | None = None
        self._input = self._make_input()
        may_fill = node.count >= 0 or context.providers is not None or _refills(node.input)
        self._goes_on_empty = may_fill and node.input.cardinality != 0

    def _first_repetition(self, outer: int) -> int:
        """Number of the first pass within repetition ``outer`` of a repeat above."""
        count = self._node.count
        return outer * (_ENDLESS if count < 0 else max(1, count))

    def _make_input(self) -> ElementIterator:
        self._begin_pass()
        return input_iterator(self._node, self._context.repeated(self._outer + self._done))

    def _begin_pass(self) -> None:
        self._naming: Namer | None = None
        self._pass = self._done

    def __next__(self) -> Any:
        while self._done != self._node.count:
            try:
                element = next(self._input)
            except StopIteration:
                self._begin_again()
                continue
            except Exception:
                self._found = True
                raise
            self._found = True
            return element
        raise StopIteration

    def _begin_again(self) -> None:
        self._done += 1
        if not self._found and not self._goes_on_empty:
            self._done = self._node.count  # the input will never yield an element
        if self._done == self._node.count:
            self._input.close()
            return
        if self._naming is not None:
            self._last_name = self._name()
        self._note_pass()
        self._found = False
        for provider in self._providers:
            provider.reset()
        self._rewind_input()

    def _note_pass(self) -> None:
        """Log a warning if an endless repeat finds no elements."""
        self._fruitless = 0 if self._found else self._fruitless + 1
        passes = self._fruitless
        if self._node.count < 0 and passes >= _SAY_AFTER and passes & (passes - 1) == 0:
            _log.warning(
                "%s: %d passes in a row had no elements. It goes on, because other readers may "
                "have taken them. If the dataset below it is always empty, look at its filters and "
                "files, or limit the passes with repeat(count)",
                self._node.label,
                passes,
            )

    def _rewind_input(self) -> None:
        self._begin_pass()
        if not self._input.rewind(self._outer + self._done):
            self._input.close()
            self._input = self._make_input()

    def rewind(self, repetition: int) -> bool:
        self._outer = self._first_repetition(repetition)
        self._done, self._found, self._last_name = 0, False, None
        self._rewind_input()
        return True

    def state(self) -> Any:
        if self._done == self._node.count:
            return [self._done, self._found, None, None]
        # An input that has ended or not begun does not report its providers, which are
        # in this repetition all the same.
        providers = [
            [one.state(), [[list(path), origin] for path, origin in one.origins.items()]]
            for one in self._providers
        ]
        return [self._done, self._found, self._input.state(), providers]

    def restore(self, state: Any) -> None:
        self._done, self._found, inner, states = state
        if self._done != self._node.count:
            for provider, (_, origins) in zip(self._providers, states, strict=True):
                provider.origins.update((tuple(path), origin) for path, origin in origins)
            # Created before the providers are restored: a cache notes where its input
            # begins.
            self._input = self._make_input()
            for provider, (entries, _) in zip(self._providers, states, strict=True):
                provider.restore(entries)
            self._input.restore(inner)

    def namer(self) -> Namer | None:
        return self._name

    def _name(self) -> Name | None:
        if not self._found:
            return self._last_name
        if self._naming is None:
            self._naming = grouped(self._input, self._pass)
        return self._naming()

    def current_split(self) -> tuple[int, int] | None:
        return self._input.current_split()

    def close(self) -> None:
        self._input.close()
