"""repeat, and its effect on split providers.

Decision 0038.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context, Name, Namer, subgroup
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.naming import grouped
from zmqdata.iterators.random_access import element_at, element_of_uncounted, name_at
from zmqdata.nodes.base import NOTHING_AGAIN, Node, Unary, every_node, in_label
from zmqdata.nodes.parts import split_count
from zmqdata.splits import Split, SplitProvider


@dataclass(frozen=True, kw_only=True)
class Repeat(Unary):
    """Yields its input several times."""

    count: int = field(metadata=in_label(lambda count: "" if count < 0 else str(count)))
    """Number of passes; -1 repeats without end."""
    operation: ClassVar[str] = "repeat"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count == 0 or self.count == 0:
            return 0
        if self.count < 0 or count == INFINITE_CARDINALITY:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if count == UNKNOWN_CARDINALITY else count * self.count


_log = logging.getLogger("zmqdata")
_SAY_AFTER = 64
"""Passes without elements after which an endless repeat says so, and again each time
that their number has doubled. A task that alone owns its splits ends then.
"""
_SAY_AFTER_WITHOUT_SPLITS = 1 << 12
"""The same, if the task was given no split in these passes: faster tasks had them all,
which is usual for short repetitions.
"""
ENDLESS = 1 << 16
"""Repetitions reserved for each repetition of an outer, endless repeat: beyond it two
repetitions share a number.
"""


class ResetCounter:
    """Split provider whose state also counts the resets since the last request for a
    split.

    A provider's own state counts the entries of its ledger, where a reset leaves no
    trace before the next split.

    Attributes:
        given: number of splits that it has provided.
        origins: for each cache that began with this provider, by its path: the identity
            of the context of its first run, and the state of its input then. Later
            repetitions need both, and the providers have advanced by then.
    """

    def __init__(self, provider: SplitProvider) -> None:
        self._provider = provider
        self._resets = 0
        self.given = 0
        self.origins: dict[tuple[int, ...], Any] = {}

    def next_split(self) -> Split | None:
        split = self._provider.next_split()
        self._resets = 0
        self.given += 0 if split is None else split.size
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


def counting(providers: tuple[SplitProvider, ...] | None) -> tuple[ResetCounter, ...]:
    """Return providers that count resets."""
    return tuple(
        one if isinstance(one, ResetCounter) else ResetCounter(one) for one in providers or ()
    )


def _refills(node: Node) -> bool:
    return node.refills or any(map(_refills, node.inputs))


def _lacks_splits(node: Node) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{node.label} has no elements in one of the tasks of a promised order, beside other "
        "inputs, which the task would read without it. Its input probably has fewer splits (files, "
        "rows) than the order has tasks, or filters leave out all of them. Give distribute() a "
        "`num_tasks` of at most the number of splits of each input, or leave out "
        "`deterministic=True`."
    )


@make_iterator.register(Repeat)
class RepeatIterator(ElementIterator):
    """Runs its input again and again, each time for another repetition.

    With providers, it asks them for the splits of the next repetition. An endless
    repeat ends after a pass with neither elements nor failures, as in tf.data. It goes
    on if other tasks may have taken the splits of that pass, or other clients its
    elements, until as many splits as ``_SAY_AFTER`` whole passes have gave none. A
    finite repeat makes all of its passes, unless its input is known to be empty.

    If no other task may take the splits of this task, the repeat ends after a pass
    without splits and elements: no later pass has any. It also ends after
    ``_SAY_AFTER`` passes in a row whose splits gave no elements, because a reader in a
    promised order waits for its turn.
    """

    def __init__(self, node: Repeat, context: Context) -> None:
        self._node = node
        self._publish_in(context)
        self._providers = counting(context.providers)
        self._context = (
            context if context.providers is None else context.changed(providers=self._providers)
        )
        self._outer = self._first_repetition(context.repetition)
        self._done = 0
        self._found = False
        self._fruitless = 0  # passes in a row without elements
        self._given_before_them = 0  # splits
        self._had_splits = False  # in this pass, before the state that was restored
        self._owns_splits = context.owns_splits and node.count < 0 and not _refills(node.input)
        # Of the last element of earlier passes, if anyone asked for names then.
        self._last_name: Name | None = None
        self._pulls_ahead = bool(self._providers) and any(
            one.pulls_ahead for one in every_node(node.input)
        )
        self._input = self._make_input()
        may_fill = node.count >= 0 or context.providers is not None or _refills(node.input)
        self._goes_on_empty = may_fill and node.input.cardinality != 0

    def _first_repetition(self, outer: int) -> int:
        """Number of the first pass within repetition ``outer`` of a repeat above."""
        count = self._node.count
        return outer * (ENDLESS if count < 0 else max(1, count))

    def _make_input(self) -> ElementIterator:
        self._begin_pass()
        return input_iterator(self._node, self._context.repeated(self._outer + self._done))

    def _begin_pass(self) -> None:
        self._naming: Namer | None = None
        self._pass = self._done
        self._given_before = self._given()

    def _given(self) -> int:
        return sum(provider.given for provider in self._providers)

    def _has_had_splits(self) -> bool:
        """Return True if this pass was given splits that no other task may take."""
        return self._owns_splits and (self._had_splits or self._given() > self._given_before)

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
        self._strand.place = self._own_place
        self._done += 1
        if not self._found and not self._may_go_on():
            self._done = self._node.count  # the input will never yield an element
        if self._done == self._node.count:
            self._input.close()
            return
        if self._naming is not None:
            self._last_name = self._name()
        self._note_pass()
        self._found = self._had_splits = False
        if self._pulls_ahead:
            # An input that ended early, as behind take, has threads that would pull
            # splits of the next repetition and lose them.
            self._input.close()
        for provider in self._providers:
            provider.reset()
        if self._pulls_ahead:
            self._input = self._make_input()
        else:
            self._rewind_input()

    def _may_go_on(self) -> bool:
        """Return True if a later pass may have elements, although this one had none.

        Raises:
            InvalidArgumentError: the end of this input would end or change what the
                task makes of other inputs.
        """
        if not self._goes_on_empty or not self._owns_splits:
            return self._goes_on_empty and not self._has_tried_all()
        had_splits = self._has_had_splits()
        if had_splits and self._fruitless + 1 < _SAY_AFTER:
            return True
        if self._context.beside_others:
            raise _lacks_splits(self._node)
        if had_splits:
            _log.warning(
                "%s: %d passes in a row had no elements in a task of a promised order. The task "
                "ends, because the reader waits for its turn. Its splits are not read again. If "
                "filters leave out its elements by chance, give distribute() a smaller num_tasks",
                self._node.label,
                self._fruitless + 1,
            )
        return False

    def _has_tried_all(self) -> bool:
        """Return True if an endless repeat had no element in as many splits as
        ``_SAY_AFTER`` passes of all tasks have.
        """
        if self._node.count >= 0 or self._fruitless < _SAY_AFTER or _refills(self._node.input):
            return False
        count = split_count(self._node.input) if self._providers else None
        given = self._given() - self._given_before_them
        return count is not None and given >= count * _SAY_AFTER

    def _note_pass(self) -> None:
        """Log a warning if an endless repeat finds no elements."""
        passes = self._fruitless = 0 if self._found else self._fruitless + 1
        if passes <= 1:
            self._given_before_them = self._given_before
        had_splits = not self._providers or self._given() > self._given_before_them
        least = _SAY_AFTER if had_splits else _SAY_AFTER_WITHOUT_SPLITS
        if self._node.count < 0 and passes >= least and passes & (passes - 1) == 0:
            _log.warning(
                "%s: %d passes in a row had no elements. It goes on, because other readers may "
                "have taken them. If the dataset below it is always empty, look at its filters and "
                "files, or limit the passes with repeat(count)",
                self._node.label,
                passes,
            )

    def _rewind_input(self) -> None:
        if self._input.rewind(self._outer + self._done):
            self._begin_pass()
        else:
            self._input.close()
            self._input = self._make_input()

    def rewind(self, repetition: int) -> bool:
        if self._pulls_ahead:
            return False
        self._outer = self._first_repetition(repetition)
        self._done, self._found, self._last_name = 0, False, None
        self._fruitless, self._had_splits = 0, False
        self._rewind_input()
        return True

    def state(self) -> Any:
        if self._done == self._node.count:
            return [self._done, self._found, 0, False, None, None]
        # An input that has ended or not begun does not report its providers, which are
        # in this repetition all the same.
        providers = [
            [one.state(), [[list(path), origin] for path, origin in one.origins.items()]]
            for one in self._providers
        ]
        inner, had_splits = self._input.state(), self._has_had_splits()
        return [self._done, self._found, self._fruitless, had_splits, inner, providers]

    def restore(self, state: Any) -> None:
        self._done, self._found, self._fruitless, self._had_splits, inner, states = state
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


@element_at.register
def _(node: Repeat, index: int) -> Any:
    count = node.input.cardinality
    if count > 0:
        return element_at(node.input, index % count)
    return element_of_uncounted(node.input, index)


@name_at.register
def _(node: Repeat, index: int) -> Name:
    count = node.input.cardinality
    done, inner = divmod(index, count) if count > 0 else (0, index)
    group, position = name_at(node.input, inner)
    return subgroup(group, done), position
